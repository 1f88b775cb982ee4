"""Tabulate ranks by finish and waiting time, and find equal ranks and the slowest rank."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.building import stood_in
from ...support import count_text, duration_text, share_text
from ...support.table import Columns
from .._result import Result
from ._collectives import arrivals_of
from ._foreign_times import measured_ranks
from ._host_time import DELAYED, cause_ns
from ._summary import rank_times

if TYPE_CHECKING:
    import pandas as pd

# Ranks with the same program count as equal if the times of their nodes differ by at most this share of the
# makespan.
_SAME_SHARE = 0.001
# Each rank is compared with at most 32 different ranks of its program. Further ranks count as unequal.
_MOST_KINDS = 32


def rank_standings(result: Result, workload: Workload) -> pd.DataFrame:
    """Return a row per rank: ``rank, finish_ns, exposed_comm_ns, waiting_ns, same_as`` and ``apart_ns``.

    ``waiting_ns`` is the time that the rank waits for other ranks in collectives. ``same_as`` is the lowest
    rank that runs the same program at the same times, within 0.1 % of the makespan, or the rank itself if no
    lower rank is equal. ``apart_ns`` is the largest difference of a node's start or end between the two
    ranks.
    """
    table = rank_times(result)[["rank", "finish_ns", "exposed_comm_ns"]].astype("int64")
    waits = result.collectives.groupby("rank")["wait_ns"].sum()
    table["waiting_ns"] = waits.reindex(table["rank"]).fillna(0).to_numpy(np.int64)
    same = _same(result, workload)
    standings = {int(rank): same.get(int(rank), (int(rank), 0)) for rank in table["rank"]}
    kept: pd.DataFrame = table.assign(
        same_as=[which for which, _ in standings.values()],
        apart_ns=[apart for _, apart in standings.values()],
    )
    return kept


def _same(result: Result, workload: Workload) -> dict[int, tuple[int, int]]:
    """Return the lowest equal rank of each rank with nodes, and the largest difference (ns) between the two.

    Ranks whose program no other rank runs are omitted.
    """
    programs = np.asarray(workload.program_of_rank)
    # A rank with a unique program equals no other rank, so its nodes are not read.
    shared = set(np.flatnonzero(np.bincount(programs)[programs] > 1).tolist()) if len(programs) else set()
    kinds: dict[int, list[tuple[int, Columns]]] = {}
    same: dict[int, tuple[int, int]] = {}
    for rank, own in result.table("nodes").by_rank(["start_ns", "end_ns"], shared.__contains__):
        classes = kinds.setdefault(int(programs[rank]), [])
        differences = ((other, _apart_ns(own, its)) for other, its in classes)
        like = next((pair for pair in differences if 0 <= pair[1] <= _SAME_SHARE * result.makespan_ns), None)
        same[rank] = like or (rank, 0)
        if like is None and len(classes) < _MOST_KINDS:
            classes.append((rank, own))
    return same


def _apart_ns(one: Columns, other: Columns) -> int:
    """Return the largest time difference (ns) between the nodes of two ranks, -1 for different nodes."""
    if not np.array_equal(one["node_id"], other["node_id"]):
        return -1
    return max(int(np.abs(one[name] - other[name]).max()) for name in ("start_ns", "end_ns"))


_DELAYED_SHARE = 0.05  # above this share of a rank's work, waits for a processor are reported
# The wait for the slowest rank is reported if it is at least this share of the makespan.
_NOTICEABLE = 0.01
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SlowestRank:
    """The rank that works longest, with its work (*work_ns*) and the median work of its peers (*median_ns*).

    *delayed_ns* is the part of the work that is waiting for a processor. The rank is the last to arrive at
    *last_at* of *collectives* collectives. *waited_ns* is the total time that the median rank waits for the
    slowest rank. In a captured job that was scaled out, *copies* other ranks repeat the same measured rank
    and are not peers.
    """

    rank: int
    work_ns: int
    median_ns: int
    last_at: int
    collectives: int
    waited_ns: int
    makespan_ns: int
    delayed_ns: int = 0
    copies: int = 0

    @property
    def sentence(self) -> str:
        """A sentence that names the slowest rank, its excess work, and the waiting time of its peers."""
        more = self.work_ns / self.median_ns - 1 if self.median_ns else 0.0
        others = f"{count_text(self.copies, 'other rank')} repeat{'s' * (self.copies == 1)}"
        copied = f" ({others} its times)" * bool(self.copies)
        lead = "Slowest" if more >= 0 else "Latest"  # the latest rank may do less work than its peers
        work = (
            f"{lead} rank: rank {self.rank}{copied} works {duration_text(self.work_ns)}, "
            f"{share_text(abs(more))} {'less' if more < 0 else 'more'} than the median of its peers "
            f"({duration_text(self.median_ns)})"
        )
        if self.delayed_ns > _DELAYED_SHARE * self.work_ns:
            work += f"; for {duration_text(self.delayed_ns)} of this time it waits for a processor"
        if not self.collectives:
            return (
                f"{work}. The ranks have no collective in common, so no rank waits for rank {self.rank} in "
                "one."
            )
        waits = (
            f"{work}. It arrives last at {self.last_at} of {self.collectives} collectives, where the "
            f"median rank waits {duration_text(self.waited_ns)} for it"
        )
        share = self.waited_ns / self.makespan_ns if self.makespan_ns else 0.0
        if share < _NOTICEABLE:
            return f"{waits}. This is too little to matter."
        excess_ns = max(0, self.work_ns - self.median_ns)
        if 2 * excess_ns >= self.waited_ns:
            return f"{waits}, {share_text(share)} of the step."
        return (
            f"{waits}, {share_text(share)} of the step. The additional work of rank {self.rank} explains at "
            f"most {duration_text(excess_ns)} of this waiting; for the rest, the rank begins later or works "
            f"in another order. `what-if --faster skew:{self.rank}=inf` simulates the step without this "
            "delay."
        )

    def to_json(self) -> dict[str, int]:
        """Return the figures of the slowest rank by name, without the makespan."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "makespan_ns"}


