"""Critical path page: the segments that add up to the step, what-ifs, and slack."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, Output, State, html, no_update

from ...converter.chakra import HOST_CAUSES
from ...errors import StudyError
from ...runner import about_backend
from ...runner.analysis import (
    KIND_LABELS,
    NO_NETWORK,
    RUN_BREAKDOWNS,
    Target,
    longest_with_slack,
    nameless_text,
    segment_table,
    simulate_faster,
    slack_shares,
    why_no_links,
)
from ...support import duration_text, share_text
from .._address import chart_id, later_id, option_id, set_option, table_id
from .._state import OpenRun, Selection, StudyView
from ..charts import contributors_bar, graph, path_strip
from ..queries import TIMES, strip
from ._parts import (
    MAX_ROWS,
    card,
    column,
    empty,
    export_links,
    kind_column,
    page_title,
    table_card,
    text_column,
)
from ._timeline import path_stacks

PATH, TITLE = "/critical-path", "Critical path"
_BY, _SEGMENTS = option_id("by", "kind"), table_id("segments")
_COLUMNS = [
    column("segment", "#", minWidth=66, maxWidth=80),
    column("rank", "Rank", minWidth=64, maxWidth=84),
    text_column("name", "Name", minWidth=120, flex=3),
    kind_column(),
    column("start_ns", "Start", "instant", maxWidth=130),
    column("duration_ns", "Duration", "time", minWidth=108, maxWidth=130, sort="desc"),
    column("share", "Share", "%", minWidth=72, maxWidth=90),
    text_column("module", "Module", minWidth=100, flex=1),
    text_column("reason", "Why it waited", minWidth=220, flex=6),
]
_MAX_SLACK = 1_000
_ABOUT = (
    "The chain of work across ranks that sets the length of the step. Select a bar or a row to see it on the "
    "timeline and in the graph."
)
_LINK_NOTE = (
    "Each communication is traced backwards: from the last message to the messages for which its sender "
    "waited. A message between ranks without a direct link crosses several links."
)
_SLACK = [
    column("rank", "Rank", minWidth=72, maxWidth=84),
    column("node_id", "Node", maxWidth=90),
    text_column("name", "Name", minWidth=180, flex=3),
    kind_column(),
    text_column("module", "Module"),
    column("start_ns", "Start", "instant", maxWidth=130),
    column("duration_ns", "Duration", "time", minWidth=116, maxWidth=130, sort="desc"),
    column("slack_ns", "Slack", "time", maxWidth=110),
]
_KIND_OF = dict.fromkeys(("collective", "network", "link"), "communication") | {"cause": "host"}
_LABELS = {"kind": KIND_LABELS, "cause": HOST_CAUSES}
_SLACK_NOTE = (
    "Slack is how much later a node could end without making the step longer, if everything else stays the "
    "same. The table has the longest nodes off the critical path; the export has all nodes, the most "
    "critical first."
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Critical path page for *run*."""
    segments = segment_table(run.path)
    rows = segments if len(segments) <= MAX_ROWS else segments.nlargest(MAX_ROWS, "duration_ns").sort_index()
    by = _known(selection.option("by"))
    step = duration_text(run.result.makespan_ns)
    note = (
        f"{len(segments):,} segments, numbered in order of time, add up exactly to the step: {step}. The "
        "longest segments come first; sort by # for the order in time."
    )
    if len(rows) < len(segments):
        note += f" The longest {len(rows):,} segments are shown; the export contains all."
    offset_ns = int(abs(run.path.steps["shift_ns"]).max(initial=0))
    if offset_ns:
        note += (
            f" Start is on the clock of the rank that ends last; the timeline shows each rank on the rank's "
            f"clock, which differs by up to {duration_text(offset_ns)}."
        )
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
            # Filled in later, because reading the traces is slow.
            html.Div(id=later_id("path-stacks")),
            table_card("Segments", "segments", rows, _COLUMNS, scheme, query={"run": run.info.id}, note=note,
                       most=560, selects=True, row_id="segment"),
            # Filled in later, because slack is slow to compute.
            html.Div(id=later_id("slack")),
        ],
        gap="md",
    )  # fmt: skip


def _known(by: str | None) -> str:
    return by if by in RUN_BREAKDOWNS else "kind"


