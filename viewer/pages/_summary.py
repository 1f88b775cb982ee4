"""Summary page: what bounds the step in one sentence, key figures, and advice."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import ALL, Dash, Input, State, ctx, html

from ...converter.building import captured_steps
from ...converter.checks import step_kinds, step_rows
from ...errors import StudyError
from ...runner import RunInfo, about_backend
from ...runner.analysis import (
    TABLES,
    Advice,
    advice_text,
    common_steps,
    contributors,
    gain_text,
    nameless_text,
)
from ...runner.study import run_name
from ...support import count_text, duration_text, share_text
from .._address import bars_id, go, later_id
from .._state import OpenRun, Selection, StudyView
from .._theme import run_text
from ..charts import breakdown_bar, contributors_bar, graph, memory_area, ranks_bar
from ..queries import fullest_curve, memory_facts, memory_verdict
from ._parts import (
    COLLECTIVE_COLUMNS,
    breakable,
    card,
    column,
    details_list,
    empty,
    export_links,
    kind_legend,
    link_to,
    page_address,
    rows_table,
    table_card,
    text_column,
)

PATH, TITLE = "/", "Summary"
_RANKS_NOTE = (
    "Compute, exposed communication, exposed copies and idle time add up to the step. Overlapped "
    "communication runs at the same time as computation, exposed communication does not; exposed copies run "
    "while there is neither computation nor communication."
)
_ANOMALIES_NOTE = (
    "NICs, links and hosts that are slower than their peers in the messages and computations of this run. "
    "Their costs come from replays of the run without the anomaly."
)
_COLLECTIVES = [
    *COLLECTIVE_COLUMNS,
    column("on_path_ns", "On critical path", "time", minWidth=120, sort="desc"),
    column("share", "Share", "%", minWidth=76),
]
_COLLECTIVES_NOTE = (
    "The largest share of the critical path comes first. Skew is the time from the first rank's arrival to "
    "the last rank's; transfer is the time after that. Select a collective to see it on the timeline."
)
_LAYERS = [
    text_column("module", "Module", minWidth=280, flex=3),
    column("forward_ns", "Forward", "time", minWidth=92),
    column("backward_ns", "Backward", "time", minWidth=98),
    column("communication_ns", "Communication", "time", minWidth=136),
    column("other_ns", "Other", "time"),
    column("on_path_ns", "On critical path", "time", minWidth=110),
    column("share", "Share", "%", minWidth=76),
]
_LAYERS_NOTE = (
    "Modules in execution order, with means over all ranks and their share of the critical path. Select a "
    "module to select its longest node on all pages."
)
_STEPS = [
    column("step", "Step", maxWidth=80),
    {"field": "kind", "headerName": "Kind", "minWidth": 84, "maxWidth": 110},
    column("requests", "Requests", minWidth=84, maxWidth=100),
    column("tokens", "Tokens", minWidth=80, maxWidth=100),
    column("duration_ns", "Time", "time", minWidth=84),
    column("compute_ns", "Compute", "time", minWidth=84),
    column("communication_ns", "Exposed comm.", "time", minWidth=90),
    column("copy_ns", "Copies", "time", minWidth=80),
    column("idle_ns", "Idle", "time", minWidth=80),
    column("longest_gap_ns", "Longest gap", "time", minWidth=84),
    column("kernels", "Kernels", minWidth=80, maxWidth=96),
    column("launches", "Launches", minWidth=84, maxWidth=100),
    {"field": "bound_by", "headerName": "Bound by", "minWidth": 110},
]
_STEPS_NOTE = (
    "Each step as measured, on its slowest rank. Compute, exposed communication, exposed copies and idle "
    "time of the device add up to the time of the step."
)
_ADVICE_NOTE = (
    "The largest gain comes first. A gain is the time that the change saves in a replay of the run, "
    'including new bottlenecks. "At most" marks upper bounds without a replay.'
)
_CLICK = "Select a bar to see its longest segment on the timeline."
_MAX_SIMULATIONS = 3
_PAIR = {"base": 1, "md": 2}  # number of cards in a row, by window width


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Summary page for *run*."""
    search = selection.with_run(run.info.id).search
    kinds = run.summary.kinds
    waiting = dmc.Text("Summing up layers ...", size="sm", c="dimmed")
    return dmc.Stack(
        [
            html.Div(
                [dmc.Title(run.summary.headline, order=2, size="h3", id="headline"), *_simulations(run)]
            ),
            # Filled in later, because comparing with the measurement needs a replay.
            html.Div(id=later_id("summary-deviation"), role="status"),
            _figures(run),
            *_prediction(run),
            card(
                "Where the step's time goes",
                graph(breakdown_bar(kinds, scheme), id="kind-bar"),
                kind_legend(kinds["key"]),
                html.Div(
                    link_to(
                        "See the critical path segment by segment", "/critical-path", _with_by(search, "kind")
                    ),
                    className="link-row",
                ),
                note="The critical path by kind. The step gets shorter only if this chain of work does.",
                exports=export_links("by-kind", run=run.info.id),
            ),
            _advice(run, search),
            *_qualifiers(run),
            *_contributors(run, scheme, search),
            *_memory(run, scheme),
            # Filled in later, so that the top of the page appears sooner.
            html.Div(id=later_id("summary-steps")),
            html.Div(card("Layers", waiting), id=later_id("summary-layers")),
            html.Div(id=later_id("summary-ranks")),
            *_ignored(run),
        ],
        gap="md",
    )


