"""Critical path: the chain of segments across ranks whose lengths sum to the step exactly."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, html, no_update

from ...converter.chakra import HOST_CAUSES
from ...runner.analysis import (
    KIND_LABELS,
    NO_NETWORK,
    RUN_BREAKDOWNS,
    longest_with_slack,
    nameless_text,
    segment_table,
    slack_shares,
    why_no_links,
)
from ...support import duration_text, share_text
from .._address import chart_id, option_id, table_id
from .._state import OpenRun, Selection, StudyView
from ..charts import contributors_bar, graph, path_strip
from ..queries import strip
from ._parts import (
    MOST_ROWS,
    card,
    column,
    empty,
    export_links,
    kind_column,
    page_title,
    table_card,
    text_column,
)
from ._what_if import register_what_if, what_if_card

PATH, TITLE = "/critical-path", "Critical path"
_BY, _SEGMENTS = option_id("by", "kind"), table_id("segments")
_COLUMNS = [
    column("segment", "#", minWidth=66, maxWidth=80),
    column("rank", "Rank", minWidth=64, maxWidth=84),
    text_column("name", "Name", minWidth=140, flex=3),
    kind_column(),
    column("start_ns", "Start", "instant", minWidth=106, maxWidth=120),
    column("duration_ns", "Duration", "time", minWidth=108, maxWidth=130, sort="desc"),
    column("share", "Share", "%", minWidth=72, maxWidth=90),
    text_column("module", "Module", minWidth=100, flex=1),
    text_column("reason", "Why it waited", minWidth=170, flex=4),
]
_MOST_SLACK = 1_000
_ABOUT = (
    "The chain of work across ranks that sets the length of the step. Select a bar or a row to see it on the "
    "timeline and in the graph."
)
_LINK_NOTE = (
    "Each communication is traced back from its end: from the message that arrived last to what its sender "
    "waited for. Where two ranks are not directly linked, a message crosses more than one link."
)
_SLACK = [
    column("rank", "Rank", minWidth=72, maxWidth=84),
    column("node_id", "Node", maxWidth=90),
    text_column("name", "Name", minWidth=180, flex=3),
    kind_column(),
    text_column("module", "Module"),
    column("start_ns", "Start", "instant", minWidth=106, maxWidth=120),
    column("duration_ns", "Duration", "time", minWidth=116, maxWidth=130, sort="desc"),
    column("slack_ns", "Slack", "time", maxWidth=110),
]
_KIND_OF = dict.fromkeys(("collective", "network", "link"), "communication") | {"cause": "host"}
_LABELS = {"kind": KIND_LABELS, "cause": HOST_CAUSES}
_SLACK_NOTE = (
    "How much later a node could end without making the step longer, all else being equal. Shown are the "
    "longest nodes off the critical path; the export has all nodes, the most critical first."
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the page for *run*."""
    segments = segment_table(run.path)
    rows = (
        segments if len(segments) <= MOST_ROWS else segments.nlargest(MOST_ROWS, "duration_ns").sort_index()
    )
    by = _known(selection.option("by"))
    step = duration_text(run.result.makespan_ns)
    note = (
        f"{len(segments):,} segments, numbered in order of time, add up to the step exactly: {step}. "
        "The longest come first; sort by # for the order in time."
    )
    if len(rows) < len(segments):
        note += f" The longest {len(rows):,} are shown, the export has all."
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            card("Across ranks",
                 graph(path_strip(strip(run.path), scheme), id=chart_id("strip"), mode_bar=True),
                 exports=export_links("segments", run=run.info.id)),
            card(
                "Contributors",
                html.Div(
                    dmc.SegmentedControl(id=_BY, data=[*RUN_BREAKDOWNS], value=by, mb="xs"), className="wide"
                ),
                html.Div(_breakdown(run, by, scheme), id="breakdown"),
            ),
            what_if_card(run, selection),
            # Filled when the page stands, as the traces are read for it.
            html.Div(id="path-stacks"),
            table_card("Segments", "segments", rows, _COLUMNS, scheme, query={"run": run.info.id}, note=note,
                       most=560, selects=True, row_id="segment"),
            # Filled when the page stands, as the slack of a large run takes a while.
            html.Div(id="slack"),
        ],
        gap="md",
    )  # fmt: skip


