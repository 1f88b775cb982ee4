"""The host calls of the captured step as an icicle: of a window on the timeline, and of the critical path."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State

from ...errors import ChakrascopeError
from ...runner.analysis import host_stack_table
from ...support import duration_text
from .._state import OpenRun, StudyView
from ..charts import graph, stacks_icicle
from ._parts import card, empty, export_links

__all__ = ["path_stacks", "register_stacks"]

_MOST_RANKS = 8
_NO_CALLS = "The device traces of this run's workload are not here, so its host calls are unknown."
_PATH_NOTE = (
    "What the host threads called while the critical path was in host work, each below its caller; each "
    "thread by itself. Drag along the axis to zoom, double-click to zoom out."
)


def path_stacks(run: OpenRun, scheme: str) -> Any:
    """Return the card of the host calls of the critical path, on the rank where it spends most in them."""
    path = run.path.unreasoned
    by_rank = path[path["kind"] == "host"].groupby("rank")["duration_ns"].sum()
    if not run.calls or by_rank.empty:
        return None
    rank = int(by_rank.idxmax())
    stacks = host_stack_table(run, [rank])
    if not stacks["on_path_ns"].any():
        return None
    title = f"Host calls of the critical path, rank {rank}: {duration_text(int(by_rank.max()))}"
    return card(title, graph(stacks_icicle(stacks, "on_path_ns", scheme)), note=_PATH_NOTE,
                exports=export_links("host", run=run.info.id))  # fmt: skip


def _window_stacks(run: OpenRun, asked: dict[str, Any], scheme: str) -> Any:
    """Return the host calls in a window of the capture, on at most eight of the ranks asked for."""
    if not run.calls:
        return empty(_NO_CALLS)
    ranks, window = [int(rank) for rank in asked["ranks"]], (int(asked["t0"]), int(asked["t1"]))
    stacks = host_stack_table(run, ranks[:_MOST_RANKS], window)
    if not stacks["total_ns"].any():
        return empty("No host thread of these ranks called anything then.")
    more = f" The first {_MOST_RANKS} of {len(ranks)} ranks." if len(ranks) > _MOST_RANKS else ""
    text = (
        f"Calls of the host threads from {duration_text(window[0])} to {duration_text(window[1])} of the "
        f"captured step, each below its caller.{more} "
    )
    query = {"run": run.info.id, "ranks": ",".join(map(str, ranks[:_MOST_RANKS])), "t0": str(window[0])}
    return [
        dmc.Text([text, export_links("host", **query, t1=str(window[1]))], size="sm"),
        graph(stacks_icicle(stacks, "total_ns", scheme)),
    ]


def register_stacks(app: Dash, view: StudyView) -> None:
    """Draw what the timeline asks for, and the card of the critical path once its page stands."""

    @app.callback(
        Output("timeline-stacks", "children"), Input("timeline-stacks-asked", "data"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def show_window(asked: dict[str, Any] | None, dark: bool) -> Any:
        if not asked:
            return None
        try:
            return _window_stacks(view.open(str(asked["run"])), asked, "dark" if dark else "light")
        except ChakrascopeError as error:
            return dmc.Alert(error.message, color="red", variant="light")

    @app.callback(
        Output("path-stacks", "children"), Input("path-stacks", "id"), State("run", "data"),
        State("dark", "checked"),
    )  # fmt: skip
    def show_path(_id: str, run: str, dark: bool) -> Any:
        try:
            return path_stacks(view.open(run), "dark" if dark else "light")
        except ChakrascopeError as error:
            return dmc.Alert(error.message, color="red", variant="light")
