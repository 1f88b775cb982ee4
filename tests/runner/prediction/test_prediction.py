"""Predictions compared with measured steps, closed forms compared with simulations, and errors."""

from __future__ import annotations

import itertools
import json
import statistics
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from command_line import script

from chakrascope.cli._predict import plan_of, predict_command
from chakrascope.errors import ChakrascopeError, ConfigError, UsageError
from chakrascope.runner import NetworkConfig, Study, get_backend
from chakrascope.runner.chips import find_chip
from chakrascope.runner.config import EfficiencyPart
from chakrascope.runner.prediction import (
    Batch,
    Links,
    Setting,
    coefficients,
    estimated_ns,
    layer_flops,
    parts_of,
    predict,
    software_of,
    uncertainty,
    work_of,
)
from chakrascope.runner.prediction.models import Plan, find_model, rank_memory

ROOT = Path(__file__).resolve().parents[3]
MEASURED = ROOT / "tests" / "data" / "runner" / "training"


STEPS = script(ROOT / "scripts" / "measured_steps.py").every_step(MEASURED)


def setting_of(step: object) -> Setting:
    return Setting(step.model, step.plan, find_chip(step.chip), step.network, step.software)  # type: ignore[attr-defined]


@cache
def predicted_ns(step: object) -> int:
    """Return the predicted time of a measured *step*, shared by two tests."""
    return predict(setting_of(step)).step_ns


@pytest.fixture(scope="module")
def errors() -> dict[str, list[float]]:
    """Return the relative errors of the predictions of the measured steps reserved for tests, by data set."""
    found: dict[str, list[float]] = {}
    for step in STEPS:
        if step.plan.micro_batches * step.plan.pp < 300:
            error = predicted_ns(step) / step.measured_ns - 1
            found.setdefault(step.data, []).append(error)
    return found


# These are the odd rows of each data set, but a mean of few rows may be dominated by one of them.
@pytest.mark.parametrize(
    ("data", "mean", "median"),
    [
        ("A100 Megatron-DeepSpeed", 0.07, 0.045),
        ("MPT FSDP a100-40", 0.035, 0.025),
        ("MPT FSDP a100-80", 0.06, 0.035),
        ("MPT FSDP h100", 0.035, 0.03),
        ("NVIDIA recipes megatron", 0.06, 0.03),
    ],
)
def test_prediction_errors_match_the_fit(
    errors: dict[str, list[float]], data: str, mean: float, median: float
):
    sizes = [abs(error) for error in errors[data]]
    assert len(sizes) >= 3
    assert statistics.mean(sizes) < mean
    assert statistics.median(sizes) < median


@pytest.mark.parametrize("step", STEPS[::4], ids=lambda step: step.row)
def test_the_closed_form_is_what_is_simulated(step: object):
    setting = setting_of(step)
    costs, plan = setting.costs, setting.plan
    work = work_of(setting.model, plan, Links.of(setting.network))
    price = coefficients(setting.chip, costs, plan.precision)
    closed = Batch([work]).step_ns(price, costs)[0]
    assert predicted_ns(step) == pytest.approx(closed, rel=0.03)


def test_the_estimate_of_a_search_chooses_among_the_fastest_that_were_measured():
    """The plan that `predict search` ranks first takes at most 1.15 times the best, 1.05 on average."""
    parts: dict[tuple[str, int], list[tuple[float, float]]] = {}
    for step in STEPS:
        if step.data == "A100 Megatron-DeepSpeed":
            setting = setting_of(step)
            costs, work = setting.costs, work_of(step.model, step.plan, Links.of(step.network))
            price = coefficients(setting.chip, costs, step.plan.precision)
            time = Batch([work]).step_ns(price, costs)[0]
            parts.setdefault((step.family, step.plan.world), []).append((time, step.measured_ns))
    lost = [min(part)[1] / min(measured for _, measured in part) for part in parts.values() if len(part) > 1]
    assert len(lost) >= 3
    assert statistics.mean(lost) <= 1.05
    assert max(lost) <= 1.15


