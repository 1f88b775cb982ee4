"""Tables of ranks by finish and waiting time, with equal ranks and the slowest rank."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.building import stand_in_assumption
from ...converter.chakra import DELAYED
from ...support import count_text, duration_text, share_text
from ...support.table import Columns
from .._result import Result
from ._advice import Simulate, replayed
from ._collectives import arrivals_of
from ._foreign_times import measured_ranks
from ._host_time import cause_ns
from ._summary import rank_times
from ._what_if import Target

if TYPE_CHECKING:
    import pandas as pd

# Ranks of one program are equal if no node's time differs by more than this fraction of the makespan.
_SAME_SHARE = 0.001
# A rank is compared with at most this many distinct ranks of its program; others count as unequal.
_MAX_KINDS = 32


def rank_standings(result: Result, workload: Workload) -> pd.DataFrame:
    """Return a row per rank: ``rank, finish_ns, exposed_comm_ns, waiting_ns, same_as, apart_ns``.

    ``waiting_ns`` is the time that the rank waits for other ranks in collectives. ``same_as`` is the lowest
    rank that runs the same program at the same times, within 0.1 % of the makespan, or the rank itself.
    ``apart_ns`` is the largest difference between the two ranks in the start or end of a node.
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
    """Return each rank's lowest equal rank, and the largest time difference (ns) between the two.

    Ranks with a unique program are left out.
    """
    programs = np.asarray(workload.program_of_rank)
    # A rank with a unique program equals no other rank, so its nodes are not read.
    shared = set(np.flatnonzero(np.bincount(programs)[programs] > 1).tolist()) if len(programs) else set()
    kinds: dict[int, list[tuple[int, Columns]]] = {}
    same: dict[int, tuple[int, int]] = {}
    for rank, own in result.table("nodes").by_rank(["start_ns", "end_ns"], shared.__contains__):
        classes = kinds.setdefault(int(programs[rank]), [])
        differences = ((other, _largest_difference_ns(own, its)) for other, its in classes)
        like = next((pair for pair in differences if 0 <= pair[1] <= _SAME_SHARE * result.makespan_ns), None)
        same[rank] = like or (rank, 0)
        if like is None and len(classes) < _MAX_KINDS:
            classes.append((rank, own))
    return same


def _largest_difference_ns(one: Columns, other: Columns) -> int:
    """Return the largest time difference (ns) between the nodes of two ranks, -1 if the nodes differ."""
    if not np.array_equal(one["node_id"], other["node_id"]):
        return -1
    return max(int(np.abs(one[name] - other[name]).max()) for name in ("start_ns", "end_ns"))


_DELAYED_SHARE = 0.05  # fraction of a rank's work from which waits for a processor are reported
# Fraction of the makespan from which the wait for the slowest rank is reported.
_NOTICEABLE = 0.01
Integers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class SlowestRank:
    """The rank that works longest: its work (*work_ns*), and the median of its peers (*median_ns*).

    *delayed_ns* of the work is waiting for a processor. The rank arrives last at *last_at* of
    *collectives* collectives, and the median rank waits for it for *waited_ns* in total. In a
    captured job that was scaled out, *copies* other ranks repeat the same measured rank and are no
    peers. *gain_ns* is the gain of a replay with an even load, None if the run was not replayed.
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
    gain_ns: int | None = None

    @property
    def sentence(self) -> str:
        """Name the slowest rank, its excess work, and how long its peers wait, in a sentence."""
        more = self.work_ns / self.median_ns - 1 if self.median_ns else 0.0
        others = f"{count_text(self.copies, 'other rank')} repeat{'s' * (self.copies == 1)}"
        copied = f" ({others} its times)" * bool(self.copies)
        lead = "Slowest" if more >= 0 else "Latest"  # the latest rank may have less work than its peers
        work = (
            f"{lead} rank: rank {self.rank}{copied} needs {duration_text(self.work_ns)} for its work, "
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
        waits += f", {share_text(share)} of the step."
        if 2 * excess_ns < self.waited_ns:
            explained = (
                f" The additional work of rank {self.rank} explains at most {duration_text(excess_ns)} of "
                "this waiting; for the rest, the rank"
            )
            waits += f"{explained if excess_ns else ' It'} starts later, or works in another order."
        command = f"`what-if --faster skew:{self.rank}=inf`"
        if self.gain_ns is None:
            return f"{waits} {command} simulates an even load."
        if self.gain_ns >= _NOTICEABLE * self.makespan_ns:
            return (
                f"{waits} With an even load, this step would be {duration_text(self.gain_ns)} shorter "
                f"({command})."
            )
        return f"{waits} An even load would shorten this step by less than 1 % ({command})."

    def to_json(self) -> dict[str, int | None]:
        """Return the figures by name, except the makespan."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "makespan_ns"}


def slowest_rank(
    result: Result, workload: Workload | None = None, simulate: Simulate | None = None
) -> SlowestRank | None:
    """Return the rank of *result* for which peers wait longest or, without waits, that works longest.

    All time except exposed communication is work, on the device or the host. Waits for a processor
    come from *workload*, and the gain of an even load from a replay by *simulate*. Returns None for a
    single rank, and if no rank waits and all repeat one measured rank.
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
    if workload is not None and (
        stand_in_assumption(workload.metadata) or measured_ranks(workload) < workload.num_ranks
    ):
        programs = np.asarray(workload.program_of_rank)[numbers]
        alike = programs == programs[slowest]
        alike[slowest] = False
    if alike.sum() == len(numbers) - 1:
        if not late.any():
            return None
        alike[:] = False  # all ranks do equal work, so only the network can make one late
    peers = np.delete(work, np.append(np.flatnonzero(alike), slowest))
    even = replayed(simulate, (Target("skew", str(numbers[slowest])), math.inf))
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
        None if even is None else max(0, result.makespan_ns - even.makespan_ns),
    )


def _lateness(calls: Columns, ranks: int) -> tuple[Integers, Integers, int]:
    """Return the time and number of waits for each rank, and the number of collectives.

    A wait is the wait of the median member. Ranks that arrive last together count only if they are a
    minority.
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
