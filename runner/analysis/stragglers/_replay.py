"""Replay steps as exact longest paths over the arrays of a layout, many what-ifs at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from ._dependencies import COMPUTE_TYPES, Dependencies
from ._layout import Layout

_MEAN_TYPES = ("forward-compute", "backward-compute", "gc", "optimizer")
_LATE_CLOCK_NS = 10_000_000  # a transfer that ends at most this long before it begins counts as 0
_MAX_NS = 2**62
_MAX_NUMBERS = 2**24  # maximum number of array entries in memory at once


class Replay:
    """Replays the steps of *layout* with other durations under the dependency *rules*.

    *work_ns* (operations, steps, replicas) is the duration of each operation without waiting: the
    measured duration of a computation, and the time from the last member's start for communication.
    *ideal_ns* has one value per operation: for computation the mean over all ranks and steps, for
    communication the median, and for input the median over steps of the lower median over replicas.
    """

    def __init__(self, layout: Layout, rules: Dependencies) -> None:
        self.layout = layout
        self.rules = rules
        self.work_ns, self.backward_transfers = _without_waiting(layout, rules)
        self.ideal_ns = _ideal(layout, self.work_ns)

    def step_ns(self, measured: npt.NDArray[np.bool_]) -> npt.NDArray[np.int64]:
        """Return the step times (what-ifs, steps) if only *measured* operations are as measured.

        *measured* has the shape (what-ifs, operations, replicas). All other operations take `ideal_ns`.
        """

        def block(what_ifs: slice, steps: slice) -> npt.NDArray[np.int64]:
            masks, work = measured[what_ifs, :, None], self.work_ns[:, steps]
            return self._replay(lambda place: np.where(masks[:, place], work[place], self.ideal_ns[place]))

        return self._in_blocks(len(measured), self.layout.replicas, block)

    def step_ns_of_replicas(self) -> npt.NDArray[np.int64]:
        """Return the step times (replicas, steps) if only one replica's operations are as measured.

        All other replicas are identical, so one replica represents the rest.
        """

        def block(replicas: slice, steps: slice) -> npt.NDArray[np.int64]:
            def durations(place: int) -> npt.NDArray[np.int64]:
                own = self.work_ns[place, steps, replicas].T
                others = np.broadcast_to(self.ideal_ns[place], own.shape)
                return np.stack([own, others] if self.layout.replicas > 1 else [own], axis=2)

            return self._replay(durations)

        return self._in_blocks(self.layout.replicas, 2, block)

    def step_ns_with(self, durations_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return the step times with *durations_ns* (operations, steps, replicas)."""

        def block(_: slice, steps: slice) -> npt.NDArray[np.int64]:
            return self._replay(lambda place: durations_ns[place, None, steps])

        return np.asarray(self._in_blocks(1, durations_ns.shape[2], block)[0])

    def _in_blocks(
        self, what_ifs: int, replicas: int, block: Callable[[slice, slice], npt.NDArray[np.int64]]
    ) -> npt.NDArray[np.int64]:
        """Return the step times of *what_ifs*, block by block to bound memory."""
        steps = len(self.layout.steps)
        columns = max(1, _MAX_NUMBERS // (len(self.layout.operations) * replicas))
        many = max(1, min(what_ifs, columns // steps))
        results = np.empty((what_ifs, steps), np.int64)
        for first in range(0, what_ifs, many):
            for start in range(0, steps, columns // many):
                place = slice(first, first + many), slice(start, start + columns // many)
                results[place] = block(*place)
        return results

    def _replay(self, durations: Callable[[int], npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
        """Return the duration (ns) of each step; *durations* returns ns by (what-ifs, steps, replicas)."""
        ends: dict[int, npt.NDArray[np.int64]] = {}
        finish: npt.NDArray[np.int64] | None = None
        for unit in self.rules.order:
            begin: npt.NDArray[np.int64] | None = None
            for place in unit:
                for earlier in self.rules.before[place]:
                    begin = ends[earlier] if begin is None else np.maximum(begin, ends[earlier])
            if begin is not None and self.rules.across_replicas[unit[0]]:
                begin = begin.max(axis=2, keepdims=True)
            for place in unit:
                taken = durations(place)
                ends[place] = end = taken if begin is None else begin + taken
                last = end.max(axis=2)
                finish = last if finish is None else np.maximum(finish, last)
        assert finish is not None
        return finish

    def delays_ns(self) -> npt.NDArray[np.int64]:
        """Return the delay in ns of each operation after its predecessors (operations, steps, replicas).

        The table does not explain this time: the host was late, or did other work. For communication, only
        the delay of the last member counts, because the other members wait for it. For a receive, the delay
        counts from the end of the previous computation.
        """
        start, end = self.layout.start_ns, self.layout.end_ns
        begin_of_step = start.min(axis=(0, 2), keepdims=True)[0]
        delays = np.empty_like(start)
        for place, before in enumerate(self.rules.before):
            ready = begin_of_step
            for number, earlier in enumerate(before):
                ready = end[earlier] if not number else np.maximum(ready, end[earlier])
            delays[place] = start[place] - ready
        for receive, computation in self._computations_before_receives():
            late = start[receive] - np.minimum(end[computation], start[receive])
            delays[receive] = np.minimum(delays[receive], late)
        for unit in self.rules.order:
            delays[list(unit)] *= start[list(unit)] == _latest(self.layout, self.rules, unit)
        return np.maximum(delays, 0)

    def _computations_before_receives(self) -> Iterator[tuple[int, int]]:
        """Yield each receive that a computation waits for, with the preceding computation."""
        types = [operation.type for operation in self.layout.operations]
        for needing, before in enumerate(self.rules.before):
            if types[needing] not in COMPUTE_TYPES:  # a receive also waits for earlier operations
                continue
            for computation in (place for place in before if types[place] in COMPUTE_TYPES):
                yield from ((place, computation) for place in before if types[place].endswith("-recv"))


def _without_waiting(layout: Layout, rules: Dependencies) -> tuple[npt.NDArray[np.int64], int]:
    """Return durations (ns) without waits for other members, and how many transfers ended too early."""
    work, end, backward = layout.duration_ns.copy(), layout.end_ns, 0
    for unit in rules.order:
        if not rules.communication[unit[0]]:
            continue
        latest = _latest(layout, rules, unit)
        for place in unit:
            transfer = end[place] - latest
            late = transfer <= -_LATE_CLOCK_NS
            backward += int(late.sum())
            work[place] = np.where(late, 0, transfer)
    waits = layout.select("collectives")  # the shortest wait of a step is that of the last member
    work[waits] = layout.duration_ns[waits].min(axis=(0, 2), keepdims=True, initial=_MAX_NS)
    return work, backward


def _latest(layout: Layout, rules: Dependencies, unit: tuple[int, ...]) -> npt.NDArray[np.int64]:
    """Return the start of the last member of *unit* in ns (steps, replicas)."""
    latest: npt.NDArray[np.int64] = layout.start_ns[list(unit)].max(axis=0)
    return latest.max(axis=1, keepdims=True) if rules.across_replicas[unit[0]] else latest


def _ideal(layout: Layout, work: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    ideal = np.zeros(len(layout.operations), np.int64)
    for kind in {op.type for op in layout.operations}:
        places = layout.select(kind)
        values = work[places]
        if kind == "input":  # a late rank among two ranks must not raise the ideal
            values = np.sort(values, axis=2)[:, :, (layout.replicas - 1) // 2]
        ideal[places] = round(float(values.mean() if kind in _MEAN_TYPES else np.median(values)))
    return ideal