HGX = NetworkConfig.preset("hgx-h100-2x8")
SMALL = Setting(
    replace(find_model("llama3-8b"), layers=8),
    Plan(tp=2, pp=2, dp=4, global_batch=32, sequence_parallel=True),
    find_chip("h100"),
    HGX,
    "megatron",
)


def test_a_prediction_says_how_sure_it_is():
    found = predict(SMALL)
    low, high = found.range_ns
    assert low <= found.step_ns <= high
    assert 0.2 < found.utilisation < 0.7
    assert found.fits
    assert found.constant_utilisation_ns > 0
    assert any("fitted on 20 measured steps" in line for line in found.assumptions)
    assert any(line.startswith("A gradient takes 4 bytes in reductions") for line in found.assumptions)
    wider = predict(replace(SMALL, plan=replace(SMALL.plan, schedule="zero-bubble")))
    assert wider.range_ns[1] / wider.step_ns > high / found.step_ns
    assert any("zero bubble" in line for line in wider.assumptions)


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"tp": 1, "pp": 4, "schedule": "zero-bubble"},
        {"schedule": "interleaved", "chunks": 2},
        {"tp": 1, "pp": 1, "dp": 16, "zero": 3, "recompute": "full"},
    ],
)
def test_memory_over_time_has_the_peak_of_the_verdict(change: dict[str, object]):
    found = predict(replace(SMALL, plan=replace(SMALL.plan, **change)))
    assert len(found.memory_over_time) == found.setting.plan.pp
    for curve, memory in zip(found.memory_over_time, found.memory, strict=True):
        assert curve.peak == memory.total
        assert list(curve.times_ns) == sorted(curve.times_ns)
        assert curve.times_ns[-1] == found.step_ns
        assert curve.activations[0] == curve.activations[-1] == 0
        # As many forward passes add time as backward passes save time.
        rises = sum(later > before for before, later in itertools.pairwise(curve.activations))
        assert rises == found.setting.plan.micro_batches * found.setting.plan.chunks
        told = curve.to_json()
        assert max(map(sum, zip(told["activations_bytes"], told["workspace_bytes"], strict=True))) == (
            curve.peak - curve.weights - curve.gradients - curve.optimizer - curve.buffers
        )
        assert len(told["times_ns"]) <= 400


def test_too_large_plan_does_not_fit():
    setting = replace(SMALL, model=find_model("llama3-70b"))
    assert not predict(setting).fits


def test_resnet50_on_a_dgx_2_matches_its_measurement():
    """21,484 images a second on 16 V100 at 256 each: NVIDIA's DeepLearningExamples, MXNet 20.12."""
    plan = Plan(dp=16, micro_batch=256, global_batch=4096, precision="fp16")
    setting = Setting(
        find_model("resnet50"), plan, find_chip("v100"), NetworkConfig.preset("dgx-2-16"), "megatron"
    )
    found = predict(setting)
    assert found.tokens_per_s == pytest.approx(21_484, rel=0.15)
    assert found.fits
    assert any("convolutions" in line for line in found.assumptions)
    with pytest.raises(UsageError, match="data parallelism only; leave out --tp"):
        predict(replace(setting, plan=replace(plan, dp=8, tp=2)))


def test_a_plan_fits_if_it_leaves_a_twentieth_of_the_memory():
    needed = predict(SMALL).memory_bytes
    for share, fits in ((0.94, True), (0.96, False)):
        chip = replace(SMALL.chip, memory_bytes=round(needed / share))
        assert predict(replace(SMALL, chip=chip)).fits == fits
        assert (needed <= chip.usable_bytes) == fits


