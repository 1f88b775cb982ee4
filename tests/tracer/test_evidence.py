"""The reader of evidence against whole, damaged and foreign files."""

import copy
import gzip
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import TraceError, TraceFormatError
from chakrascope.tracer import TraceSet, read_evidence

STEPS = (
    "cpu_ns", "process_cpu_ns", "delay_ns", "voluntary", "involuntary", "read_bytes", "written_bytes",
    "gc_ns", "loader_ns", "fetch_ns",
)  # fmt: skip
COUNTERS = (
    "process_cpu_ns", "read_bytes", "written_bytes", "disk_read_bytes", "disk_written_bytes",
    "throttled_periods", "throttled_ns",
)  # fmt: skip
DOCUMENT = {
    "format": "chakrascope-evidence",
    "version": 1,
    "rank": 0,
    "pid": 7,
    "thread": 7,
    "threads": [{"tid": 7, "name": "MainThread"}, {"tid": 9, "name": "loader"}],
    "files": [{"path": "train.py", "origin": "script"}, {"path": "re/__init__.py", "origin": "standard"}],
    "frames": [["main", 0, 12, ""], ["sub", 1, 185, "compile"]],
    "stacks": [[-1, -1], [0, 0], [1, 1]],
    "waits": ["", "running"],
    "loaders": [
        {
            "dataset": "Images.__getitem__", "file": 0, "line": 4, "collate": "default_collate",
            "workers": 2, "start_method": "fork", "batch_size": 8, "pin_memory": False,
        }
    ],
    "steps": {
        "index": [1, 2, 2, 3],
        "time_ns": [100, 150, 900, 960],
        "recorded": [0, 0, 0, 1],
        **{name: [0, 1, 1, -1] for name in STEPS},
    },
    "samples": {
        "time_ns": [110, 110, 130],
        "late_ns": [0, 0, 5],
        "thread": [0, 1, 0],
        "stack": [2, 1, 0],
        "cpu_ns": [1, 2, 3],
        "delay_ns": [0, -1, 0],
        "wait": [1, 0, 0],
    },
    "counters": {"time_ns": [100], **{name: [-1] for name in COUNTERS}},
    "collections": {"start_ns": [1], "end_ns": [2], "generation": [2], "thread": [1], "collected": [0]},
    "steps_total": 3,
    "step_histogram": [[32, 2]],
    "switch_interval_ns": 5_000_000,
    "sampling": {"on": True, "cpu_ns": 10, "samples": 2},
    "end_ns": 1000,
}  # fmt: skip


def write(folder, document=DOCUMENT):
    path = folder / "rank0.evidence.json.gz"
    path.write_bytes(gzip.compress(json.dumps(document).encode()))
    return path


def test_steps_lie_between_boundaries_of_their_number(tmp_path):
    evidence = read_evidence(write(tmp_path))
    assert list(evidence.steps.steps()) == [(1, 0, 1), (2, 2, 3)]
    assert len(evidence.samples) == 3
    assert evidence.steps.columns.keys() - DOCUMENT["steps"].keys() == {
        "forward_ns", "backward_ns", "collective_ns", "optimizer_ns",
    }  # fmt: skip
    assert evidence.steps.forward_ns == []


def test_a_stack_has_its_frames_the_innermost_first(tmp_path):
    evidence = read_evidence(write(tmp_path))
    places = [frame.place for frame in evidence.frames_of(2)]
    assert places == ["sub (re/__init__.py:185)", "main (train.py:12)"]
    assert evidence.frames_of(0) == []


def test_a_trace_set_lists_its_evidence(tmp_path):
    write(tmp_path)
    manifest = {
        "format": "chakrascope-trace-set", "version": 1, "partial": False, "reasons": [], "command": [],
        "exit_code": 0, "world_size": 1, "ranks": [{"rank": 0, "evidence": "rank0.evidence.json.gz"}],
    }  # fmt: skip
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert TraceSet.load(tmp_path).ranks[0].files == ("rank0.evidence.json.gz",)
    (tmp_path / "rank0.evidence.json.gz").unlink()
    with pytest.raises(TraceError, match=r"rank0\.evidence\.json\.gz is missing"):
        TraceSet.load(tmp_path)


def changed(*path, value):
    document = copy.deepcopy(DOCUMENT)
    part = document
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("version",), 2, "and 1. Use"),
        (("version",), True, "not evidence"),
        (("format",), "other", "not evidence"),
        (("steps", "gc_ns"), [0], "gc_ns of steps has 1 rows, others have 4"),
        (("steps", "forward_ns"), [0], "forward_ns of steps has 1 rows, others have 4"),
        (("steps", "index"), [1, 2, 3, 2], "steps are not in order"),
        (("samples", "time_ns"), [3, 2, 1], "samples are not in order"),
        (("samples", "stack"), [0, 3, 0], "a sample's stack is number 3 of 3"),
        (("samples", "thread"), [0, 0, 2], "a sample's thread is number 2 of 2"),
        (("samples", "wait"), [-1, 0, 0], "a sample's wait is number -1 of 2"),
        (("samples", "cpu_ns"), [0, 0, -2], ">= -1"),
        (("stacks",), [], "stack 0 is not the empty one"),
        (("stacks",), [[-1, -1], [2, 0], [0, 0]], "stack 1 is called by stack 2"),
        (("stacks",), [[-1, -1], [0, 2]], "a stack's frame is number 2 of 2"),
        (("frames", 0), ["main", 2, 1, ""], "a frame's file is number 2 of 2"),
        (("loaders", 0, "file"), 2, "a loader's file is number 2 of 2"),
        (("collections", "thread"), [2], "a collection's thread is number 2 of 2"),
        (("rank",), "0", r"got `str` - at `\$.rank`"),
        (("end_ns",), 10**30, "end_ns"),
        (("steps",), None, r"\$.steps"),
    ],
)
def test_damaged_evidence_is_refused_with_a_reason(tmp_path, path, value, message):
    file = write(tmp_path, changed(*path, value=value))
    with pytest.raises(TraceFormatError, match=message) as refused:
        read_evidence(file)
    assert str(file) in refused.value.message


@pytest.mark.parametrize("key", DOCUMENT)
def test_evidence_without_a_key_is_refused(tmp_path, key):
    with pytest.raises(TraceFormatError, match=key):
        read_evidence(write(tmp_path, {name: value for name, value in DOCUMENT.items() if name != key}))


@settings(deadline=None)
@given(st.integers(0, len(gzip.compress(json.dumps(DOCUMENT).encode())) - 1))
def test_every_truncation_is_refused(tmp_path_factory, length):
    file = write(tmp_path_factory.mktemp("truncated"))
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(TraceFormatError, match="damaged or truncated"):
        read_evidence(file)


@pytest.mark.parametrize("content", [b"[1]", b"7", b"null", b"[" * 100_000, b"\xff\xfe", b"{}"])
def test_what_is_no_evidence_is_refused(tmp_path, content):
    file = tmp_path / "rank0.evidence.json.gz"
    file.write_bytes(gzip.compress(content))
    with pytest.raises(TraceFormatError, match=r"rank0\.evidence\.json\.gz"):
        read_evidence(file)


def test_a_missing_file_and_a_plain_one_are_refused(tmp_path):
    with pytest.raises(TraceError, match="cannot be read"):
        read_evidence(tmp_path / "none.json.gz")
    (tmp_path / "plain.json.gz").write_text(json.dumps(DOCUMENT))
    with pytest.raises(TraceFormatError, match="cannot be decompressed"):
        read_evidence(tmp_path / "plain.json.gz")
