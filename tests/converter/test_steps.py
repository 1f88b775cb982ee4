"""Steps by the annotations that mark them: names, occurrences, globs, and batches of inference engines."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kineto_trace import Engine, host_trace

from chakrascope.converter import convert_files, replay
from chakrascope.converter.building._steps import Batch, Window, batch_of, own_steps
from chakrascope.converter.linking import lend_records
from chakrascope.converter.readers import MODULE_RANGE, Event, HostOp, Threads
from chakrascope.converter.readers._kineto import Call, Work, device_trace
from chakrascope.errors import UsageError
from chakrascope.tracer import StepRange


@pytest.fixture
def served(tmp_path):
    """Return a trace of two prefills and five decodes of different lengths, without the profiler's steps."""
    engine = Engine()
    for count in (40, 44):
        engine.step(f"step[EXTEND bs=2 toks={count}]", [50.0] * count, pause_us=900)
    for count in (11, 15, 13, 12, 14):
        engine.step("step[DECODE bs=4]", [30.0] * count, pause_us=400, inner="sampling")
    return engine.write(tmp_path / "trace.json")


def kernels(workload):
    return int((workload.graphs[0].nodes["name"] == "gemm").sum())


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        ("execute_context_2(6144)_generation_3(3)", Batch("mixed", 5, 6147)),
        ("execute_context_0(0)_generation_64(64)", Batch("decode", 64, 64)),
        ("execute_context_1(888_788544)_generation_0(0)", Batch("prefill", 1, 888)),
        ("execute_new_2_cached_0", Batch("prefill", 2)),
        ("execute_new_0_cached_7", Batch("decode", 7)),
        (
            "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk9sqsq3sqsk9)",
            Batch("mixed", 5, 6147),
        ),
        ("step[DECODE bs=32]", Batch("decode", 32, 32)),
        ("step[EXTEND bs=15 toks=15360]", Batch("prefill", 15, 15360)),
        ("step[MIXED bs=2]", Batch("mixed", 2)),
        ("step[MIXED bs=66 c=2 g=64 c_sq=2048 c_sk=2048 g_sq=64 g_sk=9]", Batch("mixed", 66, 2112)),
        ("step[mixed bs=3 ext=20 dec=2]", Batch("mixed", 3, 22)),
        ("step[TARGET_VERIFY bs=8]", Batch("decode", 8)),
        ("step[idle]", Batch("idle")),
        ("prefill[bs=2 tok=14721 ctx=[7803, 6918]]", Batch("prefill", 2, 14721)),
        ("decode[bs=117/128 tok=117 d=117]", Batch("decode", 117, 117)),
        ("decode[bs=128 tok=384 p=2 d=126]", Batch("mixed", 128, 384)),
        ("execute_diffusion_1_256x256", Batch("diffusion", 1)),
    ],
)
def test_batches_of_engines_tell_their_kind_and_sizes(name, batch):
    assert batch_of(name) == batch


@pytest.mark.parametrize(
    "name", ["ProfilerStep#3", "step", "step[", "decode", "execute_context", "nccl:send"]
)
def test_other_annotations_are_no_batches(name):
    assert batch_of(name) is None


def test_batches_are_steps_by_themselves(served):
    workload = convert_files(None, str(served), step="all")
    assert workload.metadata["steps"] == [*range(7)]
    assert workload.metadata["step_names"]["2"] == "step[DECODE bs=4]"
    assert kernels(workload) == 40 + 44 + 11 + 15 + 13 + 12 + 14
    assert kernels(convert_files(None, str(served), step=1)) == 44


@pytest.mark.parametrize(
    ("step", "count"),
    [
        ("step[DECODE bs=4]", 13),  # the median
        ("step[DECODE bs=4]#1", 15),  # counted from 0
        ("step[DECODE bs=4]#all", 65),
        ("step[EXTEND*", 40),
        ("step[[]EXTEND*#1", 44),
        ("step[EXTEND bs=2 toks=44]", 44),
        ("*DECODE*#4", 14),
        ("sampling#3", 12),
    ],
)
def test_an_annotation_marks_its_steps(served, step, count):
    assert kernels(convert_files(None, str(served), step=step)) == count