def test_what_measured_rows_had_does_not_widen_the_range():
    """NeMo shards the optimizer, as all rows of its fit do; no row of another fit has that."""
    sharded = replace(SMALL, plan=replace(SMALL.plan, zero=1))
    assert uncertainty(sharded) == uncertainty(SMALL)
    deepspeed = replace(sharded, chip=find_chip("a100-80"))
    assert uncertainty(deepspeed)[1] > uncertainty(replace(deepspeed, plan=SMALL.plan))[1]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"most_ranks": 7}, "more than 7 ranks"),
        ({"least_layer_flops": 1e18}, "as little to compute in a layer"),
    ],
)
def test_what_no_measured_row_had_widens_the_range(changed: dict[str, Any], words: str):
    fit = replace(SMALL.costs.fit, most_ranks=SMALL.plan.world, least_layer_flops=layer_flops(SMALL))

    def setting(**more: Any) -> Setting:
        costs = replace(SMALL.costs, fit=replace(fit, **more))
        return replace(SMALL, chip=replace(SMALL.chip, costs={SMALL.software: costs}))

    measured, beyond = setting(), setting(**changed)
    assert uncertainty(beyond)[1] > uncertainty(measured)[1] > 1
    assert any(words in line for line in predict(beyond).assumptions)
    assert not any(words in line for line in predict(measured).assumptions)


def test_ranges_widen_with_the_distance_from_what_was_measured():
    def width(setting: Setting) -> float:
        low, high = uncertainty(setting)
        assert low < 1 < high
        return high / low

    other = replace(SMALL, chip=find_chip("h200"))
    small, smaller = (replace(SMALL, plan=replace(SMALL.plan, sequence=tokens)) for tokens in (1024, 128))
    assert layer_flops(smaller) < layer_flops(small) < SMALL.costs.fit.least_layer_flops
    assert width(SMALL) < width(other)
    assert width(SMALL) < width(small) < width(smaller)
    many, million = (replace(SMALL, plan=replace(SMALL.plan, dp=dp)) for dp in (1 << 6, 1 << 18))
    assert width(SMALL) < width(many) < width(million)
    assumed = replace(SMALL, chip=find_chip("tpu-v2"), plan=replace(SMALL.plan, precision="bf16"))
    assert uncertainty(replace(assumed, software="default"))[1] > 1.45


def test_experts_of_many_kinds_are_parts_of_a_job():
    model = replace(find_model("llama3-8b"), layers=8, experts=8, top_k=4, expert_ffn=1024)
    plan = Plan(dp=16, ep=8, global_batch=16, expert_overlap=True)
    setting = replace(SMALL, model=model, plan=plan)
    parts = parts_of(setting)
    assert {"experts", "more than two experts a token", "overlapped experts"} <= set(parts)
    assert "experts across nodes" not in parts
    nodes = Plan(dp=16, ep=16, global_batch=16)
    wide = replace(setting, model=replace(model, experts=16, top_k=2), plan=nodes)
    assert "experts across nodes" in parts_of(wide)
    assert "more than two experts a token" not in parts_of(wide)


def test_the_estimate_of_experts_with_a_sharded_optimizer_is_what_is_simulated():
    """Gathering the weights of experts delayed each stage of a pipeline, which the estimate left out."""
    model = replace(find_model("deepseek-v3"), layers=16)
    plan = Plan(tp=2, pp=8, dp=16, ep=4, global_batch=256, zero=1, sequence_parallel=True)
    network = NetworkConfig.preset("hgx-h100-32x8")
    setting = Setting(model, plan, find_chip("h100"), network, "megatron")
    assert predict(setting).step_ns == pytest.approx(estimated_ns(setting), rel=0.05)


