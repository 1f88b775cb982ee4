"""Links and collectives that transfer slowly once all members are there, by place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ._replay import Replay
from ._slowdowns import mask

_MESSAGES = ("forward-send", "forward-recv", "backward-send", "backward-recv")
_LEAST_EXCESS = 0.03  # of the ideal step, in some step
_MOST_PLACES = 16


@dataclass(frozen=True)
class Transfers:
    """The communication between the same workers, selected by *measured* (operations, replicas).

    *name* describes its place. *replica* and *stage* are -1 if the transfers span all of them; a link leads
    from *stage* to the next. *ratio* is the mean transfer over the median of its type.
    """

    name: str
    measured: npt.NDArray[np.bool_]
    type: str
    replica: int
    stage: int
    ratio: float


def slow_transfers(replay: Replay, ideal_step_ns: int) -> list[Transfers]:
    """Return the places whose transfers could make a step 3 % longer, those that cost most first."""
    excess = np.maximum(replay.work_ns - replay.ideal_ns[:, None, None], 0)
    costs = []
    for transfers in _places(replay):
        own = transfers.measured.any(axis=0)
        by_step = (excess[:, :, own] * transfers.measured[:, None, own]).max(axis=2, initial=0).sum(axis=0)
        if by_step.max() >= _LEAST_EXCESS * ideal_step_ns:
            costs.append((float(by_step.mean()), transfers))
    costs.sort(key=lambda cost: -cost[0])
    return [transfers for _, transfers in costs[:_MOST_PLACES]]


def joined(places: Sequence[Transfers]) -> list[Transfers]:
    """Return *places* with those of one type as one; *ratio* is that of the slowest."""
    by_type: dict[str, list[Transfers]] = {}
    for transfers in places:
        by_type.setdefault(transfers.type, []).append(transfers)
    return [_union(of_type) for of_type in by_type.values()]


def _union(places: Sequence[Transfers]) -> Transfers:
    """Return the union of *places*, which have one type."""
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
    """Return the messages between *stage* and the next one of a replica, in both directions."""
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
