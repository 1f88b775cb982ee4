"""A script that profiles itself keeps its profile whole, and the capture takes the same one."""

import gzip
import json
import sys

import command_line
import pytest

from chakrascope.converter import CollectiveType, convert, doctor
from chakrascope.tracer import TraceSet

pytestmark = pytest.mark.torch

WHOLE_RUN = """
from torch.profiler import profile
with profile() as profiler:
    train(12)
profiler.export_chrome_trace(f"own{rank}.json")
print(f"operators {len(profiler.key_averages()) > 5}\\n", end="")  # ranks share the pipe
"""
SCHEDULED = """
from torch.profiler import profile, schedule, tensorboard_trace_handler
plan = schedule(wait=1, warmup=1, active=4)
with profile(schedule=plan, on_trace_ready=tensorboard_trace_handler("own", f"rank{rank}"),
             record_shapes=True, with_stack=True) as profiler:
    for _ in range(13):
        train(1)
        profiler.step()
"""
ACCUMULATING = """
from torch.profiler import profile, schedule
with profile(schedule=schedule(wait=2, warmup=2, active=12)) as profiler:
    for batch in range(24):
        model(torch.ones(4, 8)).sum().backward()
        if batch % 2:
            optimizer.step()
            optimizer.zero_grad()
        profiler.step()
"""
NEVER_STOPPED = """
from torch.profiler import profile
profiler = profile()
profiler.start()
train(8)
"""
AUTOGRAD = """
with torch.autograd.profiler.profile() as profiler:
    train(8)
profiler.export_chrome_trace("own.json")
"""
EXPORTED_LATE = """
import atexit
from torch.profiler import profile
profilers = []
atexit.register(lambda: profilers[0].export_chrome_trace("own.json"))
for _ in range(2):
    with profile() as profiler:
        train(6)
    profilers.append(profiler)
"""
BEFORE_OURS = """
from torch.profiler import profile
with profile() as profiler:
    train(6)
train(6)
profiler.export_chrome_trace("own.json")
"""
OBSERVED = """
from torch.profiler import ExecutionTraceObserver, profile
with profile(execution_trace_observer=ExecutionTraceObserver().register_callback("own.et.json")):
    train(6)
"""


def captured(tmp_path, done):
    assert done.returncode == 0, done.stderr
    return TraceSet.load(tmp_path / "out")


def steps(trace_set):
    """Return the numbers of the detailed step and of the timed ones, by rank."""
    return [
        [entry.structure_step and entry.structure_step.index, *(step.index for step in entry.steps)]
        for entry in trace_set.ranks
    ]


def device_traces(trace_set):
    return [gzip.decompress((trace_set.path / entry.device_trace).read_bytes()) for entry in trace_set.ranks]


def taken(which):
    told = f"the script profiles itself: its own profile of {which} was taken"
    return f"{told}, in which operators name no modules"


def test_a_profile_of_the_whole_run_is_taken_and_stays_the_script_s(tmp_path, script, run_ranks, capsys):
    done = run_ranks(script(WHOLE_RUN), ranks=2, warmup=3, steps=2)
    trace_set = captured(tmp_path, done)
    assert done.stdout.count("operators True") == 2
    assert (trace_set.partial, trace_set.notes) == (False, [taken("steps 3-5")])
    assert steps(trace_set) == [[3, 4, 5]] * 2
    assert device_traces(trace_set) == [(tmp_path / f"own{rank}.json").read_bytes() for rank in range(2)]
    workload = convert(trace_set.path)
    assert taken("steps 3-5") in workload.metadata["assumptions"]
    assert [(graph.nodes["comm_type"] == CollectiveType.ALL_REDUCE).sum() for graph in workload.graphs] == [
        1,
        1,
    ]
    assert not [finding for finding in doctor(trace_set.path) if finding.severity == "error"]
    study = str(tmp_path / "study")
    for words in (
        ["trace", "-o", study, "--collect", str(trace_set.path)],
        ["convert", study],
        ["run", study, "--network", "ring-2"],
        ["critical-path", study],
    ):
        assert command_line.run(*words) == 0
    assert "Critical path by kind" in capsys.readouterr().out


def test_steps_are_those_the_script_tells_its_profiler(tmp_path, script, run_ranks):
    trace_set = captured(tmp_path, run_ranks(script(SCHEDULED), ranks=2, warmup=2, steps=3))
    assert trace_set.notes == [taken("steps 2-5")]
    assert steps(trace_set) == [[2, 3, 4, 5]] * 2
    assert len([*(tmp_path / "own").iterdir()]) == 4  # two cycles of two ranks
    for rank, ours in enumerate(device_traces(trace_set)):
        first = min((tmp_path / "own").glob(f"rank{rank}.*"), key=lambda path: path.name)
        assert ours == first.read_bytes()
        marks = [event for event in json.loads(ours)["traceEvents"] if event["name"] == "ProfilerStep#3"]
        assert len(marks) == 1
    convert(trace_set.path)


def test_where_the_script_marks_parts_of_steps_the_capture_s_own_count_holds(tmp_path, script, run_ranks):
    trace_set = captured(tmp_path, run_ranks(script(ACCUMULATING), warmup=3, steps=2))
    assert steps(trace_set) == [[3, 4, 5]]
    convert(trace_set.path)
    trace = json.loads(device_traces(trace_set)[0])
    first = trace_set.ranks[0].structure_step
    starts = [
        trace["baseTimeNanoseconds"] + event["ts"] * 1000
        for event in trace["traceEvents"]
        if event["name"] == "aten::addmm"
    ]
    assert sum(first.start_ns <= start < first.end_ns for start in starts) == 4  # two layers, two batches


@pytest.mark.parametrize("ending", [NEVER_STOPPED, AUTOGRAD])
def test_a_profile_that_is_never_stopped_or_of_another_kind_is_taken(tmp_path, script, run_ranks, ending):
    trace_set = captured(tmp_path, run_ranks(script(ending), warmup=2, steps=2))
    assert (steps(trace_set), trace_set.notes) == ([[2, 3, 4]], [taken("steps 2-4")])
    assert (tmp_path / "own.json").exists() == (ending is AUTOGRAD)


def test_what_the_script_exports_after_the_capture_has_is_the_same(tmp_path, script, run_trace):
    done = run_trace(sys.executable, script(EXPORTED_LATE), warmup=2, steps=2)
    trace_set = captured(tmp_path, done)
    assert steps(trace_set) == [[2, 3, 4]]
    assert device_traces(trace_set) == [(tmp_path / "own.json").read_bytes()]


def test_a_capture_of_our_own_that_follows_is_preferred(tmp_path, script, run_ranks):
    trace_set = captured(tmp_path, run_ranks(script(BEFORE_OURS), warmup=2, steps=2))
    assert (steps(trace_set), trace_set.notes) == ([[8, 9, 10]], [])
    assert set(convert(trace_set.path).graphs[0].nodes["module"]) >= {"0", "2"}
    assert json.loads((tmp_path / "own.json").read_bytes())["traceEvents"]
    assert not [*(tmp_path / "out").glob(".rank*")]


def test_a_script_that_records_an_execution_trace_itself_is_told_to_convert_its_own(
    tmp_path, script, run_ranks
):
    done = run_ranks(script(OBSERVED), warmup=2, steps=1)
    assert "the script records an execution trace of its own" in done.stderr
    assert "`chakrascope convert STUDY --device-trace FOLDER`" in done.stderr
    assert json.loads((tmp_path / "own.et.json").read_bytes())["nodes"]
