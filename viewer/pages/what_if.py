"""The part of the critical-path page that simulates the step again with one thing faster."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from ..queries.what_if import Target, sensitivity, simulate_faster, targets
from ..state import OpenRun, StudyView
from ..theme import duration_text, share_text
from .parts import card, empty

__all__ = ["register_what_if", "what_if_card"]

_BACKENDS = ("analytical-unaware", "analytical-aware", "replay", "fake")
_STEP = 1.1


def what_if_card(run: OpenRun) -> dmc.Paper:
    """Return the card for *run*: what to make faster, by how much, and what that gains."""
    note = (
        "Simulates the step again, so the answer counts whatever becomes critical next. Times as fast: 2 "
        "halves a duration or a latency and doubles a bandwidth; below 1 is slower."
    )
    if run.info.backend not in _BACKENDS:
        text = f"Runs of {run.info.backend} take too long to repeat at a click; choose an analytical one."
        return card("What if", empty(text))
    options = [{"value": target.key, "label": target.label} for target in targets(run.path, run.info.backend,
               _dimensions(run))]  # fmt: skip
    return card(
        "What if",
        dmc.Group(
            [
                dmc.Select(id="what-if-target", label="This were", data=options, w=360, searchable=True,
                           value=options[0]["value"] if options else None),
                dmc.NumberInput(id="what-if-times", label="times as fast", value=2, w=130,
                                min=0.01, max=1000),
                dmc.Button("Simulate", id="what-if-go"),
                dmc.Button("10 % faster, each in turn", id="what-if-all", variant="default"),
            ],
            align="end",
        ),
        html.Div(id="what-if-answer", **{"aria-live": "polite"}),
        html.Div(id="what-if-table"),
        note=note,
    )  # fmt: skip


def _dimensions(run: OpenRun) -> int:
    return len(run.result.provenance.get("network", {}).get("topology", []))


def _answer(run: OpenRun, target: Target, times: float) -> Any:
    before = run.result.makespan_ns
    after = simulate_faster(run.experiment(), target, times)
    gain = before - after
    verb = "saves" if gain >= 0 else "costs"
    text = (
        f"{target.label}, {times:g} times as fast: the step takes {duration_text(after)} instead of "
        f"{duration_text(before)}; that {verb} {duration_text(abs(gain))} ({share_text(abs(gain) / before)})."
    )
    return dmc.Text(text, mt="sm", fw=600)


def _sensitivity(run: OpenRun) -> Any:
    chosen = targets(run.path, run.info.backend, _dimensions(run))
    table = sensitivity(run.experiment(), run.result.makespan_ns, chosen, _STEP)
    rows = [
        [row["target"], duration_text(row["makespan_ns"]), duration_text(row["delta_ns"]),
         f"{100 * row['relative']:+.2f} %"]
        for row in table.to_dict("records")
    ]  # fmt: skip
    return dmc.Table(data={"head": ["10 % faster", "Step", "Difference", "Relative"], "body": rows}, mt="sm")


def register_what_if(app: Dash, view: StudyView) -> None:
    """Wire the two buttons; each is out of use while its simulations run."""

    @app.callback(
        Output("what-if-answer", "children"), Input("what-if-go", "n_clicks"),
        State("what-if-target", "value"), State("what-if-times", "value"), State("run", "data"),
        prevent_initial_call=True, running=[(Output("what-if-go", "loading"), True, False)],
    )  # fmt: skip
    def simulate(clicks: int | None, key: str | None, times: Any, run: str) -> Any:
        if not clicks or not key or not isinstance(times, (int, float)):
            return no_update
        return _answer(view.open(run), Target.parse(key), float(times))

    @app.callback(
        Output("what-if-table", "children"), Input("what-if-all", "n_clicks"), State("run", "data"),
        prevent_initial_call=True, running=[(Output("what-if-all", "loading"), True, False)],
    )  # fmt: skip
    def simulate_each(clicks: int | None, run: str) -> Any:
        return _sensitivity(view.open(run)) if clicks else no_update
