"""Sweep page: best settings, the effect of each setting, and a form to start sweeps."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import dash_mantine_components as dmc
import pandas as pd
from dash import ALL, Dash, Input, Output, State, ctx, dcc, html, no_update

from ...errors import ChakrascopeError
from ...runner import JobStore, Sweep, read_sweep, sweep_names
from ...runner.sweep import (
    Goal,
    answered,
    available_goal,
    best_by,
    best_point,
    more_is_cheaper,
    objectives,
    per_captured_step,
    point_label,
    points_file,
    setting_title,
    sweep_experiment,
    sweep_workload,
    swept_settings,
    worth_their_cost,
)
from ...support import count_text, duration_text
from .._address import option_id, set_option
from .._state import Selection, StudyView
from ..charts import best_heat_map, frontier_scatter, graph, parallel_coordinates
from ..queries import LEAST, aim_goal, decode_aim, figure_text
from ._jobs import jobs_card
from ._parts import (
    SINGLE_ROW,
    card,
    column,
    empty,
    error_alert,
    export_links,
    fitting,
    link_to,
    no_workload,
    page_address,
    page_title,
    table,
    text_column,
)
from ._sweep_start import register_start, start_card

PATH, TITLE = "/sweep", "Sweep"
NEEDS_RUN = False
_ABOUT = (
    "Step times of many simulations that differ in some settings. Start a sweep, or select a point to open "
    "its run or its files."
)
_NO_POINT = dmc.Text("No point is selected.", size="sm", mb="xs")
_RANKS_NOTE = (
    " If a captured workload is scaled out, each rank has its own batch, so more ranks do more work per step."
)
_FIGURES = [
    column("ranks", "Ranks", maxWidth=90),
    column("makespan_ns", "Step", "time"),
    column("exposed_comm_ns", "Exposed comm., maximum", "time", minWidth=110),
    column("comm_ns", "Comm.", "time", minWidth=90),
    {"field": "state", "headerName": "State", "minWidth": 84, "maxWidth": 100},
    text_column("error", "Error"),
]
_COST = column(
    "cost", "Cost per step", minWidth=110, valueFormatter={"function": "inFourDigits(params.value)"}
)


def layout(view: StudyView, selection: Selection, scheme: str) -> Any:
    """Return the Sweep page: the form, the jobs, and the sweep in the address."""
    names = sweep_names(view.study)
    if not names and not view.study.workloads():
        return no_workload(selection.search)
    shown = _shown(names, selection)
    choice = dmc.Select(
        id="sweep-name", data=names, value=shown or None, allowDeselect=False, w=320,
        placeholder="no sweep yet", **{"aria-label": "Sweep shown"},
    )  # fmt: skip
    can_begin = bool(view.study.workloads())
    begin = [html.A("New sweep", href="#sweep-new", className="text-link")] if names and can_begin else []
    parts: list[Any] = [
        page_title(TITLE, _ABOUT, dmc.Group([*begin, choice])),
        dcc.Store(id="sweep-stamp", data=_stamp(view, shown)),
        html.Div(_sweep(view, shown, scheme, selection), id="sweep"),
    ]
    if can_begin:
        # If there are sweeps, the form comes below the one shown.
        place = 3 if names else 2
        parts[place:place] = [start_card(view, selection), jobs_card()]
    return dmc.Stack(parts, gap="md")


def _shown(names: list[str], selection: Selection) -> str:
    """Return the sweep in the address (even if unknown), or the newest."""
    return selection.option("sweep") or (names[-1] if names else "")


def _stamp(view: StudyView, name: str) -> str:
    """Return the version of a sweep's points, as text because browsers round large numbers."""
    file = points_file(view.study, name) if name in sweep_names(view.study) else None
    return f"{file.stat().st_mtime_ns} {name}" if file is not None and file.is_file() else ""


