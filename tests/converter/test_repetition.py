"""Traces without step marks: each repetition is a step, unless the repetition is uncertain."""

import gzip
import json

import numpy as np
import pytest
from kineto_trace import KinetoTrace

from chakrascope.converter import convert_files
from chakrascope.converter.building import UNMARKED, step_choice_text
from chakrascope.converter.building._repetition import optimizer_steps, repeated_steps
from chakrascope.converter.readers import read_device_trace

LAYER = ["norm", "gemm_qkv", "flash", "gemm_out", "norm", "gemm_up", "silu", "gemm_down"]
FORWARD = ["Memcpy HtoD", "embed", *LAYER * 6, "norm", "gemm_head", "argmax", "Memcpy DtoH"]
NOISE = np.random.default_rng(7)


def trace(path, kernels, pauses=(), graph=0):
    """Write a trace of *kernels* in order, launched one by one or *graph* at a time.

    The host pauses 500 us before the kernels with the indices *pauses*.
    """
    now, free, call, made = 1_000.0, 0.0, 0, KinetoTrace()
    for place, name in enumerate(kernels):
        now += 500.0 if place in pauses else 0.0
        if not graph or place % graph == 0:
            made.op(f"aten::{name.split()[0]}", now, 9.0, **{"External id": call + 1})
            call = made.call("cudaLaunchKernel", now + 2, 5.0)
            now += 10 + float(NOISE.integers(0, 4))
        category = "gpu_memcpy" if "Memcpy" in name else "kernel"
        start = max(now, free)
        free = start + 20 + float(NOISE.integers(0, 3))
        made.work(name, start, free - start, call, category=category)
    return made.write(path)


def calls_in(path, steps):
    """Return the number of launches in each of *steps*."""
    calls = read_device_trace(path).calls
    return [int(((calls.start_ns >= s.start_ns) & (calls.start_ns < s.end_ns)).sum()) for s in steps]


def steps_of(path):
    return repeated_steps(read_device_trace(path))[0]


@pytest.mark.parametrize("count", [2, 3, 5, 40])
def test_each_repetition_is_a_step(tmp_path, count):
    path = trace(tmp_path / "trace.json", FORWARD * count)
    assert calls_in(path, steps_of(path)) == [len(FORWARD)] * count
    workload = convert_files(None, str(path))
    assert len(workload.metadata["steps"]) == 1
    assert any(f"each of the {count} repetitions" in note for note in workload.metadata["assumptions"])


def test_all_repetitions_are_the_whole_trace(tmp_path):
    path = trace(tmp_path / "trace.json", FORWARD * 4)
    every = convert_files(None, str(path), step="all")
    assert every.metadata["steps"] == [0, 1, 2, 3]
    works = read_device_trace(path).works
    assert every.metadata["measured_step_ns"]["0"] == works.end_ns.max() - works.start_ns.min()


def test_the_parts_at_the_ends_are_steps_of_their_own(tmp_path):
    kernels = (FORWARD * 6)[30:-25]
    pauses = {place for place in range(len(kernels)) if (place + 30) % len(FORWARD) == 0}
    path = trace(tmp_path / "trace.json", kernels, pauses)
    length = len(FORWARD)
    assert calls_in(path, steps_of(path)) == [length - 30, *[length] * 4, length - 25]


def test_two_equal_iterations_are_two_steps(tmp_path):
    """Two iterations without marks were once read as one step of twice the time."""
    path = trace(tmp_path / "trace.json", FORWARD * 2)
    assert calls_in(path, steps_of(path)) == [len(FORWARD)] * 2
    workload = convert_files(None, str(path))
    chosen = (
        "the median of 2 unmarked steps, detected by a repeating sequence, by the time of the slowest rank."
    )
    assert step_choice_text(workload.metadata).endswith(f" is shown: {chosen}")
    (note,) = [note for note in workload.metadata["assumptions"] if "repetitions" in note]
    assert note == "no step is marked in the traces: each of the 2 repetitions in them counts as one step"


def test_a_kernel_more_or_less_does_not_shift_the_steps(tmp_path):
    longer = [*FORWARD[:20], "log", *FORWARD[20:]]
    path = trace(tmp_path / "trace.json", [*FORWARD * 5, *longer, *FORWARD * 7])
    expected = [len(FORWARD)] * 5 + [len(longer)] + [len(FORWARD)] * 7
    assert calls_in(path, steps_of(path)) == expected


def test_repetition_inside_one_operator_is_one_step(tmp_path):
    made = KinetoTrace()
    made.events = json.loads(trace(tmp_path / "one.json", FORWARD * 5).read_text())["traceEvents"]
    made.op("aten::many", 999.0, 100_000.0)
    assert steps_of(made.write(tmp_path / "trace.json")) == []


def test_a_graph_is_launched_whole(tmp_path):
    path = trace(tmp_path / "trace.json", FORWARD * 5, graph=len(FORWARD))
    assert calls_in(path, steps_of(path)) == [1] * 5


