"""Timelines of many ranks: the server's responses, and the panes of the page."""

import itertools
import json
import re

import numpy as np
import pandas as pd
import pytest
from studies import run_in

from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.runner import Study
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer import _state as state
from chakrascope.viewer.report import write_report
from chakrascope.viewer.report._pictures import timeline_picture
from chakrascope.viewer.timeline import TimelineIndex
from chakrascope.viewer.timeline import _index as timeline

from .conftest import whole


@pytest.mark.parametrize(
    "query",
    ["lanes=1e25", "lanes=0-", "lanes=-1", "lanes=0-999999999", "lanes=x", "lanes=²", "lanes=5-1",
     "lanes=99999", "colour=x", "nested=2&measured=9", "seek=%00", "px=-5", "t0=x", "t0=-1e30", "px=1e400",
     "lanes=0-1e25"],
)  # fmt: skip
def test_malformed_windows_are_refused_or_answered_quietly(client, made, query):
    for route in ("slices", "area", "lanes", "seek", "arrivals"):
        assert client.get(f"/api/{route}?run={made.run_a}&{query}").status_code in (200, 400)


@pytest.mark.parametrize("colour", ["kind", "operator", "module", "stream"])
@pytest.mark.parametrize("nested", [0, 1])
def test_colours_are_of_the_palette_and_named(client, made, colour, nested):
    found = client.get(f"/api/lanes?run={made.run_a}&colour={colour}&nested={nested}").json
    assert all(shown in found["palette"] for _, shown in found["legend"])
    named = {name for name, _ in found["legend"]}
    expected = {
        "kind": "Computation",
        "operator": "aten::mm",
        "module": "layers.3",
        "stream": "communication",
    }
    assert expected[colour] in named


def test_hits_are_walked_in_order_of_time(client, made):
    address = f"/api/seek?run={made.run_a}&seek=allreduce"
    first = client.get(f"{address}&at=0").json
    assert first["count"] == 12
    found = [client.get(f"{address}&at={at}").json for at in range(12)]
    assert len({(hit["rank"], hit["node"]) for hit in found}) == 12
    assert client.get(f"{address}&at=12").json == first
    assert client.get(f"{address}&ranks=1").json["count"] == 6
    assert client.get(f"{address}&t0=99999999999").json["at"] == 0
    assert client.get(f"/api/seek?run={made.run_a}&seek=nothing-is-called-so").json == {"count": 0}


@pytest.mark.parametrize(
    "address",
    [
        "node?rank=0&node=999",
        "counterpart?beside={b}&rank=0&node=999",
        "counterpart?beside=none&rank=0&node=1",
    ],
)
def test_an_unknown_node_is_not_found(client, made, address):
    asked = f"/api/{address.format(b=made.run_b)}&run={made.run_a}"
    assert client.get(asked).status_code == 404


def test_nested_area_is_exported_by_name(client, made):
    answer = client.get(f"/export/area.csv?run={made.run_a}&nested=1&t0=0&t1=9000000&lanes=0-3")
    assert answer.data.decode().splitlines()[0] == "name,row,slices,total_ns,mean_ns,longest_ns"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"text": "x", "t0": 5, "t1": 1}, 409),
        ({"text": "", "t0": 0, "t1": 1}, 409),
        ({"text": "x", "t0": 0, "t1": 1, "rank": 0, "node": 999}, 404),
        ({"text": "x", "t0": "0", "t1": 1}, 400),
        ({"text": "x", "t0": True, "t1": 1}, 400),
        ({"text": "x", "t0": 0, "t1": 1, "measured": "yes"}, 400),
        ([], 400),
        ({"remove": "none"}, 409),
    ],
)
def test_notes_that_cannot_be_kept_are_refused(client, made, body, status):
    answer = client.post(f"/api/notes?run={made.run_a}", json=body)
    assert answer.status_code == status
    assert client.get(f"/api/notes?run={made.run_a}").json == {"notes": []}


