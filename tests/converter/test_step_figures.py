"""What each captured step spent its time on, and how steps of one kind differ."""

import pytest
from engine_traces import Engine

from chakrascope.converter import convert_files
from chakrascope.converter.checks import step_kinds, step_rows

US = 1000


@pytest.fixture
def served(tmp_path):
    """Return the workload of two prefills and three decodes, of which the host bounds the latter."""
    engine = Engine()
    for count in (40, 44):
        engine.step(f"step[EXTEND bs=2 toks={count}]", [50.0] * count)
    engine.now = engine.free + 500
    for count in (11, 15, 13):
        engine.step("step[DECODE bs=4]", [5.0] * count, pause_us=400)
    return convert_files(None, str(engine.write(tmp_path / "trace.json")), step="all")


def test_each_step_s_time_is_added_up(served):
    rows = step_rows(served)
    assert [row["step"] for row in rows] == [*range(5)]
    for row in rows:
        busy = row["compute_ns"] + row["communication_ns"] + row["copy_ns"]
        assert busy + row["idle_ns"] == row["duration_ns"]
    assert [row["kernels"] for row in rows] == [row["launches"] for row in rows] == [40, 44, 11, 15, 13]
    assert [row["compute_ns"] for row in rows] == [2000 * US, 2200 * US, 55 * US, 75 * US, 65 * US]
    assert [row["duration_ns"] for row in rows[2:]] == pytest.approx([226 * US, 306 * US, 266 * US], abs=US)
    assert rows[3]["gap_before_ns"] == pytest.approx(400 * US, abs=10 * US)
    assert rows[3]["longest_gap_ns"] == pytest.approx(20 * US, abs=5 * US)
    assert rows[3]["host_ns"] == pytest.approx((300 + 400) * US, rel=0.02)


def test_kinds_have_their_spread_and_what_bounds_them(served):
    prefill, decode = step_kinds(step_rows(served))
    assert (prefill["kind"], prefill["steps"], prefill["bound_by"]) == ("prefill", 2, "compute")
    assert (decode["kind"], decode["steps"], decode["bound_by"]) == ("decode", 3, "host")
    assert (decode["requests"], decode["tokens"], decode["kernels"]) == (4, 4, 13)
    times = [decode[name] for name in ("min_ns", "median_ns", "max_ns")]
    assert times == pytest.approx([226 * US, 266 * US, 306 * US], abs=US)


def test_a_step_is_told_of_the_rank_that_took_longest(tmp_path):
    for rank, kernel_us in enumerate((30.0, 90.0)):
        engine = Engine(now=1000.0 + rank)
        for number in range(2):
            engine.step(f"ProfilerStep#{number}", [kernel_us] * 12)
        engine.write(tmp_path / f"rank{rank}.json", rank, 2)
    rows = step_rows(convert_files(None, str(tmp_path / "rank{rank}.json"), step="all"))
    assert [(row["rank"], row["kind"], row["compute_ns"]) for row in rows] == [(1, "", 12 * 90 * US)] * 2
    assert [row["tokens"] for row in rows] == [-1, -1]


def test_a_step_that_overlaps_is_the_same_alone_and_among_others(tmp_path):
    engine = Engine()
    for number in range(4):
        engine.step(f"ProfilerStep#{number}", [60.0] * (20 + number))
    trace = str(engine.write(tmp_path / "trace.json"))
    among = step_rows(convert_files(None, trace, step="all"))[2]
    (alone,) = step_rows(convert_files(None, trace, step=2))
    for name in ("duration_ns", "compute_ns", "idle_ns", "kernels", "launches"):
        assert alone[name] == among[name], name


def test_a_workload_that_was_not_captured_has_no_steps(served):
    served.metadata.pop("step_shares")
    assert (step_rows(served), step_kinds([])) == ([], [])
