"""Summary: what bounds the step, in one sentence and the numbers behind it."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, html

from ...runner import advice
from ..charts import breakdown_bar, contributors_bar, graph, ranks_bar
from ..queries.path import contributors
from ..state import OpenRun, Selection, StudyView
from ..theme import duration_text, share_text
from .parts import card, column, empty, kind_legend, link_to, table_card

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/", "Summary"
_RANKS_NOTE = (
    "Milliseconds. Compute + exposed communication + idle = the step; exposed communication is what "
    "computation does not cover, overlapped what it does."
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*."""
    search = selection.with_run(run.info.id).search
    return dmc.Stack(
        [
            dmc.Title(run.summary.headline, order=2, size="h3", id="headline"),
            card(
                "Where the step's time goes",
                graph(breakdown_bar(run.summary.kinds, scheme), id="kind-bar"),
                kind_legend(),
                note="The critical path by kind: the chain of work that must shrink for the step to shrink.",
            ),
            _advice(run, search),
            dmc.SimpleGrid(
                [
                    card("Collectives that bound it", _bars(run, "collective", scheme)),
                    card("Operators that bound it", _bars(run, "operator", scheme)),
                    card("Modules that bound it", _bars(run, "module", scheme)),
                    card("Every rank", graph(ranks_bar(run.summary.ranks, scheme), id="ranks-bar")),
                ],
                cols=2,
            ),
            _ranks(run, scheme),
            *_warnings(run),
        ],
        gap="md",
    )


def _advice(run: OpenRun, search: str) -> dmc.Paper:
    items = advice(run.path, run.collectives)
    rows = [
        [item.what, f"{duration_text(item.gain_ns)} ({share_text(item.share)})", item.how] for item in items
    ]
    links = [link_to("See the chain on the critical path", "/critical-path", search)]
    if len(run.collectives):
        links.append(link_to("See every collective", "/network", search))
    return card(
        "What would help",
        dmc.Table(data={"head": ["Cause", "Gains at most", "What helps"], "body": rows}, id="advice")
        if rows
        else empty("No single cause takes more than 1 % of the critical path."),
        html.Div(links, className="link-row"),
        note="Largest causes first. The gain is a bound: the time the step spends on it in a row. Once it "
        "shrinks, another chain may bound the step.",
    )


def _bars(run: OpenRun, by: str, scheme: str) -> Any:
    table_ = contributors(run.path, by)
    if table_.empty:
        return empty(f"The critical path names no {by}.")
    colour = "#e08214" if by == "collective" else "#3b82c4"
    return graph(contributors_bar(table_, scheme, colour, narrow=True))


def _ranks(run: OpenRun, scheme: str) -> dmc.Paper:
    names = {
        "finish_ns": "Finish", "compute_ns": "Compute", "exposed_comm_ns": "Exposed comm.",
        "overlap_ns": "Overlapped", "idle_ns": "Idle",
    }  # fmt: skip
    columns = [
        column("rank", "Rank", maxWidth=80),
        *(column(field, name, "ms") for field, name in names.items()),
    ]
    ranks = run.summary.ranks
    return table_card(
        "Per rank", "ranks", ranks, columns, scheme, query={"run": run.info.id}, note=_RANKS_NOTE,
        most=320,
    )  # fmt: skip


def _warnings(run: OpenRun) -> list[Any]:
    provenance = run.result.provenance
    said = [*provenance.get("warnings", []), *provenance.get("ignored_keys", [])]
    said += [line for line in provenance.get("assumptions", []) if line not in said]
    if not said:
        return []
    return [card("Assumptions and warnings", dmc.List([dmc.ListItem(str(line)) for line in said], size="sm"))]


def register(app: Dash, view: StudyView) -> None:
    """Add nothing: the page has no interaction of its own."""
