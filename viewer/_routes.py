"""Routes for whole tables, configurations and notes."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pandas as pd
from flask import Flask, Response, abort, jsonify, request

from ..errors import ChakrascopeError, ConfigError
from ..runner import (
    DEFAULT_BACKEND,
    Experiment,
    experiment_archive,
    find_items,
    read_sweep,
    sweep_experiment,
    sweep_names,
)
from ..runner.analysis import (
    COMPARISONS,
    OVERVIEWS,
    STRAGGLER_TABLES,
    TABLES,
    graph_tables,
    search_hits,
)
from ..runner.study import (
    TimelineNote,
    add_timeline_note,
    item_table,
    remove_timeline_note,
    run_table,
    timeline_notes,
)
from ..runner.sweep import SWEEP_TABLES
from ._exports import table_file
from ._state import OpenRun, Selection, StudyView
from ._timeline_routes import (
    register_timeline,
    requested_area,
    requested_index,
    requested_run,
    requested_source,
)
from .queries import (
    command_line,
    edge_kinds,
    experiment_of,
    focus_of,
    fold_of,
    form_at,
    has_selected,
    hops_of,
    opened_nodes,
    stragglers_of,
)

# Version of viewer/vendor/plotly. It is part of the script's address (assets/03_shell.js), so that
# browsers may cache it.
_VERSION = "4.1.1"
_SCRIPT = Path(__file__).parent / "vendor" / "plotly" / "plotly-cartesian.min.js.gz"
_YEAR_S = 365 * 86400
_LONGEST_SEARCH = 200


def register(server: Flask, view: StudyView) -> None:
    """Add the data routes of *view*; only the routes of notes write data."""
    register_timeline(server, view)
    _register_notes(server, view)
    _register_configurations(server, view)
    _register_charts(server)
    _register_search(server, view)
    _register_exports(server, view)

    @server.errorhandler(ChakrascopeError)
    def refuse(error: ChakrascopeError) -> Response:
        return Response(error.message, status=409, mimetype="text/plain")


def _register_search(server: Flask, view: StudyView) -> None:
    @server.get("/api/find")
    def find() -> Response:
        run, text = requested_run(view), request.args.get("q", "")[:_LONGEST_SEARCH]
        rank = request.args.get("rank", -1, type=int)
        hits = search_hits(run.nodes_of, run.searched, run.workload.program_of_rank, text, rank=rank)
        rows = hits.assign(name=hits["name"].str.slice(0, _LONGEST_SEARCH)).to_dict("records")
        return jsonify({"run": run.info.id, "hits": rows})


def _register_exports(server: Flask, view: StudyView) -> None:
    @server.get("/export/area.<extension>")
    def area_file(extension: str) -> Response:
        run = requested_source(view)
        return table_file(lambda: requested_area(run), "area", extension)

    @server.get("/export/graph-<part>.<extension>")
    def graph(part: str, extension: str) -> Response:
        run, selection = requested_run(view), Selection.parse(request.query_string.decode())
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
        run = requested_run(view)
        if name in TABLES:
            return table_file(lambda: TABLES[name](run), name, extension)
        if name in OVERVIEWS:
            others = _others(view)
            return table_file(lambda: OVERVIEWS[name]([run, *others]), name, extension)
        if name not in COMPARISONS:
            abort(404)
        other = requested_run(view, "against")
        return table_file(lambda: COMPARISONS[name](run, other), name, extension)


def _others(view: StudyView) -> list[OpenRun]:
    names = [name for name in request.args.get("against", "").split(",") if name]
    try:
        return [view.open(name) for name in names]
    except ChakrascopeError:
        abort(404)


def _register_configurations(server: Flask, view: StudyView) -> None:
    """Add the routes that download configurations, all of them read-only."""

    @server.get("/export/new-run.zip")
    def new_run() -> Response:
        if not view.study.workloads():
            abort(404)
        form, _ = form_at(view, Selection.parse(request.query_string.decode()))
        if form.ignored:
            return _refusal(ConfigError(" ".join(form.ignored)))
        backend = form.backends[0] if form.backends else DEFAULT_BACKEND
        command = command_line(form.setup, form.backends, form.workload)
        try:
            experiment = experiment_of(form.setup, view.study.workload_prefix(form.workload), backend)
            return _zip(experiment, command, "new-run.zip")
        except ChakrascopeError as error:
            return _refusal(error)

    @server.get("/export/point.zip")
    def point() -> Response:
        name, identity = request.args.get("sweep", ""), request.args.get("point", "")
        if name not in sweep_names(view.study):
            abort(404)
        try:
            experiment = sweep_experiment(view.study, name, identity)
            command = "chakrascope run STUDY --network network.yml --system system.json --memory memory.json"
            return _zip(experiment, f"{command} --backend {experiment.backend}", "point.zip")
        except ChakrascopeError as error:
            return _refusal(error)


def _zip(experiment: Experiment, command: str, name: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return Response(experiment_archive(experiment, command), mimetype="application/zip", headers=headers)


def _refusal(error: ChakrascopeError) -> Response:
    return Response(error.message, status=400, mimetype="text/plain")


def _register_notes(server: Flask, view: StudyView) -> None:
    """Add the routes of timeline notes, to which other sites cannot post."""

    @server.get("/api/notes")
    def notes() -> Response:
        return _listed(view, requested_run(view))

    @server.post("/api/notes")
    def change() -> Response:
        """Store a note (``text, t0, t1, rank, node, measured``), or delete the note ``remove``."""
        asked = request.get_json()
        if not isinstance(asked, dict):
            abort(400)
        run = requested_run(view)
        try:
            if "remove" in asked:
                remove_timeline_note(view.study, run.info.id, str(asked["remove"]))
            else:
                _keep(view, run, asked)
        except ChakrascopeError as error:
            return _refused(error)
        return _listed(view, run)


def _keep(view: StudyView, run: OpenRun, asked: dict[str, Any]) -> None:
    numbers = [asked.get(name, -1) for name in ("t0", "t1", "rank", "node")]
    if not all(type(number) is int for number in numbers):
        abort(400)
    t0, t1, rank, node = numbers
    if node >= 0 and run.node(rank, node) is None:
        abort(404)
    where = (rank, node) if node >= 0 else (-1, -1)
    measured = asked.get("measured")
    if not isinstance(measured, bool | None):
        abort(400)
    add_timeline_note(view.study, run.info.id, str(asked.get("text", "")), (t0, t1), where, measured=measured)


def _listed(view: StudyView, run: OpenRun) -> Response:
    try:
        notes = timeline_notes(view.study, run.info.id)
    except ChakrascopeError as error:
        return _refused(error)
    return jsonify({"notes": [_placed(run, note) for note in notes]})


def _refused(error: ChakrascopeError) -> Response:
    reply = jsonify({"problem": error.message})
    reply.status_code = 409
    return reply


def _placed(run: OpenRun, note: TimelineNote) -> dict[str, Any]:
    """Return a note as a JSON object with its node's lane, times and name."""
    about, lane, t0_ns, t1_ns = "", -1, note.t0_ns, note.t1_ns
    if note.node >= 0:
        found = run.node(note.rank, note.node)
        lane, start_ns, end_ns = requested_index(run).lane_of(note.rank, note.node)
        t0_ns, t1_ns = (start_ns, end_ns) if lane >= 0 else (t0_ns, t1_ns)
        about = "" if found is None else str(found["name"])[:80]
    return {
        "id": note.id, "text": note.text, "t0_ns": t0_ns, "t1_ns": t1_ns, "rank": note.rank,
        "node": note.node, "created": note.created, "about": about, "lane": lane, "measured": note.measured,
    }  # fmt: skip


def _register_charts(server: Flask) -> None:
    """Serve the part of plotly.js that charts need, a third of the library.

    The whole library would delay the first page by a second.
    """

    @server.get(f"/charts/plotly-cartesian-{_VERSION}.min.js")
    def script() -> Response:
        packed = _SCRIPT.read_bytes()
        if request.accept_encodings["gzip"]:
            reply = Response(packed, mimetype="text/javascript")
            reply.content_encoding = "gzip"
        else:
            reply = Response(gzip.decompress(packed), mimetype="text/javascript")
        reply.vary.add("Accept-Encoding")
        reply.cache_control.max_age = _YEAR_S
        reply.cache_control.immutable = True
        return reply
