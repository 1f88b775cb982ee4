"""Detection of steps: optimizers, several of them, or calls of the outermost module; timed steps."""

import gzip
import json
import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.converter import convert
from chakrascope.converter.building import profiler_overhead
from chakrascope.converter.building._steps import typical_steps
from chakrascope.tracer import StepRange, TraceSet, read_evidence

pytestmark = pytest.mark.torch


DATA_WORKERS = """
import torch
from torch.utils.data import DataLoader, Dataset
class Embedded(Dataset):
    encoder = torch.nn.Linear(4, 8)
    def __len__(self):
        return 64
    def __getitem__(self, index):
        with torch.no_grad():
            return self.encoder(torch.ones(4))
batches = list(DataLoader(Embedded(), 8, num_workers=1, multiprocessing_context="fork"))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for batch in batches:
    model(batch).sum().backward()
    optimizer.step()
"""

HELPER = """
import multiprocessing, torch
model = torch.nn.Linear(8, 1)
def play(ready, go):
    with torch.no_grad():
        for step in range(9):
            model(torch.ones(4, 8))
            if step == 5:
                ready.set()
                go.wait()
fork = multiprocessing.get_context("fork")
ready, go = fork.Event(), fork.Event()
helper = fork.Process(target=play, args=(ready, go))
helper.start()
ready.wait()  # it has been recorded as rank 0
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    model(torch.ones(4, 8)).sum().backward()
    optimizer.step()
go.set()
helper.join()
"""
SLEPT_NS = 50_000_000
SLEEPS = """
import time
train(12, lambda step: time.sleep(0.05))
"""
PROFILED_AT_FIRST = """
from torch.profiler import profile
with profile():
    train(4)
train(6)
"""


def step_lengths(folder, done):
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(folder / "out")
    assert not trace_set.partial
    (rank,) = trace_set.ranks
    return rank.trigger, [step.index for step in rank.steps]


@pytest.mark.parametrize("arguments", [[], ["--compile"]])
def test_inference_is_captured_by_calls_of_the_outermost_module(tmp_path, run_ranks, arguments):
    done = run_ranks("inference.py", *arguments, warmup=3, steps=2)
    assert step_lengths(tmp_path, done) == ("forward", [4, 5])
    assert done.stdout == "classified 2\n"


def test_a_model_can_be_saved_copied_traced_and_exported_while_it_is_captured(tmp_path, run_ranks):
    done = run_ranks("inference_server.py", warmup=3, steps=2)
    assert step_lengths(tmp_path, done) == ("forward", [4, 5])
    assert done.stdout == "served\n"
    assert "ERROR" not in done.stderr


def test_a_handwritten_update_is_captured_with_its_backward_pass(tmp_path, run_ranks):
    assert step_lengths(tmp_path, run_ranks("handwritten_update.py", steps=2)) == ("forward", [4, 5])


def test_an_optimizer_made_later_counts_instead_of_forward_calls(tmp_path, run_ranks):
    trigger, steps = step_lengths(tmp_path, run_ranks("warm_start.py", warmup=2, steps=2))
    assert trigger == "optimizer"
    assert len(steps) == 2


def test_networks_trained_in_turns_make_one_step_a_round(tmp_path, run_ranks):
    step_lengths(tmp_path, run_ranks("gan.py", warmup=2, steps=2))
    trace = json.loads(gzip.decompress((tmp_path / "out" / "rank0.device.json.gz").read_bytes()))
    events = sorted((event for event in trace["traceEvents"] if "ts" in event), key=lambda event: event["ts"])
    steps = [event["name"].removeprefix("Optimizer.step#") for event in events]
    steps = [name for name in steps if name.endswith(".step")]
    assert steps == ["RMSprop.step", "RMSprop.step", "Adam.step"] * 3


def test_data_workers_that_run_a_model_are_not_taken_for_the_trainer(tmp_path, script, run_ranks):
    assert step_lengths(tmp_path, run_ranks(script(DATA_WORKERS, start=""), steps=2)) == ("optimizer", [4, 5])


