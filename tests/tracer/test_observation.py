"""Observations of the agent other than traces: all steps, stacks, loaders, collections."""

import copy
import gc
import gzip
import json
import math
import mmap
import os
import subprocess
import sys
import threading
import time
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import wait_for

from chakrascope.errors import TraceError, TraceFormatError
from chakrascope.tracer import TraceSet, read_evidence
from chakrascope.tracer._agent import evidence as evidence_module
from chakrascope.tracer._agent.evidence import EvidenceRecorder
from chakrascope.tracer._agent.readings import CoreReadings, quota_cores
from chakrascope.tracer._agent.sources import callee, line_of
from chakrascope.tracer._agent.step_clock import MAX_ROWS

CHECKPOINTS = """
import time, torch
from torch.utils.data import DataLoader, Dataset
class Images(Dataset):
    def __len__(self):
        return 160
    def __getitem__(self, index):
        time.sleep(0.002)
        return torch.ones(8)
def checkpoint():
    time.sleep(0.15)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step, batch in enumerate(DataLoader(Images(), 8, num_workers=WORKERS)):
    model(batch).sum().backward()
    optimizer.step()
    if step % 5 == 4:
        checkpoint()
"""

# The collector, whose callbacks release the GIL, runs while short-lived frames are sampled.
COLLECTIONS = """
import gc, random, threading, time
from chakrascope.tracer._agent.stacks import StackSampler
def descend(depth):
    return descend(depth - 1) if depth else [[] for _ in range(3)]
def sample():
    for _ in range(40):
        sampler._sample(time.time_ns(), inside=True)
        time.sleep(0.0001)
gc.callbacks.append(lambda _phase, _info: time.sleep(0.0005))
gc.set_threshold(20)
sampler = StackSampler((threading.get_ident(), threading.get_native_id()))
thread = threading.Thread(target=sample)
thread.start()
while thread.is_alive():
    descend(random.choice((3, 10, 100, 400)))
assert gc.isenabled()
gc.disable()
sampler._sample(time.time_ns(), inside=True)
assert not gc.isenabled()
"""


@pytest.fixture
def recorder():
    """Return a recorder that was started in this thread, with stacks."""
    recorder = EvidenceRecorder(stacks=True)
    recorder.start()
    yield recorder
    recorder.stop()


def saved(recorder, folder):
    return read_evidence(folder / recorder.write(folder, 0, 7))


@pytest.mark.skipif(sys.version_info >= (3, 12), reason="later versions do not collect within operations")
def test_stacks_are_sampled_while_garbage_is_collected():
    command = [sys.executable, "-c", COLLECTIONS]
    job = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert (job.returncode, job.stderr) == (0, "")


def called_at_the_end(evidence, since_ns):
    """Return the innermost frames of the training thread, most frequent first."""
    rows = zip(*evidence.samples.columns.values(), strict=True)
    stacks = Counter(row[3] for row in rows if row[2] == 0 and row[0] >= since_ns)
    return [evidence.frames_of(stack)[0] for stack, _ in stacks.most_common()]


