"""Records of the step that the host trace covers, lent to steps that did the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.converter.linking import lend_records
from chakrascope.converter.readers import MODULE_RANGE, Event, HostOp, Threads
from chakrascope.converter.readers._host_trace import host_trace
from chakrascope.converter.readers._kineto import device_trace
from chakrascope.tracer import StepRange

LENGTH = 100_000
names = st.sampled_from(["aten::mm", "aten::add", "aten::t", "record_param_comms", "gloo:all_reduce"])


def steps_of(*lists):
    """Return one step a list of names, their device trace on one thread, and a host trace of the first."""
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
    """Return the first step's record numbers that the operators of *step* got, None where they got none."""
    own = [event for event in trace.rows() if step.start_ns <= event.start_ns < step.end_ns]
    ops = [host.operator(event.record_id) for event in own]
    return [None if op is None else op.inputs[0] for op in ops]


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


def test_an_operator_too_many_goes_without_a_record_and_the_others_keep_theirs():
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
    """Return events of one step on two threads: a model of blocks a and b, b twice, and a backward pass."""
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