def test_a_helper_that_runs_a_model_is_not_taken_for_the_trainer(tmp_path, script, run_ranks):
    done = run_ranks(script(HELPER, start=""), warmup=2, steps=2)
    assert step_lengths(tmp_path, done) == ("optimizer", [3, 4])
    assert TraceSet.load(tmp_path / "out").notes == []


def test_a_script_that_clears_its_environment_is_captured_all_the_same(tmp_path, script, run_ranks):
    done = run_ranks(script("train(3); os.environ.clear(); train(4)"), warmup=2, steps=2)
    assert step_lengths(tmp_path, done) == ("optimizer", [3, 4])


def test_a_second_run_of_the_script_leaves_the_first_one_s_traces(tmp_path, script, run_trace, rank_command):
    words = shlex.join(map(str, rank_command(script("train(5)"))))
    done = run_trace("sh", "-c", f"{words} && {words}", warmup=2, steps=2)
    step_lengths(tmp_path, done)
    notes = TraceSet.load(tmp_path / "out").notes
    assert notes == ["rank 0 was captured in the first of several processes"]


def test_step_with_logging_is_not_converted(tmp_path, script, run_ranks):
    logging = "train(9, lambda step: step == 4 and (dist.all_reduce(torch.ones(1)), time.sleep(1)))"
    done = run_ranks(script("import time; " + logging), ranks=2, warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    assert convert(tmp_path / "out").metadata["steps"] == [3]


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9))
def test_the_steps_most_like_the_median_come_first(lengths):
    steps = [StepRange(number, 0, length) for number, length in enumerate(lengths)]
    order = [lengths[number] for number in typical_steps([steps])]
    assert sorted(order) == sorted(lengths)
    assert order[0] == sorted(lengths)[(len(lengths) - 1) // 2]
    assert order[-1] in (min(lengths), max(lengths))


def test_each_rank_times_the_steps_around_the_capture(tmp_path, script, run_ranks):
    done = run_ranks(script(SLEEPS), ranks=2, warmup=4, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    for entry in trace_set.ranks:
        assert [step.index for step in entry.unprofiled_steps] == [1, 2, 3, 7, 8, 9, 10, 11]
        assert all(step.end_ns - step.start_ns > 0.9 * SLEPT_NS for step in entry.unprofiled_steps)
        assert entry.unprofiled_steps[2].end_ns <= entry.structure_step.start_ns
        assert entry.unprofiled_steps[3].start_ns >= entry.steps[-1].end_ns
        # The agent reads counters before a captured step begins.
        readings = read_evidence(trace_set.path / entry.evidence).steps
        for step in (entry.structure_step, *entry.steps):
            read_ns = [
                ns for ns, one in zip(readings.time_ns, readings.index, strict=True) if one == step.index
            ]
            assert max(read_ns) <= step.start_ns < step.end_ns
    # A job that sleeps takes as long with a profiler, give or take.
    overhead = profiler_overhead(convert(tmp_path / "out").metadata)
    assert overhead.unprofiled_ns > 0.9 * SLEPT_NS
    assert overhead.captured_ns > 0.9 * SLEPT_NS


def test_no_more_than_the_nearest_sixteen_of_each_side_are_kept(tmp_path, script, run_ranks):
    run_ranks(script("train(50)"), warmup=20, steps=1)
    (entry,) = TraceSet.load(tmp_path / "out").ranks
    assert [step.index for step in entry.unprofiled_steps] == [*range(4, 20), *range(22, 38)]


def test_steps_in_a_profiler_of_the_script_s_own_do_not_count(tmp_path, script, run_ranks):
    done = run_ranks(script(PROFILED_AT_FIRST), warmup=2, steps=1)
    assert done.returncode == 0, done.stderr
    (entry,) = TraceSet.load(tmp_path / "out").ranks
    assert not [step for step in entry.unprofiled_steps if step.index < 4]
