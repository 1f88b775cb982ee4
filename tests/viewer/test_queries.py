"""Queries of pages: runs, SQL, calibrations and programs."""

from __future__ import annotations

import dataclasses
import itertools
import json
import shutil
import struct
from dataclasses import replace
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import run_in

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, Study, prepare, simulate
from chakrascope.runner.analysis import calibration_table, fitted_network, folded, link_table, neighbourhood
from chakrascope.runner.calibration import Call, Records, Transfer, calibrate_records, calibrated_network
from chakrascope.runner.config import SystemConfig
from chakrascope.runner.programs import inspect_program, named_program, read_program
from chakrascope.viewer import OpenRun, StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.charts import calibration_fit, has_arrows, pairs_chart, program_chart
from chakrascope.viewer.pages import _network as network_page
from chakrascope.viewer.pages import _network as programs
from chakrascope.viewer.pages import _parts as parts
from chakrascope.viewer.queries import Sides, placed_groups, placed_nodes
from chakrascope.viewer.queries import _details as details
from chakrascope.viewer.queries import _network as network

from .conftest import serving, settle, whole
from .test_accessibility import settled_violations


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


def timeline_of(run):
    return run.rows(measured=False, nested=False)


def test_window_of_few_pixels_merges_but_keeps_the_extent(run):
    nodes = run.nodes
    index = whole(nodes)
    batch = index.window(0, index.makespan_ns, 1)
    assert len(batch.start_ns) == len(index.table)
    assert batch.count.sum() == len(nodes)
    assert batch.end_ns.max() == index.makespan_ns


def test_encoded_batch_has_the_layout_the_script_reads(run):
    nodes = run.nodes
    batch = whole(nodes).window(0, 10**9, 2000)
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
    index = whole(nodes)
    assert index.window(-1, int(ends[-1]) + 1, pixels).count.sum() >= np.count_nonzero(durations)


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
    wide = timeline_of(run).window(0, timeline_of(run).makespan_ns, 2000)
    named = wide.name >= 0
    assert {wide.names[place] for place in wide.name[named]} == {"aten::mm", "c10d::allreduce_"}
    assert ((wide.end_ns - wide.start_ns)[named] >= 30 * timeline_of(run).makespan_ns / 2000).all()
    assert (timeline_of(run).window(0, timeline_of(run).makespan_ns, 20).name < 0).all()


def test_flows_lead_to_the_direct_neighbours(run):
    edges = run.workload.graphs[1].edges
    found = details.flows(edges, timeline_of(run), run.node(1, 4))
    assert [flow["before"] for flow in found] == [True, False]
    before, after = found
    start, end = timeline_of(run).lane_of(1, 4)[1:]
    assert before["end_ns"] <= start
    assert after["start_ns"] >= end


def test_flows_lead_to_the_rank_that_came_late(simulated):
    """The odd ranks compute longer, so the even ones wait for them at the first all_reduce."""
    waiting = simulated.node(0, 2)
    origin = (int(waiting["origin_rank"]), int(waiting["origin_node"]))
    assert origin[0] % 2 == 1
    found = details.flows(simulated.workload.graphs[0].edges, timeline_of(simulated), waiting)
    lane, start, _ = timeline_of(simulated).lane_of(*origin)
    assert {"lane": lane, "start_ns": start}.items() <= found[-1].items()


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"cause": "process_wait", "place": "step (a.py:3)", "num_ops": 1, "tensor_size_bytes": 1},
         {"Cause": "Waiting for another process or thread in step (a.py:3)"}),
        ({"cause": "dispatch", "num_ops": 1, "tensor_size_bytes": 1}, {"Cause": "Dispatch and launches"}),
        ({"place": "step (a.py:3)", "num_ops": 8, "tensor_size_bytes": 1024},
         {"Operations": "8", "Tensors": "1.00 KiB"}),
    ],
)  # fmt: skip
def test_details_name_the_cause_of_host_work_and_known_costs(simulated, facts, shown):
    unknown = {"cause": "", "place": "", "num_ops": -1, "tensor_size_bytes": -1}
    found = dict(details.node_details(simulated.node(0, 0) | unknown | facts))
    assert {name: found[name] for name in ("Cause", "Operations", "Tensors") if name in found} == shown


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
    assert one == "* These ranks have no usable traces; another rank stands in: rank 1 for rank 3."
    many = details.stand_ins_note({"stand_in_of": {str(rank): 0 for rank in range(1, 20)}}, 20)
    assert many.endswith("rank 0 for rank 8 and 11 more.")


