"""Answer the requests for data, of the timeline and for whole tables; they carry columns, not components."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from flask import Flask, Response, abort, jsonify, request

from ..converter.building import stand_in_of
from ..errors import ChakrascopeError
from ..runner import find_items, read_sweep
from ..runner.analysis import (
    COMPARISONS,
    OVERVIEWS,
    TABLES,
    area_overview,
    area_table,
    chrome_trace,
    csv_text,
    graph_tables,
)
from ..runner.study import item_table, run_table
from ..runner.sweep import SWEEP_TABLES
from ._state import OpenRun, Selection, StudyView
from ._theme import KIND_COLOURS, KIND_LABELS, KINDS, ON_KIND_INK, PATH_COLOUR
from .queries import edge_kinds, flows, focus_of, fold_of, has_selected, hops_of, node_details
from .timeline import SliceIndex

__all__ = ["register", "table_file"]

_LARGEST = 1 << 62  # of lanes and ns, which are counted in 64 bits
_MAX_PIXELS = 8192
_MAX_PATH_BARS = 20_000
_AREA_ROWS = 12


def register(server: Flask, view: StudyView) -> None:
    """Add the data routes of *view* to *server*; all of them only read."""
    _register_timeline(server, view)
    _register_exports(server, view)


def _register_timeline(server: Flask, view: StudyView) -> None:
    @server.get("/api/lanes")
    def lanes() -> Response:
        run = _run(view)
        return jsonify(_lanes(run, _index(run)))

    @server.get("/api/slices")
    def slices() -> Response:
        index = _index(_run(view))
        window = (_integer("lane0", 0), _integer("lane1", len(index.table)))
        pixels = min(_MAX_PIXELS, max(1, _integer("px", 1000)))
        batch = index.window(_integer("t0", 0), _integer("t1", index.makespan_ns), pixels, window)
        return Response(batch.encode(), mimetype="application/octet-stream")

    @server.get("/api/node")
    def node() -> Response:
        run = _run(view)
        rank, node_id = _integer("rank", -1), _integer("node", -1)
        found = run.node(rank, node_id)
        if found is None:
            abort(404)
        return jsonify(_node(run, rank, node_id, found, with_flows=_integer("flows", 0) == 1))

    @server.get("/api/area")
    def area() -> Response:
        run = _run(view)
        inside, span = _area(run)
        table = area_table(run.nodes, inside)
        return jsonify(
            {
                "details": area_overview(run.nodes, inside, span),
                "columns": list(table.columns),
                "rows": table.head(_AREA_ROWS).to_dict("records"),
                "more": max(0, len(table) - _AREA_ROWS),
            }
        )

    @server.get("/export/timeline.json")
    def timeline() -> Response:
        run = _run(view)
        headers = {"Content-Disposition": 'attachment; filename="timeline.json"'}
        pieces = chrome_trace(run.nodes, run.slices, run.path)
        return Response(pieces, mimetype="application/json", headers=headers)


def _register_exports(server: Flask, view: StudyView) -> None:
    @server.get("/export/area.<extension>")
    def area_file(extension: str) -> Response:
        run = _run(view)
        return table_file(area_table(run.nodes, _area(run)[0]), "area", extension)

    @server.get("/export/graph-<part>.<extension>")
    def graph(part: str, extension: str) -> Response:
        run, selection = _run(view), Selection.parse(request.query_string.decode())
        if part not in {"nodes", "edges"} or not has_selected(run, selection):
            abort(404)
        tables = graph_tables(
            run,
            *focus_of(run, selection),
            fold=fold_of(selection.option("fold")),
            hops=hops_of(selection.option("hops")),
            kinds=edge_kinds(selection.option("edges")),
        )
        return table_file(tables[part], f"graph-{part}", extension)

    @server.get("/export/sweep.<extension>")
    @server.get("/export/sweep-<part>.<extension>")
    def sweep(extension: str, part: str = "points") -> Response:
        try:
            points = read_sweep(view.study, request.args.get("sweep", "")).points
        except ChakrascopeError:
            abort(404)
        if part not in SWEEP_TABLES:
            abort(404)
        return table_file(SWEEP_TABLES[part](points, request.args.get("against", "")), "sweep", extension)

    @server.get("/export/imports.<extension>")
    def imports(extension: str) -> Response:
        folder = view.near.import_from
        return table_file(item_table([] if folder is None else find_items(folder)), "imports", extension)

    @server.get("/export/runs.<extension>")
    def runs(extension: str) -> Response:
        return table_file(run_table(view.runs()), "runs", extension)

    @server.get("/export/<name>.<extension>")
    def export(name: str, extension: str) -> Response:
        run = _run(view)
        if name in TABLES:
            return table_file(TABLES[name](run), name, extension)
        if name in OVERVIEWS:
            return table_file(OVERVIEWS[name]([run, *_others(view)]), name, extension)
        if name not in COMPARISONS:
            abort(404)
        return table_file(COMPARISONS[name](run, _run(view, "against")), name, extension)


def _index(run: OpenRun) -> SliceIndex:
    """Return the lanes asked for: as simulated, or with the measured ones above them."""
    return run.measured_slices if request.args.get("measured") == "1" and run.is_measured else run.slices


def _area(run: OpenRun) -> tuple[pd.DataFrame, int]:
    """Return what lies in the area asked for, and how many ns wide it is."""
    t0, t1 = _integer("t0", 0), _integer("t1", 0)
    return _index(run).area(t0, t1, (_integer("lane0", 0), _integer("lane1", 0))), max(0, t1 - t0)


def _node(
    run: OpenRun, rank: int, node_id: int, found: dict[str, Any], *, with_flows: bool
) -> dict[str, Any]:
    index = _index(run)
    lane, start, end = index.lane_of(rank, node_id)
    edges = run.workload.graphs[int(run.workload.program_of_rank[rank])].edges
    # The slack of a large run takes a while to find, which a node that is only hovered over is not worth.
    slack = run.slack_of(rank, node_id) if with_flows else None
    return {
        "rank": rank,
        "node": node_id,
        "lane": lane,
        "start_ns": start,
        "end_ns": end,
        "cause": int(found["cause_node"]),
        "details": node_details(
            found, slack, run.measured_among(rank, node_id), stand_in_of(run.workload.metadata, rank)
        ),
        "flows": flows(edges, index, found) if with_flows else [],
    }


def table_file(table: pd.DataFrame, name: str, extension: str) -> Response:
    """Return *table* as a file to download, by *extension* as CSV or Parquet; anything else is not found."""
    if extension == "csv":
        content, kind = csv_text(table).encode(), "text/csv"
    elif extension == "parquet":
        content, kind = table.to_parquet(index=False), "application/vnd.apache.parquet"
    else:
        abort(404)
    headers = {"Content-Disposition": f'attachment; filename="{name}.{extension}"'}
    return Response(content, mimetype=kind, headers=headers)


def _run(view: StudyView, argument: str = "run") -> OpenRun:
    """Return the run that the *argument* names, the newest without one; an unknown one is not found."""
    try:
        return view.open(view.resolve(request.args.get(argument, "")))
    except ChakrascopeError:
        abort(404)


def _others(view: StudyView) -> list[OpenRun]:
    names = [name for name in request.args.get("against", "").split(",") if name]
    try:
        return [view.open(name) for name in names]
    except ChakrascopeError:
        abort(404)


def _integer(name: str, default: int) -> int:
    text = request.args.get(name, "")
    try:
        number = int(float(text)) if text else default
    except (ValueError, OverflowError):
        abort(400)
    if abs(number) > _LARGEST:
        abort(400)
    return number


def _lanes(run: OpenRun, index: SliceIndex) -> dict[str, Any]:
    segments = run.path.segments
    shown = segments.nlargest(_MAX_PATH_BARS, "duration_ns").sort_values("start_ns")
    lanes = index.lanes_of(shown["rank"].to_numpy(np.int64), shown["node_id"].to_numpy(np.int64))
    first = index.table[~index.table["measured"]].groupby("rank").head(1)
    lane_of_rank = dict(zip(first["rank"].tolist(), first.index.tolist(), strict=True))
    lanes = np.where(lanes < 0, [lane_of_rank.get(int(r), 0) for r in shown["rank"]], lanes)
    kinds = {kind: place for place, kind in enumerate(KINDS)}
    return {
        "makespan_ns": max(1, int(run.result.makespan_ns), index.makespan_ns),
        "lanes": [
            lane | {"stood_in": stand_in_of(run.workload.metadata, lane["rank"]) is not None}
            for lane in index.table.to_dict("records")
        ],
        "kinds": [
            {"name": KIND_LABELS[kind], "colour": KIND_COLOURS[kind], "ink": ON_KIND_INK} for kind in KINDS
        ],
        "path": {
            "colour": PATH_COLOUR,
            "lane": lanes.tolist(),
            "kind": [kinds.get(str(kind), kinds["idle"]) for kind in shown["kind"]],
            "start_ns": shown["start_ns"].tolist(),
            "end_ns": shown["end_ns"].tolist(),
        },
    }
