"""Find causes of slow steps by what-if replays: the ideal job with the cause, and the job without it.

A cause is reported if the ideal step with only this cause is 3 % longer on average (the threshold
of "Understanding Stragglers in Large Model Training Using What-if Analysis", OSDI 2025), or 10 %
longer in some steps. The cause must also explain a tenth of these steps' slowdown, and exceed the delays of
an operating system's scheduler. If the slow steps have no pattern (every n-th step, or all since some
step), the average must be 3 % longer even without the longest tenth of steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....support import duration_text
from ._dependencies import COMPUTE_TYPES
from ._replay import Replay
from ._series import pattern_text, when_text
from ._slowdowns import Slowdowns, mask, micro_batch_factors, stage_factors, worker_factors

_PAUSES = {"input": "waiting for input", "gc": "garbage collection", "descheduled": "waiting for a processor"}
_MIN_SLOWDOWN = 1.03
_LEAST_IN_SOME_STEPS = 1.1
_MIN_STEPS, _MIN_SHARE_OF_STEPS = 2, 0.02
_MIN_PART = 0.1
_MIN_DELAY_NS = 5_000_000  # a few time slices; steps vary by this much on any machine
_MIN_CORRELATION = 0.9  # published threshold: sequence lengths differ above this correlation
_MIN_FACTOR = 1.03
_MIN_EXPLAINED = 0.5  # fraction of the unexplained time that one rank's delays must explain
_DEVIATIONS = 3  # standard deviations of the mean for random sequence lengths; closer workers are equal
_MAX_WORKERS = 16
_STANDS_OUT = 2


@dataclass(frozen=True)
class StragglerCause:
    """A cause of slow steps: its place, its cost, and the evidence.

    *kind* is ``sequence``, ``stage``, ``worker``, ``input``, ``gc``, ``descheduled``, ``network`` or
    ``host``. *steps* are the slowed steps. *slowdown* is the mean slowdown of these steps if the ideal step
    has only this cause, and *without_ns* is the job's mean step time without the cause. *when* and *evidence*
    are in words. *replica*, *stage* and *rank* are -1 if the cause affects several. *is_regular* means that
    *steps* are all steps or have a pattern.
    """

    kind: str
    where: str
    slowdown: float
    without_ns: int
    when: str
    evidence: str
    steps: tuple[int, ...]
    replica: int = -1
    stage: int = -1
    rank: int = -1
    is_regular: bool = True

    @property
    def is_contention(self) -> bool:
        """Whether all ranks, or one rank without a pattern, waited for processors: no rank is slow."""
        return self.kind == "descheduled" and (self.rank < 0 or not self.is_regular)


def causes(replay: Replay, slowdowns: Slowdowns) -> list[StragglerCause]:
    """Return the causes of the slowdown by total cost."""
    finder = _Finder(replay, slowdowns)
    every = [
        *finder.sequence(), *finder.stages(), *finder.workers(), *finder.pauses(), *finder.network(),
        *finder.host(),
    ]  # fmt: skip
    if any(cause.kind == "descheduled" for cause in every):
        # If processors are scarce, any work on a rank may be late at times.
        every = [cause for cause in every if cause.is_regular or cause.kind == "descheduled"]
    return sorted(every, key=lambda cause: -(cause.slowdown - 1) * len(cause.steps))


@dataclass(frozen=True)
class _Effect:
    """Each step's slowdown with only one cause (*alone*), and a mask of steps that the cause makes *slow*."""

    alone: npt.NDArray[np.float64]
    slow: npt.NDArray[np.bool_]