def test_other_sites_can_neither_write_nor_call(client, made):
    body, address = json.dumps({"text": "x", "t0": 0, "t1": 1}), f"/api/notes?run={made.run_a}"
    sent = {"data": body, "content_type": "application/json", "headers": {"Origin": "https://evil.example"}}
    for each in (address, "/_dash-update-component"):
        assert client.post(each, **sent).status_code == 403
    assert client.post(address, data=body, content_type="text/plain").status_code == 415


def test_note_on_a_range_states_its_times(client, made, tmp_path):
    address, body = f"/api/notes?run={made.run_b}", {"text": "a pause", "t0": 0, "t1": 9, "measured": True}
    (kept,) = client.post(address, json=body).json["notes"]
    try:
        assert client.get(address).json["notes"][0]["measured"] is True
        assert (
            "the range at measured times"
            in write_report(made.study, made.run_b, tmp_path / "r.html").read_text()
        )
    finally:
        client.post(address, json={"remove": kept["id"]})


def test_notes_stand_in_the_report(client, made, tmp_path):
    text = "<b>rank 1</b> is late"
    kept = client.post(
        f"/api/notes?run={made.run_b}", json={"text": text, "t0": 0, "t1": 9, "rank": 1, "node": 4}
    )
    try:
        page = write_report(made.study, made.run_b, tmp_path / "r.html").read_text(encoding="utf-8")
        assert "&lt;b&gt;rank 1&lt;/b&gt; is late" in page
        assert "(node 4 of rank 1)" in page
    finally:
        client.post(f"/api/notes?run={made.run_b}", json={"remove": kept.json["notes"][0]["id"]})
    assert (
        "Notes on the timeline" not in write_report(made.study, made.run_b, tmp_path / "r.html").read_text()
    )


# The timeline of a large run, read rank by rank: bars, hits and facts equal those of all nodes at once.

FIELDS = ("start_ns", "end_ns", "node_id", "lane", "count", "colour", "found")


@pytest.fixture
def ways(study, made, monkeypatch):
    """Return the run with a timeline of all nodes at once, and with one that is read rank by rank."""
    whole = StudyView(study).open(made.run_a)
    by_rank = StudyView(study).open(made.run_a)
    for measured, nested in itertools.product((False, True), repeat=2):
        whole.rows(measured=measured, nested=nested)
    monkeypatch.setattr(state, "MANY_NODES", 0)
    return whole, by_rank


def bars(batch, lanes):
    """Return the bars of *batch* with their labels, by the position of their lane in *lanes*."""
    place = {lane: number for number, lane in enumerate(lanes)}
    names = [batch.names[code] if code >= 0 else "" for code in batch.name]
    columns = [getattr(batch, field).tolist() for field in FIELDS]
    columns[FIELDS.index("lane")] = [place[lane] for lane in batch.lane.tolist()]
    return sorted(zip(*columns, names, strict=True))


@pytest.mark.parametrize("colour", ["kind", "operator", "module", "stream"])
@pytest.mark.parametrize("measured", [False, True])
@pytest.mark.parametrize("nested", [False, True])
def test_bars_are_those_of_the_whole_table(ways, colour, measured, nested):
    one, other = (run.rows(measured=measured, nested=nested) for run in ways)
    assert [len(index.parts) for index in (one, other)] == [1, 2]
    other.prepare([0, 1])
    assert other.table.reset_index(drop=True).equals(one.table.reset_index(drop=True))
    lanes, theirs = [*one.table.index], [*other.table.index]
    shown, colours = one.colours(colour), other.colours(colour)
    assert (colours.palette, sorted(colours.legend), colours.more) == (
        shown.palette,
        sorted(shown.legend),
        shown.more,
    )
    for t0, t1, pixels in ((0, one.makespan_ns, 2000), (0, one.makespan_ns, 40), (10**6, 2 * 10**6, 500)):
        drawn = (
            bars(index.window(t0, t1, pixels, its, colours=index.colours(colour), sought="mm"), its)
            for index, its in ((one, lanes), (other, theirs))
        )
        assert next(drawn) == next(drawn)


