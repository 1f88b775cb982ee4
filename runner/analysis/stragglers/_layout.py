"""Arrange a job's operations as dense arrays by operation, step and replica."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ....converter.readers import OPERATION_TYPES, OperationTable
from ....errors import TraceError

_MAX_REMARKS = 5


@dataclass(frozen=True)
class Operation:
    """One operation of each replica's step: the *number*-th of its *type* on its *stage*."""

    stage: int
    type: str
    number: int

    def __str__(self) -> str:
        return f"{self.type} {self.number} of stage {self.stage}"


@dataclass(frozen=True)
class Layout:
    """The steps of a job that have the same operations on all replicas.

    Arrays of times have the shape (operations, steps, replicas) and are integer ns. ``chunks``,
    ``model_chunks`` and ``micro_batches`` have one number per operation. ``ranks[replica, stage]`` is the
    rank that runs *stage* of *replica*. *remarks* list the steps that were left out, with reasons.
    """

    operations: tuple[Operation, ...]
    steps: npt.NDArray[np.int64]
    ranks: npt.NDArray[np.int64]
    start_ns: npt.NDArray[np.int64]
    duration_ns: npt.NDArray[np.int64]
    chunks: npt.NDArray[np.int64]
    model_chunks: npt.NDArray[np.int64]
    micro_batches: npt.NDArray[np.int64]
    remarks: tuple[str, ...]

    @property
    def replicas(self) -> int:
        """The number of data-parallel replicas."""
        return len(self.ranks)

    @property
    def stages(self) -> int:
        """The number of pipeline stages."""
        return len(self.ranks.T)

    @property
    def end_ns(self) -> npt.NDArray[np.int64]:
        """The end of each operation in ns (operations, steps, replicas)."""
        return self.start_ns + self.duration_ns

    def select(self, *types: str, stage: int = -1) -> npt.NDArray[np.int64]:
        """Return the indices of the operations of *types*, on one *stage* or all."""
        wanted = [op.type in types and stage in (-1, op.stage) for op in self.operations]
        return np.flatnonzero(wanted)


def lay_out(table: OperationTable) -> Layout:
    """Arrange the steps with the most common operations of *table*; raises `TraceError` without any."""
    columns = table.columns
    steps, step_of = np.unique(columns["step"], return_inverse=True)
    kinds, width = len(OPERATION_TYPES), int(columns["number"].max()) + 1
    codes, operation_of = np.unique(
        (columns["stage"] * kinds + columns["type"]) * width + columns["number"], return_inverse=True
    )
    replicas, stages = int(columns["replica"].max()) + 1, int(columns["stage"].max()) + 1
    operations = tuple(
        Operation(int(code) // width // kinds, OPERATION_TYPES[int(code) // width % kinds], int(code) % width)
        for code in codes
    )
    size = max(len(operations) * len(steps), stages) * replicas
    if size > 4 * len(columns["step"]) + 2**20:
        raise TraceError(
            f"{table.path}: {len(columns['step']):,} rows are too few for {len(steps):,} steps of "
            f"{replicas:,} replicas with {len(operations):,} operations. Next: check dp_rank, stage, seq_id."
        )
    rows = np.full((len(operations), len(steps), replicas), -1, np.int64)
    rows[operation_of, step_of, columns["replica"]] = np.arange(len(step_of))
    common_steps, remarks = _common_steps(table, operations, steps, rows >= 0)
    present = np.flatnonzero(rows[:, common_steps[0], 0] >= 0)
    rows = rows[present][:, common_steps]
    ranks = np.full((replicas, stages), -1, np.int64)
    ranks[columns["replica"], columns["stage"]] = columns["rank"]
    first = rows[:, 0, 0]
    return Layout(
        tuple(operations[place] for place in present),
        steps[common_steps],
        ranks,
        columns["start_ns"][rows],
        columns["duration_ns"][rows],
        columns["chunk"][first],
        columns["model_chunk"][first],
        columns["micro_batch"][first],
        remarks,
    )


def _common_steps(
    table: OperationTable,
    operations: tuple[Operation, ...],
    steps: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
) -> tuple[list[int], tuple[str, ...]]:
    """Return the steps with the most common operations on all replicas."""
    whole = (present == present[:, :, :1]).all(axis=(0, 2))
    patterns = [present[:, step, 0].tobytes() for step in range(len(steps))]
    counts = Counter(pattern for pattern, good in zip(patterns, whole, strict=True) if good)
    if not counts:
        raise TraceError(
            f"{table.path}: in no step do all replicas have the same operations, such as "
            f"{_difference(operations, steps, present, 0)}. Next: export whole steps of all ranks."
        )
    usual = max(counts, key=lambda pattern: counts[pattern])
    common_steps = [step for step in range(len(steps)) if whole[step] and patterns[step] == usual]
    wanted = present[:, common_steps[0], :1]
    left_out = [step for step in range(len(steps)) if step not in set(common_steps)]
    remarks = [
        f"left out: {_difference(operations, steps, present, step, wanted)}"
        for step in left_out[:_MAX_REMARKS]
    ]
    if len(left_out) > _MAX_REMARKS:
        remarks.append(f"left out: {len(left_out) - _MAX_REMARKS} more steps with other operations than most")
    return common_steps, tuple(remarks)


def _difference(
    operations: tuple[Operation, ...],
    steps: npt.NDArray[np.int64],
    present: npt.NDArray[np.bool_],
    step: int,
    wanted: npt.NDArray[np.bool_] | None = None,
) -> str:
    """Describe how *step* first differs from the operations *wanted*, or between its replicas."""
    of_step = present[:, step, :]
    usual = of_step.max(axis=1, keepdims=True) if wanted is None else wanted
    place, replica = (int(index[0]) for index in np.nonzero(of_step != usual))
    verb = "also has" if of_step[place, replica] else "lacks"
    return f"step {steps[step]}, in which dp_rank {replica} {verb} {operations[place]}"


def places_by_type(layout: Layout) -> dict[tuple[int, str], list[int]]:
    """Return the indices of the operations of each (stage, type), sorted by number."""
    places: dict[tuple[int, str], list[int]] = {}
    for place, operation in enumerate(layout.operations):
        places.setdefault((operation.stage, operation.type), []).append(place)
    return places