class _Finder:
    """Searches for one kind of cause after another, after removing the effect of sequence lengths."""

    def __init__(self, replay: Replay, slowdowns: Slowdowns) -> None:
        self.replay = replay
        self.layout = replay.layout
        self.slowdowns = slowdowns
        self.work = replay.work_ns.astype(np.float64)
        self.least_factor = _MIN_FACTOR

    def sequence(self) -> Iterator[StragglerCause]:
        """Yield unequal sequence lengths if micro-batches vary in time equally on all stages."""
        factors, correlation = micro_batch_factors(self.layout, self.replay.work_ns)
        effect = self._effect(self._alone(factors))
        if effect is not None and correlation >= _MIN_CORRELATION:
            evidence = (
                f"forward and backward times of micro-batches correlate {correlation:.2f} within steps, on "
                f"all stages; the longest takes {factors.max():.2f} times its mean"
            )
            yield self._cause("sequence", "all ranks", evidence, effect, self._without(factors))
            self.work /= factors
            computed = factors[self.layout.select(*COMPUTE_TYPES, stage=0)]
            self.least_factor += _DEVIATIONS * float(computed.std() / np.sqrt(computed[:, :, 0].size / 2))

    def stages(self) -> Iterator[StragglerCause]:
        """Yield pipeline stages that compute longer than other stages on most replicas."""
        every = stage_factors(self.layout, self.work)
        for stage in range(self.layout.stages):
            factors = np.broadcast_to(every[:, stage, None, None], self.work.shape)
            effect = self._effect(self._alone(factors))
            if factors.max() < _MIN_FACTOR or effect is None:
                continue
            ratios = [
                f"{kind} takes {every[places[0], stage]:.2f} times"
                for kind in COMPUTE_TYPES
                if len(places := self.layout.select(kind, stage=stage))
            ]
            evidence = f"{' and '.join(ratios)} as long as on the other stages"
            if self.layout.replicas == 1:
                evidence += "; with one replica, a slow worker looks the same"
            where = f"stage {stage}{', the last' if stage == self.layout.stages - 1 else ''}"
            without = self._without(factors)
            yield self._cause("stage", where, evidence, effect, without, stage=stage)

    def workers(self) -> Iterator[StragglerCause]:
        """Yield workers that compute longer than others of their stage."""
        every = worker_factors(self.layout, self.work)
        excess = np.where(every.max(axis=2) >= _MIN_FACTOR, np.maximum(every - 1, 0).mean(axis=2), 0)
        peers = "the other replicas of its stage" if self.layout.replicas > 1 else "in other steps"
        for flat in np.argsort(-excess, axis=None, kind="stable")[:_MAX_WORKERS]:
            replica, stage = (int(index) for index in np.unravel_index(flat, excess.shape))
            if not excess[replica, stage]:
                return
            factors = np.ones(self.work.shape)
            factors[self.layout.select(*COMPUTE_TYPES, stage=stage), :, replica] = every[replica, stage]
            effect = self._effect(self._alone(factors))
            ratio = 1.0 if effect is None else float(np.median(every[replica, stage, effect.slow]))
            if effect is not None and ratio >= self.least_factor:
                evidence = f"computes {ratio:.2f} times as long as {peers}"
                where, without = self._worker(replica, stage), self._without(factors)
                yield self._cause("worker", where, evidence, effect, without, replica=replica, stage=stage)

    def pauses(self) -> Iterator[StragglerCause]:
        """Yield pauses: long waits for input or a processor, and long garbage collections."""
        for kind, what in _PAUSES.items():
            places = self.layout.select(kind)
            measured = mask(self.layout, [op.type == kind for op in self.layout.operations])
            effect = self._effect(self._measured(measured))
            if effect is None or not len(places):
                continue
            taken = self.replay.work_ns[places][:, effect.slow].mean(axis=1)
            at, replica = np.unravel_index(int(taken.argmax()), taken.shape)
            others = float(np.delete(taken, taken.argmax()).max(initial=0))
            evidence = f"{what} takes {duration_text(round(float(taken.max())))} in these steps"
            where, place = "all ranks", {}
            if taken.max() >= _STANDS_OUT * others:
                place = {"replica": int(replica), "stage": self.layout.operations[places[at]].stage}
                where = self._worker(**place)
                evidence += f", on other ranks at most {duration_text(round(others))}"
            without = self._mean(self.replay.step_ns(~measured[None])[0])
            yield self._cause(kind, where, evidence, effect, without, **place)

    def network(self) -> Iterator[StragglerCause]:
        """Yield transfers slower than the median of their type after all members have arrived."""
        places = slow_transfers(self.replay, self.slowdowns.ideal_ns)
        named = [one for one in places if self._effect(self._measured(one.measured)) is not None]
        for transfers in joined(named):
            effect = self._effect(self._measured(transfers.measured))
            if effect is not None:
                evidence = (
                    f"transfers take {transfers.ratio:.2f} times the median of their type, counted from when "
                    "all members have begun"
                )
                without = self._mean(self.replay.step_ns(~transfers.measured[None])[0])
                place = {"replica": transfers.replica, "stage": transfers.stage}
                yield self._cause("network", transfers.name, evidence, effect, without, **place)

    def host(self) -> Iterator[StragglerCause]:
        """Yield a rank that began operations late, if operations alone do not explain the steps."""
        slowdowns = self.slowdowns
        unexplained_ns = slowdowns.recorded_ns - slowdowns.replayed_ns
        effect = self._effect(1 + unexplained_ns / slowdowns.ideal_ns)
        if effect is None:
            return
        delay = host_delay(self.replay, effect.slow)
        if delay.total_ns >= _MIN_EXPLAINED * np.median(unexplained_ns[effect.slow]):
            late = duration_text(delay.median_ns)
            reason = (
                "input pipeline or late start"
                if delay.is_first
                else ("garbage collection or a similar pause")
            )
            evidence = f"{delay.operation} begins {late} (median) after all that it waits for: {reason}"
            where, without = self._worker(delay.replica, delay.stage), slowdowns.replayed_ns.mean()
            place = {"replica": delay.replica, "stage": delay.stage}
            yield self._cause("host", where, evidence, effect, round(float(without)), **place)

    def _cause(
        self, kind: str, where: str, evidence: str, effect: _Effect, without_ns: int, **place: int
    ) -> StragglerCause:
        steps, slow = self.layout.steps, effect.slow
        if kind != "network" and "replica" in place:
            place["rank"] = int(self.layout.ranks[place["replica"], place["stage"]])
        return StragglerCause(
            kind=kind,
            where=where,
            slowdown=float(effect.alone[slow].mean()),
            without_ns=without_ns,
            when=when_text(steps, slow),
            evidence=evidence,
            steps=tuple(int(step) for step in steps[slow]),
            is_regular=self._is_regular(slow),
            **place,
        )

    def _worker(self, replica: int, stage: int) -> str:
        return f"rank {self.layout.ranks[replica, stage]} (dp_rank {replica}, stage {stage})"

    def _effect(self, alone: npt.NDArray[np.float64]) -> _Effect | None:
        """Return a cause's effect and slow steps, or None if it is too small to report."""
        least = _MIN_SLOWDOWN if alone.mean() >= _MIN_SLOWDOWN else _LEAST_IN_SOME_STEPS
        slow = (alone >= least) & ((alone - 1) * self.slowdowns.ideal_ns >= _MIN_DELAY_NS)
        if slow.sum() < min(len(slow), max(_MIN_STEPS, _MIN_SHARE_OF_STEPS * len(slow))):
            return None
        usual = np.sort(alone)[: math.ceil((1 - _MIN_PART) * len(alone))].mean()
        if usual < _MIN_SLOWDOWN and not self._is_regular(slow):
            return None
        total = self.slowdowns.recorded_ns[slow].mean() / self.slowdowns.ideal_ns - 1
        return _Effect(alone, slow) if alone[slow].mean() - 1 >= _MIN_PART * total else None

    def _is_regular(self, slow: npt.NDArray[np.bool_]) -> bool:
        return bool(slow.all()) or bool(pattern_text(self.layout.steps, slow))

    def _alone(self, factors: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """Return each step's slowdown with the ideal durations multiplied by *factors*."""
        durations = np.rint(self.replay.ideal_ns[:, None, None] * factors).astype(np.int64)
        return np.asarray(self.replay.step_ns_with(durations) / self.slowdowns.ideal_ns)

    def _measured(self, wanted: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
        """Return each step's slowdown if only *wanted* (operations, replicas) are as measured."""
        return np.asarray(self.replay.step_ns(wanted[None])[0] / self.slowdowns.ideal_ns)

    def _without(self, factors: npt.NDArray[np.float64]) -> int:
        """Return the mean step time (ns) with the measured durations divided by *factors*."""
        durations = np.rint(self.replay.work_ns / factors).astype(np.int64)
        return self._mean(self.replay.step_ns_with(durations))

    def _mean(self, replayed_ns: npt.NDArray[np.int64]) -> int:
        """Return the mean of *replayed_ns* with the recorded host delays added."""
        slowdowns = self.slowdowns
        return round(float((replayed_ns + slowdowns.recorded_ns - slowdowns.replayed_ns).mean()))


@dataclass(frozen=True)
class HostDelay:
    """The delay of steps by a host, most often before *operation* of *replica* and *stage*.

    *is_first* means that this is its rank's first operation in the step. *median_ns* is the median
    delay before it, and *total_ns* the median over all operations of the rank together.
    """

    operation: str
    replica: int
    stage: int
    is_first: bool
    median_ns: int
    total_ns: int


def host_delay(replay: Replay, steps: npt.NDArray[np.bool_]) -> HostDelay:
    """Return the host delay at the operation that most often has the longest delay in *steps*."""
    layout = replay.layout
    delays = replay.delays_ns()[:, steps]
    count = delays.shape[1]
    longest = delays.transpose(1, 0, 2).reshape(count, -1).argmax(axis=1)
    places, replicas = np.unravel_index(longest, (len(layout.operations), layout.replicas))
    workers = Counter(
        (int(replica), layout.operations[place].stage)
        for place, replica in zip(places, replicas, strict=True)
    )
    (replica, stage), _ = workers.most_common(1)[0]
    own = [
        (int(place), int(delays[place, at, replica]))
        for at, (place, other) in enumerate(zip(places, replicas, strict=True))
        if other == replica and layout.operations[place].stage == stage
    ]
    place = Counter(place for place, _ in own).most_common(1)[0][0]
    of_worker = [at for at, op in enumerate(layout.operations) if op.stage == stage]
    first = min(of_worker, key=lambda at: int(np.median(layout.start_ns[at, :, replica])))
    median = round(float(np.median([delay for _, delay in own])))
    total = round(float(np.median(delays[of_worker, :, replica].sum(axis=0))))
    return HostDelay(layout.operations[place].type, replica, stage, place == first, median, total)


_MESSAGES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
_MIN_EXCESS = 0.03  # least excess in any step, as a fraction of the ideal step
_MAX_PLACES = 16


@dataclass(frozen=True)
class Transfers:
    """The communication between the same workers, selected by *measured* (operations, replicas).

    *name* describes the place. *replica* or *stage* is -1 if all take part; a link leads from *stage* to the
    next stage. *ratio* is the mean time divided by the median time of transfers of the same type.
    """

    name: str
    measured: npt.NDArray[np.bool_]
    type: str
    replica: int
    stage: int
    ratio: float


def slow_transfers(replay: Replay, ideal_step_ns: int) -> list[Transfers]:
    """Return the transfers by place that could make a step 3 % longer, by mean cost."""
    excess = np.maximum(replay.work_ns - replay.ideal_ns[:, None, None], 0)
    costs = []
    for transfers in _places(replay):
        own = transfers.measured.any(axis=0)
        by_step = (excess[:, :, own] * transfers.measured[:, None, own]).max(axis=2, initial=0).sum(axis=0)
        if by_step.max() >= _MIN_EXCESS * ideal_step_ns:
            costs.append((float(by_step.mean()), transfers))
    costs.sort(key=lambda cost: -cost[0])
    return [transfers for _, transfers in costs[:_MAX_PLACES]]


def joined(places: Sequence[Transfers]) -> list[Transfers]:
    """Merge the transfers in *places* by type; the largest *ratio* counts."""
    by_type: dict[str, list[Transfers]] = {}
    for transfers in places:
        by_type.setdefault(transfers.type, []).append(transfers)
    return [_union(of_type) for of_type in by_type.values()]


def _union(places: Sequence[Transfers]) -> Transfers:
    """Return the union of transfers in *places*, all of the same type."""
    replicas, stages = {one.replica for one in places}, {one.stage for one in places}
    return Transfers(
        ", ".join(one.name for one in places),
        np.logical_or.reduce([one.measured for one in places]),
        places[0].type,
        replicas.pop() if len(replicas) == 1 else -1,
        stages.pop() if len(stages) == 1 else -1,
        max(one.ratio for one in places),
    )


def _places(replay: Replay) -> Iterator[Transfers]:
    layout = replay.layout
    for stage in range(layout.stages):
        for replica in range(layout.replicas):
            yield _link(replay, stage, replica)
    for kind in dict.fromkeys(op.type for op in layout.operations):
        place = int(layout.select(kind)[0])
        if kind in _MESSAGES or not replay.rules.communication[place]:
            continue
        if not replay.rules.across_replicas[place]:
            for replica in range(layout.replicas):
                name = f"{kind} of dp_rank {replica}"
                yield _collective(replay, kind, name, replica, -1)
        else:
            for stage in range(layout.stages):
                yield _collective(replay, kind, f"{kind} of stage {stage}", -1, stage)


def _link(replay: Replay, stage: int, replica: int) -> Transfers:
    """Return the messages between *stage* and the next stage of a replica, in both directions."""
    layout = replay.layout
    after = (stage + 1) % layout.stages
    ends = {"forward-send": stage, "forward-recv": after, "backward-recv": stage, "backward-send": after}
    measured = mask(layout, [ends.get(op.type) == op.stage for op in layout.operations], replica)
    ranks = layout.ranks[replica, [stage, after]]
    name = f"messages between ranks {ranks[0]} and {ranks[1]}"
    return Transfers(name, measured, "", replica, stage, _ratio(replay, measured))


def _collective(replay: Replay, kind: str, name: str, replica: int, stage: int) -> Transfers:
    wanted = [op.type == kind and stage in (-1, op.stage) for op in replay.layout.operations]
    measured = mask(replay.layout, wanted, replica)
    return Transfers(name, measured, kind, replica, stage, _ratio(replay, measured))


def _ratio(replay: Replay, measured: npt.NDArray[np.bool_]) -> float:
    places, replicas = np.nonzero(measured)
    ideal = float(replay.ideal_ns[places].sum())
    return float(replay.work_ns[places, :, replicas].mean(axis=1).sum()) / ideal if ideal > 0 else 1.0