def test_exact_name_takes_precedence_over_number_or_glob(tmp_path):
    engine = Engine()
    for name, count in (("phase#1", 3), ("phase", 4), ("phase", 5), ("phase[ab]", 6), ("phasea", 7)):
        engine.step(name, [10.0] * count)
    trace = str(engine.write(tmp_path / "trace.json"))
    assert kernels(convert_files(None, trace, step="phase#1")) == 3
    assert kernels(convert_files(None, trace, step="phase[ab]")) == 6


def test_profiler_steps_go_before_batches_and_are_called_after_them(tmp_path):
    engine = Engine()
    for number in range(3):
        engine.step(f"ProfilerStep#{number + 7}", [20.0] * 5, inner=f"step[DECODE bs={number + 1}]")
    metadata = convert_files(None, str(engine.write(tmp_path / "trace.json")), step=8).metadata
    assert (metadata["steps"], metadata["step_names"]) == ([8], {"8": "step[DECODE bs=2]"})


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            "step[DECOD bs=4]",
            "did you mean 'step[DECODE bs=4]'? Most frequent: 'step[DECODE bs=4]' (5 times)",
        ),
        ("verify*", "has no annotation 'verify*'. Most frequent: "),
        ("step[DECODE bs=4]#99", "occurs 5 times, so 'step[DECODE bs=4]#99' does not exist: occurrences"),
        ("step[EXTEND*#2", "occurs 2 times"),
        ("aten::mm", "has no annotation 'aten::mm'"),  # an operator
    ],
)
def test_an_annotation_that_is_not_there_is_refused(served, step, message):
    with pytest.raises(UsageError) as refused:
        convert_files(None, str(served), step=step)
    assert message in str(refused.value)
    assert f"{served} (rank 0)" in str(refused.value)


def test_trace_without_annotations_gets_a_next_step(tmp_path):
    engine = Engine()
    engine.step("x", [10.0] * 4)
    engine.trace.events = [event for event in engine.trace.events if event["cat"] != "user_annotation"]
    with pytest.raises(UsageError, match=r"have no annotations\. Next: mark the steps in the script"):
        convert_files(None, str(engine.write(tmp_path / "trace.json")), step="x")


def two_ranks(tmp_path, *names):
    for rank, own in enumerate(names):
        engine = Engine(now=1000.0 + rank)
        for name in own:
            engine.step(name, [20.0] * 6)
        engine.write(tmp_path / f"rank{rank}.json", rank, 2)
    return str(tmp_path / "rank{rank}.json")


def test_a_rank_without_the_annotation_is_named(tmp_path):
    traces = two_ranks(tmp_path, ["forward", "forward"], ["warm-up"])
    with pytest.raises(UsageError, match=r"rank1\.json \(rank 1\) has no annotation 'forward'"):
        convert_files(None, traces, step="forward")
    with pytest.raises(UsageError, match=r"rank1\.json \(rank 1\)"):
        convert_files(None, traces, step="forward#1")


def test_ranks_that_call_a_step_differently_are_named(tmp_path):
    traces = two_ranks(tmp_path, ["step[DECODE bs=2]"], ["step[DECODE bs=3]"])
    note = "step 0 is 'step[DECODE bs=2]' on rank 0 and 'step[DECODE bs=3]' on rank 1"
    assert any(note in told for told in convert_files(None, traces).metadata["assumptions"])


# The own time of each step if the host runs ahead of the device.


US = 1000


def shares(workload):
    return {number: (start, end) for number, start, end in workload.metadata["step_shares"]["0"]}


def run_ahead(tmp_path, *, behind_us=0.0, kernel_us=50.0, host_us=20.0):
    """Return a trace of five steps of 40 kernels each; the device is slower than the host."""
    engine = Engine(behind_us=behind_us)
    for number in range(5):
        engine.step(f"ProfilerStep#{number}", [kernel_us] * (40 + number), host_us=host_us)
    return engine, str(engine.write(tmp_path / "trace.json"))


