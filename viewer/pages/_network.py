"""Network page: collectives and their programs, link loads, and the fit of the calibration."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
import numpy as np
from dash import Dash, Input, Output, State, dcc, html, no_update

from ...runner import backends_that
from ...runner.analysis import (
    TRAFFIC,
    failures_of,
    fitted_network,
    link_dimensions,
    link_table,
    packet_facts,
    switch_loads,
    traffic,
    use_over_time,
)
from ...runner.programs import Demand, Program, inspect_program, inspection_facts, program_ops
from ...support import bytes_text, count_text, duration_text, share_text
from .._address import later_id
from .._state import OpenRun, Selection, StudyView
from ..charts import (
    calibration_fit,
    graph,
    has_arrows,
    heat_map,
    loads_bar,
    pairs_chart,
    program_chart,
    use_map,
)
from ..charts import link_map as link_chart
from ..queries import link_map
from ._parts import (
    COLLECTIVE_COLUMNS,
    card,
    column,
    details_list,
    empty,
    export_links,
    page_title,
    table_card,
    text_column,
)

PATH, TITLE = "/network", "Network"
_COLLECTIVES = [
    *COLLECTIVE_COLUMNS[:5],
    column("start_ns", "First arrival", "instant"),
    *COLLECTIVE_COLUMNS[5:],
    column("on_path_ns", "On critical path", "time", minWidth=92),
]
_COLLECTIVES_NOTE = (
    "Skew: time from the arrival of the first rank to the arrival of the last. Transfer: the longest time "
    "of a rank after all ranks that it needs have arrived. Algorithm bandwidth: size over transfer (for "
    "an all_gather, the size of the result). Bus bandwidth: rate of each link in a ring of as many ranks, "
    "which compares with the bandwidth of the hardware: all_reduce × 2(n−1)/n; all_gather, "
    "reduce_scatter, all_to_all × (n−1)/n. GB/s: 10⁹ bytes per second."
)
_LINKS = [
    {"field": "source", "headerName": "From", "minWidth": 90},
    {"field": "target", "headerName": "To", "minWidth": 90},
    column("dimension", "Dim.", maxWidth=84),
    column("share", "Busy, of the step", "%", minWidth=84),
    column("busy_ns", "Busy", "time"),
    column("bytes", "Carried", "bytes", minWidth=100),
    column("messages", "Messages", "count"),
    column("bytes_per_ns", "Speed while busy", "rate", minWidth=110),
    column("queue_ns", "Queueing", "time", minWidth=96),
]


# Columns of the table of links that only packet-level backends record.
_LOSSES = [
    column("drops", "Dropped", "count"),
    column("marks", "Marked", "count"),
    column("largest_queue_bytes", "Longest queue", "bytes", minWidth=96),
]
_LINKS_NOTE = (
    "Busy: the share of the step in which the link carried data. Queueing: how long messages waited for the "
    "link, summed over all messages; only backends that model congestion record queueing. On a packet-level "
    "backend, the messages are packets."
)
_ABOUT = (
    "The collectives of the step, and the use of each link. Select a collective to see it on the timeline "
    "and in the graph."
)
_MAX_FAILURES = 20
_TRAFFIC = {"busy_ns": "Busy time", "bytes": "Bytes", "flows": "Bytes, end to end"}


def layout(run: OpenRun, selection: Selection, scheme: str) -> Any:
    """Return the Network page for *run*."""
    del selection
    query = {"run": run.info.id}
    return dmc.Stack(
        [
            page_title(TITLE, _ABOUT),
            dmc.Text(_verdict(run), id="network-verdict"),
            *_failures(run),
            table_card("Collectives", "collectives", run.collectives, _COLLECTIVES, scheme, query=query,
                       note="" if run.collectives.empty else _COLLECTIVES_NOTE, selects=True, most=380),
            *programs_card(run),
            *_links(run, scheme),
            *calibration_cards(run, scheme),
        ],
        gap="md",
    )  # fmt: skip


def _verdict(run: OpenRun) -> str:
    if run.collectives.empty:
        return "This run has no communication."
    on_path = int(run.collectives["on_path_ns"].sum())
    share = share_text(on_path / max(1, run.result.makespan_ns))
    count = len(run.collectives)
    take = f"{count_text(count, 'collective')} {'takes' if count == 1 else 'take'}"
    text = f"{take} {duration_text(on_path)} ({share}) of the critical path."
    links = run.result.links
    if links.empty:
        return text
    busiest = link_table(run.result).iloc[0]
    where = f"{busiest['source']} to {busiest['target']}"
    return f"{text} The busiest link, {where}, carries data for {share_text(busiest['share'])} of the step."


def _failures(run: OpenRun) -> list[Any]:
    """Return a notice about failures; failed links are not in the table."""
    failures = [text for _, text in failures_of(run.result)]
    if not failures:
        return []
    more = [f"And {len(failures) - _MAX_FAILURES:,} more."] if len(failures) > _MAX_FAILURES else []
    lines = [html.Div(text) for text in [*failures[:_MAX_FAILURES], *more]]
    return [dmc.Alert(lines, id="failures", color="yellow", variant="light")]


def _links(run: OpenRun, scheme: str) -> list[Any]:
    if run.result.links.empty:
        text = (
            f"The backend '{run.info.backend}' records no links; {backends_that('links', 'and')} do, also "
            f"over time, and {backends_that('buffers', 'and')} add queues."
        )
        return [card("Links", empty(text)), *_packets(run)]
    links = link_table(run.result)
    columns = [*_LINKS, *(each for each in _LOSSES if each["field"] in links)]
    return [
        _dimensions(run, links),
        *_map(run, links, scheme),
        *_use(run, scheme),
        _matrix(run, scheme),
        *_packets(run),
        table_card("Links", "links", links, columns, scheme, query={"run": run.info.id}, note=_LINKS_NOTE),
    ]


def _map(run: OpenRun, links: Any, scheme: str) -> list[Any]:
    drawn = link_map(run.result, links)
    if drawn is None:
        return []
    note = (
        "Ranks are on the circle, switches inside. Each link has the colour of its busier direction; failed "
        "links are dotted. Point at the middle of a link for its values."
    )
    chart = graph(link_chart(drawn, scheme), id="link-map")
    return [card("Topology", chart, note=note, exports=export_links("links", run=run.info.id))]


def _use(run: OpenRun, scheme: str) -> list[Any]:
    use = use_over_time(run.result)
    if use is None:
        return []
    note = "The links that carried most data, busiest first. GB/s: 10⁹ bytes per second."
    chart = graph(use_map(use, scheme), id="link-use")
    return [card("Links over time", chart, note=note, exports=export_links("link-use", run=run.info.id))]


def _packets(run: OpenRun) -> list[Any]:
    facts = packet_facts(run.result.provenance)
    if not facts:
        return []
    return [card("Queues, pauses and flows", details_list(facts), id="packets",
                 exports=export_links("flows", run=run.info.id),
                 note="Totals over all ports and messages; the export contains every message.")]  # fmt: skip


def _matrix(run: OpenRun, scheme: str) -> dmc.Paper:
    known = [of for of in TRAFFIC if of != "flows" or not run.result.flows.empty]
    choices = [{"value": of, "label": _TRAFFIC[of]} for of in known]
    return card(
        "Traffic between ranks",
        dmc.SegmentedControl(id="traffic-shown", data=choices, value="busy_ns", size="xs", mb="xs"),
        html.Div(_traffic(run, "busy_ns", scheme), id="traffic"),
        note="Busy time and bytes are those of links: between each rank and its switch or, if ranks are "
        "linked directly, from the rank of a row to that of a column. Bytes end to end are those of "
        "messages, from the first sender to the last receiver.",
    )


def _traffic(run: OpenRun, of: str, scheme: str) -> list[Any]:
    """Return a chart of the traffic between ranks, with export links."""
    loads = None if of == "flows" else switch_loads(run.result)
    if loads is not None:
        return [graph(loads_bar(loads, of, scheme)), export_links("loads", run=run.info.id)]
    matrix = traffic(run.result, of)
    text = duration_text if of == "busy_ns" else lambda value: bytes_text(int(value))
    labels = np.vectorize(text, otypes=[object])(matrix.values)
    return [graph(heat_map(matrix, labels, scheme)), export_links(f"traffic-{of}", run=run.info.id)]


def _dimensions(run: OpenRun, links: Any) -> dmc.Paper:
    network = run.result.provenance.get("network", {})
    shape = dict(
        enumerate(zip(network.get("topology", []), network.get("npus_count", []), strict=False), start=1)
    )
    head = ["Dimension", "Shape", "Links", "Carried", "Busiest link", "Mean", "Queueing"]
    rows = []
    for row in link_dimensions(links).to_dict("records"):
        kind, size = shape.get(int(row["dimension"]), ("", ""))
        rows.append(
            [
                int(row["dimension"]), f"{kind} of {size}" if kind else "", f"{row['links']:,}",
                bytes_text(int(row["bytes"])), share_text(row["busiest"]), share_text(row["mean"]),
                duration_text(row["queue_ns"]),
            ]
        )  # fmt: skip
    return card(
        "By dimension",
        dmc.Table(data={"head": head, "body": rows}, id="dimensions", striped=True),
        note="Busiest and mean: share of the step in which links carry data.",
        exports=export_links("dimensions", run=run.info.id),
    )


def register(app: Dash, view: StudyView) -> None:
    """Register the choice of the figure in the traffic chart, and the callbacks of programs."""
    register_programs(app, view)

    @app.callback(
        Output("traffic", "children"), Input("traffic-shown", "value"), State("run", "data"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def show(shown: str, run: str, dark: bool) -> Any:
        of = shown if shown in TRAFFIC else "busy_ns"
        return _traffic(view.open(run), of, "dark" if dark else "light")


_MAX_LISTED = 20
_NOTE = (
    "The measurements to which the network of this run was fitted. Points are medians of the measurements. "
    "Solid lines are the network; dotted lines are its messages without library overhead."
)
_COLUMNS = [
    {"field": "operation", "headerName": "Operation", "minWidth": 116},
    text_column("dimension", "Dimension"),
    column("ranks", "Ranks", maxWidth=90),
    column("size_bytes", "Size", "bytes"),
    column("count", "Times", "count", maxWidth=90),
    column("measured_ns", "Measured", "time"),
    column("model_ns", "Network", "time"),
    column("messages_ns", "Messages alone", "time"),
    column("error", "Error", "±%"),
]


def calibration_cards(run: OpenRun, scheme: str) -> list[Any]:
    """Return cards on the calibration of the network; empty if it was not calibrated."""
    fitted = fitted_network(run.result.provenance)
    if fitted is None:
        return []
    drawn = (
        graph(calibration_fit(fitted.points, scheme), id="calibration-fit")
        if len(fitted.points)
        else empty("The network file contains no measurements to draw.")
    )
    parts = [drawn, details_list(list(fitted.facts)), *_listed("Not determined", fitted.undetermined)]
    cards = [
        card("Calibration", *parts, *_listed("Left out", fitted.left_out), note=_NOTE, id="calibration-card")
    ]
    if len(fitted.points):
        cards.append(
            table_card(
                "Measurements", "calibration", fitted.points, _COLUMNS, scheme, query={"run": run.info.id}
            )
        )
    return cards


def _listed(title: str, sentences: tuple[str, ...]) -> list[Any]:
    if not sentences:
        return []
    left = len(sentences) - _MAX_LISTED
    shown = [*sentences[:_MAX_LISTED], *([f"And {left:,} more."] if left > 0 else [])]
    items = html.Ul([html.Li(text) for text in shown])
    return [dmc.Text(title, fw=600, size="sm", mt="xs"), dmc.Text(items, size="sm")]


# ops; drawing a larger program takes too long
_MAX_OPS = 30_000
_PROGRAM_NOTE = (
    "The programs that replaced built-in algorithms. The messages of a step wait only for messages of "
    "earlier steps, so steps are an order, not a time. The sizes of messages include flags and signals of "
    "the protocol."
)


def programs_card(run: OpenRun) -> list[Any]:
    """Return the card of collective programs; empty if *run* used none.

    The section is filled after the page has loaded, because programs are proved when they are read.
    """
    if not run.has_programs:
        return []
    waiting = html.Div(empty("Reading the programs …"), id=later_id("programs"))
    return [card("Collective programs", dcc.Loading(waiting, delay_show=400), note=_PROGRAM_NOTE)]


def register_programs(app: Dash, view: StudyView) -> None:
    """Register the callback that draws the selected one of a run's collective programs."""

    @app.callback(
        Output("program", "children"), Input("program-shown", "value"), State("run", "data"),
        State("dark", "checked"), prevent_initial_call=True,
    )  # fmt: skip
    def program(shown: str, run: str, dark: bool) -> Any:
        uses = _uses(view.open(run))
        if not uses:
            return no_update
        place = int(shown) if str(shown).isdecimal() and int(shown) < len(uses) else 0
        return _drawn(*uses[place], "dark" if dark else "light")


