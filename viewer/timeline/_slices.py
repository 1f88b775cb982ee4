"""Return the slices in a time window, merged within pixels and coloured."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter.readers import HostCalls
from ...runner.analysis import CALLS, KIND_LABELS, Lanes
from ...support.table import Flags, Ints
from .._theme import KIND_COLOURS, KINDS, NAME_COLOURS

# Minimum width in pixels of a slice that shows its name, and maximum number of characters of a name.
_NAMED_PIXELS, _NAME_LENGTH = 30, 120


@dataclass(frozen=True)
class SliceBatch:
    """The slices of one window as columns; times are in ns.

    ``node_id`` of a merged slice is its longest node. ``name`` is an index into *names*, -1 if the
    slice is too narrow for it. ``found`` is true if a search matches it, or anything merged into
    it. ``edition`` is the version of the lanes, which changes while parts are read.
    """

    start_ns: Ints
    end_ns: Ints
    node_id: Ints
    lane: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    colour: npt.NDArray[np.uint8]
    found: Flags
    names: list[str]
    edition: int = 0

    def encode(self) -> bytes:
        """Return the batch as bytes for the browser.

        The bytes are the number of slices and the edition (u32), the columns in little-endian order (3 x
        f64, 3 x i32, 2 x u8), and the names as JSON.
        """
        columns = [getattr(self, name).astype(sent).tobytes() for name, (_, sent) in COLUMNS.items()]
        head = struct.pack("<II", len(self.start_ns), self.edition)
        return head + b"".join(columns) + json.dumps(self.names).encode()


# The columns of a batch: their types in memory and in the browser.
COLUMNS: Mapping[str, tuple[Any, str]] = {
    "start_ns": (np.int64, "<f8"), "end_ns": (np.int64, "<f8"), "node_id": (np.int64, "<f8"),
    "lane": (np.int32, "<i4"), "count": (np.int32, "<i4"), "name": (np.int32, "<i4"),
    "colour": (np.uint8, "u1"), "found": (np.bool_, "u1"),
}  # fmt: skip


class Slices(Lanes):
    """Lanes of one or more ranks, with a name per slice."""

    def __init__(
        self,
        nodes: pd.DataFrame,
        *,
        nested: bool = False,
        calls: Mapping[int, HostCalls] | None = None,
    ) -> None:
        super().__init__(nodes, nested=nested, calls=calls)
        self.nodes = nodes
        name, names = pd.factorize(nodes["name"])
        # Labels of groups come before names of nodes.
        self._name = np.where(self.is_node, name[self.row] + len(self.labels), self.label).astype(np.int32)
        self._names = [*self.labels, *names]

    def window(
        self,
        t0_ns: int,
        t1_ns: int,
        pixels: int,
        lanes: Iterable[int],
        *,
        colour: npt.NDArray[np.uint8],
        matches: Flags | None = None,
    ) -> SliceBatch:
        """Return the slices that overlap [*t0_ns*, *t1_ns*) in *lanes*, at most about two per pixel.

        Slices shorter than a pixel are merged with other slices in the pixel, and get the colour and node of
        the longest slice. *matches* marks the nodes that a search finds.
        """
        index = self.inside(t0_ns, t1_ns, lanes)
        pixel_ns = max(1.0, (t1_ns - t0_ns) / max(1, pixels))
        long = self.end_ns[index] - self.start_ns[index] >= pixel_ns
        return self._merged(index[~long], index[long], pixel_ns, colour, matches)

    def _merged(
        self, short: Ints, long: Ints, pixel_ns: float, colour: npt.NDArray[np.uint8], found: Flags | None
    ) -> SliceBatch:
        pixel = (self.start_ns[short] / pixel_ns).astype(np.int64)
        group_starts = np.flatnonzero(
            np.append(True, (np.diff(pixel) != 0) | (np.diff(self.lane[short]) != 0))[: len(short)]
        )
        sizes = np.diff(np.append(group_starts, len(short)))
        group = np.repeat(np.arange(len(sizes)), sizes)
        by_length = np.lexsort((self.end_ns[short] - self.start_ns[short], group))
        longest = short[by_length[group_starts + sizes - 1]] if len(sizes) else short
        ends = np.maximum.reduceat(self.end_ns[short], group_starts) if len(sizes) else short
        starts = self.start_ns[short[group_starts]] if len(sizes) else short
        named, names = self._names_of(long, pixel_ns)
        of_short, of_long = self._found(short, found), self._found(long, found)
        if len(sizes):
            of_short = np.logical_or.reduceat(of_short, group_starts)
        return SliceBatch(
            start_ns=np.concatenate([starts, self.start_ns[long]]),
            end_ns=np.concatenate([ends, self.end_ns[long]]),
            node_id=np.concatenate([self.node_id[longest], self.node_id[long]]),
            lane=np.concatenate([self.lane[longest], self.lane[long]]).astype(np.int32),
            count=np.concatenate([sizes, np.ones(len(long), np.int64)]).astype(np.int32),
            name=np.concatenate([np.full(len(longest), -1, np.int32), named]),
            colour=np.concatenate([colour[longest], colour[long]]),
            found=np.concatenate([of_short, of_long]),
            names=names,
        )

    def _found(self, index: Ints, found: Flags | None) -> Flags:
        if found is None:
            return np.zeros(len(index), bool)
        return found[self.row[index]] & self.is_node[index]

    def _names_of(self, index: Ints, pixel_ns: float) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return the names in use, and each slice's index among them, -1 if too narrow."""
        wide = self.end_ns[index] - self.start_ns[index] >= _NAMED_PIXELS * pixel_ns
        used, places = np.unique(self._name[index[wide]], return_inverse=True)
        named = np.full(len(index), -1, np.int32)
        named[wide] = places
        return named, [str(self._names[code])[:_NAME_LENGTH] for code in used]


