"""Edits of a real trace of GPUs keep its order, and what waits for a change comes later."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "planted_bottlenecks"))

import plants
import trace_edits

TRACE = Path(__file__).resolve().parents[1] / "data" / "converter" / "dlrm_v100_8" / "kineto_0.json.gz"


@pytest.fixture(scope="module")
def events():
    timed = trace_edits.timed_events(json.loads(gzip.decompress(TRACE.read_bytes()))["traceEvents"])
    timed = [event for event in timed if event.get("cat") != "gpu_user_annotation"]
    first = min(event["ts"] for event in timed)
    return [event | {"ts": event["ts"] - first} for event in timed]


def in_order(events):
    """Whether the device's events of each stream follow one another."""
    streams = {}
    for event in sorted((e for e in events if e.get("cat") in trace_edits.DEVICE), key=plants.starts):
        if event["ts"] < streams.get(event["args"]["stream"], 0.0) - 1e-6:
            return False
        streams[event["args"]["stream"]] = event["ts"] + event["dur"]
    return True


def test_an_edit_that_changes_nothing_moves_nothing(events):
    same = trace_edits.edited(events, trace_edits.Edit())
    assert all(new["ts"] == pytest.approx(old["ts"]) for old, new in zip(events, same, strict=True))
    assert all(new["dur"] == pytest.approx(old["dur"]) for old, new in zip(events, same, strict=True))


def test_an_edit_keeps_the_order_of_the_trace(events):
    middle = plants.leaves(events, plants.steps(events)[0])[100]["ts"]
    later = trace_edits.edited(events, trace_edits.Edit([(middle, 500.0)], lambda event: 0.5 * event["dur"]))
    assert in_order(later)
    pairs = list(zip(events, later, strict=True))
    assert all(new["ts"] >= old["ts"] - 1e-6 for old, new in pairs)
    on_device = [pair for pair in pairs if pair[0]["cat"] in trace_edits.DEVICE]
    assert all(new["dur"] == pytest.approx(1.5 * old["dur"]) for old, new in on_device)
    assert any(new["ts"] >= old["ts"] + 500 for old, new in pairs)


def test_an_added_synchronisation_returns_after_the_work_that_was_issued_before_it(events):
    place = plants.outermost(events, plants.steps(events)[0])[-40]["ts"] - 1e-3
    issued = trace_edits.launches_of(events)
    before = {number for number, call in issued.items() if call["ts"] < place}
    slow = [e for e in plants.kernels(events, communication=False) if e["args"]["correlation"] in before][-5:]

    def synchronise(ts, number):
        args = {"correlation": number, trace_edits.PLANTED: True}
        own = {key: slow[0][key] for key in ("pid", "tid")}
        call = {"ph": "X", "cat": "cuda_runtime", "name": "cudaDeviceSynchronize", "ts": ts + 2, "dur": 4}
        return [own | call | {"args": args}]

    added = trace_edits.with_calls(events, [place], 24.0, synchronise)
    later = plants.longer(added, [e for e in added if e["args"].get("correlation") in before], 5_000.0)
    (call,) = [e for e in later if trace_edits.PLANTED in (e.get("args") or {})]
    ends = [
        event["ts"] + event["dur"]
        for event in later
        if event.get("cat") in trace_edits.DEVICE and event["args"].get("correlation") in before
    ]
    assert in_order(later)
    assert call["ts"] + call["dur"] == pytest.approx(max(ends), abs=0.01)
    assert call["dur"] > 100  # 4 us where nothing is to be waited for


def test_a_kernel_waits_for_no_kernel_that_was_issued_after_it():
    """A queued kernel that began just when a later-issued one had ended did not wait for that one."""
    trace = []
    for number, (call, start, stream) in enumerate([(0.0, 200.0, 20), (100.0, 110.0, 7)]):
        shared = {"ph": "X", "pid": 1, "args": {"correlation": number + 1, "stream": stream}}
        trace.append(shared | {"cat": "cuda_runtime", "name": "launch", "tid": 1, "ts": call, "dur": 5.0})
        length = 85.0 if stream == 7 else 10.0
        trace.append(shared | {"cat": "kernel", "name": "k", "tid": stream, "ts": start, "dur": length})
    later = trace_edits.edited(trace, trace_edits.Edit([(50.0, 1000.0)]))
    assert [event["ts"] for event in later] == [0.0, 200.0, 1100.0, 1100.0]
