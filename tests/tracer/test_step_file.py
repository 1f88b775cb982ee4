"""The file of all steps, and the division of steps into phases, with a fake clock."""

import gzip
import itertools
import json
import threading

import pytest

from chakrascope.tracer._agent import phases, step_clock
from chakrascope.tracer._agent.phases import COLLECTIVE, FORWARD, LOADER, PhaseClock
from chakrascope.tracer._agent.step_clock import StepFile

SECOND = 1_000_000_000


class Clock:
    def __init__(self):
        self.now = 10**18

    def time_ns(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for module in (phases, step_clock):
        monkeypatch.setattr(module, "time", clock)
    return clock


def documents(path):
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_parts_are_written_more_and_more_rarely(tmp_path, clock):
    file = StepFile(tmp_path / "steps", ("index", "time_ns"), lambda: {"rank": 3})
    for number in range(40):
        clock.now += SECOND
        file.add((number, clock.now))
    parts = documents(tmp_path / "steps")
    assert [len(part["steps"]["index"]) for part in parts] == [1, 1, 2, 4, 8, 10, 10]
    assert parts[0] | {"steps": {}} == {"format": "chakrascope-steps", "version": 1, "rank": 3, "steps": {}}
    file.write()
    assert [number for part in documents(tmp_path / "steps") for number in part["steps"]["index"]] == [
        *range(40)
    ]


def test_short_steps_are_thinned_to_the_same_ones_everywhere(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(step_clock, "MAX_BYTES_PER_HOUR", 40_000)
    monkeypatch.setattr(step_clock, "FIRST_BYTES", 0)
    file = StepFile(tmp_path / "steps", ("index", "time_ns"), dict)
    for number in range(40_000):
        clock.now += SECOND // 20
        file.add((number, clock.now * 7 % 1_000_003))
    file.write()
    written = [part["steps"]["index"] for part in documents(tmp_path / "steps")]
    pairs = {one for part in written for one, other in itertools.pairwise(part) if other == one + 1}
    last = sorted(number for number in pairs if number > 20_000)
    (apart,) = {later - earlier for earlier, later in itertools.pairwise(last)}
    assert apart & (apart - 1) == 0
    assert all(number % apart == 0 for number in last)
    assert (tmp_path / "steps").stat().st_size < 40_000


def test_a_failure_leaves_whole_parts_and_its_reason(tmp_path, clock, monkeypatch):
    file = StepFile(tmp_path / "steps", ("index",), dict)
    file.add((0,))
    file.write()
    before = (tmp_path / "steps").read_bytes()
    write = step_clock.os.write
    monkeypatch.setattr(step_clock.os, "write", lambda descriptor, data: write(descriptor, data[:9]))
    for number in (1, 2):
        file.add((number,))
        file.write()
    assert (tmp_path / "steps").read_bytes() == before
    assert (
        file.failure == f"step times end early: {tmp_path / 'steps'}: the disk is full, or a limit on "
        "file sizes was reached"
    )


def test_every_moment_of_the_training_thread_belongs_to_one_phase(clock):
    watch = PhaseClock()
    watch.thread = threading.get_ident()
    clock.now += 1
    before = watch.enter(LOADER)
    clock.now += 10
    within = watch.enter(COLLECTIVE)
    clock.now += 100
    watch.leave(within)
    clock.now += 20
    watch.leave(before)
    clock.now += 2
    assert watch.end_step(clock.now) == (30, 3, 0, 100, 0)
    watch.thread = 0
    assert watch.enter(FORWARD) == -1
    watch.leave(-1)
    clock.now += 5
    assert watch.end_step(clock.now) == (30, 8, 0, 100, 0)