def _simulations(run: OpenRun) -> list[Any]:
    """Return links to the newest simulations of the workload of a measured *run*, if there are any."""
    made = [info for info in run.view.runs() if info.workload == run.info.workload and not _replays(info)]
    if not made or not _replays(run.info):
        return []
    newest = made[: -_MAX_SIMULATIONS - 1 : -1]
    links = [link_to(run_text(info), "/", Selection(info.id).search) for info in newest]
    against = ",".join(info.id for info in newest)
    links.append(
        link_to("Compare", "/compare", Selection(run.info.id).with_option("against", against).search)
    )
    if len(made) > len(newest):
        links.append(link_to(f"All {len(made)} simulations", "/runs", Selection(run.info.id).search))
    title = dmc.Text("Simulated from this capture:", size="sm")
    return [html.Div([title, *links], className="link-row", id="simulations")]


def _replays(info: RunInfo) -> bool:
    return about_backend(info.backend).replays


def _memory(run: OpenRun, scheme: str) -> list[dmc.Paper]:
    """Return the card with the memory of the fullest rank; empty if there is no prediction."""
    fullest = fullest_curve(run)
    if fullest is None:
        return []
    area = graph(memory_area(fullest, scheme), id="memory-area")
    return [card("Memory per rank", area, note=memory_facts(run))]


def _figures(run: OpenRun) -> dmc.SimpleGrid:
    """Return tiles with the main figures: step time, computation, communication, and ranks."""
    info, ranks = run.info, run.summary.ranks
    step = max(1, run.result.makespan_ns)
    exposed, compute = int(ranks["exposed_comm_ns"].max()), float(ranks["compute_ns"].mean())
    worst = int(ranks["rank"].to_numpy()[ranks["exposed_comm_ns"].to_numpy().argmax()])
    steps = captured_steps(run.workload.metadata)
    what = "Step" if steps == 1 else count_text(steps, "step")
    # The result may hold only one of several ranks with equal programs.
    executed = max(run.result.num_nodes, int(run.result.provenance.get("nodes_executed", 0)))
    shown = [
        (what, duration_text(run.result.makespan_ns), run_name(info)),
        ("Computing", share_text(compute / step), "of the step, mean over all ranks"),
        (
            "Exposed communication",
            duration_text(exposed),
            f"{share_text(exposed / step)} on rank {worst}, the maximum" if exposed else "on any rank",
        ),
        ("Ranks", f"{info.num_ranks:,}", f"{count_text(executed, 'node')}, {info.network or info.backend}"),
    ]
    tiles = [
        dmc.Paper(
            [dmc.Text(label, size="sm", c="dimmed"), dmc.Text(value, fw=700, size="xl"),
             html.Div(about, title=about, className="figure-note")],
            withBorder=True, px="md", py="xs", radius="md",
        )
        for label, value, about in shown
    ]  # fmt: skip
    return dmc.SimpleGrid(tiles, cols={"base": 2, "md": 4}, spacing="md", id="figures")