def test_steps_that_overlap_on_the_device_add_up_to_the_span(tmp_path):
    engine, trace = run_ahead(tmp_path)
    whole = convert_files(None, trace, step="all").metadata["measured_step_ns"]["0"]
    single = [convert_files(None, trace, step=step).metadata["measured_step_ns"]["0"] for step in range(5)]
    assert sum(single) == pytest.approx(whole, rel=0.001)
    finished = [engine.spans[0][0], *(span[2] for span in engine.spans)]
    expected = [(end - start) * US for start, end in pairwise(finished)]
    assert single == pytest.approx(expected, rel=0.001)


@pytest.mark.parametrize("kernel_us", [5.0, 22.0, 50.0, 400.0])
def test_step_with_neighbours_replays_at_measured_time(tmp_path, kernel_us):
    _, trace = run_ahead(tmp_path, kernel_us=kernel_us)
    for step in (0, 2, 4, "all"):
        workload = convert_files(None, trace, step=step)
        measured = workload.metadata["measured_step_ns"]["0"]
        assert replay(workload.graphs[0]).makespan_ns == pytest.approx(measured, rel=0.01)


def test_the_host_keeps_the_time_that_the_device_does_not_wait_for(tmp_path):
    _, trace = run_ahead(tmp_path)
    workload = convert_files(None, trace, step=3)
    nodes = workload.graphs[0].nodes
    host_ns = int(nodes.loc[nodes["stream"] < 1000, "duration_ns"].sum())
    left_out = workload.metadata["accounting"]["0"]["host_ahead_ns"]
    assert 0 < left_out < 40 * US  # until the first launch
    assert host_ns + left_out == pytest.approx(43 * 20 * US, rel=0.05)


def test_the_median_step_is_that_by_own_time_not_by_the_host_s(tmp_path):
    """The host needs the same time for all five steps, the device 40 kernels of these durations (us)."""
    engine = Engine()
    for number, kernel_us in enumerate((90.0, 50.0, 30.0, 70.0, 60.0)):
        engine.step(f"ProfilerStep#{number}", [kernel_us] * 40)
    workload = convert_files(None, str(engine.write(tmp_path / "trace.json")))
    assert workload.metadata["steps"] == [4]
    assert workload.metadata["measured_step_ns"]["0"] == pytest.approx(40 * 60 * US, rel=0.01)


def test_the_median_is_of_steps_that_issued_work_if_any_did(tmp_path):
    engine = Engine()
    engine.step("ProfilerStep#0", [90.0] * 40)
    engine.now += 5000.0
    engine.step("ProfilerStep#1", [])
    workload = convert_files(None, str(engine.write(tmp_path / "trace.json")))
    assert workload.metadata["steps"] == [0]


def test_kernels_belong_to_the_step_that_issued_them(tmp_path):
    _, trace = run_ahead(tmp_path)
    nodes = convert_files(None, trace, step="all").graphs[0].nodes
    assert nodes[nodes["name"] == "gemm"].groupby("step").size().tolist() == [40, 41, 42, 43, 44]


def test_steps_that_do_not_overlap_are_the_host_s(tmp_path):
    engine, trace = run_ahead(tmp_path, kernel_us=2.0)
    workload = convert_files(None, trace, step="all")
    origin = engine.spans[0][0]
    for number, (start, end, _) in enumerate(engine.spans[:-1]):
        assert shares(workload)[number] == pytest.approx(
            ((start - origin) * US, (end - origin) * US), abs=US * 9
        )


