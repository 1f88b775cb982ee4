"""Summary: what bounds the step, in one sentence and the numbers behind it."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash

from ..charts import breakdown_bar, contributors_bar, graph
from ..queries.path import contributors
from ..state import OpenRun, Selection, StudyView
from .parts import card, kind_legend, table

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/", "Summary"
_MS = {"function": "params.value == null ? '' : d3.format(',.3f')(params.value / 1e6)"}


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*."""
    del selection
    kinds = run.summary.kinds
    return dmc.Stack(
        [
            dmc.Title(run.summary.headline, order=3, id="headline"),
            card(
                "Where the step's time goes",
                graph(breakdown_bar(kinds, scheme), id="kind-bar"),
                kind_legend(),
                note="The critical path by kind: the chain of work that must shrink for the step to shrink.",
            ),
            dmc.SimpleGrid(
                [
                    card("Collectives that bound it", _bars(run, "collective", scheme)),
                    card("Operators that bound it", _bars(run, "operator", scheme)),
                    card("Modules that bound it", _bars(run, "module", scheme)),
                    card(
                        "Per rank",
                        _ranks(run, scheme),
                        note="Milliseconds. Compute + exposed communication + idle = the step.",
                    ),
                ],
                cols=2,
            ),
            *_warnings(run),
        ],
        gap="md",
    )


def _bars(run: OpenRun, by: str, scheme: str) -> Any:
    table_ = contributors(run.path, by)
    if table_.empty:
        return dmc.Text(f"The critical path names no {by}.", c="dimmed")
    colour = "#e08214" if by == "collective" else "#3b82c4"
    return graph(contributors_bar(table_, scheme, colour))


def _ranks(run: OpenRun, scheme: str) -> Any:
    names = {
        "rank": "Rank", "finish_ns": "Finish", "compute_ns": "Compute", "exposed_comm_ns": "Exposed comm.",
        "overlap_ns": "Overlapped", "idle_ns": "Idle",
    }  # fmt: skip
    columns = [
        {"field": field, "headerName": name, "type": "rightAligned"}
        | ({} if field == "rank" else {"valueFormatter": _MS})
        for field, name in names.items()
    ]
    return table("rank-table", run.summary.ranks, columns, scheme, height="320px", filter=False)


def _warnings(run: OpenRun) -> list[Any]:
    said = [*run.result.provenance.get("warnings", []), *run.result.provenance.get("assumptions", [])]
    if not said:
        return []
    return [card("Assumptions and warnings", dmc.List([dmc.ListItem(str(line)) for line in said], size="sm"))]


def register(app: Dash, view: StudyView) -> None:
    """Add nothing: the page has no interaction of its own."""
