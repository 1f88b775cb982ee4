"""Host time has a cause and a place, from the profiler's marks and from the tracer's evidence."""

import gzip
import json

import pytest
from evidence_file import EvidenceFile
from gloo_thread import ALL_REDUCE, Thread, write_trace_set
from kineto_trace import KinetoTrace

from chakrascope.converter import convert, convert_files

START, END = 1_000, 101_000  # microseconds
STEP = ("train", "train.py", 40, "script")


def converted(folder, thread, evidence=None):
    """Return the graph of the step from `START` to `END` of *thread*."""
    entry = thread.write(folder, [(START, END)]) | {"process_groups": []}
    if evidence is not None:
        evidence.write(folder / "rank0.evidence.json.gz")
        entry["evidence"] = "rank0.evidence.json.gz"
    write_trace_set(folder, [entry])
    return convert(folder, step=0).graphs[0]


def host_us(graph):
    """Return the microseconds of host time by cause."""
    nodes = graph.nodes[graph.nodes["kind"] == "host"]
    return (nodes.groupby("cause")["duration_ns"].sum() // 1000).to_dict()


def places(graph, cause):
    nodes = graph.nodes[graph.nodes["cause"] == cause]
    return set(nodes["place"])


def training_thread():
    """Return a thread that computes for 10 ms, does something else for 80 ms, and computes for 10 ms."""
    thread = Thread(0)
    thread.op("aten::mm", START, START + 10_000, 1)
    thread.op("aten::add_", END - 10_000, END, 2)
    return thread


@pytest.mark.parametrize(
    ("name", "cause"),
    [
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "input_pipeline"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "worker_wait"),
        ("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__iter__", "worker_wait"),  # may be a reset
        ("Optimizer.step#SGD.step", "optimizer"),
        ("save_checkpoint", "checkpoint"),
        ("[pl][profile]run_training_batch", "python"),
        ("validation", "validation"),
        ("something of the user's", "python"),
    ],
)
def test_annotations_name_the_cause_of_a_gap(tmp_path, name, cause):
    thread = training_thread()
    thread.mark(name, 15_000, 85_000)
    times = host_us(converted(tmp_path, thread))
    assert times[cause] >= 70_000
    assert sum(times.values()) == 80_000


def test_operators_inside_a_data_loader_are_part_of_it(tmp_path):
    thread = training_thread()
    thread.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12_000, 82_000)
    thread.op("aten::stack", 30_000, 60_000, 3)
    graph = converted(tmp_path, thread)
    assert host_us(graph)["input_pipeline"] == 70_000
    computed = graph.nodes[graph.nodes["kind"] == "compute"]
    assert set(computed["name"]) == {"aten::mm", "aten::add_"}


