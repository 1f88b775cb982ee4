"""Answer the requests for whole tables, as files; those of the timeline have a module of their own."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
from flask import Flask, Response, abort, jsonify, request

from ..errors import ChakrascopeError, StudyError
from ..runner import find_items, read_sweep
from ..runner.analysis import (
    COMPARISONS,
    OVERVIEWS,
    STRAGGLER_TABLES,
    TABLES,
    Words,
    graph_tables,
    search_hits,
)
from ..runner.study import item_table, run_table
from ..runner.sweep import SWEEP_TABLES
from ._exports import table_file
from ._note_routes import register_notes
from ._state import OpenRun, Selection, StudyView
from ._timeline_routes import area_asked_for, open_asked_for, register_timeline, source_asked_for
from .queries import edge_kinds, focus_of, fold_of, has_selected, hops_of, opened_nodes, stragglers_of

__all__ = ["register"]

_LONGEST_SEARCH = 200
_OF_ALL_NODES = ("anomalies", "error-distribution", "node-differences", "nodes", "slack")


def register(server: Flask, view: StudyView) -> None:
    """Add the data routes of *view* to *server*; but for the notes, all of them only read."""
    register_timeline(server, view)
    register_notes(server, view)
    _register_search(server, view)
    _register_exports(server, view)

    @server.errorhandler(ChakrascopeError)
    def refuse(error: ChakrascopeError) -> Response:
        return Response(error.message, status=409, mimetype="text/plain")


def _register_search(server: Flask, view: StudyView) -> None:
    @server.get("/api/find")
    def find() -> Response:
        run, text = open_asked_for(view), request.args.get("q", "")[:_LONGEST_SEARCH]
        rank = request.args.get("rank", -1, type=int)
        hits = (
            _found_in_one(run, text, rank)
            if run.is_large
            else search_hits(run.nodes, run.words, run.workload.program_of_rank, text, rank=rank)
        )
        rows = hits.assign(name=hits["name"].str.slice(0, _LONGEST_SEARCH)).to_dict("records")
        return jsonify({"run": run.info.id, "hits": rows})


def _found_in_one(run: OpenRun, text: str, rank: int) -> pd.DataFrame:
    """Return search results in the selected *rank* of a large run, by default the first one."""
    place = re.fullmatch(r"(\d{1,9})[:/]\d{1,18}", text.strip())
    wanted = int(place[1]) if place else max(rank, 0)
    nodes = run.nodes_of(wanted)
    programs = np.arange(run.workload.num_ranks, dtype=np.int32)
    return search_hits(nodes, Words.of(nodes), programs, text, rank=wanted)


def _register_exports(server: Flask, view: StudyView) -> None:
    @server.get("/export/area.<extension>")
    def area_file(extension: str) -> Response:
        run = source_asked_for(view)
        return table_file(lambda: area_asked_for(run), "area", extension)

    @server.get("/export/graph-<part>.<extension>")
    def graph(part: str, extension: str) -> Response:
        run, selection = open_asked_for(view), Selection.parse(request.query_string.decode())
        if part not in {"nodes", "edges"} or not has_selected(run, selection):
            abort(404)

        def table() -> pd.DataFrame:
            return graph_tables(
                run,
                *focus_of(run, selection),
                fold=fold_of(selection.option("fold")),
                hops=hops_of(selection.option("hops")),
                kinds=edge_kinds(selection.option("edges")),
                opened=opened_nodes(selection.option("open")),
            )[part]

        return table_file(table, f"graph-{part}", extension)

    @server.get("/export/sweep.<extension>")
    @server.get("/export/sweep-<part>.<extension>")
    def sweep(extension: str, part: str = "points") -> Response:
        try:
            points = read_sweep(view.study, request.args.get("sweep", "")).points
        except ChakrascopeError:
            abort(404)
        if part not in SWEEP_TABLES:
            abort(404)
        against = request.args.get("against", "")
        return table_file(lambda: SWEEP_TABLES[part](points, against), "sweep", extension, is_small=True)

    @server.get("/export/stragglers-<part>.<extension>")
    def straggler_table(part: str, extension: str) -> Response:
        stragglers = stragglers_of(view.study)
        if stragglers is None or part not in STRAGGLER_TABLES:
            abort(404)
        return table_file(lambda: STRAGGLER_TABLES[part](stragglers), f"stragglers-{part}", extension)

    @server.get("/export/imports.<extension>")
    def imports(extension: str) -> Response:
        folder = view.near.import_from
        return table_file(
            lambda: item_table([] if folder is None else find_items(folder)),
            "imports",
            extension,
            is_small=True,
        )

    @server.get("/export/runs.<extension>")
    def runs(extension: str) -> Response:
        return table_file(lambda: run_table(view.runs()), "runs", extension, is_small=True)

    @server.get("/export/<name>.<extension>")
    def export(name: str, extension: str) -> Response:
        run = open_asked_for(view)
        if run.is_large and name in _OF_ALL_NODES:
            raise StudyError(
                f"This table is made of all {run.result.num_nodes:,} nodes, more than the viewer reads. "
                "Next: `chakrascope query` asks for what you need of them; `summary --view slack`, "
                "`compare` and `diagnose` give the others."
            )
        if name in TABLES:
            return table_file(lambda: TABLES[name](run), name, extension)
        if name in OVERVIEWS:
            others = _others(view)
            return table_file(lambda: OVERVIEWS[name]([run, *others]), name, extension)
        if name not in COMPARISONS:
            abort(404)
        other = open_asked_for(view, "against")
        return table_file(lambda: COMPARISONS[name](run, other), name, extension)


def _others(view: StudyView) -> list[OpenRun]:
    names = [name for name in request.args.get("against", "").split(",") if name]
    try:
        return [view.open(name) for name in names]
    except ChakrascopeError:
        abort(404)
