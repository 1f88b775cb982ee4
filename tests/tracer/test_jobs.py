"""Captures of jobs that spawn, fork, profile themselves or change the process they run in."""

import gzip
import json
import sys
import threading
import time
import types

import command_line
import pytest

from chakrascope.converter import CollectiveType, convert, doctor
from chakrascope.tracer import TraceSet, capture

from .conftest import TRAIN

pytestmark = pytest.mark.torch

SPAWN = """
def work(rank):
    import os, torch
    import torch.distributed as dist
    dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=rank, world_size=2)
    group = dist.new_group([0, 1], group_desc="pair")
    weight = torch.nn.Parameter(torch.ones(4))
    first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    for _ in range(5):
        weight.sum().backward()
        dist.all_reduce(weight.grad, group=group)
        first.step()
        second.step()

if __name__ == "__main__":
    import torch.multiprocessing
    torch.multiprocessing.spawn(work, nprocs=2)
"""

LOADS = """
class Lines(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, index):
        return sum(torch.linspace(0, 1, 8) for _ in range(9))
def load(step):
    for batch in torch.utils.data.DataLoader(Lines(), 4, num_workers=1, multiprocessing_context="fork"):
        pass
"""

OWN_PROFILER = """
from torch.profiler import profile, schedule
with profile(schedule=schedule(wait=1, warmup=2, active=2, repeat=1)) as profiler:
    train(12, lambda step: profiler.step())
print("operators", len(profiler.key_averages()) > 5)
"""


def test_spawned_ranks_with_two_optimizers_are_captured_by_step(tmp_path, script, run_ranks):
    done = run_ranks(script("", start=SPAWN), warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.partial, trace_set.world_size) == (False, 2)
    assert [[step.index for step in rank.steps] for rank in trace_set.ranks] == [[3, 4], [3, 4]]
    assert [group.description for group in trace_set.ranks[0].process_groups] == ["default_pg", "pair"]


def test_forked_worker_that_exits_early_saves_its_traces(tmp_path, script, run_ranks):
    ending = "import multiprocessing as m; worker = m.get_context('fork').Process(target=train, args=(5,))"
    path = script(
        f"{ending}; worker.start(); worker.join()", start="import os; del os.environ['RANK']" + TRAIN
    )
    done = run_ranks(path, warmup=2, steps=9)
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(tmp_path / "out")
    assert trace_set.reasons == ["rank 0 ended after 2 of 9 captured steps"]
    assert trace_set.ranks[0].device_trace is not None


def test_workers_that_start_in_a_captured_step_do_not_write_to_its_host_trace(tmp_path, script, run_ranks):
    done = run_ranks(script("train(6, load)", start=f"{TRAIN}\n{LOADS}"), warmup=2, steps=2)
    assert done.returncode == 0, done.stderr
    graph = convert(tmp_path / "out").graphs[0]
    assert "aten::linspace" not in set(graph.nodes["name"])
    assert "aten::addmm" in set(graph.nodes["name"])


def test_script_with_its_own_profiler_is_captured_after_it(tmp_path, script, run_ranks):
    done = run_ranks(script(OWN_PROFILER), warmup=1, steps=2)
    assert done.returncode == 0, done.stderr
    assert "operators True" in done.stdout
    assert TraceSet.load(tmp_path / "out").ranks[0].complete


def test_no_standard_error_no_environment_another_folder_and_a_sitecustomize_are_no_obstacle(
    tmp_path, script, run_trace, monkeypatch
):
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('own sitecustomize')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    start = "import os; os.environ.clear(); os.chdir('/')\n" + TRAIN
    ending = "train(6); print(sys.stdin.read(), 'hidden', not [p for p in sys.path if '_inject' in p])"
    path = script(ending, start=start)
    done = run_trace("sh", "-c", f"echo typed | {sys.executable} {path} 2>&-", warmup=2, steps=2)
    assert done.returncode == 0
    assert done.stdout.endswith("own sitecustomize\ntyped\n hidden True\n")
    convert(tmp_path / "out")  # torch's output on standard error is not in the files


# Captures that begin with the first step or with the script, and scripts with few steps or none.


