"""Routes of the timeline: lanes, windows, areas, nodes, and search results."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from flask import Flask, Response, abort, jsonify, request

from ..converter import EdgeKind
from ..converter.building import captured_steps, stand_in_of
from ..errors import ChakrascopeError
from ..runner.analysis import (
    area_names,
    area_overview,
    area_table,
    at_measured_times,
    counterpart,
    host_cause,
    host_stack_table,
    neighbours,
    path_at_measured_times,
)
from ..support import count_text
from ._exports import export, table_file
from ._state import OpenRun, StudyView
from ._theme import ON_KIND_INK, PATH_COLOUR, kind_colour
from .queries import flows, node_details, open_source
from .timeline import COLOURED_BY, Colours, TimelineIndex

_LARGEST = 1 << 62  # lanes and times in ns are 64-bit numbers
_MAX_PIXELS = 8192
_MAX_PATH_BARS = 20_000
_AREA_ROWS = 12
_MAX_RANGES, _LARGEST_RANGE, _MAX_TEXT = 4_096, 1_000_000, 200
_RANGE = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")
_MAX_ARRIVALS = 400
_MAX_NEIGHBOURS = 6
_LAUNCHES = (EdgeKind.LAUNCH, EdgeKind.COMM_ISSUE)


def register_timeline(server: Flask, view: StudyView) -> None:
    """Add the timeline routes of *view*, all of them read-only."""

    @server.get("/api/lanes")
    def lanes() -> Response:
        run = requested_source(view)
        index = requested_index(run)
        return jsonify(_lanes(run, index, index.colours(_colour(), _main(view))))

    @server.get("/api/slices")
    def slices() -> Response:
        run = requested_source(view)
        index, text = requested_index(run), request.args.get("seek", "")[:_MAX_TEXT]
        pixels = min(_MAX_PIXELS, max(1, _integer("px", 1000)))
        span = _integer("t0", 0), _integer("t1", index.makespan_ns)
        lanes = _ids("lanes", 0) if "lanes" in request.args else None
        colours = index.colours(_colour(), _main(view))
        batch = index.window(*span, pixels, lanes, colours=colours, sought=text.strip())
        return Response(batch.encode(), mimetype="application/octet-stream")

    @server.get("/api/seek")
    def seek() -> Response:
        run = requested_run(view)
        return jsonify(_sought(run, request.args.get("seek", "")[:_MAX_TEXT]))

    @server.get("/api/node")
    def node() -> Response:
        run = requested_source(view)
        rank, node_id = _integer("rank", -1), _integer("node", -1)
        found = run.node(rank, node_id)
        if found is None:
            abort(404)
        return jsonify(_node(run, rank, node_id, found, with_flows=_integer("flows", 0) == 1))

    @server.get("/api/host")
    def host() -> Response:
        run, rank = requested_run(view), _integer("rank", -1)
        return jsonify({"node": host_cause(run.nodes_of(rank), _integer("node", -1))})

    @server.get("/api/counterpart")
    def like() -> Response:
        run, other = requested_source(view), requested_source(view, "beside")
        rank, step = _integer("rank", -1), _integer("step", -1)
        # A node's counterpart in the other run is on the same rank.
        nodes, others = run.nodes_of(rank), other.nodes_of(rank)
        rows = np.flatnonzero(nodes["node_id"].to_numpy() == _integer("node", -1))
        if not len(rows):
            abort(404)
        row = counterpart(nodes, int(rows[0]), others, step if step >= 0 else None)
        found = (rank, int(others["node_id"].iloc[row])) if row >= 0 else (-1, -1)
        return jsonify(_place(requested_index(other, "beside"), *found))

    @server.get("/api/area")
    def area() -> Response:
        run = requested_source(view)
        nodes, inside, left_out = _area(run)
        table = _summed(run, nodes, inside)
        details = area_overview(nodes, inside, max(0, _integer("t1", 0) - _integer("t0", 0)))
        if left_out:
            text = (
                f"{count_text(left_out, 'rank')} more are too many to select at once; mark fewer ranks, or "
                "choose some above"
            )
            details.append(("Not counted", text))
        return jsonify(
            {
                "details": details,
                "columns": list(table.columns),
                "rows": table.head(_AREA_ROWS).to_dict("records"),
                "more": max(0, len(table) - _AREA_ROWS),
            }
        )

    @server.get("/api/arrivals")
    def arrivals() -> Response:
        run = requested_run(view)
        table = run.arrivals
        shown = table[table["collective"].isin(_widest(table))]
        return jsonify({name: shown[name].tolist() for name in shown.columns})

    _register_exports(server, view)


def _register_exports(server: Flask, view: StudyView) -> None:
    @server.get("/export/host.<extension>")
    def host_stacks(extension: str) -> Response:
        run = requested_run(view)
        window = (_integer("t0", 0), _integer("t1", 0)) if "t1" in request.args else None
        ranks = _ids("ranks", run.info.num_ranks)
        return table_file(lambda: host_stack_table(run, ranks, window), "host", extension)

    @server.get("/export/timeline.json")
    def timeline() -> Response:
        run = requested_run(view)
        ranks = _ids("ranks", 0) or None
        measured = _is_measured(run)
        return export(lambda: run.trace(ranks, measured=measured), "timeline.json", "application/json")


def requested_run(view: StudyView, argument: str = "run") -> OpenRun:
    """Return the run in *argument*, or the default run; status 404 for an unknown one."""
    try:
        return view.open(view.resolve(request.args.get(argument, "")))
    except ChakrascopeError:
        abort(404)


def requested_source(view: StudyView, argument: str = "run") -> OpenRun:
    """Return the run or capture in *argument*, of any study that is served; see `open_source`."""
    try:
        return open_source(view, request.args.get(argument, ""))
    except ChakrascopeError:
        abort(404)


def _main(view: StudyView) -> TimelineIndex | None:
    """Return the timeline index of the run in the argument ``main``, for its colours, or None."""
    return requested_index(requested_source(view, "main"), "main") if request.args.get("main") else None


def requested_area(run: OpenRun) -> pd.DataFrame:
    """Return total times in the requested area: by name for nested rows, otherwise by operator."""
    return _summed(run, *_area(run)[:2])


def _summed(run: OpenRun, nodes: pd.DataFrame, inside: pd.DataFrame) -> pd.DataFrame:
    return (area_names if _is_nested(run) else area_table)(nodes, inside)


def _area(run: OpenRun) -> tuple[pd.DataFrame, pd.DataFrame, int]:
    """Return the nodes in the requested area, their parts inside it, and the number of omitted ranks."""
    return requested_index(run).area(_integer("t0", 0), _integer("t1", 0), _ids("lanes", 0))


def requested_index(run: OpenRun, argument: str = "run") -> TimelineIndex:
    """Return the timeline index of the *run* in *argument* that the request asks for."""
    calls = request.args.get("calls") == "1"
    return run.rows(measured=_is_measured(run, argument), nested=_is_nested(run), calls=calls)


def _is_measured(run: OpenRun, argument: str = "run") -> bool:
    """Return whether measured times of the *run* in *argument* are requested.

    The argument ``measured`` applies to the run in ``main``; other runs have their default times.
    """
    named, asked = request.args.get(argument, ""), request.args.get("measured", "")
    if asked not in ("0", "1") or request.args.get("main", named) != named:
        return run.shows_measured
    return asked == "1" and run.is_measured


def _is_nested(run: OpenRun) -> bool:
    """Return whether nested rows are requested; ``auto`` means nested if *run* has few ranks."""
    asked = request.args.get("nested", "")
    return asked == "1" or (asked == "auto" and run.has_few_ranks)


def _colour() -> str:
    by = request.args.get("colour", COLOURED_BY[0])
    return by if by in COLOURED_BY else COLOURED_BY[0]


def _widest(table: pd.DataFrame) -> pd.Series:
    """Return the numbers of the collectives with the largest arrival skew."""
    skew = table.groupby("collective")["late_ns"].max()
    return skew.nlargest(_MAX_ARRIVALS).index.to_series()


def _sought(run: OpenRun, text: str) -> dict[str, Any]:
    """Return the number of nodes of the requested ranks that match *text*, and one of these nodes.

    The request argument ``at`` is the index of this node among the matches. Without ``at``, the node is the
    first match at or after ``t0``, or the first of all matches.
    """
    wanted = _ids("ranks", run.info.num_ranks)
    hits = requested_index(run).seek(text.strip(), wanted if text.strip() else [])
    partial = {"ranks": hits.ranks} if hits.ranks < hits.of else {}
    if not len(hits.rank):
        return {"count": 0, **partial}
    at = _integer("at", -1)
    if at < 0:
        at = int(np.searchsorted(hits.start_ns, _integer("t0", 0)))
    at %= len(hits.rank)
    place = {"at": at, "rank": int(hits.rank[at]), "node": int(hits.node_id[at])}
    return {"count": len(hits.rank), **place, **partial}


def _place(index: TimelineIndex, rank: int, node: int) -> dict[str, int]:
    """Return rank, node, lane and times of a node."""
    lane, start, end = index.lane_of(rank, node)
    return {"rank": rank, "node": node, "lane": lane, "start_ns": start, "end_ns": end}


def _node(
    run: OpenRun, rank: int, node_id: int, found: dict[str, Any], *, with_flows: bool
) -> dict[str, Any]:
    index = requested_index(run)
    edges = run.edges_of(rank) if with_flows else None
    # Slack is slow to compute in a large run, so a node under the pointer has none.
    slack = run.slack_of(rank, node_id) if with_flows else None
    called = [] if edges is None else _called(run, edges, found)
    return {
        **_place(index, rank, node_id),
        "measured": _measured(found),
        "cause": int(found["cause_node"]),
        "details": [
            *node_details(found, slack, run.measured_among(rank, node_id), run.workload.metadata),
            *called,
        ],
        "flows": [] if edges is None else flows(edges, index, found),
        "neighbours": [] if edges is None else _neighbours(run, edges, rank, node_id),
    }


def _measured(node: dict[str, Any]) -> list[int] | None:
    """Return a node's start and end in the captured step, in ns, or None."""
    began = int(node["measured_start_ns"])
    return [began, began + int(node["duration_ns"])] if began >= 0 else None


