"""Lanes: parents of slices, overlaps, and sums over an area."""

import gzip
import json
from collections import defaultdict

import command_line
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import make_captured_study, study_of
from workloads import coll, comp, workload

from chakrascope.cli._views import _stacks_shown, print_stacks
from chakrascope.converter import convert_files
from chakrascope.converter.readers import HostCalls
from chakrascope.errors import BackendError
from chakrascope.runner import measured_result
from chakrascope.runner.analysis import (
    TABLES,
    Lanes,
    analyse_run,
    area_names,
    area_overview,
    area_table,
    at_measured_times,
    chrome_trace,
    host_stack_table,
    path_at_measured_times,
)
from chakrascope.runner.analysis._host_stacks import stacks_of_calls

SPANS = st.lists(st.tuples(st.integers(0, 10**6), st.integers(10**4, 10**5)), min_size=1, max_size=24)


def nodes_of(rows):
    base = {"rank": 0, "type": 4, "stream": 0, "kind": "compute", "phase": "", "module": "", "operator": ""}
    table = pd.DataFrame([base | {"node_id": i, "name": f"n{i}"} | row for i, row in enumerate(rows)])
    return table.assign(end_ns=table["start_ns"] + table["length"])


def chain(*rows):
    """Return consecutive nodes of 100 ns each, given as (module, phase, operator)."""
    return nodes_of(
        [
            {"start_ns": 100 * i, "length": 100, "module": module, "phase": phase, "operator": operator}
            for i, (module, phase, operator) in enumerate(rows)
        ]
    )


@given(SPANS)
def test_overlapping_slices_get_separate_tracks(spans):
    lanes = Lanes(nodes_of([{"start_ns": start, "length": length} for start, length in spans]))
    assert sorted(lanes.row) == list(range(len(spans)))
    for lane in range(len(lanes.table)):
        own = lanes.lane == lane
        overlap = lanes.end_ns[own][:-1] - lanes.start_ns[own][1:]
        assert len(lanes.table) == 8 or (overlap <= 2_000).all()


def test_adjacent_lanes_are_named():
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


def test_communication_is_unchanged(run):
    lanes = Lanes(run.nodes, nested=True)
    of_comm = lanes.table[lanes.table["label"] == "communication"]
    assert of_comm["level"].tolist() == ["slice", "slice"]


def test_area_is_summed_by_name(run):
    lanes = Lanes(run.nodes, nested=True)
    table = area_names(run.nodes, lanes.area(-5, lanes.makespan_ns + 5, range(len(lanes.table))))
    by_row = table.groupby("row")["total_ns"].sum()
    assert by_row["slice"] == (run.nodes["end_ns"] - run.nodes["start_ns"]).sum()
    products = run.nodes[run.nodes["name"] == "aten::mm"]
    found = table[(table["name"] == "aten::mm") & (table["row"] == "slice")].iloc[0]
    assert found["slices"] == len(products)
    assert found["total_ns"] == (products["end_ns"] - products["start_ns"]).sum()


def test_area_of_everything_holds_every_nanosecond(run):
    lanes = Lanes(run.nodes)
    found = lanes.area(-5, lanes.makespan_ns + 5, range(len(lanes.table)))
    assert sorted(found["row"]) == list(range(len(run.nodes)))
    assert found["inside_ns"].sum() == (run.nodes["end_ns"] - run.nodes["start_ns"]).sum()


def test_area_cuts_the_slices_at_its_edges(run):
    inside = Lanes(run.nodes).area(100_000, 200_000, range(1))
    assert run.nodes["name"].iloc[inside["row"]].tolist() == ["aten::mm"]
    assert inside["inside_ns"].tolist() == [100_000]
    assert dict(area_overview(run.nodes, inside, 100_000))["Computation"] == "100 µs in 1 slice"
    table = area_table(run.nodes, inside)
    assert table[["operator", "slices", "total_ns"]].to_numpy().tolist() == [["aten::mm", 1, 100_000]]


def test_empty_area_has_no_operators(run):
    inside = Lanes(run.nodes).area(-10, -5, range(1))
    assert area_table(run.nodes, inside).empty
    assert dict(area_overview(run.nodes, inside, 5))["Slices"] == "0 of 0 ranks"


def test_measured_times_replace_simulated_ones(run):
    late = run.nodes.assign(start_ns=run.nodes["start_ns"] + 70, end_ns=run.nodes["end_ns"] + 170)
    late.loc[0, "measured_start_ns"] = -1
    late.loc[2, "kind"] = "idle"
    late.loc[3, "duration_ns"] += 50
    nodes = at_measured_times(late)
    assert nodes["node_id"].tolist() == late["node_id"].drop([0, 2]).tolist()
    lanes = Lanes(nodes)
    assert lanes.table["label"].tolist() == ["compute", "communication"] * 2
    # The run replays the measured times.
    replayed = Lanes(run.nodes)
    assert lanes.lane_of(1, 4) == replayed.lane_of(1, 4)
    assert lanes.lane_of(0, int(late["node_id"][0])) == (-1, 0, 0)
    assert lanes.lanes_of(np.array([1, 1]), np.array([4, 999])).tolist() == [2, -1]
    # A thread does one thing at a time.
    assert lanes.lane_of(0, 3) == replayed.lane_of(0, 3)