def _prediction(run: OpenRun) -> list[Any]:
    """Return the card of a prediction: the interval of its step time, and whether the job fits."""
    prediction = run.result.provenance.get("prediction")
    if not isinstance(prediction, dict):
        return []
    step, low, high = (
        duration_text(int(prediction[name])) for name in ("step_ns", "step_low_ns", "step_high_ns")
    )
    facts = [
        ("Step", f"{step}; 90 % interval: {low} to {high}"),
        ("Memory", memory_verdict(run)),
        ("Bound by", str(prediction["bound_by"])),
    ]  # fmt: skip
    if prediction.get("tokens_per_s"):
        facts.insert(1, ("Tokens", f"{prediction['tokens_per_s']:,.0f} per second over all ranks"))
    note = "This step was predicted and never run. The caveats list its assumptions."
    return [card("Prediction", details_list(facts), note=note, id="prediction")]


def _contributors(run: OpenRun, scheme: str, search: str) -> list[Any]:
    """Return the cards that split the critical path by operator and module, and time by rank."""
    bars = graph(ranks_bar(run.summary.ranks, scheme), id=bars_id("rank"))
    ranks = card("Time per rank", bars, exports=export_links("ranks", run=run.info.id))
    operators = _bars(run, "operator", scheme, search)
    if contributors(run.path, "module").empty:
        return [dmc.SimpleGrid([operators, ranks], cols=_PAIR)]
    modules = _bars(run, "module", scheme, search)
    return [dmc.SimpleGrid([operators, modules], cols=_PAIR), ranks]


def _layers(run: OpenRun, scheme: str) -> list[Any]:
    layers = run.layers
    if layers.empty:
        return []
    places = [_longest(run, "module", name) for name in layers["module"]]
    shown = layers.assign(rank=[rank for rank, _ in places], node_id=[node for _, node in places])
    return [table_card("Layers", "layers", shown, _LAYERS, scheme, query={"run": run.info.id},
                       note=_LAYERS_NOTE, most=360, selects=True)]  # fmt: skip


def _longest(run: OpenRun, by: str, name: str) -> tuple[int, int]:
    """Return (rank, node) of an operator's or module's longest segment on the critical path.

    A module includes its submodules. An operator or module that is not on the path gives its longest node
    among `RunAnalysis.searched`; (-1, -1) means that there is none.
    """
    for table, length in (("path", "duration_ns"), ("run", "")):
        nodes = run.path.unreasoned if table == "path" else run.searched()[0]
        own = nodes[(nodes[by] == name) | ((by == "module") & nodes[by].str.startswith(f"{name}."))]
        own = own[own["node_id"] >= 0]
        if len(own):
            lasting = own[length] if length else own["end_ns"] - own["start_ns"]
            row = own.loc[lasting.idxmax()]
            return int(row["rank"]), int(row["node_id"])
    return -1, -1


def _steps(run: OpenRun, scheme: str) -> list[Any]:
    """Return cards that compare the captured steps; empty if there is only one."""
    if captured_steps(run.workload.metadata) < 2:
        return []
    steps = step_rows(run.workload)
    if not steps:
        return []
    rows = TABLES["steps"](run)
    spread = [
        [row["kind"] or "step", f"{row['steps']:,}", duration_text(row["min_ns"]),
         duration_text(row["median_ns"]), duration_text(row["max_ns"]), duration_text(row["idle_ns"]),
         f"{row['kernels']:,}", f"{row['launches']:,}", row["bound_by"]]
        for row in step_kinds(steps)
    ]  # fmt: skip
    head = ["Kind", "Steps", "Shortest", "Median", "Longest", "Idle", "Kernels", "Launches", "Bound by"]
    kinds = card("Captured steps by kind", rows_table(head, spread, id="step-kinds"),
                 note="Idle time, kernels and launches are medians. Bound by is the largest "
                 "part.")  # fmt: skip
    shown = rows.assign(**{name: rows[name].where(rows[name] >= 0) for name in ("requests", "tokens")})
    each = table_card("Captured steps", "steps", shown, _STEPS, scheme, query={"run": run.info.id},
                      note=_STEPS_NOTE, most=320)  # fmt: skip
    return [kinds, each]


