"""Data of the timeline: the slices in a window, merged within pixels."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter.readers import HostCalls
from ...runner.analysis import Lanes

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
# A slice narrower than this has no room for its name.
_NAMED_PIXELS, _NAME_LENGTH = 30, 120


@dataclass(frozen=True)
class SliceBatch:
    """Slices of one window as columns: times in ns, lane and colour as indices, node id of the longest.

    ``name`` is an index into *names*, or -1 for a slice too narrow to show one; ``found`` is whether a slice,
    or one merged into it, is searched for. ``edition`` is that of the lanes, which are determined part by
    part.
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
        """Return u32 length, u32 edition, little-endian columns (3 x f64, 3 x i32, 2 x u8), JSON names."""
        columns = (
            self.start_ns.astype("<f8"),
            self.end_ns.astype("<f8"),
            self.node_id.astype("<f8"),
            self.lane.astype("<i4"),
            self.count.astype("<i4"),
            self.name.astype("<i4"),
            self.colour.astype("u1"),
            self.found.astype("u1"),
        )
        head = struct.pack("<II", len(self.start_ns), self.edition)
        return head + b"".join(column.tobytes() for column in columns) + json.dumps(self.names).encode()


class Slices(Lanes):
    """The lanes of one or more ranks with the names of their slices."""

    def __init__(
        self,
        nodes: pd.DataFrame,
        *,
        measured: bool = False,
        nested: bool = False,
        calls: Mapping[int, HostCalls] | None = None,
    ) -> None:
        super().__init__(nodes, measured=measured, nested=nested, calls=calls)
        self.nodes = nodes
        name, names = pd.factorize(nodes["name"])
        # Labels of what lies above nodes come first among the names.
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
        """Return the slices that touch [*t0_ns*, *t1_ns*) in *lanes*, at most about two per pixel.

        Slices shorter than a pixel are merged with their neighbours in the same pixel; the merged slice takes
        the *colour* and node of the longest in it. *matches* marks the rows of nodes that a search finds.
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
        searched: Flags = found[self.row[index]] & self.is_node[index]
        return searched

    def _names_of(self, index: Ints, pixel_ns: float) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return the index of each slice's name in a minimal list, or -1."""
        wide = self.end_ns[index] - self.start_ns[index] >= _NAMED_PIXELS * pixel_ns
        used, places = np.unique(self._name[index[wide]], return_inverse=True)
        named = np.full(len(index), -1, np.int32)
        named[wide] = places
        return named, [str(self._names[code])[:_NAME_LENGTH] for code in used]
