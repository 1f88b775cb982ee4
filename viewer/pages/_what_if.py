"""The card of the Critical path page that simulates the step with one part faster or removed."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, html, no_update

from ...runner import about_backend
from ...runner.analysis import Target, changes, drops, simulate_faster
from ...support import duration_text, share_text
from .._address import option_id, set_option
from .._state import OpenRun, Selection, StudyView
from ..queries import TIMES
from ._parts import card, column, empty, table_card, text_column

# What is offered first depends on the run.
_TIMES, _CHANGE = option_id("times", "2"), {"option": "change", "default": ALL}
_NOTE = (
    "Simulates the step again, so whatever becomes critical next is counted. Times as fast: 2 halves "
    "a duration, a latency or what a collective carries, and doubles a bandwidth; below 1 is slower. Select "
    "a node to ask what the step would take if it did not wait for another."
)
_COLUMNS = [
    text_column("target", "10 % faster, one at a time", flex=4, minWidth=220),
    column("makespan_ns", "Step", "time", minWidth=100),
    column("delta_ns", "Difference", "±time", minWidth=110),
    column("relative", "Relative", "±%", minWidth=90),
]


def what_if_card(run: OpenRun, selection: Selection) -> dmc.Paper:
    """Return the card for *run*: the change, its factor, and its gain."""
    traits = about_backend(run.info.backend)
    if not traits.quick:
        text = (
            f"A run of {run.info.backend} takes too long to repeat at a click. Choose an analytical run, or "
            "ask on the command line: chakrascope what-if STUDY --run "
        )
        change = "machine:scale_up.bytes_per_ns=2" if traits.variant == "machine" else "bandwidth:0=2"
        return card("What if", empty(f"{text}{run.info.id} --faster {change}"))
    options = _options(run, selection.rank, selection.node)
    known = [choice["value"] for group in options for choice in group["items"]]
    first = next(iter(known), None)
    asked, times = selection.option("change"), selection.option("times", "2")
    return card(
        "What if",
        dmc.Group(
            [
                dmc.Select(id=option_id("change", first or ""), label="If this were", data=options,
                           searchable=True, className="what-if-target", maxDropdownHeight=360,
                           value=asked if asked in known else first),
                dmc.TextInput(id=_TIMES, label="times as fast", w=150, error=TIMES.read(times).short,
                              value=times),
                dmc.Button("Simulate", id="what-if-go", disabled=bool(TIMES.read(times).problem)),
                dmc.Button("10 % faster, each in turn", id="what-if-all", variant="default"),
            ],
            align="end",
        ),
        html.Div(id="what-if-answer", **{"aria-live": "polite"}),
        html.Div(id="what-if-table"),
        note=_NOTE,
    )  # fmt: skip


def _options(run: OpenRun, rank: int, node_id: int) -> list[dict[str, Any]]:
    """Return the possible changes in groups of a list; the waits of the selected node come first."""
    groups: dict[str, list[dict[str, str]]] = {}
    titles = {"edge": "Waits of the selected node", "operator": "Operators", "module": "Modules",
              "kind": "Host", "collective": "Collectives", "link": "Links", "machine": "Machine"}  # fmt: skip
    for target in [*drops(run, rank, node_id), *changes(run)]:
        option = {"value": target.key, "label": target.label}
        groups.setdefault(titles.get(target.what, "Network"), []).append(option)
    return [{"group": title, "items": items} for title, items in groups.items()]


def _answer(run: OpenRun, target: Target, times: float) -> Any:
    before = run.result.makespan_ns
    after = simulate_faster(run.experiment(), target, times)
    gain = before - after
    verb = "saves" if gain >= 0 else "costs"
    how = "" if target.what == "edge" else f", {times:g} times as fast"
    text = (
        f"{target.label}{how}: the step takes {duration_text(after)} instead of "
        f"{duration_text(before)}; that {verb} {duration_text(abs(gain))} ({share_text(abs(gain) / before)})."
    )
    return dmc.Text(text, mt="sm", fw=600)


def register_what_if(app: Dash, view: StudyView, path: str) -> None:
    """Register the two buttons of the page *path*, each disabled while it simulates."""

    @app.callback(
        Output(_TIMES, "error"), Output("what-if-go", "disabled"),
        Output("what-if-answer", "children", allow_duplicate=True), Input(_TIMES, "value"),
        Input(_CHANGE, "value"), prevent_initial_call=True,
    )  # fmt: skip
    def examine(times: Any, _key: Any) -> tuple[str, bool, Any]:
        """Show the field's error; the answer to an earlier request is removed."""
        reading = TIMES.read(times)
        if reading.problem:
            answer = dmc.Text(f"No answer: {reading.problem}", size="sm", mt="sm")
            return reading.short, True, answer
        return "", False, None

    @app.callback(
        Output("what-if-answer", "children"), Input("what-if-go", "n_clicks"), State(_CHANGE, "value"),
        State(_TIMES, "value"), State("run", "data"), State("url", "search"), prevent_initial_call=True,
        running=[(Output("what-if-go", "loading"), True, False)],
    )  # fmt: skip
    def simulate(clicks: int | None, keys: list[str | None], times: Any, run: str, search: str | None) -> Any:
        if not clicks or not keys or not keys[0]:
            return no_update
        set_option(path, search, run, "change", keys[0])
        return _answer(view.open(run), Target.parse(keys[0]), float(TIMES.value(times) or 0))

    @app.callback(
        Output("what-if-table", "children"), Input("what-if-all", "n_clicks"), State("run", "data"),
        State("dark", "checked"), prevent_initial_call=True,
        running=[(Output("what-if-all", "loading"), True, False)],
    )  # fmt: skip
    def simulate_each(clicks: int | None, run: str, dark: bool) -> Any:
        if not clicks:
            return no_update
        table = view.open(run).elasticity
        return table_card("10 % faster, each in turn", "elasticity", table, _COLUMNS,
                          "dark" if dark else "light", query={"run": run}, most=480)  # fmt: skip

    @app.callback(
        Output(_CHANGE, "data"), Input("selection", "data"), State(_CHANGE, "id"), prevent_initial_call=True,
    )  # fmt: skip
    def offer_waits(selection: dict[str, Any] | None, shown: list[Any]) -> Any:
        if not selection or not selection.get("run") or not shown:
            return [no_update] * len(shown)
        return [_options(view.open(selection["run"]), selection["rank"], selection["node"])]
