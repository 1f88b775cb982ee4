"""Colour the slices of a timeline: by kind, operator, module or stream, the longest first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...runner.analysis import CALLS, KIND_LABELS, Lanes
from .._theme import KIND_COLOURS, NAME_COLOURS

Codes = npt.NDArray[np.uint8]
COLOURED_BY = ("kind", "operator", "module", "stream")
"""The properties by which slices can be coloured."""
# What lies above nodes where colours say something that holds for these alone.
_ABOVE = "#b4bec9"
_MOST_MODULE_LENGTH = 60


@dataclass(frozen=True)
class Colours:
    """The colour of each slice as an index into *palette*; *legend* names the colours in use.

    *more* counts the names that reuse colours of others; *places* is the index of each name, modulo the
    palette.
    """

    code: Codes
    palette: list[str]
    legend: list[tuple[str, str]]
    more: int = 0
    places: Mapping[str, int] = field(default_factory=dict)


def coloured(
    nodes: pd.DataFrame,
    lanes: Lanes,
    by: str,
    kinds: Sequence[str],
    places: Mapping[str, int] | None = None,
    *,
    on_path: Collection[str] = (),
) -> Colours:
    """Return the colours of the slices of *lanes*, whose nodes are *nodes*, one of :data:`COLOURED_BY`.

    Anything else is ``kind``, of which the legend also has those *on_path*. Names of another run, which have
    *places*, keep the colours they have there.
    """
    if by in COLOURED_BY[1:]:
        return _named(lanes, *_names_of(nodes, lanes, by), places or {})
    codes = {kind: code for code, kind in enumerate(kinds)}
    which, found = pd.factorize(nodes["kind"])
    of_kind = np.array([*(codes.get(str(kind), codes["idle"]) for kind in found), codes["idle"]], np.uint8)
    code: Codes = np.where(lanes.is_node, of_kind[which][lanes.row], np.uint8(len(kinds)))
    is_shown = np.bincount(code, minlength=len(kinds)) > 0
    shown = [kind for place, kind in enumerate(kinds) if is_shown[place] or kind in on_path]
    return Colours(code, *kind_palette(kinds, shown))


def kind_palette(kinds: Sequence[str], shown: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the palette of *kinds*, and the legend of those *shown*."""
    legend = [(KIND_LABELS[kind], KIND_COLOURS[kind]) for kind in shown]
    return [*(KIND_COLOURS[kind] for kind in kinds), _ABOVE], legend


def name_totals(nodes: pd.DataFrame, lanes: Lanes, by: str) -> dict[str, float]:
    """Return the total node time of each name by which slices are coloured (*by*, except ``kind``)."""
    code, names, levels = _names_of(nodes, lanes, by)
    code, names, _ = _with_labels(lanes, code, names, levels)
    return dict(zip(names, _totals(lanes, code, names).tolist(), strict=True))


def named_palette(
    names: Sequence[str], places: Mapping[str, int]
) -> tuple[list[str], list[tuple[str, str]], int]:
    """Return the palette, the legend of *names*, the longest first, and how many reuse colours."""
    first = names[: len(NAME_COLOURS)]
    legend = [(name, NAME_COLOURS[places[name] % len(NAME_COLOURS)]) for name in first]
    return [*NAME_COLOURS, _ABOVE], legend, max(0, len(names) - len(NAME_COLOURS))


def _names_of(
    nodes: pd.DataFrame, lanes: Lanes, by: str
) -> tuple[npt.NDArray[np.int64], list[str], set[str]]:
    """Return the name of each slice, and the levels above nodes that have names, too."""
    if by == "operator":
        return *_operators(nodes, lanes), {"operator", CALLS}
    if by == "module":
        return *_modules(nodes, lanes), {"module", "operator"}
    number, names = pd.factorize(lanes.table["label"].str.split(" · ").str[0])
    return number[lanes.lane], [str(name) for name in names], set()


def _operators(nodes: pd.DataFrame, lanes: Lanes) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return the operator of each slice, or the start of the name of nodes without one, such as host time."""
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

    Names in *known* keep their index.
    """
    code, names, own = _with_labels(lanes, code, names, levels)
    order = np.argsort(-_totals(lanes, code, names), kind="stable")
    new = (names[which] for which in order.tolist() if names[which] not in known)
    places = {**known, **{name: len(known) + number for number, name in enumerate(new)}}
    place = np.array([places[name] for name in names], np.int64) % len(NAME_COLOURS)
    coded = (np.where(own, place[code], len(NAME_COLOURS)) if len(names) else code).astype(np.uint8)
    return Colours(coded, *named_palette([names[which] for which in order.tolist()], places), places)


def _totals(lanes: Lanes, code: npt.NDArray[np.int64], names: list[str]) -> npt.NDArray[np.float64]:
    """Return the total time of the nodes of each of *names*."""
    length = np.where(lanes.is_node, lanes.end_ns - lanes.start_ns, 0)
    return np.bincount(code, weights=length, minlength=len(names)).astype(np.float64)


def _with_labels(
    lanes: Lanes, code: npt.NDArray[np.int64], names: list[str], levels: set[str]
) -> tuple[npt.NDArray[np.int64], list[str], npt.NDArray[np.bool_]]:
    """Return codes and names including the labels above nodes, and which slices have a colour."""
    level = lanes.table["level"].to_numpy()[lanes.lane]
    own: npt.NDArray[np.bool_] = lanes.is_node | np.isin(level, [*levels])
    known = set(names)
    labels = [label for label in dict.fromkeys(lanes.labels) if label not in known]
    every = [*names, *labels]
    place = {name: number for number, name in enumerate(every)}
    of_label = np.array([place[label] for label in lanes.labels] or [0], np.int64)
    return np.where(own & ~lanes.is_node, of_label[lanes.label], code), every, own