def test_time_before_a_capture_s_first_kernel_is_no_step_s(tmp_path):
    engine, trace = run_ahead(tmp_path, behind_us=400_000.0)
    whole = convert_files(None, trace, step="all")
    measured = whole.metadata["measured_step_ns"]["0"]
    assert measured == pytest.approx((engine.spans[-1][2] - 400_000.0) * US, rel=0.001)
    assert replay(whole.graphs[0]).makespan_ns == pytest.approx(measured, rel=0.01)
    assert whole.metadata["accounting"]["0"]["device_latency_ns"] < 0.01 * measured
    first = convert_files(None, trace, step=0).metadata["measured_step_ns"]["0"]
    assert first == pytest.approx(40 * 50 * US, rel=0.01)


def test_a_short_latency_before_the_first_kernel_is_the_step_s(tmp_path):
    engine, trace = run_ahead(tmp_path, behind_us=1800.0)
    measured = convert_files(None, trace, step="all").metadata["measured_step_ns"]["0"]
    assert measured == pytest.approx((engine.spans[-1][2] - engine.spans[0][0]) * US, rel=0.001)


# The step at a given time of the converted interval.


def test_every_moment_belongs_to_a_step():
    window = Window.of([StepRange(7, 300, 400), StepRange(6, 100, 200)])
    moments = [0, 100, 199, 200, 299, 300, 400, 10**18]
    expected = [6, 6, 6, 6, 6, 7, 7, 7]
    assert window.steps_at(np.array(moments)).tolist() == expected


def test_device_work_after_the_last_event_of_the_host_has_a_step(shared):
    """The last kernel of this trace begins after its last of 40 steps has ended; its step was -1."""
    trace = shared / "traces" / "linear_1gpu_kineto.json.gz"
    (graph,) = convert_files(device_trace=[str(trace)], step="all").graphs
    assert set(graph.node_columns["step"].tolist()) == set(range(40))


# Records of the step that the host trace covers are reused for steps with the same operators.


LENGTH = 100_000
names = st.sampled_from(["aten::mm", "aten::add", "aten::t", "record_param_comms", "gloo:all_reduce"])


def steps_of(*lists):
    """Return one step per list of names, their device trace on one thread, and a host trace of the first."""
    steps = [StepRange(n, n * LENGTH, (n + 1) * LENGTH) for n in range(len(lists))]
    events = [Event("ProfilerStep#0", False, "main", 0, LENGTH, 999_999, -1)]
    record = 0
    for step, names_of_step in zip(steps, lists, strict=True):
        for place, name in enumerate(names_of_step):
            record += 1
            thread = f"gloo {record % 3}" if name.startswith("gloo:") else "main"
            start = step.start_ns + place
            events.append(Event(name, True, thread, start, start + 1, record, -1))
    operators = {
        event.record_id: HostOp(event.name, [event.record_id], [], "")
        for event in events[1 : len(lists[0]) + 1]
    }
    return steps, device_trace(events), host_trace(operators)


def borrowed(trace, host, step):
    """Return the record numbers of the first step that operators of *step* got, or None."""
    own = [event for event in trace.rows() if step.start_ns <= event.start_ns < step.end_ns]
    ops = [host.operator(event.record_id) for event in own]
    return [None if op is None else op.inputs[0] for op in ops]


def test_work_without_correlation_lengthens_no_step():
    steps = [StepRange(number, 100 * number, 100 * number + 100) for number in range(3)]
    calls = [
        Call("cudaLaunchKernel", "1", 0, 4, 7, 0),
        Call("cudaDeviceSynchronize", "1", 5, 6, -1, 0),
    ]
    works = [
        Work("gemm", "kernel", 0, 7, 10, 20, 7, 0, 0, None),
        Work("Memcpy HtoD", "memcpy", 0, 7, 250, 260, -1, 0, 8, None),
    ]
    assert own_steps(device_trace([], calls, works), steps) == [StepRange(0, 0, 100)]


@settings(deadline=None)
@given(st.lists(names, max_size=40), st.integers(1, 3))
def test_equal_steps_borrow_every_record_in_order_under_numbers_of_their_own(operators, count):
    steps, trace, host = steps_of(*([operators] * (count + 1)))
    trace, host = lend_records(trace, host, steps[0], steps[1:])
    for step in steps[1:]:
        assert borrowed(trace, host, step) == list(range(1, len(operators) + 1))
    numbers = trace.events.record_id.tolist()
    assert len(set(numbers)) == len(numbers)


