"""Rebuild the dependencies of each operation of a step, from the schedule of one replica.

The rules are those of "Understanding Stragglers in Large Model Training Using What-if Analysis" (OSDI 2025).
Computations run in sequence. A message waits for the computation before it. A receive waits for the
computation before the computation that needs its data. A collective waits for all members. All replicas and
steps run the same schedule, so the rules come from the first step of one replica.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from ....errors import TraceError
from ._layout import Layout, places_by_type

COMPUTE_TYPES = ("forward-compute", "backward-compute")
_CLOCK_NS = 50_000  # clocks of ranks differ by up to this
_NEIGHBOUR = {"forward-send": 1, "forward-recv": -1, "backward-send": -1, "backward-recv": 1}
_COUNTERPART = {"forward-send": "forward-recv", "backward-send": "backward-recv"}
_DATA_PARALLEL = ("params-all-gather", "grads-reduce-scatter", "separate-grads-all-reduce")
_CLIP, _EMBEDDING = "optimizer-clip-main-grad", "embedding-grads-all-reduce"
_WAITS = "collectives"  # all collectives of a step, as one operation of all ranks
_REDUCE, _SEPARATE, _LAYER_NORM = (
    "grads-reduce-scatter",
    "separate-grads-all-reduce",
    "layernorm-grads-all-reduce",
)


@dataclass(frozen=True)
class Dependencies:
    """Dependencies within a step of one replica; *before* lists each operation's predecessors.

    Operations of a group wait for each other, and end after the last operation of the group has started.
    Operations in *across_replicas* also wait for the same operation of all other replicas. *order* has the
    groups in topological order; other operations are groups of one.
    """

    before: tuple[tuple[int, ...], ...]
    order: tuple[tuple[int, ...], ...]
    communication: npt.NDArray[np.bool_]
    across_replicas: npt.NDArray[np.bool_]


def dependencies(layout: Layout) -> Dependencies:
    """Rebuild the dependencies of *layout*; raises `TraceError` for operations that fit no pipeline."""
    rules = _Rules(layout)
    for stage in range(layout.stages):
        rules.add_computations(stage)
        rules.add_messages(stage)
        rules.add_first_backward(stage)
        rules.add_data_parallel(stage)
        rules.add_end_of_step(stage)
    rules.add_groups()
    return rules.sorted()


class _Rules:
    """Collects the rules of one replica's step, stage by stage."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.start = layout.start_ns[:, 0, 0]
        self.end = layout.end_ns[:, 0, 0]
        self.before: list[list[int]] = [[] for _ in layout.operations]
        self.groups: list[list[int]] = []
        self.real: dict[tuple[int, str], list[int]] = {}
        self._of = places_by_type(layout)

    def of(self, stage: int, *types: str) -> list[int]:
        """Return the operations of *types* on *stage*, sorted by start."""
        places = [place for kind in types for place in self._of.get((stage, kind), [])]
        return sorted(places, key=lambda place: (self.start[place], self.layout.operations[place].number))

    def chain(self, places: list[int]) -> None:
        """Let each of *places* wait for the one before."""
        for first, second in pairwise(places):
            self.before[second].append(first)

    def add_computations(self, stage: int) -> None:
        """Let the computations of a stage run in sequence after the input."""
        if not self.of(stage, *COMPUTE_TYPES):
            raise TraceError(
                f"Stage {stage} has no forward-compute or backward-compute. Next: export all operations."
            )
        self.chain([*self.of(stage, "input"), *self.of(stage, *COMPUTE_TYPES)])

    def add_messages(self, stage: int) -> None:
        """Let messages wait for computations, and computations for the receives they need."""
        for kind in _NEIGHBOUR:
            places = self._of.get((stage, kind), [])
            self.chain(places)
            direction, _, way = kind.partition("-")
            computations = self._of.get((stage, f"{direction}-compute"), [])
            matched = self._matched(stage, kind, places, computations)
            self.real[stage, kind] = []
            for place, number in matched:
                computation = computations[number]
                if way == "send":
                    self.before[place].append(computation)
                else:
                    self.before[computation].append(place)
                    if number:
                        self.before[place].append(computations[number - 1])
                if self._has_neighbour(kind, computation):
                    self.real[stage, kind].append(place)

    def _matched(
        self, stage: int, kind: str, places: list[int], computations: list[int]
    ) -> list[tuple[int, int]]:
        """Return each message that was really sent, with the number of its computation.

        Frameworks log placeholders that were never sent: receives after the last computation, and sends
        before the first computation.
        """
        if not computations:
            return []
        if kind.endswith("recv"):
            last = max(self.start[place] for place in computations)
            ran = [place for place in places if self.start[place] <= last + _CLOCK_NS]
        else:
            first = min(self.end[place] for place in computations)
            ran = [place for place in places if self.end[place] >= first - _CLOCK_NS]
        missing = len(computations) - len(ran)
        if ran and missing not in (0, 1):
            raise TraceError(
                f"Stage {stage} has {len(ran)} {kind} for {len(computations)} computations. Next: export the "
                "messages of whole steps."
            )
        skipped = missing if kind.endswith("recv") else 0  # only the first receive of a chunk may be missing
        return [(place, number + skipped) for number, place in enumerate(ran)]

    def _has_neighbour(self, kind: str, computation: int) -> bool:
        """Return whether the model has a chunk next to that of *computation*, which needs a message."""
        chunk = int(self.layout.model_chunks[computation]) + _NEIGHBOUR[kind]
        return 0 <= chunk <= self._last_chunk

    @property
    def _last_chunk(self) -> int:
        return int(self.layout.model_chunks[self.layout.select(*COMPUTE_TYPES)].max())

    def add_first_backward(self, stage: int) -> None:
        """Let the first backward messages wait for the second-last computation before the first backward."""
        computations = self.of(stage, *COMPUTE_TYPES)
        types = [self.layout.operations[place].type for place in computations]
        first = types.index("backward-compute") if "backward-compute" in types else 0
        if first >= 2:
            for kind in ("backward-recv", "backward-send"):
                for place in self._of.get((stage, kind), [])[:1]:
                    self.before[place].append(computations[first - 2])

    def add_data_parallel(self, stage: int) -> None:
        """Let a chunk's first forward wait for its parameters, and its gradients for its last backward.

        A collective without a chunk (-1) belongs to the whole stage.
        """
        self.chain(self.of(stage, "params-all-gather", _REDUCE))
        chunks = self.layout.chunks
        gathers = {int(chunks[place]): place for place in self._of.get((stage, "params-all-gather"), [])}
        for chunk, gather in gathers.items():
            forward = [p for p in self.of(stage, "forward-compute") if chunk in (-1, chunks[p])]
            if forward:
                self.before[forward[0]].append(gather)
        if not self._overlaps():
            return
        reduces = {int(chunks[place]): place for place in reversed(self._of.get((stage, _REDUCE), []))}
        for chunk, reduce in reduces.items():
            backward = [p for p in self.of(stage, "backward-compute") if chunk in (-1, chunks[p])]
            if backward:
                self.before[reduce].append(max(backward, key=lambda place: self.end[place]))

    def _overlaps(self) -> bool:
        """Return whether gradients are reduced while backward computations run."""
        return any(op.type == _SEPARATE for op in self.layout.operations)

    def add_end_of_step(self, stage: int) -> None:
        """Let the operations after the last computation run in a fixed order."""
        last = max(self.of(stage, *COMPUTE_TYPES), key=lambda place: self.end[place])
        reduces = self._of.get((stage, _REDUCE), [])
        types = [
            _LAYER_NORM,
            _EMBEDDING,
            _SEPARATE if self._overlaps() else _REDUCE,
            _CLIP,
            _WAITS,
            "optimizer",
        ]
        after = [place for kind in types for place in self._of.get((stage, kind), [])]
        pauses = [place for kind in ("gc", "descheduled") for place in self._of.get((stage, kind), [])]
        self.chain([last, *pauses, *after])
        if self._overlaps() and after and reduces:
            self.before[after[0]].append(reduces[-1])

    def add_groups(self) -> None:
        """Pair the messages between two stages in order of exchange, and group the collectives."""
        stages = self.layout.stages
        for send, receive in _COUNTERPART.items():
            for stage in range(stages):
                other = (stage + _NEIGHBOUR[send]) % stages
                sent, received = self.real[stage, send], self.real[other, receive]
                if len(sent) != len(received):
                    raise TraceError(
                        f"Stage {stage} has {len(sent)} {send}, stage {other} has {len(received)} {receive}: "
                        "they do not match. Next: export the messages of all stages, or none."
                    )
                self.groups += [[one, two] for one, two in zip(sent, received, strict=True)]
        ends = [place for stage in {0, stages - 1} for place in self._of.get((stage, _EMBEDDING), [])]
        whole = [
            [place for stage in range(stages) for place in self._of.get((stage, kind), [])]
            for kind in (_CLIP, _WAITS)
        ]
        self.groups += [group for group in (ends, *whole) if group]
        joined = {place for group in self.groups for place in group}
        alone = self.layout.select(*_NEIGHBOUR, *_DATA_PARALLEL, _EMBEDDING)
        self.groups += [[int(place)] for place in alone if place not in joined]

    def sorted(self) -> Dependencies:
        """Return the dependencies with a topological order for replays."""
        count = len(self.layout.operations)
        communication = np.zeros(count, bool)
        communication[[place for group in self.groups for place in group]] = True
        units = [*self.groups, *([place] for place in range(count) if not communication[place])]
        unit_of = {place: number for number, unit in enumerate(units) for place in unit}
        after: list[list[int]] = [[] for _ in units]
        waits = [0] * len(units)
        for number, unit in enumerate(units):
            for earlier in {unit_of[place] for member in unit for place in self.before[member]}:
                after[earlier].append(number)
                waits[number] += 1
        ready = [number for number, count in enumerate(waits) if not count]
        order: list[tuple[int, ...]] = []
        while ready:
            number = ready.pop()
            order.append(tuple(units[number]))
            for later in after[number]:
                waits[later] -= 1
                if not waits[later]:
                    ready.append(later)
        if len(order) < len(units):
            stuck = next(units[number][0] for number, count in enumerate(waits) if count)
            raise TraceError(
                f"{self.layout.operations[stuck]} waits for itself: the order of operations on the ranks "
                "does not fit any pipeline schedule. Next: check start_ts and seq_id."
            )
        across = np.zeros(count, bool)
        across[self.layout.select(*_DATA_PARALLEL, _CLIP, _WAITS)] = True
        return Dependencies(
            tuple(tuple(dict.fromkeys(before)) for before in self.before), tuple(order), communication, across
        )
