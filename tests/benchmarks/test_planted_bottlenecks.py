"""Known bottlenecks planted into a real trace of GPUs, one at a time: the summary names each."""

from __future__ import annotations

import random
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import planted_bottlenecks as planted

TRACES = Path(__file__).resolve().parents[1] / "data" / "converter" / "dlrm_v100_8"


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dlrm")
    for rank in range(2):
        (folder / f"kineto_{rank}.json.gz").write_bytes((TRACES / f"kineto_{rank}.json.gz").read_bytes())
    return planted.read_traces(folder)


@pytest.fixture(scope="module")
def step_us(job, tmp_path_factory):
    traces, world_size = job
    run = planted.analysed(traces, world_size, tmp_path_factory.mktemp("plain") / "run")
    return run.result.makespan_ns / 1000


@pytest.mark.parametrize(
    "make",
    [
        planted.slower_kernel,
        planted.slower_collective,
        planted.longer_gap,
        planted.longer_operator,
        planted.late_rank,
    ],
    ids=lambda make: make.__name__,
)
def test_a_planted_bottleneck_is_named(job, step_us, tmp_path, make):
    traces, world_size = job
    plant = make(traces, 2 * step_us, random.Random(5))
    run = planted.analysed(plant.traces, world_size, tmp_path / "run")
    assert run.result.makespan_ns > planted.LEAST_LONGER * step_us * 1000
    assert planted.is_named(run, plant), run.summary.headline


def test_an_edit_keeps_the_order_of_the_trace(job):
    events = job[0][0]
    middle = planted.leaves(events, planted.steps(events)[0])[100]["ts"]
    later = planted.edited(events, planted.Edit([(middle, 500.0)], lambda event: 0.5 * event["dur"]))
    streams: dict[int, float] = {}
    for event in sorted((e for e in later if e.get("cat") in planted.DEVICE), key=planted._starts):
        assert event["ts"] >= streams.get(event["args"]["stream"], 0.0) - 1e-6
        streams[event["args"]["stream"]] = event["ts"] + event["dur"]
    pairs = [pair for pair in zip(events, later, strict=True) if pair[0].get("ph") == "X"]
    assert all(new["ts"] >= old["ts"] - 1e-6 and new["dur"] >= old["dur"] - 1e-6 for old, new in pairs)
    assert any(new["ts"] >= old["ts"] + 500 for old, new in pairs)