@settings(deadline=None)
@given(st.lists(names, max_size=12), st.lists(names, max_size=12), st.lists(names, max_size=12))
def test_a_record_is_lent_to_its_own_name_only(first, second, shared):
    steps, trace, host = steps_of([*shared, *first, *shared], [*shared, *second, *shared])
    trace, host = lend_records(trace, host, steps[0], steps[1:])
    for event in trace.rows():
        op = host.operator(event.record_id)
        assert op is None or op.name == event.name


def test_surplus_operator_gets_no_record():
    steps, trace, host = steps_of(
        ["aten::mm", "aten::add", "aten::t"], ["aten::mm", "aten::item", "aten::add", "aten::t"]
    )
    assert borrowed(*lend_records(trace, host, steps[0], steps[1:]), steps[1]) == [1, None, 2, 3]


@pytest.mark.parametrize("other", [["c10d::allreduce_", "c10d::allreduce_"], ["c10d::broadcast_"]])
def test_steps_that_communicate_differently_are_not_the_same(other):
    steps, trace, host = steps_of(["aten::mm", "c10d::allreduce_"], ["aten::mm", *other])
    assert lend_records(trace, host, steps[0], steps[1:]) is None


def test_long_steps_with_little_in_common_are_given_up_quickly():
    steps, trace, host = steps_of(["aten::mm"] * 20_000 + ["aten::t"], ["aten::add", "aten::mm"] * 10_000)
    trace, host = lend_records(trace, host, steps[0], steps[1:])
    assert set(borrowed(trace, host, steps[1])) == {None}


def ranged():
    """Return events of one step on two threads: blocks a and b of a model, b twice, and a backward pass."""
    main = [
        ("model", 0, 90),
        ("model.a", 0, 20),
        ("aten::mm", 0, 20),
        ("model.b", 30, 50),
        ("aten::mm", 31, 40),
        ("aten::add", 40, 49),
        ("model.b", 60, 80),
        ("aten::mm", 61, 70),
        ("aten::add", 95, 99),
    ]
    events = []
    for place, (name, start, end) in enumerate(main):
        full = name if name.startswith("aten") else f"{MODULE_RANGE}{name}"
        events.append((full, name.startswith("aten"), "main", start, end, place))
    events.append(("aten::mm", True, "autograd", 100, 110, len(main)))
    return events


def test_modules_are_lent_to_steps_without_ranges_of_their_own():
    steps = [StepRange(n, n * LENGTH, (n + 1) * LENGTH) for n in range(2)]
    events, operators = [], {}
    for step, stretch in zip(steps, (1, 3), strict=True):
        for name, is_operator, thread, start, end, place in ranged():
            if is_operator or step is steps[0]:
                at, until = step.start_ns + stretch * start, step.start_ns + stretch * end
                record = 100 * step.index + place + 1
                events.append(Event(name, is_operator, thread, at, until, record, place))
                operators[record] = HostOp(name, [record], [], "")
    recorded = host_trace({number: op for number, op in operators.items() if number < 100})
    trace, _ = lend_records(device_trace(events), recorded, steps[0], steps[1:])
    threads = Threads(trace)
    found = []
    for step in steps:
        inside = (trace.events.start_ns >= step.start_ns) & (trace.events.start_ns < step.end_ns)
        main = inside & (trace.events.thread == trace.texts.index("main"))
        ops = threads.operators(np.flatnonzero(main), step.start_ns, step.end_ns)
        found.append([(op.name, ops.modules[ops.module[number]]) for number, op in enumerate(ops)])
    assert found[0] == [
        ("aten::mm", "model.a"),
        ("aten::mm", "model.b"),
        ("aten::add", "model.b"),
        ("aten::mm", "model.b"),
        ("aten::add", ""),
    ]
    assert found[1] == found[0]