def test_few_edges_cross():
    """Two parallel chains stay separate, regardless of the order of their ids."""
    edges = pd.DataFrame([(0, 1), (0, 2), (1, 4), (2, 3), (3, 5), (4, 6)], columns=["src", "dst"])
    near = neighbourhood(edges.assign(kind=0), 0, 5)
    found = placed_nodes(near).nodes.set_index("node_id")["row"]
    assert (found[1] < found[2]) == (found[4] < found[3]) == (found[6] < found[5])


def test_long_edges_bend_around_nodes():
    """The edge from 0 to 3 crosses the layers of 1 and 2; node 9 stands directly before its dependent."""
    edges = pd.DataFrame([(0, 1), (1, 2), (2, 3), (0, 3), (9, 3)], columns=["src", "dst"])
    placed = placed_nodes(neighbourhood(edges.assign(kind=0), 0, 5))
    found = placed.nodes.set_index("node_id")
    assert found["layer"].to_dict() == {0: 0, 1: 1, 2: 2, 9: 2, 3: 3}
    assert [[layer for layer, _ in bends] for bends in placed.bends] == [[], [], [], [1, 2], []]
    places = [*zip(found["layer"], found["row"], strict=True), *itertools.chain(*placed.bends)]
    assert len(set(places)) == len(places)


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
    strip = details.paths_strip(run.path, simulated.path)
    sums = strip.groupby("path")["duration_ns"].sum()
    assert sums.tolist() == [run.path.makespan_ns, simulated.path.makespan_ns]
    assert not details.paths_strip(run.path, run.path)["apart"].any()