TWO_OPTIMIZERS = """
other = torch.nn.Linear(8, 1)
second = torch.optim.Adam(other.parameters())
for step in range(7):
    train(1)
    other(torch.ones(4, 8)).sum().backward()
    second.step()
"""
ONE_CALL = """
import torch
model = torch.nn.Linear(8, 8)
with torch.no_grad():
    print(tuple(model(torch.ones(2, 8)).shape))
"""
NO_MODEL = """
import torch
values = torch.arange(4096.0).reshape(64, 64)
for _ in range(9):
    values = values @ values / values.norm()
print(tuple(values.shape))
"""
WITH_LOADER = """
import time
from torch.utils.data import DataLoader
torch.manual_seed(0)
for step, batch in enumerate(DataLoader(torch.ones(12, 8), 4)):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
"""


def captured(folder, done):
    assert done.returncode == 0, done.stderr
    (entry,) = TraceSet.load(folder / "out").ranks
    structure = entry.structure_step and entry.structure_step.index
    return entry.trigger, structure, [step.index for step in entry.steps]


@pytest.mark.parametrize(
    ("warmup", "trained", "steps"),
    [(0, 5, (0, [1, 2])), (1, 5, (1, [2, 3])), (0, 2, (0, [1])), (0, 1, (None, [0])), (1, 2, (None, [1]))],
)
def test_requested_number_of_steps_is_captured(tmp_path, script, run_ranks, *, warmup, trained, steps):
    done = run_ranks(script(f"train({trained})"), warmup=warmup, steps=2)
    assert captured(tmp_path, done) == ("optimizer", *steps)
    assert convert(tmp_path / "out").metadata["steps"]


def test_the_only_step_is_all_that_was_wanted(tmp_path, script, run_ranks):
    captured(tmp_path, run_ranks(script("train(1)"), warmup=0, steps=1))
    assert not TraceSet.load(tmp_path / "out").partial


def test_too_short_script_gets_a_next_step(script, run_ranks):
    done = run_ranks(script("train(1)"), warmup=1)
    assert done.returncode == 11
    assert "0 captures from the first step" in done.stderr


@pytest.mark.parametrize("warmup", [0, 1])
def test_steps_of_several_optimizers_are_captured_once_they_are_known(tmp_path, script, run_ranks, warmup):
    done = run_ranks(script(TWO_OPTIMIZERS), warmup=warmup, steps=2)
    assert captured(tmp_path, done) == ("optimizer", 2, [3, 4])
    (note,) = TraceSet.load(tmp_path / "out").notes
    assert "several optimizers" in note


def test_the_first_step_begins_with_its_batch(tmp_path, script, run_ranks):
    done = run_ranks(script(WITH_LOADER), warmup=0, steps=2)
    assert captured(tmp_path, done) == ("optimizer", 0, [1, 2])


def test_a_model_that_is_called_once_is_captured(tmp_path, script, run_ranks):
    done = run_ranks(script(ONE_CALL, start=""), warmup=0)
    assert captured(tmp_path, done) == ("script", None, [0])
    assert done.stdout == "(2, 8)\n"
    trace_set = TraceSet.load(tmp_path / "out")
    assert (trace_set.partial, len(trace_set.notes)) == (False, 1)


def test_a_script_without_a_model_is_captured_whole(tmp_path, script, run_trace):
    done = run_trace(sys.executable, script(NO_MODEL, start=""), warmup=0)
    assert captured(tmp_path, done) == ("script", None, [0])
    assert "the whole run" in TraceSet.load(tmp_path / "out").notes[0]
    (graph,) = convert(tmp_path / "out").graphs
    assert graph.num_nodes > 3 * 9


def test_a_capture_from_inside_begins_where_it_is_opened(tmp_path):
    import torch

    with capture(tmp_path / "out", warmup=0, steps=1) as capturing:
        for _ in range(2):
            torch.ones(8, 8) @ torch.ones(8, 8)
            capturing.step()
    (entry,) = TraceSet.load(tmp_path / "out").ranks
    assert (entry.structure_step.index, [step.index for step in entry.steps]) == (0, [1])


# Modules are marked in the trace, and so are calls of models that are not trained.


def test_a_call_without_gradients_is_marked_with_its_place_in_the_script():
    import torch

    from chakrascope.tracer._agent.modules import ModuleRanges

    model, ranges = torch.nn.Sequential(torch.nn.Linear(4, 4)), ModuleRanges()

    def track(x):
        with torch.no_grad():
            return model(x)

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        assert ranges.enable()
        model(torch.ones(2, 4))
        track(torch.ones(2, 4))
        ranges.disable()
    names = [event.name for event in profiler.events() if event.name.startswith("chakrascope::")]
    (call,) = (name for name in names if name.startswith("chakrascope::call "))
    line = track.__code__.co_firstlineno + 2
    assert "track (" in call
    assert call.endswith(f"test_jobs.py:{line})")
    assert names.count("chakrascope::module 0") == 2


