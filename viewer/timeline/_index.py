"""Index a run's timeline, as a whole or rank by rank as ranks become visible."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import NodeType
from ...converter.readers import HostCalls
from ...runner.analysis import Words, named_nodes
from ...support.table import Ints
from .._theme import KINDS
from ._slices import (
    COLOURED_BY,
    COLUMNS,
    Colours,
    SliceBatch,
    Slices,
    coloured,
    kind_palette,
    name_totals,
    named_palette,
)

_DRAWN = ("start_ns", "end_ns", "type", "stream", "kind", "name")
_TEXTS = ("operator", "module", "phase")
CACHED_NODES = 4_000_000
"""Nodes in all cached parts together, about; each takes 130 bytes."""
NODES_PER_REQUEST = 2_000_000
"""Nodes that one request reads, about, in at most `PARTS_PER_REQUEST` parts."""
PARTS_PER_REQUEST = 64
_MIN_STRIDE = 64
# Parts in which the time of each name is summed; names get colours in the order of these sums.
_SAMPLED_PARTS = 8
_OF_NODES = "slice"
_NO_CODE = np.zeros(0, np.uint8)
_NONE = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Hits:
    """Search results in order of time, after *ranks* of the *of* requested ranks."""

    rank: Ints
    node_id: Ints
    start_ns: Ints
    ranks: int
    of: int


@dataclass
class _Part:
    """The slices of one rank or all; *more* reads further columns on demand.

    Threads may share a part. Methods return what they computed and not the cache, which another
    thread may have replaced.
    """

    slices: Slices
    more: Callable[[Sequence[str]], pd.DataFrame]
    _matches: tuple[str, npt.NDArray[np.bool_]] | None = None
    _words: Words | None = None
    _coloured: tuple[Colours, Colours] | None = None

    @property
    def size(self) -> int:
        return len(self.slices.row) + len(self.slices.nodes)

    def colours(self, wanted: Colours) -> Colours:
        """Return the colours of the part's slices, cached for the last *wanted*."""
        cached = self._coloured
        if cached is None or cached[0] is not wanted:
            nodes = self.slices.nodes if wanted.by == "kind" else self.whole()
            cached = wanted, coloured(nodes, self.slices, wanted.by, wanted.places)
            self._coloured = cached
        return cached[1]

    def whole(self) -> pd.DataFrame:
        """Return the part's nodes with operator, module and phase."""
        nodes = self.slices.nodes
        if not {*_TEXTS} <= {*nodes.columns}:
            more = self.more(_TEXTS)
            for name in _TEXTS:
                nodes[name] = more[name]
        return nodes

    def matches(self, text: str) -> npt.NDArray[np.bool_]:
        """Return a mask of the nodes that match *text*, cached until the text changes."""
        cached = self._matches
        if cached is None or cached[0] != text:
            if self._words is None:
                texts = dict.fromkeys(("name", "operator", "module"), "str")
                self._words = Words.of(self.whole().astype(texts))
            cached = self._matches = text, named_nodes(self._words, text)
        return cached[1]