def _sweep(view: StudyView, name: str, scheme: str, selection: Selection) -> Any:
    if not name:
        return empty("No sweep yet: choose a setting above, or use `chakrascope sweep STUDY --over ...`.")
    try:
        found = read_sweep(view.study, name)
    except ChakrascopeError as error:
        return error_alert(error.message)
    points = answered(found.points)
    goal = available_goal(found.points, aim_goal(decode_aim(selection.option("aim"))))
    if points.empty:
        return card("No point of this sweep has a result yet", _points(found, goal, scheme))
    settings = swept_settings(found.points)
    parts: list[Any] = [*_unfinished(view, found), _best(view, name, points, settings, goal)]
    if len(settings) > 1:
        parts.append(_heat(name, points, settings, scheme))
    objective = selection.option("pareto")
    charts = [_pareto(name, points, settings, objective, scheme)] if objectives(points) else []
    if settings:
        note = (
            "Each line is a point, with the fastest drawn on top: a setting matters if the blue lines meet "
            "at one value."
        )
        lines = graph(parallel_coordinates(points, settings, scheme))
        charts.append(card("All settings at once", lines, note=note))
    parts.append(dmc.SimpleGrid(charts, cols={"base": 1, "xl": 2}))
    return dmc.Stack([*parts, _points(found, goal, scheme)], gap="md")


def _unfinished(view: StudyView, found: Sweep) -> list[Any]:
    """Return a notice if a sweep is incomplete, so that its answer may change; otherwise an empty list."""
    if not found.missing:
        return []
    done = len(found.points)
    points = count_text(done + found.missing, "point")
    text = f"{done:,} of {points} so far; a better point may be among the others."
    jobs = [job for job in JobStore(view.study).jobs() if job.kind == "sweep" and job.label == found.name]
    if not jobs or jobs[-1].state == "done":
        text += " The sweep was interrupted, or is running on the command line; the same command resumes it."
    elif not jobs[-1].is_active:
        ended = "failed" if jobs[-1].state == "failed" else "been cancelled"
        text += f" The sweep has {ended}; start it again to resume."
    return [dmc.Alert(text, color="yellow", variant="light", id="sweep-unfinished")]


def _best(view: StudyView, name: str, points: pd.DataFrame, settings: list[str], goal: Goal) -> Any:
    best, within = best_point(points, goal)
    chosen = point_label({each: best[each] for each in settings}) or "its only point"
    value = figure_text(goal.least, best[goal.least])
    limits = " within the limits" if goal.at_most else ""
    text = f"{LEAST[goal.least].capitalize()}{limits} is {value}, with {chosen}"
    if not within:
        text = f"No point is within the limits; the closest is {value}, with {chosen}"
    text += _ties(points, best, goal, settings)
    if goal.least == "makespan_ns":
        longest = int(points["makespan_ns"].max()) / max(1, int(best["makespan_ns"]))
        text += f"; the slowest point takes {longest:.3g} times as long." if longest > 1 else "."
    else:
        text += f"; the step takes {duration_text(int(best['makespan_ns']))}."
    links = html.Div(_point_links(view, name, str(best["id"])), className="link-row")
    return html.Div([dmc.Title(text, order=3, size="h4", id="sweep-best"), links])


def _point_links(view: StudyView, name: str, identity: str) -> list[Any]:
    """Return links to a point's run, if there is one, and to its files."""
    query = urlencode({"sweep": name, "point": identity})
    zipped = page_address("/export/point.zip", f"?{query}")
    run = Selection(identity).search
    is_run = identity in {info.id for info in view.runs()}
    return [
        *([link_to("Open this run", "/", run)] if is_run else []),
        html.A("Files as a zip", href=zipped, className="text-link", download="point.zip"),
    ]


def _ties(points: pd.DataFrame, best: pd.Series, goal: Goal, settings: list[str]) -> str:
    """Return a text about points as good as *best*; empty if there are none."""
    excess = goal.excess(points)
    alike = points[(points[goal.least] == best[goal.least]) & (excess == excess.min())]
    if len(alike) < 2:
        return ""
    free = [setting_title(each) for each in settings if alike[each].nunique() > 1]
    others = count_text(len(alike) - 1, "other point")
    as_good = f"; {others} {'is' if len(alike) == 2 else 'are'} just as good"
    return as_good + (f" (differing in {' and '.join(free)})" if free else "")