@pytest.fixture
def clients(study, made, monkeypatch):
    """Return a client whose runs are read whole, and one for which every run is a large one."""
    whole = create_app(study).server.test_client()
    whole.get(f"/api/slices?run={made.run_a}&seek=mm")
    monkeypatch.setattr(state, "MANY_NODES", 0)
    return whole, create_app(study).server.test_client()


def answers(clients, made, address, monkeypatch):
    """Return the answers of both ways of reading to *address*."""
    by_rank = clients[1].get(address.format(run=made.run_a)).json
    monkeypatch.setattr(state, "MANY_NODES", 10**9)
    return clients[0].get(address.format(run=made.run_a)).json, by_rank


@pytest.mark.parametrize(
    "address",
    [
        "/api/seek?run={run}&seek=allreduce&at=3", "/api/seek?run={run}&seek=none-is-called-so",
        "/api/arrivals?run={run}", "/api/area?run={run}&t0=0&t1=9000000&lanes=0-1",
        "/api/area?run={run}&t0=0&t1=9000000&lanes=0-2&nested=1",
    ],
)  # fmt: skip
def test_answers_are_those_of_the_whole_table(clients, made, address, monkeypatch):
    whole, by_rank = answers(clients, made, address, monkeypatch)
    assert by_rank == whole


def test_a_node_says_the_same_but_for_its_slack(clients, made, monkeypatch):
    whole, by_rank = answers(clients, made, "/api/node?run={run}&rank=1&node=4&flows=1", monkeypatch)
    assert [pair for pair in whole["details"] if pair[0] != "Slack"] == by_rank["details"]
    assert [flow["start_ns"] for flow in whole["flows"]] == [flow["start_ns"] for flow in by_rank["flows"]]


def test_differing_lanes_are_shown_after_reading_the_rank():
    frames = {rank: frame(rank, streams) for rank, streams in enumerate(((7,), (7,), (7, 8, 9)))}
    index = TimelineIndex(lambda rank, _: frames[rank], lambda *_: None, [[rank] for rank in frames], 100)
    assert len(index.table) == 3
    known = index.edition
    lanes = [*index.table.index]
    assert index.window(0, 100, 10, lanes[:2], colours=index.colours("kind")).edition == known
    shown = index.window(0, 100, 10, lanes[2:], colours=index.colours("kind"))
    assert shown.edition > known
    assert len(index.table) == 5
    assert set(shown.lane.tolist()) <= set(index.table.index[index.table["rank"] == 2])


def test_empty_ranks_do_not_affect_lanes():
    frames = {0: frame(0, (7,)).iloc[:0], 1: frame(1, (7, 8)), 2: frame(2, (7, 8))}
    index = TimelineIndex(lambda rank, _: frames[rank], lambda *_: None, [[rank] for rank in frames], 100)
    assert index.table["rank"].tolist() == [1, 1, 2, 2]
    assert index.window(0, 100, 10).count.sum() == 4
    assert not whole(frames[0]).window(0, 100, 10).count.sum()


def test_no_more_ranks_are_kept_or_answered_for_than_may_be(monkeypatch):
    monkeypatch.setattr(timeline, "CACHED_NODES", 2)
    monkeypatch.setattr(timeline, "PARTS_PER_REQUEST", 3)
    read = []

    def frame_of(rank, _names):
        read.append(rank)
        return frame(rank, (7,))

    index = TimelineIndex(frame_of, lambda *_: None, [[rank] for rank in range(9)], 100)
    nodes, inside, left_out = index.area(0, 100, [*index.table.index])
    assert (sorted(nodes["rank"].unique()), len(inside), left_out) == ([0, 1, 2], 3, 6)
    hits = index.seek("mm", range(9))
    assert (len(hits.rank), hits.ranks, hits.of) == (3, 3, 9)
    assert read.count(0) > 1