@pytest.mark.parametrize("pp", [1, 2])
def test_estimates_of_one_layer_stages_are_independent(pp: int):
    model = replace(find_model("llama3-8b"), layers=pp)
    plan = Plan(pp=pp, dp=16 // pp, global_batch=64, zero=2)
    setting = Setting(model, plan, find_chip("h100"), NetworkConfig.preset("hgx-h100-2x8"), "megatron")
    assert estimated_ns(setting) == estimated_ns(setting)
    assert estimated_ns(setting) == pytest.approx(predict(setting).step_ns, rel=0.01)


def test_operators_of_less_than_a_nanosecond_are_left_out():
    sizes = {"layers": 4, "hidden": 64, "heads": 4, "kv_heads": 2, "ffn": 128, "vocab": 9, "sequence": 8}
    tiny = replace(
        SMALL, model=replace(find_model("llama3-8b"), **sizes), plan=Plan(dp=16, global_batch=16, zero=1)
    )
    assert predict(tiny).step_ns > 0


def test_an_impossible_degree_is_refused_at_once():
    with pytest.raises(UsageError, match=r"--tp 2000000000 does not divide\. Next: use --tp 32\."):
        replace(SMALL.plan, tp=2_000_000_000).check(find_model("llama3-8b"))


def test_cuda_graphs_take_the_launches_off_the_host():
    slow = replace(SMALL.costs, host_ns=1e8)
    setting = replace(SMALL, chip=replace(SMALL.chip, costs={SMALL.software: slow}))
    graphs = replace(setting, plan=replace(SMALL.plan, cuda_graphs=True))
    assert predict(graphs).step_ns < predict(setting).step_ns / 2


def test_latent_attention_and_windows_are_parts_of_a_job():
    deepseek = replace(SMALL, model=find_model("deepseek-v3"))
    assert "latent attention" in parts_of(deepseek)
    windowed = replace(SMALL, model=replace(SMALL.model, window=16))
    assert "windows of attention" in parts_of(windowed)
    assert "windows of attention" not in parts_of(SMALL)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--pp", "2", "--micro-batch", "2"],
        ["--no-sequence-parallel", "--micro-batch", "2"],
        ["--no-fused-attention", "--recompute", "full", "--sequence", "32768"],
    ],
)
def test_every_remedy_makes_the_plan_fit(options: list[str]):
    job = ["--model", "llama3-8b", "--chip", "h100", "--network", "hgx-h100-8", "--global-batch", "16"]

    def answer(*more: str) -> dict[str, Any]:
        words = [*job, *options, *more, "--format", "json"]
        return json.loads(CliRunner().invoke(predict_command, words, catch_exceptions=False).stdout)

    before = answer()
    assert not before["fits"]
    assert before["remedies"]
    assert before["remedies"] == sorted(before["remedies"], key=lambda each: each["times_as_long"])
    for remedy in before["remedies"]:
        after = answer(*remedy["options"].split())
        assert after["fits"]
        assert after["remedies"] == []
        assert after["memory_bytes_per_rank"] == remedy["memory_bytes"]
        assert after["step_ns"] / before["step_ns"] == pytest.approx(remedy["times_as_long"], rel=0.1)


def test_a_stall_of_equal_ranks_is_no_end_of_the_prediction():
    """Stages across nodes stall, although only one of their equal ranks is simulated."""
    model = replace(find_model("llama3-8b"), layers=12)
    plan = Plan(tp=2, pp=3, dp=4, zero=2, global_batch=236)
    steps = {
        nodes: predict(
            Setting(
                model,
                plan,
                find_chip("h100"),
                replace(NetworkConfig.preset("hgx-h100-2x8"), npus_count=nodes),
                "megatron",
            )
        ).step_ns
        for nodes in ((6, 4), (8, 3))
    }
    assert steps[8, 3] < steps[6, 4] < 2 * steps[8, 3]


def test_faster_links_do_not_slow_a_step_down():
    slower = replace(HGX, bandwidth=(HGX.bandwidth[0] / 4, HGX.bandwidth[1]))
    assert predict(replace(SMALL, network=slower)).step_ns > predict(SMALL).step_ns


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"plan": replace(SMALL.plan, dp=8)}, UsageError, "Presets exist for any number of nodes"),
        ({"plan": replace(SMALL.plan, precision="fp4")}, ConfigError, "no peak for the precision"),
        ({"plan": replace(SMALL.plan, tp=3)}, UsageError, "--tp 2"),
        ({"software": "nemo"}, ConfigError, "no costs for the software"),
    ],
)
def test_impossible_predictions_are_errors(
    change: dict[str, object], kind: type[ChakrascopeError], words: str
):
    with pytest.raises(kind, match=words):
        predict(replace(SMALL, **change))