def test_a_bar_of_the_path_is_of_one_rank_and_within_a_pixel(run):
    segments = run.path.segments
    strip = details.strip(run.path, bars=2)
    assert strip["duration_ns"].sum() == run.path.makespan_ns
    assert strip["count"].sum() == len(segments)
    half = run.path.makespan_ns / 2
    runs = (segments.assign(half=(segments["start_ns"] // half))[["half", "rank"]].diff() != 0).any(axis=1)
    assert len(strip) == runs.sum()


def test_table_cuts_long_text_and_keeps_numbers():
    """Numbers as text would be sorted as text, and not be formatted."""
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


# The Query page in a real browser: examples, answers, errors and Cancel.

ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000) b"


@pytest.mark.skipif(find_spec("duckdb") is None, reason="SQL is an extra")
@pytest.mark.browser
def test_an_example_is_asked_answered_exported_and_in_the_address(visit, made):
    page = visit("/query", f"?run={made.run_a}")
    page.wait_for_selector("#query-tables .ag-row", state="attached")
    page.locator("#query-go").click()
    page.wait_for_selector("#query-table .ag-row", state="attached")
    page.wait_for_url("**sql=SELECT**")
    with page.expect_download() as caught:
        page.locator("#query-answer a[href*='/export/query.csv']").click()
    assert caught.value.path().read_text().startswith("operator,kind,segments,on_path_ns")
    page.locator("#query-sql").fill("SELECT 42 AS answer")
    page.wait_for_selector("#query-answer.stale")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#query-answer:not(.stale) .ag-header-cell[col-id='answer']", state="attached")
    page.locator("#query-sql").fill("SELECT sum(n.rank) - sum(n.rank) + 7 FROM nodes n")
    page.wait_for_selector("#query-answer.stale")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#query-table .ag-cell:has-text('7')", state="attached")


@pytest.mark.skipif(find_spec("duckdb") is None, reason="SQL is an extra")
@pytest.mark.browser
def test_refused_queries_are_explained_and_long_ones_cancelled(visit, made):
    page = visit("/query", f"?run={made.run_a}")
    page.locator("#query-sql").fill("SELECT * FROM read_text('/etc/passwd')")
    page.locator("#query-go").click()
    page.wait_for_selector("#query-error:has-text('disabled')")
    page.locator("#query-sql").fill(ENDLESS)
    page.locator("#query-go").click()
    page.locator("#query-cancel:not([disabled])").click()
    page.wait_for_selector("#query-answer:has-text('cancelled')")


@pytest.mark.skipif(find_spec("duckdb") is None, reason="SQL is an extra")
@pytest.mark.browser
def test_the_page_of_an_address_with_a_query_is_quiet(visit, made):
    page = visit("/query", f"?run={made.run_a}&sql=SELECT+42+AS+answer")
    page.wait_for_selector("#query-tables .ag-row", state="attached")
    assert page.locator("#query-sql").input_value() == "SELECT 42 AS answer"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


# The Network page of a run with a calibrated network: fit, intervals, unknown values, provenance.

LATENCY_NS, NS_PER_BYTE = 20_000, 10.0
SIZES = [1 << power for power in range(12, 22, 2)]


def made_of(sizes):
    transfers = [
        Transfer((0, 1), (Call(operation, size),), round(factor * size * NS_PER_BYTE + LATENCY_NS), 0)
        for operation, factor in (("all_reduce", 1), ("all_gather", 3), ("message", 1))
        for size in sizes
        for _ in range(3)
    ]
    records = Records(tuple(transfers), 2, "two hosts of <b>mine</b>", left_out=("1 broadcast",))
    found = calibrate_records(records, SystemConfig.preset("default", 1))
    return calibrated_network(found, "mine", "2026-11-22")


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    study = Study.create(tmp_path_factory.mktemp("calibrated") / "study")
    program, config = microbenchmark("all-reduce", 2, 4096), made_of(SIZES)
    return StudyView(study).open(run_in(study, program, config, backend="analytical-unaware"))


def test_the_page_shows_the_fit_and_what_is_not_known(opened):
    shown = str(network_page.layout(opened, Selection(), "light"))
    assert "two hosts of <b>mine</b>" in shown  # text, which Dash escapes
    assert "1 broadcast" in shown
    assert "the records do not contain the ranks" in shown
    assert "95 %" in shown


def test_every_measurement_is_drawn_and_in_the_table(opened):
    points = calibration_table(opened.result.provenance)
    assert len(points) == 3 * len(SIZES)
    assert points.loc[points["operation"] == "all_gather", "error"].abs().max() < 0.01
    assert (points["messages_ns"] <= points["model_ns"]).all()
    drawn = [trace for trace in calibration_fit(points, "dark").data if trace.mode == "markers"]
    assert sorted(len(trace.x) for trace in drawn) == [len(SIZES)] * 3


def test_the_fit_has_ticks_around_any_measurements(opened):
    points = calibration_table(opened.result.provenance)
    for size, time in ((4 << 20, 15_000_000), (8, 900), (1 << 40, 10**12)):
        alone = points.head(1).assign(size_bytes=size, measured_ns=time, model_ns=time, messages_ns=time)
        for table in (alone, pd.concat([alone, points])):
            layout = calibration_fit(table, "light").layout
            for ticks, of in ((layout.xaxis.tickvals, "size_bytes"), (layout.yaxis.tickvals, "measured_ns")):
                values = table[of] / (1 if of == "size_bytes" else 1e6)
                assert 2 <= len(ticks) <= 9
                assert ticks[0] <= values.min()
                assert ticks[-1] >= values.max()


@pytest.mark.parametrize(
    "calibration",
    [{}, {"points": 3}, {"points": [1, {"operation": "x"}]}, {"dimensions": [7, {}], "undetermined": "text"},
     {"points": [{"operation": "x", "size-bytes": 0, "measured-ns": 1, "model-ns": 1}]},
     {"points": [{"operation": "x", "size-bytes": 8, "measured-ns": "1", "model-ns": 1}]},
     {"points": [{"operation": "x", "size-bytes": 1 << 63, "measured-ns": 1e18, "model-ns": 0.4}]}],
)  # fmt: skip
def test_what_somebody_wrote_by_hand_is_no_reason_to_fail(opened, calibration):
    plain = NetworkConfig(("Switch",), (2,), (1.0,), (1.0,)).to_dict()
    provenance = opened.result.provenance | {"network": plain | {"calibration": calibration}}
    result = dataclasses.replace(opened.result, provenance=provenance)
    assert (fitted_network(provenance) is None) == (not calibration)
    run = type(opened)(opened.view, opened.info, result, opened.workload)
    network_page.layout(run, Selection(), "light")


def test_the_table_of_the_calibration_is_exported(opened):
    client = create_app(opened.view.study).server.test_client()
    given = client.get(f"/export/calibration.csv?run={opened.info.id}").text
    assert len(given.splitlines()) == 1 + 3 * len(SIZES)


# The picture of a collective program on the Network page.

HIERARCHICAL = Path(__file__).parents[1] / "data" / "runner" / "programs" / "hierarchical_allreduce.xml.gz"
NETWORK = "hgx-h100-8"


@pytest.fixture(scope="module")
def with_programs(tmp_path_factory):
    """A study with a run of each: a file and a named program by size, and the system's own algorithm."""
    study = Study.create(tmp_path_factory.mktemp("programs") / "study")
    study.add_workload(microbenchmark("all-reduce", 8, 1 << 20), "job")
    prefix = study.workload_prefix("job")
    runs = []
    for algorithms in ({"all-reduce": [str(HIERARCHICAL)]}, {"all-reduce": ["nccl-ring:LL:2"]}, None):
        experiment = prepare(prefix, "default", NETWORK, algorithms=algorithms)
        result = simulate(prefix, "default", NETWORK, algorithms=algorithms)
        runs.append(study.add_run(experiment, result, workload="job"))
    return study, runs


def test_programs_of_a_run_are_read_from_its_copies(with_programs):
    study, (filed, named, plain) = with_programs
    view = StudyView(study)
    ((demand, program),) = view.open(filed).programs.items()
    assert (demand.collective, demand.ranks, demand.size_bytes) == ("all-reduce", 8, 1 << 20)
    assert Path(program.source).is_relative_to(study.path)
    assert program.ranks == read_program(HIERARCHICAL).ranks
    assert [each.name for each in view.open(named).programs.values()] == [
        named_program("nccl-ring:LL:2", "all-reduce", 8).name
    ]
    assert not view.open(plain).programs
    assert programs.programs_card(view.open(plain)) == []


def test_losses_are_reported(with_programs):
    study, (filed, *_) = with_programs
    part = {"later": "programs"}
    body = {
        "output": '{"later":["MATCH"]}.children',
        "outputs": {"id": part, "property": "children"},
        "inputs": [{"id": part, "property": "id", "value": part}],
        "changedPropIds": ['{"later":"programs"}.id'],
        "state": [
            {"id": "run", "property": "data", "value": filed},
            {"id": "dark", "property": "checked", "value": False},
        ],
    }
    kept = next(study.path.rglob("*hierarchical_allreduce*"))
    content = kept.read_bytes()
    kept.unlink()
    try:
        answer = create_app(study).server.test_client().post("/_dash-update-component", json=body)
        assert kept.name in answer.get_data(as_text=True)
    finally:
        kept.write_bytes(content)


def test_arrows_go_from_sender_to_receiver_in_their_step():
    found = inspect_program(named_program("ring", "all-reduce", 4), 1 << 20)
    figure = program_chart(found, "light")
    lines, pointed = figure.data
    assert lines.name == "256 KiB"
    ends = [(lines.x[place + 1], *lines.y[place : place + 2]) for place in range(0, len(lines.x), 3)]
    assert [(int(end) + 1, source, target) for end, source, target in ends] == [
        (item.step, item.source, item.destination) for item in found.traffic
    ]
    assert pointed.hovertext[0] == "Step 1: rank 0 to rank 1, 256 KiB in 1 message"
    assert "4 ranks over 6 steps; step 1: 4 senders and receivers" in figure.layout.meta


def test_many_ranks_are_a_heat_map_with_all_bytes():
    found = inspect_program(named_program("ring", "all-reduce", 32), 1 << 20)
    (drawn,) = program_chart(found, "dark").data
    assert drawn.type == "heatmap"
    assert drawn.z.shape == (32, 62)
    assert drawn.z.sum() == sum(item.size_bytes for item in found.traffic)
    assert drawn.customdata[31][0] == "32.0 KiB to rank 0"
    assert not has_arrows(found)
    (pairs,) = pairs_chart(found, "dark").data
    assert pairs.z.sum() == drawn.z.sum()
    assert (pairs.z[31][0], pairs.customdata[0][1]) == (62 << 15, "1.94 MiB")
    assert "32 pairs of 32 ranks, at most 1.94 MiB" in pairs_chart(found, "dark").layout.meta


def test_sizes_beyond_the_colours_share_them():
    found = inspect_program(named_program("ring", "all-reduce", 4), 1 << 20)
    traffic = tuple(replace(item, size_bytes=8 << number % 6) for number, item in enumerate(found.traffic))
    figure = program_chart(replace(found, traffic=traffic), "light")
    names = [trace.name for trace in figure.data if trace.name]
    assert names == ["8 B to 16 B", "32 B to 64 B", "128 B", "256 B"]
    assert sum(len(trace.hovertext) for trace in figure.data if trace.hovertext) == len(traffic)


def test_too_large_program_is_not_drawn(with_programs, monkeypatch):
    study, (filed, *_) = with_programs
    run: OpenRun = StudyView(study).open(filed)
    monkeypatch.setattr(programs, "_MAX_OPS", 10)
    assert "too many to draw" in str(programs._chooser(run, "light"))


@pytest.mark.browser
def test_picture_in_the_browser(with_programs, page):
    study, (filed, *_) = with_programs
    with serving(create_app(study)) as address:
        page.goto(f"{address}/network?run={filed}")
        page.wait_for_selector("#program-chart .main-svg")
        assert "8 in sequence" in page.locator("#program").inner_text()
        assert page.get_by_role("figure", name="Traffic between ranks in the program").count() == 1
        settle(page)
        assert settled_violations(page, within="#program") == []
