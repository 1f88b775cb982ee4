"""Stragglers page: workers that slow recorded steps, the causes, and the operations of a step."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html

from ...runner.analysis import STRAGGLER_TABLES, Matrix, Stragglers
from .._address import set_option
from .._state import Selection, StudyView
from ..charts import graph, heat_map, step_bars
from ..queries import slowdown_matrix, step_operations, stragglers_of, worst_step
from ._parts import card, column, empty, page_title, prose, table_card, text_column

PATH, TITLE = "/stragglers", "Stragglers"
NEEDS_RUN = False
_MAP, _STEP = "straggler-map", "straggler-step"
_FACTOR: dict[str, Any] = {"valueFormatter": {"function": "params.value.toFixed(3)"}}
_TYPES = [
    text_column("type", "Type of operation"),
    column("slowdown", "Slowdown", **_FACTOR),
    column("worst", "In the worst step", **_FACTOR),
    column("worst_step", "Worst step"),
]
_WORKERS = [
    column("rank", "Rank"),
    column("replica", "Replica"),
    column("stage", "Stage"),
    *_TYPES[1:],
]
_STEPS = [
    column("step", "Step"),
    column("recorded_ns", "Recorded", "time"),
    column("replayed_ns", "Replayed", "time"),
    column("slowdown", "Slowdown", **_FACTOR),
    column("slowest_rank", "Slowest rank"),
    column("rank_slowdown", "By that rank", **_FACTOR),
]
_ABOUT = (
    "The workers that make recorded steps slow, and why. Select a cell of the map to see the operations of "
    "its worst step."
)
_MAP_NOTE = (
    "How much longer a step takes because of one worker; a cell for several workers or steps shows the "
    "largest value."
)
_STEP_NOTE = "The slowest workers of the step, the slowest on top."


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the Stragglers page, or instructions to record many steps."""
    stragglers = stragglers_of(view.study)
    if stragglers is None:
        return dmc.Stack([page_title(TITLE, _ABOUT), _instructions()], gap="md")
    matrix = slowdown_matrix(stragglers)
    tables = [
        table_card(title, f"stragglers-{name}", STRAGGLER_TABLES[name](stragglers), columns, scheme, query={})
        for title, name, columns in (
            ("Types", "types", _TYPES), ("Workers", "workers", _WORKERS), ("Steps", "steps", _STEPS),
        )
    ]  # fmt: skip
    drawn = heat_map(matrix, _texts(matrix), scheme)
    drawn.update_traces(zmin=0, zmax=max(0.01, matrix.values.max()))  # no colour where nothing is slower
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            html.Div([dmc.Text(prose(text), mb=4) for text in stragglers.sentences], id="stragglers-text"),
            *(dmc.Text(prose(f"Note: {remark}."), size="sm", c="dimmed") for remark in stragglers.remarks),
            card("Workers and steps", graph(drawn, id=_MAP), note=_MAP_NOTE),
            html.Div(_step_card(stragglers, selection, scheme), id=_STEP),
            *tables,
        ],
        gap="md",
    )


def _step_card(stragglers: Stragglers, selection: Selection, scheme: str) -> Any:
    """Return the card with the operations of the step in the address, or of the slowest."""
    slowest = int(stragglers.layout.steps[stragglers.slowdowns.by_step.argmax()])
    text = selection.option("step")
    step = int(text) if text.isdecimal() else slowest
    operations = step_operations(stragglers, step)
    if operations.empty:
        return card("Step", empty(f"Step {step} was not recorded, or was left out. Select a cell above."))
    return card(f"Step {step}", graph(step_bars(operations, scheme), mode_bar=True), note=_STEP_NOTE)


def _texts(matrix: Matrix) -> list[list[str]]:
    return [[f"{1 + value:.2f}" for value in row] for row in matrix.values.tolist()]


def _instructions() -> Any:
    code = (
        "chakrascope trace --steps 0 -o STUDY -- torchrun --nproc-per-node 2 train.py\n"
        "chakrascope view operations.parquet"
    )
    return card(
        "No recording of many steps",
        dmc.Text("Record the phases of all steps of a job, or open a table of timed operations:", mb="xs"),
        dmc.Code(code, block=True),
    )


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that choose a cell's worst step, and draw the operations of a step."""

    @app.callback(
        Output(_STEP, "children"), Input("url", "search"), State("dark", "checked"), prevent_initial_call=True
    )
    def show_step(search: str | None, dark: bool) -> Any:
        """Draw the operations of the step in the address."""
        stragglers = stragglers_of(view.study)
        return stragglers and _step_card(stragglers, Selection.parse(search), "dark" if dark else "light")

    @app.callback(
        Input(_MAP, "clickData"), State("run", "data"), State("url", "search"), prevent_initial_call=True
    )
    def choose_step(clicked: dict[str, Any] | None, run: str | None, search: str | None) -> None:
        """Put the worst step of the clicked cell into the address."""
        stragglers = stragglers_of(view.study)
        if not clicked or stragglers is None:
            return
        point = clicked["points"][0]
        step = worst_step(stragglers, str(point.get("y")), str(point.get("x")))
        if step >= 0:
            set_option(PATH, search, run, "step", str(step))