def slowest_rank(result: Result, workload: Workload | None = None) -> SlowestRank | None:
    """Return the rank of *result* that works longest before it waits for others; None for a single rank.

    The waits for a processor come from *workload*. All time except exposed communication counts as work, on
    the device or on the host. The slowest rank is the rank that its peers wait for longest. If no rank waits,
    the slowest rank is the rank with the most work. The result is also None if no rank waits and all ranks
    repeat one measured rank.
    """
    ranks = result.columns("ranks")
    numbers = ranks["rank"].astype(np.int64)
    if len(numbers) < 2:
        return None
    calls = result.columns("collectives")
    arrived = calls | {"start_ns": arrivals_of(result, calls)}
    late, last_at, collectives = _lateness(arrived, len(numbers))
    work = ranks["finish_ns"].astype(np.int64) - ranks["exposed_comm_ns"]
    slowest = int(np.argmax(late)) if late.any() else int(np.argmax(work))
    alike = np.zeros(len(numbers), bool)
    if workload is not None and _has_replicas(workload):
        programs = np.asarray(workload.program_of_rank)[numbers]
        alike = programs == programs[slowest]
        alike[slowest] = False
    if alike.sum() == len(numbers) - 1:
        if not late.any():
            return None
        alike[:] = False  # among equal ranks, only the network makes a rank late
    peers = np.delete(work, np.append(np.flatnonzero(alike), slowest))
    return SlowestRank(
        int(numbers[slowest]),
        int(work[slowest]),
        int(np.median(peers)),
        int(last_at[slowest]),
        collectives,
        int(late[slowest]),
        result.makespan_ns,
        0 if workload is None else cause_ns(workload.graph_of(int(numbers[slowest])), DELAYED),
        int(alike.sum()),
    )


def _has_replicas(workload: Workload) -> bool:
    """Return whether some ranks of *workload* repeat the times of measured ranks."""
    return bool(stood_in(workload.metadata)) or measured_ranks(workload) < workload.num_ranks


def _lateness(calls: Columns, ranks: int) -> tuple[Integers, Integers, int]:
    """Return how long and how often other ranks waited for each rank, and the number of collectives.

    The time of a wait is the time of the median member. Ranks that arrive last together count as last only if
    they are a minority of all ranks.
    """
    late, last_at = np.zeros(ranks, np.int64), np.zeros(ranks, np.int64)
    order = np.lexsort((calls["start_ns"], calls["collective"]))
    starts, rank = calls["start_ns"][order].astype(np.int64), calls["rank"][order]
    firsts = np.flatnonzero(np.diff(calls["collective"][order], prepend=-1))
    sizes = np.diff(firsts, append=len(order))
    latest = np.repeat(starts[firsts + sizes - 1], sizes)
    waits = latest - np.repeat(starts[firsts + (sizes - 1) // 2], sizes)
    is_last = (starts == latest) & (waits > 0)
    np.add.at(late, rank[is_last], waits[is_last])
    np.add.at(last_at, rank[is_last], 1)
    return late, last_at, int((sizes > 1).sum())
