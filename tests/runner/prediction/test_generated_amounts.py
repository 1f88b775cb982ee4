"""However a step is split, all ranks together do the same work and hold the same weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
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

DENSE = Transformer(
    name="dense", layers=8, hidden=64, heads=8, kv_heads=2, ffn=192, vocab=96, sequence=64, gated=True
)
SPARSE = replace(
    DENSE, name="sparse", kv_heads=8, experts=8, top_k=2, expert_ffn=64, shared_experts=1, expert_every=2
)
LOCAL = replace(DENSE, name="local", chunk=16, full_every=4, tied=True)
BYTES = 2


PRICES = Prices(host_ns=3000.0, unit_ns=1.0, begin_ns=1.0, byte_ns=1.0)


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    """Splits over up to about 8 ranks, with batches that they divide."""
    tp, pp, dp, cp = (draw(st.sampled_from((1, 2, 4))) for _ in range(4))
    assume(tp * pp * dp * cp <= 16)
    chunks = draw(st.sampled_from((1, 2))) if pp in {2, 4} else 1
    kind = "interleaved" if chunks > 1 else "1f1b"
    if chunks == 1 and pp > 1:
        kind = draw(st.sampled_from(("1f1b", "zero-bubble")))
    return Plan(
        tp=tp,
        pp=pp,
        dp=dp,
        cp=cp,
        ep=draw(st.sampled_from((1, 2))) if dp > 1 else 1,
        micro_batch=draw(st.sampled_from((1, 2))),
        global_batch=32,
        chunks=chunks,
        schedule=kind,
        zero=draw(st.integers(0, 3)),
        sequence_parallel=tp > 1 and draw(st.booleans()),
        overlap=draw(st.booleans()),
    )


def flops(model: Transformer, plan: Plan) -> float:
    """Return the operations of matmuls and attention on all ranks together."""
    workload = training_step(model, plan, PRICES, 8)
    total = 0.0
    for stage in range(plan.pp):
        nodes = workload.graph_of(stage * plan.world // plan.pp).nodes
        total += float(nodes["num_ops"][nodes["operator"].isin(["gemm", "flash"])].sum())
    return total * plan.world / plan.pp


@settings(max_examples=10, deadline=None)
@given(st.sampled_from((DENSE, SPARSE, LOCAL)), plans())
def test_all_ranks_together_do_the_work_of_one(model: Transformer, plan: Plan):
    try:
        plan.check(model)
    except UsageError:
        assume(False)
    alone = flops(model, Plan(global_batch=plan.global_batch))
    # If there are fewer key-value heads than ranks, heads are copied; nothing else is computed twice.
    copied = 0.0
    if plan.tp > model.kv_heads:
        tokens = model.sequence * plan.global_batch
        more = 2 * model.kv_size * (plan.tp / model.kv_heads - 1)
        copied = 3 * 2 * tokens * model.hidden * more * model.layers
    # Without sequence parallelism, a router of experts processes all tokens on each rank.
    router = 0.0
    if model.experts and not plan.sequence_parallel:
        layers = sum(map(model.is_expert_layer, range(model.layers)))
        tokens = model.sequence * plan.global_batch
        router = 3 * 2 * tokens * model.hidden * model.experts * layers * (plan.tp - 1)
    assert flops(model, plan) == pytest.approx(alone + copied + router, rel=1e-3)
    twice = replace(plan, global_batch=2 * plan.global_batch)
    assert flops(model, twice) == pytest.approx(2 * flops(model, plan), rel=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from((DENSE, SPARSE)), plans())
def test_all_ranks_together_hold_the_weights_once(model: Transformer, plan: Plan):
    try:
        plan.check(model)
    except UsageError:
        assume(False)
    weights = sum(rank_memory(model, plan, stage).weights for stage in range(plan.pp)) * plan.tp
    experts = sum(map(model.is_expert_layer, range(model.layers))) * model.experts * model.expert_params
    copied = 2 * model.hidden * model.kv_size * max(0.0, plan.tp / model.kv_heads - 1) * model.layers
    if plan.zero == 3 and plan.pp == 1:
        assert weights == 0
        weights = sum(rank_memory(model, plan, stage).gradients for stage in range(plan.pp)) / 2 * plan.world
        assert weights / plan.pp == pytest.approx(BYTES * (model.params() + copied), rel=1e-3)
    else:
        whole = model.params() - experts + copied + experts / plan.ep
        assert weights == pytest.approx(BYTES * whole, rel=1e-3)


def busy(model: Transformer, plan: Plan) -> Counter[str]:
    """Return the time of all stages by operator."""
    workload = training_step(model, plan, PRICES, 8)
    total: Counter[str] = Counter()
    for stage in range(plan.pp):
        nodes = workload.graph_of(stage * plan.world // plan.pp).nodes
        total.update(nodes.groupby("operator")["duration_ns"].sum().to_dict())
    return total


@settings(max_examples=10, deadline=None)
@given(
    st.sampled_from((DENSE, SPARSE)),
    st.sampled_from(("none", "selective", "full")),
    st.integers(0, 3),
    st.booleans(),
    st.booleans(),
)
def test_every_schedule_has_the_same_to_do(
    model: Transformer, recompute: str, zero: int, frozen: bool, overlap: bool
):
    plan = Plan(pp=2, dp=2, tp=2, global_batch=16, recompute=recompute, zero=zero, frozen=frozen,
                lora=4 if frozen else 0, sequence_parallel=overlap, tensor_overlap=overlap)  # fmt: skip
    usual = busy(model, plan)
    for other in (
        replace(plan, schedule="zero-bubble"),
        replace(plan, schedule="interleaved", chunks=2),
    ):
        found = busy(model, other)
        assert found.keys() == usual.keys()
        for operator, duration in usual.items():
            assert found[operator] == pytest.approx(duration, rel=1e-3), operator


# Weights that are sharded: each has an owner, is gathered, and its gradient is reduced.


EXPERTS = Transformer(
    name="experts", layers=4, hidden=64, heads=8, ffn=256, vocab=128, sequence=32, gated=True,
    experts=8, top_k=2, expert_ffn=128, shared_experts=1, dense_layers=1,
)  # fmt: skip
ONE_NODE = 1 << 20
MASTER_AND_MOMENTS = 12  # bytes a parameter


@st.composite
def expert_plans(draw: st.DrawFn) -> Plan:
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
    """Return the bytes of weights and gradients that collectives of *kind* move for the first rank."""
    workload = training_step(EXPERTS, plan, Prices(), ONE_NODE)
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
    stage = range(EXPERTS.layers // plan.pp)
    experts = sum(map(EXPERTS.is_expert_layer, stage)) * EXPERTS.experts * EXPERTS.expert_params
    shared = sum(map(EXPERTS.layer_params, stage)) - experts + EXPERTS.embedding_params
    shared += EXPERTS.output_params if plan.pp == 1 else 0
    of_rank = experts / plan.ep / plan.expert_split
    has_copies = plan.degree(*plan.data_axes) > 1, plan.degree("edp") > 1
    return shared / plan.tp * has_copies[0] + of_rank * has_copies[1]


@given(expert_plans())
def test_every_parameter_has_one_owner(plan: Plan):
    held = sum(rank_memory(EXPERTS, plan, stage).optimizer for stage in range(plan.pp))
    everywhere = held * plan.world / plan.pp
    assert everywhere == pytest.approx(EXPERTS.params() * MASTER_AND_MOMENTS, rel=1e-4)


@given(expert_plans())
def test_sharded_weights_are_gathered_and_all_gradients_reduced(plan: Plan):
    micro_batches = plan.micro_batches if plan.shards_each_pass else 1
    shared = params_of(plan)
    gathered = shared * plan.element_bytes * micro_batches * (2 if plan.zero == 3 and plan.pp == 1 else 1)
    assert moved(plan, CollectiveType.ALL_GATHER) == pytest.approx(gathered, rel=1e-3)
    reduced = shared * plan.grad_bytes * micro_batches
    assert moved(plan, CollectiveType.REDUCE_SCATTER) == pytest.approx(reduced, rel=1e-3)


def test_fsdp_with_pipeline_stages_keeps_weights_and_gradients_whole():
    """As PyTorch: weights are gathered once a step, and gradients reduced after the last micro-batch."""
    one, two = (rank_memory(EXPERTS, Plan(dp=8, pp=pp, global_batch=32, zero=3), 0) for pp in (1, 2))
    held = sum(map(EXPERTS.layer_params, range(2))) + EXPERTS.embedding_params
    assert (one.weights, two.weights) == (0, 2 * held)
    assert two.gradients == 4 * held
    assert two.optimizer == pytest.approx(12 * held / 8, rel=1e-6)


def test_experts_of_fsdp_cost_what_their_weights_weigh():
    """Nearly all weights belong to experts; without expert parallelism, all sharded weights are gathered."""
    plan = Plan(dp=8, global_batch=8, zero=3)
    dense = replace(EXPERTS, experts=0, top_k=0)
    alone = sum(map(dense.layer_params, range(dense.layers))) + 2 * dense.embedding_params
    assert moved(plan, CollectiveType.ALL_GATHER) > 4 * alone


@pytest.mark.parametrize("precision", ["fp32", "tf32"])
def test_single_precision_is_its_own_master_and_keeps_twice_the_activations(precision: str):
    half = rank_memory(EXPERTS, Plan(), 0)
    whole = rank_memory(EXPERTS, Plan(precision=precision), 0)
    params = EXPERTS.params()
    assert whole.weights + whole.gradients + whole.optimizer == 16 * params
    assert whole.activations == pytest.approx(2 * half.activations, rel=1e-6)


def test_parts_of_a_stage_need_several_stages():
    """Only the first of the parts was simulated, silently half of the model."""
    with pytest.raises(UsageError, match="--interleave 2 distributes the model"):
        training_step(EXPERTS, Plan(chunks=2, schedule="interleaved"), Prices(), 8)
