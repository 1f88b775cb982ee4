"""Whether a gap was a wait follows from the thread's others: on any machine, however slow to wake."""

import tempfile
from pathlib import Path

import pytest
from gloo_thread import Thread, write_trace_set
from hypothesis import example, given, settings
from hypothesis import strategies as st

from chakrascope.converter import EdgeKind, NodeType, convert

GAPS_US = [3, 5, 8, 4, 12, 30, 6, 3, 9, 15, 4, 7]
SCALES = [0.1, 0.3, 1.0, 4.0, 20.0]


class Program:
    """A rank that computes, and all-reduces beside that; *pace* is how slow its machine is."""

    def __init__(self, pace=1.0):
        self.thread, self.pace, self.now = Thread(0), pace, 1_000.0
        self.waited, self.entered = 0.0, []

    def compute(self, count=None):
        for gap in GAPS_US[:count]:
            self.now += gap * self.pace
            self.op("aten::mm", 40, 9)

    def op(self, name, length, storage):
        self.thread.op(name, self.now, self.now + length * self.pace, storage)
        self.now += length * self.pace

    def all_reduce(self, storage):
        """Issue it; return what says when it is over."""
        start, self.now = self.now, self.now + 10 * self.pace
        self.entered.append(start)
        end = self.now
        return lambda closes: self.thread.all_reduce(start, end, storage, closes, entered=round(start))

    def converted(self):
        """Return the graph of this rank, and what it says the thread waited in microseconds."""
        peer = Thread(1)
        peer.op("aten::add", 1_010, 1_020, 3)
        for time_us in self.entered:
            peer.enter(round(time_us))
        steps = ((1_000, round(self.now) + 10),)
        with tempfile.TemporaryDirectory() as folder:
            ranks = [rank.write(Path(folder), steps) for rank in (self.thread, peer)]
            write_trace_set(Path(folder), ranks)
            workload = convert(folder, step=0)
        figures = workload.metadata["accounting"]["0"]
        assert figures["unexplained_ns"] == 0
        return workload.graphs[0], figures["wait_ns"] / 1_000


def waiting_program(waits_us, wakes_us, *, uses_at_once, pace=1.0):
    """Return a rank that waits for all-reduces, *waits_us* each; it goes on *wakes_us* after their ends."""
    program = Program(pace)
    for number, (wait_us, wake_us) in enumerate(zip(waits_us, wakes_us, strict=True)):
        program.compute()
        over = program.all_reduce(20 + number)
        program.compute(2)
        program.now += wait_us
        over(program.now)
        program.waited += wait_us
        program.now += wake_us
        if not uses_at_once[number]:
            program.compute(3)
        program.op("aten::mul", 30, 20 + number)
    program.compute()
    return program


waits = st.lists(st.integers(6_000, 20_000), min_size=3, max_size=3)
uses = st.lists(st.booleans(), min_size=3, max_size=3).map(lambda later: [True, *later[1:]])


@settings(max_examples=25, deadline=None)
@given(waits, uses, st.lists(st.integers(20, 60), min_size=3, max_size=3))
@example([6_000] * 3, [False] * 3, [60] * 3)  # nothing tells directly when the thread resumed
@example([1_000] * 3, [True, False, False], [51, 50, 49])  # one wait does, and the others are as long
def test_a_wait_is_one_however_long_it_takes_to_wake(waits_us, uses_at_once, wakes_us):
    for scale in SCALES:
        wakes = [wake * scale for wake in wakes_us]
        program = waiting_program(waits_us, wakes, uses_at_once=uses_at_once)
        graph, waited_us = program.converted()
        assert waited_us == pytest.approx(program.waited, abs=3), scale
        assert (graph.edges["kind"] == EdgeKind.COMM_WAIT).sum() == len(waits_us)


@settings(max_examples=15, deadline=None)
@given(waits, uses)
def test_a_slower_machine_waits_for_the_same(waits_us, uses_at_once):
    for pace in SCALES:
        scaled, wakes = [pace * wait for wait in waits_us], [pace * 50] * 3
        program = waiting_program(scaled, wakes, uses_at_once=uses_at_once, pace=pace)
        assert program.converted()[1] == pytest.approx(program.waited, abs=3), pace


@pytest.mark.parametrize("pace", SCALES)
@pytest.mark.parametrize("share", [0.05, 0.25, 0.5])
def test_a_collective_that_ends_while_the_script_works_held_nobody_up(pace, share):
    """The script loads data for 20 ms; the result is used only afterwards."""
    program = Program(pace)
    program.compute()
    over = program.all_reduce(20)
    program.compute(2)
    over(program.now + share * 20_000 * pace)
    program.now += 20_000 * pace
    program.compute(3)
    program.op("aten::mul", 30, 20)
    program.compute()
    program.op("aten::mul", 30, 9)
    graph, waited_us = program.converted()
    assert waited_us == 0
    assert (graph.nodes["type"] == NodeType.COMM_COLL).sum() == 1
