"""What fills a part of the timeline, and all of it as a Chrome trace."""

import json

import numpy as np

from chakrascope.runner.analysis import area_overview, area_table, chrome_trace


def test_area_of_everything_holds_every_nanosecond(run):
    found = run.lanes.area(-5, run.lanes.makespan_ns + 5, range(len(run.lanes.table)))
    assert sorted(found["row"]) == list(range(len(run.nodes)))
    assert found["inside_ns"].sum() == (run.nodes["end_ns"] - run.nodes["start_ns"]).sum()


def test_area_cuts_the_slices_at_its_edges(run):
    inside = run.lanes.area(100_000, 200_000, range(1))
    assert run.nodes["name"].iloc[inside["row"]].tolist() == ["aten::mm"]
    assert inside["inside_ns"].tolist() == [100_000]
    assert dict(area_overview(run.nodes, inside, 100_000))["Computation"] == "100 µs in 1 slice"
    table = area_table(run.nodes, inside)
    assert table[["operator", "slices", "total_ns", "measured_ns"]].to_numpy().tolist() == [
        ["aten::mm", 1, 100_000, 0]
    ]


def test_empty_area_has_no_operators(run):
    inside = run.lanes.area(-10, -5, range(1))
    assert area_table(run.nodes, inside).empty
    assert dict(area_overview(run.nodes, inside, 5))["Slices"] == "0 of 0 ranks"


def test_measured_lanes_lie_above_the_simulated_ones_of_their_rank(run):
    both = run.measured_lanes
    lanes = both.table
    assert lanes["measured"].tolist() == [True, True, False, False] * 2
    assert lanes.loc[~lanes["measured"], "label"].tolist() == ["compute", "communication"] * 2
    inside = both.area(-5, both.makespan_ns + 5, range(2))
    own = run.nodes[run.nodes["rank"] == 0]
    assert inside["inside_ns"].sum() == own["duration_ns"].sum()
    assert inside["measured"].all()
    table = area_table(run.nodes, both.area(-5, both.makespan_ns + 5, range(4)))
    assert (table["total_ns"] == table["measured_ns"]).all()
    # The run replays what was measured, so that both bands show a node at the same time.
    lane, start, end = both.lane_of(1, 4)
    assert lane == 6
    assert (start, end) == run.lanes.lane_of(1, 4)[1:]
    assert both.lanes_of(np.array([1, 1]), np.array([4, 999])).tolist() == [6, -1]


def test_chrome_trace_keeps_every_nanosecond(run):
    events = json.loads("".join(chrome_trace(run.nodes, run.lanes, run.path)))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    ranks = [event for event in slices if event["pid"] < 2]
    along = [event for event in slices if event["pid"] == 2]
    assert len(ranks) == len(run.nodes)
    assert {round(event["ts"] * 1000) for event in ranks} == set(run.nodes["start_ns"])
    assert round(sum(event["dur"] for event in along) * 1000) == run.result.makespan_ns
    assert all(event["args"]["reason"] for event in along)
