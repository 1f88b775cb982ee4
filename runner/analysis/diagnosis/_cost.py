"""The cost of an anomaly, from a replay of the run's records without the anomaly.

The replay needs no network model. Messages and computations keep their durations, and their delays after
their dependencies, except where the anomaly changed these. Without changes, the replay reproduces the run.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ....converter import NodeType
from ....support.table import Floats, Ints
from ..._result import Result
from ._hosts import SlowHost
from ._rates import Rates, SlowPart
from ._stalls import Stall, late_ns


@dataclass(frozen=True)
class Cost:
    """The time in ns that an anomaly adds to the step, with the interval *low_ns* to *high_ns*."""

    ns: int
    low_ns: int
    high_ns: int


@dataclass(frozen=True, eq=False)
class Replay:
    """A run's messages and computations in order of start, with their dependencies.

    *began_ns* and *took_ns* cover messages first, then computations. *events* are the arrivals and ends on
    each rank in order of time. *cause* is the index in *events* of the last event before a message or
    computation began (-1: none). *before* is the message on the same path that a message queued behind (-1:
    none).
    """

    makespan_ns: int
    messages: int
    rank: Ints
    began_ns: Ints
    took_ns: Ints
    cause: Ints
    before: Ints
    order: Ints
    events: tuple[Ints, ...]

    @classmethod
    def of(cls, result: Result, nodes: pd.DataFrame) -> Replay:
        """Return the replay of *result*; *nodes* are its nodes with their types."""
        flows = result.flows
        compute = nodes[(nodes["type"] == NodeType.COMP) & (nodes["end_ns"] > nodes["start_ns"])]
        began = np.concatenate([flows["start_ns"], compute["start_ns"]]).astype(np.int64)
        ended = np.concatenate([flows["end_ns"], compute["end_ns"]]).astype(np.int64)
        rank = np.concatenate([flows["src"], compute["rank"]]).astype(np.int64)
        at = np.concatenate([flows["dst"], compute["rank"]]).astype(np.int64)
        before = _before(flows)
        queued = before >= 0
        free = np.where(queued, ended[before], 0)
        took = ended - np.maximum(began, np.pad(free, (0, len(began) - len(free))))
        cause = np.full(len(began), -1, np.int64)
        events = []
        for one in range(int(max(rank.max(initial=-1), at.max(initial=-1))) + 1):
            there = np.flatnonzero(at == one)
            there = there[np.argsort(ended[there], kind="stable")]
            own = np.flatnonzero(rank == one)
            cause[own] = np.searchsorted(ended[there], began[own], side="right") - 1
            events.append(there)
        order = np.lexsort((ended, began))
        padded = np.pad(before, (0, len(began) - len(before)), constant_values=-1)
        return cls(result.makespan_ns, len(flows), rank, began, took, cause, padded, order, tuple(events))

    def makespan(self, took_ns: Floats) -> float:
        """Return the duration of the run in ns if messages and computations take *took_ns*.

        A computation waits for all earlier arrivals at its rank, a message only for the event it
        followed in the run.
        """
        first = self._ends(self.took_ns.astype(np.float64), None)
        ended = self._ends(took_ns, first)
        return float(self.makespan_ns - first.max(initial=0.0) + ended.max(initial=0.0))

    def _ends(self, took_ns: Floats, original: Floats | None) -> Floats:
        """Return the end of each message and computation in ns.

        *original* are the recorded ends, or None while these are being reproduced.
        """
        ended = np.zeros(len(took_ns))
        reached = [0] * len(self.events)
        latest = [0.0] * len(self.events)
        for item in self.order.tolist():
            rank, cause, began = int(self.rank[item]), int(self.cause[item]), float(self.began_ns[item])
            if original is not None and cause >= 0:
                events = self.events[rank]
                delay = began - original[events[cause]]
                if item < self.messages:
                    began = ended[events[cause]] + delay
                else:
                    while reached[rank] <= cause:
                        latest[rank] = max(latest[rank], ended[events[reached[rank]]])
                        reached[rank] += 1
                    began = latest[rank] + delay
            before = int(self.before[item])
            ended[item] = max(began, ended[before] if before >= 0 else 0.0) + took_ns[item]
        return ended


def _before(flows: pd.DataFrame) -> Ints:
    """Return each message's previous message on its path that was in flight at its start, or -1."""
    ordered = flows[["src", "dst", "start_ns", "end_ns"]].reset_index(drop=True)
    ordered = ordered.sort_values(["src", "dst", "end_ns", "start_ns"], kind="stable")
    same = (ordered[["src", "dst"]] == ordered[["src", "dst"]].shift()).all(axis=1)
    waits = (
        same
        & (ordered["end_ns"].shift() > ordered["start_ns"])
        & (ordered["start_ns"].shift() <= ordered["start_ns"])
    )
    rows = ordered.index.to_numpy(np.int64)
    result = np.full(len(flows), -1, np.int64)
    result[rows[1:][waits.to_numpy()[1:]]] = rows[:-1][waits.to_numpy()[1:]]
    return result


def cost_of_part(part: SlowPart, replay: Replay, rates: Rates) -> Cost:
    """Return the cost of a slow NIC or link: a replay with the rates of a healthy NIC or link."""
    rest = [(suspect, factor) for suspect, factor in rates.applied if suspect is not part.suspect]

    def without(factor: float) -> float:
        slow, sound = rates.with_slow([*rest, (part.suspect, factor)]), rates.with_slow(rest)
        times = np.exp(sound.log_rate - slow.log_rate)
        return replay.makespan(_scaled(replay, rates.messages.row, times))

    return _cost(replay, without, part.factor, part.low, part.high)


def cost_of_host(host: SlowHost, replay: Replay) -> Cost:
    """Return the cost of a slow host: a replay in which it computes at the expected speed."""
    own = np.flatnonzero(np.isin(replay.rank, host.ranks))
    own = own[own >= replay.messages]

    def without(factor: float) -> float:
        return replay.makespan(_scaled(replay, own, np.full(len(own), 1 / factor)))

    return _cost(replay, without, host.factor, host.low, host.high)


def cost_of_stall(stall: Stall, replay: Replay, rates: Rates) -> Cost:
    """Return the cost of a stalled link: a replay in which its messages are not late."""
    held = np.isin(rates.messages.row, stall.evidence)
    rows, lost = rates.messages.row[held], late_ns(rates)[held]

    def without(share: float) -> float:
        took = replay.took_ns.astype(np.float64)
        took[rows] = np.maximum(0.0, took[rows] - share * lost)
        return replay.makespan(took)

    spread = stall.longest_ns / max(1, stall.shortest_ns)
    return _cost(replay, without, 1.0, 1 / spread, 1.0)


def _scaled(replay: Replay, rows: Ints, times: Floats) -> Floats:
    took = replay.took_ns.astype(np.float64)
    took[rows] *= times
    return took


def _cost(replay: Replay, without: Callable[[float], float], *values: float) -> Cost:
    costs = [max(0, round(replay.makespan_ns - without(value))) for value in values]
    return Cost(costs[0], min(costs), max(costs))
