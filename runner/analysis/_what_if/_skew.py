"""Compare each rank's work with its peers', and remove the excess of a late rank."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from ....converter import Graph, NodeType, Workload
from ....converter.building import is_usually_late
from ....errors import UsageError
from ....support.table import Ints

Work = tuple[str, str, str]
_MIN_PROGRAMS = 2  # minimum number of programs for a comparison
_MAX_NODES = 3_000_000  # larger workloads are not compared, because every node would be read
_NOT_WORK = ("idle", "wait", "communication", "sync")
_WAITING = ("communication_call",)  # host time that may be waiting for peers


@dataclass(frozen=True)
class Excess:
    """The *work* of *rank* beyond the median of its peers, in ns by (kind, cause, name).

    *total_ns* is the excess minus the time that other work saves compared with the peers, and
    *work* is scaled to add up to *total_ns*. *place* is the source location of the longest node of
    the work that differs most.
    """

    rank: int
    total_ns: int
    work: dict[Work, int]
    place: str = ""

    @property
    def largest(self) -> Work:
        """The (kind, cause, name) of the largest excess."""
        return max(self.work, key=self.work.__getitem__)


def late_ranks(workload: Workload) -> list[Excess]:
    """Return the ranks that in most steps work more than the median of their peers, largest excess first.

    Only the lowest rank of each program is listed. Work that takes less time than on the peers offsets work
    that takes more time. The list is empty if all ranks run one program or the workload is too large.
    """
    if sum(graph.num_nodes for graph in workload.graphs) > _MAX_NODES:
        return []
    programs = np.asarray(workload.program_of_rank)
    distinct, lowest = np.unique(programs, return_index=True)
    if len(distinct) < _MIN_PROGRAMS:
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
    """Return *workload* with the excess work of *rank* cut to the median of its peers.

    Other ranks of the program change in the same way. Raises `UsageError` for a rank that is absent or has
    no peers.
    """
    if rank >= workload.num_ranks:
        raise UsageError(f"There is no rank {rank}: the workload has ranks 0 to {workload.num_ranks - 1}.")
    programs = np.asarray(workload.program_of_rank)
    late, distinct = int(programs[rank]), np.unique(programs).tolist()
    if len(distinct) < _MIN_PROGRAMS:
        raise UsageError(
            f"Rank {rank} runs the same program as all other ranks, so it has no skew to remove."
        )
    sums = {program: _work_ns(workload.graphs[program]) for program in distinct}
    graphs = list(workload.graphs)
    graphs[late] = _scaled(graphs[late], sums[late], _excess(sums, programs, late))
    return dataclasses.replace(workload, graphs=tuple(graphs))


def _work_of(graph: Graph) -> tuple[Ints, list[Work], Ints]:
    """Return an index per working node, the (kind, cause, name) of each index, and the nodes' rows."""
    nodes = graph.node_columns
    rows = np.flatnonzero(
        (np.asarray(nodes["type"]) < NodeType.COMM_SEND)
        & ~nodes["kind"].passes(_NOT_WORK.__contains__)
        & ~nodes["cause"].passes(_WAITING.__contains__)
    )
    named = nodes["operator"][rows].filled(nodes["name"][rows])
    kinds, causes, texts = nodes["kind"], nodes["cause"], named.texts
    sizes = max(1, len(kinds.texts)), max(1, len(causes.texts)), max(1, len(texts))
    # The triples are numbered first, because sorting numbers is much faster than sorting triples.
    keys = np.ravel_multi_index((kinds.numbers[rows], causes.numbers[rows], named.numbers), sizes)
    distinct, number = np.unique(keys, return_inverse=True)
    work = zip(*(part.tolist() for part in np.unravel_index(distinct, sizes)), strict=True)
    works = [(kinds.texts[kind], causes.texts[cause], texts[name]) for kind, cause, name in work]
    return number, works, rows


def _place(graph: Graph, work: Work) -> str:
    """Return the source location of the longest node of *work*."""
    number, works, rows = _work_of(graph)
    rows = rows[number == works.index(work)] if work in works else rows[:0]
    places = graph.node_columns["place"]
    longest = rows[np.argsort(np.asarray(graph.node_columns["duration_ns"])[rows])[-1:]]
    return "".join(places.texts[number] for number in places.numbers[longest].tolist())


def _work_ns(graph: Graph) -> dict[Work, int]:
    """Return the ns of each (kind, cause, operator or node name) in *graph*."""
    number, works, rows = _work_of(graph)
    durations = np.asarray(graph.node_columns["duration_ns"])[rows]
    totals = np.bincount(number, durations, minlength=len(works)) if len(works) else np.zeros(0)
    times: dict[Work, int] = defaultdict(int)
    for work, total in zip(works, totals.tolist(), strict=True):
        times[work] += round(total)
    return times


def _excess(sums: dict[int, dict[Work, int]], programs: Ints, program: int) -> dict[Work, int]:
    """Return the time (ns) by which each piece of work in *program* exceeds the median of other ranks.

    If some work takes less than the median, all excesses are scaled down to add up to the
    difference in total.
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
    """Return *graph* without the *excess*, which is taken from the longest nodes first."""
    number, works, rows = _work_of(graph)
    durations = np.array(graph.node_columns["duration_ns"])
    for place, work in enumerate(works):
        if work in excess:
            own = rows[number == place]
            durations[own] = _cut(durations[own], sums[work] - excess[work])
    return graph.with_columns(duration_ns=durations)


def _cut(durations: Ints, total_ns: int) -> Ints:
    """Cap *durations* so that they add up to *total_ns*, except for rounding.

    Durations that are about equal are all shortened.
    """
    order = np.sort(durations)
    below = np.concatenate([[0], np.cumsum(order)[:-1]])
    heights = (total_ns - below) // np.arange(len(order), 0, -1)
    fits = np.flatnonzero(heights <= order)
    height = int(heights[fits[0]]) if len(fits) else int(order[-1])
    return np.minimum(durations, max(height, 0))