class TimelineIndex:
    """A run's timeline in *parts*, lists of ranks: one part of all ranks, or one per rank.

    The number of lanes of a part is unknown until the part is read, so lane numbers leave gaps. Until a part
    is read, the index assumes the lanes of the first part that was read; if the assumption was wrong,
    ``edition`` increases.

    *frame_of* returns the nodes of a rank's part with given columns. *facts_of* returns whether each node
    communicates, and its stream. *kinds* are the kinds on the critical path. *calls_of* returns a rank's host
    calls if its trace exists.
    """

    def __init__(
        self,
        frame_of: Callable[[int, Sequence[str]], pd.DataFrame],
        facts_of: Callable[[Ints, Ints], tuple[npt.NDArray[np.bool_], Ints]],
        parts: Iterable[Sequence[int]],
        makespan_ns: int,
        *,
        kinds: Iterable[str] = (),
        nested: bool = False,
        calls_of: Callable[[int], HostCalls | None] | None = None,
    ) -> None:
        self.makespan_ns = makespan_ns
        self.edition = 1
        self.parts = [[*ranks] for ranks in parts if len(ranks)]
        self._place = {rank: place for place, ranks in enumerate(self.parts) for rank in ranks}
        self._frame_of, self._facts_of, self._calls_of = frame_of, facts_of, calls_of
        self._nested = nested
        self._columns = (*_DRAWN, *_TEXTS * nested)
        self._cached: OrderedDict[int, _Part] = OrderedDict()
        self._lock = threading.RLock()
        self._tables: dict[int, pd.DataFrame] = {}
        self._streams: dict[int, dict[tuple[bool, int], int]] = {}
        self._kinds = [*kinds]
        self._names: dict[str, list[str]] = {}
        self._colours: dict[tuple[str, bool], tuple[TimelineIndex | None, Colours]] = {}
        self._hits: tuple[tuple[str, list[int]], Hits] | None = None
        self._stride = _MIN_STRIDE
        self._model = 0  # the part whose lanes are assumed for parts not read yet
        has_lanes = (place for place in range(len(self.parts)) if len(self._part(place).slices.table))
        self._model = next(has_lanes, 0)

    @property
    def table(self) -> pd.DataFrame:
        """All lanes in order of number, with the columns of `Lanes.table`."""
        with self._lock:
            if not self.parts:
                return Slices(self._frame_of(0, _DRAWN)).table
            model = self._tables[self._model]
            tables = [
                self._tables[place] if place in self._tables else model.assign(rank=ranks[0])
                for place, ranks in enumerate(self.parts)
            ]
            lanes = [
                place * self._stride + lane for place, of in enumerate(tables) for lane in range(len(of))
            ]
            table: pd.DataFrame = pd.concat(tables, ignore_index=True).set_axis(lanes)
            return table

    def colours(self, by: str, like: TimelineIndex | None = None) -> Colours:
        """Return colours *by* a property in `COLOURED_BY`, from the names in a few parts.

        Names that the index *like* also colours get its colours.
        """
        other = None if like is self else like
        # The other index is read before locking: two indices that read each other would deadlock.
        known = {} if other is None else other.colours(by).places
        with self._lock:
            cached = self._colours.get((by, other is None))
            if cached is None or cached[0] is not other:
                cached = self._colours[by, other is None] = other, self._coloured_by(by, known)
            return cached[1]

    def _coloured_by(self, by: str, known: Mapping[str, int]) -> Colours:
        if by not in COLOURED_BY[1:]:
            first = {*self._part(self._model).slices.nodes["kind"].unique()} if self.parts else set()
            shown = first | {*self._kinds}
            return Colours(_NO_CODE, *kind_palette([kind for kind in KINDS if kind in shown]))
        names = self._ordered(by)
        new = [name for name in names if name not in known]
        places = {**known, **{name: len(known) + number for number, name in enumerate(new)}}
        palette, legend, more = named_palette(names, places)
        return Colours(_NO_CODE, palette, legend, more, places, by)

    def _ordered(self, by: str) -> list[str]:
        """Return the names in a few parts, most total time first."""
        if by not in self._names:
            total: dict[str, float] = {}
            for place in range(0, len(self.parts), -(-len(self.parts) // _SAMPLED_PARTS) or 1):
                part = self._part(place)
                for name, ns in name_totals(part.whole(), part.slices, by).items():
                    total[name] = total.get(name, 0.0) + ns
            self._names[by] = sorted(total, key=lambda name: -total[name])
        return self._names[by]

    def window(
        self,
        t0_ns: int,
        t1_ns: int,
        pixels: int,
        lanes: Iterable[int] | None = None,
        *,
        colours: Colours | None = None,
        sought: str = "",
    ) -> SliceBatch:
        """Return the slices in a time window of *lanes* (default: all), as `Slices.window` does.

        Beyond `NODES_PER_REQUEST` nodes, further parts contribute nothing.
        """
        colours = colours or self.colours("kind")
        batches = []
        own = self._by_part(self.table.index if lanes is None else lanes)
        for place in self._at_once(own):
            part = self._part(place)
            matches = part.matches(sought) if sought else None
            code = part.colours(colours).code
            batch = part.slices.window(t0_ns, t1_ns, pixels, own[place], colour=code, matches=matches)
            batches.append((place, batch))
        with self._lock:
            return _joined(batches, self._stride, self.edition)

    def area(self, t0_ns: int, t1_ns: int, lanes: Iterable[int]) -> tuple[pd.DataFrame, pd.DataFrame, int]:
        """Return the nodes in an area, their parts inside it (`Lanes.area`), and ranks left out."""
        own = self._by_part(lanes) or {0: []}
        chosen = self._at_once(own)
        nodes, inside = [], []
        for place in chosen:
            part = self._part(place)
            covered = part.slices.area(t0_ns, t1_ns, own[place])
            nodes.append(part.whole().iloc[covered["row"]])
            inside.append(covered)
        # Categories differ between parts.
        texts = [name for name, kind in nodes[0].dtypes.items() if isinstance(kind, pd.CategoricalDtype)]
        table = pd.concat([part.astype(dict.fromkeys(texts, "str")) for part in nodes], ignore_index=True)
        joined = pd.concat(inside, ignore_index=True)
        return table, joined.assign(row=np.arange(len(joined))), len(own) - len(chosen)

    def lane_of(self, rank: int, node_id: int) -> tuple[int, int, int]:
        """Return (lane, start_ns, end_ns) of a node, (-1, 0, 0) if it has no slice."""
        if rank not in self._place:
            return -1, 0, 0
        place = self._place[rank]
        lane, start, end = self._part(place).slices.lane_of(rank, node_id)
        return (place * self._stride + lane if lane >= 0 else -1), start, end

    def lanes_of(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the lane of each (rank, node), -1 if unknown.

        Nodes of ranks that were not read get the first lane of their stream.
        """
        lanes = np.full(len(ranks), -1, np.int64)
        places = np.array([self._place.get(rank, -1) for rank in ranks.tolist()], np.int64)
        places[node_ids < 0] = -1
        is_read = np.isin(places, [*self._cached])
        for place in np.unique(places[is_read]).tolist():
            own = np.flatnonzero(places == place)
            local = self._part(place).slices.lanes_of(ranks[own], node_ids[own])
            lanes[own] = np.where(local >= 0, local + place * self._stride, -1)
        rest = np.flatnonzero((places >= 0) & ~is_read)
        if len(rest):
            is_comm, stream = self._facts_of(ranks[rest], node_ids[rest])
            keys = zip(places[rest].tolist(), is_comm.tolist(), stream.tolist(), strict=True)
            model = self._streams[self._model]
            of_stream = [
                (place * self._stride, self._streams.get(place, model).get((comm, number), -1))
                for place, comm, number in keys
            ]
            lanes[rest] = [base + lane if lane >= 0 else -1 for base, lane in of_stream]
        return lanes

    def seek(self, text: str, ranks: Iterable[int]) -> Hits:
        """Return the nodes that match *text* in the first of *ranks*, as many as one request may read."""
        asked = [rank for rank in dict.fromkeys(ranks) if rank in self._place]
        if self._hits is not None and self._hits[0] == (text, asked):
            return self._hits[1]
        by_part: dict[int, list[int]] = {}
        for rank in asked:
            by_part.setdefault(self._place[rank], []).append(rank)
        columns: dict[str, list[Ints]] = {name: [_NONE] for name in ("rank", "node_id", "start_ns")}
        searched = self._at_once(by_part)
        for place in searched:
            part = self._part(place)
            rows = np.flatnonzero(part.matches(text))
            if len(by_part[place]) < len(self.parts[place]):
                rows = rows[np.isin(part.slices.nodes["rank"].to_numpy(np.int64)[rows], by_part[place])]
            for name, column in columns.items():
                column.append(part.slices.nodes[name].to_numpy(np.int64)[rows])
        rank_of, ids, starts = (np.concatenate(column) for column in columns.values())
        order = np.argsort(starts, kind="stable")
        count = sum(len(by_part[place]) for place in searched)
        hits = Hits(rank_of[order], ids[order], starts[order], count, len(asked))
        self._hits = (text, asked), hits
        return hits

    def prepare(self, ranks: Iterable[int]) -> None:
        """Read the parts of *ranks*, so that their lanes are known."""
        for place in dict.fromkeys(self._place[rank] for rank in ranks if rank in self._place):
            self._part(place)

    def _by_part(self, lanes: Iterable[int]) -> dict[int, list[int]]:
        """Group *lanes* by part, numbered from the start of each."""
        own: dict[int, list[int]] = {}
        for lane in lanes:
            place, local = divmod(lane, self._stride)
            if 0 <= place < len(self.parts):
                own.setdefault(place, []).append(local)
        return own

    def _at_once(self, places: Iterable[int]) -> list[int]:
        """Return as many of *places* as one request may read."""
        chosen: list[int] = []
        nodes = 0
        for place in places:
            if nodes > NODES_PER_REQUEST or len(chosen) >= PARTS_PER_REQUEST:
                break
            nodes += len(self._part(place).slices.nodes)
            chosen.append(place)
        return chosen

    def _part(self, place: int) -> _Part:
        """Return the part *place* from the LRU cache, or read it."""
        with self._lock:
            if place in self._cached:
                self._cached.move_to_end(place)
                return self._cached[place]
            rank = self.parts[place][0]
            calls = self._calls_of(rank) if self._calls_of else None
            slices = Slices(
                self._frame_of(rank, self._columns),
                nested=self._nested,
                calls=None if calls is None else {rank: calls},
            )
            made = self._cached[place] = _Part(slices, partial(self._frame_of, rank))
            self._note(place, slices)
            while (
                len(self._cached) > 1 and sum(part.size for part in self._cached.values()) > 2 * CACHED_NODES
            ):
                self._cached.popitem(last=False)
            return made

    def _note(self, place: int, slices: Slices) -> None:
        """Store a new part's lanes and streams; if they were not expected, ``edition`` increases."""
        self.makespan_ns = max(self.makespan_ns, slices.makespan_ns)
        if place in self._tables:
            return
        table = self._tables[place] = slices.table
        of_nodes = (table["level"] == _OF_NODES).to_numpy(bool)
        starts = np.searchsorted(slices.lane, np.arange(len(table)))
        rows = slices.row[starts[of_nodes]]
        comm = (slices.nodes["type"].to_numpy()[rows] >= int(NodeType.COMM_SEND)).tolist()
        streams = slices.nodes["stream"].to_numpy(np.int64)[rows].tolist()
        keys: dict[tuple[bool, int], int] = {}
        for lane, key in zip(np.flatnonzero(of_nodes).tolist(), zip(comm, streams, strict=True), strict=True):
            keys.setdefault(key, lane)
        self._streams[place] = keys
        expected = self._tables[self._model].assign(rank=self.parts[place][0])
        is_as_expected = place != self._model and table.equals(expected) and len(keys) == int(of_nodes.sum())
        while len(table) > self._stride:
            self._stride *= 2
        self.edition += not is_as_expected


def _joined(parts: Sequence[tuple[int, SliceBatch]], stride: int, edition: int) -> SliceBatch:
    """Join the slices of several parts, with lane numbers of the whole timeline."""
    names: list[str] = []
    columns: dict[str, list[npt.NDArray[Any]]] = {name: [] for name in COLUMNS}
    for place, batch in parts:
        for name in COLUMNS:
            columns[name].append(getattr(batch, name))
        columns["lane"][-1] = (batch.lane + place * stride).astype(np.int32)
        columns["name"][-1] = np.where(batch.name < 0, -1, batch.name + len(names)).astype(np.int32)
        names += batch.names
    whole = {name: np.concatenate([np.zeros(0, kind), *columns[name]]) for name, (kind, _) in COLUMNS.items()}
    return SliceBatch(**whole, names=names, edition=edition)
