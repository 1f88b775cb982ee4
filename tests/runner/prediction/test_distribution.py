"""The step as a distribution: replays of one graph in which kernels and ranks vary."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from chakrascope.cli._predict import predict_command
from chakrascope.converter import NodeType
from chakrascope.errors import UsageError
from chakrascope.runner import NetworkConfig, script_workload
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import (
    Prediction,
    Setting,
    StepDistribution,
    Variation,
    predict,
    predict_recorded,
)
from chakrascope.runner.prediction.models import Plan, find_model
from chakrascope.tracer import RecordedEntry, Recording
from chakrascope.tracer._recordings import Memory

MODEL = replace(find_model("llama3-8b"), layers=4)
NETWORK = NetworkConfig.preset("hgx-h100-2x8")
PLANS = {
    "data": Plan(dp=16, global_batch=16),
    "tensor": Plan(tp=4, dp=4, sequence_parallel=True, global_batch=8, zero=1),
    "pipeline": Plan(pp=4, dp=4, global_batch=32, zero=1),
}


def prediction(plan: Plan, variation: Variation | None, **more: Any) -> Prediction:
    setting = Setting(MODEL, plan, find_chip("h100"), NETWORK, "megatron")
    return predict(setting, variation=variation, **more)


def distribution(plan: Plan, variation: Variation, **more: Any) -> StepDistribution:
    found = prediction(plan, variation, **more).distribution
    assert found is not None
    return found


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_the_step_without_variation_is_the_limit_of_small_ones(plan: Plan):
    alone = prediction(plan, None)
    assert alone.distribution is None
    varied = prediction(plan, Variation(1e-9, 1e-9, replays=4))
    assert varied.step_ns == alone.step_ns
    assert varied.distribution
    assert varied.distribution.steps_ns == pytest.approx([alone.step_ns] * 4, rel=1e-6)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_ranks_that_wait_for_the_slowest_lengthen_the_step(plan: Plan):
    one = prediction(plan, None).step_ns
    small, large = (distribution(plan, Variation(ranks=share)) for share in (0.01, 0.04))
    assert one < small.quantile_ns(0.5) < large.quantile_ns(0.5) < one * 1.04**3
    assert small.quantile_ns(0.95) - small.quantile_ns(0.05) < large.quantile_ns(0.95) - large.quantile_ns(
        0.05
    )


def test_the_slowest_of_ranks_is_drawn_as_the_largest_of_their_factors():
    """Of data-parallel ranks that compute alone, the step's computation is that of the slowest."""
    plan, share = PLANS["data"], 0.05
    found = distribution(plan, Variation(ranks=share, replays=400))
    random = np.random.default_rng(7)
    width = np.sqrt(np.log1p(share**2))
    slowest = np.exp(width * random.standard_normal((20_000, 16)) - width**2 / 2).max(axis=1)
    computed = prediction(plan, None).result.ranks["compute_ns"].iloc[0]
    excess = (np.array(found.steps_ns) - prediction(plan, None).step_ns) / computed
    # Gradients that are still reduced at the end hide some of the excess.
    assert 0.8 * (slowest.mean() - 1) < excess.mean() <= 1.05 * (slowest.mean() - 1)


@pytest.mark.parametrize("plan", PLANS.values(), ids=PLANS)
def test_one_rank_for_all_bounds_ranks_of_their_own(plan: Plan):
    variation = Variation(0.05, 0.02, replays=24)
    one, own = (distribution(plan, variation, every_rank=every) for every in (False, True))
    step = prediction(plan, None).step_ns
    assert step < own.quantile_ns(0.5) <= one.quantile_ns(0.5) * 1.003
    assert one.quantile_ns(0.5) / own.quantile_ns(0.5) < 1.05


def test_a_seed_decides_every_replay():
    plan, variation = PLANS["pipeline"], Variation(0.05, 0.02, replays=6)
    first, again, other = (
        distribution(plan, each).steps_ns for each in (variation, variation, replace(variation, seed=1))
    )
    assert first == again
    assert set(first).isdisjoint(other)
    assert distribution(plan, replace(variation, replays=3)).steps_ns == first[:3]


def test_sharded_weights_vary_by_their_slowest_rank_alone():
    plan = Plan(dp=16, global_batch=16, zero=3)
    assert distribution(plan, Variation(0.05)).quantile_ns(0.5) > prediction(plan, None).step_ns
    with pytest.raises(UsageError, match="leave out --all-ranks"):
        distribution(plan, Variation(0.05), every_rank=True)


COMMAND = ["--model", "mpt-125m", "--chip", "h100", "--network", "hgx-h100-8"]


def test_the_command_prints_quantiles_and_writes_them():
    options = [*COMMAND, "--spread", "kernels=5%, ranks=0.02", "--replays", "8", "--seed", "3"]
    shown = CliRunner().invoke(predict_command, options, catch_exceptions=False).stdout
    assert "in 90 % of 8 simulations" in shown
    written = CliRunner().invoke(predict_command, [*options, "--format", "json"], catch_exceptions=False)
    found = json.loads(written.stdout[written.stdout.index("{") :])
    spread = found["spread"]
    assert {key: spread[key] for key in ("kernels", "ranks", "replays", "seed")} == {
        "kernels": 0.05, "ranks": 0.02, "replays": 8, "seed": 3,
    }  # fmt: skip
    quantiles = list(spread["quantiles_ns"].values())
    assert list(spread["quantiles_ns"]) == ["0.05", "0.25", "0.5", "0.75", "0.95"]
    assert quantiles == sorted(quantiles)
    assert found["step_ns"] < spread["quantiles_ns"]["0.5"]


