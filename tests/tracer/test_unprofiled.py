"""Steps that no profiler records are timed, and only those count as unprofiled."""

import pytest

from chakrascope.converter import convert
from chakrascope.converter.building import profiler_overhead
from chakrascope.tracer import TraceSet

pytestmark = pytest.mark.torch

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


def test_each_rank_times_the_steps_around_the_capture(tmp_path, script, run_ranks):
    done = run_ranks(script(SLEEPS), ranks=2, warmup=4, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    for entry in trace_set.ranks:
        assert [step.index for step in entry.unprofiled_steps] == [1, 2, 3, 7, 8, 9, 10, 11]
        assert all(step.end_ns - step.start_ns > 0.9 * SLEPT_NS for step in entry.unprofiled_steps)
        assert entry.unprofiled_steps[2].end_ns <= entry.structure_step.start_ns
        assert entry.unprofiled_steps[3].start_ns >= entry.steps[-1].end_ns
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