def _slack(run: OpenRun, scheme: str) -> Any:
    try:
        nodes = run.nodes
    except StudyError as error:
        return card("Slack", empty(error.message))
    if run.slack_ns.empty:
        text = f"'{run.info.backend}' records too little to compute slack."
        return card("Slack", empty(text))
    spare = longest_with_slack(nodes, run.slack_ns, _MAX_SLACK)
    critical, soon = slack_shares(nodes, run.slack_ns, run.result.makespan_ns // 100)
    text = (
        f"{share_text(critical)} of the work of all ranks has no slack. {share_text(soon)} has a slack of at "
        "most 1 % of the step and would become critical next."
    )
    return table_card("Slack", "slack", spare, _SLACK, scheme, query={"run": run.info.id},
                      note=f"{text} {_SLACK_NOTE}", selects=True)  # fmt: skip


LATER = {"path-stacks": path_stacks, "slack": _slack}


def _breakdown(run: OpenRun, by: str, scheme: str) -> Any:
    missing = why_no_links(run.result) if by == "link" else ""
    if missing:
        return empty(missing)
    table = run.breakdown(by).sort_values("duration_ns", ascending=False)
    # Leave out time outside the network and time without a name (such as computation in a breakdown by
    # collective), because its bars would be much longer than all others.
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
    """Register the callbacks for the breakdown, what-if simulations, and the selected row."""
    register_what_if(app, view, PATH)

    @app.callback(
        Output("breakdown", "children"), Input(_BY, "value"), State("run", "data"), State("dark", "checked"),
        prevent_initial_call=True,
    )  # fmt: skip
    def break_down(by: str, run: str, dark: bool) -> Any:
        return _breakdown(view.open(run), _known(by), "dark" if dark else "light")

    @app.callback(
        Output(_SEGMENTS, "selectedRows"), Output(_SEGMENTS, "scrollTo"),
        Input("selection", "data"), Input(_SEGMENTS, "id"), State(_SEGMENTS, "selectedRows"),
    )  # fmt: skip
    def show_selected(selection: dict[str, Any] | None, _id: str, shown: list[dict[str, Any]] | None) -> Any:
        return _selected_row(view, selection or {}, shown if isinstance(shown, list) else [])


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


# The default of "change" depends on the run, so callbacks match any default.
_TIMES, _CHANGE = option_id("times", "2"), {"option": "change", "default": ALL}
_NOTE = (
    "Simulates the step again, so the result includes work that then becomes critical. Times as fast: 2 "
    "halves a duration, a latency or the bytes of a collective, and doubles a bandwidth; values below 1 slow "
    "the part down. Select a node to simulate the step without one of its waits."
)
_GAINS = [
    text_column("target", "10 % faster, one at a time", flex=4, minWidth=220),
    column("makespan_ns", "Step", "time", minWidth=100),
    column("delta_ns", "Difference", "±time", minWidth=110),
    column("relative", "Relative", "±%", minWidth=90),
]


def what_if_card(run: OpenRun, selection: Selection) -> dmc.Paper:
    """Return the card of what-ifs: the change, its factor, and the gain."""
    traits = about_backend(run.info.backend)
    if not traits.quick:
        text = (
            f"A run on {run.info.backend} takes too long to repeat on this page. Choose an analytical run, "
            "or use the command line: chakrascope what-if STUDY --run "
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
    """Return the what-if changes to choose from, in groups; waits of the selected node come first."""
    groups: dict[str, list[dict[str, str]]] = {}
    titles = {"edge": "Waits of the selected node", "operator": "Operators", "module": "Modules",
              "kind": "Host", "collective": "Collectives", "link": "Links", "machine": "Machine"}  # fmt: skip
    for target in [*run.drops(rank, node_id), *run.changes()]:
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
    """Register the what-if buttons of the page *path*, which are disabled during a simulation."""

    @app.callback(
        Output(_TIMES, "error"), Output("what-if-go", "disabled"),
        Output("what-if-answer", "children", allow_duplicate=True), Input(_TIMES, "value"),
        Input(_CHANGE, "value"), prevent_initial_call=True,
    )  # fmt: skip
    def examine(times: Any, _key: Any) -> tuple[str, bool, Any]:
        """Show the error in the field "times as fast", and remove the last answer."""
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
        return table_card("10 % faster, each in turn", "elasticity", table, _GAINS,
                          "dark" if dark else "light", query={"run": run}, most=480)  # fmt: skip

    @app.callback(
        Output(_CHANGE, "data"), Input("selection", "data"), State(_CHANGE, "id"), prevent_initial_call=True,
    )  # fmt: skip
    def offer_waits(selection: dict[str, Any] | None, shown: list[Any]) -> Any:
        if not selection or not selection.get("run") or not shown:
            return [no_update] * len(shown)
        return [_options(view.open(selection["run"]), selection["rank"], selection["node"])]
