import json
import shutil
import struct
from importlib.resources import files

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner import Study
from chakrascope.runner.analysis import folded, link_table, neighbourhood
from chakrascope.viewer import StudyView
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _parts as parts
from chakrascope.viewer.queries import Sides, placed_groups, placed_nodes
from chakrascope.viewer.queries import _details as details
from chakrascope.viewer.queries import _network as network
from chakrascope.viewer.queries import _path as path
from chakrascope.viewer.timeline import _slices as slices


def test_any_two_steps_of_a_capture_are_compared(tmp_path):
    study = Study.create(tmp_path / "study")
    shutil.copytree(files("chakrascope.cli") / "demo_capture", study.trace_dir("job"))
    sides = Sides(StudyView(study))
    groups = {group["group"]: group["items"] for group in sides.options()}
    steps = groups["Captures, one step"]
    assert [item["label"] for item in steps] == ["job, step 4", "job, step 5", "job, step 6"]
    found = sides.diff(steps[0]["value"], steps[1]["value"], None)
    assert [len(side.steps) for side in (found.base, found.other)] == [1, 1]
    (study.trace_dir("job") / "manifest.json").write_text("{")
    assert "Captures, one step" not in {group["group"] for group in sides.options()}


def test_window_over_everything_covers_every_node(run):
    nodes = run.nodes
    batch = slices.SliceIndex(nodes).window(0, int(nodes["end_ns"].max()), 10_000)
    assert batch.count.sum() == len(nodes)


def test_window_of_few_pixels_merges_but_keeps_the_extent(run):
    nodes = run.nodes
    index = slices.SliceIndex(nodes)
    batch = index.window(0, index.makespan_ns, 1)
    assert len(batch.start_ns) == len(index.table)
    assert batch.count.sum() == len(nodes)
    assert batch.end_ns.max() == index.makespan_ns


def test_encoded_batch_has_the_layout_the_script_reads(run):
    nodes = run.nodes
    batch = slices.SliceIndex(nodes).window(0, 10**9, 2000)
    data = batch.encode()
    count, _ = struct.unpack_from("<II", data)
    columns = 8 + count * (3 * 8 + 3 * 4 + 2)
    assert json.loads(data[columns:]) == batch.names
    assert np.frombuffer(data, "<f8", count, 8).tolist() == batch.start_ns.tolist()


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=60), st.integers(1, 50))
def test_no_slice_is_lost_at_any_zoom(durations, pixels):
    ends = np.cumsum(durations)
    nodes = pd.DataFrame(
        {
            "rank": 0,
            "node_id": range(len(ends)),
            "start_ns": ends - durations,
            "end_ns": ends,
            "type": 4,
            "stream": 0,
            "kind": "compute",
            "name": "op",
        }
    )
    index = slices.SliceIndex(nodes)
    assert index.window(-1, int(ends[-1]) + 1, pixels).count.sum() >= np.count_nonzero(durations)


def test_strip_keeps_the_path_whole(run):
    critical = run.path
    assert path.strip(critical, bars=3)["duration_ns"].sum() == critical.segments["duration_ns"].sum()


@given(st.text(max_size=20), st.integers(0, 10**9), st.integers(0, 10**12), st.text(max_size=200))
def test_selection_survives_the_address(name, rank, node, by):
    wanted = Selection(name, rank, node).with_option("by", by)
    assert Selection.parse(wanted.search) == wanted


@pytest.mark.parametrize(
    "search", [None, "", "?", "?run=a&rank=x&node=-4", "?rank=1e9&node=" + "9" * 400, "?%ff=%00"]
)
def test_malformed_address_selects_no_node(search):
    assert not Selection.parse(search).has_node


def test_only_slices_with_room_carry_their_name(run):
    wide = run.slices.window(0, run.slices.makespan_ns, 2000)
    named = wide.name >= 0
    assert {wide.names[place] for place in wide.name[named]} == {"aten::mm", "c10d::allreduce_"}
    assert ((wide.end_ns - wide.start_ns)[named] >= 30 * run.slices.makespan_ns / 2000).all()
    assert (run.slices.window(0, run.slices.makespan_ns, 20).name < 0).all()


def test_flows_lead_to_the_direct_neighbours(run):
    edges = run.workload.graphs[1].edges
    found = details.flows(edges, run.slices, run.node(1, 4))
    assert [flow["before"] for flow in found] == [True, False]
    before, after = found
    start, end = run.slices.lane_of(1, 4)[1:]
    assert before["end_ns"] <= start
    assert after["start_ns"] >= end