def _heat(name: str, points: pd.DataFrame, settings: list[str], scheme: str) -> dmc.Paper:
    row, column_ = settings[1], settings[0]
    matrix = best_by(points, row, column_)
    note = f"The shortest step for each {setting_title(row)} (rows) and {setting_title(column_)} (columns)."
    exports = export_links("sweep-pairs", sweep=name)
    return card(
        "Two settings", graph(best_heat_map(matrix, scheme, row, column_)), note=note, exports=exports
    )


def _pareto(name: str, points: pd.DataFrame, settings: list[str], objective: str, scheme: str) -> dmc.Paper:
    names = objectives(points)
    against = objective if objective in names else names[0]
    title = setting_title(against)
    least = "the largest" if more_is_cheaper(against) else "the smallest"
    note = f"Marked: the Pareto front, the shortest step for each cost; of {title}, {least} costs least."
    note += _RANKS_NOTE if against == "ranks" else ""
    compared = per_captured_step(points)
    note += "" if compared is points else " Times and costs are per captured step."
    scatter = frontier_scatter(
        compared.assign(best=worth_their_cost(points, against)), settings, against, scheme
    )
    choice = dmc.Select(
        id=option_id("pareto", names[0]), value=against, allowDeselect=False, w=220, size="xs",
        data=[{"value": each, "label": setting_title(each, unit=True)} for each in names],
        **{"aria-label": "Second objective"},
    )  # fmt: skip
    exports = export_links("sweep-front", sweep=name, against=against)
    return card("Step time against its cost", choice, graph(scatter), note=note, exports=exports)


def _points(found: Sweep, goal: Goal, scheme: str) -> dmc.Paper:
    settings = [text_column(name, setting_title(name, unit=True)) for name in swept_settings(found.points)]
    # The table would take dots in names for paths of nested fields.
    renamed = {name: name.replace(".", " ") for name in found.points.columns}
    for made in settings:
        made |= {"field": renamed[made["field"]], "tooltipField": renamed[made["field"]]}
    rows = goal.best_first(found.points).rename(columns=renamed).drop(columns="settings")
    rows = rows.astype(object).where(rows.notna(), None)
    height = fitting(len(rows), 460)
    head = dmc.Group([dmc.Text(f"{found.failed:,} failed", size="sm", c="dimmed"),
                      export_links("sweep", sweep=found.name)], justify="space-between", mb=4)  # fmt: skip
    columns = [*settings, *_figures(found.points)]
    grid = table("sweep-table", rows, columns, scheme, height=height, rowSelection=SINGLE_ROW)
    opened = html.Div(_NO_POINT, id="sweep-point", **{"aria-live": "polite"})
    note = "Select a point to open it as a run."
    return card(f"All {count_text(len(rows), 'point')}, best first", head, opened, grid, note=note)


def _point(view: StudyView, name: str, row: dict[str, Any]) -> Any:
    """Return buttons and links for the point in *row*."""
    identity = str(row.get("id") or "")
    if row.get("state") != "done" or not identity:
        return empty("This point has no result, so it cannot be opened as a run.")
    links = _point_links(view, name, identity)
    if len(links) == 1:  # the point has no run
        keep = dmc.Button("Simulate it as a run", id="sweep-point-go", size="compact-sm")
        links = [keep, *links, html.Div(id="sweep-point-told")]
    return dmc.Group(links, mb="xs")


