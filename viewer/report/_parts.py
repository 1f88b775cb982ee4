"""What a section of the report can hold; the template draws each by its name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pandas as pd
from markupsafe import Markup

from ...support import duration_text, share_text
from .._theme import KIND_LABELS, kind_colour

__all__ = ["Bar", "Columns", "Legend", "Lines", "Meters", "Part", "Picture", "Section", "Stack", "Table"]

Show = Callable[[Any], str]
# field -> heading, how its values are written
Columns = Mapping[str, tuple[str, Show]]


@dataclass(frozen=True)
class Table:
    """Texts in rows below *titles*; *numeric* says which columns are aligned to the right."""

    titles: Sequence[str]
    numeric: Sequence[bool]
    rows: Sequence[Sequence[str]]
    drawn_as: ClassVar[str] = "table"

    @classmethod
    def of(cls, frame: pd.DataFrame, columns: Columns) -> list[Table]:
        """Return *columns* of *frame* as a table, nothing if it has no rows."""
        if frame.empty:
            return []
        shown = [[show(value) for value in frame[name]] for name, (_, show) in columns.items()]
        numeric = [pd.api.types.is_numeric_dtype(frame[name]) for name in columns]
        return [cls([title for title, _ in columns.values()], numeric, list(zip(*shown, strict=True)))]


@dataclass(frozen=True)
class Bar:
    """A time and its share of the step, drawn *percent* wide."""

    label: str
    percent: float
    duration: str
    share: str
    colour: str = ""

    @classmethod
    def of(cls, row: Mapping[Any, Any], label: str, width: float, colour: str = "") -> Bar:
        """Return the bar of a *row* of a breakdown, *width* (0 to 1) of the room wide."""
        return cls(label, 100 * width, duration_text(row["duration_ns"]), share_text(row["share"]), colour)


@dataclass(frozen=True)
class Stack:
    """Bars behind each other, which fill the room, with a legend."""

    bars: Sequence[Bar]
    drawn_as: ClassVar[str] = "stack"

    @classmethod
    def of_kinds(cls, kinds: pd.DataFrame) -> Stack:
        """Return a breakdown by kind, each in its colour."""
        rows = kinds.to_dict("records")
        labels = [KIND_LABELS.get(row["key"], str(row["key"])) for row in rows]
        pairs = zip(rows, labels, strict=True)
        return cls([Bar.of(row, label, row["share"], kind_colour(row["key"])) for row, label in pairs])


@dataclass(frozen=True)
class Meters:
    """Bars below each other, the longest across the room, and how many *more* there are in words."""

    bars: Sequence[Bar]
    more: str
    drawn_as: ClassVar[str] = "meters"

    @classmethod
    def of(cls, breakdown: pd.DataFrame, nameless: str, most: int) -> list[Meters]:
        """Return the *most* largest keys of *breakdown*; one without a name is called *nameless*."""
        if breakdown.empty:
            return []
        largest = max(float(breakdown["share"].max()), 1e-12)
        bars = [
            Bar.of(row, nameless if row["key"] in ("", "(none)") else str(row["key"]), row["share"] / largest)
            for row in breakdown.head(most).to_dict("records")
        ]
        more = len(breakdown) - len(bars)
        return [cls(bars, f"{more:,}" if more else "")]


@dataclass(frozen=True)
class Lines:
    """Sentences or facts, one below the other."""

    lines: Sequence[str]
    drawn_as: ClassVar[str] = "lines"

    @classmethod
    def of(cls, lines: Iterable[str]) -> list[Lines]:
        """Return *lines*, nothing if there are none."""
        kept = list(lines)
        return [cls(kept)] if kept else []


@dataclass(frozen=True)
class Picture:
    """A picture in SVG, whose texts are escaped."""

    svg: Markup
    drawn_as: ClassVar[str] = "picture"


@dataclass(frozen=True)
class Legend:
    """What the colours of a picture mean: labels with their colours."""

    items: Sequence[tuple[str, str]]
    drawn_as: ClassVar[str] = "legend"


Part = Table | Stack | Meters | Lines | Picture | Legend


@dataclass(frozen=True)
class Section:
    """A part of the report with a heading, and a *note* that explains it."""

    title: str
    parts: Sequence[Part]
    note: str = ""
