"""Give out, keep and remove notes on a run's timeline."""

from __future__ import annotations

from typing import Any

from flask import Flask, Response, abort, jsonify, request

from ..errors import ChakrascopeError
from ..runner.study import TimelineNote, add_timeline_note, remove_timeline_note, timeline_notes
from ._state import OpenRun, StudyView
from ._timeline_routes import index_asked_for, open_asked_for

__all__ = ["register_notes"]


def register_notes(server: Flask, view: StudyView) -> None:
    """Add the routes of the notes to *server*; other sites' pages cannot post to them."""

    @server.get("/api/notes")
    def notes() -> Response:
        return _listed(view, open_asked_for(view))

    @server.post("/api/notes")
    def change() -> Response:
        """Keep a note (``text``, ``t0``, ``t1``, ``rank``, ``node``), or remove one (``remove``: its id)."""
        asked = request.get_json()
        if not isinstance(asked, dict):
            abort(400)
        run = open_asked_for(view)
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
    add_timeline_note(view.study, run.info.id, str(asked.get("text", "")), (t0, t1), where)


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
    """Return a note with the lane of its slice and a description of its subject."""
    about, lane = "", -1
    if note.node >= 0:
        found = run.node(note.rank, note.node)
        lane = index_asked_for(run).lane_of(note.rank, note.node)[0]
        about = "" if found is None else str(found["name"])[:80]
    return {
        "id": note.id, "text": note.text, "t0_ns": note.t0_ns, "t1_ns": note.t1_ns, "rank": note.rank,
        "node": note.node, "created": note.created, "about": about, "lane": lane,
    }  # fmt: skip
