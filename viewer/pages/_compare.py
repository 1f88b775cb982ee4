"""Compare page: the current run and others, in total, by rank, by collective and by node."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
import pandas as pd
from dash import ALL, Dash, Input, Output, State, html, no_update

from ...errors import Cancelled, ChakrascopeError, StudyError
from ...runner import about_backend, error_distribution
from ...runner.analysis import (
    attributable,
    backend_reasons,
    comparison_text,
    configuration_table,
    difference_of_runs,
    divergence_text,
    explained_collectives,
    node_differences,
    rank_differences,
    run_overview,
    same_nodes,
    why_not_comparable,
)
from ...runner.study import run_name
from ...support import count_text, duration_text
from .._address import chart_id, option_id, set_option
from .._state import OpenRun, Selection, StudyView
from .._theme import run_text
from ..charts import difference_histogram, difference_scatter, graph, paths_bars, runs_bar
from ..queries import Simulations, paths_strip
from ._parts import (
    Works,
    card,
    column,
    empty,
    error_alert,
    export_links,
    kind_column,
    page_title,
    progress_parts,
    table_card,
    text_column,
    while_working,
    wrapped_column,
)

PATH, TITLE = "/compare", "Compare"
# The control's default depends on the run, so callbacks match any default.
_AGAINST = {"option": "against", "default": ALL}
MAX_RUNS = 6
_OVERVIEW = [
    wrapped_column("label", "Run", flex=4, minWidth=180),
    wrapped_column("backend", "Backend", minWidth=116),
    wrapped_column("network", "Network", minWidth=112),
    column("ranks", "Ranks", maxWidth=84),
    column("makespan_ns", "Step", "time"),
    column("delta_ns", "Difference", "±time", minWidth=104),
    column("relative", "Relative", "±%"),
    column("exposed_comm_ns", "Exposed comm., mean", "time", minWidth=110),
]
_DELTAS = [
    column("delta_ns", "Difference", "±time", minWidth=100),
    column("relative", "Relative", "±%"),
]
_NODES = [
    column("rank", "Rank", maxWidth=80),
    column("node_id", "Node", maxWidth=90),
    text_column("name", "Name", flex=3),
    kind_column(),
    text_column("module", "Module"),
    column("base_ns", "This run", "time"),
    column("other_ns", "Other", "time"),
    *_DELTAS,
]
_COLLECTIVES = [
    column("collective", "#", maxWidth=60),
    {"field": "operation", "headerName": "Operation", "minWidth": 104, "maxWidth": 140},
    column("size_bytes", "Size", "bytes", minWidth=88, maxWidth=110),
    column("base_ns", "This run", "time", maxWidth=110),
    column("other_ns", "Other", "time", maxWidth=110),
    column("delta_ns", "Difference", "±time", minWidth=96, maxWidth=120),
    column("relative", "Relative", "±%", minWidth=96, maxWidth=110),
    text_column("why", "Why", width=900, minWidth=330, wrapText=True, autoHeight=True),
]
_RANKS = [
    column("rank", "Rank", maxWidth=80),
    *(
        column(f"{field}_{side}", f"{name}, {which}", "time", minWidth=92)
        for field, name in (
            ("finish_ns", "Finish"), ("compute_ns", "Compute"), ("exposed_comm_ns", "Exposed comm."),
            ("exposed_copy_ns", "Exposed copies"), ("idle_ns", "Idle"),
        )
        for side, which in (("base", "this"), ("other", "other"))
    ),
]  # fmt: skip


_ERRORS = [
    kind_column("key"),
    column("count", "Nodes", "count"),
    *(
        column(field, name, "±%", minWidth=96)
        for field, name in (
            ("mean", "Mean"), ("p05", "5th percentile"), ("median", "Median"), ("p95", "95th percentile"),
            ("worst", "Worst"),
        )
    ),
]  # fmt: skip
_CAUSES = [
    text_column("setting", "Setting", flex=3, minWidth=200, wrapText=True, autoHeight=True),
    text_column("base", "This run", minWidth=110),
    text_column("other", "Other", minWidth=110),
    column("delta_ns", "Adds to the step", "±time", minWidth=130),
    column("alone_ns", "Changed alone", "±time", minWidth=120),
]
_ABOUT = (
    "Differences between the run in the header and other runs, and the settings that cause them. Choose the "
    "other runs below."
)
_CAUSES_NOTE = (
    "Simulates every combination of the differing settings, 32 at most. The contribution of a setting is the "
    "mean time that it adds over every order in which the settings can be changed, so that the rows add up "
    "exactly to the difference."
)
_COLLECTIVES_NOTE = (
    "Collectives are aligned by node id, with means over the common ranks; the largest difference comes "
    "first. The transfer begins when all required ranks have arrived; the time before is waiting. The "
    "export contains the transfer and the waiting time."
)
_ERRORS_NOTE = (
    "Relative differences of node durations, compared with the measurement if one of the runs is measured, "
    "and with this run otherwise. Every node counts once."
)


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Compare page; the address has the runs to compare *run* with."""
    view = run.view
    others = [info for info in reversed(view.runs()) if info.id != run.info.id]
    chosen = _against(view, run, selection)
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            *_unknown(view, selection),
            dmc.MultiSelect(
                id=option_id("against", ",".join(_against(view, run, Selection()))),
                label=f"Compare {run_text(run.info)} with",
                data=[{"value": info.id, "label": run_text(info)} for info in others],
                value=chosen,
                maxValues=MAX_RUNS,
                placeholder="choose one or more runs",
                searchable=True,
            ),
            # Filled in later, because reading other runs and their critical paths is slow.
            html.Div(_working("Reading the other runs…") if chosen else None, id="comparison"),
        ],
        gap="md",
    )