def test_no_rank_is_left_out_of_an_area_as_lanes_get_other_numbers():
    frames = {0: frame(0, (7,)), 1: frame(1, range(100)), 2: frame(2, (7,))}
    index = TimelineIndex(lambda rank, _: frames[rank], lambda *_: None, [[rank] for rank in frames], 100)
    nodes, inside, left_out = index.area(0, 100, [*index.table.index])
    assert (nodes["rank"].tolist(), len(inside), left_out) == ([0, 1, 2], 3, 0)


def test_the_picture_of_a_large_run_has_the_lanes_of_each_rank(tmp_path, monkeypatch):
    graphs = []
    for rank, streams in enumerate(((0,), (0, 2, 4), (0, 2))):
        rows = [
            {"node_id": node, "name": "mm", "type": NodeType.COMP, "kind": "compute", "duration_ns": 1000,
             "measured_start_ns": 0, "stream": stream} for node, stream in enumerate(streams)
        ]  # fmt: skip
        graphs.append(Graph.build(rank, rows, []))
    study = Study.create(tmp_path / "study")
    workload = Workload(tuple(graphs), np.arange(3, dtype=np.int32), metadata={"source": "made by hand"})
    made = run_in(study, workload, label="uneven", workload="uneven")
    whole, by_rank = StudyView(study).open(made), StudyView(study).open(made)
    expected = timeline_picture(whole)
    monkeypatch.setattr(state, "MANY_NODES", 0)
    assert timeline_picture(by_rank) == expected


def frame(rank, streams):
    """Return the nodes of a rank that runs one node on each of *streams*."""
    count = len(streams)
    return pd.DataFrame(
        {
            "rank": rank, "node_id": range(count), "start_ns": 10, "end_ns": 40, "type": 4, "stream": streams,
            "kind": "compute", "name": "mm", "operator": "aten::mm", "module": "", "phase": "forward",
            "duration_ns": 30, "measured_start_ns": -1,
        }
    )  # fmt: skip


def test_path_and_layers_are_cached_until_the_run_changes(study, made):
    names = "critical-path.parquet", "collectives.parquet", "layers.parquet"
    caches = [study.cache_file(made.run_a, name) for name in names]
    for file in caches:
        file.unlink(missing_ok=True)
    first = StudyView(study).open(made.run_a)
    expected = first.path.segments, first.collectives, first.layers
    written = []
    for _ in range(2):
        run = StudyView(study).open(made.run_a)
        for table, wanted in zip((run.path.segments, run.collectives, run.layers), expected, strict=True):
            pd.testing.assert_frame_equal(table, wanted)
        written.append([file.stat().st_ino for file in caches])
    assert written[0] == written[1]  # the second time, they are only read
    caches[0].write_bytes(caches[0].read_bytes()[:100])
    stamped = caches[2].read_bytes()
    caches[2].write_bytes(re.sub(rb'\["\w+", \[', b'["", [', stamped))
    assert caches[2].read_bytes() != stamped
    run = StudyView(study).open(made.run_a)
    pd.testing.assert_frame_equal(run.path.segments, expected[0])
    pd.testing.assert_frame_equal(run.layers, expected[2])


# The panes of a page divide the window as users resize them, and rows without slices leave room for others.

TIMELINE = "() => ['timeline', 'timeline-panel'].map((id) => document.getElementById(id).offsetHeight)"
GRAPH = "() => [document.querySelector('.graph-holder'), document.getElementById('graph-side')]"


GRAPH += ".map((pane) => pane.offsetWidth)"


STORED = "() => JSON.parse(window.localStorage.getItem('chakrascope-panes'))"


