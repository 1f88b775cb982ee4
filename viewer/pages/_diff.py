"""Diff page: what changed between two captures, steps or runs, and what exceeds the noise."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update
from flask import Response, abort, request

from ...errors import Cancelled, ChakrascopeError, ConfigError
from ...runner import StepDiff
from ...runner.analysis import DIFF_TABLES, PARTS
from ...support import parse_number
from .._address import option_id, rewrite
from .._exports import table_file
from .._state import Selection, StudyView
from ..charts import graph, steps_strip, waterfall_bars
from ..queries import Reading, Sides
from ._parts import (
    BY_CTRL_ENTER,
    Works,
    card,
    column,
    empty,
    error_alert,
    export_links,
    kind_column,
    link_to,
    page_title,
    progress_parts,
    table_card,
    text_column,
    while_working,
)

PATH, TITLE, NEEDS_RUN = "/diff", "Diff", False
_BY = {
    "part": "part",
    "kind": "kind of work",
    "class": "class of operators",
    "operator": "operator",
    "module": "module",
    "collective": "collective",
    "phase": "phase",
    "rank": "rank",
}
_VERDICT_COLUMNS = [
    {"field": "verdict", "headerName": "Verdict", "minWidth": 116, "maxWidth": 130},
    {"field": "change", "headerName": "New or gone", "minWidth": 84, "maxWidth": 96},
]
_TIMES = [
    column("base_ns", "Before", "time"),
    column("other_ns", "After", "time"),
    column("delta_ns", "Difference", "±time", minWidth=104),
    column("relative", "Relative", "±%", minWidth=96),
    *_VERDICT_COLUMNS,
]
_COUNTS = [column("count_base", "Count, before", "count"), column("count_other", "Count, after", "count")]
_ON_PATH = [
    column("on_path_base_ns", "On path, before", "time", minWidth=100),
    column("on_path_other_ns", "On path, after", "time", minWidth=100),
]
_NAME = text_column("key", "Name", flex=4, minWidth=200)
_PIECES = [_NAME, kind_column(), *_COUNTS, *_TIMES, *_ON_PATH]
_OPERATORS = [_NAME, text_column("class", "Class", minWidth=110), *_COUNTS, *_TIMES, *_ON_PATH]
_CLASSES = [text_column("key", "Class", flex=4, minWidth=200), *_TIMES]
_COLLECTIVES = [
    text_column("operation", "Operation", minWidth=130),
    column("size_bytes", "Size", "bytes"),
    text_column("group", "Group", minWidth=100),
    *_TIMES,
    column("wait_base_ns", "Wait, before", "time", minWidth=100),
    column("wait_other_ns", "Wait, after", "time"),
    column("transfer_base_ns", "Transfer, before", "time", minWidth=100),
    column("transfer_other_ns", "Transfer, after", "time", minWidth=100),
]
_FIGURES = [
    text_column("quantity", "Figure", minWidth=130),
    *_TIMES[:4],
    column("low_ns", "Interval, from", "±time", minWidth=100),
    column("high_ns", "Interval, to", "±time", minWidth=96),
    *_VERDICT_COLUMNS[:1],
]
_PATHS = [
    text_column("part", "Part of the path", flex=4, minWidth=220),
    *_TIMES[:3],
    _VERDICT_COLUMNS[1],
    column("start_base_ns", "From, before", "instant"),
    column("start_other_ns", "From, after", "instant"),
    column("rank_base", "Rank, before", maxWidth=96),
    column("rank_other", "Rank, after", maxWidth=96),
]
_WATERFALL_NOTE = (
    "The critical path of the median step, before and after; the parts add up exactly to the difference. "
    "Orange parts are longer and green parts are shorter. Grey parts may be noise, or sum up all further "
    "parts. The axis does not start at 0."
)
_DEVICE_NOTE = (
    "Work and idle time of the device in the median step, as means over the ranks. Overlapping work counts "
    "only once, so the differences add up exactly."
)
_NOTHING = "This study has nothing to compare yet: capture a job twice (chakrascope trace), or make two runs."
_CHOOSE = "Choose two sides and press Compare. This takes a while, because every step of a capture is read."
_ABOUT = "Changes of a step between two captures or runs, in parts that add up to the difference exactly."
_ASKED = ("before", "after", "starts")
_STARTS_NOTE = "Variation between starts of the same job, needed if a side has fewer than four captures"


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the Diff page; the address has both sides."""
    sides = Sides(view)
    options = sides.options()
    known = {item["value"] for group in options for item in group["items"]}
    proposed = sides.defaults()
    names = ("before", "after")
    chosen = [selection.option(name, default) for name, default in zip(names, proposed, strict=True)]
    if not known:
        return dmc.Stack([page_title(TITLE, _ABOUT), empty(_NOTHING)])
    picks = [
        dmc.Select(
            id=f"diff-{name}", label=name.capitalize(), data=options, searchable=True, maxDropdownHeight=420,
            value=value if value in known else None, style={"flex": "1 1 260px"},
            placeholder="a capture or a run",
        )
        for name, value in zip(names, chosen, strict=True)
    ]  # fmt: skip
    by = dmc.Select(
        id=option_id("by", "part"),
        label="Break down by",
        data=[{"value": part, "label": _BY[part]} for part in PARTS],
        value=selection.option("by") if selection.option("by") in PARTS else "part",
        allowDeselect=False,
        w=150,
    )
    starts = dmc.TextInput(
        id="diff-starts", label="Variation of starts (%)", value=selection.option("starts"), w=170,
        placeholder="unknown", **{"aria-description": _STARTS_NOTE},
    )  # fmt: skip
    go = dmc.Button("Compare", id="diff-go", **BY_CTRL_ENTER)
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            dmc.Group([*picks, by, starts, go], align="end"),
            dcc.Store(id="diff-shown"),
            dcc.Store(id="diff-again"),
            *progress_parts("diff", "Sides read"),
            html.Div(id="diff-result", **{"aria-live": "polite"}),
        ],
        gap="md",
    )


