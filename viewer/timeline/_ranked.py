"""Data of a large run's timeline: visible ranks are read one by one, and the latest are cached."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import NodeType
from ...converter.readers import HostCalls
from ...runner.analysis import Words, named_nodes
from .._theme import KINDS
from ._colours import COLOURED_BY, Colours, coloured, kind_palette, name_totals, named_palette
from ._slices import Coloured, SliceBatch, SliceIndex

__all__ = ["KEPT_NODES", "NODES_AT_ONCE", "RANKS_AT_ONCE", "Hits", "RankedIndex"]

Ints = npt.NDArray[np.int64]
_DRAWN = ("start_ns", "end_ns", "type", "stream", "kind", "name")
_TEXTS = ("operator", "module", "phase")
_MEASURED = ("duration_ns", "measured_start_ns")
KEPT_NODES = 4_000_000
"""The ranks that are kept have about so many nodes together: 130 bytes each."""
NODES_AT_ONCE = 2_000_000
"""One question is answered for ranks with about so many nodes together, and for `RANKS_AT_ONCE` at most."""
RANKS_AT_ONCE = 64
_LEAST_STRIDE = 64
# Colours of names go by what these take together.
_SAMPLED_RANKS = 8
_OF_NODES = "slice"
_NO_CODE = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class RankedColours(Colours):
    """Colours of slices that are determined when a rank is read."""

    by: str = "kind"


@dataclass(frozen=True)
class Hits:
    """The results of a search in some ranks, in order of time; *ranks* are those searched of *of*."""

    rank: Ints
    node_id: Ints
    start_ns: Ints
    ranks: int
    of: int


@dataclass
class _Rank:
    """The slices of one rank; *more* reads further columns of its nodes on demand."""

    index: SliceIndex
    more: Callable[[Sequence[str]], pd.DataFrame]
    sought: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)
    _words: Words | None = None
    _coloured: tuple[RankedColours, Colours] | None = None

    @property
    def size(self) -> int:
        return len(self.index.row) + len(self.index.nodes)

    def colours(self, wanted: RankedColours) -> Colours:
        """Return the colours of the rank's slices; the latest are cached."""
        if self._coloured is None or self._coloured[0] is not wanted:
            nodes = self.index.nodes if wanted.by == "kind" else self.whole()
            made = coloured(nodes, self.index, wanted.by, KINDS, wanted.places)
            self._coloured = wanted, made
        return self._coloured[1]

    def whole(self) -> pd.DataFrame:
        """Return the nodes with all of their texts."""
        nodes = self.index.nodes
        if not {*_TEXTS} <= {*nodes.columns}:
            more = self.more(_TEXTS)
            for name in _TEXTS:
                nodes[name] = more[name]
        return nodes

    def found(self, text: str) -> npt.NDArray[np.bool_]:
        """Return which of the rank's nodes match *text*; the result of the last text is cached."""
        if text not in self.sought:
            texts = dict.fromkeys(("name", "operator", "module"), "str")
            self._words = self._words or Words.of(self.whole().astype(texts))
            self.sought = {text: named_nodes(self._words, text)}
        return self.sought[text]