def _uses(run: OpenRun) -> list[tuple[Demand, Program]]:
    """Return the collectives that used programs, the largest of each kind first."""
    return sorted(
        run.programs.items(), key=lambda use: (use[0].collective, -use[0].ranks, -use[0].size_bytes)
    )


def _chooser(run: OpenRun, scheme: str) -> Any:
    uses = _uses(run)
    if not uses:
        return empty("The system of this run names programs, but no collective ran one.")
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


LATER = {"programs": _chooser}


def _drawn(demand: Demand, program: Program, scheme: str) -> list[Any]:
    """Return a program's figures and charts, or a notice if it has too many ops to draw."""
    ops = program_ops(program, demand.size_bytes)
    if ops > _MAX_OPS:
        text = (
            f"{program.name} does {ops:,} ops for {bytes_text(demand.size_bytes)}, too many to draw here. "
            "`chakrascope algorithm inspect` prints a summary, and with `--view traffic` every step."
        )
        return [empty(text)]
    found = inspect_program(program, demand.size_bytes)
    facts = [(name[0].upper() + name[1:], text) for name, text in inspection_facts(found)]
    remarks = [dmc.Text(text, size="sm", c="dimmed") for text in found.remarks]
    pictures = [graph(program_chart(found, scheme), id="program-chart")]
    if not has_arrows(found):
        pictures.append(dmc.Text("Traffic between ranks, over all steps:", size="sm", mt="sm"))
        pictures.append(graph(pairs_chart(found, scheme), id="program-pairs"))
    return [details_list(facts), *remarks, *pictures]