def _share(text: str) -> float | None:
    """Parse a percentage to a fraction; None for an empty text. Raises `ConfigError` for other texts."""
    try:
        return float(parse_number(text.strip().removesuffix("%")) / 100) if text.strip() else None
    except ValueError as error:
        raise ConfigError(f"Variation of starts: {error}") from None


def _result(sides: Sides, asked: dict[str, str], scheme: str, reading: Reading) -> Any:
    found = sides.diff(asked["before"], asked["after"], _share(asked["starts"]), reading)
    notes = [*found.base.notes, *found.other.notes]
    # Without an address, no timeline can show both sides.
    address = sides.on_timeline(asked["before"], asked["after"])
    return dmc.Stack(
        [
            card(
                "What changed",
                dmc.Text(found.headline, id="diff-headline", fw=600),
                dmc.Text(found.noise, size="sm", c="dimmed"),
                *(dmc.Text(note, size="sm", c="dimmed") for note in notes),
                *([link_to("Both on one timeline", "/timeline", address)] if address else []),
                graph(steps_strip(found.base, found.other, scheme), id="diff-steps"),
            ),
            card(
                "The difference, part by part",
                graph(waterfall_bars(found, asked["by"], scheme), id="diff-waterfall"),
                note=_WATERFALL_NOTE,
                exports=export_links("diff-waterfall", **asked),
            ),
            *_tables(sides, found, asked, scheme),
        ],
        gap="md",
    )


def _tables(sides: Sides, found: StepDiff, asked: dict[str, str], scheme: str) -> list[Any]:
    figures = found.figures[found.figures["unit"] == "ns"]
    figures = figures.rename(
        columns={name: f"{name}_ns" for name in ("base", "other", "delta", "low", "high")}
    )
    paths = found.paths.copy()
    for name in ("start_base_ns", "start_other_ns", "rank_base", "rank_other"):
        paths[name] = paths[name].where(paths[name] >= 0)  # a new piece has no start time on the old path
    means = "Each value is the median over the steps, of the mean over the ranks of a step."
    return [
        table_card("Figures", "diff-figures", figures, _FIGURES, scheme, query=asked, note=means, most=320),
        table_card("Classes of operators", "diff-classes", found.classes, _CLASSES, scheme, query=asked,
                   note=_DEVICE_NOTE),
        table_card("Operators", "diff-operators", found.operators, _OPERATORS, scheme, query=asked,
                   note=_DEVICE_NOTE),
        table_card("Modules", "diff-modules", found.modules, _PIECES, scheme, query=asked, note=means),
        table_card("Collectives", "diff-collectives", found.collectives, _COLLECTIVES, scheme, query=asked,
                   note="Wait is the time until the last rank has arrived; transfer is the time after that."),
        table_card("Critical paths side by side", "diff-paths", paths, _PATHS, scheme, query=asked,
                   note="The rows are in order of time, aligned by common nodes of the paths."),
    ]  # fmt: skip


def _asked(selection: Selection) -> dict[str, str]:
    """Return the comparison in the address, with empty sides without one."""
    by = selection.option("by")
    return {
        "before": selection.option("before"),
        "after": selection.option("after"),
        "by": by if by in PARTS else "part",
        "starts": selection.option("starts"),
    }


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that choose two sides, compare them, and export the result."""
    sides = Sides(view)
    _register_reading(app, sides)

    @app.callback(
        Output("diff-again", "data"), Input("diff-go", "n_clicks"),
        *(State(f"diff-{name}", "value") for name in _ASKED), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def ask(clicks: int | None, *states: Any) -> Any:
        """Put the selected comparison into the address, or start it if the address has it already."""
        *chosen, search = states
        selection = Selection.parse(search)
        for name, value in zip(_ASKED, chosen, strict=True):
            selection = selection.with_option(name, str(value or ""))
        if not clicks or selection.search == (search or ""):
            return clicks or no_update
        rewrite(PATH, selection.search)
        return no_update

    @app.server.get("/export/diff-<part>.<extension>")
    def export_diff(part: str, extension: str) -> Response:
        if part not in DIFF_TABLES:
            abort(404)
        asked = _asked(Selection.parse(request.query_string.decode()))
        try:
            found = sides.diff(asked["before"], asked["after"], _share(asked["starts"]))
        except ChakrascopeError:
            abort(404)
        return table_file(lambda: found.table(part, asked["by"]), f"diff-{part}", extension)


def _register_reading(app: Dash, sides: Sides) -> None:
    """Register the callbacks that read both sides, show progress, and can be cancelled."""
    readings: Works[Reading] = Works()
    readings.register(app, "diff")

    @app.callback(
        Output("diff-result", "children"), Output("diff-shown", "data"), Input("url", "search"),
        Input("diff-again", "data"), State("diff-shown", "data"), State("dark", "checked"),
        State("diff-page", "data"),
        running=while_working("diff"),
    )  # fmt: skip
    def show(search: str | None, _again: Any, shown: Any, dark: bool, page: Any) -> tuple[Any, Any]:
        asked = _asked(Selection.parse(search))
        if asked == shown:
            return no_update, no_update
        if not asked["before"] or not asked["after"]:
            return empty(_CHOOSE), asked
        try:
            with readings.of(str(page), Reading()) as reading:
                return _result(sides, asked, "dark" if dark else "light", reading), asked
        except Cancelled:
            return empty("The comparison was cancelled; press Compare to start again."), None
        except ChakrascopeError as error:
            return error_alert(error.message, id="diff-error"), asked