def test_other_backends_need_every_rank():
    with pytest.raises(UsageError, match="--all-ranks"):
        predict(SMALL, backend="flow")
    whole = predict(SMALL, every_rank=True)
    assert whole.step_ns == predict(SMALL).step_ns


def test_options_describe_the_measured_plan():
    """Kept matmuls, packed documents and the size of gradients were known only from a report."""
    h100 = find_chip("h100")
    given = ["--model", "llama3-70b", "--chip", "h100", "--network", "hgx-h100-8x8", "--zero", "3"]
    given += ["--recompute", "full", "--keep", "qkv,down", "--document", "200", "--gradient-bytes", "2"]
    plan, _ = plan_of(predict_command.make_context("predict", given).params, h100, 64, None)
    assert (plan.saved, plan.document, plan.grad_bytes) == (("qkv", "down"), 200, 2)
    held, least = (
        rank_memory(find_model("llama3-70b"), each, 0).activations for each in (plan, replace(plan, saved=()))
    )
    assert held > 2 * least


def test_the_software_is_that_which_suits_the_plan():
    h100 = find_chip("h100")
    assert software_of(h100, Plan(zero=3)) == "fsdp"
    assert software_of(h100, Plan(tp=8)) == "megatron"
    assert software_of(find_chip("tpu-v2"), Plan()) == "default"


COMMAND = ["--model", "mpt-1b", "--chip", "a100-40", "--network", "dgx-a100-8"]


def test_the_command_answers_in_json():
    found = CliRunner().invoke(
        predict_command,
        [*COMMAND, "--zero", "3", "--micro-batch", "4", "--format", "json"],
        catch_exceptions=False,
    )
    answer = json.loads(found.stdout[found.stdout.index("{") :])
    assert set(answer) == {
        "step_ns", "step_low_ns", "step_high_ns", "tokens_per_s", "memory_bytes_per_rank", "fits", "remedies",
        "bound_by",
        "assumptions", "memory_over_time",
    }  # fmt: skip
    assert answer["step_low_ns"] < answer["step_ns"] < answer["step_high_ns"]
    assert answer["tokens_per_s"] == pytest.approx(8 * 4 * 2048 / answer["step_ns"] * 1e9)


@pytest.mark.parametrize(
    ("options", "zero", "overlap"),
    [([], 1, True), (["--zero", "0", "--no-tensor-overlap"], 0, False), (["--zero", "3"], 3, False)],
)
def test_habits_of_the_software_hold_unless_told_otherwise(options: list[str], zero: int, overlap: bool):
    h100 = find_chip("h100")
    given = ["--model", "llama3-8b", "--chip", "h100", "--network", "hgx-h100-8", "--tp", "2", *options]
    context = predict_command.make_context("predict", given)
    plan, software = plan_of(context.params, h100, 8, None)
    assert (plan.zero, plan.tensor_overlap) == (zero, overlap)
    assert plan.grad_bytes == h100.costs_of(software).grad_bytes


def test_the_outcome_is_an_ordinary_run(tmp_path: Path):
    CliRunner().invoke(
        predict_command,
        [*COMMAND, "--tp", "2", "--pp", "2", "-o", str(tmp_path / "s")],
        catch_exceptions=False,
    )
    study = Study.open(tmp_path / "s")
    info = study.run_info()
    curves = study.result(info.id).provenance["memory_over_time"]
    assert [curve["stage"] for curve in curves] == [0, 1]
    again = get_backend(info.backend).run(study.experiment(info.id))
    assert again.makespan_ns == study.result(info.id).makespan_ns


MESH = NetworkConfig(("FullyConnected",), (8,), (59.605,), (500.0,))