def _working(text: str) -> html.Div:
    return html.Div([html.I(className="spinner"), text], className="working", role="status")


def _requested_runs(selection: Selection) -> list[str]:
    return [name for name in selection.option("against").split(",") if name]


def _unknown(view: StudyView, selection: Selection) -> list[Any]:
    """Return a notice about runs in the address that the study lacks, if any."""
    known = {info.id for info in view.runs()}
    names = ", ".join(f"'{name[:80]}'" for name in _requested_runs(selection) if name not in known)
    text = f"This study has no run {names} to compare with; choose one below."
    return [error_alert(text, id="compare-unknown")] if names else []


def _against(view: StudyView, run: OpenRun, selection: Selection) -> list[str]:
    """Return the runs to compare *run* with: those in the address, or a default.

    The default is the newest measured replay of the same workload, else the newest other run of
    that workload, else the newest other run of the study.
    """
    infos = [info for info in view.runs() if info.id != run.info.id]
    known = {info.id for info in infos}
    asked = [name for name in _requested_runs(selection) if name != run.info.id]
    if asked or not infos:
        return [name for name in asked if name in known][:MAX_RUNS]
    alike = [info for info in infos if info.workload == run.info.workload]
    measured = [info for info in alike if about_backend(info.backend).replays]
    return [(measured or alike or infos)[-1].id]


def _comparison(run: OpenRun, against: list[str], scheme: str) -> Any:
    if not against and len(run.view.runs()) > 1:
        return empty("No other run is chosen. Choose one above.")
    if not against:
        return empty(
            "This study has no other run. Make one on the page New run, or with: "
            "chakrascope run STUDY --network PRESET"
        )
    runs = [run, *(run.view.open(name) for name in against)]
    details = html.Div(_working("Aligning nodes and critical paths…"), id="comparison-details")
    overview = run_overview(runs)
    answer = comparison_text(overview["label"].tolist(), overview)
    parts = [dmc.Text(answer, fw=600, id="compare-answer"), _configurations(runs)]
    return dmc.Stack([*parts, _totals(runs, overview, scheme), details], gap="md")


def _configurations(runs: list[OpenRun]) -> dmc.Paper:
    """Return the runs' settings side by side; those equal in all runs are collapsed."""
    table_ = configuration_table(runs)
    names = [name for name in table_.columns if name not in {"setting", "differs"}]
    head = ["Setting", *names]
    body = {
        differs: [
            [row["setting"], *(row[name] or "not given" for name in names)] for row in rows.to_dict("records")
        ]
        for differs, rows in table_.groupby("differs")
    }
    unlike, alike = body.get(True, []), body.get(False, [])
    shown: list[Any] = [
        dmc.Table(data={"head": head, "body": unlike}, id="configurations", className="sides")
        if unlike
        else empty("Nothing differs.")
    ]
    if alike:
        rest = dmc.Table(data={"head": head, "body": alike}, className="sides")
        shown.append(html.Details([html.Summary(f"{count_text(len(alike), 'setting')} alike"), rest]))
    query = {"run": runs[0].info.id, "against": ",".join(run.info.id for run in runs[1:])}
    return card("Configurations", *shown, exports=export_links("configurations", **query))


