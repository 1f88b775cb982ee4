"""The form of a new sweep: initial setup, axes, objective, number of points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, ctx, html, no_update

from ...errors import ConfigError
from ...runner import DEFAULT_BACKEND, JobStore, communication_of, sweep_names
from ...support import count_text
from .._address import rewrite
from .._state import Selection, StudyView
from ..queries import (
    LEAST,
    MAX_AXES,
    SAVED_RUNS,
    TRIALS,
    Aim,
    Begun,
    Form,
    Plan,
    axis_names,
    axis_reading,
    decode_aim,
    decode_axes,
    differences,
    encode_aim,
    encode_axes,
    form_at,
    parsed_aim,
    plan_of,
    request_of,
    suggested,
)
from ._parts import BY_CTRL_ENTER, card, error_alert, ignored_notice, link_to

_NAME_LENGTH = 80


def start_card(view: StudyView, selection: Selection) -> dmc.Paper:
    """Return the form of a new sweep as in the address; the study needs a workload."""
    form, begun = form_at(view, selection)
    names = axis_names(form.setup)
    axes = decode_axes(selection.option("over"), names)
    first, *others = [_axis(number, axes, names) for number in range(MAX_AXES)]
    aim = decode_aim(selection.option("aim"))
    start = dmc.Group(
        [
            dmc.TextInput(id="sweep-title", label="Name of the sweep", value=_free_name(view), w=240,
                          debounce=True),
            dmc.Button("Start the sweep", id="sweep-go", disabled=True, **BY_CTRL_ENTER),
            html.Div(id="sweep-plan", **{"aria-live": "polite"}),
        ],
        align="end", mt="sm",
    )  # fmt: skip
    change = link_to("Change that on the New run page", "/new-run", selection.search)
    begun = Begun(form) if selection.option("setup") else begun
    of = f", the setup of the run on screen ({begun.of[:_NAME_LENGTH]})" if begun.of else ""
    notes = " ".join(begun.notes)
    begins = dmc.Text(
        ["Based on ", html.B(_begins(form)), f"{of}. {notes} ", change], size="sm", id="sweep-begins"
    )
    return card(
        "New sweep",
        ignored_notice(form.ignored),
        begins,
        html.Div(first, style={"marginTop": 10}),
        _more(others, aim, is_open=len(axes) > 1 or aim != Aim()),
        start,
        html.Div(id="sweep-told", **{"aria-live": "polite"}),
        id="sweep-new",
    )


def _more(axes: Sequence[Any], aim: Aim, *, is_open: bool) -> html.Details:
    """Return the collapsed part of the form: other *axes*, the objective, and a search."""
    note = (
        "Every combination of the values is simulated. With a number of points to try, Optuna chooses the "
        "points instead."
    )
    return html.Details(
        [
            html.Summary("More settings, objective, prices, search"),
            dmc.Text(note, size="sm", c="dimmed", mt="xs"),
            dmc.SimpleGrid(axes, cols={"base": 1, "lg": 3}, spacing="sm", mt="xs"),
            _aim_fields(aim),
        ],
        id="sweep-more", className="more", open=is_open,
    )  # fmt: skip


def _aim_fields(aim: Aim) -> dmc.SimpleGrid:
    """Return the fields for the objective and the search, as the options of ``chakrascope sweep``."""
    figures = [{"value": name, "label": title} for name, title in LEAST.items()]
    return dmc.SimpleGrid(
        [
            dmc.Select(id="sweep-least", label="Objective", data=figures, value=aim.least,
                       allowDeselect=False),
            dmc.TextInput(id="sweep-limits", label="Within limits", value=aim.limits, debounce=True,
                          placeholder="such as ranks=64, cost=0.1"),
            dmc.TextInput(id="sweep-prices", label="Price per rank and hour", value=aim.prices,
                          placeholder="2.5, or hgx-h100-8=3", debounce=True),
            dmc.TextInput(id="sweep-trials", label="Points to try", value=str(aim.trials or ""),
                          placeholder="all combinations", debounce=True),
            dmc.TextInput(id="sweep-keep", label="Best points to store as runs", value="1"),
        ],
        cols={"base": 2, "lg": 5}, spacing="sm", mt="xs",
    )  # fmt: skip


def _begins(form: Form) -> str:
    changes = len(differences(form.setup))
    changed = f" with {count_text(changes, 'change')}" if changes else ""
    backend = form.backends[0] if form.backends else DEFAULT_BACKEND
    return f"{form.workload} on {form.setup.machine or form.setup.network_preset}{changed}, by {backend}"


def _axis(number: int, axes: Sequence[tuple[str, str]], names: dict[str, str]) -> dmc.Group:
    key, values = axes[number] if number < len(axes) else ("", "")
    return dmc.Group(
        [
            dmc.Select(id={"form": "axis", "field": "key", "number": number}, value=key or None,
                       data=[{"value": name, "label": title} for name, title in names.items()],
                       label=f"Setting {number + 1}" if number else "Setting to vary",
                       placeholder="none" if number else "choose one", clearable=True, searchable=True,
                       w=270),
            html.Div([
                dmc.TextInput(id={"form": "axis", "field": "values", "number": number}, value=values,
                              label="Values, separated by commas", debounce=True),
                html.Div(id={"told": "axis", "number": number}, className="understood"),
            ], style={"flex": 1}),
        ],
        wrap="nowrap", gap="xs", align="start",
    )  # fmt: skip


def _free_name(view: StudyView) -> str:
    taken = set(sweep_names(view.study))
    return next(name for number in range(1, len(taken) + 2) if (name := f"sweep-{number}") not in taken)


# Match the fields of all axes.
_KEYS = {"form": "axis", "field": "key", "number": ALL}
_VALUES = {"form": "axis", "field": "values", "number": ALL}
# The fields of the objective, in the order of `_aim`'s arguments.
_AIM = ("sweep-least", "sweep-limits", "sweep-prices", "sweep-trials")


def register_start(app: Dash, view: StudyView, path: str) -> None:
    """Register the callbacks that check the form of a new sweep and start a job for the sweep."""
    _register_axes(app, view, path)
    _register_go(app, view)


def _form(view: StudyView, search: str | None) -> Form:
    return form_at(view, Selection.parse(search))[0]


def _register_axes(app: Dash, view: StudyView, path: str) -> None:
    @app.callback(
        Output(_VALUES, "value"), Input(_KEYS, "value"), State(_VALUES, "value"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def suggest(keys: list[str | None], values: list[str], search: str | None) -> Any:
        """Propose values for an axis just selected, and clear those of one deselected."""
        if not isinstance(ctx.triggered_id, dict) or len(ctx.triggered_prop_ids) != 1:
            return [no_update] * len(keys)
        number, form = int(ctx.triggered_id["number"]), _form(view, search)
        key = keys[number]
        proposed = suggested(form.setup, key) if key in axis_names(form.setup) else ""
        return [proposed if index == number else no_update for index in range(len(values))]

    @app.callback(
        Output("sweep-plan", "children"), Output("sweep-go", "disabled"), Input(_KEYS, "value"),
        Input(_VALUES, "value"),
        *(Input(field, "value") for field in _AIM), State("url", "search"), State("run", "data"),
        Input("sweep-keep", "value"),
    )  # fmt: skip
    def examine(keys: list[str | None], values: list[str], *rest: Any) -> tuple[Any, bool]:
        """Show how many points there are; put the form into the address."""
        *fields, search, run, kept = rest
        try:
            aim = _aim(fields)
            SAVED_RUNS.value(kept)
        except ConfigError as error:
            return dmc.Text(error.message, size="sm", c="red", className="finding"), True
        axes = [(key or "", text or "") for key, text in zip(keys, values, strict=True)]
        plan = _plan(view, _form(view, search), axes, aim)
        over = encode_axes([axis for axis in axes if axis[0]])
        shown = Selection.parse(search)
        asked = shown.with_option("aim", encode_aim(aim)).with_option("over", over)
        if asked != shown:
            rewrite(path, asked.with_run(run or "").search)
        return _shown(plan), bool(plan.problem)

    @app.callback(
        Output("sweep-keep", "error"), Output("sweep-trials", "error"), Output(_VALUES, "error"),
        Output({"told": "axis", "number": ALL}, "children"), Input("sweep-keep", "value"),
        Input("sweep-trials", "value"), Input(_KEYS, "value"), Input(_VALUES, "value"),
        State("url", "search"),
    )  # fmt: skip
    def show_readings(
        kept: Any, trials: Any, keys: list[str | None], values: list[str], search: str | None
    ) -> tuple[str, str, list[str], list[str]]:
        """Show next to each field the error in its text, or the value of its text."""
        names, tried = axis_names(_form(view, search).setup), TRIALS.read(trials)
        read = [
            axis_reading(key or "", text or "", names, search=bool(tried.value))
            for key, text in zip(keys, values, strict=True)
        ]
        return (
            SAVED_RUNS.read(kept).short,
            tried.short,
            [wrong for wrong, _ in read],
            [meaning for _, meaning in read],
        )


def _aim(fields: Sequence[Any]) -> Aim:
    """Return the objective in *fields*; raises `ConfigError` for a bad number of points."""
    least, limits, prices, trials = fields
    return parsed_aim(least=least, limits=limits, prices=prices, trials=TRIALS.value(trials))


def _plan(view: StudyView, form: Form, axes: Sequence[tuple[str, str]], aim: Aim) -> Plan:
    prefix = view.study.workload_prefix(form.workload)
    return plan_of(form, axes, communication_of(prefix), aim)


def _shown(plan: Plan) -> Any:
    if plan.problem:
        return dmc.Text(
            plan.problem, size="sm", c="red" if plan.over or plan.points else "dimmed", className="finding"
        )
    points = count_text(plan.points, "point") + (" of a search" if plan.trials else "")
    return dmc.Text(f"{points}. {plan.note}", size="sm", className="finding")


def _register_go(app: Dash, view: StudyView) -> None:
    jobs = JobStore(view.study)

    @app.callback(
        Output("sweep-told", "children"), Input("sweep-go", "n_clicks"),
        State(_KEYS, "value"), State(_VALUES, "value"), State("sweep-title", "value"),
        State("sweep-keep", "value"), *(State(field, "value") for field in _AIM), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def go(
        clicks: int | None, keys: list[str | None], values: list[str], title: Any, keep: Any, *rest: Any
    ) -> Any:
        """Start a job for the sweep, after checking the fields once more."""
        if not clicks:
            return no_update
        *fields, search = rest
        form = _form(view, search)
        axes = [(key or "", text or "") for key, text in zip(keys, values, strict=True)]
        try:
            kept, aim = int(SAVED_RUNS.value(keep) or 0), _aim(fields)
        except ConfigError as error:
            return error_alert(error.message, mt="sm")
        plan = _plan(view, form, axes, aim)
        if form.ignored:
            return error_alert(" ".join(form.ignored), mt="sm")
        if plan.problem:
            return error_alert(plan.problem, mt="sm")
        name = str(title or "").strip()[: _NAME_LENGTH + 1] or _free_name(view)
        jobs.submit_sweep(request_of(form, plan, name, kept), label=name)
        text = f"The sweep '{name}' has started. You can close this page while it runs."
        return dmc.Text(text, size="sm", mt="sm")
