"""Summary: what bounds the step, in one sentence and the numbers behind it."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html

from ...runner.analysis import TABLES, contributors, nameless_text
from ...support import bytes_text, count_text, duration_text, share_text
from .._state import OpenRun, Selection, StudyView
from .._theme import run_name
from ..charts import breakdown_bar, contributors_bar, graph, memory_area, ranks_bar
from ._parts import card, column, empty, export_links, kind_legend, link_to, table_card, text_column

__all__ = ["PATH", "TITLE", "layout", "register"]

PATH, TITLE = "/", "Summary"
_MOST_COLLECTIVES = 100
_MOST_QUALIFIERS = 4
_RANKS_NOTE = (
    "Milliseconds. Compute + exposed communication + idle = the step; exposed communication is what "
    "computation does not cover, overlapped what it does."
)
_ANOMALIES_NOTE = (
    "NICs, links and hosts that are slower than their peers, by the run's own messages and computations; the "
    "costs come from replaying the run without them."
)
_COLLECTIVES = [
    column("collective", "#", minWidth=50, maxWidth=64),
    {"field": "operation", "headerName": "Operation", "minWidth": 116},
    text_column("module", "Issued in", minWidth=90),
    column("ranks", "Ranks", minWidth=70, maxWidth=90),
    column("size_bytes", "Size", "bytes", minWidth=96),
    column("skew_ns", "Skew (ms)", "ms", minWidth=84),
    column("transfer_ns", "Transfer (ms)", "ms", minWidth=90),
    column("algorithm_bytes_per_ns", "Algorithm (GB/s)", "GB/s", minWidth=96),
    column("bus_bytes_per_ns", "Bus (GB/s)", "GB/s", minWidth=84),
    column("on_path_ns", "On critical path (ms)", "ms", minWidth=132, sort="desc"),
    column("share", "Share", "%", minWidth=76),
]
_COLLECTIVES_NOTE = (
    "Those that take most of the critical path come first. Skew: how long the first rank waited for the last "
    "one to arrive; transfer: what the network took then. Select one to see it on the timeline."
)
_LAYERS = [
    text_column("module", "Module", minWidth=180, flex=3),
    column("forward_ns", "Forward (ms)", "ms"),
    column("backward_ns", "Backward (ms)", "ms"),
    column("communication_ns", "Communication (ms)", "ms", minWidth=120),
    column("other_ns", "Other (ms)", "ms"),
    column("on_path_ns", "On critical path (ms)", "ms", minWidth=110),
    column("share", "Share", "%", minWidth=76),
]
_LAYERS_NOTE = "In the order in which they run; means over all ranks, and their part of the critical path."


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*."""
    search = selection.with_run(run.info.id).search
    kinds = run.summary.kinds
    return dmc.Stack(
        [
            *_qualifiers(run),
            dmc.Title(run.summary.headline, order=2, size="h3", id="headline"),
            _figures(run),
            card(
                "Where the step's time goes",
                graph(breakdown_bar(kinds, scheme), id="kind-bar"),
                kind_legend(kinds["key"]),
                note="The critical path by kind: the chain of work that must shrink for the step to shrink.",
                exports=export_links("by-kind", run=run.info.id),
            ),
            _advice(run, search),
            *_contributors(run, scheme),
            *_memory(run, scheme),
            # Filled when the page stands: what is below the first screen need not hold it up.
            html.Div(id="summary-tables"),
            *_ignored(run),
        ],
        gap="md",
    )


def _memory(run: OpenRun, scheme: str) -> list[dmc.Paper]:
    """Return what the fullest rank holds over the step, of a prediction that says so."""
    curves = run.result.provenance.get("memory_over_time") or []
    if not curves:
        return []
    fullest = max(curves, key=lambda curve: curve["peak_bytes"])
    of = (
        f" of the {len(curves)} pipeline stages, stage {fullest['stage']} holds most"
        if len(curves) > 1
        else ""
    )
    note = f"Predicted; at most {bytes_text(fullest['peak_bytes'])}" + (f";{of}" if of else "") + "."
    return [card("Memory of a rank", graph(memory_area(fullest, scheme), id="memory-area"), note=note)]


def _figures(run: OpenRun) -> dmc.SimpleGrid:
    """Return the few figures everybody asks for first."""
    info, ranks = run.info, run.summary.ranks
    step = max(1, run.result.makespan_ns)
    exposed, compute = int(ranks["exposed_comm_ns"].max()), float(ranks["compute_ns"].mean())
    worst = int(ranks["rank"].to_numpy()[ranks["exposed_comm_ns"].to_numpy().argmax()])
    shown = [
        ("Step", duration_text(run.result.makespan_ns), run_name(info)),
        ("Computing", share_text(compute / step), "of the step, mean of all ranks"),
        (
            "Exposed communication",
            duration_text(exposed),
            f"{share_text(exposed / step)} on rank {worst}, the most",
        ),
        (
            "Ranks",
            f"{info.num_ranks:,}",
            f"{count_text(run.result.num_nodes, 'node')}, {info.network or info.backend}",
        ),
    ]
    tiles = [
        dmc.Paper(
            [dmc.Text(label, size="sm", c="dimmed"), dmc.Text(value, fw=700, size="xl"),
             html.Div(about, title=about, className="figure-note")],
            withBorder=True, px="md", py="xs", radius="md",
        )
        for label, value, about in shown
    ]  # fmt: skip
    return dmc.SimpleGrid(tiles, cols=4, spacing="md", id="figures")


