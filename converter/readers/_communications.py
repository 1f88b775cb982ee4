"""The table of communications: what collectives are called, what stands for them, and their operators."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from ..chakra import CollectiveType, NodeType

__all__ = [
    "COMM_OPS",
    "FUNCTIONAL",
    "FUNCTIONAL_OPS",
    "GLOO",
    "MESSAGE_OPS",
    "NCCL",
    "CommOp",
    "LibraryCollective",
    "collective_named",
]

_BARRIER_BYTES = 64
# Before the name of a collective in the annotations of its library.
GLOO, NCCL = "gloo:", "nccl:"


class LibraryCollective(msgspec.Struct, frozen=True):
    """A collective of PyTorch and its libraries, and the *kind* that graphs have for it.

    Simulators accept five collectives: for another one the nearest of them stands, as *note* says. The bytes
    of its input count, or those of its output (as in ASTRA-sim); one that moves no data has *fixed_bytes*,
    which is -1 for all others. Ranks of a *rooted* one need not wait for each other.
    """

    name: str
    kind: CollectiveType
    sized_by_output: bool = False
    rooted: bool = False
    fixed_bytes: int = -1
    note: str = ""


_COLLECTIVES = {
    collective.name: collective
    for collective in (
        LibraryCollective("all_reduce", CollectiveType.ALL_REDUCE),
        LibraryCollective("all_gather", CollectiveType.ALL_GATHER),
        LibraryCollective("reduce_scatter", CollectiveType.REDUCE_SCATTER),
        LibraryCollective("all_to_all", CollectiveType.ALL_TO_ALL),
        LibraryCollective("broadcast", CollectiveType.BROADCAST, rooted=True),
        LibraryCollective(
            "scatter",
            CollectiveType.BROADCAST,
            sized_by_output=True,
            rooted=True,
            note="scatter is written as a broadcast",
        ),
        LibraryCollective(
            "gather", CollectiveType.ALL_GATHER, rooted=True, note="gather is written as an all-gather"
        ),
        LibraryCollective(
            "reduce", CollectiveType.ALL_REDUCE, rooted=True, note="reduce is written as an all-reduce"
        ),
        LibraryCollective(
            "barrier",
            CollectiveType.ALL_REDUCE,
            fixed_bytes=_BARRIER_BYTES,
            note=f"a barrier is written as an all-reduce of {_BARRIER_BYTES} bytes",
        ),
    )
}
_SUFFIXES = re.compile(r"(_coalesced|_base|_into_tensor|_tensor|_oop|_single|_sparse|_uneven|_inplace)+$")
# Names without underscores, of PyTorch, NCCL and RCCL; those with a v are of uneven collectives.
_SPELLINGS = {
    **{name.replace("_", ""): name for name in _COLLECTIVES},
    "allgatherv": "all_gather",
    "allreducebarrier": "barrier",
    "alltoallv": "all_to_all",
    "all2all": "all_to_all",
    "bcast": "broadcast",
    "reducescatterv": "reduce_scatter",
}


def collective_named(name: str) -> LibraryCollective | None:
    """Return the collective that a library, profiler or log calls *name*; None if it is no collective."""
    plain = _SUFFIXES.sub("", name.lower().removeprefix(NCCL).strip("_")).replace("_", "")
    return _COLLECTIVES.get(_SPELLINGS.get(plain, ""))


class CommOp(msgspec.Struct, frozen=True):
    """The communication of an operator; *sized_by* is the argument whose bytes count, -1 for none."""

    node_type: NodeType
    sized_by: int
    library: LibraryCollective | None = None

    @property
    def collective(self) -> CollectiveType | None:
        """The kind of a collective; None for a message."""
        return None if self.library is None else self.library.kind

    @property
    def note(self) -> str:
        """The assumption made, "" for none."""
        return "" if self.library is None else self.library.note

    @property
    def writes_first(self) -> bool:
        """Whether its first argument is written, so that no other operator may use it meanwhile.

        The data of a send, and of a broadcast on its root, may be read.
        """
        return self.node_type is not NodeType.COMM_SEND and self.collective is not CollectiveType.BROADCAST


def _operators(namespace: str, rows: Mapping[str, tuple[int, str]]) -> dict[str, CommOp]:
    """Return the operators of *rows*: by collective the argument whose bytes count, and their names."""
    return {
        namespace + operator: CommOp(NodeType.COMM_COLL, sized_by, _COLLECTIVES[name])
        for name, (sized_by, operators) in rows.items()
        for operator in operators.split()
    }


COMM_OPS: Mapping[str, CommOp] = _operators(
    "c10d::",
    {
        "all_reduce": (0, "allreduce_ allreduce_coalesced_"),
        "all_gather": (
            1,
            "_allgather_base_ allgather_ allgather_coalesced_ allgather_into_tensor_coalesced_",
        ),
        "reduce_scatter": (1, "_reduce_scatter_base_ reduce_scatter_ reduce_scatter_tensor_coalesced_"),
        "all_to_all": (1, "alltoall_base_ alltoall_"),
        "broadcast": (0, "broadcast_"),
        "scatter": (0, "scatter_"),
        "gather": (1, "gather_"),
        "reduce": (0, "reduce_"),
        "barrier": (-1, "barrier"),
    },
) | {"c10d::send": CommOp(NodeType.COMM_SEND, 0), "c10d::recv_": CommOp(NodeType.COMM_RECV, 0)}
MESSAGE_OPS = frozenset(name for name, op in COMM_OPS.items() if op.library is None)
# Functional collectives issue those above, but with fake tensors, which never get that far.
FUNCTIONAL = "_c10d_functional::"
FUNCTIONAL_OPS: Mapping[str, CommOp] = _operators(
    FUNCTIONAL,
    {
        "all_reduce": (0, "all_reduce all_reduce_ all_reduce_coalesced all_reduce_coalesced_"),
        "all_gather": (
            0,
            "all_gather_into_tensor all_gather_into_tensor_coalesced all_gather_into_tensor_out",
        ),
        "reduce_scatter": (
            0,
            "reduce_scatter_tensor reduce_scatter_tensor_coalesced reduce_scatter_tensor_out",
        ),
        "all_to_all": (0, "all_to_all_single"),
        "broadcast": (0, "broadcast broadcast_"),
    },
)