def _reasons(run: OpenRun, other: OpenRun) -> list[Any]:
    """Return a card with known reasons why the backends of two runs differ, if there are any."""
    reasons = backend_reasons(run, other)
    lines = dmc.List([dmc.ListItem(text) for text in reasons], size="sm")
    return [card("Why these backends differ", lines, id="backend-reasons")] if reasons else []


def _causes_card(run: OpenRun, other: OpenRun, selection: Selection) -> list[Any]:
    """Return a card with the contribution of each setting; empty unless both runs are simulated.

    The simulations start at once if the address asks for them and both backends are quick.
    """
    backends = (run.info.backend, other.info.backend)
    if not all(map(attributable, backends)):
        return []
    quick = all(about_backend(backend).quick for backend in backends)
    asked = int(quick and selection.option("why") == other.info.id)
    go = dmc.Button("Simulate each change", id="causes-go", w="fit-content", n_clicks=asked)
    command = f"chakrascope compare STUDY --why --run {run.info.id} --run {other.info.id}"
    slow = (
        []
        if quick
        else [empty(f"Each simulation takes as long as these runs did. On the command line: {command}")]
    )
    answer = html.Div(id="causes-answer", **{"aria-live": "polite"})
    parts = [go, *slow, *progress_parts("causes", "Simulations done"), answer]
    return [card("What each setting adds", dmc.Stack(parts), note=_CAUSES_NOTE)]


def _totals(runs: list[OpenRun], overview: pd.DataFrame, scheme: str) -> dmc.Stack:
    reasons = [why_not_comparable(runs[0].result, run.result) for run in runs[1:]]
    unlike = dict.fromkeys(filter(None, reasons))
    bars = [(run_name(run.info), run.summary.kinds) for run in runs]
    query = {"run": runs[0].info.id, "against": ",".join(run.info.id for run in runs[1:])}
    return dmc.Stack(
        [
            card(
                "Critical path by kind",
                graph(runs_bar(bars, scheme), id="compare-bars"),
                note="The run shown comes first: it is the reference run for all differences.",
                exports=export_links("kinds", **query),
            ),
            table_card(
                "Runs",
                "overview",
                overview,
                _OVERVIEW,
                scheme,
                query=query,
                note=" ".join(unlike),
                whole=True,
            ),
        ],
        gap="md",
    )


def _against_first(run: OpenRun, other: OpenRun, selection: Selection, scheme: str) -> list[Any]:
    query = {"run": run.info.id, "against": other.info.id}
    parts: list[Any] = [dmc.Title(f"In detail: {run_name(other.info)}", order=3, size="h4")]
    parts += _causes_card(run, other, selection)
    if not same_nodes(run, other):
        text = (
            "The two runs simulate different workloads, so nodes cannot be matched; only totals are compared."
        )
        return [*parts, dmc.Alert(text, color="yellow", variant="light")]
    try:
        nodes = node_differences(run.result, other.result, run.nodes)
    except StudyError as error:
        return [*parts, dmc.Alert(error.message, color="yellow", variant="light")]
    collectives = explained_collectives(run, other)
    ranks = rank_differences(run.result, other.result)
    return [
        *parts,
        *_reasons(run, other),
        table_card("Collectives", "collective-differences", collectives, _COLLECTIVES, scheme,
                   query=query, selects=True, most=420, tall=42, whole=True, note=_COLLECTIVES_NOTE),
        _paths_card(run, other, scheme),
        _nodes_card(run, other, nodes, scheme),
        table_card("Errors", "error-distribution", error_distribution(nodes, "kind"), _ERRORS, scheme,
                   query=query, note=_ERRORS_NOTE),
        table_card("Nodes that differ most", "node-differences", nodes[nodes["delta_ns"] != 0].head(500),
                   _NODES, scheme, query=query, selects=True,
                   note="At most 500 nodes; the export contains all of them."),
        table_card("Ranks", "rank-differences", ranks, _RANKS, scheme, query=query,
                   most=360),
    ]  # fmt: skip