def test_a_function_that_differentiates_is_marked_with_its_calls():
    import torch

    from chakrascope.tracer._agent.modules import ModuleRanges, mark_gradients

    model, ranges = torch.nn.Linear(4, 4), ModuleRanges()

    def penalty(x):
        y = model(x).sum()
        (gradient,) = torch.autograd.grad(y, x, create_graph=True)
        return gradient.norm()

    unmarked = torch.autograd.grad
    mark_gradients(torch)
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            penalty(torch.ones(2, 4, requires_grad=True))
            assert ranges.enable()
            model(torch.ones(2, 4))
            penalty(torch.ones(2, 4, requires_grad=True))
            ranges.disable()
            penalty(torch.ones(2, 4, requires_grad=True))
    finally:
        torch.autograd.grad = unmarked
    calls = [event.name for event in profiler.events() if event.name.startswith("chakrascope::call ")]
    line = penalty.__code__.co_firstlineno
    assert [name.rpartition(":")[2] for name in calls] == [f"{line + 1})", f"{line + 2})"]
    assert all("penalty (" in name for name in calls)


# A script that profiles itself keeps its complete profile, and the capture contains the same one.


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


def captured_profile(tmp_path, done):
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
    told = f"the script profiles itself: its own profile of {which} is used"
    return f"{told}, which does not assign operators to modules"


def test_profile_of_the_whole_run_is_used_and_kept(tmp_path, script, run_ranks, capsys):
    done = run_ranks(script(WHOLE_RUN), ranks=2, warmup=3, steps=2)
    trace_set = captured_profile(tmp_path, done)
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


def test_steps_follow_the_scripts_profiler(tmp_path, script, run_ranks):
    trace_set = captured_profile(tmp_path, run_ranks(script(SCHEDULED), ranks=2, warmup=2, steps=3))
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
    trace_set = captured_profile(tmp_path, run_ranks(script(ACCUMULATING), warmup=3, steps=2))
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
def test_unstopped_or_unusual_profile_is_used(tmp_path, script, run_ranks, ending):
    trace_set = captured_profile(tmp_path, run_ranks(script(ending), warmup=2, steps=2))
    assert (steps(trace_set), trace_set.notes) == ([[2, 3, 4]], [taken("steps 2-4")])
    assert (tmp_path / "own.json").exists() == (ending is AUTOGRAD)


def test_what_the_script_exports_after_the_capture_has_is_the_same(tmp_path, script, run_ranks):
    done = run_ranks(script(EXPORTED_LATE), warmup=2, steps=2)
    trace_set = captured_profile(tmp_path, done)
    assert steps(trace_set) == [[2, 3, 4]]
    assert device_traces(trace_set) == [(tmp_path / "own.json").read_bytes()]


def test_a_capture_of_our_own_that_follows_is_preferred(tmp_path, script, run_ranks):
    trace_set = captured_profile(tmp_path, run_ranks(script(BEFORE_OURS), warmup=2, steps=2))
    assert (steps(trace_set), trace_set.notes) == ([[8, 9, 10]], [])
    assert set(convert(trace_set.path).graphs[0].nodes["module"]) >= {"0", "2"}
    assert json.loads((tmp_path / "own.json").read_bytes())["traceEvents"]
    assert not [*(tmp_path / "out").glob(".rank*")]


def test_script_with_its_own_execution_trace_gets_a_next_step(tmp_path, script, run_ranks):
    done = run_ranks(script(OBSERVED), warmup=2, steps=1)
    assert "the script records an execution trace of its own" in done.stderr
    assert "`chakrascope convert STUDY --device-trace FOLDER`" in done.stderr
    assert json.loads((tmp_path / "own.et.json").read_bytes())["nodes"]


@pytest.mark.parametrize("is_on", [False, True])
def test_stacks_of_anomaly_detection_are_marked(is_on):
    import torch

    from chakrascope.tracer._agent.modules import mark_anomaly_detection

    module = types.SimpleNamespace(format_stack=torch.fx.traceback.format_stack)
    mark_anomaly_detection(module)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(1)
        with torch.autograd.set_detect_anomaly(is_on):
            stack = module.format_stack()
    names = [event.name for event in profiler.events()]
    assert names.count("chakrascope::anomaly detection") == is_on
    assert "module.format_stack()" in stack[-1]