Codes = npt.NDArray[np.uint8]
COLOURED_BY = ("kind", "operator", "module", "stream")
"""Properties by which slices can be coloured."""
# Phases, modules and operators, if only nodes are coloured.
_ABOVE = "#b4bec9"
_MAX_MODULE_LENGTH = 60


@dataclass(frozen=True)
class Colours:
    """Each slice's colour as an index into *palette*; *legend* names those that occur.

    *more* is the number of names that share the colour of another name. A name's colour is its number in
    *places* modulo the palette's size. *by* is the property that the colours show.
    """

    code: Codes
    palette: list[str]
    legend: list[tuple[str, str]]
    more: int = 0
    places: Mapping[str, int] = field(default_factory=dict)
    by: str = "kind"


def coloured(
    nodes: pd.DataFrame,
    lanes: Lanes,
    by: str,
    places: Mapping[str, int] | None = None,
) -> Colours:
    """Return the colours of *lanes*, by a property *by* in :data:`COLOURED_BY`.

    Unknown properties mean ``kind``. Names in *places*, from another run, keep their colours there.
    """
    if by in COLOURED_BY[1:]:
        return _named(lanes, *_names_of(nodes, lanes, by), places or {})
    codes = {kind: code for code, kind in enumerate(KINDS)}
    which, found = pd.factorize(nodes["kind"])
    of_kind = np.array([*(codes.get(str(kind), codes["idle"]) for kind in found), codes["idle"]], np.uint8)
    code: Codes = np.where(lanes.is_node, of_kind[which][lanes.row], np.uint8(len(KINDS)))
    is_shown = np.bincount(code, minlength=len(KINDS)) > 0
    return Colours(code, *kind_palette([kind for place, kind in enumerate(KINDS) if is_shown[place]]))


