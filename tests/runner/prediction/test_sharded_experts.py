"""Weights that ranks share out: each has an owner, is gathered, and its gradient is reduced."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import Prices

from chakrascope.converter import CollectiveType, NodeType
from chakrascope.errors import UsageError
from chakrascope.runner.prediction.models import (
    Plan,
    Transformer,
    rank_memory,
    training_step,
)

MODEL = Transformer(
    name="experts", layers=4, hidden=64, heads=8, ffn=256, vocab=128, sequence=32, gated=True,
    experts=8, top_k=2, expert_ffn=128, shared_experts=1, dense_layers=1,
)  # fmt: skip
ONE_NODE = 1 << 20
MASTER_AND_MOMENTS = 12  # bytes a parameter


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    powers = st.sampled_from([1, 2, 4])
    tp, cp, dp = draw(powers), draw(st.sampled_from([1, 2])), draw(powers)
    split = draw(st.sampled_from([size for size in (1, 2, 4) if size <= tp]))
    fitting = [ep for ep in (1, 2, 4, 8) if tp * cp * dp // split % ep == 0]
    return Plan(
        tp=tp, cp=cp, dp=dp, ep=draw(st.sampled_from(fitting)), zero=draw(st.sampled_from([1, 2, 3])),
        pp=draw(st.sampled_from([1, 2])), expert_tp=split, sequence_parallel=tp > 1,
        global_batch=dp * 4, overlap=draw(st.booleans()),
    )  # fmt: skip


def moved(plan: Plan, kind: CollectiveType) -> float:
    """Return how many bytes of weights and gradients collectives of *kind* move for the first rank."""
    workload = training_step(MODEL, plan, Prices(), ONE_NODE)
    graph = workload.graphs[0]
    nodes = graph.node_columns
    chosen = (nodes["type"] == NodeType.COMM_COLL) & (nodes["comm_type"] == kind)
    total = 0.0
    for row in np.flatnonzero(chosen):
        name = str(nodes["name"].texts[nodes["name"].numbers[row]])
        if any(word in name for word in ("weights", "experts", "gradients")):
            members = len(workload.groups[int(nodes["group"][row])])
            size = float(nodes["comm_size_bytes"][row])
            total += size * (members if kind is CollectiveType.ALL_GATHER else 1)
    return total


def params_of(plan: Plan) -> float:
    """Return the parameters of the first rank that other ranks have too."""
    stage = range(MODEL.layers // plan.pp)
    experts = sum(map(MODEL.is_expert_layer, stage)) * MODEL.experts * MODEL.expert_params
    shared = sum(map(MODEL.layer_params, stage)) - experts + MODEL.embedding_params
    shared += MODEL.output_params if plan.pp == 1 else 0
    of_rank = experts / plan.ep / plan.expert_split
    has_copies = plan.degree(*plan.data_axes) > 1, plan.degree("edp") > 1
    return shared / plan.tp * has_copies[0] + of_rank * has_copies[1]


@given(plans())
def test_every_parameter_has_one_owner(plan: Plan):
    held = sum(rank_memory(MODEL, plan, stage).optimizer for stage in range(plan.pp))
    everywhere = held * plan.world / plan.pp
    assert everywhere == pytest.approx(MODEL.params() * MASTER_AND_MOMENTS, rel=1e-4)


@given(plans())
def test_sharded_weights_are_gathered_and_all_gradients_reduced(plan: Plan):
    micro_batches = plan.micro_batches if plan.shards_each_pass else 1
    shared = params_of(plan)
    gathered = shared * plan.element_bytes * micro_batches * (2 if plan.zero == 3 and plan.pp == 1 else 1)
    assert moved(plan, CollectiveType.ALL_GATHER) == pytest.approx(gathered, rel=1e-3)
    reduced = shared * plan.grad_bytes * micro_batches
    assert moved(plan, CollectiveType.REDUCE_SCATTER) == pytest.approx(reduced, rel=1e-3)


def test_fsdp_with_pipeline_stages_keeps_weights_and_gradients_whole():
    """As PyTorch: weights are gathered once a step, and gradients reduced after the last micro-batch."""
    one, two = (rank_memory(MODEL, Plan(dp=8, pp=pp, global_batch=32, zero=3), 0) for pp in (1, 2))
    held = sum(map(MODEL.layer_params, range(2))) + MODEL.embedding_params
    assert (one.weights, two.weights) == (0, 2 * held)
    assert two.gradients == 4 * held
    assert two.optimizer == pytest.approx(12 * held / 8, rel=1e-6)


def test_experts_of_fsdp_cost_what_their_weights_weigh():
    """Nearly all weights are those of experts; sharded without sharing them out, all are gathered."""
    plan = Plan(dp=8, global_batch=8, zero=3)
    dense = replace(MODEL, experts=0, top_k=0)
    alone = sum(map(dense.layer_params, range(dense.layers))) + 2 * dense.embedding_params
    assert moved(plan, CollectiveType.ALL_GATHER) > 4 * alone


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_single_precision_is_its_own_master_and_keeps_twice_the_activations(precision: str):
    half = rank_memory(MODEL, Plan(), 0)
    whole = rank_memory(MODEL, Plan(precision=precision), 0)
    params = MODEL.params()
    assert whole.weights + whole.gradients + whole.optimizer == 16 * params
    assert whole.activations == pytest.approx(2 * half.activations, rel=1e-6)


def test_parts_of_a_stage_need_several_stages():
    """Only the first of the parts was simulated, half of the model in silence."""
    with pytest.raises(UsageError, match="--interleave 2 shares parts"):
        training_step(MODEL, Plan(chunks=2, schedule="interleaved"), Prices(), 8)
