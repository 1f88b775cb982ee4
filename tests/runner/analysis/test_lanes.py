"""Lanes: what lies above slices, what overlaps, and what fills an area."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner.analysis import Lanes, area_names, area_overview, area_table, chrome_trace

SPANS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(10**4, 10**5)), min_size=1, max_size=24)


def nodes_of(rows):
    base = {"rank": 0, "type": 4, "stream": 0, "kind": "compute", "phase": "", "module": "", "operator": ""}
    table = pd.DataFrame([base | {"node_id": i, "name": f"n{i}"} | row for i, row in enumerate(rows)])
    return table.assign(end_ns=table["start_ns"] + table["length"])


def chain(*rows):
    """Return nodes that follow each other, 100 ns each, given as (module, phase, operator)."""
    return nodes_of(
        [
            {"start_ns": 100 * i, "length": 100, "module": module, "phase": phase, "operator": operator}
            for i, (module, phase, operator) in enumerate(rows)
        ]
    )


@given(SPANS)
def test_slices_of_a_stream_that_overlap_lie_beside_each_other(spans):
    lanes = Lanes(nodes_of([{"start_ns": start, "length": length} for start, length in spans]))
    assert sorted(lanes.row) == list(range(len(spans)))
    for lane in range(len(lanes.table)):
        own = lanes.lane == lane
        overlap = lanes.end_ns[own][:-1] - lanes.start_ns[own][1:]
        assert len(lanes.table) == 8 or (overlap <= 2_000).all()


def test_lanes_beside_each_other_are_named():
    lanes = Lanes(nodes_of([{"start_ns": 0, "length": 50_000}, {"start_ns": 10_000, "length": 50_000}]))
    assert lanes.table["label"].tolist() == ["compute", "compute · 2"]
    assert lanes.lane_of(0, 1) == (1, 10_000, 60_000)


def test_more_than_eight_at_a_time_share_the_last_lanes():
    lanes = Lanes(nodes_of([{"start_ns": i, "length": 10**6} for i in range(12)]))
    assert len(lanes.table) == 8
    assert len(lanes.row) == 12


def test_phases_modules_and_operators_lie_above_their_nodes():
    nodes = chain(
        ("net", "forward", "conv"),
        ("net.a", "forward", "conv"),
        ("net.a", "forward", "relu"),
        ("net.b", "forward", "relu"),
        ("net.a", "backward", "conv"),
    )
    lanes = Lanes(nodes, nested=True)
    assert lanes.table["level"].tolist() == ["phase", "module", "module", "operator", "slice"]
    shown = [
        [
            (lanes.labels[lanes.label[i]], int(lanes.start_ns[i]), int(lanes.end_ns[i]))
            for i in np.flatnonzero(lanes.lane == lane)
        ]
        for lane in range(4)
    ]
    assert shown[0] == [("forward", 0, 400), ("backward", 400, 500)]
    assert shown[1] == [("net", 0, 400), ("net", 400, 500)]
    assert shown[2] == [("net.a", 100, 300), ("net.b", 300, 400), ("net.a", 400, 500)]
    # Operators end with their module.
    assert shown[3] == [
        ("conv", 0, 100), ("conv", 100, 200), ("relu", 200, 300), ("relu", 300, 400), ("conv", 400, 500)
    ]  # fmt: skip
    assert lanes.lane_of(0, 2) == (4, 200, 300)


def test_an_operator_that_only_repeats_the_names_has_no_row():
    nodes = chain(("", "", "n0"), ("", "", "n1"))
    assert Lanes(nodes, nested=True).table["level"].tolist() == ["slice"]


def test_host_time_between_operators_does_not_end_their_module():
    nodes = chain(("a.b", "", ""), ("", "", ""), ("a.b", "", ""))
    nodes.loc[1, "kind"] = "host"
    lanes = Lanes(nodes, nested=True)
    own = np.flatnonzero(lanes.label >= 0)
    assert [(lanes.labels[lanes.label[i]], int(lanes.end_ns[i])) for i in own] == [("a.b", 300)]


def test_communication_stays_as_it_is(run):
    lanes = Lanes(run.nodes, nested=True)
    of_comm = lanes.table[lanes.table["label"] == "communication"]
    assert of_comm["level"].tolist() == ["slice", "slice"]


def test_names_of_an_area_sum_what_is_in_it(run):
    lanes = Lanes(run.nodes, nested=True)
    table = area_names(run.nodes, lanes.area(-5, lanes.makespan_ns + 5, range(len(lanes.table))))
    by_row = table.groupby("row")["total_ns"].sum()
    assert by_row["slice"] == (run.nodes["end_ns"] - run.nodes["start_ns"]).sum()
    products = run.nodes[run.nodes["name"] == "aten::mm"]
    found = table[(table["name"] == "aten::mm") & (table["row"] == "slice")].iloc[0]
    assert found["slices"] == len(products)
    assert found["total_ns"] == (products["end_ns"] - products["start_ns"]).sum()


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