def _known(by: str | None) -> str:
    return by if by in RUN_BREAKDOWNS else "kind"


def _slack(run: OpenRun, scheme: str) -> Any:
    if run.is_large:
        text = (
            f"How much every one of {run.result.num_nodes:,} nodes could end later is more than a page works "
            "out. Next: `chakrascope summary --view slack` on a machine with 200 bytes of memory per node, "
            "or a run of fewer ranks."
        )
        return card("Slack", empty(text))
    if run.slack_ns.empty:
        text = f"'{run.info.backend}' records too little to compute slack."
        return card("Slack", empty(text))
    spare = longest_with_slack(run.nodes, run.slack_ns, _MOST_SLACK)
    critical, soon = slack_shares(run.nodes, run.slack_ns, run.result.makespan_ns // 100)
    text = (
        f"{share_text(critical)} of all ranks' work has no slack, {share_text(soon)} has at most 1 % of the "
        "step: what would become critical next."
    )
    return table_card("Slack", "slack", spare, _SLACK, scheme, query={"run": run.info.id},
                      note=f"{text} {_SLACK_NOTE}", selects=True)  # fmt: skip


def _breakdown(run: OpenRun, by: str, scheme: str) -> Any:
    missing = why_no_links(run.result) if by == "link" else ""
    if missing:
        return empty(missing)
    table = run.breakdown(by).sort_values("duration_ns", ascending=False)
    # By parts of the network, the rest would leave no room for what was asked for.
    # Nor would what names nothing, such as all computation by collective.
    names = table["key"].astype(str)
    rest, nameless = names == NO_NETWORK, nameless_text(table, by)
    shown = table[~rest & ~names.isin(["", "(none)"])]
    kinds = shown["key"] if by == "kind" else _KIND_OF.get(by, "")
    bars = graph(contributors_bar(shown.assign(kind=kinds), scheme, labels=_LABELS.get(by)))
    note = (
        f"{share_text(float(table.loc[rest, 'share'].sum()))} of the path is {NO_NETWORK}. "
        if rest.any()
        else f"{nameless} "
        if nameless
        else ""
    )
    note += _LINK_NOTE if by == "link" else ""
    notes = [dmc.Text(note, size="sm", c="dimmed")] if note else []
    return html.Div([*notes, bars, export_links(f"by-{by}", run=run.info.id)])


def register(app: Dash, view: StudyView) -> None:
    """Register the breakdown, and the callbacks that fill in the slower parts."""
    register_what_if(app, view, PATH)

    @app.callback(
        Output("breakdown", "children"), Input(_BY, "value"), State("run", "data"), State("dark", "checked"),
        prevent_initial_call=True,
    )  # fmt: skip
    def break_down(by: str, run: str, dark: bool) -> Any:
        return _breakdown(view.open(run), _known(by), "dark" if dark else "light")

    @app.callback(
        Output("slack", "children"), Input("slack", "id"), State("run", "data"), State("dark", "checked")
    )
    def show_slack(_id: str, run: str, dark: bool) -> Any:
        return _slack(view.open(run), "dark" if dark else "light")

    @app.callback(
        Output(_SEGMENTS, "selectedRows"), Output(_SEGMENTS, "scrollTo"),
        Input("selection", "data"), Input(_SEGMENTS, "id"), State(_SEGMENTS, "selectedRows"),
    )  # fmt: skip
    def show_selected(selection: dict[str, Any] | None, _id: str, shown: list[dict[str, Any]] | None) -> Any:
        return _selected_row(view, selection or {}, shown or [])


def _selected_row(view: StudyView, selection: dict[str, Any], shown: list[dict[str, Any]]) -> tuple[Any, Any]:
    rank, node = selection.get("rank", -1), selection.get("node", -1)
    if not selection.get("run") or node < 0 or any(r["rank"] == rank and r["node_id"] == node for r in shown):
        return no_update, no_update
    segments = view.open(selection["run"]).path.segments
    found = segments[(segments["rank"] == rank) & (segments["node_id"] == node)]
    if found.empty:
        return {"ids": []}, no_update
    row = str(found.iloc[0]["segment"])
    return {"ids": [row]}, {"rowId": row, "rowPosition": "middle"}
