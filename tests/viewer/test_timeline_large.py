"""The timeline of a large run, read rank by rank: the same bars, hits and facts as of all nodes at once."""

import pandas as pd
import pytest

from chakrascope.runner.analysis import _run as analysis
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer.timeline import _ranked as ranked

FIELDS = ("start_ns", "end_ns", "node_id", "lane", "count", "colour", "found")


@pytest.fixture
def ways(study, made, monkeypatch):
    """Return a run as it is read whole, and as one of the large ones."""
    whole = StudyView(study).open(made.run_a)
    whole.slices, whole.nested_slices, whole.measured_slices, whole.measured_nested_slices, whole.words  # noqa: B018
    by_rank = StudyView(study).open(made.run_a)
    assert not whole.is_large
    monkeypatch.setattr(type(by_rank), "is_large", property(lambda run: run is by_rank))
    return whole, by_rank


def bars(batch, lanes):
    """Return the bars of *batch*, with what is written on each, by the place of their lane in *lanes*."""
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
    for rank in other.ranks:
        other.prepare([rank])
    assert other.table.reset_index(drop=True).equals(one.table[other.table.columns])
    lanes, its = range(len(one.table)), [*other.table.index]
    colours, theirs = one.colours(colour), other.colours(colour)
    assert (theirs.palette, sorted(theirs.legend), theirs.more) == (
        colours.palette,
        sorted(colours.legend),
        colours.more,
    )
    for t0, t1, pixels in ((0, one.makespan_ns, 2000), (0, one.makespan_ns, 40), (10**6, 2 * 10**6, 500)):
        found = ways[0].sought("mm")[0]
        shown = one.window(t0, t1, pixels, lanes, colours=colours, found=found)
        again = other.window(t0, t1, pixels, its, colours=theirs, sought="mm")
        assert bars(again, its) == bars(shown, lanes)


@pytest.fixture
def clients(study, made, monkeypatch):
    """Return a client whose runs are read whole, and one for which every run is a large one."""
    whole = create_app(study).server.test_client()
    whole.get(f"/api/slices?run={made.run_a}&seek=mm")
    monkeypatch.setattr(analysis, "MANY_NODES", 0)
    return whole, create_app(study).server.test_client()


def answers(clients, made, address, monkeypatch):
    """Return what both ways answer to *address*."""
    by_rank = clients[1].get(address.format(run=made.run_a)).json
    monkeypatch.setattr(analysis, "MANY_NODES", 10**9)
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


def test_lanes_of_a_rank_that_differs_are_told_once_it_is_read():
    frames = {rank: frame(rank, streams) for rank, streams in enumerate(((7,), (7,), (7, 8, 9)))}
    index = ranked.RankedIndex(lambda rank, _: frames[rank], lambda *_: None, [*frames], 100)
    assert len(index.table) == 3
    known = index.edition
    lanes = [*index.table.index]
    assert index.window(0, 100, 10, lanes[:2], colours=index.colours("kind")).edition == known
    shown = index.window(0, 100, 10, lanes[2:], colours=index.colours("kind"))
    assert shown.edition > known
    assert len(index.table) == 5
    assert set(shown.lane.tolist()) <= set(index.table.index[index.table["rank"] == 2])


def test_no_more_ranks_are_kept_or_answered_for_than_may_be(monkeypatch):
    monkeypatch.setattr(ranked, "KEPT_NODES", 2)
    monkeypatch.setattr(ranked, "RANKS_AT_ONCE", 3)
    read = []

    def frame_of(rank, _names):
        read.append(rank)
        return frame(rank, (7,))

    index = ranked.RankedIndex(frame_of, lambda *_: None, range(9), 100)
    nodes, inside, left_out = index.area(0, 100, [*index.table.index])
    assert (sorted(nodes["rank"].unique()), len(inside), left_out) == ([0, 1, 2], 3, 6)
    hits = index.seek("mm", range(9))
    assert (len(hits.rank), hits.ranks, hits.of) == (3, 3, 9)
    assert read.count(0) > 1


def frame(rank, streams):
    """Return the nodes of a rank that runs one on each of *streams*."""
    count = len(streams)
    return pd.DataFrame(
        {
            "rank": rank, "node_id": range(count), "start_ns": 10, "end_ns": 40, "type": 4, "stream": streams,
            "kind": "compute", "name": "mm", "operator": "aten::mm", "module": "", "phase": "forward",
            "duration_ns": 30, "measured_start_ns": -1,
        }
    )  # fmt: skip


def test_the_path_and_the_layers_are_kept_until_the_run_changes(study, made, monkeypatch):
    whole = StudyView(study).open(made.run_a)
    expected = whole.path.segments, whole.collectives, whole.layers
    monkeypatch.setattr(analysis, "MANY_NODES", 0)
    names = "critical-path.parquet", "collectives.parquet", "layers.parquet"
    kept = [study.kept_file(made.run_a, name) for name in names]
    written = []
    for _ in range(2):
        run = StudyView(study).open(made.run_a)
        for table, wanted in zip((run.path.segments, run.collectives, run.layers), expected, strict=True):
            pd.testing.assert_frame_equal(table, wanted)
        written.append([file.stat().st_ino for file in kept])
    assert written[0] == written[1]  # the second time they are read only
    kept[0].write_bytes(kept[0].read_bytes()[:100])
    kept[2].write_bytes(kept[2].read_bytes().replace(b"[4, [", b"[5, ["))
    run = StudyView(study).open(made.run_a)
    pd.testing.assert_frame_equal(run.path.segments, expected[0])
    pd.testing.assert_frame_equal(run.layers, expected[2])
    for file in kept:
        file.unlink()