@pytest.mark.parametrize("plan", [Plan(dp=8, global_batch=8, zero=3), Plan(tp=8, sequence_parallel=True)])
def test_ranks_with_links_to_each_other_use_all_of_them(plan: Plan):
    setting = Setting(find_model("mpt-1b"), plan, find_chip("mi300x"), MESH, "megatron")
    ring = replace(setting, network=replace(MESH, topology=("Switch",)))
    costs = setting.costs
    price = coefficients(setting.chip, costs, plan.precision)
    work = work_of(setting.model, plan, Links.of(MESH))
    closed = Batch([work]).step_ns(price, costs)[0]
    step = predict(setting).step_ns
    assert step == pytest.approx(closed, rel=0.05)
    assert step < predict(ring).step_ns * 0.7


def test_a_calibrated_network_is_not_slowed_down_once_more():
    """The network file includes its losses; the shares of the chip would count them again."""
    plan = Plan(dp=8, global_batch=8)
    network = NetworkConfig(("Switch",), (8,), (100.0,), (500.0,))

    def step(**efficiency: object) -> int:
        measured = replace(network, efficiency=EfficiencyPart.from_mapping(efficiency))
        found = predict(Setting(find_model("mpt-1b"), plan, find_chip("h100"), measured, "megatron"))
        assert any("efficiency of the network" in line for line in found.assumptions)
        return found.step_ns

    plain = predict(Setting(find_model("mpt-1b"), plan, find_chip("h100"), network, "megatron")).step_ns
    lossless, half = step(wire=1.0), step(wire=0.5)
    assert lossless < half
    assert lossless < plain
    assert step(wire=1.0, collectives={"all_reduce": [[4, "1ms"]]}) > lossless


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--placement", "tp-dp"], "once each"),
        (["--schedule", "interleaved"], "--interleave 2 or more"),
        (["--pp", "5"], "needs 5 ranks"),
        (["--world", "8", "--mesh", "dp=8"], "--world, --mesh: this option needs --script"),
        (["--schedule", "zero-bubble"], "has no effect without --pp"),
        (["--tensor-overlap"], "has no effect without --tp"),
        (["--interleave", "2"], "there is only one"),
        (["--expert-tp", "1", "--tp", "2"], "has no experts"),
        (["--precision", "bf8"], "did you mean 'bf16'"),
        (["--precision", "nvfp4"], "no peak for the precision"),
        (["--keep", "qkv"], "has no effect without --recompute full"),
        (["--recompute", "full", "--keep", "norm"], "--keep can be qkv"),
        (["--document", "64", "--no-fused-attention"], "--document needs fused attention"),
        (["--expert-overlap"], "has no effect without --ep"),
        (["--deduplicate"], "has no effect without --ep"),
    ],
)
def test_contradicting_options_are_errors(options: list[str], words: str):
    with pytest.raises(ChakrascopeError, match=words):
        CliRunner().invoke(predict_command, [*COMMAND, *options], catch_exceptions=False)


def test_a_script_decides_how_it_is_split():
    with pytest.raises(UsageError, match="--tp, --micro-batch: with --script, the script determines this"):
        CliRunner().invoke(
            predict_command,
            [*COMMAND[2:], "--script", "train.py", "--tp", "4", "--micro-batch", "3"],
            catch_exceptions=False,
        )


def test_degrees_are_whole_numbers_from_1_on():
    for option in ("--tp", "--global-batch", "--sequence"):
        answer = CliRunner().invoke(predict_command, [*COMMAND, option, "0"])
        assert answer.exit_code == 2
        assert "is not a whole number of 1 or more" in " ".join(answer.output.split())


def test_presets_of_nodes_have_any_number_of_them():
    large = NetworkConfig.preset("hgx-h100-2048x8")
    assert large.npus_count == (8, 2048)
    assert large.bandwidth == HGX.bandwidth
    with pytest.raises(ConfigError):
        NetworkConfig.preset("hgx-h100-8x9")
    with pytest.raises(ConfigError):
        NetworkConfig.preset("tpu-v2-7x7")
