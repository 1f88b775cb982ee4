"""Show results in notebooks, as plain HTML and SVG without external files.

All text is escaped, because names come from untrusted traces. Colours follow the notebook's theme.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..support import (
    Svg,
    bytes_text,
    change_text,
    count_text,
    duration_text,
    element,
    picture,
    share_text,
    visible,
    write_file,
)

if TYPE_CHECKING:
    import pandas as pd

_STYLE = "font-family:system-ui,sans-serif;font-size:13px;color:inherit;background:transparent;"
_LINE = "border-bottom:1px solid rgba(128,128,128,.35);padding:3px 10px;"
_MAX_TEXT = 160
_MAX_LABEL = 40
_LABELS, _BARS, _ROW, _TEXTS = 300, 420, 22, 110


@dataclass(frozen=True)
class Bar:
    """One bar of a bar chart from *start* to *end*, in any unit, followed by *text*."""

    label: str
    start: float
    end: float
    text: str
    colour: str = "#3b82c4"


@dataclass(frozen=True)
class Figure:
    """An SVG picture, which a notebook shows and :meth:`save` writes to a file."""

    svg: str

    def _repr_html_(self) -> str:
        return self.svg

    def save(self, file: str | Path) -> None:
        """Write the picture as an SVG file."""
        write_file(file, self.svg)


def block(title: str, *parts: str, notes: Sequence[str] = ()) -> str:
    """Return the HTML *parts* below a *title* and *notes*, which are plain text."""
    remarks = "".join(f'<div style="opacity:.75;margin:2px 0">{_text(note)}</div>' for note in notes)
    head = f'<div style="font-weight:600;margin:4px 0">{_text(title)}</div>'
    return f'<div class="chakrascope" style="{_STYLE}">{head}{remarks}{"".join(parts)}</div>'


def html_table(table: pd.DataFrame, title: str = "", *, most: int = 10) -> str:
    """Return the first rows of *table* as HTML, with each column in the unit that ends its name."""
    shown = table.head(most)
    plain = [str(name).removesuffix("_ns").removesuffix("_bytes") for name in shown.columns]
    numeric = [dtype.kind in "iuf" for dtype in shown.dtypes]
    sides = ["right;white-space:nowrap" if number else "left" for number in numeric]
    head = "".join(
        f'<th style="{_LINE}text-align:{side}">{_text(name.replace("_", " "))}</th>'
        for name, side in zip(plain, sides, strict=True)
    )
    body = "".join(
        "<tr>"
        + "".join(
            f'<td style="{_LINE}text-align:{side}">{_text(_cell(str(name), value))}</td>'
            for name, value, side in zip(shown.columns, row, sides, strict=True)
        )
        + "</tr>"
        for row in shown.itertuples(index=False)
    )
    lead = f'<div style="margin-top:8px;opacity:.75">{_text(title)}</div>' if title else ""
    rest = len(table) - len(shown)
    more = f'<div style="opacity:.75">{count_text(rest, "more row")}</div>' if rest else ""
    opened = f'<table style="border-collapse:collapse;{_STYLE}"><thead><tr>{head}</tr></thead>'
    return f"{lead}{opened}<tbody>{body}</tbody></table>{more}"


def bars(rows: Sequence[Bar], title: str, *, low: float = 0.0) -> Figure:
    """Return *rows* as a chart of horizontal bars, from top to bottom, on a scale that begins at *low*."""
    high = max((value for row in rows for value in (row.start, row.end)), default=low)
    scale = _BARS / ((high - low) or 1.0)
    height = 28 + _ROW * len(rows)
    parts = [part for place, row in enumerate(rows) for part in _bar(row, 24 + _ROW * place, low, scale)]
    width = _LABELS + _BARS + _TEXTS
    drawn = picture(
        width, height, element("text", visible(title), x=0, y=14, font_weight=600), *parts,
        label=visible(title), width=width, height=height, fill="currentColor",
        style="max-width:100%;font-family:system-ui,sans-serif;font-size:12px",
    )  # fmt: skip
    return Figure(drawn)


def _bar(row: Bar, top: int, low: float, scale: float) -> list[Svg]:
    start, end = sorted((max(low, row.start), max(low, row.end)))
    left = _LABELS + (start - low) * scale
    width = max(1.0, (end - start) * scale)
    label = row.label if len(row.label) <= _MAX_LABEL else f"{row.label[: _MAX_LABEL - 1]}…"
    tip = element("title", visible(row.label[:_MAX_TEXT]))
    return [
        element("text", visible(label), tip, x=_LABELS - 8, y=top + 13, text_anchor="end"),
        element("rect", x=left, y=top + 2, width=width, height=_ROW - 6, fill=row.colour),
        element("text", visible(row.text), x=left + width + 5, y=top + 13),
    ]


def _cell(name: str, value: Any) -> str:
    import pandas as pd  # noqa: PLC0415 - needed only for pandas tables

    if not isinstance(value, str) and pd.isna(value):
        return ""
    if name.endswith("_ns"):
        return duration_text(float(value))
    if name in {"bytes", "size_bytes"}:
        return bytes_text(float(value))
    if name == "relative":
        return change_text(float(value))
    if name == "share":
        return share_text(float(value))
    if isinstance(value, float):
        return f"{value:,.4g}"
    text = str(value)
    return text if len(text) <= _MAX_TEXT else f"{text[: _MAX_TEXT - 1]}…"


def _text(text: str) -> str:
    return escape(visible(text), quote=True)
