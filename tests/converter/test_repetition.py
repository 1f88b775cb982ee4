"""Traces that mark no step, and repeat: each repetition is a step, unless that is not certain."""

import gzip
import json

import numpy as np
import pytest
from kineto_trace import KinetoTrace

from chakrascope.converter import convert_files
from chakrascope.converter.building import UNMARKED, step_choice_text
from chakrascope.converter.building._repetition import repeated_steps
from chakrascope.converter.readers import read_device_trace

LAYER = ["norm", "gemm_qkv", "flash", "gemm_out", "norm", "gemm_up", "silu", "gemm_down"]
FORWARD = ["Memcpy HtoD", "embed", *LAYER * 6, "norm", "gemm_head", "argmax", "Memcpy DtoH"]
NOISE = np.random.default_rng(7)


def trace(path, kernels, pauses=(), graph=0):
    """Write a trace of *kernels* in order, each launched on its own, or *graph* at a time.

    The host pauses 500 us before the kernels whose places are in *pauses*.
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
    """Return how many launches each of *steps* holds."""
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
    """Two iterations without a mark once became one step of twice the time."""
    path = trace(tmp_path / "trace.json", FORWARD * 2)
    assert calls_in(path, steps_of(path)) == [len(FORWARD)] * 2
    workload = convert_files(None, str(path))
    chosen = "the median of 2 repetitions, as no step is marked, by the slowest rank."
    assert step_choice_text(workload.metadata).endswith(f" is shown: {chosen}")
    (note,) = [note for note in workload.metadata["assumptions"] if "repetitions" in note]
    assert note == "no step is marked in the traces: each of the 2 repetitions in them counts as one step"


def test_a_kernel_more_or_less_does_not_shift_the_steps(tmp_path):
    longer = [*FORWARD[:20], "log", *FORWARD[20:]]
    path = trace(tmp_path / "trace.json", [*FORWARD * 5, *longer, *FORWARD * 7])
    expected = [len(FORWARD)] * 5 + [len(longer)] + [len(FORWARD)] * 7
    assert calls_in(path, steps_of(path)) == expected


def test_what_one_operator_repeats_is_one_step(tmp_path):
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
    assert step_choice_text(metadata) == f"Step 0 is shown: {UNMARKED}."


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
    assert any(
        "all that was recorded counts as one step" in note for note in workload.metadata["assumptions"]
    )


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
