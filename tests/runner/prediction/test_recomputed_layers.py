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
from chakrascope.runner.chips import find_chip
from chakrascope.runner.prediction import Setting, estimated_ns, predict
from chakrascope.runner.prediction.models import (
    Plan,
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
    "--sequence", "32768", "--global-batch", "64", "--format", "json",
]  # fmt: skip


def setting(plan: Plan, model: Any = MODEL) -> Setting:
    return Setting(model, plan, find_chip("h100"), NETWORK, "megatron")


def held(recompute: str, plan: Plan = PLAN, model: Any = MODEL) -> int:
    return fullest_memory(model, replace(plan, recompute=recompute)).total


def step(recompute: str, plan: Plan = PLAN, model: Any = MODEL) -> int:
    return predict(setting(replace(plan, recompute=recompute), model)).step_ns


def test_a_layer_more_takes_as_long_as_the_last_and_frees_as_much():
    counts = ["none", *map(str, range(1, 8)), "full"]
    steps = [step(count) for count in counts]
    sizes = [rank_memory(MODEL, replace(PLAN, recompute=count), 0).total for count in counts]
    assert np.ptp(np.diff(steps)) <= 2 * 8 * 16  # rounded operators
    assert np.diff(steps).min() > 0
    freed = -np.diff(sizes)
    assert freed[:-1] == pytest.approx(freed[0])
    # Once no layer keeps everything, the one that is computed again is on top.
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
    """Block recomputation of dense layers in front of experts frees what dense layers keep."""
    plan = replace(PLAN, pp=1, dp=4)
    none, three = (rank_memory(EXPERTS, replace(plan, recompute=each), 0) for each in ("none", "3"))
    dense = rank_memory(replace(MODEL, layers=3), replace(plan, recompute="none"), 0)
    kept = rank_memory(replace(MODEL, layers=3), replace(plan, recompute="full"), 0)
    freed = none.activations - three.activations
    assert freed == pytest.approx(dense.activations - kept.activations, rel=1e-6)


@settings(max_examples=30, deadline=None)
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
        tp=2, pp=pp, dp=4 // pp, global_batch=32, sequence_parallel=True, zero=zero, chunks=chunks,
        schedule="interleaved" if chunks > 1 else "1f1b", recompute=str(layers),
    )  # fmt: skip
    one, more = setting(plan, model), setting(replace(plan, recompute="full"), model)
    assert estimated_ns(one) <= estimated_ns(more)
    measured = predict(one).step_ns / predict(more).step_ns
    assert estimated_ns(one) / estimated_ns(more) == pytest.approx(measured, rel=0.05)
    assert held(str(layers), plan, model) >= held("full", plan, model)


@settings(max_examples=30, deadline=None)
@given(share=st.floats(0.0, 1.0), pp=st.sampled_from([1, 2, 4]), experts=st.booleans())
def test_as_few_layers_are_recomputed_as_it_takes(share: float, pp: int, experts: bool):
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
        (["--recompute", "21"], "the 20 layers of a pipeline stage. Next: --recompute full"),
        (["--recompute", "uniform:21"], "the 20 layers of a pipeline stage"),
        (["--recompute", "6", "--interleave", "4"], "the 5 layers of a pipeline stage and chunk"),
        (["--recompute", "uniform:2", "--keep", "qkv"], "--keep changes nothing"),
        (["--recompute", "offload:99"], "Next: --recompute offload, which is all of them"),
        (["--recompute", "uniform:offload:2"], "and not 'uniform:offload:2'"),
    ],
)
def test_recomputation_that_cannot_be_is_refused(options: list[str], words: str):
    with pytest.raises(UsageError, match=words):
        answer(*options)