def kind_palette(shown: Sequence[str]) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the palette of all kinds, and the legend of those *shown*."""
    legend = [(KIND_LABELS[kind], KIND_COLOURS[kind]) for kind in shown]
    return [*KIND_COLOURS.values(), _ABOVE], legend


def name_totals(nodes: pd.DataFrame, lanes: Lanes, by: str) -> dict[str, float]:
    """Return each name's total node time, for a property *by* other than ``kind``."""
    code, names, levels = _names_of(nodes, lanes, by)
    code, names, _ = _with_labels(lanes, code, names, levels)
    return dict(zip(names, _totals(lanes, code, names).tolist(), strict=True))


def named_palette(
    names: Sequence[str], places: Mapping[str, int]
) -> tuple[list[str], list[tuple[str, str]], int]:
    """Return the palette, the legend of the first *names*, and the number of names that share colours."""
    first = names[: len(NAME_COLOURS)]
    legend = [(name, NAME_COLOURS[places[name] % len(NAME_COLOURS)]) for name in first]
    return [*NAME_COLOURS, _ABOVE], legend, max(0, len(names) - len(NAME_COLOURS))


def _names_of(
    nodes: pd.DataFrame, lanes: Lanes, by: str
) -> tuple[npt.NDArray[np.int64], list[str], set[str]]:
    """Return each slice's name code, the names, and the levels of groups that are coloured, too."""
    if by == "operator":
        return *_operators(nodes, lanes), {"operator", CALLS}
    if by == "module":
        return *_modules(nodes, lanes), {"module", "operator"}
    number, names = pd.factorize(lanes.table["label"].str.split(" · ").str[0])
    return number[lanes.lane], [str(name) for name in names], set()


def _operators(nodes: pd.DataFrame, lanes: Lanes) -> tuple[npt.NDArray[np.int64], list[str]]:
    """Return a code for each slice's operator, and the names of operators.

    For a node without an operator, such as host time, the first part of its name is used.
    """
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
    texts = [*(str(name)[:_MAX_MODULE_LENGTH] or "(no module)" for name in names), "(no module)"]
    return np.where(code < 0, len(names), code)[lanes.row], texts


def _named(
    lanes: Lanes, code: npt.NDArray[np.int64], names: list[str], levels: set[str], known: Mapping[str, int]
) -> Colours:
    """Colour slices by name; the names with most time get the palette's first colours.

    Groups on other *levels* are grey. *known* names keep their numbers.
    """
    code, names, own = _with_labels(lanes, code, names, levels)
    order = np.argsort(-_totals(lanes, code, names), kind="stable")
    new = (names[which] for which in order.tolist() if names[which] not in known)
    places = {**known, **{name: len(known) + number for number, name in enumerate(new)}}
    place = np.array([places[name] for name in names], np.int64) % len(NAME_COLOURS)
    coded = (np.where(own, place[code], len(NAME_COLOURS)) if len(names) else code).astype(np.uint8)
    return Colours(coded, *named_palette([names[which] for which in order.tolist()], places), places)


def _totals(lanes: Lanes, code: npt.NDArray[np.int64], names: list[str]) -> npt.NDArray[np.float64]:
    """Return the total time of each name's nodes in ns."""
    length = np.where(lanes.is_node, lanes.end_ns - lanes.start_ns, 0)
    return np.bincount(code, weights=length, minlength=len(names)).astype(np.float64)


def _with_labels(
    lanes: Lanes, code: npt.NDArray[np.int64], names: list[str], levels: set[str]
) -> tuple[npt.NDArray[np.int64], list[str], npt.NDArray[np.bool_]]:
    """Return codes and names with labels of groups added, and which slices are coloured."""
    level = lanes.table["level"].to_numpy()[lanes.lane]
    own: npt.NDArray[np.bool_] = lanes.is_node | np.isin(level, [*levels])
    known = set(names)
    labels = [label for label in dict.fromkeys(lanes.labels) if label not in known]
    every = [*names, *labels]
    place = {name: number for number, name in enumerate(every)}
    of_label = np.array([place[label] for label in lanes.labels] or [0], np.int64)
    return np.where(own & ~lanes.is_node, of_label[lanes.label], code), every, own