@pytest.mark.parametrize("is_sampled", [False, True])
def test_a_sampler_is_its_part_of_the_data_loader(tmp_path, is_sampled):
    """Even if the thread had no CPU for half of the time."""
    thread, evidence = training_thread(), EvidenceFile()
    thread.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 12_000, 82_000)
    thread.mark("chakrascope::sampler", 15_000, 55_000, "cpu_op")
    thread.op("aten::randperm", 20_000, 50_000, 3)
    for time in range(START, 90_000, 5_000):
        frames = (DRAWING, NEXT, STEP) if 15_000 <= time < 55_000 else (STEP,)
        evidence.sample(time, *frames, cpu=time // 2, delay=time // 2)
    times = host_us(converted(tmp_path, thread, evidence if is_sampled else None))
    assert (times["sampler"], times["input_pipeline"]) == (40_000, 30_000)


def test_python_at_a_graph_break_is_no_operator(tmp_path):
    thread = training_thread()
    thread.op("Torch-Compiled Region: 0/0", 12_000, 82_000, 3)
    thread.op("aten::tanh", 20_000, 30_000, 4)
    graph = converted(tmp_path, thread)
    assert host_us(graph)["python"] >= 60_000
    assert "aten::tanh" in set(graph.nodes["name"][graph.nodes["kind"] == "compute"])


def test_a_collective_of_objects_owns_its_operators(tmp_path):
    thread = training_thread()
    thread.mark("chakrascope::objects", 12_000, 82_000, "cpu_op")
    thread.op("aten::resize_", 20_000, 50_000, 3)
    assert host_us(converted(tmp_path, thread))["object_collective"] == 70_000


def test_traced_operators_count_as_compilation(tmp_path):
    thread = training_thread()
    thread.mark("dynamo", 12_000, 82_000, "cpu_op")
    thread.mark("entire_frame_compile", 13_000, 81_000, "cpu_op")
    thread.op("PythonDispatchMode", 20_000, 50_000, 3)
    thread.op("aten::empty", 30_000, 31_000, 3)
    assert host_us(converted(tmp_path, thread))["compilation"] == 70_000


def test_repeated_forward_pass_counts_as_recomputation(tmp_path):
    thread = Thread(0)
    thread.op("autograd::engine::evaluate_function: TanhBackward0", START, END, 3)
    thread.mark("chakrascope::recomputation", START + 11_000, START + 39_000, "cpu_op")
    thread.op("aten::tanh", START + 11_000, START + 39_000, 3)
    thread.op("aten::tanh_backward", START + 50_000, START + 60_000, 3)
    graph = converted(tmp_path, thread)
    assert host_us(graph)["recomputation"] == 28_000
    assert graph.nodes.loc[graph.nodes["name"] == "aten::tanh_backward", "kind"].tolist() == ["compute"]


@pytest.mark.parametrize("is_sampled", [False, True])
def test_a_stack_of_anomaly_detection_is_not_its_operators(tmp_path, is_sampled):
    """Nor if they are short, and a sample between them shows anomaly detection."""
    thread = Thread(0)
    thread.op("aten::tanh", START, END - 30, 1)
    thread.mark("chakrascope::anomaly detection", START + 5_000, START + 25_000, "cpu_op")
    thread.op("aten::tanh", END - 30, END, 1)
    thread.mark("chakrascope::anomaly detection", END - 20, END, "cpu_op")
    graph = converted(tmp_path, thread, sampled([ANOMALY], busy=1) if is_sampled else None)
    assert host_us(graph) == {"anomaly_detection": 20_020}
    assert graph.nodes.loc[graph.nodes["kind"] == "compute", "duration_ns"].sum() == 79_980_000


def test_fetching_values_one_by_one_is_synchronisation(tmp_path):
    thread = Thread(0)
    for number in range(1_000):
        thread.op("aten::item", START + 100 * number, START + 100 * number + 80, 3)
    assert host_us(converted(tmp_path, thread)) == {"synchronisation": 100_000}


def test_short_gaps_are_dispatch_and_long_ones_python(tmp_path):
    thread = Thread(0)
    for number in range(1_000):
        thread.op("aten::mul", START + 50 * number, START + 50 * number + 20, 3)
    times = host_us(converted(tmp_path, thread))
    assert times == {"dispatch": 999 * 30, "python": 50_030}


def test_a_gap_is_cut_where_garbage_was_collected(tmp_path):
    evidence = EvidenceFile()
    evidence.collection(20_000, 60_000)
    graph = converted(tmp_path, training_thread(), evidence)
    assert host_us(graph) == {"garbage_collection": 40_000, "python": 40_000}


ENGINE = ("_engine_run_backward", "torch/autograd/graph.py", 9, "library", "run_backward")


@pytest.mark.parametrize(("waited", "cause"), [(9_000, "communication_call"), (0, "lock")])
def test_blocking_backward_pass_waits_for_peers(tmp_path, waited, cause):
    evidence = sampled([ENGINE], busy=0, wait="futex")
    evidence.step(0, START, collective=0)
    evidence.step(1, END, collective=waited, recorded=1)
    assert host_us(converted(tmp_path, training_thread(), evidence))[cause] >= 75_000


def sampled(frames, *, busy, every=5_000, **more):
    """Return samples of *frames* in the long gap, and none elsewhere; *busy* is the fraction of CPU time."""
    evidence = EvidenceFile()
    for time in range(START + 2_000, END + 5_000, every):
        inside = 11_000 < time < 91_000
        cpu = time + round(min(max(0, time - 11_000), 80_000) * (busy - 1))
        options = more if inside else {}
        evidence.sample(time, *(frames if inside else ()), STEP, cpu=cpu, **options)
    return evidence


USER, USER_PLACE = ("Images.__getitem__", "data.py", 12, "script"), "Images.__getitem__ (data.py:12)"
STEP_PLACE = "train (train.py:40)"
BACKWARD = "autograd::engine::evaluate_function: "
SAVE = ("save", "torch/serialization.py", 9, "library")
GATHERED = "torch/distributed/checkpoint/state_dict.py"
ANOMALY = ("format_stack", "torch/fx/traceback.py", 1, "library")
RECOMPUTED = ("outer.<locals>.recompute_fn", "torch/utils/checkpoint.py", 1, "library")
SCHEDULE = ("LambdaLR.step", "torch/optim/lr_scheduler.py", 1, "library")
NEW_OPTIMIZER = ("Optimizer.add_param_group", "torch/optim/optimizer.py", 1, "library")
UPDATE = ("_multi_tensor_adam", "torch/optim/adam.py", 1, "library")
ADAM = ("Adam.step", "torch/optim/adam.py", 1, "library")
DRAWING = ("RandomSampler.__iter__", "torch/utils/data/sampler.py", 1, "library")
BATCHES = ("Batches.__iter__", "data.py", 30, "script")
NEXT = ("_BaseDataLoaderIter._next_index", "torch/utils/data/dataloader.py", 1, "library")
WAIT = ("Condition.wait", "threading.py", 1, "standard", "acquire")
POOL = ("ApplyResult.get", "multiprocessing/pool.py", 1, "standard")
FORK = ("Popen._launch", "multiprocessing/popen_fork.py", 1, "standard")
CHILD = ("BaseProcess._bootstrap", "multiprocessing/process.py", 1, "standard")
WORKERS = ("_MultiProcessingDataLoaderIter.__init__", "torch/utils/data/dataloader.py", 1, "library")
WORKER = ("_try_get_data", "torch/utils/data/dataloader.py", 1, "library")


@pytest.mark.parametrize(
    ("frames", "wait", "cause", "place"),
    [
        ([("tokenize", "text.py", 9, "script")], "", "python", "tokenize (text.py:9)"),
        ([("sub", "re/__init__.py", 1, "standard"), USER], "", "input_pipeline", USER_PLACE),
        ([("memmap.__getitem__", "numpy/_core/memmap.py", 1, "library")], "", "python", STEP_PLACE),
        ([("Logger.info", "logging/__init__.py", 1, "standard")], "", "logging", STEP_PLACE),
        ([("_write", "zip.py", 1, "standard"), SAVE], "", "checkpoint", STEP_PLACE),
        ([("extract_stack", "traceback.py", 1, "standard"), ANOMALY], "", "anomaly_detection", STEP_PLACE),
        ([RECOMPUTED], "", "recomputation", STEP_PLACE),
        ([("rate", "text.py", 9, "script"), SCHEDULE], "", "python", "rate (text.py:9)"),
        ([NEW_OPTIMIZER, ("make", "train.py", 9, "script")], "", "python", "make (train.py:9)"),
        ([UPDATE, ADAM], "", "optimizer", STEP_PLACE),
        ([DRAWING, WORKER], "", "sampler", STEP_PLACE),
        ([BATCHES, NEXT], "", "sampler", "Batches.__iter__ (data.py:30)"),
        ([("evaluate", "train.py", 80, "script")], "", "validation", "evaluate (train.py:80)"),
        ([("run_validation", "train.py", 80, "script")], "", "validation", "run_validation (train.py:80)"),
        ([("get_state_dict", GATHERED, 9, "library")], "", "checkpoint", STEP_PLACE),
        ([("report", "train.py", 50, "script", "print")], "", "logging", "report (train.py:50)"),
        ([("report", "train.py", 50, "script", "print")], "write", "logging", "report (train.py:50)"),
        ([("record", "train.py", 55, "script", "commit")], "", "io", "record (train.py:55)"),
        ([("pause", "train.py", 60, "script", "sleep")], "unknown call", "sleep", "pause (train.py:60)"),
        ([], "clock_nanosleep", "sleep", STEP_PLACE),
        ([], "fsync", "io", STEP_PLACE),
        ([], "futex", "lock", STEP_PLACE),
        ([("SocketIO.readinto", "socket.py", 1, "standard")], "recvfrom", "io", STEP_PLACE),
        ([WORKER], "poll", "worker_wait", STEP_PLACE),
        (
            [("all_gather", "torch/distributed/distributed_c10d.py", 9, "library", "wait")],
            "futex",
            "communication_call",
            STEP_PLACE,
        ),
        (
            [("_waiting.<locals>.watched", "chakrascope/tracer/_agent/phases.py", 9, "library", "wait")],
            "futex",
            "communication_call",
            STEP_PLACE,
        ),
        ([("flush", "train.py", 9, "script", "wait")], "futex", "lock", "flush (train.py:9)"),
        ([("compile_inner", "torch/_dynamo/convert_frame.py", 1, "library")], "", "compilation", STEP_PLACE),
        ([WAIT, POOL, ("count", "train.py", 9, "script")], "futex", "process_wait", "count (train.py:9)"),
        ([("run", "subprocess.py", 1, "standard", "waitpid")], "wait4", "process_wait", STEP_PLACE),
        ([WAIT, ("count", "train.py", 9, "script")], "futex", "lock", "count (train.py:9)"),
        ([FORK, WORKERS], "", "process_start", STEP_PLACE),
        ([FORK, ("count", "train.py", 9, "script")], "", "process_start", "count (train.py:9)"),
        ([("count", "train.py", 9, "script"), CHILD, FORK], "", "python", "count (train.py:9)"),
    ],
)
def test_stacks_give_a_gap_its_cause_and_place(tmp_path, frames, wait, cause, place):
    evidence = sampled(frames, busy=0 if wait else 1, wait=wait)
    graph = converted(tmp_path, training_thread(), evidence)
    assert host_us(graph)[cause] >= 75_000  # samples are 5 ms apart
    assert places(graph, cause) == {place}


@pytest.mark.parametrize(("caller", "cause"), [("debug", "logging"), ("", "python")])
def test_the_level_of_a_logger_is_logging_only_inside_a_log_call(tmp_path, caller, cause):
    frames = [("Logger.getEffectiveLevel", "logging/__init__.py", 9, "library")]
    frames += [(f"Logger.{caller}", "logging/__init__.py", 8, "library")] * bool(caller)
    graph = converted(tmp_path, training_thread(), sampled(frames, busy=1))
    assert host_us(graph)[cause] >= 75_000


def test_only_operators_inside_logging_are_logging(tmp_path):
    thread = training_thread()
    for time in range(20_000, 80_000, 1_000):
        thread.op("aten::item", time, time + 900, 3)
    frames = [("_tensor_str", "torch/_tensor_str.py", 3, "library")]
    graph = converted(tmp_path, thread, sampled(frames, busy=1))
    assert host_us(graph) == {"logging": 80_000}


def test_duration_of_a_state_follows_cpu_time(tmp_path):
    """Python runs for 30 ms of the gap before the sleep; samples are 40 ms apart."""
    evidence = EvidenceFile()
    for time, wait in ((START, ""), (41_000, "clock_nanosleep"), (81_000, "clock_nanosleep"), (99_000, "")):
        cpu = min(time, 40_000) + max(0, time - 91_000)
        evidence.sample(time, STEP, cpu=cpu, wait=wait)
    assert host_us(converted(tmp_path, training_thread(), evidence)) == {"python": 29_000, "sleep": 51_000}


@pytest.mark.parametrize("name", ["enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", ""])
def test_loader_sample_ignores_the_backward_pass(tmp_path, name):
    """Two loads with a sample each, separated by a backward pass of 20 ms."""
    thread, evidence = Thread(0), EvidenceFile()
    for number, begin in enumerate((START, START + 50_000)):
        if name:
            thread.mark(name, begin, begin + 30_000)
        thread.op("aten::stack", begin + 5_000, begin + 15_000, 10 * number)
        thread.op(f"{BACKWARD}MmBackward0", begin + 30_000, begin + 50_000, 10 * number + 1)
        evidence.sample(begin, STEP, cpu=begin)
        evidence.sample(begin + 10_000, USER, STEP, cpu=begin + 10_000)
    nodes = converted(tmp_path, thread, evidence).nodes
    loading = nodes[nodes["cause"] == "input_pipeline"]
    assert 20_000_000 <= loading["duration_ns"].sum() <= 60_000_000
    assert not loading["operator"].str.startswith(BACKWARD).any()


def test_function_between_phases_includes_adjacent_gaps(tmp_path):
    """Memory that the function allocated is freed when it returns."""
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(f"{BACKWARD}MmBackward0", START, START + 20_000, 1)
    thread.op("aten::sum", START + 30_000, START + 50_000, 2)
    thread.mark("Optimizer.step#SGD.step", START + 70_000, START + 80_000)
    thread.op("aten::add_", START + 71_000, START + 79_000, 3)
    audit = ("audit", "train.py", 9, "script")
    evidence.sample(START - 1_000, STEP, cpu=0)
    evidence.sample(START + 40_000, audit, STEP, cpu=41_000)
    evidence.sample(END + 1_000, STEP, cpu=102_000)
    nodes = converted(tmp_path, thread, evidence).nodes
    gaps = nodes[(nodes["place"] == "audit (train.py:9)") & (nodes["cause"] == "python")]
    assert gaps["duration_ns"].sum() == 30_000_000


def starved(evidence, times, cpu):
    """Sample a thread that waits for the GIL, held by another thread; *cpu* of a time in us."""
    for time in times:
        evidence.sample(time, STEP, cpu=cpu(time), wait="futex")
        evidence.sample(time, ("publish", "metrics.py", 7, "script"), thread=1, cpu=time - cpu(time))
    return evidence


@pytest.mark.parametrize(
    ("cpu", "lock_us"),
    [(lambda time: time - min(max(0, time - 11_000), 80_000), 80_000), (lambda time: time // 50, 94_000)],
)
def test_a_thread_that_keeps_the_interpreter_lock_is_named(tmp_path, cpu, lock_us):
    """The wait delays only the gap, or operators as well."""
    evidence = starved(EvidenceFile(), range(START, END + 5_000, 5_000), cpu)
    graph = converted(tmp_path, training_thread(), evidence)
    assert host_us(graph)["lock"] == pytest.approx(lock_us, rel=0.02)
    assert places(graph, "lock") == {"publish (metrics.py:7)"}


def test_a_thread_of_a_library_that_keeps_the_interpreter_lock_is_named(tmp_path):
    evidence = EvidenceFile()
    feeder = [
        ("ForkingPickler.dumps", "multiprocessing/reduction.py", 51, "standard"),
        ("Queue._feed", "multiprocessing/queues.py", 244, "standard"),
        ("Thread.run", "threading.py", 982, "standard"),
    ]
    for time in range(START, END + 5_000, 5_000):
        evidence.sample(time, STEP, cpu=time // 50, wait="futex")
        evidence.sample(time, *feeder, thread=1, cpu=time - time // 50)
    graph = converted(tmp_path, training_thread(), evidence)
    assert places(graph, "lock") == {"Queue._feed (multiprocessing/queues.py:244)"}


def test_a_wait_for_a_peer_is_no_wait_for_the_interpreter_lock(tmp_path):
    evidence = EvidenceFile()
    thread = Thread(0)
    thread.op("aten::mm", START, END, 1)
    for time in range(START, END + 5_000, 5_000):
        wait = ("wait", "torch/distributed/distributed_c10d.py", 3, "library")
        evidence.sample(time, wait, STEP, cpu=time // 50, wait="futex")
        evidence.sample(time, ("publish", "metrics.py", 7, "script"), thread=1, cpu=time)
    assert host_us(converted(tmp_path, thread, evidence)) == {}


def test_all_parts_of_a_repeated_copy_are_listed(tmp_path):
    """The second of two casts lost its CPU at times, which splits it into several nodes."""
    thread, evidence = Thread(0), EvidenceFile()
    for start in (START, START + 50_000):
        thread.op("aten::_to_copy", start, start + 50_000, 1)
    for count, time in enumerate(range(START, END + 10_000, 10_000)):
        delay = 0 if time < START + 60_000 else 4_000 * (count - 5)
        evidence.sample(time, STEP, cpu=time - START - delay, delay=delay)
    entry = thread.write(tmp_path, [(START, END)]) | {"process_groups": []}
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    write_trace_set(tmp_path, [entry | {"evidence": "rank0.evidence.json.gz"}])
    workload = convert(tmp_path, step=0)
    nodes = workload.graphs[0].nodes
    second = nodes[(nodes["kind"] == "compute") & (nodes["measured_start_ns"] >= 50_000_000)]
    assert len(second) > 1
    assert workload.metadata["repeated"]["0"] == second["node_id"].tolist()


def test_gaps_between_operators_have_the_place_that_was_sampled_in_a_gap(tmp_path):
    """Hooks of modules run between operators, so samples inside operators do not show them."""
    thread, evidence = Thread(0), EvidenceFile()
    for start in range(START, END, 10_000):
        thread.op("aten::addmm", start, start + 3_000, 1)
    for time in range(START, END + 10_000, 10_000):
        evidence.sample(time + 1_500, ("forward", "net.py", 9, "script"), STEP, cpu=time + 1_500)
        if time == START + 40_000:
            evidence.sample(time + 6_000, ("keep", "hooks.py", 3, "script"), STEP, cpu=time + 6_000)
    nodes = converted(tmp_path, thread, evidence).nodes
    gaps = nodes[nodes["kind"] == "host"]
    assert gaps["duration_ns"].sum() == 70_000_000
    assert set(gaps["place"]) == {"keep (hooks.py:3)"}
    assert set(nodes.loc[nodes["kind"] == "compute", "place"]) == {"forward (net.py:9)"}


def test_time_without_a_processor_is_no_computation(tmp_path):
    thread = Thread(0)
    thread.op("aten::mm", START, END, 1)
    evidence = EvidenceFile()
    for number, time in enumerate(range(START, END + 5_000, 5_000)):
        evidence.sample(time, STEP, cpu=2_000 * number, delay=3_000 * number)
    graph = converted(tmp_path, thread, evidence)
    assert host_us(graph) == {"descheduled": 60_000}
    assert graph.nodes.loc[graph.nodes["kind"] == "compute", "duration_ns"].sum() == 40_000_000
    assert (graph.nodes["duration_ns"].sum()) == 100_000_000


def test_a_gradient_that_waited_for_a_processor_has_the_place_of_its_forward_operator(tmp_path):
    thread, evidence = Thread(0), EvidenceFile()
    middle, names = START + 20_000, ("aten::mm", f"{BACKWARD}MmBackward0", "aten::mul")
    for name, times in zip(names, ((START, middle), (middle, END), (middle, END)), strict=True):
        thread.op(name, *times, 1)
        thread.events[-1]["args"]["Sequence number"] = -1 if name == "aten::mul" else 4
    for number, time in enumerate(range(START, END + 5_000, 5_000)):
        whiten = [("whiten", "train.py", 12, "script")] if time < middle else []
        late = max(0, number - 4)
        evidence.sample(time, *whiten, STEP, cpu=5_000 * number - 3_000 * late, delay=3_000 * late)
    nodes = converted(tmp_path, thread, evidence).nodes
    own = nodes[nodes["name"] == "aten::mul"]
    assert set(own["kind"]) == {"compute", "host"}
    assert set(own["place"]) == {"whiten (train.py:12)"}


def test_run_delay_equals_the_kernels_figure(tmp_path):
    thread, evidence = Thread(0), EvidenceFile()
    thread.op("aten::mm", START, END, 1)
    for number, time in enumerate(range(START, END + 20_000, 20_000)):  # on a CPU from 80 ms on
        over = number >= 4
        evidence.sample(time, STEP, cpu=20_000 * over, delay=80_000 * over, wait="running")
    assert host_us(converted(tmp_path, thread, evidence)) == {"descheduled": 80_000}


@pytest.mark.parametrize("before_us", [0, 10_000, 40_000])
def test_a_delay_is_divided_where_steps_end(tmp_path, before_us):
    """Between two samples, one of them in the previous step, the thread waited 40 ms for a CPU."""
    thread, evidence, begin = Thread(0), EvidenceFile(), 61_000
    thread.op("aten::mm", begin, begin + 100_000, 1)
    evidence.sample(begin - 60_000, STEP, cpu=0, delay=0)
    evidence.step(0, begin, cpu=60_000 - before_us, delay=before_us)
    evidence.sample(begin + 60_000, STEP, cpu=80_000, delay=40_000)
    evidence.sample(begin + 100_000, STEP, cpu=120_000, delay=40_000)
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    files = {"evidence": "rank0.evidence.json.gz", "process_groups": []}
    write_trace_set(tmp_path, [thread.write(tmp_path, [(begin, begin + 100_000)]) | files])
    delayed = host_us(convert(tmp_path, step=0).graphs[0]).get("descheduled", 0)
    assert delayed == 40_000 - before_us


@pytest.mark.parametrize(("slept_us", "delayed_us"), [(0, 80_000), (10_000, 60_000)])
def test_a_delay_that_has_not_ended_counts_in_a_step_without_sleep(tmp_path, slept_us, delayed_us):
    """The thread waits for a CPU from 10 to 40 ms, and from 50 ms to the end of the step."""
    thread, evidence, ran_us = Thread(0), EvidenceFile(), 10_000 - slept_us
    thread.op("aten::mm", START, END, 1)
    evidence.step(0, START)
    evidence.sample(START, STEP, cpu=0, wait="running")
    evidence.sample(START + 30_000, STEP, cpu=ran_us, wait="running")
    evidence.sample(START + 70_000, STEP, cpu=ran_us + 10_000, delay=30_000, wait="running")
    evidence.step(1, END, cpu=ran_us + 10_000, delay=80_000, recorded=1)
    evidence.sample(END + 10_000, STEP, cpu=ran_us + 20_000, delay=80_000, wait="running")
    delayed = host_us(converted(tmp_path, thread, evidence)).get("descheduled", 0)
    assert delayed == pytest.approx(delayed_us, abs=1)


def test_sample_at_loader_entry_ignores_earlier_time(tmp_path):
    """The sampler acquires the GIL there, after 70 ms of other Python code."""
    evidence = EvidenceFile()
    frames = [("__next__", "/env/torch/utils/data/dataloader.py", 721, "library"), STEP]
    evidence.sample(START, STEP, cpu=0)
    evidence.sample(START + 12_000, ("audit", "train.py", 9, "script"), STEP, cpu=12_000)
    evidence.sample(80_010, *frames, cpu=79_010)
    evidence.sample(END, STEP, cpu=END - START)
    thread = training_thread()
    thread.mark("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 80_000, 90_000)
    nodes = converted(tmp_path, thread, evidence).nodes
    nodes = nodes[(nodes["place"] == "audit (train.py:9)") & (nodes["kind"] == "host")]
    assert set(nodes["cause"]) == {"python"}
    assert nodes["duration_ns"].sum() == pytest.approx(69_000_000, abs=1_000_000)


def test_step_between_two_samples_has_no_activity(tmp_path):
    evidence = EvidenceFile()
    for time in (START - 800, START - 400, END + 9_000, END + 29_000):
        frames = [("save_checkpoint", "train.py", 9, "script"), STEP] if time > END else [STEP]
        evidence.sample(time, *frames, cpu=0)
    graph = converted(tmp_path, training_thread(), evidence)
    assert host_us(graph) == {"python": 80_000}


@pytest.mark.parametrize(("longer_us", "is_known"), [(2_000, True), (20_000, False)])
def test_section_without_sample_follows_other_steps(tmp_path, longer_us, is_known):
    """A step has 20 ms of Python between its backward pass and its end; only the next step has a sample."""
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(f"{BACKWARD}MmBackward0", START + 20_000, END - 20_000, 1)
    next_end = 2 * END - START + longer_us
    for index, time in enumerate((START, END, next_end)):
        evidence.step(index, time, recorded=index)
    evidence.sample(START - 1_000, STEP, cpu=0)
    evidence.sample(START + 10_000, STEP, cpu=10_000)
    audit = ("audit", "train.py", 9, "script")
    evidence.sample(next_end - 10_000, audit, STEP, cpu=next_end)
    nodes = converted(tmp_path, thread, evidence).nodes
    last = nodes[nodes["measured_start_ns"] >= (END - START - 20_000) * 1000]
    assert set(last["place"]) == {"audit (train.py:9)" if is_known else ""}


@pytest.mark.parametrize(("longer_us", "is_added"), [(0, True), (60_000, False)])
def test_a_section_with_one_sample_also_has_those_of_captured_steps_that_took_as_long(
    tmp_path, longer_us, is_added
):
    """Each step has 60 ms of Python after its backward pass; only one moment of the first was sampled."""
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(f"{BACKWARD}MmBackward0", START + 20_000, START + 40_000, 1)
    length = END - START + longer_us
    ends = [END + number * length for number in range(4)]
    for index, time in enumerate((START, *ends)):
        evidence.step(index, time, recorded=index)
    for number in range(3):
        thread.op(f"{BACKWARD}MmBackward0", ends[number] + 20_000, ends[number] + 40_000, 1)
    evidence.sample(START - 1_000, STEP, cpu=0)
    evidence.sample(START + 50_000, ("log", "train.py", 3, "script"), STEP, cpu=50_000)
    for number, after in enumerate((60_000, 75_000, 90_000)):
        evidence.sample(ends[number] + after, ("audit", "train.py", 9, "script"), STEP, cpu=ends[number])
    nodes = converted(tmp_path, thread, evidence).nodes
    last = nodes[nodes["measured_start_ns"] >= 40_000_000]
    durations = last.groupby("place")["duration_ns"].sum()
    assert (durations.get("audit (train.py:9)", 0) > durations.sum() / 2) == is_added


@pytest.mark.parametrize(("other", "is_known"), [("audit", True), ("save", False)])
def test_phase_without_sample_follows_other_steps(tmp_path, other, is_known):
    """Recording made the other step several times as slow, so its times are not representative."""
    thread, evidence = Thread(0), EvidenceFile()
    for begin, times in ((START, 1), (END, 5)):
        thread.op(f"{BACKWARD}MmBackward0", begin, begin + times * 20_000, begin)
        thread.mark("Optimizer.step#SGD.step", begin + times * 60_000, begin + times * 80_000)
        thread.op("aten::add_", begin + times * 61_000, begin + times * 79_000, begin)
    next_end = END + 5 * (END - START)
    for index, time in enumerate((START, END, next_end)):
        evidence.step(index, time, recorded=index)
    evidence.sample(START - 1_000, STEP, cpu=0)
    evidence.sample(START + 10_000, STEP, cpu=10_000)
    for time, function in ((120_000, "audit"), (180_000, "audit"), (280_000, other)):
        evidence.sample(END + time, (function, "train.py", 9, "script"), STEP, cpu=END + time)
    nodes = converted(tmp_path, thread, evidence).nodes
    between = nodes[nodes["measured_start_ns"].between(20_000_000, 59_000_000)]
    assert ("audit (train.py:9)" in set(between["place"])) == is_known


def test_a_sample_of_a_captured_step_with_another_forward_pass_is_in_the_same_phase(tmp_path):
    """The forward pass before the sampled phase took 40 ms longer, as on a busy machine."""
    thread, evidence = Thread(0), EvidenceFile()
    for begin, longer in ((START, 0), (END, 40_000)):
        backward = begin + 20_000 + longer
        thread.op(f"{BACKWARD}MmBackward0", backward, backward + 40_000, begin)
        thread.mark("Optimizer.step#SGD.step", backward + 60_000, backward + 80_000)
        thread.op("aten::add_", backward + 61_000, backward + 79_000, begin)
    next_end = 2 * END - START + 40_000
    for index, time in enumerate((START, END, next_end)):
        evidence.step(index, time, recorded=index)
    evidence.sample(START - 1_000, STEP, cpu=0)
    evidence.sample(START + 30_000, STEP, cpu=30_000)
    audit = ("audit", "train.py", 9, "script")
    evidence.sample(END + 110_000, audit, STEP, cpu=END)
    nodes = converted(tmp_path, thread, evidence).nodes
    between = nodes[(nodes["kind"] == "host") & (nodes["duration_ns"] > 15_000_000)]
    assert "audit (train.py:9)" in set(between["place"])


def test_the_longest_of_many_operators_were_those_without_a_processor(tmp_path):
    thread = Thread(0)
    for number, time in enumerate(range(START, END, 10_000)):
        for place in range(200):  # of 10 us each
            thread.op("aten::add_", time + 10 * place, time + 10 * place + 10, 1 + 202 * number + place)
        for place, name in enumerate(("aten::relu_", "aten::neg_")):
            begin = time + 2_000 + 4_000 * place
            thread.op(name, begin, begin + 4_000, 201 + 202 * number + place)
    evidence = EvidenceFile()
    for number, time in enumerate(range(START, END + 10_000, 10_000)):
        evidence.sample(time, STEP, cpu=2_200 * number, delay=7_800 * number)
    nodes = converted(tmp_path, thread, evidence).nodes
    delayed = nodes[nodes["cause"] == "descheduled"].groupby("operator")["duration_ns"].sum()
    assert delayed.to_dict() == {"aten::relu_": 39_000_000, "aten::neg_": 39_000_000}


@pytest.mark.parametrize(("share", "cause"), [(0.88, "input_pipeline"), (0.0, "descheduled")])
def test_delayed_work_keeps_its_cause(tmp_path, share, cause):
    """A gap had a CPU for an eighth of its time; the rest of the step had as little, or always had one."""
    thread = Thread(0)
    thread.op("aten::mm", START, START + 30_000, 1)
    thread.op("aten::mm", END - 30_000, END, 2)
    loading, evidence, cpu, delay = ("__getitem__", "data.py", 3, "script"), EvidenceFile(), 0, 0
    for time in range(START, END + 5_000, 5_000):
        in_gap = START + 30_000 < time <= END - 30_000
        evidence.sample(time, loading if in_gap else STEP, cpu=cpu, delay=delay)
        in_gap = START + 30_000 <= time < END - 30_000
        delay += round(5_000 * (0.88 if in_gap else share))
        cpu += round(5_000 * (0.12 if in_gap else 1 - share))
    graph = converted(tmp_path, thread, evidence)
    gap = graph.nodes[graph.nodes["name"].str.startswith("host before")]
    assert gap.groupby("cause")["duration_ns"].sum().idxmax() == cause


def test_the_worker_that_is_waited_for_is_that_of_the_dataset(tmp_path):
    thread = training_thread()
    thread.mark("enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 11_000, 91_000)
    evidence = sampled([WORKER], busy=0)
    evidence.loader("Images.__getitem__", "data.py", 12, workers=2)
    graph = converted(tmp_path, thread, evidence)
    assert places(graph, "worker_wait") == {USER_PLACE}


@pytest.mark.parametrize(("method", "started_ms"), [("__init__", 50), ("__iter__", 0)])
def test_the_wait_for_the_first_batch_of_new_workers_is_part_of_their_start(tmp_path, method, started_ms):
    """Persistent workers already run when another epoch begins."""
    thread = training_thread()
    for name, begin, end in (
        (method, 15_000, 35_000),
        ("__next__", 36_000, 66_000),
        ("__next__", 67_000, 87_000),
    ):
        thread.mark(f"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.{name}", begin, end)
    times = host_us(converted(tmp_path, thread))
    assert times["worker_wait"] // 1000 == 70 - started_ms
    assert times.get("process_start", 0) // 1000 == started_ms


def test_a_start_of_workers_has_the_place_of_the_starts_that_were_sampled(tmp_path):
    """No sample is taken during a fork; the first wait is not work of the dataset."""
    thread = training_thread()
    for name, begin, end in (("__init__", 15_000, 35_000), ("__next__", 36_000, 66_000)):
        thread.mark(f"enumerate(DataLoader)#_MultiProcessingDataLoaderIter.{name}", begin, end)
    evidence = EvidenceFile()
    for time in range(START, END, 2_000):
        frames = [WORKER] * (36_000 < time < 66_000) or [FORK] * (66_000 < time < 80_000)
        evidence.sample(time, *frames, STEP, cpu=START if time < 66_000 else time)
    evidence.loader("Images.__getitem__", "data.py", 12, workers=2)
    assert places(converted(tmp_path, thread, evidence), "process_start") == {STEP_PLACE}


def test_callers_are_those_of_all_stacks_without_libraries(tmp_path):
    evidence, main = EvidenceFile(), ("<module>", "train.py", 60, "script")
    log, score = ("log", "train.py", 20, "script"), ("score", "metrics.py", 5, "script")
    library = ("map", "/env/numpy/functional.py", 3, "library")
    evidence.sample(START, main, cpu=0)
    evidence.sample(START + 2_000, score, library, log, STEP, main, cpu=2_000)
    evidence.sample(START + 4_000, score, score, STEP, main, cpu=4_000)
    evidence.sample(START + 4_000, log, ("feed", "data.py", 9, "script"), cpu=4_000, thread=1)
    entry = training_thread().write(tmp_path, [(START, END)]) | {"process_groups": []}
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    write_trace_set(tmp_path, [entry | {"evidence": "rank0.evidence.json.gz"}])
    assert convert(tmp_path, step=0).metadata["callers"] == {
        "<module> (train.py)": [""],
        "feed (data.py)": [""],
        "log (train.py)": ["feed (data.py)", "train (train.py)"],
        "score (metrics.py)": ["log (train.py)", "train (train.py)"],
        "train (train.py)": ["<module> (train.py)"],
    }


def test_operators_of_a_model_have_the_place_of_its_call_without_gradients(tmp_path):
    thread, evidence = Thread(0), EvidenceFile()
    forward = ("Net.forward", "model.py", 7, "script")
    for begin in (START, START + 50_000):
        thread.op("aten::addmm", begin + 1_000, begin + 20_000, begin)
        for time in range(begin, begin + 50_000, 5_000):
            evidence.sample(time, forward, STEP, cpu=time)
    thread.mark("chakrascope::call track (train.py:50)", START + 600, START + 21_000, "cpu_op")
    nodes = converted(tmp_path, thread, evidence).nodes
    computed = nodes[nodes["kind"] == "compute"].sort_values("measured_start_ns")
    assert [*computed["place"]] == ["track (train.py:50)", "Net.forward (model.py:7)"]
    assert {*nodes["place"][nodes["kind"] == "host"]} <= {"Net.forward (model.py:7)", ""}


@pytest.mark.parametrize("is_trained", [False, True])
def test_work_between_operators_and_calls_of_a_model_has_the_place_of_its_call(tmp_path, is_trained):
    """Unless another module runs between two calls."""
    thread = Thread(0)
    for number in range(4):
        begin = START + 10_000 * number
        thread.op("aten::addmm", begin + 1_000, begin + 4_000, 2 * number)
        thread.op("aten::relu", begin + 4_040, begin + 5_000, 2 * number + 1)
        thread.mark("chakrascope::call track (train.py:50)", begin + 900, begin + 5_100, "cpu_op")
        if is_trained:
            thread.op("aten::mul", begin + 6_000, begin + 7_000, 100 + number)
            thread.mark("chakrascope::module student", begin + 5_900, begin + 7_100, "cpu_op")
    nodes = converted(tmp_path, thread).nodes
    inside = nodes["name"] == "host before aten::relu"
    assert inside.sum() == 4
    assert set(nodes["place"][inside]) == {"track (train.py:50)"}
    before = nodes[nodes["name"] == "host before aten::addmm"].sort_values("measured_start_ns")
    assert [*before["place"]] == ["", *["" if is_trained else "track (train.py:50)"] * 3]


@pytest.mark.parametrize(
    ("operator", "function", "kind"),
    [
        ("RankingBackward", "losses.Ranking.backward", "host"),
        ("Ranking", "Ranking.forward", "host"),
        ("Ranking", "Ranking.backward", "compute"),
        ("RankingBackward", "OtherRanking.backward", "compute"),
        ("aten::mm", "Ranking.backward", "compute"),
    ],
)
def test_the_code_of_an_autograd_function_is_python(tmp_path, operator, function, kind):
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(operator, START, END, 1)
    thread.op("aten::mul", START + 20_000, START + 21_000, 2)
    for time in range(START, END + 5_000, 5_000):
        evidence.sample(time, (function, "losses.py", 7, "script"), STEP, cpu=time)
    nodes = converted(tmp_path, thread, evidence).nodes
    own = nodes[nodes["operator"] == operator]
    assert {*own["kind"]} == {kind}
    assert own["duration_ns"].sum() == 99_000_000
    assert {*own["cause"]} == {"python" if kind == "host" else ""}
    assert {*nodes["kind"][nodes["operator"] == "aten::mul"]} == {"compute"}


COLLECTED = ("GarbageWatch._note", "chakrascope/tracer/_agent/step_clock.py", 41, "library")
HOOK, HOOK_PLACE = ("watch", "hooks.py", 9, "script"), "watch (hooks.py:9)"


@pytest.mark.parametrize(("took_us", "kind"), [(40_000, "host"), (40, "compute")])
def test_time_of_the_engine_between_its_operators_is_that_of_hooks(tmp_path, took_us, kind):
    """Samples show the hook only in another step."""
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(BACKWARD + "MulBackward0", START, START + 50_000 + took_us, 1)
    thread.op("MulBackward0", START + took_us, START + 50_000 + took_us, 2)
    thread.op("aten::mm", START + 50_000 + took_us, END, 3)
    evidence.sample(100, HOOK, ENGINE, STEP, cpu=100)
    for time in range(START, END + 5_000, 5_000):
        evidence.sample(time, ENGINE, STEP, cpu=time)
    nodes = converted(tmp_path, thread, evidence).nodes
    own = nodes[nodes["operator"] == BACKWARD + "MulBackward0"]
    assert {*own["kind"]} == {kind}
    assert own["duration_ns"].sum() == took_us * 1_000
    if kind == "host":
        assert {*own["cause"]} == {"python"}
        assert {*own["place"]} == {HOOK_PLACE}


def test_each_of_several_hooks_has_the_time_that_samples_show_it_in(tmp_path):
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(BACKWARD + "MulBackward0", START, START + 60_000, 1)
    thread.op(BACKWARD + "AddBackward0", START + 60_000, END, 2)
    for time in range(START, END + 5_000, 5_000):
        frame = HOOK if time < START + 60_000 else ("clip", "hooks.py", 20, "script")
        evidence.sample(time, frame, ENGINE, STEP, cpu=time)
    nodes = converted(tmp_path, thread, evidence).nodes
    for name, place in (("MulBackward0", HOOK_PLACE), ("AddBackward0", "clip (hooks.py:20)")):
        own = nodes[nodes["operator"] == BACKWARD + name]
        assert own["duration_ns"][own["place"] == place].sum() >= 0.9 * own["duration_ns"].sum()


def test_operators_of_a_hook_are_those_before_the_accumulation_of_its_parameter(tmp_path):
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(BACKWARD + "AddmmBackward0", START, START + 40_000, 1)
    thread.op("AddmmBackward0", START, START + 40_000, 2)
    thread.op("aten::mm", START, START + 40_000, 3)
    thread.op(BACKWARD + "torch::autograd::AccumulateGrad", START + 40_000, END, 4)
    thread.op("aten::norm", START + 40_000, START + 70_000, 5)
    thread.op("torch::autograd::AccumulateGrad", START + 70_000, START + 80_000, 6)
    thread.op("aten::detach", START + 70_000, START + 80_000, 7)
    thread.op("aten::copy_", START + 80_000, END, 8)  # into a bucket of DistributedDataParallel
    for time in range(START, END + 5_000, 5_000):
        frames = (HOOK, ENGINE) if time == START + 10_000 else (ENGINE,)
        evidence.sample(time, *frames, STEP, cpu=time)
    nodes = converted(tmp_path, thread, evidence).nodes
    of_hook = set(nodes["operator"][nodes["place"] == HOOK_PLACE])
    assert of_hook == {"aten::norm"}


def test_a_collection_during_a_hook_has_its_own_place(tmp_path):
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(BACKWARD + "MulBackward0", START, END, 1)
    evidence.sample(100, HOOK, ENGINE, STEP, cpu=100)
    evidence.sample(60_000, COLLECTED, ("parse", "data.py", 3, "script"), cpu=60_000)
    evidence.collection(20_000, 60_000)
    graph = converted(tmp_path, thread, evidence)
    assert places(graph, "garbage_collection") == {"parse (data.py:3)"}
    assert places(graph, "python") == {HOOK_PLACE}


@pytest.mark.parametrize(
    "caller",
    [RECOMPUTED, ("Pairs.backward", "losses.py", 3, "script"), ("backward", "losses.py", 3, "script")],
)
def test_what_the_engine_calls_besides_hooks_is_no_hook(tmp_path, caller):
    thread, evidence = Thread(0), EvidenceFile()
    thread.op(BACKWARD + "MulBackward0", START, END, 1)
    evidence.sample(100, HOOK, ENGINE, STEP, cpu=100)
    for time in (200, 300):
        evidence.sample(time, ("compute", "model.py", 5, "script"), caller, ENGINE, STEP, cpu=time)
    assert places(converted(tmp_path, thread, evidence), "python") == {HOOK_PLACE}


def test_wait_begins_at_its_first_sample(tmp_path):
    """Before its first sample in the wait, the thread was busy with the operator."""
    evidence = EvidenceFile()
    wait = ("submit", "upload.py", 26, "script", "acquire")
    for time, frames in ((START, ()), (12_000, (wait,)), (50_000, (wait,)), (88_000, (wait,)), (99_000, ())):
        cpu = min(time, 12_000) + max(0, time - 91_000)
        evidence.sample(time, *frames, STEP, cpu=cpu, wait="futex" if frames else "")
    assert host_us(converted(tmp_path, training_thread(), evidence)) == {"lock": 80_000}


@pytest.mark.parametrize("function", ["GarbageWatch._note", "_note"])  # since Python 3.11, and before
@pytest.mark.parametrize(("time", "place"), [(60_000, "parse (data.py:3)"), (70_000, STEP_PLACE)])
def test_a_collection_is_placed_where_the_callback_of_one_was_sampled(tmp_path, time, place, function):
    evidence = EvidenceFile()
    evidence.sample(START, STEP, cpu=START)
    evidence.sample(time, (function, *COLLECTED[1:]), ("parse", "data.py", 3, "script"), cpu=time)
    evidence.sample(99_000, STEP, cpu=99_000)
    evidence.collection(20_000, 60_000)
    graph = converted(tmp_path, training_thread(), evidence)
    assert (place in places(graph, "garbage_collection")) == (time == 60_000)


@pytest.mark.parametrize("generation", [0, 2])
def test_a_collection_without_a_sample_has_a_place_of_its_generation(tmp_path, generation):
    evidence = EvidenceFile()
    evidence.sample(START, STEP, cpu=START)
    evidence.sample(60_000, COLLECTED, ("parse", "data.py", 3, "script"), cpu=60_000)
    evidence.sample(65_000, STEP, cpu=65_000)
    evidence.sample(99_000, STEP, cpu=99_000)
    evidence.collection(20_000, 60_000)
    evidence.collection(70_000, 80_000, generation)
    nodes = converted(tmp_path, training_thread(), evidence).nodes
    collected = nodes[nodes["cause"] == "garbage_collection"]
    placed_ns = collected["duration_ns"][collected["place"] == "parse (data.py:3)"].sum()
    assert placed_ns == (50_000_000 if generation == 2 else 40_000_000)


@pytest.mark.parametrize(("name", "place"), [("", "share (train.py:60)"), (BACKWARD, "")])
def test_a_collective_that_the_script_issues_has_its_place(tmp_path, name, place):
    """An operator of the backward pass has the line of the whole backward pass, which is not specific."""
    thread, evidence = training_thread(), EvidenceFile()
    if name:
        thread.op(f"{name}MmBackward0", 19_000, 31_000, 9)
    thread.all_reduce(20_000, 30_000, 3, 40_000)
    for time in range(START, END + 5_000, 5_000):
        evidence.sample(time, ("share", "train.py", 60, "script"), cpu=time)
    entry = thread.write(tmp_path, [(START, END)]) | {"evidence": "rank0.evidence.json.gz"}
    evidence.write(tmp_path / "rank0.evidence.json.gz")
    other = Thread(1)
    other.all_reduce(20_000, 30_000, 3, 40_000)
    write_trace_set(tmp_path, [entry, other.write(tmp_path, [(START, END)])])
    nodes = convert(tmp_path, step=0).graphs[0].nodes
    (found,) = nodes["place"][(nodes["operator"] == ALL_REDUCE) & (nodes["comm_size_bytes"] > 0)]
    assert found == place


# Traces taken with Python stacks: modules of operators, and the functions in which a host stalls.


MAIN = 11


class Stacks:
    """Makes a trace of one host thread and one stream, with Python frames (microseconds)."""

    def __init__(self):
        self.events = []

    def add(self, category, name, start, end, tid=MAIN, **args):
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": tid, "ts": start, "dur": end - start,
             "args": args}
        )  # fmt: skip

    def frame(self, name, start, end):
        self.add("python_function", name, start, end)

    def launch(self, operator, start, sequence=-1):
        """An operator of 20 us that launches a kernel."""
        number = len(self.events)
        self.add("cpu_op", operator, start, start + 20, **{"Sequence number": sequence})
        self.add("cuda_runtime", "cudaLaunchKernel", start + 5, start + 9, correlation=number)
        self.add("kernel", "gemm", start + 12, start + 18, 7, correlation=number, stream=7, device=0)

    def nodes(self, folder):
        path = folder / "trace.json"
        path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": self.events}))
        return convert_files(device_trace=str(path)).graphs[0].nodes


def model(trace):
    """A forward pass of two linear layers in a model, and the backward pass of the first."""
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.frame("train.py(40): step", 1, 4990)
    trace.frame("nn.Module: Net_0", 100, 300)
    trace.frame("torch/nn/modules/module.py(1743): _call_impl", 101, 299)
    trace.frame("net.py(12): forward", 102, 298)
    for number, start in ((0, 110), (1, 200)):
        trace.frame(f"nn.Module: Linear_{number}", start, start + 30)
        trace.launch("aten::linear", start + 5, sequence=number)
    trace.add("cpu_op", "autograd::engine::evaluate_function: AddmmBackward0", 400, 430,
              **{"Sequence number": 0})  # fmt: skip
    trace.launch("aten::mm", 405)
    trace.launch("aten::add_", 4900)


def test_modules_are_those_of_the_python_frames(tmp_path):
    trace = Stacks()
    model(trace)
    nodes = trace.nodes(tmp_path)
    kernels = nodes[nodes["name"] == "gemm"]
    assert kernels["module"].tolist() == ["Net_0.Linear_0", "Net_0.Linear_1", "Net_0.Linear_0", ""]
    assert kernels["operator"].tolist() == ["aten::linear", "aten::linear", "aten::mm", "aten::add_"]


def test_a_gradient_has_the_place_of_its_forward_operator(tmp_path):
    trace = Stacks()
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.frame("train.py(40): step", 1, 4990)
    trace.frame("train.py(12): whiten", 102, 298)
    trace.add("cpu_op", "aten::mm", 110, 200, **{"Sequence number": 0})
    for number, name in enumerate(("MmBackward0", "AccumulateGrad")):
        start = 400 + 100 * number
        trace.add("cpu_op", f"{BACKWARD}{name}", start, start + 90, **{"Sequence number": number})
        trace.add("cpu_op", name, start + 1, start + 89, **{"Sequence number": number})
        trace.add("cpu_op", "aten::mul", start + 2, start + 88)
    nodes = trace.nodes(tmp_path)
    gradients = nodes[nodes["name"] == "aten::mul"]
    assert gradients["place"].tolist() == ["whiten (train.py:12)", "step (train.py:40)"]


@pytest.mark.parametrize("is_accumulated", [False, True])
def test_gradients_that_a_call_returns_have_the_place_of_the_call(tmp_path, is_accumulated):
    """A call of `torch.autograd.grad` is work of the calling function, such as a penalty."""
    trace = Stacks()
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.frame("train.py(40): step", 1, 4990)
    trace.frame("model.py(7): Net.forward", 102, 298)
    trace.add("cpu_op", "aten::mm", 110, 200, **{"Sequence number": 0})
    trace.frame("train.py(12): penalty", 350, 700)
    accumulation = "torch::autograd::AccumulateGrad"
    called = [(400, "MmBackward0", 0), *[(500, accumulation, 1)] * is_accumulated]
    for start, name, number in (*called, (1000, "MmBackward0", 2), (1100, accumulation, 3)):
        trace.add("cpu_op", f"{BACKWARD}{name}", start, start + 90, **{"Sequence number": number})
        trace.add("cpu_op", name, start + 1, start + 89)
        trace.add("cpu_op", "aten::mul", start + 2, start + 88)
    trace.add("cpu_op", "aten::add", 800, 850)
    nodes = trace.nodes(tmp_path)
    first = nodes[nodes["name"] == "aten::mul"].sort_values("measured_start_ns")["place"].iloc[0]
    assert first == ("Net.forward (model.py:7)" if is_accumulated else "penalty (train.py:12)")


def test_python_code_of_a_gradient_keeps_its_own_place(tmp_path):
    trace = Stacks()
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.frame("train.py(40): step", 1, 4990)
    trace.frame("train.py(12): rank", 102, 298)
    trace.add("cpu_op", "PairwiseLoss", 110, 200, **{"Sequence number": 0})
    trace.add("cpu_op", f"{BACKWARD}PairwiseLossBackward", 400, 900, **{"Sequence number": 0})
    trace.add("cpu_op", "PairwiseLossBackward", 401, 899)
    trace.frame("train.py(20): PairwiseLoss.backward", 402, 890)
    nodes = trace.nodes(tmp_path)
    gradient = nodes[nodes["name"] == "PairwiseLossBackward"].iloc[0]
    assert (gradient["place"], gradient["cause"]) == ("PairwiseLoss.backward (train.py:20)", "python")


def test_short_gap_before_a_gradient_has_the_place_of_its_forward_operator(tmp_path):
    trace = Stacks()
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.frame("train.py(40): step", 1, 4990)
    trace.frame("train.py(12): whiten", 102, 298)
    trace.add("cpu_op", "aten::mm", 110, 200, **{"Sequence number": 0})
    for start, number in ((400, 1), (520, 0), (700, 0)):  # after gaps of 30 and of 90 us
        trace.add("cpu_op", f"{BACKWARD}Node{number}", start, start + 90, **{"Sequence number": number})
    nodes = trace.nodes(tmp_path)
    gaps = nodes[nodes["name"] == f"host before {BACKWARD}Node0"]
    assert gaps["place"].tolist() == ["whiten (train.py:12)", "step (train.py:40)"]
    assert gaps["cause"].tolist() == ["dispatch", "python"]


def test_modules_that_the_tracer_marked_count_before_those_of_frames(tmp_path):
    trace = Stacks()
    model(trace)
    trace.add("cpu_op", "chakrascope::module layers.0", 114, 139)
    nodes = trace.nodes(tmp_path)
    assert nodes[nodes["name"] == "gemm"]["module"].tolist() == ["layers.0", "", "layers.0", ""]


@pytest.mark.parametrize(
    ("frames", "place", "cause"),
    [
        (["train.py(52): shuffle"], "shuffle (train.py:52)", "python"),
        (["data/tokens.py(7): pad", "torch/functional.py(3): stack"], "pad (data/tokens.py:7)", "python"),
        (["copy.py(128): deepcopy"], "step (train.py:40)", "python"),
        (["train.py(9): pause", "<built-in function sleep>"], "pause (train.py:9)", "sleep"),
        (["/opt/conda/lib/python3.11/site-packages/acme/io.py(5): load"],
         "load (/opt/conda/lib/python3.11/site-packages/acme/io.py:5)", "python"),
        (["/usr/lib/python3.11/json/decoder.py(332): decode"], "step (train.py:40)", "python"),
        (["torch/utils/data/dataloader.py(700): _next_data"], "step (train.py:40)", "input_pipeline"),
    ],
)  # fmt: skip
def test_a_stall_outside_operators_is_placed_in_its_innermost_function(tmp_path, frames, place, cause):
    trace = Stacks()
    model(trace)
    for depth, name in enumerate(frames):
        trace.frame(name, 1000 + depth, 4000 - depth)
    nodes = trace.nodes(tmp_path)
    stall = nodes.loc[nodes["duration_ns"].idxmax()]
    assert (stall["kind"], stall["place"], stall["cause"]) == ("host", place, cause)
    assert stall["duration_ns"] >= 2_990_000


@pytest.mark.parametrize("library", ["DistributedDataParallel.forward", "Forward 0"])
def test_a_stall_without_frames_is_placed_in_the_innermost_annotation_of_the_script(tmp_path, library):
    trace = Stacks()
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.launch("aten::linear", 100)
    trace.add("user_annotation", "epoch 4", 900, 4800)
    trace.add("user_annotation", "shuffle the buffer", 1000, 4000)
    trace.add("user_annotation", library, 1000, 4000)
    trace.launch("aten::add_", 4900)
    nodes = trace.nodes(tmp_path)
    assert nodes.loc[nodes["duration_ns"].idxmax()]["place"] == "annotation shuffle the buffer"


def test_a_stall_in_an_operator_keeps_its_operator_and_has_a_place(tmp_path):
    trace = Stacks()
    model(trace)
    trace.frame("train.py(61): clip", 1000, 4000)
    trace.add("cpu_op", "aten::unique_consecutive", 1100, 3900)
    nodes = trace.nodes(tmp_path)
    stall = nodes.loc[nodes["duration_ns"].idxmax()]
    assert (stall["operator"], stall["place"]) == ("aten::unique_consecutive", "clip (train.py:61)")


def test_frames_of_impossible_times_are_ignored(tmp_path):
    trace = Stacks()
    model(trace)
    expected = len(trace.nodes(tmp_path))
    for start, duration in (("soon", 900), (10, -5), (1e300, 900)):
        trace.frame("x.py(1): f", 0, 0)
        trace.events[-1] |= {"ts": start, "dur": duration}
    assert len(trace.nodes(tmp_path)) == expected


def test_modules_of_a_public_trace(data_dir):
    path = data_dir / "converter" / "kineto" / "bert_small_h100.json.gz"
    nodes = convert_files(device_trace=str(path)).graphs[0].nodes
    kernels = nodes[(nodes["kind"] == "compute") & ~nodes["is_cpu_op"]]
    inside = kernels["module"].str.startswith("BertLMHeadModel_0")
    frames = [
        event for event in json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
        if str(event.get("name", "")).startswith("nn.Module: ")
    ]  # fmt: skip
    assert len(frames) == 84
    assert inside.mean() > 0.9
    attention = kernels["module"].str.contains(r"BertLayer_\d+\.BertAttention_\d+\.BertSdpaSelfAttention_\d+")
    assert attention.sum() >= 12


@pytest.mark.parametrize("call", ["cudaMalloc", "hipFree", "hipExtMallocWithFlags", "cuMemCreate"])
def test_allocations_of_device_memory_are_a_cause_of_host_time(tmp_path, call):
    made = KinetoTrace()
    made.add("user_annotation", "ProfilerStep#1", 1000.0, 700.0)
    made.op("aten::convolution_backward", 1000.0, 600.0)
    made.call(call, 1010.0, 300.0)
    made.call("cuMemMap", 1020.0, 200.0)
    made.call(call, 1320.0, 5.0)
    made.launch((1400.0, 4.0), [(1410.0, 50.0)])
    made.call("cudaFuncGetAttributes", 1450.0, 100.0)
    (graph,) = convert_files(None, str(made.write(tmp_path / "kineto.json"))).graphs
    allocating = graph.nodes.query("cause == 'allocation'")
    assert allocating["duration_ns"].sum() == 300_000
    assert set(allocating["operator"]) == {"aten::convolution_backward"}


@pytest.mark.parametrize("launch_us", [900.0, 20.0])
def test_the_first_launch_of_a_recording_is_a_cause_of_its_own_if_long(tmp_path, launch_us):
    """The profiler allocates its buffers in the operator, before the call."""
    made = KinetoTrace()
    made.add("user_annotation", "ProfilerStep#1", 1_000.0, 4_000.0)
    made.op("aten::arange", 1_100.0, 650.0 + launch_us)
    made.op("aten::empty", 1_110.0, 10.0)
    made.launch((1_130.0 + launch_us / 2, launch_us / 2), [(1_500.0 + launch_us, 50.0)])
    made.op("aten::mul", 3_000.0, 650.0 + launch_us)
    made.launch((3_020.0 + launch_us / 2, launch_us / 2), [(3_500.0 + launch_us, 50.0)])
    (graph,) = convert_files(None, str(made.write(tmp_path / "kineto.json"))).graphs
    first = graph.nodes.query("cause == 'first_launch'")
    assert first["duration_ns"].sum() == (910_000 if launch_us == 900.0 else 0)
    assert set(first["operator"]) == ({"aten::arange"} if launch_us == 900.0 else set())


@pytest.mark.parametrize(
    ("around", "first_us"),
    [("", 200), ("annotation", 200), ("Torch-Compiled Region: 0/0", 200), ("mine::op", 610)],
)
def test_python_before_the_first_launch_is_no_part_of_it(tmp_path, around, first_us):
    """A kernel of an extension may have no operator, or that of code that torch.compile has compiled."""
    made = KinetoTrace()
    made.add("user_annotation", "ProfilerStep#1", 1_000.0, 9_000.0)
    made.op("aten::ones", 1_100.0, 10.0)
    if around:
        made.add("user_annotation" if around == "annotation" else "cpu_op", around, 6_000.0, 1_000.0)
    made.launch((6_410.0, 200.0), [(6_700.0, 50.0)])
    made.op("aten::mul", 8_000.0, 50.0)
    made.launch((8_010.0, 20.0), [(8_100.0, 50.0)])
    (graph,) = convert_files(None, str(made.write(tmp_path / "kineto.json"))).graphs
    spent_ns = graph.nodes.query("cause == 'first_launch'")["duration_ns"].sum()
    assert spent_ns == pytest.approx(first_us * 1_000)


def test_a_first_copy_that_blocks_the_host_is_a_wait(tmp_path):
    made = KinetoTrace()
    made.add("user_annotation", "ProfilerStep#1", 1_000.0, 9_000.0)
    made.op("aten::copy_", 1_100.0, 4_100.0)
    about = {"work": "Memcpy HtoD (Pageable -> Device)", "category": "gpu_memcpy"}
    made.launch((1_120.0, 4_000.0), [(1_150.0, 4_000.0)], name="cudaMemcpyAsync", **about)
    made.op("aten::mul", 6_000.0, 50.0)
    made.launch((6_010.0, 20.0), [(6_100.0, 50.0)])
    (graph,) = convert_files(None, str(made.write(tmp_path / "kineto.json"))).graphs
    assert not (graph.nodes["cause"] == "first_launch").any()
    assert graph.nodes.query("kind == 'sync'")["name"].tolist() == ["cudaMemcpyAsync"]


CALLED = ("Module._call_impl", "torch/nn/modules/module.py", 1790, "library")


@pytest.mark.parametrize("is_called", [False, True])
def test_a_sample_in_a_module_places_no_operator_outside_modules(tmp_path, is_called):
    """Such a sample is late, or of another step: the interpreter lock is free in long operators."""
    thread, evidence = Thread(0), EvidenceFile()
    forward = ("Net.forward", "model.py", 7, "script")
    for number in range(50):
        begin = START + 1_000 * number
        thread.op("aten::slice", begin, begin + 990, number)
    thread.op("aten::mm", START + 51_000, END, 100)
    thread.mark("chakrascope::module Net", START + 50_990, END, "cpu_op")
    for time in (START - 1_000, START + 30_000, START + 70_000, END + 1_000):
        evidence.sample(time, forward, *[CALLED] * is_called, STEP, cpu=time)
    nodes = converted(tmp_path, thread, evidence).nodes
    found = nodes.groupby("operator")["place"].agg(set)
    own = {"Net.forward (model.py:7)"}
    assert (found["aten::slice"], found["aten::mm"]) == (({""}, own) if is_called else (own, {""}))


def marked_step(thread, begin, *, is_timed=False):
    """Add a step whose operators are in three places; only the first step, not the timed steps, has marks."""
    places = ["load (data.py:3)", "Net.forward (model.py:7)", "load (data.py:3)", "step (train.py:9)", ""]
    for number, place in enumerate(places):
        start = begin + 1_000 * number
        if not is_timed:
            thread.mark(f"chakrascope::line {place}", start, start, "cpu_op")
        for one in range(3 * (place != "")):
            thread.op(f"aten::op{number}{one}", start + 200 * one + 10, start + 200 * one + 150, 1)


def test_operators_have_the_line_that_is_marked_in_the_first_step(tmp_path):
    thread = Thread(0)
    marked_step(thread, START)
    marked_step(thread, START + 10_000, is_timed=True)
    steps = [(START, START + 9_000), (START + 10_000, START + 19_000)]
    entry = thread.write(tmp_path, steps) | {"process_groups": []}
    structure, timed = entry["steps"]
    write_trace_set(tmp_path, [entry | {"structure_step": structure, "steps": [timed]}])
    nodes = convert(tmp_path).graphs[0].nodes
    own = nodes[nodes["operator"] != ""]
    assert len(own) == 12
    places = [*own.groupby("operator", sort=True)["place"].first()]
    assert places == [
        *["load (data.py:3)"] * 3, *["Net.forward (model.py:7)"] * 3, *["load (data.py:3)"] * 3,
        *["step (train.py:9)"] * 3,
    ]  # fmt: skip
    assert not own["name"].str.startswith("chakrascope").any()


def test_a_gradient_has_the_place_of_the_last_forward_operator_with_its_number(tmp_path):
    """Operators without gradients have the number of the next operator with gradients."""
    trace = Stacks()
    trace.add("user_annotation", "ProfilerStep#3", 0, 5000)
    trace.frame("train.py(40): step", 1, 4990)
    for place, name, start in (("load", "aten::slice", 102), ("forward", "aten::mm", 202)):
        trace.frame(f"train.py({start}): {place}", start, start + 90)
        trace.add("cpu_op", name, start + 1, start + 80, **{"Sequence number": 0})
    trace.add("cpu_op", f"{BACKWARD}MmBackward0", 400, 490, **{"Sequence number": 0})
    trace.add("cpu_op", "MmBackward0", 401, 489, **{"Sequence number": 0})
    trace.add("cpu_op", "aten::mul", 402, 488)
    nodes = trace.nodes(tmp_path)
    assert [*nodes["place"][nodes["name"] == "aten::mul"]] == ["forward (train.py:202)"]