def test_path_at_measured_times_ends_with_its_nodes(run):
    timed = path_at_measured_times(run.workload, run.path.unreasoned)
    assert len(timed) == (run.path.unreasoned["node_id"] >= 0).sum()
    by_node = run.nodes.set_index(["rank", "node_id"])
    measured = by_node.loc[list(zip(timed["rank"], timed["node_id"], strict=True))]
    begins = measured["measured_start_ns"].to_numpy()
    assert (timed["end_ns"].to_numpy() == begins + measured["duration_ns"].to_numpy()).all()
    assert (timed["start_ns"].to_numpy() >= begins).all()
    assert (timed["start_ns"] < timed["end_ns"]).all()


def test_chrome_trace_keeps_every_nanosecond(run):
    events = json.loads("".join(chrome_trace([(run.nodes, Lanes(run.nodes))], run.path.segments)))[
        "traceEvents"
    ]
    slices = [event for event in events if event["ph"] == "X"]
    ranks = [event for event in slices if event["pid"] < 2]
    along = [event for event in slices if event["pid"] == 2]
    assert len(ranks) == len(run.nodes)
    assert {round(event["ts"] * 1000) for event in ranks} == set(run.nodes["start_ns"])
    assert round(sum(event["dur"] for event in along) * 1000) == run.result.makespan_ns
    assert all(event["args"]["reason"] for event in along)


# The time of each stream of a device: its parts add up to its span.


PARTS = ["compute_ns", "comm_ns", "copy_ns", "idle_ns"]


def streams_of(folder, program, network=None):
    backend = "analytical-unaware" if network else "replay"
    study = study_of(folder, program, network, backend=backend, semantics="trace")
    table = TABLES["streams"](analyse_run(study))
    assert (table[PARTS].sum(axis=1) == table["span_ns"]).all()
    return table


def test_each_stream_has_its_parts_and_its_idle_time(tmp_path):
    copy = {"kind": "copy", "name": "Memcpy HtoD"}
    nodes = [
        comp(0, 500, kind="host", operator="", is_cpu_op=True, stream=0),
        comp(1, 2_000, (0,), stream=1007),
        comp(2, 700, (1,), stream=1007, kind="idle", name="device latency before op3"),
        comp(3, 1_000, (2,), stream=1007, **copy),
        comp(4, 900, (1,), stream=1020),
        comp(5, 400, (3, 4), stream=1020, kind="communication", name="all_reduce of unknown size"),
        comp(6, 3_000, (0,), stream=2007),
    ]
    table = streams_of(tmp_path, workload(nodes)).set_index(["device", "stream"])
    columns = ["nodes", "span_ns", *PARTS]
    assert {key: tuple(row) for key, row in table[columns].iterrows()} == {
        (0, "stream 7"): (2, 3_700, 2_000, 0, 1_000, 700),
        (0, "stream 20"): (2, 2_100, 900, 400, 0, 800),
        (1, "stream 7"): (1, 3_000, 3_000, 0, 0, 0),
    }


def test_communication_of_a_simulated_network_is_a_row_of_each_rank(tmp_path):
    ranks = [[comp(0, 1_000 * (rank + 1)), coll(1, 1 << 20, (0,))] for rank in range(2)]
    table = streams_of(tmp_path, workload(*ranks), "ring-2")
    assert list(zip(table["rank"], table["stream"], strict=True)) == [
        (0, "compute"), (0, "communication"), (1, "compute"), (1, "communication"),
    ]  # fmt: skip
    assert table["compute_ns"].tolist() == [1_000, 0, 2_000, 0]
    assert table["comm_ns"].tolist()[1] >= table["comm_ns"].tolist()[3] > 0


def test_streams_of_a_public_trace_are_its_plain_sums(data_dir, tmp_path):
    path = data_dir / "converter" / "kineto" / "alexnet.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    sums, ends = defaultdict(int), defaultdict(list)
    for event in events:
        column = {"kernel": "compute_ns", "gpu_memcpy": "copy_ns", "gpu_memset": "copy_ns"}.get(
            event.get("cat")
        )
        if column:
            stream = f"stream {event['args']['stream']}"
            sums[stream, column] += round(event["dur"] * 1000)
            ends[stream] += [event["ts"] * 1000, (event["ts"] + event["dur"]) * 1000]
    table = streams_of(tmp_path, convert_files(None, str(path))).set_index("stream")
    assert set(table.index) == set(ends)
    for stream, row in table.iterrows():
        for column in ("compute_ns", "copy_ns"):
            assert row[column] == sums[stream, column]
        assert row["span_ns"] == pytest.approx(max(ends[stream]) - min(ends[stream]), rel=0.01)


