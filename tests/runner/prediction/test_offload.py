"""CPU offload: what moves between a chip and its host, how long that takes, and what the chip keeps."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from chakrascope.errors import UsageError
from chakrascope.runner import NetworkConfig
from chakrascope.runner.chips import Chip, Host, find_chip
from chakrascope.runner.prediction import Prediction, Setting, estimated_ns, predict
from chakrascope.runner.prediction.models import Plan, Transformer, find_model, rank_memory

MODEL = replace(find_model("llama3-8b"), layers=8, name="eight layers")
H100 = find_chip("h100")
PLAN = Plan(dp=8, global_batch=32, zero=1, micro_batch=1, sequence=4096)
TWO_STAGES = replace(PLAN, pp=2, dp=4)


def with_host(link: float, memory: float = 1e15) -> Chip:
    return replace(H100, host=Host(link, memory))


def setting(plan: Plan, chip: Chip = H100) -> Setting:
    return Setting(MODEL, plan, chip, NetworkConfig.preset("hgx-h100-8"), "megatron")


def predicted(plan: Plan, chip: Chip = H100) -> Prediction:
    return predict(setting(plan, chip))


def times(prediction: Prediction, name: str) -> np.ndarray:
    """Return begin and end of the nodes called *name* of the first rank, in the order of time."""
    nodes = prediction.result.nodes
    own = nodes[nodes["rank"] == 0].set_index("node_id")
    graph = prediction.workload.graphs[0].nodes
    rows = own.loc[graph["node_id"][graph["name"] == name]].sort_values("start_ns")
    return rows[["start_ns", "end_ns"]].to_numpy()


def test_the_optimizer_of_the_host_takes_its_memory_traffic_and_two_copies():
    usual, offloaded = (predicted(replace(PLAN, offload_optimizer=on)) for on in (False, True))
    owned = MODEL.params() / 8
    host = H100.host
    assert host is not None
    on_host = owned * 30 / (0.45 * host.memory_bytes_per_s)
    copied = owned * (PLAN.grad_bytes + 2) / (0.8 * host.link_bytes_per_s)
    on_chip = owned * 30 / (H100.memory_bytes_per_s * H100.costs_of("megatron").pointwise)
    longer = offloaded.step_ns - usual.step_ns
    assert longer == pytest.approx((on_host + copied - on_chip) * 1e9, rel=1e-3)
    assert offloaded.memory[0].optimizer == pytest.approx(4 * owned, rel=1e-6)  # the master weights
    assert usual.memory[0].optimizer == pytest.approx(12 * owned, rel=1e-6)
    assert usual.memory[0].weights == offloaded.memory[0].weights


def test_sharded_weights_stay_in_half_precision_if_the_host_has_their_masters():
    usual, offloaded = (
        rank_memory(MODEL, replace(PLAN, zero=3, eager=True, offload_optimizer=on), 0) for on in (False, True)
    )
    assert (usual.weights, offloaded.optimizer) == (0, 0)
    assert offloaded.weights == pytest.approx(2 * MODEL.params() / 8, rel=1e-6)


def test_megatron_frees_what_its_documentation_has_measured():
    """15.3 GB a GPU for Qwen3-30B-A3B with TP 2, PP 2 and EP 4 (Megatron Bridge, training/cpu-offloading).

    The page does not say on how many GPUs: 16 is inferred from the figure.
    """
    model = Transformer(
        name="qwen3-30b-a3b", layers=48, hidden=2048, heads=32, kv_heads=4, head_size=128, ffn=6144,
        vocab=151936, sequence=4096, gated=True, experts=128, top_k=8, expert_ffn=768,
    )  # fmt: skip
    plan = Plan(tp=2, pp=2, dp=4, ep=4, global_batch=8, zero=1, expert_tp=1, sequence_parallel=True)
    freed = [
        rank_memory(model, plan, stage).total
        - rank_memory(model, replace(plan, offload_optimizer=True), stage).total
        for stage in (0, 1)
    ]
    assert sum(freed) / 2 == pytest.approx(15.3e9, rel=0.02)


@pytest.mark.parametrize("plan", [PLAN, TWO_STAGES, replace(PLAN, zero=3)])
def test_activations_over_a_fast_link_take_no_time(plan: Plan):
    usual, offloaded = (
        predicted(replace(plan, recompute=mode), with_host(1e16)) for mode in ("none", "offload")
    )
    assert offloaded.step_ns == pytest.approx(usual.step_ns, rel=1e-3)
    assert offloaded.memory_bytes < usual.memory_bytes


@pytest.mark.parametrize("plan", [PLAN, TWO_STAGES])
def test_a_slow_link_bounds_the_step_by_its_copies(plan: Plan):
    plan = replace(plan, recompute="offload")
    slow = predicted(plan, with_host(2e9))
    layers = MODEL.layers // plan.pp
    size = rank_memory(MODEL, replace(plan, recompute="none", global_batch=plan.dp), 0).activations
    copied = size / (0.8 * 2e9) * 1e9 * plan.micro_batches
    # Stores and loads of a micro-batch follow each other; all but two layers' are exposed.
    assert 2 * copied * (layers - 2) / layers < slow.step_ns
    assert slow.step_ns < 2 * copied + predicted(replace(plan, recompute="none")).step_ns * 1.5
    assert slow.step_ns == pytest.approx(estimated_ns(setting(plan, with_host(2e9))), rel=0.25)


def test_activations_are_back_before_they_are_used_and_not_before_they_were_away():
    prediction = predicted(replace(PLAN, recompute="offload:4"))
    away = times(prediction, "activations to the host")
    back = times(prediction, "activations from the host")
    assert len(away) == len(back) == 4 * PLAN.micro_batches
    # The first layers are the last ones backwards.
    assert (back[:4, 0] >= away[:4, 1][::-1]).all()
    backwards = times(prediction, "down gradient")[: MODEL.layers, 0]
    assert (back[:4, 1] <= backwards[4:]).all()
    # The copies begin when the last layer in front of them does, and not with the step.
    assert back[0, 0] >= backwards[2]


def test_each_layer_that_is_offloaded_frees_as_much():
    counts = ["none", *(f"offload:{count}" for count in range(1, 8))]
    sizes = [rank_memory(MODEL, replace(PLAN, recompute=count), 0).activations for count in counts]
    assert -np.diff(sizes) == pytest.approx(sizes[0] / MODEL.layers, rel=1e-6)
    everything = rank_memory(MODEL, replace(PLAN, recompute="offload"), 0)
    assert everything.activations == 0
    assert everything.working == pytest.approx(2 * sizes[0] / MODEL.layers, rel=1e-6)


def test_the_estimate_is_that_of_a_simulation():
    for change in (
        {"recompute": "offload:5"},
        {"offload_optimizer": True},
        {"recompute": "offload", "pp": 2},
    ):
        plan = replace(PLAN, dp=8 // change.get("pp", 1), **change)  # type: ignore[arg-type]
        usual = setting(replace(plan, recompute="none", offload_optimizer=False))
        estimated = estimated_ns(setting(plan)) / estimated_ns(usual)
        assert estimated == pytest.approx(predicted(plan).step_ns / predict(usual).step_ns, rel=0.1)


def test_a_plan_that_does_not_fit_is_offered_the_host():
    long = replace(PLAN, tp=8, dp=1, sequence=1 << 17, sequence_parallel=True, global_batch=2)
    network = NetworkConfig.preset("hgx-h100-8")

    def offered(link: float) -> list[str]:
        job = Setting(find_model("llama3-8b"), long, with_host(link), network, "megatron")
        return [remedy.options for remedy in predict(job).remedies]

    assert offered(4.5e11)[0] == "--recompute offload"
    # Over a slow link, recomputation is faster.
    assert offered(1e9)[0] == "--recompute 13"


@pytest.mark.parametrize("change", [{"recompute": "offload:2"}, {"offload_optimizer": True}])
def test_chips_without_a_host_say_so(change: dict[str, object]):
    plan = replace(PLAN, **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="which the chip 'h100' has not"):
        setting(plan, replace(H100, host=None)).check()