@pytest.mark.parametrize(
    "kernels",
    [
        FORWARD,
        [*FORWARD * 2, "softmax"],
        LAYER * 2,
        [*FORWARD * 4, "softmax"],
        ["embed", *LAYER * 40, "gemm_head"],
        [*LAYER * 3, *["gemm_backward", "norm_backward"] * 10, "adam"],
        ["gemm"] * 5,
        ["gemm"] * 40,
        ["norm", "gemm", "silu"] * 40,
        [f"kernel{number}" for number in range(200)],
        [f"kernel{number}" for number in np.random.default_rng(1).integers(0, 3, 300)],
    ],
    ids=[
        "one",
        "something after two",
        "two layers",
        "something after four",
        "layers",
        "training step",
        "few",
        "one kernel",
        "short",
        "nothing twice",
        "random",
    ],
)
def test_what_is_not_certain_is_one_step(tmp_path, kernels):
    path = trace(tmp_path / "trace.json", kernels)
    assert repeated_steps(read_device_trace(path)) == ([], "")
    metadata = convert_files(None, str(path)).metadata
    assert UNMARKED in metadata["assumptions"]


@pytest.mark.parametrize(
    "ranks",
    [
        [FORWARD * 4, FORWARD * 5],
        [FORWARD * 4, [*FORWARD[9:], *FORWARD[:9]] * 4],
    ],
    ids=["more often", "from another kernel on"],
)
def test_ranks_that_repeat_otherwise_are_one_step_each(tmp_path, ranks):
    for rank, kernels in enumerate(ranks):
        trace(tmp_path / f"trace_{rank}.json", kernels)
    workload = convert_files(None, f"{tmp_path}/trace_{{rank}}.json")
    assert workload.metadata["steps"] == [0]
    assert any("the whole recording counts as one step" in note for note in workload.metadata["assumptions"])


def test_operators_of_a_captured_job_repeat_where_its_steps_are_marked(data_dir, tmp_path):
    source = data_dir / "converter" / "loaded_2" / "rank0.device.json.gz"
    document = json.loads(gzip.decompress(source.read_bytes()))
    marks = sorted(e["ts"] for e in document["traceEvents"] if str(e.get("name")).startswith("ProfilerStep#"))
    document["traceEvents"] = [
        e for e in document["traceEvents"] if not str(e.get("name")).startswith("ProfilerStep#")
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(document))
    found = steps_of(path)
    base_us = document.get("baseTimeNanoseconds", 0) / 1000
    assert len(found) == len(marks) == 4
    for step, mark in list(zip(found, marks, strict=True))[1:]:
        assert step.start_ns / 1000 - base_us == pytest.approx(mark, abs=200)


@pytest.mark.parametrize("call", [{"correlation": 9}, {}, {"correlation": -1}])
def test_kernels_without_calls_repeat_nothing(tmp_path, call):
    made = KinetoTrace()
    made.op("aten::mm", 1.0, 5.0, **{"External id": 1})
    for place, name in enumerate(FORWARD * 4):
        made.add("kernel", name, 10.0 * place, 5.0, stream=7, device=0, **call)
    assert steps_of(made.write(tmp_path / "trace.json")) == []


# Optimizers, which PyTorch annotates


def training(path, *iterations, backward=True, inside=False):
    """Write a trace of *iterations*: lists of the optimizers called after a forward and a backward pass.

    The kernels of all iterations differ. With *inside*, the optimizers are called within the backward pass.
    """
    made, now = KinetoTrace(), 1_000.0
    for number, optimizers in enumerate(iterations):
        made.op("aten::mm", now, 50.0)
        made.launch((now + 5, 5.0), [(now + 20, 200.0)], work=f"gemm_{number}")
        for place, optimizer in enumerate(optimizers):
            if backward or not place:
                made.op("autograd::engine::evaluate_function: MmBackward0", now + 60, 20.0 + 80 * inside)
            made.add("user_annotation", f"Optimizer.step#{optimizer}.step", now + 100, 50.0)
            now += 100
        now += 300
    made.op("aten::item", now - 245, 1.0)
    return made.write(path)


def ends_in(path):
    """Return the ends of the steps by the optimizers, in microseconds from the start of the trace."""
    steps, name = optimizer_steps(read_device_trace(path))
    return [(step.end_ns - steps[0].start_ns) / 1e3 for step in steps], name


def test_a_step_ends_with_the_optimizer(tmp_path):
    """The kernels of the iterations differ, as in libraries that try several algorithms."""
    path = training(tmp_path / "trace.json", ["SGD"], ["SGD"], ["SGD"])
    assert ends_in(path) == ([150.0, 550.0, 956.0], "Optimizer.step#SGD.step")
    metadata = convert_files(None, str(path)).metadata
    assert step_choice_text(metadata) == (
        "Step 1 is shown: the median of 3 unmarked steps, detected by calls of the optimizer, by the time of "
        "the slowest rank."
    )
    (note,) = [note for note in metadata["assumptions"] if note.startswith("no step is marked")]
    assert "each of the 3 intervals that end with 'Optimizer.step#SGD.step' counts as one step" in note


def test_two_iterations_are_two_steps_by_their_optimizer(tmp_path):
    assert ends_in(training(tmp_path / "trace.json", ["Adam"], ["Adam"]))[0] == [150.0, 556.0]
    assert ends_in(training(tmp_path / "one.json", ["Adam"])) == ([], "")


def test_optimizers_that_take_turns_end_one_step_together(tmp_path):
    path = training(tmp_path / "turns.json", ["Muon", "AdamW"], ["Muon", "AdamW"])
    assert ends_in(path) == ([250.0, 756.0], "Optimizer.step#AdamW.step")
    same = training(tmp_path / "same.json", ["AdamW", "AdamW"], ["AdamW", "AdamW"], backward=False)
    assert ends_in(same)[0] == [250.0, 756.0]


def test_optimizers_within_a_backward_pass_end_no_step(tmp_path):
    assert ends_in(training(tmp_path / "trace.json", ["SGD"] * 3, ["SGD"] * 3, inside=True)) == ([], "")
