"""The operators that copy to and from the buffers of collectives."""

from __future__ import annotations

import numpy as np

from .._columns import which
from ..chakra import BUFFERS
from ..readers import Ops

# What copies to and from the buffers of collectives: ranges of torch/csrc/distributed/c10d/reducer.cpp, and
# operators of torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py.
_BUFFER_COPIES = {
    "torch::distributed::reducer::mul_out": "all_reduce",
    "torch.distributed.ddp.reducer::copy_bucket_to_grad": "all_reduce",
    "fsdp::all_gather_copy_in": "all_gather",
    "fsdp::split_with_sizes_copy": "all_gather",
    "fsdp::chunk_cat": "reduce_scatter",
}


def buffers_of(ops: Ops) -> list[str]:
    """Return the place of each operator that copies to or from a collective's buffer, "" of others."""
    places = [""] * len(ops)
    for collective, place in BUFFERS.items():
        copying = {name for name, of in _BUFFER_COPIES.items() if of == collective}
        named = which(ops.trace.texts, copying.__contains__)[ops.name]
        for row in np.flatnonzero(_inside(ops, named)).tolist():
            places[row] = place
    return places


def _inside(ops: Ops, chosen: np.ndarray) -> np.ndarray:
    """Return which of *ops* are *chosen* or have a chosen operator around them."""
    inside, outer = np.zeros_like(chosen), chosen
    while (outer & ~inside).any():
        inside = inside | outer
        outer = (ops.parent >= 0) & inside[ops.parent]
    return inside