def test_a_run_without_device_work_says_so(tmp_path, capsys):
    assert streams_of(tmp_path, workload([comp(0, 500, kind="host", is_cpu_op=True)])).empty
    code = command_line.run("summary", tmp_path / "study", "--view", "streams")
    assert code != 0
    assert "No rank of this run computes on a device" in capsys.readouterr().err


# Host calls by stack: totals, self times, and the part of the critical path.


NONE = np.zeros((0, 2), np.int64)


def calls_of(*rows):
    """Return calls of (thread, start, end, name)."""
    thread, start, end, name = zip(*rows, strict=True)
    names = sorted({*name})
    numbers = [names.index(each) for each in name]
    columns = [np.array(column, np.int64) for column in (thread, range(len(rows)), start, end, numbers)]
    return HostCalls(*columns, threads=["main", "autograd"], names=names)


def rows_of(table):
    columns = ["thread", "depth", "name", "calls", "total_ns", "self_ns", "on_path_ns"]
    return list(table[columns].itertuples(index=False, name=None))


NESTED = calls_of(
    (0, 0, 100, "step"),
    (0, 10, 40, "forward"),
    (0, 15, 25, "mm"),
    (0, 50, 90, "forward"),
    (0, 60, 70, "mm"),
    (1, 20, 60, "backward"),
)


def test_equal_stacks_are_summed_below_their_callers():
    path = np.array([[12, 20], [65, 95]])
    assert rows_of(stacks_of_calls(NESTED, path)) == [
        ("main", 0, "step", 1, 100, 30, 38),
        ("main", 1, "forward", 2, 70, 50, 33),
        ("main", 2, "mm", 2, 20, 20, 10),
        ("autograd", 0, "backward", 1, 40, 40, 0),
    ]


def test_window_counts_only_overlapping_time():
    assert rows_of(stacks_of_calls(NESTED, NONE, (20, 65))) == [
        ("main", 0, "step", 1, 45, 10, 0),
        ("main", 1, "forward", 2, 35, 25, 0),
        ("main", 2, "mm", 2, 10, 10, 0),
        ("autograd", 0, "backward", 1, 40, 40, 0),
    ]
    assert rows_of(stacks_of_calls(NESTED, NONE, (200, 300))) == []


def test_calls_end_with_their_caller():
    calls = calls_of((0, 0, 10, "a"), (0, 5, 15, "b"), (0, 12, 14, "c"), (0, 6, 6, "d"))
    assert rows_of(stacks_of_calls(calls, NONE)) == [
        ("main", 0, "a", 1, 10, 5, 0),
        ("main", 1, "b", 1, 5, 5, 0),
        ("main", 2, "d", 1, 0, 0, 0),
        ("main", 0, "c", 1, 2, 2, 0),
    ]


def test_a_terminal_leaves_out_the_frames_that_only_lead_to_the_work():
    frames = ((0, 0, 1000, "main"), (0, 1, 1000, "run"), (0, 2, 900, "step"))
    table = stacks_of_calls(calls_of(*frames, (0, 2, 500, "mm"), (0, 600, 900, "mm")), NONE)
    shown = _stacks_shown(table.assign(rank=0))
    assert shown["name"].tolist() == ["main: run", " step", "  mm"]


def test_the_stacks_of_a_capture_sum_to_its_step(data_dir, tmp_path, capsys):
    study, _ = make_captured_study(tmp_path, data_dir)
    run = analyse_run(study, None)
    table = host_stack_table(run)
    first = table[(table["rank"] == 0) & (table["name"] == "ProfilerStep#4")].iloc[0]
    assert first["total_ns"] == measured_result(run.workload).makespan_ns
    path = run.path.unreasoned
    of_host = (path["kind"] == "host") & (path["rank"] == 0)
    assert first["on_path_ns"] == path.loc[of_host, "duration_ns"].sum() > 0
    for _, rows in table.groupby(["rank", "thread"]):
        assert rows["self_ns"].min() >= 0
        assert rows["self_ns"].sum() == rows.loc[rows["depth"] == 0, "total_ns"].sum()
    print_stacks(run, [0], (0, 1 << 62), "table")
    assert "ProfilerStep#4" in capsys.readouterr().out
    study.trace_dir("mlp").rename(tmp_path / "elsewhere")
    with pytest.raises(BackendError, match="device traces of this run's workload are missing here"):
        print_stacks(analyse_run(study, None), [0], (0, 1 << 62), "table")
