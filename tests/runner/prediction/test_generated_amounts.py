"""However a step is split, all ranks together do the same work and hold the same weights."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from workloads import Prices

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
    """Splits of up to 8 ranks or so, with batches that they divide."""
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
    """Return the operations of products and attention on all ranks together."""
    workload = training_step(model, plan, PRICES, 8)
    total = 0.0
    for stage in range(plan.pp):
        nodes = workload.graph_of(stage * plan.world // plan.pp).nodes
        total += float(nodes["num_ops"][nodes["operator"].isin(["gemm", "flash"])].sum())
    return total * plan.world / plan.pp


@settings(max_examples=20, deadline=None)
@given(st.sampled_from((DENSE, SPARSE, LOCAL)), plans())
def test_all_ranks_together_do_the_work_of_one(model: Transformer, plan: Plan):
    try:
        plan.check(model)
    except UsageError:
        assume(False)
    alone = flops(model, Plan(global_batch=plan.global_batch))
    # Heads of keys and values that are fewer than ranks are copied; nothing else is computed twice.
    copied = 0.0
    if plan.tp > model.kv_heads:
        tokens = model.sequence * plan.global_batch
        more = 2 * model.kv_size * (plan.tp / model.kv_heads - 1)
        copied = 3 * 2 * tokens * model.hidden * more * model.layers
    # A router of experts works on all tokens of a rank without sequence parallelism.
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
    """Return for how long all stages do what, by operator."""
    workload = training_step(model, plan, PRICES, 8)
    total: Counter[str] = Counter()
    for stage in range(plan.pp):
        nodes = workload.graph_of(stage * plan.world // plan.pp).nodes
        total.update(nodes.groupby("operator")["duration_ns"].sum().to_dict())
    return total


@settings(max_examples=20, deadline=None)
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
