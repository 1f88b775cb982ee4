"""What the agent observes beside the traces: each step of the run, stacks, loaders, collections."""

import gc
import os
import threading
import time
from collections import Counter

import pytest
from processes import wait_for

from chakrascope.tracer import TraceSet, read_evidence
from chakrascope.tracer._agent.evidence import EvidenceRecorder
from chakrascope.tracer._agent.sources import callee, line_of
from chakrascope.tracer._agent.step_clock import MOST_ROWS

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


@pytest.fixture
def recorder():
    """Return a recorder that has started in this thread, with stacks."""
    recorder = EvidenceRecorder(stacks=True)
    recorder.start()
    yield recorder
    recorder.stop()


def saved(recorder, folder):
    return read_evidence(folder / recorder.save(folder, 0, 7))


def called_at_the_end(evidence, since_ns):
    """Return the innermost frames of the thread that steps, most frequent first."""
    rows = zip(*evidence.samples.columns.values(), strict=True)
    stacks = Counter(row[3] for row in rows if row[2] == 0 and row[0] >= since_ns)
    return [evidence.frames_of(stack)[0] for stack, _ in stacks.most_common()]


def test_what_is_written_is_what_is_read(recorder, tmp_path):
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
    assert [step["index"] for step in recorder.unprofiled_steps(8)] == [0, 2]
    for _, first, last in evidence.steps.steps():
        lasted_ns = evidence.steps.time_ns[last] - evidence.steps.time_ns[first]
        assert lasted_ns >= 10_000_000
        assert 0 <= evidence.steps.cpu_ns[last] - evidence.steps.cpu_ns[first] <= lasted_ns
    assert max(evidence.collections.generation) == 2


def test_a_thread_that_sleeps_is_seen_where_it_sleeps(recorder, tmp_path):
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
            sum(numbers)  # in C, some 10 ms, without letting go of the lock
        evidence = saved(recorder, tmp_path)
        calls = {frame.call for frame in called_at_the_end(evidence, began)}
    assert "sum" in calls
    assert max(evidence.samples.late_ns) > 4_000_000


def test_another_thread_that_works_has_its_own_rows(recorder, tmp_path):
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
    for index in range(3 * MOST_ROWS):
        recorder.boundary(index, recorded=False)
    evidence = saved(recorder, tmp_path)
    assert list(evidence.steps.index) == [*range(MOST_ROWS), *range(2 * MOST_ROWS, 3 * MOST_ROWS)]
    assert sum(count for _, count in evidence.step_histogram) == 3 * MOST_ROWS - 1
    assert sum(1 for _ in evidence.steps.steps()) == 2 * MOST_ROWS - 2


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
