"""Prove that a graph of links is equivalent to network dimensions, or find ranks that disprove it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from ._fabric import Dimension, FabricLink

_MAX_STEPS = 4_000_000  # limit on ranks times links; such a search takes some seconds
_MAX_RANKS = 1024
_UNEVEN_SOURCES = 16
_AT_ONCE = 400_000  # array elements per search step, which fit into a CPU cache
_LARGEST = 1 << 62


@dataclass(frozen=True)
class Paths:
    """The shortest paths between two ranks: their length in links, and the range of latency and bandwidth."""

    hops: int
    least_ps: int
    most_ps: int
    slowest_bps: int
    fastest_bps: int

    @property
    def even(self) -> bool:
        return self.least_ps == self.most_ps and self.slowest_bps == self.fastest_bps

    @property
    def figures(self) -> tuple[int, int]:
        return self.least_ps, self.slowest_bps


def find_dimensions(
    ranks: int, links: Sequence[FabricLink], own_hops: int = 0
) -> tuple[list[Dimension], str]:
    """Find dimensions with the latency and bandwidth of the paths between all pairs of ranks.

    Every pair is checked. Two structures are recognised: nested groups of consecutive ranks in
    which all paths of a level have one latency and one slowest link, and tori. *own_hops* links of
    each path connect ranks to their own routers. Without a proof, the list is empty, and the text
    is the reason.
    """
    if ranks < 2:
        return [], "there is one rank"
    if ranks > _MAX_RANKS or ranks * len(links) > _MAX_STEPS:
        return [], f"{ranks} ranks and {len(links)} links are too many to compare every pair"
    first = next(distances(ranks, links, [0]))[1]
    levels = _levels(first)
    if levels:
        return _verified(ranks, links, levels, first, own_hops)
    torus = _torus(first, own_hops)
    if torus:
        return _verified_torus(ranks, links, torus, first)
    return [], "the paths from rank 0 to the others form neither groups of one size nor rings"


def uneven_paths(ranks: int, links: Sequence[FabricLink]) -> tuple[int, int, int, int] | None:
    """Return two ranks with shortest paths of unequal rates, and both rates in bit/s, or None.

    Only the first ranks are searched from, because hosts are usually alike.
    """
    sources = min(ranks, _UNEVEN_SOURCES, max(1, _MAX_STEPS // max(1, len(links))))
    for source, row in distances(ranks, links, range(sources)):
        for rank, paths in enumerate(row):
            if paths is not None and paths.slowest_bps != paths.fastest_bps:
                return source, rank, paths.slowest_bps, paths.fastest_bps
    return None


class _Search:
    """Breadth-first search from several ranks at once, over links in both directions sorted by target."""

    def __init__(self, ranks: int, links: Sequence[FabricLink]) -> None:
        a, b = (np.array([getattr(link, end) for link in links], dtype=np.int64) for end in "ab")
        rate, delay = (
            np.array([getattr(link, name) for link in links], dtype=np.int64)
            for name in ("rate_bps", "delay_ps")
        )
        ends = np.concatenate((b, a))
        order = np.argsort(ends, kind="stable")
        self.ranks = ranks
        self.nodes = max(ranks, int(ends.max(initial=-1)) + 1)
        self._from = np.concatenate((a, b))[order]
        self._rate = np.tile(rate, 2)[order]
        self._delay = np.tile(delay, 2)[order]
        self._to = ends[order]

    def paths_from(self, sources: Sequence[int]) -> Iterator[tuple[int, list[Paths | None]]]:
        """Yield each of *sources* with its shortest paths to every rank; ranks do not forward messages."""
        shape = (len(sources), self.nodes)
        rows = np.arange(len(sources))
        hops = np.full(shape, -1, dtype=np.int64)
        least, most, slow, fast = (np.zeros(shape, dtype=np.int64) for _ in range(4))
        hops[rows, sources] = 0
        slow[rows, sources] = fast[rows, sources] = _LARGEST
        front = hops == 0
        level = 0
        while (used := np.flatnonzero(front.any(axis=0)[self._from])).size:
            level += 1
            reached, starts = np.unique(self._to[used], return_index=True)
            open_links = front[:, self._from[used]]
            reached_now = np.zeros(shape, dtype=bool)
            reached_now[:, reached] = np.logical_or.reduceat(open_links, starts, axis=1)
            reached_now &= hops < 0
            for values, change, combine, nothing in (
                (least, self._delay, np.minimum, _LARGEST),
                (most, self._delay, np.maximum, -1),
                (slow, None, np.minimum, _LARGEST),
                (fast, None, np.maximum, -1),
            ):
                candidates = values[:, self._from[used]]
                candidates = (
                    candidates + change[used]
                    if change is not None
                    else np.minimum(candidates, self._rate[used])
                )
                candidates = combine.reduceat(np.where(open_links, candidates, nothing), starts, axis=1)
                values[:, reached] = np.where(reached_now[:, reached], candidates, values[:, reached])
            hops[reached_now] = level
            front = reached_now
            front[:, : self.ranks] = False
        for row, source in enumerate(sources):
            figures = (values[row, : self.ranks].tolist() for values in (hops, least, most, slow, fast))
            yield source, [Paths(*paths) if paths[0] >= 0 else None for paths in zip(*figures, strict=True)]


def distances(
    ranks: int, links: Sequence[FabricLink], sources: Sequence[int] | None = None
) -> Iterator[tuple[int, list[Paths | None]]]:
    """Yield each of *sources* (default: every rank) with its shortest paths to all ranks; None: no path."""
    search = _Search(ranks, links)
    wanted = range(ranks) if sources is None else sources
    together = max(1, _AT_ONCE // max(1, 2 * len(links)))
    for start in range(0, len(wanted), together):
        yield from search.paths_from(wanted[start : start + together])


def _levels(row: Sequence[Paths | None]) -> list[int]:
    """Return the group sizes from the lowest level to all ranks, or an empty list if groups do not nest."""
    ranks, sizes, start = len(row), [], 1
    while start < ranks:
        paths = row[start]
        if paths is None:
            return []
        stop = start
        while stop < ranks and (other := row[stop]) is not None and other.figures == paths.figures:
            stop += 1
        if stop % start or ranks % stop:
            return []
        sizes.append(stop)
        start = stop
    return sizes


def _verified(
    ranks: int,
    links: Sequence[FabricLink],
    levels: Sequence[int],
    first: Sequence[Paths | None],
    own_hops: int,
) -> tuple[list[Dimension], str]:
    """Return the dimensions of nested groups of the sizes *levels* if they hold for every rank."""
    starts = [1, *levels[:-1]]
    samples = [paths for paths in (first[start] for start in starts) if paths is not None]
    direct = [paths.hops == 1 + own_hops for paths in samples]
    for source, row in distances(ranks, links):
        for rank, paths in enumerate(row):
            if rank == source:
                continue
            level = next(index for index, size in enumerate(levels) if source // size == rank // size)
            if paths is None or not paths.even or paths.figures != samples[level].figures:
                return [], f"the paths from rank {source} to rank {rank} differ from those of others"
            direct[level] = direct[level] and paths.hops == 1 + own_hops
    return [
        Dimension(
            "FullyConnected" if straight else "Switch",
            size // start,
            paths.slowest_bps,
            paths.least_ps if straight else paths.least_ps / 2,
        )
        for size, start, paths, straight in zip(levels, starts, samples, direct, strict=True)
    ], ""


def _torus(first: Sequence[Paths | None], own_hops: int) -> list[tuple[str, int]]:
    """Return the dimensions, lowest first, that the neighbours of rank 0 suggest: (shape, size).

    The shapes are rings and fully connected groups. The list is empty if the neighbours form
    neither.
    """
    ranks = len(first)
    near = {rank for rank, paths in enumerate(first) if paths is not None and paths.hops == 1 + own_hops}

    def rest(stride: int, expected: frozenset[int]) -> list[tuple[str, int]] | None:
        """Return dimensions with strides from *stride* that explain all neighbours not in *expected*."""
        if stride == ranks:
            return [] if expected == near else None
        for span in (span for span in range(ranks, stride, -stride) if ranks % span == 0):
            linked = frozenset(range(stride, span, stride))
            for shape, added in (("FullyConnected", linked), ("Ring", frozenset((stride, span - stride)))):
                if added <= near:
                    more = rest(span, expected | added)
                    if more is not None:
                        return [(shape, span // stride), *more]
        return None

    return rest(1, frozenset()) or []


def _verified_torus(
    ranks: int, links: Sequence[FabricLink], sizes: Sequence[tuple[str, int]], first: Sequence[Paths | None]
) -> tuple[list[Dimension], str]:
    """Return the dimensions *sizes* if every pair of ranks has the distance that they imply."""
    strides = [math.prod(size for _, size in sizes[:index]) for index in range(len(sizes))]
    samples = [paths for paths in (first[stride] for stride in strides) if paths is not None]
    for source, row in distances(ranks, links):
        for (shape, size), stride, sample in zip(sizes, strides, samples, strict=True):
            place = source // stride % size
            for other in range(size):
                rank = source + (other - place) * stride
                if rank == source:
                    continue
                paths, around = row[rank], min((other - place) % size, (place - other) % size)
                distance = around if shape == "Ring" else 1
                wanted = distance * sample.least_ps, sample.slowest_bps
                if paths is None or not paths.even or paths.figures != wanted:
                    return [], f"the paths from rank {source} to rank {rank} are not those of a torus"
    return [
        Dimension(shape, size, paths.slowest_bps, paths.least_ps)
        for (shape, size), paths in zip(sizes, samples, strict=True)
    ], ""
