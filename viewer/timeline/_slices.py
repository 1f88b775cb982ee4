"""Answer the timeline: which slices are visible in a window, merged where a pixel holds several."""

from __future__ import annotations

import json
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from .._theme import KINDS
from ._lanes import is_communication, lane_table

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


class SliceIndex:
    """The nodes of a run sorted by lane and time. A lane is a stream of a rank.

    With *measured*, each rank has its lanes twice: first as the trace has them, then as simulated; both
    begin at time 0, where the captured step began on that rank.
    """

    def __init__(self, nodes: pd.DataFrame, *, measured: bool = False) -> None:
        row, start, end, simulated = _bands(nodes, measured=measured)
        is_comm = is_communication(nodes["type"]).to_numpy()[row]
        rank, stream = nodes["rank"].to_numpy(np.int64)[row], nodes["stream"].to_numpy(np.int64)[row]
        order = np.lexsort((start, stream, is_comm, simulated, rank))
        self._row: Ints = row[order]
        keys = pd.DataFrame(
            {
                "rank": rank[order],
                "measured": ~simulated[order],
                "comm": is_comm[order],
                "stream": stream[order],
            }
        )
        changed = (keys != keys.shift()).any(axis=1).to_numpy()
        self._lane: Ints = np.cumsum(changed) - 1 if len(keys) else np.zeros(0, np.int64)
        self._first = np.append(np.flatnonzero(changed), len(keys))
        self._start, self._end = start[order], end[order]
        self._node = nodes["node_id"].to_numpy(np.int64)[self._row]
        codes = {kind: code for code, kind in enumerate(KINDS)}
        self._kind = nodes["kind"].map(codes).fillna(codes["idle"]).to_numpy(np.uint8)[self._row]
        name, names = pd.factorize(nodes["name"])
        self._name, self._names = name.astype(np.int32)[self._row], names
        self.lanes = lane_table(keys.loc[changed])
        self.makespan_ns = int(self._end.max()) if len(self._end) else 0
        self._reach = self._running_end()

    def _running_end(self) -> Ints:
        """Return the latest end so far along each lane; ends alone may go back where slices overlap."""
        reach: Ints = self._end.copy()
        for low, high in zip(self._first[:-1], self._first[1:], strict=True):
            np.maximum.accumulate(reach[low:high], out=reach[low:high])
        return reach

    def window(self, t0_ns: int, t1_ns: int, pixels: int, lanes: tuple[int, int] | None = None) -> SliceBatch:
        """Return the slices that touch [*t0_ns*, *t1_ns*) in lanes [first, last), about two a pixel at most.

        Slices shorter than a pixel are merged with their neighbours in the same pixel; the merged slice takes
        the kind and node of the longest in it.
        """
        index = self._inside(t0_ns, t1_ns, lanes or (0, len(self.lanes)))
        pixel_ns = max(1.0, (t1_ns - t0_ns) / max(1, pixels))
        long = self._end[index] - self._start[index] >= pixel_ns
        return self._merged(index[~long], index[long], pixel_ns)

    def _inside(self, t0_ns: int, t1_ns: int, lanes: tuple[int, int]) -> Ints:
        first, last = max(0, lanes[0]), min(len(self.lanes), lanes[1])
        parts = [self._touching(lane, t0_ns, t1_ns) for lane in range(first, last)]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _touching(self, lane: int, t0_ns: int, t1_ns: int) -> Ints:
        low, high = self._first[lane], self._first[lane + 1]
        begin = low + np.searchsorted(self._reach[low:high], t0_ns, side="right")
        end = low + np.searchsorted(self._start[low:high], t1_ns, side="left")
        return np.arange(begin, max(begin, end))

    def _merged(self, short: Ints, long: Ints, pixel_ns: float) -> SliceBatch:
        pixel = (self._start[short] / pixel_ns).astype(np.int64)
        group_starts = np.flatnonzero(
            np.append(True, (np.diff(pixel) != 0) | (np.diff(self._lane[short]) != 0))[: len(short)]
        )
        sizes = np.diff(np.append(group_starts, len(short)))
        group = np.repeat(np.arange(len(sizes)), sizes)
        by_length = np.lexsort((self._end[short] - self._start[short], group))
        longest = short[by_length[group_starts + sizes - 1]] if len(sizes) else short
        ends = np.maximum.reduceat(self._end[short], group_starts) if len(sizes) else short
        starts = self._start[short[group_starts]] if len(sizes) else short
        named, names = self._names_of(long, pixel_ns)
        return SliceBatch(
            start_ns=np.concatenate([starts, self._start[long]]),
            end_ns=np.concatenate([ends, self._end[long]]),
            node_id=np.concatenate([self._node[longest], self._node[long]]),
            lane=np.concatenate([self._lane[longest], self._lane[long]]).astype(np.int32),
            count=np.concatenate([sizes, np.ones(len(long), np.int64)]).astype(np.int32),
            name=np.concatenate([np.full(len(longest), -1, np.int32), named]),
            kind=np.concatenate([self._kind[longest], self._kind[long]]),
            names=names,
        )

    def _names_of(self, index: Ints, pixel_ns: float) -> tuple[npt.NDArray[np.int32], list[str]]:
        """Return for each slice the place of its name in a list, which is as short as can be, or -1."""
        wide = self._end[index] - self._start[index] >= _NAMED_PIXELS * pixel_ns
        used, places = np.unique(self._name[index[wide]], return_inverse=True)
        named = np.full(len(index), -1, np.int32)
        named[wide] = places
        return named, [str(self._names[code])[:_NAME_LENGTH] for code in used]

    def area(self, t0_ns: int, t1_ns: int, lanes: tuple[int, int]) -> pd.DataFrame:
        """Return the slices that touch an area: ``row`` of the nodes, ``inside_ns`` and ``measured``."""
        index = self._inside(t0_ns, t1_ns, lanes)
        inside = np.minimum(self._end[index], t1_ns) - np.maximum(self._start[index], t0_ns)
        index, inside = index[inside > 0], inside[inside > 0]
        measured = self.lanes["measured"].to_numpy(bool)[self._lane[index]]
        table: pd.DataFrame = pd.DataFrame(
            {"row": self._row[index], "inside_ns": inside, "measured": measured}
        )
        return table

    def lane_of(self, rank: int, node_id: int) -> tuple[int, int, int]:
        """Return (lane, start_ns, end_ns) of a node as simulated, or (-1, 0, 0) if it was not executed."""
        of_rank = (self.lanes["rank"] == rank) & ~self.lanes["measured"]
        lanes = np.flatnonzero(of_rank.to_numpy())
        if len(lanes) == 0:
            return -1, 0, 0
        low, high = self._first[lanes[0]], self._first[lanes[-1] + 1]
        found = np.flatnonzero(self._node[low:high] == node_id)
        if len(found) == 0:
            return -1, 0, 0
        at = int(low + found[0])
        return int(self._lane[at]), int(self._start[at]), int(self._end[at])

    def lanes_of(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the lane of each (rank, node) pair as simulated; -1 for pairs that were not executed."""
        simulated = ~self.lanes["measured"].to_numpy(bool)[self._lane]
        lane = self._lane[simulated]
        lane_rank = self.lanes["rank"].to_numpy(np.int64)[lane]
        table = pd.Series(lane, index=pd.MultiIndex.from_arrays([lane_rank, self._node[simulated]]))
        wanted = pd.MultiIndex.from_arrays([ranks, node_ids])
        lanes: Ints = table.reindex(wanted).fillna(-1).to_numpy(np.int64)
        return lanes


def _bands(nodes: pd.DataFrame, *, measured: bool) -> tuple[Ints, Ints, Ints, npt.NDArray[np.bool_]]:
    """Return row, start, end and whether it is simulated of every slice, of the measured ones if asked."""
    rows = np.arange(len(nodes))
    start, end = nodes["start_ns"].to_numpy(np.int64), nodes["end_ns"].to_numpy(np.int64)
    if not measured:
        return rows, start, end, np.ones(len(rows), bool)
    began = nodes["measured_start_ns"].to_numpy(np.int64)
    known = np.flatnonzero(began >= 0)
    ended = began[known] + nodes["duration_ns"].to_numpy(np.int64)[known]
    simulated = np.append(np.zeros(len(known), bool), np.ones(len(rows), bool))
    return (
        np.append(known, rows),
        np.append(began[known], start),
        np.append(ended, end),
        simulated,
    )
