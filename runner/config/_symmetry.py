"""Prove that a graph of links is as regular as dimensions are, or say which ranks show that it is not."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

__all__ = ["Proven", "Way", "Wire", "distances", "find_dimensions", "uneven_ways"]

_MOST_STEPS = 4_000_000  # ranks times links: some seconds
_MOST_RANKS = 1024
_UNEVEN_SOURCES = 16


@dataclass(frozen=True)
class Wire:
    """A full-duplex link of the devices *a* and *b*, ranks first, in bit/s and ps."""

    a: int
    b: int
    rate_bps: int
    delay_ps: int


@dataclass(frozen=True)
class Proven:
    """One dimension: its shape, its size, the bit/s of its links and the ps of one of them."""

    shape: str
    count: int
    rate_bps: int
    delay_ps: float


@dataclass(frozen=True)
class Way:
    """The shortest ways from a rank to another: links on each, and the extremes of latency and bandwidth."""

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


def find_dimensions(ranks: int, wires: Sequence[Wire], own_hops: int = 0) -> tuple[list[Proven], str]:
    """Return the dimensions that give every pair of ranks the latency and bandwidth its ways have.

    Proven is: each group of ranks within a level (in the order of their numbers) is joined by ways of one
    latency and one slowest link, for all pairs; or the ranks are a torus, for all pairs along a dimension.
    *own_hops* links on a way are those between the ranks and routers of their own. Without a proof the list
    is empty, and the text says why.
    """
    if ranks < 2:
        return [], "there is one rank"
    if ranks > _MOST_RANKS or ranks * len(wires) > _MOST_STEPS:
        return [], f"{ranks} ranks and {len(wires)} links are too many to compare every pair"
    first = _ways(0, ranks, _neighbours(ranks, wires))
    levels = _levels(first)
    if levels:
        return _verified(ranks, wires, levels, first, own_hops)
    torus = _torus(first, own_hops)
    if torus:
        return _verified_torus(ranks, wires, torus, first)
    return [], "the ways from rank 0 to the others form neither groups of one size nor rings"


def uneven_ways(ranks: int, wires: Sequence[Wire]) -> tuple[int, int, int, int] | None:
    """Return two ranks with equally short ways of different speed, and both in bit/s; None if none is found.

    The first ranks are asked, as hosts are alike.
    """
    neighbours = _neighbours(ranks, wires)
    sources = min(ranks, _UNEVEN_SOURCES, max(1, _MOST_STEPS // max(1, len(wires))))
    for source in range(sources):
        for rank, way in enumerate(_ways(source, ranks, neighbours)):
            if way is not None and way.slowest_bps != way.fastest_bps:
                return source, rank, way.slowest_bps, way.fastest_bps
    return None


def _neighbours(ranks: int, wires: Sequence[Wire]) -> list[list[tuple[int, int, int]]]:
    nodes = max(ranks, *(1 + max(wire.a, wire.b) for wire in wires)) if wires else ranks
    neighbours: list[list[tuple[int, int, int]]] = [[] for _ in range(nodes)]
    for wire in wires:
        neighbours[wire.a].append((wire.b, wire.rate_bps, wire.delay_ps))
        neighbours[wire.b].append((wire.a, wire.rate_bps, wire.delay_ps))
    return neighbours


def _ways(source: int, ranks: int, neighbours: Sequence[Sequence[tuple[int, int, int]]]) -> list[Way | None]:
    """Return the ways from *source* to every rank, breadth first; other ranks do not forward."""
    fast = 1 << 62
    found: dict[int, tuple[int, int, int, int, int]] = {source: (0, 0, 0, fast, fast)}
    front = [source]
    while front:
        following: list[int] = []
        for node in front:
            hops, least, most, slow, quick = found[node]
            for other, rate, delay in neighbours[node]:
                known = found.get(other)
                new = (hops + 1, least + delay, most + delay, min(slow, rate), min(quick, rate))
                if known is None:
                    found[other] = new
                    if other >= ranks:
                        following.append(other)
                elif known[0] == new[0]:
                    found[other] = (
                        new[0],
                        min(known[1], new[1]),
                        max(known[2], new[2]),
                        min(known[3], new[3]),
                        max(known[4], new[4]),
                    )
        front = following
    return [Way(*found[rank]) if rank in found else None for rank in range(ranks)]


def _levels(row: Sequence[Way | None]) -> list[int]:
    """Return how many ranks a group of each level has, the last all of them; nothing if they do not nest."""
    ranks, sizes, start = len(row), [], 1
    while start < ranks:
        way = row[start]
        if way is None:
            return []
        stop = start
        while stop < ranks and (other := row[stop]) is not None and other.figures == way.figures:
            stop += 1
        if stop % start or ranks % stop:
            return []
        sizes.append(stop)
        start = stop
    return sizes


def distances(ranks: int, wires: Sequence[Wire]) -> Iterator[tuple[int, list[Way | None]]]:
    """Yield every rank with its shortest ways to all ranks, None where there is no way."""
    neighbours = _neighbours(ranks, wires)
    for source in range(ranks):
        yield source, _ways(source, ranks, neighbours)


def _verified(
    ranks: int, wires: Sequence[Wire], levels: Sequence[int], first: Sequence[Way | None], own_hops: int
) -> tuple[list[Proven], str]:
    """Return the dimensions of nested groups of *levels* ranks, if every pair is as those of rank 0."""
    starts = [1, *levels[:-1]]
    samples = [way for way in (first[start] for start in starts) if way is not None]
    direct = [way.hops == 1 + own_hops for way in samples]
    for source, row in distances(ranks, wires):
        for rank, way in enumerate(row):
            if rank == source:
                continue
            level = next(index for index, size in enumerate(levels) if source // size == rank // size)
            if way is None or not way.even or way.figures != samples[level].figures:
                return [], f"the ways from rank {source} to rank {rank} differ from those of others"
            direct[level] = direct[level] and way.hops == 1 + own_hops
    return [
        Proven(
            "FullyConnected" if straight else "Switch",
            size // start,
            way.slowest_bps,
            way.least_ps if straight else way.least_ps / 2,
        )
        for size, start, way, straight in zip(levels, starts, samples, direct, strict=True)
    ], ""


def _torus(first: Sequence[Way | None], own_hops: int) -> list[tuple[str, int]]:
    """Return the rings, or groups that are all linked, which the direct neighbours of rank 0 suggest.

    Lowest dimension first, each with its shape and size; nothing if there are none.
    """
    ranks = len(first)
    near = {rank for rank, way in enumerate(first) if way is not None and way.hops == 1 + own_hops}
    sizes: list[tuple[str, int]] = []
    stride = 1
    while stride < ranks:
        if stride not in near:
            return []
        spans = [span for span in range(2 * stride, ranks + 1, stride) if ranks % span == 0]
        linked = max(s for s in spans if s == 2 * stride or near.issuperset(range(stride, s, stride)))
        rings = (s for s in spans if s - stride in near and (s == ranks or s in near))
        around = next(rings, 0)
        sizes.append(("Ring", around // stride) if around > linked else ("FullyConnected", linked // stride))
        stride = max(around, linked)
    return sizes


def _verified_torus(
    ranks: int, wires: Sequence[Wire], sizes: Sequence[tuple[str, int]], first: Sequence[Way | None]
) -> tuple[list[Proven], str]:
    """Return the dimensions of *sizes*, if each pair of ranks along one is as far as its shape says."""
    strides = [math.prod(size for _, size in sizes[:index]) for index in range(len(sizes))]
    samples = [way for way in (first[stride] for stride in strides) if way is not None]
    for source, row in distances(ranks, wires):
        for (shape, size), stride, sample in zip(sizes, strides, samples, strict=True):
            place = source // stride % size
            for other in range(size):
                rank = source + (other - place) * stride
                if rank == source:
                    continue
                way, around = row[rank], min((other - place) % size, (place - other) % size)
                apart = around if shape == "Ring" else 1
                wanted = apart * sample.least_ps, sample.slowest_bps
                if way is None or not way.even or way.figures != wanted:
                    return [], f"the ways from rank {source} to rank {rank} are not those of a torus"
    return [
        Proven(shape, size, way.slowest_bps, way.least_ps)
        for (shape, size), way in zip(sizes, samples, strict=True)
    ], ""
