"""How large the gradients of each part of a stage are, and whether other stages can reduce theirs so."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from ....converter.chakra import CollectiveType, NodeType
from ....errors import WorkloadError
from ._turns import BACKWARD, BEFORE, BEHIND, END, FORWARD, Key, Stage

__all__ = ["check_reductions", "has_reductions", "weights_of"]

_REDUCTIONS = (CollectiveType.ALL_REDUCE, CollectiveType.REDUCE_SCATTER)
_TENSORS = 3  # that an addition reads and writes
_SMALL = 0.01  # of all gradients: a norm or a loss
_INSTEAD = (
    "Shard the layers one by one (FSDP), or let DistributedDataParallel reduce all gradients at once "
    "(bucket_cap_mb above their size), and capture again; or capture the stages you want."
)


def weights_of(stage: Stage, part: int | str | None = None) -> float:
    """Return the bytes of the gradients that are added up in *part* of a backward pass, or in all of it.

    In a capture of one micro-batch, which adds up nothing, the operations of its forward pass stand for them.
    """
    parts: list[int | str] = [*range(stage.depth), BEFORE, BEHIND] if part is None else [part]
    if stage.micro_batches > 1:
        return float(sum(_added_up(stage, (BACKWARD, 1, one)) for one in parts))
    nodes = stage.graph.node_columns
    spans = [stage.blocks[FORWARD, 0, one] for one in parts]
    return float(sum(np.maximum(nodes["num_ops"][begin:end], 0).sum() for begin, end in spans))


def _added_up(stage: Stage, key: Key) -> int:
    """Return the bytes that are added to gradients in a block: additions that are of no module."""
    begin, end = stage.blocks[key]
    nodes = stage.graph.node_columns
    operator, module = nodes["operator"], nodes["module"]
    adds = operator[begin:end] == "aten::add_"
    plain = module[begin:end] == ""
    moved = nodes["tensor_size_bytes"][begin:end][adds & plain & (nodes["num_ops"][begin:end] > 1)]
    return int(moved.sum()) // _TENSORS


def has_reductions(stages: Iterable[Stage]) -> bool:
    """Return whether the stages reduce anything in their passes or behind them."""
    return any(_reductions(stage) for stage in stages)


def check_reductions(stage: Stage, *, alone: bool) -> None:
    """Refuse gradients that are reduced neither layer by layer nor all at once.

    All at once is refused, too, where the stage is *alone*, without any that shows when others reduce theirs.
    """
    whole = round(weights_of(stage))
    if alone and any(size == whole for _, size in _reductions(stage)):
        raise WorkloadError(
            f"Rank {stage.graph.rank} reduces all gradients at once, and when each stage of a pipeline would "
            "reduce its own is not in a capture without stages. Capture the job with two stages."
        )
    ordinary = sorted(size for _, size in _reductions(stage, stage.depth - 1))
    for key, size in _reductions(stage):
        if size == whole or size < _SMALL * whole:
            continue
        part = key[2]
        inside = isinstance(part, int) and key[0] in (FORWARD, BACKWARD)
        if inside and sorted(other for _, other in _reductions(stage, part)) == ordinary:
            continue
        if key != END and part in (BEFORE, BEHIND) and size <= weights_of(stage, part):
            continue
        raise WorkloadError(
            f"Rank {stage.graph.rank} reduces the gradients of several layers together, in buckets that "
            "other stages would fill differently, or those of tied embeddings, which other stages would not "
            f"share. {_INSTEAD}"
        )


def _reductions(stage: Stage, part: int | str | None = None) -> list[tuple[Key, int]]:
    """Return the reductions of backward passes and behind them: which block each is in, and its bytes."""
    nodes = stage.graph.node_columns
    reduces = (nodes["type"] == NodeType.COMM_COLL) & np.isin(nodes["comm_type"], _REDUCTIONS)
    rows = np.flatnonzero(reduces).tolist()
    found = [(stage.key_of_row(row), int(nodes["comm_size_bytes"][row])) for row in rows]
    return [
        (key, size)
        for key, size in found
        if key[0] != FORWARD and (part is None or (key[2] == part and key != END))
    ]
