"""The cards of the page Network for a network that was calibrated: fit, intervals, what is not known."""

from __future__ import annotations

from typing import Any

import dash_mantine_components as dmc
from dash import html

from ...runner.analysis import fitted_network
from .._state import OpenRun
from ..charts import calibration_fit, graph
from ._parts import card, column, details_list, empty, table_card, text_column

__all__ = ["calibration_cards"]

_MOST_SAID = 20
_NOTE = (
    "What the network of this run was fitted to. Points: medians of the measurements. Lines: what the "
    "network says of them; dotted: its messages alone, without what the library needs beside them."
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
    """Return what is known of the calibration of the network of *run*; nothing for one without."""
    fitted = fitted_network(run.result.provenance)
    if fitted is None:
        return []
    drawn = (
        graph(calibration_fit(fitted.points, scheme), id="calibration-fit")
        if len(fitted.points)
        else empty("The network file holds no measurements to draw.")
    )
    parts = [drawn, details_list(list(fitted.facts)), *_said("Not determined", fitted.undetermined)]
    cards = [
        card("Calibration", *parts, *_said("Left out", fitted.left_out), note=_NOTE, id="calibration-card")
    ]
    if len(fitted.points):
        cards.append(
            table_card(
                "Measurements", "calibration", fitted.points, _COLUMNS, scheme, query={"run": run.info.id}
            )
        )
    return cards


def _said(title: str, sentences: tuple[str, ...]) -> list[Any]:
    if not sentences:
        return []
    left = len(sentences) - _MOST_SAID
    shown = [*sentences[:_MOST_SAID], *([f"And {left:,} more."] if left > 0 else [])]
    items = html.Ul([html.Li(text) for text in shown])
    return [dmc.Text(title, fw=600, size="sm", mt="xs"), dmc.Text(items, size="sm")]