def _contributors(run: OpenRun, scheme: str) -> list[Any]:
    """Return what bounds the step by operator and module beside each other, and every rank's time."""
    bars = graph(ranks_bar(run.summary.ranks, scheme), id="ranks-bar")
    ranks = card("Every rank", bars, exports=export_links("ranks", run=run.info.id))
    operators = _bars(run, "operator", scheme)
    if contributors(run.path, "module").empty:
        return [dmc.SimpleGrid([operators, ranks], cols=2)]
    modules = _bars(run, "module", scheme)
    return [dmc.SimpleGrid([operators, modules], cols=2), ranks]


def _layers(run: OpenRun, scheme: str) -> list[Any]:
    layers = run.layers
    if layers.empty:
        return []
    return [table_card("Layers", "layers", layers, _LAYERS, scheme, query={"run": run.info.id},
                       note=_LAYERS_NOTE, most=360)]  # fmt: skip


def _collectives(run: OpenRun, scheme: str) -> list[Any]:
    if run.collectives.empty:
        return []
    rows = run.collectives.nlargest(_MOST_COLLECTIVES, "on_path_ns")
    return [table_card("Collectives", "collectives", rows, _COLLECTIVES, scheme, query={"run": run.info.id},
                       note=_COLLECTIVES_NOTE, most=320, selects=True)]  # fmt: skip


def _anomalies(run: OpenRun) -> list[Any]:
    """Return what is slow in a run that has messages; nothing of others, as little could be told of them."""
    if run.result.flows.empty:
        return []
    found = run.diagnosis
    exports = export_links("anomalies", run=run.info.id)
    remarks = [dmc.Text(remark, size="sm", c="dimmed") for remark in found.remarks]
    if not found.anomalies:
        return [card("Anomalies", empty("Nothing is slower than its peers."), *remarks, exports=exports)]
    rows = [
        [one.what, one.sentence, share_text(one.confidence), duration_text(one.cost.ns),
         f"{duration_text(one.cost.low_ns)} to {duration_text(one.cost.high_ns)}"]
        for one in found.anomalies
    ]  # fmt: skip
    head = ["What", "Where, and what shows it", "Confidence", "Costs the step", "Between"]
    shown = dmc.Table(data={"head": head, "body": rows}, id="anomalies")
    return [card("Anomalies", shown, *remarks, note=_ANOMALIES_NOTE, exports=exports)]


def _advice(run: OpenRun, search: str) -> dmc.Paper:
    rows = [
        [row["what"], f"{duration_text(row['gain_ns'])} ({share_text(row['share'])})", row["how"]]
        for row in TABLES["advice"](run).to_dict("records")
    ]
    links = [
        link_to("See the chain, and simulate what would help, on the critical path", "/critical-path", search)
    ]
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
        exports=export_links("advice", run=run.info.id),
    )


def _bars(run: OpenRun, by: str, scheme: str) -> dmc.Paper:
    table_ = contributors(run.path, by)
    none = empty(f"The critical path names no {by}.")
    bars = none if table_.empty else graph(contributors_bar(table_, scheme, narrow=True))
    exports = export_links(f"by-{by}", run=run.info.id)
    return card(f"{by.capitalize()}s that bound it", bars, exports=exports,
                note=nameless_text(run.path.breakdown(by), by))  # fmt: skip


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


def _qualifiers(run: OpenRun) -> list[Any]:
    """Return what the answer takes for granted; the first lines in full, as it is read before the answer."""
    said = run.summary.qualifiers
    if not said:
        return []
    lines = dmc.List([dmc.ListItem(line) for line in said[:_MOST_QUALIFIERS]], size="sm")
    rest = [dmc.ListItem(line) for line in said[_MOST_QUALIFIERS:]]
    more = [html.Details([html.Summary(f"{len(rest):,} more"), dmc.List(rest, size="sm")])] if rest else []
    # Not the box's own title: its yellow is too pale to be read on white.
    title = dmc.Text("What qualifies this answer", fw=600, size="sm", mb=4)
    return [dmc.Alert([title, lines, *more], color="yellow", variant="light", id="qualifiers")]


def _ignored(run: OpenRun) -> list[Any]:
    said = [str(line) for line in run.result.provenance.get("ignored_keys", [])]
    items = dmc.List([dmc.ListItem(line) for line in said], size="sm")
    return [card("Settings without effect", items)] if said else []


def register(app: Dash, view: StudyView) -> None:
    """Fill in the tables; the selection of a collective is wired by the page Network."""

    @app.callback(
        Output("summary-tables", "children"), Input("summary-tables", "id"), State("run", "data"),
        State("dark", "checked"),
    )  # fmt: skip
    def fill(_id: str, run: str, dark: bool) -> Any:
        shown, scheme = view.open(run), "dark" if dark else "light"
        tables = [
            *_anomalies(shown),
            *_layers(shown, scheme),
            *_collectives(shown, scheme),
            _ranks(shown, scheme),
        ]
        return dmc.Stack(tables, gap="md")
