"""The card with the collective programs of a run on the Network page: figures, and traffic between ranks."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html

from ...errors import ChakrascopeError
from ...runner.programs import Demand, Program, has_arrows, inspect_program, inspection_facts, program_ops
from ...support import bytes_text
from .._state import OpenRun, StudyView
from ..charts import graph, pairs_chart, program_chart
from ._parts import card, details_list, empty

# More than these take longer than one waits for a page.
_MOST_OPS = 30_000
_NOTE = (
    "What ran instead of a built-in algorithm. A step: messages that wait only for those of earlier steps, "
    "so steps are an order and not a time. Messages carry what their protocol adds, flags and signals."
)


def programs_card(run: OpenRun) -> list[Any]:
    """Return the card, which is filled after the page, as programs are proved again when they are read."""
    if not run.has_programs:
        return []
    waiting = html.Div(empty("Reading the programs …"), id="programs")
    return [card("Collective programs", dcc.Loading(waiting, delay_show=400), note=_NOTE)]


def register_programs(app: Dash, view: StudyView) -> None:
    """Register the list of a run's programs, and the choice of one."""

    @app.callback(
        Output("programs", "children"),
        Input("programs", "id"),
        State("run", "data"),
        State("dark", "checked"),
    )
    def programs(identity: str, run: str, dark: bool) -> Any:
        del identity  # it asks once, when the card is there
        return _chooser(view.open(run), _scheme(dark))

    @app.callback(
        Output("program", "children"), Input("program-shown", "value"), State("run", "data"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def program(shown: str, run: str, dark: bool) -> Any:
        uses = _uses(view.open(run))
        place = int(shown) if str(shown).isdecimal() and int(shown) < len(uses) else 0
        return _drawn(*uses[place], _scheme(dark))


def _scheme(dark: bool) -> str:
    return "dark" if dark else "light"


def _uses(run: OpenRun) -> list[tuple[Demand, Program]]:
    """Return the collectives of *run* that used programs, the largest of each kind first."""
    return sorted(
        run.programs.items(), key=lambda use: (use[0].collective, -use[0].ranks, -use[0].size_bytes)
    )


def _chooser(run: OpenRun, scheme: str) -> Any:
    try:
        uses = _uses(run)
    except ChakrascopeError as error:
        return empty(str(error))
    if not uses:
        return empty("Its system names programs, but no collective ran one.")
    choices = [
        {"value": str(place), "label": f"{demand.collective} among {demand.ranks} ranks, "
         f"{bytes_text(demand.size_bytes)}: {program.name}"}
        for place, (demand, program) in enumerate(uses)
    ]  # fmt: skip
    select = dmc.Select(
        id="program-shown", data=choices, value="0", allowDeselect=False, searchable=True, size="sm", mb="sm",
        label="Collective", maw=640,
    )  # fmt: skip
    return [select, html.Div(_drawn(*uses[0], scheme), id="program")]


def _drawn(demand: Demand, program: Program, scheme: str) -> list[Any]:
    """Return the figures of a program and its plot."""
    ops = program_ops(program, demand.size_bytes)
    if ops > _MOST_OPS:
        text = (
            f"{program.name} does {ops:,} ops for {bytes_text(demand.size_bytes)}, too many to draw here. "
            f"'chakrascope algorithm inspect' has its figures, and with '--view traffic' every step."
        )
        return [empty(text)]
    found = inspect_program(program, demand.size_bytes)
    facts = [(name[0].upper() + name[1:], text) for name, text in inspection_facts(found)]
    remarks = [dmc.Text(text, size="sm", c="dimmed") for text in found.remarks]
    pictures = [graph(program_chart(found, scheme), id="program-chart")]
    if not has_arrows(found):
        pictures.append(dmc.Text("Who sends to whom, over all steps:", size="sm", mt="sm"))
        pictures.append(graph(pairs_chart(found, scheme), id="program-pairs"))
    return [details_list(facts), *remarks, *pictures]