def _figures(points: pd.DataFrame) -> list[dict[str, Any]]:
    """Return columns with a point's figures, including cost per step if prices are known."""
    return _FIGURES if points["cost"].isna().all() else [*_FIGURES[:2], _COST, *_FIGURES[2:]]


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that choose, update and start sweeps, and that open points of a sweep."""
    register_start(app, view, PATH)
    _register_choice(app, view)
    _register_growth(app, view)
    _register_point(app, view)


def _register_point(app: Dash, view: StudyView) -> None:
    jobs = JobStore(view.study)

    @app.callback(
        Output("sweep-point", "children"), Input("sweep-table", "selectedRows"),
        State("sweep-name", "value"), prevent_initial_call=True,
    )  # fmt: skip
    def choose(rows: Any, name: str | None) -> Any:
        """Show buttons and links for the point selected in the table."""
        chosen = rows[0] if isinstance(rows, list) and rows and isinstance(rows[0], dict) else None
        return _point(view, name or "", chosen) if chosen else _NO_POINT

    @app.callback(
        Output("sweep-point-told", "children"), Input("sweep-point-go", "n_clicks"),
        State("sweep-table", "selectedRows"), State("sweep-name", "value"), prevent_initial_call=True,
    )  # fmt: skip
    def simulate(clicks: int | None, rows: Any, name: str | None) -> Any:
        """Start a job that simulates the selected point as a run."""
        if not clicks or not isinstance(rows, list) or not rows:
            return no_update
        identity = str(rows[0].get("id"))
        experiment = sweep_experiment(view.study, name or "", identity)
        workload = sweep_workload(view.study, name or "", identity)
        points = read_sweep(view.study, name or "").points
        row = points[points["id"] == identity].iloc[0]
        label = point_label({each: row[each] for each in swept_settings(points) if row[each] is not None})
        jobs.submit(experiment, label=label[: view.study.LABEL_LENGTH], workload=workload)
        return dmc.Text("The simulation has started; the list of jobs above opens its result.", size="sm")


def _register_choice(app: Dash, view: StudyView) -> None:
    @app.callback(
        Output("sweep", "children"), Output("sweep-stamp", "data"), Input("sweep-name", "value"),
        State("dark", "checked"), State("run", "data"), State("url", "search"), State("sweep-stamp", "data"),
        prevent_initial_call=True,
    )  # fmt: skip
    def show(name: str | None, dark: bool, run: str | None, search: str | None, seen: Any) -> tuple[Any, Any]:
        """Show the selected sweep, and put its name into the address."""
        # Read before the points are drawn, so that `catch_up` draws points that are added in the meantime.
        stamp = _stamp(view, name or "")
        if not name or stamp == seen:
            return no_update, no_update
        set_option(PATH, search, run, "sweep", name)
        return _sweep(view, name, "dark" if dark else "light", Selection.parse(search)), stamp

    @app.callback(
        Output("sweep", "children", allow_duplicate=True),
        Input({"option": "pareto", "default": ALL}, "value"), State("sweep-name", "value"),
        State("dark", "checked"), State("url", "search"), prevent_initial_call=True,
    )  # fmt: skip
    def set_against(chosen: list[str], name: str, dark: bool, search: str | None) -> Any:
        """Draw the sweep again with the newly chosen second objective."""
        shown = Selection.parse(search)
        if not ctx.triggered_id or shown.option("pareto", ctx.triggered_id["default"]) == chosen[0]:
            return no_update
        return _sweep(view, name, "dark" if dark else "light", shown.with_option("pareto", chosen[0]))


def _register_growth(app: Dash, view: StudyView) -> None:
    @app.callback(
        Output("sweep-name", "data"), Output("sweep-name", "value"),
        Output("sweep", "children", allow_duplicate=True),
        Output("sweep-stamp", "data", allow_duplicate=True),
        Input("jobs-seen", "data"), State("sweep-name", "data"), State("sweep-name", "value"),
        State("sweep-stamp", "data"), State("dark", "checked"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def grow(
        _jobs: Any, listed: list[str], shown: str | None, seen: Any, dark: bool, search: str | None
    ) -> tuple[Any, Any, Any, Any]:
        """Show a sweep that a job has started, or new points of the one shown."""
        names = sweep_names(view.study)
        fresh = [name for name in names if name not in (listed or [])]
        if fresh:
            return names, fresh[-1], no_update, no_update
        stamp = _stamp(view, shown or "")
        if stamp == seen:
            return (no_update,) * 4
        drawn = _sweep(view, shown or "", "dark" if dark else "light", Selection.parse(search))
        return no_update, no_update, drawn, stamp

    @app.callback(
        Output("sweep", "children", allow_duplicate=True),
        Output("sweep-stamp", "data", allow_duplicate=True), Input("sweep-stamp", "data"),
        State("sweep-name", "value"), State("dark", "checked"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def catch_up(seen: Any, shown: str | None, dark: bool, search: str | None) -> tuple[Any, Any]:
        """Draw points added while others were drawn; responses may arrive in any order."""
        stamp = _stamp(view, shown or "")
        if stamp == seen:
            return no_update, no_update
        return _sweep(view, shown or "", "dark" if dark else "light", Selection.parse(search)), stamp
