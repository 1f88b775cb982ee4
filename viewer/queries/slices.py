"""Answer the timeline: which slices are visible in a window, merged where a pixel holds several."""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from ..theme import KINDS

__all__ = ["SliceBatch", "SliceIndex"]

_COMM_TYPES = (5, 6, 7)
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SliceBatch:
    """Slices of one window as columns: times in ns, lane and kind as indices, node id of the longest."""

    start_ns: Ints
    end_ns: Ints
    node_id: Ints
    lane: npt.NDArray[np.int32]
    count: npt.NDArray[np.int32]
    kind: npt.NDArray[np.uint8]

    def encode(self) -> bytes:
        """Return u32 length, u32 zero, then the columns, little-endian: f64, f64, f64, i32, i32, u8."""
        columns = (
            self.start_ns.astype("<f8"),
            self.end_ns.astype("<f8"),
            self.node_id.astype("<f8"),
            self.lane.astype("<i4"),
            self.count.astype("<i4"),
            self.kind.astype("u1"),
        )
        head = struct.pack("<II", len(self.start_ns), 0)
        return head + b"".join(column.tobytes() for column in columns)


class SliceIndex:
    """The nodes of a run sorted by lane and time. A lane is a stream of a rank."""

    def __init__(self, nodes: pd.DataFrame) -> None:
        is_comm = nodes["type"].isin(_COMM_TYPES)
        order = np.lexsort((nodes["start_ns"], nodes["stream"], is_comm, nodes["rank"]))
        ordered = nodes.iloc[order]
        self._row: Ints = order
        keys = pd.DataFrame(
            {"rank": ordered["rank"], "comm": is_comm.iloc[order], "stream": ordered["stream"]}
        ).reset_index(drop=True)
        changed = (keys != keys.shift()).any(axis=1).to_numpy()
        self._lane: Ints = np.cumsum(changed) - 1 if len(keys) else np.zeros(0, np.int64)
        self._first = np.append(np.flatnonzero(changed), len(keys))
        self._start = ordered["start_ns"].to_numpy(np.int64)
        self._end = ordered["end_ns"].to_numpy(np.int64)
        self._node = ordered["node_id"].to_numpy(np.int64)
        codes = {kind: code for code, kind in enumerate(KINDS)}
        self._kind = ordered["kind"].map(codes).fillna(codes["idle"]).to_numpy(np.int64)
        self.lanes = self._lane_table(keys.loc[changed])
        self.makespan_ns = int(self._end.max()) if len(self._end) else 0
        self._reach = self._running_end()

    def _running_end(self) -> Ints:
        """Return the latest end so far along each lane; ends alone may go back where slices overlap."""
        reach: Ints = self._end.copy()
        for low, high in zip(self._first[:-1], self._first[1:], strict=True):
            np.maximum.accumulate(reach[low:high], out=reach[low:high])
        return reach

    @staticmethod
    def _lane_table(keys: pd.DataFrame) -> pd.DataFrame:
        table = keys.reset_index(drop=True)
        names = np.where(table["comm"], "communication", "compute")
        per_name = table.assign(name=names).groupby(["rank", "name"])["stream"].transform("size")
        labels = [
            f"{name} {stream}" if many > 1 else name
            for name, stream, many in zip(names, table["stream"], per_name, strict=True)
        ]
        lanes: pd.DataFrame = pd.DataFrame({"rank": table["rank"], "label": labels})
        return lanes

    def window(self, t0_ns: int, t1_ns: int, pixels: int, lanes: tuple[int, int] | None = None) -> SliceBatch:
        """Return the slices that touch [*t0_ns*, *t1_ns*) in lanes [first, last), about two a pixel at most.

        Slices shorter than a pixel are merged with their neighbours in the same pixel; the merged slice takes
        the kind and node of the longest in it.
        """
        first, last = lanes or (0, len(self.lanes))
        first, last = max(0, first), min(len(self.lanes), last)
        parts = [self._touching(lane, t0_ns, t1_ns) for lane in range(first, last)]
        index = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        pixel_ns = max(1.0, (t1_ns - t0_ns) / max(1, pixels))
        long = self._end[index] - self._start[index] >= pixel_ns
        return self._merged(index[~long], index[long], pixel_ns)

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
        return SliceBatch(
            start_ns=np.concatenate([starts, self._start[long]]),
            end_ns=np.concatenate([ends, self._end[long]]),
            node_id=np.concatenate([self._node[longest], self._node[long]]),
            lane=np.concatenate([self._lane[longest], self._lane[long]]).astype(np.int32),
            count=np.concatenate([sizes, np.ones(len(long), np.int64)]).astype(np.int32),
            kind=np.concatenate([self._kind[longest], self._kind[long]]).astype(np.uint8),
        )

    def area(self, t0_ns: int, t1_ns: int, lanes: tuple[int, int]) -> tuple[Ints, Ints]:
        """Return the rows (of the nodes the index was made of) that touch an area, and their ns inside it."""
        first, last = max(0, lanes[0]), min(len(self.lanes), lanes[1])
        parts = [self._touching(lane, t0_ns, t1_ns) for lane in range(first, last)]
        index = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        inside = np.minimum(self._end[index], t1_ns) - np.maximum(self._start[index], t0_ns)
        kept = inside > 0
        return self._row[index[kept]], inside[kept]

    def lane_of(self, rank: int, node_id: int) -> tuple[int, int, int]:
        """Return (lane, start_ns, end_ns) of a node, or (-1, 0, 0) if it was not executed."""
        lanes = np.flatnonzero(self.lanes["rank"].to_numpy() == rank)
        if len(lanes) == 0:
            return -1, 0, 0
        low, high = self._first[lanes[0]], self._first[lanes[-1] + 1]
        found = np.flatnonzero(self._node[low:high] == node_id)
        if len(found) == 0:
            return -1, 0, 0
        at = int(low + found[0])
        return int(self._lane[at]), int(self._start[at]), int(self._end[at])

    def lanes_of(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the lane of each (rank, node) pair; -1 for pairs that were not executed."""
        lane_rank = self.lanes["rank"].to_numpy(np.int64)[self._lane] if len(self._lane) else self._lane
        table = pd.Series(self._lane, index=pd.MultiIndex.from_arrays([lane_rank, self._node]))
        wanted = pd.MultiIndex.from_arrays([ranks, node_ids])
        lanes: Ints = table.reindex(wanted).fillna(-1).to_numpy(np.int64)
        return lanes