def test_a_capture_may_end_while_evidence_starts(monkeypatch, tmp_path):
    recorder = EvidenceRecorder(stacks=True)

    def interrupted(*_):  # a signal handler does this
        recorder.enter_window(False)
        assert not recorder.save(tmp_path, 0, 1)
        recorder.stop()
        raise KeyboardInterrupt

    monkeypatch.setattr(evidence_module, "StepClock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        recorder.start()
    assert not recorder.is_on


def test_new_pages_are_counted_and_have_a_cost(recorder, tmp_path):
    recorder.boundary(0, recorded=False)
    with mmap.mmap(-1, 512 * mmap.PAGESIZE) as memory:
        memory[:: mmap.PAGESIZE] = bytes(512)
    time.sleep(0.002)
    recorder.boundary(1, recorded=False)
    evidence = saved(recorder, tmp_path)
    first, last = evidence.steps.faults
    assert last - first >= 1  # huge pages are few
    assert evidence.page_fault_ns > 0
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        features = file.read().split()
    assert evidence.bfloat16 is any(name in features for name in ("avx512_bf16", "amx_bf16", "bf16"))
    assert evidence.steps.compile_ns == [evidence.steps.compile_ns[0]] * 2


def test_evidence_round_trips(recorder, tmp_path):
    before = time.time_ns()
    for index in range(4):
        recorder.boundary(index, recorded=index == 2)
        time.sleep(0.01)
    gc.collect()
    evidence = saved(recorder, tmp_path)
    assert list(evidence.steps.index) == [0, 1, 2, 3]
    assert list(evidence.steps.recorded) == [0, 0, 1, 0]
    assert before <= evidence.steps.time_ns[0] < evidence.end_ns <= time.time_ns()
    assert evidence.thread == threading.get_native_id()
    assert evidence.threads[0].name == threading.current_thread().name
    assert sum(count for _, count in evidence.step_histogram) == 2
    assert [step["index"] for step in recorder.clock.unprofiled_steps(8)] == [0, 2]
    for _, first, last in evidence.steps.steps():
        lasted_ns = evidence.steps.time_ns[last] - evidence.steps.time_ns[first]
        assert lasted_ns >= 10_000_000
        assert 0 <= evidence.steps.cpu_ns[last] - evidence.steps.cpu_ns[first] <= lasted_ns
    assert max(evidence.collections.generation) == 2


def test_sleeping_thread_is_sampled_at_its_sleep(recorder, tmp_path):
    began = time.time_ns()
    recorder.enter_window(True)

    def seen():
        time.sleep(0.4)
        evidence = saved(recorder, tmp_path)
        places = {(os.path.basename(frame.path), frame.call) for frame in called_at_the_end(evidence, began)}
        return evidence if ("test_observation.py", "sleep") in places else None

    evidence = wait_for(seen)
    recorder.enter_window(False)
    waits = {evidence.waits[wait] for wait in evidence.samples.wait}
    assert waits & {"clock_nanosleep", "nanosleep", "select", "pselect6", ""}


def test_a_call_that_keeps_the_interpreter_lock_makes_the_sampler_late(recorder, tmp_path):
    recorder.enter_window(True)
    numbers = list(range(3_000_000))
    began, calls = time.time_ns(), set()
    while "sum" not in calls and time.time_ns() - began < 300_000_000_000:
        for _ in range(20):
            sum(numbers)  # in C, some 10 ms, without releasing the GIL
        evidence = saved(recorder, tmp_path)
        calls = {frame.call for frame in called_at_the_end(evidence, began)}
    assert "sum" in calls
    assert max(evidence.samples.late_ns) > 4_000_000


def test_other_working_threads_have_rows(recorder, tmp_path):
    over = threading.Event()

    def work():
        while not over.is_set():
            sum(range(1000))

    def rows():
        time.sleep(0.1)
        evidence = saved(recorder, tmp_path)
        numbers = [index for index, one in enumerate(evidence.threads) if one.name == "worker"]
        samples = zip(evidence.samples.thread, evidence.samples.cpu_ns, strict=True)
        cpu_ns = [cpu_ns for thread, cpu_ns in samples if [thread] == numbers]
        return cpu_ns if cpu_ns and cpu_ns[-1] > cpu_ns[0] else None

    thread = threading.Thread(target=work, name="worker")
    thread.start()
    try:
        cpu_ns = wait_for(rows)
    finally:
        over.set()
        thread.join()
    assert cpu_ns == sorted(cpu_ns)


def test_long_runs_keep_the_first_and_the_last_steps(recorder, tmp_path):
    for index in range(3 * MAX_ROWS):
        recorder.boundary(index, recorded=False)
    evidence = saved(recorder, tmp_path)
    assert list(evidence.steps.index) == [*range(MAX_ROWS), *range(2 * MAX_ROWS, 3 * MAX_ROWS)]
    assert sum(count for _, count in evidence.step_histogram) == 3 * MAX_ROWS - 1
    assert sum(1 for _ in evidence.steps.steps()) == 2 * MAX_ROWS - 2


def test_a_fork_has_neither_the_sampler_nor_the_collections(recorder):
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, repr((threading.active_count(), len(gc.callbacks))).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writing)
    active, callbacks = eval(os.read(reading, 64))
    os.close(reading)
    assert active == 1
    assert callbacks == len(gc.callbacks) - 1
    assert "chakrascope" in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("f(1)", "f"), ("a.f(1, 2)", "f"), ("a.b.f(g(1), str(len(x)))", "f"), ("f(x=1, y=g(2))", "f"),
        ("f(*a)", "f"), ("f(1 if a else 2)", ""), ("a + b", ""), ("f(1)(2)", ""),
    ],
)  # fmt: skip
def test_a_call_is_named_from_its_instructions(source, name):
    import dis

    code = compile(source, "script", "eval")
    for opcode in ("CALL", "PRECALL"):  # Python 3.11 calls functions of C from either
        last = [one for one in dis.get_instructions(code) if one.opname.startswith(opcode)][-1:]
        assert callee(code, last[0].offset) == name if last else opcode == "PRECALL" or not name


