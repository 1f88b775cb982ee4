"""Compare each rank's work with that of its peers, and remove a late rank's excess."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....converter import Graph, NodeType, Workload
from ....converter.building import is_usually_late
from ....errors import UsageError
from .._host_time import texts_where

Ints = npt.NDArray[np.int64]
Work = tuple[str, str, str]
_LEAST_PROGRAMS = 2  # so that one can be compared with others
_MOST_NODES = 3_000_000  # of larger workloads ranks are not compared, which reads every node
_NOT_WORK = ("idle", "wait", "communication", "sync")
_WAITING = ("communication_call",)  # causes of host time in which a rank may wait for its peers


@dataclass(frozen=True)
class Excess:
    """The excess of *rank* over the median of its peers: *work* by (kind, cause, name), in ns.

    *total_ns* is the excess minus the work that takes less time than that of the peers. Each piece of
    *work* counts for its part of that. *place* is that of the longest node of the work that differs most.
    """

    rank: int
    total_ns: int
    work: dict[Work, int]
    place: str = ""

    @property
    def largest(self) -> Work:
        """The work that differs most."""
        return max(self.work, key=self.work.__getitem__)


def late_ranks(workload: Workload) -> list[Excess]:
    """Return the ranks that do more than the median of their peers in most steps, the largest excess first.

    Of ranks with one program, only the lowest is listed. Empty if all ranks have one program, or if the
    workload is too large. Shorter work offsets longer work.
    """
    if sum(graph.num_nodes for graph in workload.graphs) > _MOST_NODES:
        return []
    programs = np.asarray(workload.program_of_rank)
    distinct, lowest = np.unique(programs, return_index=True)
    if len(distinct) < _LEAST_PROGRAMS:
        return []
    sums = {program: _work_ns(workload.graphs[program]) for program in distinct.tolist()}
    ranks = []
    for program, rank in zip(distinct.tolist(), lowest.tolist(), strict=True):
        excess = _excess(sums, programs, program)
        if excess and is_usually_late(workload.metadata, rank, sum(excess.values())):
            one = Excess(rank, sum(excess.values()), excess)
            ranks.append(dataclasses.replace(one, place=_place(workload.graphs[program], one.largest)))
    return sorted(ranks, key=lambda one: (-one.total_ns, one.rank))


def without_skew(workload: Workload, rank: int) -> Workload:
    """Return *workload* with the work of *rank* as long as the median of its peers, where it is longer.

    Ranks that run the same program change with it. Raises `UsageError` for a rank that is absent or has no
    peers.
    """
    if rank >= workload.num_ranks:
        raise UsageError(f"There is no rank {rank}: the workload has ranks 0 to {workload.num_ranks - 1}.")
    programs = np.asarray(workload.program_of_rank)
    late, distinct = int(programs[rank]), np.unique(programs).tolist()
    if len(distinct) < _LEAST_PROGRAMS:
        raise UsageError(f"Rank {rank} runs the same program as all others: it has no skew to remove.")
    sums = {program: _work_ns(workload.graphs[program]) for program in distinct}
    graphs = list(workload.graphs)
    graphs[late] = _scaled(graphs[late], sums[late], _excess(sums, programs, late))
    return dataclasses.replace(workload, graphs=tuple(graphs))


def _work_of(graph: Graph) -> tuple[Ints, list[Work], Ints]:
    """Return the number of the work of each node, the distinct work, and the rows that are work."""
    nodes = graph.node_columns
    rows = np.flatnonzero(
        (np.asarray(nodes["type"]) < NodeType.COMM_SEND)
        & ~texts_where(nodes, "kind", _NOT_WORK.__contains__)
        & ~texts_where(nodes, "cause", _WAITING.__contains__)
    )
    named = nodes["operator"][rows].filled(nodes["name"][rows])
    kinds, causes, texts = nodes["kind"], nodes["cause"], named.texts
    sizes = max(1, len(kinds.texts)), max(1, len(causes.texts)), max(1, len(texts))
    # As one number each, which sorts much faster than columns of three.
    keys = np.ravel_multi_index((kinds.numbers[rows], causes.numbers[rows], named.numbers), sizes)
    distinct, number = np.unique(keys, return_inverse=True)
    work = zip(*(part.tolist() for part in np.unravel_index(distinct, sizes)), strict=True)
    works = [(kinds.texts[kind], causes.texts[cause], texts[name]) for kind, cause, name in work]
    return number, works, rows


def _place(graph: Graph, work: Work) -> str:
    """Return the place of the longest node that is part of *work*."""
    number, works, rows = _work_of(graph)
    rows = rows[number == works.index(work)] if work in works else rows[:0]
    places = graph.node_columns["place"]
    longest = rows[np.argsort(np.asarray(graph.node_columns["duration_ns"])[rows])[-1:]]
    return "".join(places.texts[number] for number in places.numbers[longest].tolist())


def _work_ns(graph: Graph) -> dict[Work, int]:
    """Return how long *graph* takes for each piece of work: (kind, cause, operator or else name)."""
    number, works, rows = _work_of(graph)
    durations = np.asarray(graph.node_columns["duration_ns"])[rows]
    totals = np.bincount(number, durations, minlength=len(works)) if len(works) else np.zeros(0)
    times: dict[Work, int] = defaultdict(int)
    for work, total in zip(works, totals.tolist(), strict=True):
        times[work] += round(total)
    return times


def _excess(sums: dict[int, dict[Work, int]], programs: Ints, program: int) -> dict[Work, int]:
    """Return how much longer (ns) each piece of work takes in *program* than the median of other ranks.

    Where other pieces take less, all are smaller in proportion: only the difference of the sums is excess.
    """
    others = [sums[other] for other in programs.tolist() if other != program]
    works = {work for own in sums.values() for work in own}
    more = {
        work: sums[program].get(work, 0) - int(np.median([own.get(work, 0) for own in others]))
        for work in works
    }
    longer = {work: ns for work, ns in more.items() if ns > 0}
    share = sum(more.values()) / max(1, sum(longer.values()))
    return {work: round(share * ns) for work, ns in longer.items() if share * ns >= 1}


def _scaled(graph: Graph, sums: dict[Work, int], excess: dict[Work, int]) -> Graph:
    """Return *graph* without the *excess* of its work: its longest pieces are cut first."""
    number, works, rows = _work_of(graph)
    durations = np.array(graph.node_columns["duration_ns"])
    for place, work in enumerate(works):
        if work in excess:
            own = rows[number == place]
            durations[own] = _cut(durations[own], sums[work] - excess[work])
    return graph.with_columns(duration_ns=durations)


def _cut(durations: Ints, total_ns: int) -> Ints:
    """Return *durations* capped at a common maximum such that they sum to *total_ns*, up to rounding.

    Where all are about as long, that is the same as making all of them shorter.
    """
    order = np.sort(durations)
    below = np.concatenate([[0], np.cumsum(order)[:-1]])
    heights = (total_ns - below) // np.arange(len(order), 0, -1)
    fits = np.flatnonzero(heights <= order)
    height = int(heights[fits[0]]) if len(fits) else int(order[-1])
    limited: Ints = np.minimum(durations, max(height, 0))
    return limited