# The rows of the canvas with their heights, and whether their batch has a slice in the window.
ROWS = """() => {
  const { rows, view, main } = document.getElementById('timeline').timeline, busy = new Set();
  for (let i = 0; i < main.batch.count; i++) {
    if (main.batch.end[i] >= view.t0 && main.batch.start[i] <= view.t1) { busy.add(main.batch.lane[i]); }
  }
  return rows.all.map((row) => [row.name, row.height, busy.has(row.lane)]);
}"""


@pytest.mark.browser
def test_the_height_of_the_panel_is_set_by_keys_and_survives_a_reload(page, served, made):
    page.goto(f"{served}/timeline?run={made.run_a}")
    page.wait_for_selector("#timeline[data-slices]")
    before = page.evaluate(TIMELINE)
    separator = page.get_by_role("separator", name="Height of the panel")
    separator.focus()
    scroll = "document.getElementById('timeline').timeline.rows.scroll"
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    after = page.evaluate(TIMELINE)
    assert after == [before[0] + 72, before[1] - 72]
    assert page.evaluate(scroll) == 0, "the keys of the timeline do not act as well"
    assert int(separator.get_attribute("aria-valuenow")) == round(100 * after[1] / sum(after))
    page.keyboard.press("End")
    lowest = page.evaluate(TIMELINE)
    assert lowest == [sum(before) - 48, 48]
    page.reload()
    page.wait_for_selector("#timeline[data-slices]")
    assert page.evaluate(TIMELINE) == lowest
    separator.focus()
    page.keyboard.press("Enter")
    assert page.evaluate(TIMELINE) == before
    assert page.evaluate(STORED) == {}


@pytest.mark.browser
def test_the_graph_has_the_width_that_is_left(page, served, made):
    page.goto(f"{served}/graph?run={made.run_a}&rank=1&node=4")
    page.wait_for_selector("#graph canvas", state="attached")
    before = page.evaluate(GRAPH)
    box = page.get_by_role("separator").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] - 100, middle[1])
    page.mouse.up()
    page.mouse.move(middle[0] - 300, middle[1])
    after = page.evaluate(GRAPH)
    assert after == [before[0] - 100, before[1] + 100]
    assert page.evaluate("() => document.getElementById('graph')._cyreg.cy.width()") <= after[0]
    page.reload()
    page.wait_for_selector("#graph canvas", state="attached")
    assert page.evaluate(GRAPH) == after


@pytest.mark.browser
def test_sizes_that_make_no_sense_are_ignored_and_large_ones_bounded(page, served, made):
    page.goto(f"{served}/nonsense")
    store = "text => window.localStorage.setItem('chakrascope-panes', text)"
    for text in ("{", "null", '{"timeline-panel": "x; color: red"}'):
        page.evaluate(store, text)
        page.reload()
        page.wait_for_selector("#notice")
        assert page.evaluate("document.documentElement.style.length") == 0
    page.evaluate(store, '{"timeline-panel": 5000}')
    page.goto(f"{served}/timeline?run={made.run_a}")
    page.wait_for_selector("#timeline[data-slices]")
    canvas, panel = page.evaluate(TIMELINE)
    assert canvas >= 220
    assert panel < 800


@pytest.mark.browser
def test_rows_without_slices_in_the_window_are_folded(visit, made):
    address = f"?run={made.run_a}&rows=flat&t0=30000&t1=300000"
    page = visit("/timeline", address)
    page.wait_for_selector("#timeline[data-slices]")
    rows = page.evaluate(ROWS)
    assert {busy for _, _, busy in rows} == {True, False}
    assert all(height > 0 for _, height, _ in rows)
    page.locator("#timeline-empty").check()
    page.wait_for_url("**empty=folded*")
    page.wait_for_function(f"() => ({ROWS})().every(([, height, busy]) => busy === height > 0)")
    # The rows come back when something is in the window.
    page.evaluate("() => document.getElementById('timeline').timeline.view.fit()")
    page.wait_for_function(f"() => ({ROWS})().every(([, height, busy]) => busy && height > 0)")