def test_replays_without_a_spread_are_refused():
    with pytest.raises(UsageError, match="--replays and --seed need --spread"):
        CliRunner().invoke(predict_command, [*COMMAND, "--seed", "1"], catch_exceptions=False)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("kernels", "'kernels' is not a spread"),
        ("hosts=5%", "'hosts=5%' is not a spread"),
        ("kernels=-5%", "is not a spread"),
        ("kernels=fast", "is not a spread"),
        ("kernels=200%", "not between 0 and 100 %"),
        ("kernels=0", "nothing that varies"),
        ("", "is not a spread"),
    ],
)
def test_a_spread_that_cannot_be_drawn_is_refused(text: str, words: str):
    with pytest.raises(UsageError, match=words):
        CliRunner().invoke(predict_command, [*COMMAND, "--spread", text], catch_exceptions=False)


# Steps recorded from scripts, with the costs of a chip.


DATA = Path(__file__).parents[2] / "data" / "converter" / "rescaling"


def predicted(layers, chip="h100", network="hgx-h100-2x8"):
    recordings = [Recording.load(path) for path in sorted((DATA / f"layers_{layers}").iterdir())]
    workload = script_workload(recordings).scale_out(16)
    return predict_recorded(workload, find_chip(chip), NetworkConfig.find(network), software="fsdp")


def test_operators_take_costs_of_their_class():
    prediction = predicted(4)
    chip = prediction.chip
    costs = chip.costs_of("fsdp")
    nodes = prediction.workload.graphs[0].nodes
    product = nodes[nodes["operator"] == "aten::mm"].iloc[0]
    peak, memory = chip.peak("bf16") / 1e9, chip.memory_bytes_per_s / 1e9
    work = product.num_ops / (peak * costs.share("gemm", "bf16"))
    assert product.duration_ns == max(1, round(work + product.tensor_size_bytes * costs.gemm_memory / memory))
    pointwise = nodes[nodes["operator"] == "aten::silu"].iloc[0]
    assert pointwise.duration_ns == max(1, round(pointwise.tensor_size_bytes / (memory * costs.pointwise)))
    assert (nodes["duration_ns"][nodes["type"] != NodeType.COMP] == 0).all()


def test_spread_of_a_deeper_prediction_is_larger():
    one, other = predicted(4), predicted(7)
    assert one.step_ns < other.step_ns
    document = one.to_json()
    assert document["step_low_ns"] < document["step_ns"] < document["step_high_ns"]
    assert document["memory_bytes_per_rank"] == one.memory_bytes > 0
    assert document["fits"] is True
    assert "of the critical path" in document["bound_by"]
    assert any("by class" in line for line in document["assumptions"])


def matmuls(width, tf32=(), name="aten::mm"):
    """A recording of two matmuls of 4096 x 4096 by 4096 x 4096, with *width* bytes an element."""
    size = 4096
    tensor, shape = [0, 0, 0, size**2, width, "cuda:0"], [size, size]
    entry = RecordedEntry(
        name, [tensor, tensor], [shape, shape], [tensor], [shape], False, 0, [], 0, "forward"
    )
    return Recording(
        rank=0, world=2, groups={}, made_groups=[], meshes=[], notes=[], memory_bytes=Memory(1, 1),
        torch_version="2", entries=[entry, entry], modules=[""], tf32=list(tf32),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("chip", "width", "tf32", "precision"),
    [
        ("h100", 4, (), "fp32"),
        ("h100", 4, ("gemm",), "tf32"),
        ("h100", 4, ("convolution",), "fp32"),
        ("h100", 2, (), "bf16"),
        ("h100", 1, (), "fp8"),
        ("h100", 8, (), "fp32"),
        ("a100-80", 1, (), "bf16"),
        ("v100", 2, (), "fp16"),
        ("v100", 4, ("gemm",), "fp32"),
        ("tpu-v5p", 4, (), "bf16"),
    ],
)
def test_operands_decide_the_precision_of_a_matmul(chip, width, tf32, precision):
    workload = script_workload([matmuls(width, tf32)])
    chosen, network = find_chip(chip), NetworkConfig.find("ring-2")
    software = next(iter(chosen.costs))
    prediction = predict_recorded(workload, chosen, network, software=software)
    costs = chosen.costs_of(software)
    work = 2 * 4096**3 / (chosen.peak(precision) * costs.share("gemm", precision)) * 1e9
    moved = 3 * 4096**2 * width * costs.gemm_memory / chosen.memory_bytes_per_s * 1e9
    assert prediction.workload.graphs[0].nodes["duration_ns"].tolist() == [round(work + moved)] * 2
    assert prediction.precision == precision
    at_peak = 4 * 4096**3 / chosen.peak(precision) * 1e9
    assert prediction.utilisation == pytest.approx(at_peak / prediction.step_ns)
    assert any(f"100.0 % {precision}" in line for line in prediction.assumptions)


def test_fp32_matmuls_without_tf32_get_a_hint_and_a_chosen_precision_is_for_all():
    network = NetworkConfig.find("ring-2")
    workload = script_workload([matmuls(4)])
    single = predict_recorded(workload, find_chip("h100"), network, software="fsdp")
    assert any("torch.set_float32_matmul_precision('high')" in line for line in single.assumptions)
    half = predict_recorded(workload, find_chip("h100"), network, software="fsdp", precision="bf16")
    assert half.precision == "bf16"
    assert half.step_ns < single.step_ns / 10
    assert not any("TF32" in line for line in half.assumptions)


def test_the_network_needs_the_ranks_of_the_job():
    with pytest.raises(UsageError, match=r"runs as 16 ranks, and the network 'hgx-h100-8' has 8"):
        predicted(4, network="hgx-h100-8")