def _collectives(run: OpenRun, scheme: str) -> list[Any]:
    if run.collectives.empty:
        return []
    rows = run.collectives.sort_values("on_path_ns", ascending=False, kind="stable")
    return [table_card("Collectives", "collectives", rows, _COLLECTIVES, scheme, query={"run": run.info.id},
                       note=_COLLECTIVES_NOTE, most=320, selects=True)]  # fmt: skip


def _anomalies(run: OpenRun) -> list[Any]:
    """Return the card of anomalies; empty if the run recorded no messages."""
    if run.result.flows.empty:
        return []
    try:
        found = run.diagnosis
    except StudyError as error:
        return [card("Anomalies", empty(error.message))]
    exports = export_links("anomalies", run=run.info.id)
    remarks = [dmc.Text(remark, size="sm", c="dimmed") for remark in found.remarks]
    if not found.anomalies:
        return [card("Anomalies", empty("Nothing is slower than its peers."), *remarks, exports=exports)]
    rows = [
        [one.what, one.sentence, share_text(one.confidence), duration_text(one.cost.ns),
         f"{duration_text(one.cost.low_ns)} to {duration_text(one.cost.high_ns)}"]
        for one in found.anomalies
    ]  # fmt: skip
    head = ["What", "Place and evidence", "Confidence", "Costs the step", "Between"]
    shown = dmc.Table(data={"head": head, "body": rows}, id="anomalies")
    return [card("Anomalies", shown, *remarks, note=_ANOMALIES_NOTE, exports=exports)]


def _advice(run: OpenRun, search: str) -> dmc.Paper:
    steps = common_steps(run.advices())
    rows = [
        [_cause(item, search), f"{gain_text(item, steps)} ({share_text(item.share)})",
         breakable(advice_text(item))]
        for item in run.advices()
    ]  # fmt: skip
    links = [link_to("See the critical path, and simulate what would help", "/critical-path", search)]
    if len(run.collectives):
        links.append(link_to("See all collectives", "/network", search))
    return card(
        "What would help",
        rows_table(["Cause", f"Saves{f' in {steps}' * bool(steps)}", "What helps"], rows, id="advice")
        if rows
        else empty("No single change gains more than 1 % of the step."),
        *([html.P(run.summary.together)] if run.summary.together else []),
        html.Div(links, className="link-row"),
        note=_ADVICE_NOTE,
        exports=export_links("advice", run=run.info.id),
    )


def _cause(item: Advice, search: str) -> Any:
    """Return the cause of *item*, as a link to its longest node if that is known."""
    what = breakable(item.what)
    if item.node_id < 0:
        return what
    return link_to(what, "/timeline", Selection.parse(search).with_node(item.rank, item.node_id).search)


def _bars(run: OpenRun, by: str, scheme: str, search: str = "") -> dmc.Paper:
    table_ = contributors(run.path, by)
    none = empty(f"No part of the critical path is assigned to a {by}.")
    bars = none if table_.empty else graph(contributors_bar(table_, scheme, narrow=True), id=bars_id(by))
    more = link_to(f"All {by}s on the critical path", "/critical-path", _with_by(search, by))
    return card(f"{by.capitalize()}s on the critical path", bars, html.Div(more, className="link-row"),
                exports=export_links(f"by-{by}", run=run.info.id),
                note=f"{nameless_text(run.path.breakdown(by), by)} {_CLICK}".strip())  # fmt: skip


def _with_by(search: str, by: str) -> str:
    return Selection.parse(search).with_option("by", by).search


