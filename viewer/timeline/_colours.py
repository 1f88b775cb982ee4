"""Colour the slices of a timeline: by kind, operator, module or stream, the longest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...runner.analysis import Lanes
from .._theme import KIND_COLOURS, KIND_LABELS

__all__ = ["COLOURED_BY", "Colours", "coloured"]

Codes = npt.NDArray[np.uint8]
COLOURED_BY = ("kind", "operator", "module", "stream")
"""What slices can be coloured by."""
# Apart from each other, and dark ink is readable on all of them; names beyond these repeat them.
_PALETTE = (
    "#6fa8dc", "#f0a860", "#8fc07a", "#cf8bb8", "#5fc4b8", "#e0c64a", "#a99be0", "#e58e7a", "#8fb1bd",
    "#b9a06a", "#7fc8f0", "#c3cf6a",
)  # fmt: skip
# What lies above nodes where colours say something that holds for these alone.
_ABOVE = "#b4bec9"
_MOST_MODULE_LENGTH = 60


@dataclass(frozen=True)
class Colours:
    """The colour of each slice as a place in *palette*; *legend* names those that stand for something.

    *more* is how many names repeat the colours of others; *places* is where in the palette, counted round and
    round, each name stands.
    """

    code: Codes
    palette: list[str]
    legend: list[tuple[str, str]]
    more: int = 0
    places: Mapping[str, int] = field(default_factory=dict)


def coloured(
    nodes: pd.DataFrame, lanes: Lanes, by: str, kinds: Sequence[str], places: Mapping[str, int] | None = None
) -> Colours:
    """Return the colours of the slices of *lanes*, whose nodes are *nodes*, one of :data:`COLOURED_BY`.

    Anything else is ``kind``. Names of another run, which have *places*, keep the colours they have there.
    """
    known = places or {}
    if by == "operator":
        return _named(lanes, *_operators(nodes, lanes), {"operator"}, known)
    if by == "module":
        return _named(lanes, *_modules(nodes, lanes), {"module", "operator"}, known)
    if by == "stream":
        number, names = pd.factorize(lanes.table["label"].str.split(" · ").str[0])
        return _named(lanes, number[lanes.lane], [str(name) for name in names], set(), known)
    codes = {kind: code for code, kind in enumerate(kinds)}
    which, found = pd.factorize(nodes["kind"])
    of_kind = np.array([*(codes.get(str(kind), codes["idle"]) for kind in found), codes["idle"]], np.uint8)
    code: Codes = np.where(lanes.is_node, of_kind[which][lanes.row], np.uint8(len(kinds)))
    palette = [KIND_COLOURS[kind] for kind in kinds]
    shown = np.flatnonzero(np.bincount(code, minlength=len(kinds))[: len(kinds)])
    legend = [(KIND_LABELS[kinds[place]], palette[place]) for place in shown.tolist()]
    return Colours(code, [*palette, _ABOVE], legend)


def _operators(nodes: pd.DataFrame, lanes: Lanes) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the operator of each slice; of a node without one, such as host time, how its name begins."""
    code, names = pd.factorize(nodes["operator"])
    other, others = pd.factorize(nodes["name"])
    every = {name: number for number, name in enumerate(str(name) for name in names if name)}
    of_name = [every.setdefault(str(name).split(" before ")[0], len(every)) for name in others]
    of_operator = [every.get(str(name), -1) for name in names]
    found = np.array([*of_operator, -1], np.int64)[code]
    found = np.where(found < 0, np.array([*of_name, 0], np.int64)[other], found)
    return found[lanes.row], list(every)


def _modules(nodes: pd.DataFrame, lanes: Lanes) -> tuple[npt.NDArray[np.int64], list[str]]:
    code, names = pd.factorize(nodes["module"])
    texts = [*(str(name)[:_MOST_MODULE_LENGTH] or "(no module)" for name in names), "(no module)"]
    return np.where(code < 0, len(names), code)[lanes.row], texts


def _named(
    lanes: Lanes, code: npt.NDArray[np.int64], names: list[str], levels: set[str], known: Mapping[str, int]
) -> Colours:
    """Return a colour for each of *names*, longest first; other levels than *levels* are grey.

    Names with *known* places keep them.
    """
    level = lanes.table["level"].to_numpy()[lanes.lane]
    own = lanes.is_node | np.isin(level, [*levels])
    code, names = _with_labels(lanes, code, names, own)
    length = np.where(lanes.is_node, lanes.end_ns - lanes.start_ns, 0)
    total = np.bincount(code, weights=length, minlength=len(names))
    order = np.argsort(-total, kind="stable")
    new = (names[which] for which in order.tolist() if names[which] not in known)
    places = {**known, **{name: len(known) + number for number, name in enumerate(new)}}
    place = np.array([places[name] for name in names], np.int64) % len(_PALETTE)
    coded = (
        np.where(own, place[code], len(_PALETTE)).astype(np.uint8) if len(names) else code.astype(np.uint8)
    )
    first = order[: len(_PALETTE)].tolist()
    legend = [(names[which], _PALETTE[place[which]]) for which in first]
    return Colours(coded, [*_PALETTE, _ABOVE], legend, max(0, len(names) - len(_PALETTE)), places)


def _with_labels(
    lanes: Lanes, code: npt.NDArray[np.int64], names: list[str], own: npt.NDArray[np.bool_]
) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the codes with those of the labels of what lies above nodes, where that has a colour."""
    known = set(names)
    labels = [label for label in dict.fromkeys(lanes.labels) if label not in known]
    every = [*names, *labels]
    place = {name: number for number, name in enumerate(every)}
    of_label = np.array([place[label] for label in lanes.labels] or [0], np.int64)
    return np.where(own & ~lanes.is_node, of_label[lanes.label], code), every
