"""What host threads called, nested by call, from the trace and from the evidence."""

from __future__ import annotations

import numpy as np
from evidence_file import EvidenceFile

from chakrascope.converter.readers import host_calls, read_device_trace
from chakrascope.tracer import read_evidence


def _rows(calls, thread):
    """Return (depth, name, start, end in us) of the calls of a *thread*."""
    own = np.flatnonzero(calls.thread == calls.threads.index(thread))
    names = [calls.names[number] for number in calls.name[own]]
    columns = (column[own].tolist() for column in (calls.depth, calls.start_ns // 1000, calls.end_ns // 1000))
    return [(depth, name, start, end) for name, depth, start, end in zip(names, *columns, strict=True)]


def test_calls_are_nested_in_those_that_made_them(data_dir):
    trace = read_device_trace(data_dir / "converter" / "mlp_2" / "rank0.device.json.gz")
    step = next(event for event in trace.rows() if event.name == "ProfilerStep#4")
    calls = host_calls(trace, None, step.start_ns, step.end_ns)
    assert calls.threads[0] == f"thread {step.thread}"
    assert (calls.depth[0], calls.names[calls.name[0]]) == (0, "ProfilerStep#4")
    assert calls.start_ns.min() == 0
    assert calls.end_ns.max() == step.end_ns - step.start_ns
    below = np.flatnonzero(calls.depth > 0)
    for row in below.tolist():
        above = np.flatnonzero((calls.thread == calls.thread[row]) & (calls.depth == calls.depth[row] - 1))
        around = above[np.searchsorted(calls.start_ns[above], calls.start_ns[row], side="right") - 1]
        assert calls.start_ns[around] <= calls.start_ns[row] < calls.end_ns[around]
    linear, addmm = (
        {start for _, name, start, _ in _rows(calls, calls.threads[0]) if name == which}
        for which in ("aten::linear", "aten::addmm")
    )
    assert linear
    assert len(addmm) >= len(linear)


def test_sampled_stacks_and_collections_have_rows_of_their_own(data_dir, tmp_path):
    trace = read_device_trace(data_dir / "converter" / "mlp_2" / "rank0.device.json.gz")
    file = EvidenceFile()
    for time, *names in ((0, "load", "main"), (10, "load", "main"), (20, "train", "main"), (30, "main")):
        file.sample(time, *((name, "a.py", time + 1, "script") for name in names), cpu=time)
    file.collection(12, 15)
    file.write(tmp_path / "evidence.json.gz")
    evidence = read_evidence(tmp_path / "evidence.json.gz")
    calls = host_calls(trace, evidence, 5_000, 35_000)
    assert calls.threads == ["thread 7, Python sampled", "garbage collection"]
    assert _rows(calls, "thread 7, Python sampled") == [
        (0, "main (a.py)", 0, 25),
        (1, "load (a.py)", 0, 15),
        (1, "train (a.py)", 15, 25),
    ]
    assert _rows(calls, "garbage collection") == [(0, "garbage collection of generation 2", 7, 10)]