def _ranks(run: OpenRun, scheme: str) -> dmc.Paper:
    names = {
        "finish_ns": "Finish", "compute_ns": "Compute", "exposed_comm_ns": "Exposed comm.",
        "exposed_copy_ns": "Exposed copies",
        "overlap_ns": "Overlapped comm.", "copy_ns": "Copies", "idle_ns": "Idle",
    }  # fmt: skip
    columns = [
        column("rank", "Rank", maxWidth=80),
        *(column(field, name, "time", minWidth=108) for field, name in names.items()),
    ]
    ranks = run.summary.ranks
    return table_card(
        "Per rank", "ranks", ranks, columns, scheme, query={"run": run.info.id}, note=_RANKS_NOTE,
        most=320,
    )  # fmt: skip


def _deviation(run: OpenRun, _scheme: str) -> Any:
    """Return a warning, with a link, if the simulated step time is far from the measured one."""
    if not run.deviation:
        return None
    measured = [info.id for info in run.view.runs() if info.workload == run.info.workload and _replays(info)]
    search = Selection().with_run(run.info.id).with_option("against", "".join(measured[-1:])).search
    more = [link_to("Compare it with the measurement", "/compare", search)] if measured else []
    parts = [dmc.Text(run.deviation, size="sm"), *more]
    return dmc.Alert(parts, color="red", variant="light", id="deviation")


def _qualifiers(run: OpenRun) -> list[Any]:
    """Return the qualifiers of the summary as a collapsed list."""
    texts = run.summary.qualifiers
    lines = dmc.List([dmc.ListItem(text) for text in texts], size="sm", mt="xs")
    folded = html.Details([html.Summary(count_text(len(texts), "caveat")), lines])
    # No title, because yellow on white is hard to read.
    return [dmc.Alert(folded, color="yellow", variant="light", id="qualifiers")] if texts else []


def _ignored(run: OpenRun) -> list[Any]:
    """Return the card of settings that the simulation ignored; empty for replays, which use none."""
    if _replays(run.info):
        return []
    keys = [str(line) for line in run.result.provenance.get("ignored_keys", [])]
    items = dmc.List([dmc.ListItem(line) for line in keys], size="sm")
    return [card("Settings without effect", items)] if keys else []


def _longest_of(run: OpenRun, by: str, point: dict[str, Any]) -> tuple[int, int]:
    """Return (rank, node) of the longest node of a clicked bar; node -1 if there is none."""
    if by == "rank":
        rank = int(point["x"])
        own = run.nodes_of(rank)
        lengths = own["end_ns"] - own["start_ns"]
        return rank, -1 if own.empty else int(own["node_id"].iloc[int(lengths.argmax())])
    name = str(contributors(run.path, by)["key"].iloc[int(point["pointIndex"])])
    return _longest(run, by, name)


def register(app: Dash, view: StudyView) -> None:
    """Register the callback that shows a clicked bar on the timeline."""

    @app.callback(
        Input({"bars": ALL}, "clickData"), State("run", "data"), State("url", "search"),
        prevent_initial_call=True,
    )  # fmt: skip
    def open_bar(_clicks: Any, run: str, search: str | None) -> None:
        """Show the longest node of the clicked bar on the timeline."""
        for one in ctx.triggered:
            if one["value"]:
                by = ctx.triggered_prop_ids[one["prop_id"]]["bars"]
                rank, node = _longest_of(view.open(run), by, one["value"]["points"][0])
                if node >= 0:
                    shown = Selection.parse(search).with_run(run).with_node(rank, node)
                    go(page_address("/timeline", ""), shown.search)


def _steps_later(run: OpenRun, scheme: str) -> dmc.Stack | None:
    parts = [*_anomalies(run), *_steps(run, scheme)]
    return dmc.Stack(parts, gap="md") if parts else None


def _ranks_later(run: OpenRun, scheme: str) -> dmc.Stack:
    return dmc.Stack([*_collectives(run, scheme), _ranks(run, scheme)], gap="md")


LATER = {
    "summary-deviation": _deviation, "summary-steps": _steps_later, "summary-layers": _layers,
    "summary-ranks": _ranks_later,
}  # fmt: skip