class RankedIndex:
    """The timeline of a run of which *frame_of* returns the nodes of one rank with some columns.

    Lane numbers leave gaps between ranks, as the number of a rank's lanes is unknown until it is read;
    until then it is assumed to equal that of the first rank. ``edition`` is incremented if this assumption
    was wrong. *facts_of* returns whether nodes communicate, and their streams; *kinds* are some that nodes
    are of, and *calls_of* returns the calls on the host threads of one rank, if its trace is there.
    """

    def __init__(
        self,
        frame_of: Callable[[int, Sequence[str]], pd.DataFrame],
        facts_of: Callable[[Ints, Ints], tuple[npt.NDArray[np.bool_], Ints]],
        ranks: Sequence[int],
        makespan_ns: int,
        *,
        kinds: Iterable[str] = (),
        measured: bool = False,
        nested: bool = False,
        calls_of: Callable[[int], HostCalls | None] | None = None,
    ) -> None:
        self.makespan_ns = makespan_ns
        self.edition = 1
        self.ranks = [*ranks]
        self._place = {rank: place for place, rank in enumerate(self.ranks)}
        self._frame_of, self._facts_of, self._calls_of = frame_of, facts_of, calls_of
        self._measured, self._nested = measured, nested
        self._columns = (*_DRAWN, *_TEXTS * nested, *_MEASURED * measured)
        self._kept: OrderedDict[int, _Rank] = OrderedDict()
        self._lock = threading.RLock()
        self._tables: dict[int, pd.DataFrame] = {}
        self._streams: dict[int, dict[tuple[bool, int], int]] = {}
        self._kinds = [*kinds]
        self._names: dict[str, list[str]] = {}
        self._colours: dict[tuple[str, bool], tuple[Coloured | None, RankedColours]] = {}
        self._sought: tuple[tuple[str, list[int]], Hits] | None = None
        self._stride = _LEAST_STRIDE
        if self.ranks:
            self._of(self.ranks[0])

    @property
    def table(self) -> pd.DataFrame:
        """The rows of `Lanes.table` for all known lanes, by their numbers."""
        with self._lock:
            first = self._tables.get(self.ranks[0]) if self.ranks else None
            if first is None:
                nothing: pd.DataFrame = SliceIndex(self._frame_of(0, _DRAWN)).table
                return nothing
            tables = [self._tables.get(rank, first) for rank in self.ranks]
            sizes = [len(table) for table in tables]
            lanes = [place * self._stride + lane for place, size in enumerate(sizes) for lane in range(size)]
            every = pd.concat(tables, ignore_index=True)
            table: pd.DataFrame = every.assign(rank=np.repeat(self.ranks, sizes)).set_axis(lanes)
            return table

    def colours(self, by: str, like: Coloured | None = None) -> RankedColours:
        """Return the colours *by* one of `COLOURED_BY`, from the names of a few ranks."""
        other = None if like is self else like
        with self._lock:
            kept = self._colours.get((by, other is None))
            if kept is None or kept[0] is not other:
                kept = self._colours[by, other is None] = other, self._coloured_by(by, other)
            return kept[1]

    def _coloured_by(self, by: str, other: Coloured | None) -> RankedColours:
        if by not in COLOURED_BY[1:]:
            first = {*self._of(self.ranks[0]).index.nodes["kind"].unique()} if self.ranks else set()
            shown = first | {*self._kinds}
            return RankedColours(_NO_CODE, *kind_palette(KINDS, [kind for kind in KINDS if kind in shown]))
        names = self._ordered(by)
        known = {} if other is None else other.colours(by).places
        new = [name for name in names if name not in known]
        places = {**known, **{name: len(known) + number for number, name in enumerate(new)}}
        palette, legend, more = named_palette(names, places)
        return RankedColours(_NO_CODE, palette, legend, more, places, by)

    def _ordered(self, by: str) -> list[str]:
        """Return the names of a few ranks, the longest first."""
        if by not in self._names:
            total: dict[str, float] = {}
            step = -(-len(self.ranks) // _SAMPLED_RANKS)
            for rank in self.ranks[:: max(1, step)]:
                of = self._of(rank)
                index = of.index
                for name, ns in name_totals(of.whole(), index, by).items():
                    total[name] = total.get(name, 0.0) + ns
            self._names[by] = sorted(total, key=lambda name: -total[name])
        return self._names[by]

    def window(
        self,
        t0_ns: int,
        t1_ns: int,
        pixels: int,
        lanes: Iterable[int],
        *,
        colours: RankedColours,
        sought: str = "",
    ) -> SliceBatch:
        """Return `SliceIndex.window` of *lanes*; empty for ranks beyond `NODES_AT_ONCE`."""
        parts = []
        for place, own in self._by_rank(lanes):
            rank = self._of(self.ranks[place])
            found = rank.found(sought) if sought else None
            batch = rank.index.window(t0_ns, t1_ns, pixels, own, colours=rank.colours(colours), found=found)
            parts.append((place, batch))
        with self._lock:
            return _joined(parts, self._stride, self.edition)

    def area(self, t0_ns: int, t1_ns: int, lanes: Iterable[int]) -> tuple[pd.DataFrame, pd.DataFrame, int]:
        """Return nodes, their `Lanes.area`, and the number of omitted ranks."""
        asked = list(lanes)
        nodes, inside = [], []
        parts = self._by_rank(asked)
        for place, own in parts:
            rank = self._of(self.ranks[place])
            found = rank.index.area(t0_ns, t1_ns, own)
            nodes.append(rank.whole().iloc[found["row"]])
            inside.append(found)
        if not parts:
            rank = self._of(self.ranks[0])
            nodes, inside = [rank.whole().iloc[:0]], [rank.index.area(0, 0, [])]
        # Ranks may number their texts otherwise.
        texts = [name for name, kind in nodes[0].dtypes.items() if isinstance(kind, pd.CategoricalDtype)]
        table = pd.concat([part.astype(dict.fromkeys(texts, "str")) for part in nodes], ignore_index=True)
        places = {lane // self._stride for lane in asked if 0 <= lane // self._stride < len(self.ranks)}
        joined = pd.concat(inside, ignore_index=True)
        return table, joined.assign(row=np.arange(len(joined))), len(places) - len(parts)

    def lane_of(self, rank: int, node_id: int) -> tuple[int, int, int]:
        """Return (lane, start_ns, end_ns) of a node as simulated, or (-1, 0, 0) if it was not executed."""
        if rank not in self._place:
            return -1, 0, 0
        lane, start, end = self._of(rank).index.lane_of(rank, node_id)
        return (self._place[rank] * self._stride + lane if lane >= 0 else -1), start, end

    def lanes_of(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the lane of each (rank, node) pair; of ranks that were not read, the first of its stream."""
        lanes = np.full(len(ranks), -1, np.int64)
        known = np.isin(ranks, [*self._kept]) & (node_ids >= 0)
        for rank in np.unique(ranks[known]).tolist():
            own = np.flatnonzero(known & (ranks == rank))
            found = self._of(rank).index.lanes_of(ranks[own], node_ids[own])
            lanes[own] = np.where(found >= 0, found + self._place[rank] * self._stride, -1)
        rest = np.flatnonzero(~known & (node_ids >= 0) & np.isin(ranks, self.ranks))
        is_comm, stream = self._facts_of(ranks[rest], node_ids[rest])
        first = self._streams.get(self.ranks[0], {}) if self.ranks else {}
        keys = zip(ranks[rest].tolist(), is_comm.tolist(), stream.tolist(), strict=True)
        local = [
            (self._place[rank] * self._stride, self._streams.get(rank, first).get((comm, number), -1))
            for rank, comm, number in keys
        ]
        lanes[rest] = [base + lane if lane >= 0 else -1 for base, lane in local]
        return lanes

    def seek(self, text: str, ranks: Iterable[int]) -> Hits:
        """Return the matches of *text* in the first of *ranks*, as many as may be read at once."""
        asked = [rank for rank in dict.fromkeys(ranks) if rank in self._place]
        if self._sought is not None and self._sought[0] == (text, asked):
            return self._sought[1]
        parts: list[tuple[Ints, Ints, Ints]] = []
        nodes = 0
        for rank in asked:
            if nodes > NODES_AT_ONCE or len(parts) >= RANKS_AT_ONCE:
                break
            of = self._of(rank)
            table = of.index.nodes
            rows = np.flatnonzero(of.found(text))
            nodes += len(table)
            ids, starts = (table[name].to_numpy(np.int64)[rows] for name in ("node_id", "start_ns"))
            parts.append((np.full(len(rows), rank), ids, starts))
        none = (np.zeros(0, np.int64),) * 3
        rank_of, ids, starts = (np.concatenate(column) for column in zip(none, *parts, strict=True))
        order = np.argsort(starts, kind="stable")
        hits = Hits(rank_of[order], ids[order], starts[order], len(parts), len(asked))
        self._sought = (text, asked), hits
        return hits

    def prepare(self, ranks: Iterable[int]) -> None:
        """Read *ranks* in advance."""
        for rank in ranks:
            if rank in self._place:
                self._of(rank)

    def _by_rank(self, lanes: Iterable[int]) -> list[tuple[int, list[int]]]:
        """Return the index of each rank of *lanes* and its lanes, for as many ranks as may be read."""
        found: dict[int, list[int]] = {}
        for lane in lanes:
            place, own = divmod(lane, self._stride)
            if 0 <= place < len(self.ranks):
                found.setdefault(place, []).append(own)
        chosen: list[tuple[int, list[int]]] = []
        nodes = 0
        for place, of_rank in found.items():
            if nodes > NODES_AT_ONCE or len(chosen) >= RANKS_AT_ONCE:
                break
            nodes += len(self._of(self.ranks[place]).index.nodes)
            chosen.append((place, of_rank))
        return chosen

    def _of(self, rank: int) -> _Rank:
        """Return the slices of a rank; the latest are cached."""
        with self._lock:
            if rank in self._kept:
                self._kept.move_to_end(rank)
                return self._kept[rank]
            calls = self._calls_of(rank) if self._calls_of else None
            index = SliceIndex(
                self._frame_of(rank, self._columns),
                measured=self._measured,
                nested=self._nested,
                calls=None if calls is None else {rank: calls},
            )
            made = self._kept[rank] = _Rank(index, partial(self._frame_of, rank))
            self._note(rank, made.index)
            while len(self._kept) > 1 and sum(kept.size for kept in self._kept.values()) > 2 * KEPT_NODES:
                self._kept.popitem(last=False)
            return made

    def _note(self, rank: int, index: SliceIndex) -> None:
        """Store the lanes of a rank after it is read."""
        if rank in self._tables:
            return
        table = index.table.drop(columns="rank")
        first = self._tables.get(self.ranks[0])
        self._tables[rank] = table
        of_nodes = (~table["measured"] & (table["level"] == _OF_NODES)).to_numpy(bool)
        starts = np.searchsorted(index.lane, np.arange(len(table)))
        rows = index.row[starts[of_nodes]]
        comm = (index.nodes["type"].to_numpy()[rows] >= int(NodeType.COMM_SEND)).tolist()
        streams = index.nodes["stream"].to_numpy(np.int64)[rows].tolist()
        keys: dict[tuple[bool, int], int] = {}
        for lane, key in zip(np.flatnonzero(of_nodes).tolist(), zip(comm, streams, strict=True), strict=True):
            keys.setdefault(key, lane)
        self._streams[rank] = keys
        is_as_thought = first is not None and table.equals(first) and len(keys) == int(of_nodes.sum())
        while len(table) > self._stride:
            self._stride *= 2
        self.edition += not is_as_thought


def _joined(parts: Sequence[tuple[int, SliceBatch]], stride: int, edition: int) -> SliceBatch:
    """Return the batches of some ranks as one, their lanes numbered as those of all ranks."""
    names: list[str] = []
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in _COLUMNS}
    for place, batch in parts:
        for name in _COLUMNS:
            columns[name].append(getattr(batch, name))
        columns["lane"][-1] = (batch.lane + place * stride).astype(np.int32)
        columns["name"][-1] = np.where(batch.name < 0, -1, batch.name + len(names)).astype(np.int32)
        names += batch.names
    whole = {name: np.concatenate([np.zeros(0, kind), *columns[name]]) for name, kind in _COLUMNS.items()}
    return SliceBatch(**whole, names=names, edition=edition)


_COLUMNS: dict[str, Any] = {
    "start_ns": np.int64, "end_ns": np.int64, "node_id": np.int64, "lane": np.int32, "count": np.int32,
    "name": np.int32, "colour": np.uint8, "found": np.bool_,
}  # fmt: skip