def test_flows_lead_to_the_rank_that_came_late(simulated):
    """The odd ranks compute longer, so the even ones wait for them at the first all_reduce."""
    waiting = simulated.node(0, 2)
    origin = (int(waiting["origin_rank"]), int(waiting["origin_node"]))
    assert origin[0] % 2 == 1
    found = details.flows(simulated.workload.graphs[0].edges, simulated.slices, waiting)
    lane, start, _ = simulated.slices.lane_of(*origin)
    assert {"lane": lane, "start_ns": start}.items() <= found[-1].items()


def test_details_say_how_measured_and_simulated_differ(simulated):
    facts = dict(details.node_details(simulated.node(0, 2), slack_ns=0))
    stood_in = dict(details.node_details(simulated.node(0, 2), metadata={"stand_in_of": {"0": 1}}))
    assert (facts["Rank"], stood_in["Rank"]) == ("0", "0, for which rank 1 stands in")
    assert facts["Measured"].startswith("300 µs from 0.420 ms (")
    assert facts["Collective"] == "all_reduce"
    assert facts["Message size"] == "1.00 MiB"
    assert facts["Slack"].startswith("none")


def test_the_ranks_that_others_stand_in_for_are_named():
    assert details.stand_ins_note({}, 4) == ""
    one = details.stand_ins_note({"stand_in_of": {"3": 1}}, 4)
    assert one == "* No usable traces of its own, another rank stands in: rank 1 for rank 3."
    many = details.stand_ins_note({"stand_in_of": {str(rank): 0 for rank in range(1, 20)}}, 20)
    assert many.endswith("rank 0 for rank 8 and 11 more.")


def test_few_edges_cross():
    """Two chains beside each other stay apart, whatever the order of their ids."""
    edges = pd.DataFrame([(0, 1), (0, 2), (1, 4), (2, 3), (3, 5), (4, 6)], columns=["src", "dst"])
    near = neighbourhood(edges.assign(kind=0), 0, 5)
    found = placed_nodes(near).set_index("node_id")["row"]
    assert (found[1] < found[2]) == (found[4] < found[3]) == (found[6] < found[5])


def test_busiest_direction_of_a_link_is_drawn_last(simulated):
    drawn = network.link_map(simulated.result, link_table(simulated.result))
    assert len(drawn.ends) == 9
    assert drawn.ends["is_switch"].sum() == 1
    assert len(drawn.links) == 8
    assert drawn.links["share"].is_monotonic_increasing
    # Each rank stands on the circle, the switch of all of them in its middle.
    radius = np.hypot(drawn.ends["x"], drawn.ends["y"])
    assert np.allclose(radius[~drawn.ends["is_switch"]], 1)
    assert radius[drawn.ends["is_switch"]].max() < 0.2


def test_large_networks_are_not_drawn(simulated):
    many = pd.DataFrame({"src": range(200), "dst": range(1, 201)})
    assert network.link_map(simulated.result, many) is None


def test_strip_of_two_paths_holds_both_whole(run, simulated):
    strip = path.paths_strip(run.path, simulated.path)
    sums = strip.groupby("path")["duration_ns"].sum()
    assert sums.tolist() == [run.path.makespan_ns, simulated.path.makespan_ns]
    assert not path.paths_strip(run.path, run.path)["apart"].any()


def test_table_cuts_long_text_and_keeps_numbers():
    """Text of numbers would be sorted as text, and formatted by nothing."""
    table = pd.DataFrame({"text": ["x" * 400, "y"], "number": [2, 7], "cost": [0.5, 1.5]}).astype(object)
    rows = parts.records(table)
    assert [len(rows[0]["text"]), rows[1]["text"]] == [300, "y"]
    assert [(row["number"], row["cost"]) for row in rows] == [(2, 0.5), (7, 1.5)]


@pytest.mark.parametrize("fold", ["modules", "phases", "streams", "ranks"])
def test_no_two_groups_stand_in_one_place(simulated, fold):
    groups = folded(simulated, 1, fold, simulated.workload.graphs[1].edges)
    placed = placed_groups(groups, square=fold == "ranks")
    assert len(placed) == len(groups.nodes)
    assert not placed.duplicated(["column", "row"]).any()
