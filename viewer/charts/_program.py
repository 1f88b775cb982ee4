"""Draw a collective program: the traffic between ranks, step by step."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import plotly.graph_objects as go

from ...runner.analysis import Matrix
from ...runner.programs import ARROW_GAP, Inspection, has_arrows, size_groups, traffic_sentence
from ...support import bytes_text, count_text, ranks_text
from ._charts import heat_map, listed, shades, styled

# Arrows by how much they carry, the least first.
_COLOURS = {
    "light": ("#8a939c", "#3b82c4", "#d9731a", "#b2182b"),
    "dark": ("#8a939c", "#6db3f2", "#f0a04b", "#ff6b6b"),
}
# An arrow is pointed at nearer to its sender, as many cross halfway.
_POINTED = 0.3


def program_chart(found: Inspection, scheme: str) -> go.Figure:
    """Return ranks over steps with arrows for the traffic between them, or a heat map if there are many."""
    few = has_arrows(found)
    figure = _arrows(found, scheme) if few else _heat_map(found, scheme)
    ranks = found.program.num_ranks
    figure.update_layout(height=110 + (36 if few else 18) * max(4, min(ranks, 40)))
    labels = [*range(0, ranks, 1 if few else max(1, ranks // 32))]
    figure.update_yaxes(
        tickvals=labels, ticktext=[f"rank {rank}" for rank in labels], range=[ranks - 0.5, -0.5],
        automargin=True,
    )  # fmt: skip
    numbers = [*range(1, found.steps + 1, max(1, found.steps // 16))]
    figure.update_xaxes(
        title="step", range=[0, found.steps], zeroline=False, showgrid=False,
        tickvals=[number - 0.5 for number in numbers], ticktext=[str(number) for number in numbers],
    )  # fmt: skip
    styled(figure, scheme, margin={"l": 8, "r": 8, "t": 30, "b": 44}, alt=_alt_text(found))
    if few:
        figure.update_yaxes(showgrid=True)
    return figure


def pairs_chart(found: Inspection, scheme: str) -> go.Figure:
    """Return the traffic between ranks over all steps as a heat map."""
    ranks = found.program.num_ranks
    sent = np.zeros((ranks, ranks), dtype=np.int64)
    for item in found.traffic:
        sent[item.source, item.destination] += item.size_bytes
    rows, columns = ([f"{word} {rank}" for rank in range(ranks)] for word in ("from", "to"))
    texts = np.vectorize(bytes_text, otypes=[object])(sent)
    figure = heat_map(Matrix(rows, columns, sent.astype(np.float64)), texts, scheme)
    pairs = count_text(int(np.count_nonzero(sent)), "pair")
    figure.update_layout(
        meta=f"Who sends to whom over all steps of the program {found.program.name}: {pairs} of {ranks:,} "
        f"ranks, at most {bytes_text(int(sent.max()))} from one to another"
    )
    return figure


def _alt_text(found: Inspection) -> str:
    """Return the text alternative of the plot."""
    steps: dict[int, list[int]] = defaultdict(list)
    for item in found.traffic:
        steps[item.step].append(item.size_bytes)
    each = listed(
        (f"step {step}:", f"{count_text(len(sizes), 'sender and receiver', 'senders and receivers')}")
        for step, sizes in steps.items()
    )
    return (
        f"Who sends to whom in the program {found.program.name}, {found.program.num_ranks} ranks over "
        f"{count_text(found.steps, 'step')}; {each}"
    )


def _arrows(found: Inspection, scheme: str) -> go.Figure:
    figure = go.Figure()
    groups = size_groups(item.size_bytes for item in found.traffic)
    colours = _COLOURS[scheme][1:] if len(groups) == 1 else _COLOURS[scheme]
    for (label, least, most), colour in zip(groups, colours, strict=False):
        shown = [item for item in found.traffic if least <= item.size_bytes <= most]
        ends = [
            (item.step - 1 + ARROW_GAP, item.step - ARROW_GAP, item.source, item.destination)
            for item in shown
        ]
        figure.add_scatter(
            x=[place for start, end, _, _ in ends for place in (start, end, None)],
            y=[rank for _, _, source, target in ends for rank in (source, target, None)],
            mode="lines+markers", line={"color": colour, "width": 1.4}, name=label, hoverinfo="skip",
            marker={"symbol": "arrow", "angleref": "previous", "size": [0, 9, 0] * len(ends),
                    "color": colour, "opacity": 1, "line_width": 0},
        )  # fmt: skip
        figure.add_scatter(
            x=[start + _POINTED * (end - start) for start, end, _, _ in ends],
            y=[source + _POINTED * (target - source) for _, _, source, target in ends],
            mode="markers", marker={"size": 10, "opacity": 0, "color": colour}, showlegend=False,
            hovertext=[traffic_sentence(item) for item in shown], hovertemplate="%{hovertext}<extra></extra>",
        )  # fmt: skip
    figure.update_layout(
        hovermode="closest", showlegend=True,
        legend={"orientation": "h", "y": 1, "yanchor": "bottom", "x": 0, "xanchor": "left",
                "title": {"text": "sent in one step: ", "side": "left", "font_size": 13}},
    )  # fmt: skip
    for step in range(1, found.steps):
        figure.add_vline(step, line={"color": "#9aa3ad", "width": 1, "dash": "dot"}, opacity=0.5)
    return figure


def _heat_map(found: Inspection, scheme: str) -> go.Figure:
    shape = found.program.num_ranks, max(1, found.steps)
    sent = np.zeros(shape, dtype=np.int64)
    texts = np.full(shape, "nothing", dtype=object)
    targets: dict[tuple[int, int], list[int]] = defaultdict(list)
    for item in found.traffic:
        place = item.source, item.step - 1
        sent[place] += item.size_bytes
        targets[place].append(item.destination)
    for place, ranks in targets.items():
        words = "rank" if len(ranks) == 1 else "ranks"
        texts[place] = f"{bytes_text(int(sent[place]))} to {words} {ranks_text(ranks)}"
    most = max(1, int(sent.max()))
    bar = {"title": {"text": "sent in one step", "side": "right"}, "thickness": 12, "outlinewidth": 0}
    bar |= {"tickvals": [0, most / 2, most], "ticktext": [bytes_text(n) for n in (0, most // 2, most)]}
    return go.Figure(
        go.Heatmap(
            z=sent, x=np.arange(shape[1]) + 0.5, y=np.arange(shape[0]), customdata=texts, zmin=0, zmax=most,
            colorscale=shades(scheme), colorbar=bar,
            hovertemplate="rank %{y} sends %{customdata}<extra></extra>",
        )
    )  # fmt: skip