def test_the_jump_that_closes_a_loop_has_the_line_before_it():
    import dis

    lines = ["def count(values):", "for value in values:", "if value > 0:", "total += value"]
    source = "\n".join(f"{' ' * depth}{line}" for depth, line in enumerate(lines))
    code = next(one for one in compile(source, "script", "exec").co_consts if hasattr(one, "co_code"))
    jumps = [one.offset for one in dis.get_instructions(code) if one.opname.startswith("JUMP_")]
    assert jumps
    assert {line_of(code, jump) for jump in jumps} <= {2, 3, 4}


@pytest.mark.torch
@pytest.mark.parametrize("workers", [0, 1])
def test_a_script_s_checkpoints_and_its_loader_are_in_the_evidence(tmp_path, script, run_ranks, workers):
    path = script(CHECKPOINTS.replace("WORKERS", str(workers)), start="")
    done = run_ranks(path, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    (entry,) = TraceSet.load(tmp_path / "out").ranks
    evidence = read_evidence(tmp_path / "out" / entry.evidence)
    (loader,) = evidence.loaders
    assert (loader.dataset, loader.line, loader.workers) == ("Images.__getitem__", 7, workers)
    assert evidence.files[loader.file].path == "train.py"
    steps = evidence.steps
    spans = {index: (first, last) for index, first, last in steps.steps()}
    assert set(range(1, 20)) <= set(spans)
    first, last = spans[19]
    assert steps.fetch_ns[last] > 20 * 8 * 2_000_000
    inside = []
    for index in (5, 10, 15):  # the one that follows steps 4, 9 and 14
        first, last = spans[index]
        assert steps.time_ns[last] - steps.time_ns[first] > 150_000_000
        inside += [
            evidence.frames_of(stack)[0].place
            for at, thread, stack in zip(
                evidence.samples.time_ns, evidence.samples.thread, evidence.samples.stack, strict=True
            )
            if thread == 0 and steps.time_ns[first] <= at < steps.time_ns[last]
        ]
    assert any(place.startswith("checkpoint (train.py:11)") for place in inside)


@pytest.mark.torch
def test_without_stacks_there_are_steps_all_the_same(tmp_path, script, run_ranks):
    done = run_ranks(script("train(9)"), warmup=2, steps=2, stacks=False)
    assert done.returncode == 0, done.stderr
    (entry,) = TraceSet.load(tmp_path / "out").ranks
    evidence = read_evidence(tmp_path / "out" / entry.evidence)
    assert (len(evidence.samples), evidence.sampling["on"]) == (0, False)
    assert [index for index, _, _ in evidence.steps.steps()] == list(range(1, 9))
    recorded = [evidence.steps.recorded[last] for _, _, last in evidence.steps.steps()]
    assert recorded == [0, 1, 1, 1, 0, 0, 0, 0]


def test_idle_time_of_the_cores_grows_no_faster_than_all_of_them():
    readings = CoreReadings()
    before, start_ns = readings.idle_ns(), time.time_ns()
    time.sleep(0.05)
    idle_ns, took_ns = readings.idle_ns() - before, time.time_ns() - start_ns
    assert before > 0
    assert 0 <= idle_ns <= readings.count * (took_ns + 20_000_000)  # the kernel counts in hundredths


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000\n"}, 1.5),
        ({"cpu.max": "max 100000\n"}, math.inf),
        ({"cpu.cfs_quota_us": "400000\n", "cpu.cfs_period_us": "100000\n"}, 4),
        ({"cpu.cfs_quota_us": "-1\n", "cpu.cfs_period_us": "100000\n"}, math.inf),
        ({"cpu.max": "50000 0\n"}, math.inf),
        ({}, math.inf),
    ],
)
def test_the_quota_of_a_control_group_in_both_versions(tmp_path, files, cores):
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert quota_cores(tmp_path) == cores


# The reader of evidence, on complete, damaged and foreign files.


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
        "forward_ns", "backward_ns", "collective_ns", "optimizer_ns", "idle_ns", "compile_ns", "faults",
        "system_ns",
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
        (("stacks",), [], "stack 0 is not empty"),
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