def _called(run: OpenRun, edges: pd.DataFrame, node: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the host calls that enclose a node or, for device work, that launched it."""
    if called := run.calls.around(node):
        return [("Called in", text) for text in called]
    launched = (edges["dst"] == node["node_id"]) & edges["kind"].isin(_LAUNCHES)
    launches = (run.node(int(node["rank"]), int(source)) for source in edges["src"][launched].head(1))
    return [("Launched in", text) for launch in launches if launch for text in run.calls.around(launch)]


def _neighbours(run: OpenRun, edges: pd.DataFrame, rank: int, node_id: int) -> list[dict[str, Any]]:
    """Return the nodes before and after a node in the dependency graph, with names."""

    def name_of(near: int) -> str:
        return str((run.node(rank, near) or {"name": "not executed"})["name"])[:_MAX_TEXT]

    return [asdict(near) for near in neighbours(edges, name_of, node_id, _MAX_NEIGHBOURS)]


def _lanes(run: OpenRun, index: TimelineIndex, colours: Colours) -> dict[str, Any]:
    measured = _is_measured(run)
    path = _path(run, index, measured=measured)
    return {
        "start_ns": run.interval(measured=measured)[0],
        "makespan_ns": max(1, index.makespan_ns),
        "measured": measured,
        "nested": _is_nested(run),
        "edition": index.edition,
        "lanes": index.table.reset_index(names="lane").to_dict("records"),
        "ranks": _ranks(run),
        "palette": colours.palette,
        "legend": colours.legend,
        "more": colours.more,
        "ink": ON_KIND_INK,
        "path": path,
        "steps": _steps(run, measured=measured),
    }


def _ranks(run: OpenRun) -> list[dict[str, Any]]:
    """Return the figures by which the timeline folds, sorts and marks ranks."""
    return [
        {
            **{str(key): value for key, value in row.items()},
            "replaced": stand_in_of(run.workload.metadata, int(row["rank"])) is not None,
        }
        for row in run.standings.to_dict("records")
    ]


def _path(run: OpenRun, index: TimelineIndex, *, measured: bool) -> dict[str, Any]:
    segments = run.path.unreasoned.assign(shift_ns=run.path.steps["shift_ns"])
    shown = segments.nlargest(_MAX_PATH_BARS, "duration_ns").sort_values("start_ns")
    if measured:
        # Times on the path are on the clock of the rank that ends last.
        timed = path_at_measured_times(run.workload, shown)
        shown = timed.assign(**{name: timed[name] + timed["shift_ns"] for name in ("start_ns", "end_ns")})
    lanes = index.lanes_of(shown["rank"].to_numpy(np.int64), shown["node_id"].to_numpy(np.int64))
    of_nodes = index.table[index.table["level"] == "slice"]
    first = of_nodes.groupby("rank").head(1)
    lane_of_rank = dict(zip(first["rank"].tolist(), first.index.tolist(), strict=True))
    lanes = np.where(lanes < 0, [lane_of_rank.get(int(r), 0) for r in shown["rank"]], lanes)
    return {
        "colour": PATH_COLOUR,
        "lane": lanes.tolist(),
        "kind": [kind_colour(str(kind)) for kind in shown["kind"]],
        **{name: shown[name].tolist() for name in ("start_ns", "end_ns", "shift_ns")},
    }


def _steps(run: OpenRun, *, measured: bool) -> list[dict[str, int]]:
    """Return the start and end of each captured step; empty if there is one."""
    if captured_steps(run.workload.metadata) < 2:
        return []
    # Steps are the same on all ranks.
    nodes = run.nodes_of(int(run.result.columns("ranks")["rank"][0]))
    nodes = at_measured_times(nodes) if measured else nodes
    known = nodes[nodes["step"] >= 0]
    if known["step"].nunique() < 2:
        return []
    spans = known.groupby("step").agg(start_ns=("start_ns", "min"), end_ns=("end_ns", "max"))
    return [
        {str(key): int(value) for key, value in row.items()} for row in spans.reset_index().to_dict("records")
    ]


def _ids(name: str, count: int) -> list[int]:
    """Parse the numbers in the request argument *name*, such as ``0-3,7``; all below *count* without it."""
    text = request.args.get(name, "")
    if not text:
        return list(range(count))
    found: list[int] = []
    for part in text.split(",")[:_MAX_RANGES]:
        match = _RANGE.fullmatch(part)
        if match is None:
            abort(400)
        low, high = int(match[1]), int(match[2] or match[1])
        if high - low > _LARGEST_RANGE:
            abort(400)
        found += range(low, high + 1)
    return found


def _integer(name: str, default: int) -> int:
    text = request.args.get(name, "")
    try:
        number = int(float(text)) if text else default
    except (ValueError, OverflowError):
        abort(400)
    if abs(number) > _LARGEST:
        abort(400)
    return number