def test_collectives_of_objects_are_marked():
    import torch

    from chakrascope.tracer._agent.modules import mark_object_collectives

    def all_gather_object(gathered, item, group=None):
        gathered[:] = [torch.zeros(item), group]

    module = types.SimpleNamespace(all_gather_object=all_gather_object)
    mark_object_collectives(module)
    gathered = []
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        module.all_gather_object(gathered, 4, group="all")
    times = {event.name: event.time_range for event in profiler.events()}
    objects, zeros = times["chakrascope::objects"], times["aten::zeros"]
    assert objects.start <= zeros.start <= zeros.end <= objects.end
    assert gathered[1] == "all"


def test_what_a_sampler_draws_is_marked():
    import torch

    from chakrascope.tracer._agent.loaders import LoaderWatch

    class Batches:
        fetch = __iter__ = None

        def _next_index(self):
            return torch.randperm(4)

        def __next__(self):
            return self._next_index()

    fetch = types.SimpleNamespace(_IterableDatasetFetcher=Batches, _MapDatasetFetcher=Batches)
    utilities = types.SimpleNamespace(fetch=fetch)
    module = types.SimpleNamespace(_BaseDataLoaderIter=Batches, DataLoader=Batches, _utils=utilities)
    LoaderWatch().install(module, lambda: None)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        next(Batches.__new__(Batches))
    ranges = [one.time_range for one in profiler.events() if one.name == "chakrascope::sampler"]
    drawn = [one.time_range for one in profiler.events() if one.name == "aten::randperm"]
    assert len(ranges) == 1
    assert drawn
    assert all(ranges[0].start <= one.start <= one.end <= ranges[0].end for one in drawn)


@pytest.mark.parametrize("is_reentrant", [False, True])
def test_what_checkpointing_computes_a_second_time_is_marked(monkeypatch, is_reentrant):
    """The range contains the repeated forward pass, but not the backward pass, reentrant or not."""
    import torch
    from torch.utils import checkpoint as module

    from chakrascope.tracer._agent.modules import mark_recomputation

    hook, function = module._recomputation_hook, module.CheckpointFunction
    for owner, name in ((hook, "__enter__"), (hook, "__exit__"), (function, "forward")):
        monkeypatch.setattr(owner, name, vars(owner).get(name, getattr(owner, name)))  # restored at the end
    mark_recomputation(module)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        x = torch.ones(4, requires_grad=True)
        y = module.checkpoint(lambda x: x.exp().sin().cos().sin(), x, use_reentrant=is_reentrant)
        y.sum().backward()
    times = [(one.name, one.time_range) for one in profiler.events()]
    (span,) = (time for name, time in times if name == "chakrascope::recomputation")
    inside = [name for name, time in times if span.start <= time.start <= time.end <= span.end]
    assert sum(map(inside.count, ("aten::exp", "aten::sin", "aten::cos"))) == 4
    assert not any("Backward" in name for name in inside)


@pytest.mark.parametrize(
    ("workers", "persistent", "methods"),
    [
        (0, False, ["__iter__", "__iter__"]),
        (1, False, ["__init__", "__init__"]),
        (1, True, ["__init__", "__iter__"]),
    ],
)
def test_the_start_of_an_epoch_is_marked_as_a_part_of_its_loader(workers, persistent, methods):
    import torch
    from torch.utils.data import dataloader

    from chakrascope.tracer._agent.loaders import LoaderWatch
    from chakrascope.tracer._agent.phases import PHASES

    classes = [dataloader.DataLoader, dataloader._BaseDataLoaderIter]
    classes += [dataloader._utils.fetch._IterableDatasetFetcher, dataloader._utils.fetch._MapDatasetFetcher]
    originals = [(owner, dict(vars(owner))) for owner in classes]
    PHASES.thread, before = threading.get_ident(), PHASES.end_step(time.time_ns())[0]
    try:
        LoaderWatch().install(dataloader, lambda: None)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            loader = dataloader.DataLoader([1, 2], num_workers=workers, persistent_workers=persistent)
            iterators = [iter(loader), iter(loader)]
        assert PHASES.end_step(time.time_ns())[0] > before
        assert len([*iterators[-1]]) == 2
    finally:
        PHASES.thread = None
        for owner, members in originals:
            for name in ("__init__", "__iter__", "__next__", "fetch"):
                if name in members:
                    setattr(owner, name, members[name])
    kind = "MultiProcessing" if workers else "SingleProcess"
    prefix = f"enumerate(DataLoader)#_{kind}DataLoaderIter."
    names = [event.name for event in profiler.events() if event.name.startswith(prefix)]
    assert [name.removeprefix(prefix) for name in names if "__next__" not in name] == methods
