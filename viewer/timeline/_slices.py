"""Answer the timeline: which slices are visible in a window, merged where a pixel holds several."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...runner.analysis import Lanes
from .._theme import KINDS

__all__ = ["SliceBatch", "SliceIndex"]

Ints = npt.NDArray[np.int64]
# A slice narrower than this has no room for its name.
_NAMED_PIXELS, _NAME_LENGTH = 30, 120


@dataclass(frozen=True)
class SliceBatch:
    """Slices of one window as columns: times in ns, lane and kind as indices, node id of the longest.

    ``name`` is an index into *names*, or -1 for a slice too narrow to show one.
    """

    start_ns: Ints
    end_ns: Ints
    node_id: Ints
    lane: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    name: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]
    names: list[str]

    def encode(self) -> bytes:
        """Return u32 length, u32 zero, the columns, little-endian (3 x f64, 3 x i32, u8), and JSON names."""
        columns = (
            self.start_ns.astype("<f8"),
            self.end_ns.astype("<f8"),
            self.node_id.astype("<f8"),
            self.lane.astype("<i4"),
            self.count.astype("<i4"),
            self.name.astype("<i4"),
            self.kind.astype("u1"),
        )
        head = struct.pack("<II", len(self.start_ns), 0)
        return head + b"".join(column.tobytes() for column in columns) + json.dumps(self.names).encode()


class SliceIndex(Lanes):
    """The lanes of a run with what a picture of them needs: the kind and the name of each slice."""

    def __init__(self, nodes: pd.DataFrame, *, measured: bool = False) -> None:
        super().__init__(nodes, measured=measured)
        codes = {kind: code for code, kind in enumerate(KINDS)}
        self._kind = nodes["kind"].map(codes).fillna(codes["idle"]).to_numpy(np.uint8)[self.row]
        name, names = pd.factorize(nodes["name"])
        self._name, self._names = name.astype(np.int32)[self.row], names

    def window(self, t0_ns: int, t1_ns: int, pixels: int, lanes: tuple[int, int] | None = None) -> SliceBatch:
        """Return the slices that touch [*t0_ns*, *t1_ns*) in lanes [first, last), about two a pixel at most.

        Slices shorter than a pixel are merged with their neighbours in the same pixel; the merged slice takes
        the kind and node of the longest in it.
        """
        index = self.inside(t0_ns, t1_ns, lanes or (0, len(self.table)))
        pixel_ns = max(1.0, (t1_ns - t0_ns) / max(1, pixels))
        long = self.end_ns[index] - self.start_ns[index] >= pixel_ns
        return self._merged(index[~long], index[long], pixel_ns)

    def _merged(self, short: Ints, long: Ints, pixel_ns: float) -> SliceBatch:
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
        return SliceBatch(
            start_ns=np.concatenate([starts, self.start_ns[long]]),
            end_ns=np.concatenate([ends, self.end_ns[long]]),
            node_id=np.concatenate([self.node_id[longest], self.node_id[long]]),
            lane=np.concatenate([self.lane[longest], self.lane[long]]).astype(np.int32),
            count=np.concatenate([sizes, np.ones(len(long), np.int64)]).astype(np.int32),
            name=np.concatenate([np.full(len(longest), -1, np.int32), named]),
            kind=np.concatenate([self._kind[longest], self._kind[long]]),
            names=names,
        )

    def _names_of(self, index: Ints, pixel_ns: float) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return for each slice the place of its name in a list, which is as short as can be, or -1."""
        wide = self.end_ns[index] - self.start_ns[index] >= _NAMED_PIXELS * pixel_ns
        used, places = np.unique(self._name[index[wide]], return_inverse=True)
        named = np.full(len(index), -1, np.int32)
        named[wide] = places
        return named, [str(self._names[code])[:_NAME_LENGTH] for code in used]
