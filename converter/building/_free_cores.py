"""How many processor cores a job left free: the limit of what moving work to other threads can gain."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import mean
from typing import Any, NamedTuple

import msgspec

from ...tracer import Evidence, RankEntry

_KEY = "cores"
_FIRST = 3  # steps that allocate, compile and start workers
_Row = tuple[float, float, float]
_LEAST_NS = 100_000_000  # the kernel counts in hundredths of a second


class FreeCores(NamedTuple):
    """Of the *usable* cores of a rank, the job kept *busy* so many and *free* were idle, on average."""

    usable: float
    busy: float
    free: float

    @property
    def movable_share(self) -> float:
        """The most of a step that is saved by moving its work to free cores, which leaves as much to do."""
        return self.free / max(1e-9, self.busy + self.free)

    @property
    def text(self) -> str:
        """The free and usable cores, such as ``0.9 of 2 cores were free``."""
        return f"{self.free:.2g} of {self.usable:.3g} cores were free"


def cores_of_ranks(entries: Sequence[RankEntry], evidence: Mapping[int, Evidence]) -> dict[str, Any]:
    """Return the workload's metadata on the cores of each rank in unprofiled steps; {} if unknown.

    Ranks of one host share its cores, with the workers of their data loaders; those without *evidence* are
    as busy as the others. What else runs there is not free either.
    """
    hosts = {entry.rank: entry.hostname for entry in entries}
    spans = {rank: list(_spans(own)) for rank, own in evidence.items()}
    rates = {
        rank: tuple(sum(column) / sum(durations) for column in rest)
        for rank, own in spans.items()
        if own
        for durations, *rest in [tuple(zip(*own, strict=True))]
        if sum(durations) >= _LEAST_NS
    }
    used: dict[str, float] = {}
    for host, ranks in Counter(hosts.values()).items():
        each = [busy + _workers(evidence[rank]) for rank, (busy, _) in rates.items() if hosts[rank] == host]
        used[host] = ranks * mean(each or [0.0])
    cores = {}
    for rank, (_, idle) in rates.items():
        own = evidence[rank]
        busy = max(0.0, min(used[hosts[rank]], own.cores - idle))
        usable = min(own.cores, own.quota_cores or math.inf)
        cores[str(rank)] = [usable, busy, max(0.0, min(idle, usable - busy))]
    return {_KEY: cores} if cores else {}


def _workers(evidence: Evidence) -> int:
    return sum(loader.workers for loader in evidence.loaders)


def _spans(evidence: Evidence) -> Iterator[tuple[int, int, int]]:
    """Yield stretches of unprofiled steps: how long each takes, and the busy and idle time of cores (ns)."""
    steps = evidence.steps
    begin = before = -1
    for row, idle_ns in enumerate(steps.idle_ns):
        if steps.recorded[row] or steps.index[row] == before or steps.index[row] < _FIRST:
            begin = -1
        before = steps.index[row]
        if idle_ns < 0:
            continue
        if begin >= 0:
            columns = (steps.time_ns, steps.process_cpu_ns, steps.idle_ns)
            took, busy, idle = (column[row] - column[begin] for column in columns)
            yield took, busy, idle
        begin = row


def free_cores(metadata: Mapping[str, Any], ranks: Iterable[int] | None = None) -> FreeCores | None:
    """Return the cores of the rank with the least free of *ranks*, by default of all; None if unknown."""
    stated = metadata.get(_KEY)
    if not isinstance(stated, Mapping):
        return None
    own = stated.values() if ranks is None else [stated.get(str(rank)) for rank in ranks]
    try:
        rows = [FreeCores(*row) for row in msgspec.convert([row for row in own if row], list[_Row])]
    except msgspec.ValidationError:
        return None
    return min(rows, key=lambda row: row.movable_share, default=None)
