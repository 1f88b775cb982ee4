"""Recomputation of some layers of each stage, as Megatron's ``--recompute-num-layers``: time and memory."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.cli._predict import predict_command
from chakrascope.errors import UsageError
from chakrascope.runner import NetworkConfig
from chakrascope.runner.chips import Chip, Host, find_chip
from chakrascope.runner.prediction import Prediction, Setting, estimated_ns, predict
from chakrascope.runner.prediction.models import (
    Plan,
    Transformer,
    find_model,
    fullest_memory,
    least_recomputation,
    rank_memory,
)

MODEL = replace(find_model("llama3-8b"), layers=16, name="sixteen layers")
EXPERTS = replace(MODEL, experts=8, top_k=2, expert_ffn=4096, dense_layers=3)
PLAN = Plan(tp=2, pp=2, dp=2, global_batch=8, sequence_parallel=True, zero=1)
NETWORK = NetworkConfig.preset("hgx-h100-8")
COMMAND = [
    "--model", "llama3-70b", "--chip", "h100", "--network", "hgx-h100-4x8", "--tp", "8", "--pp", "4",
    "--sequence", "32768", "--global-batch", "16", "--format", "json",
]  # fmt: skip


def setting(plan: Plan, model: Any = MODEL) -> Setting:
    return Setting(model, plan, find_chip("h100"), NETWORK, "megatron")


def held(recompute: str, plan: Plan = PLAN, model: Any = MODEL) -> int:
    return fullest_memory(model, replace(plan, recompute=recompute)).total


def step(recompute: str, plan: Plan = PLAN, model: Any = MODEL) -> int:
    return predict(setting(replace(plan, recompute=recompute), model)).step_ns


def test_every_recomputed_layer_costs_and_frees_the_same():
    counts = ["none", *map(str, range(1, 8)), "full"]
    steps = [step(count) for count in counts]
    sizes = [rank_memory(MODEL, replace(PLAN, recompute=count), 0).total for count in counts]
    assert np.ptp(np.diff(steps)) <= 2 * 8 * 16  # rounded operators
    assert np.diff(steps).min() > 0
    freed = -np.diff(sizes)
    assert freed[:-1] == pytest.approx(freed[0])
    # If every layer is recomputed, the memory of the recomputed layer is added.
    assert freed[0] > freed[-1] >= 0


INTERLEAVED = replace(PLAN, chunks=2, global_batch=16, schedule="interleaved")


@pytest.mark.parametrize("plan", [PLAN, replace(PLAN, pp=1, dp=4), INTERLEAVED])
def test_all_layers_of_a_stage_are_full_recomputation(plan: Plan):
    layers = str(MODEL.layers // plan.pp // plan.chunks)
    for other in (layers, "uniform:1"):
        assert step(other, plan) == step("full", plan)
        assert held(other, plan) == held("full", plan)


def test_uniform_units_take_the_same_time_and_keep_one_input_each():
    assert step("uniform:4") == step("full")
    full, units = (rank_memory(MODEL, replace(PLAN, recompute=each), 0) for each in ("full", "uniform:4"))
    assert units.activations * 4 == full.activations
    assert units.working > 3 * full.working


def test_of_a_unit_that_does_not_divide_the_layers_the_last_is_shorter():
    three = rank_memory(MODEL, replace(PLAN, recompute="uniform:3"), 0)
    full = rank_memory(MODEL, replace(PLAN, recompute="full"), 0)
    assert three.activations * 8 == full.activations * 3  # 3 units for 8 layers


def test_only_layers_that_keep_everything_differ():
    """Block recomputation of dense layers before expert layers frees the activations of dense layers."""
    plan = replace(PLAN, pp=1, dp=4)
    none, three = (rank_memory(EXPERTS, replace(plan, recompute=each), 0) for each in ("none", "3"))
    dense = rank_memory(replace(MODEL, layers=3), replace(plan, recompute="none"), 0)
    kept = rank_memory(replace(MODEL, layers=3), replace(plan, recompute="full"), 0)
    freed = none.activations - three.activations
    assert freed == pytest.approx(dense.activations - kept.activations, rel=1e-6)


@settings(max_examples=12, deadline=None)
@given(
    data=st.data(),
    pp=st.sampled_from([1, 2, 4]),
    chunks=st.sampled_from([1, 2]),
    zero=st.sampled_from([0, 1, 3]),
    experts=st.booleans(),
)
def test_the_estimate_is_that_of_a_simulation(data: Any, pp: int, chunks: int, zero: int, experts: bool):
    chunks = chunks if pp > 1 else 1
    model = EXPERTS if experts else MODEL
    layers = data.draw(st.integers(1, MODEL.layers // pp // chunks))
    plan = Plan(
        tp=2, pp=pp, dp=4 // pp, global_batch=16, sequence_parallel=True, zero=zero, chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b", recompute=str(layers),
    )  # fmt: skip
    one, more = setting(plan, model), setting(replace(plan, recompute="full"), model)
    assert estimated_ns(one) <= estimated_ns(more)
    measured = predict(one).step_ns / predict(more).step_ns
    assert estimated_ns(one) / estimated_ns(more) == pytest.approx(measured, rel=0.05)
    assert held(str(layers), plan, model) >= held("full", plan, model)


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0.0, 1.0), pp=st.sampled_from([1, 2, 4]), experts=st.booleans())
def test_fewest_sufficient_layers_are_recomputed(share: float, pp: int, experts: bool):
    model = EXPERTS if experts else MODEL
    plan = replace(PLAN, pp=pp, dp=4 // pp, micro_batch=1)
    low, high = held("full", plan, model), held("none", plan, model)
    most = round(low + share * (high - low))
    least = least_recomputation(model, plan, most)
    enough = [n for n in range(1, model.layers // pp) if held(str(n), plan, model) <= most]
    assert (least.recompute if least else None) == (str(enough[0]) if enough else None)


def answer(*options: str) -> dict[str, Any]:
    result = CliRunner().invoke(predict_command, [*COMMAND, *options], catch_exceptions=False)
    found: dict[str, Any] = json.loads(result.stdout[result.stdout.index("{") :])
    return found


def test_the_cheapest_remedy_recomputes_no_layer_too_many():
    before = answer()
    assert not before["fits"]
    first = next(
        each for each in before["remedies"] if each["options"].removeprefix("--recompute ").isdecimal()
    )
    option, layers = first["options"].split()
    assert option == "--recompute"
    after = answer(option, layers)
    assert after["fits"]
    assert after["memory_bytes_per_rank"] == first["memory_bytes"]
    assert not answer(option, str(int(layers) - 1))["fits"]
    assert answer("--recompute", "full")["step_ns"] > after["step_ns"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            ["--recompute", "some"],
            "none, selective, full, offload, a number of layers, uniform:N or offload:N",
        ),
        (["--recompute", "0"], "a number of layers"),
        (["--recompute", "uniform:"], "uniform:N"),
        (["--recompute", "²"], "a number of layers"),
        (["--recompute", "21"], "the 20 layers of a pipeline stage. Next: use --recompute full"),
        (["--recompute", "uniform:21"], "the 20 layers of a pipeline stage"),
        (["--recompute", "6", "--interleave", "4"], "the 5 layers of a pipeline stage and chunk"),
        (["--recompute", "uniform:2", "--keep", "qkv"], "--keep has no effect"),
        (["--recompute", "offload:99"], "Next: use --recompute offload"),
        (["--recompute", "uniform:offload:2"], "not 'uniform:offload:2'"),
    ],
)
def test_recomputation_that_cannot_be_is_refused(options: list[str], words: str):
    with pytest.raises(UsageError, match=words):
        answer(*options)


# CPU offload: the bytes moved between a chip and its host, their time, and the chip's memory.


EIGHT_LAYERS = replace(find_model("llama3-8b"), layers=8, name="eight layers")
H100 = find_chip("h100")
DATA_PARALLEL = Plan(dp=8, global_batch=32, zero=1, micro_batch=1, sequence=4096)
TWO_STAGES = replace(DATA_PARALLEL, pp=2, dp=4)


def with_host(link: float, memory: float = 1e15) -> Chip:
    return replace(H100, host=Host(link, memory))


def offload_setting(plan: Plan, chip: Chip = H100) -> Setting:
    return Setting(EIGHT_LAYERS, plan, chip, NetworkConfig.preset("hgx-h100-8"), "megatron")


def predicted(plan: Plan, chip: Chip = H100) -> Prediction:
    return predict(offload_setting(plan, chip))


def times(prediction: Prediction, name: str) -> np.ndarray:
    """Return begin and end of the nodes called *name* of the first rank, in the order of time."""
    nodes = prediction.result.nodes
    own = nodes[nodes["rank"] == 0].set_index("node_id")
    graph = prediction.workload.graphs[0].nodes
    rows = own.loc[graph["node_id"][graph["name"] == name]].sort_values("start_ns")
    return rows[["start_ns", "end_ns"]].to_numpy()


def test_the_optimizer_of_the_host_takes_its_memory_traffic_and_two_copies():
    usual, offloaded = (predicted(replace(DATA_PARALLEL, offload_optimizer=on)) for on in (False, True))
    owned = EIGHT_LAYERS.params() / 8
    host = H100.host
    assert host is not None
    on_host = owned * 30 / (0.8 * host.memory_bytes_per_s)
    copied = owned * (DATA_PARALLEL.grad_bytes + 2) / (0.8 * host.link_bytes_per_s)
    on_chip = owned * 30 / (H100.memory_bytes_per_s * H100.costs_of("megatron").pointwise)
    longer = offloaded.step_ns - usual.step_ns
    assert longer == pytest.approx((on_host + copied - on_chip) * 1e9, rel=1e-3)
    assert offloaded.memory[0].optimizer == pytest.approx(4 * owned, rel=1e-6)  # the master weights
    assert usual.memory[0].optimizer == pytest.approx(12 * owned, rel=1e-6)
    assert usual.memory[0].weights == offloaded.memory[0].weights


def test_sharded_weights_stay_in_half_precision_if_the_host_has_their_masters():
    usual, offloaded = (
        rank_memory(EIGHT_LAYERS, replace(DATA_PARALLEL, zero=3, eager=True, offload_optimizer=on), 0)
        for on in (False, True)
    )
    assert (usual.weights, offloaded.optimizer) == (0, 0)
    assert offloaded.weights == pytest.approx(2 * EIGHT_LAYERS.params() / 8, rel=1e-6)


def test_freed_memory_matches_megatrons_documentation():
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


@pytest.mark.parametrize("plan", [DATA_PARALLEL, TWO_STAGES, replace(DATA_PARALLEL, zero=3)])
def test_activations_over_a_fast_link_take_no_time(plan: Plan):
    usual, offloaded = (
        predicted(replace(plan, recompute=mode), with_host(1e16)) for mode in ("none", "offload")
    )
    assert offloaded.step_ns == pytest.approx(usual.step_ns, rel=1e-3)
    assert offloaded.memory_bytes < usual.memory_bytes


@pytest.mark.parametrize("plan", [DATA_PARALLEL, TWO_STAGES])
def test_a_slow_link_bounds_the_step_by_its_copies(plan: Plan):
    plan = replace(plan, recompute="offload")
    slow = predicted(plan, with_host(2e9))
    layers = EIGHT_LAYERS.layers // plan.pp
    size = rank_memory(EIGHT_LAYERS, replace(plan, recompute="none", global_batch=plan.dp), 0).activations
    copied = size / (0.8 * 2e9) * 1e9 * plan.micro_batches
    # Stores and loads of a micro-batch follow each other; all but those of two layers are exposed.
    assert 2 * copied * (layers - 2) / layers < slow.step_ns
    assert slow.step_ns < 2 * copied + predicted(replace(plan, recompute="none")).step_ns * 1.5
    assert slow.step_ns == pytest.approx(estimated_ns(offload_setting(plan, with_host(2e9))), rel=0.25)


def test_activations_are_back_before_they_are_used_and_not_before_they_were_away():
    prediction = predicted(replace(DATA_PARALLEL, recompute="offload:4"))
    away = times(prediction, "activations to the host")
    back = times(prediction, "activations from the host")
    assert len(away) == len(back) == 4 * DATA_PARALLEL.micro_batches
    # The first layers are the last ones in the backward pass.
    assert (back[:4, 0] >= away[:4, 1][::-1]).all()
    backwards = times(prediction, "down gradient")[: EIGHT_LAYERS.layers, 0]
    assert (back[:4, 1] <= backwards[4:]).all()
    # The copies begin when the last layer before them begins, not at the start of the step.
    assert back[0, 0] >= backwards[2]


def test_each_layer_that_is_offloaded_frees_as_much():
    counts = ["none", *(f"offload:{count}" for count in range(1, 8))]
    sizes = [
        rank_memory(EIGHT_LAYERS, replace(DATA_PARALLEL, recompute=count), 0).activations for count in counts
    ]
    assert -np.diff(sizes) == pytest.approx(sizes[0] / EIGHT_LAYERS.layers, rel=1e-6)
    everything = rank_memory(EIGHT_LAYERS, replace(DATA_PARALLEL, recompute="offload"), 0)
    assert everything.activations == 0
    assert everything.working == pytest.approx(2 * sizes[0] / EIGHT_LAYERS.layers, rel=1e-6)


def test_the_estimate_of_offloading_is_that_of_a_simulation():
    for change in (
        {"recompute": "offload:5"},
        {"offload_optimizer": True},
        {"recompute": "offload", "pp": 2},
    ):
        plan = replace(DATA_PARALLEL, dp=8 // change.get("pp", 1), **change)  # type: ignore[arg-type]
        usual = offload_setting(replace(plan, recompute="none", offload_optimizer=False))
        estimated = estimated_ns(offload_setting(plan)) / estimated_ns(usual)
        assert estimated == pytest.approx(predicted(plan).step_ns / predict(usual).step_ns, rel=0.1)


def test_copies_of_activations_overlap_the_exchanges_of_experts():
    plan = Plan(dp=8, ep=8, zero=1, global_batch=32, recompute="offload")
    mixtral = replace(find_model("mixtral-8x7b"), layers=8)
    each = [
        Setting(mixtral, replace(plan, deduplicate=once), with_host(1e11), NETWORK, "megatron")
        for once in (False, True)
    ]
    estimated, simulated = (
        [time(setting) for setting in each]
        for time in (estimated_ns, lambda setting: predict(setting).step_ns)
    )
    assert estimated[1] / estimated[0] == pytest.approx(simulated[1] / simulated[0], rel=0.01)


def test_a_plan_that_does_not_fit_is_offered_the_host():
    long = replace(DATA_PARALLEL, tp=8, dp=1, sequence=1 << 17, sequence_parallel=True, global_batch=2)
    network = NetworkConfig.preset("hgx-h100-8")

    def offered(link: float) -> list[str]:
        job = Setting(find_model("llama3-8b"), long, with_host(link), network, "megatron")
        return [remedy.options for remedy in predict(job).remedies]

    assert offered(4.5e11)[0] == "--recompute offload"
    # Over a slow link, recomputation is faster.
    assert offered(1e9)[0] == "--recompute 15"


@pytest.mark.parametrize("change", [{"recompute": "offload:2"}, {"offload_optimizer": True}])
def test_chips_without_a_host_say_so(change: dict[str, object]):
    plan = replace(DATA_PARALLEL, **change)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="which the chip 'h100' lacks"):
        offload_setting(plan, replace(H100, host=None)).check()