def _paths_card(run: OpenRun, other: OpenRun, scheme: str) -> dmc.Paper:
    labels = (f"1. {run_name(run.info)}", f"2. {run_name(other.info)}")
    bars = paths_bars(paths_strip(run.path, other.path), labels, scheme)
    return card(
        "Where the critical paths diverge",
        dmc.Text(divergence_text(run.path, other.path), id="divergence", mb="xs"),
        graph(bars, id=chart_id("paths-strip"), mode_bar=True),
        note=(
            "Grey bars are nodes on both paths, even if they run at different times. Select a bar to find "
            "its node."
        ),
        exports=export_links("paths", run=run.info.id, against=other.info.id),
    )


def _nodes_card(run: OpenRun, other: OpenRun, nodes: Any, scheme: str) -> dmc.Paper:
    same = int((nodes["delta_ns"] == 0).sum())
    total = duration_text(int(nodes["delta_ns"].abs().sum()))
    shared = min(run.info.num_ranks, other.info.num_ranks)
    text = (
        f"{len(nodes):,} nodes of {shared} common ranks: {same:,} take exactly the same time in both runs; "
        f"the others differ by {total} in total. Nodes on the diagonal are equal."
    )
    charts = [graph(difference_scatter(nodes, scheme), id="compare-scatter")]
    # Between different numbers of ranks, communication has no relative difference.
    if nodes.loc[nodes["delta_ns"] != 0, "relative"].notna().any():
        charts.append(graph(difference_histogram(nodes, scheme)))
        text += " The bars count the nodes that differ."
    return card(
        "Durations of all nodes, this run against the other",
        dmc.SimpleGrid(charts, cols={"base": 1, "md": len(charts)}),
        note=text,
        exports=export_links("node-differences", run=run.info.id, against=other.info.id),
    )


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that fill in the differences between the selected runs."""
    works: Works[Simulations] = Works()
    works.register(app, "causes")

    @app.callback(
        Output("comparison", "children"), Input(_AGAINST, "value"), State("run", "data"),
        State("dark", "checked"),
    )  # fmt: skip
    def compare(against: list[list[str] | None], run: str, dark: bool) -> Any:
        known = {info.id for info in view.runs()}
        chosen = [name for name in _first(against) if name in known][:MAX_RUNS]
        try:
            return _comparison(view.open(run), chosen, "dark" if dark else "light")
        except ChakrascopeError as error:
            return error_alert(error.message)

    @app.callback(
        Output("comparison-details", "children"), Input("comparison-details", "id"),
        State(_AGAINST, "value"), State("run", "data"), State("dark", "checked"), State("url", "search"),
    )  # fmt: skip
    def detail(_id: str, against: list[list[str] | None], run: str, dark: bool, search: str | None) -> Any:
        chosen = _first(against)
        if not chosen:
            return None
        selection, scheme = Selection.parse(search), "dark" if dark else "light"
        parts = _against_first(view.open(run), view.open(chosen[0]), selection, scheme)
        return dmc.Stack(parts, gap="md")

    @app.callback(
        Output("causes-answer", "children"), Input("causes-go", "n_clicks"), State(_AGAINST, "value"),
        State("run", "data"), State("dark", "checked"), State("url", "search"), State("causes-page", "data"),
        running=while_working("causes"),
    )  # fmt: skip
    def attribute(clicks: int | None, against: list[list[str] | None], run: str, *states: Any) -> Any:
        dark, search, page = states
        chosen = _first(against)
        if not clicks or not chosen:
            return no_update
        set_option(PATH, search, run, "why", chosen[0])
        try:
            with works.of(str(page), Simulations()) as work:
                base, other = view.open(run), view.open(chosen[0])
                causes = difference_of_runs(base, other, work.finish, lambda: not work.is_cancelled)
        except Cancelled:
            return empty("The simulation was cancelled; press Simulate each change to start again.")
        except ChakrascopeError as error:
            return error_alert(error.message)
        query = {"run": run, "against": chosen[0]}
        return table_card("Settings", "causes", causes, _CAUSES, "dark" if dark else "light", query=query,
                          whole=True)  # fmt: skip


def _first(against: list[list[str] | None]) -> list[str]:
    """Return the value of the page's only control for runs to compare."""
    return (against[0] if against else None) or []
