"""Small workloads that exercise a single feature: a collective, a message pattern, or overlap."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import UsageError, did_you_mean
from .chakra import (
    COMM_LANE,
    CollectiveType,
    EdgeKind,
    Graph,
    GraphBuilder,
    NodeType,
    Workload,
    communication,
)

_COMPUTE_LANE, _RECEIVE_LANE = 0, COMM_LANE + 1
_MAX_RANKS = 65_536
_MAX_BYTES = 2**62
_MAX_NODES = 10_000_000
_BYTES_PER_NODE = 1_000  # memory per node during construction


def microbenchmark(
    pattern: str, num_ranks: int, size_bytes: int, *, repeats: int = 1, compute_ns: int = 0
) -> Workload:
    """Return the workload *pattern* (see `MICROBENCHMARKS`) on *num_ranks* ranks.

    *size_bytes* is the size of each operation as ASTRA-sim defines it (for an all-gather, each rank's shard).
    The operation runs *repeats* times. A computation of *compute_ns* precedes each repetition, or overlaps
    with each repetition in ``overlap``. Raises `UsageError` for an unknown pattern or impossible numbers.
    """
    if pattern not in MICROBENCHMARKS:
        raise UsageError(f"There is no microbenchmark '{pattern}'{did_you_mean(pattern, MICROBENCHMARKS)}")
    if not 2 <= num_ranks <= _MAX_RANKS or not 1 <= size_bytes <= _MAX_BYTES or repeats < 1 or compute_ns < 0:
        raise UsageError(
            f"A microbenchmark needs 2 to {_MAX_RANKS} ranks, at least 1 byte, at least 1 repeat and no "
            "negative computation. Change the numbers."
        )
    program = MICROBENCHMARKS[pattern]
    graphs: list[Graph] = []
    programs = np.zeros(num_ranks, dtype=np.int32)
    for rank in range(num_ranks if pattern in _BY_RANK else 1):
        builder = _Program(rank, num_ranks, size_bytes, compute_ns)
        program(builder)
        _check_size(builder.size * repeats * (num_ranks if pattern in _BY_RANK else 1), repeats)
        for _ in range(repeats - 1):
            program(builder)
        programs[rank] = len(graphs)
        graphs.append(builder.graph(rank))
    metadata = {"source": f"microbenchmark {pattern}", "repeats": repeats, "size_bytes": size_bytes}
    return Workload(tuple(graphs), programs, {}, metadata)


def _check_size(nodes: int, repeats: int) -> None:
    """Raise `UsageError` for a microbenchmark with too many nodes."""
    if nodes > _MAX_NODES:
        raise UsageError(
            f"{repeats:,} repeats make about {nodes:,} nodes, which need about "
            f"{nodes * _BYTES_PER_NODE / 1e9:,.0f} GB; the limit is {_MAX_NODES:,} nodes. Use fewer."
        )


class _Program(GraphBuilder):
    """The graph of one rank under construction; the next operation waits for the nodes *tail*."""

    def __init__(self, rank: int, num_ranks: int, size_bytes: int, compute_ns: int) -> None:
        super().__init__()
        self.rank, self.num_ranks = rank, num_ranks
        self.size_bytes, self.compute_ns = size_bytes, compute_ns
        self.tail: Sequence[int] = ()

    def after_tail(self, columns: Mapping[str, Any]) -> int:
        """Append a node that waits for the nodes in `tail`; return its id."""
        return self.add({"operator": columns["name"], **columns}, dict.fromkeys(self.tail, EdgeKind.DATA))

    def compute(self) -> None:
        """Append a computation before the next operation, if *compute_ns* is positive."""
        columns = {"name": "compute", "type": NodeType.COMP, "duration_ns": self.compute_ns}
        columns |= {"stream": _COMPUTE_LANE, "num_ops": self.compute_ns, "tensor_size_bytes": 1}
        if self.compute_ns:
            self.tail = [self.after_tail(columns)]

    def collective(self, kind: CollectiveType) -> int:
        """Append a collective of all ranks; return the id of the node."""
        columns = communication(NodeType.COMM_COLL, kind, self.size_bytes)
        return self.after_tail(columns | {"stream": COMM_LANE})

    def send(self, target: int) -> int:
        """Append a send to the rank *target*; return the id of the node."""
        columns = communication(NodeType.COMM_SEND, None, self.size_bytes, peer=target, tag=0)
        return self.after_tail(columns | {"name": f"send to {target}", "stream": COMM_LANE})

    def receive(self, source: int) -> int:
        """Append a receive from the rank *source*; return the id of the node."""
        columns = communication(NodeType.COMM_RECV, None, self.size_bytes, peer=source, tag=0)
        return self.after_tail(columns | {"name": f"receive from {source}", "stream": _RECEIVE_LANE})


def _collective(kind: CollectiveType) -> Callable[[_Program], None]:
    def program(builder: _Program) -> None:
        builder.compute()
        builder.tail = [builder.collective(kind)]

    return program


def _overlap(builder: _Program) -> None:
    """Overlap an all-reduce with computation; the next repetition waits for both operations."""
    waits = builder.tail
    collective = builder.collective(CollectiveType.ALL_REDUCE)
    builder.compute()
    computation = [] if builder.tail is waits else builder.tail
    builder.tail = [*computation, collective]


def _ping_pong(builder: _Program) -> None:
    """Send a message from rank 0 to rank 1 and back; all other ranks only compute."""
    builder.compute()
    if builder.rank == 0:
        builder.tail = [builder.send(1)]
        builder.tail = [builder.receive(1)]
    elif builder.rank == 1:
        builder.tail = [builder.receive(0)]
        builder.tail = [builder.send(0)]
    elif not builder.size:
        builder.after_tail({"name": "idle", "type": NodeType.COMP, "stream": _COMPUTE_LANE})


def _ring_shift(builder: _Program) -> None:
    """Send to the next rank while receiving from the previous rank."""
    builder.compute()
    following, before = (builder.rank + 1) % builder.num_ranks, (builder.rank - 1) % builder.num_ranks
    builder.tail = [builder.send(following), builder.receive(before)]


def _incast(builder: _Program) -> None:
    """Send from all other ranks to rank 0 at the same time."""
    builder.compute()
    if builder.rank == 0:
        builder.tail = [builder.receive(source) for source in range(1, builder.num_ranks)]
    else:
        builder.tail = [builder.send(0)]


MICROBENCHMARKS: dict[str, Callable[[_Program], None]] = {
    "all-gather": _collective(CollectiveType.ALL_GATHER),
    "all-reduce": _collective(CollectiveType.ALL_REDUCE),
    "all-to-all": _collective(CollectiveType.ALL_TO_ALL),
    "broadcast": _collective(CollectiveType.BROADCAST),
    "incast": _incast,
    "overlap": _overlap,
    "ping-pong": _ping_pong,
    "reduce-scatter": _collective(CollectiveType.REDUCE_SCATTER),
    "ring-shift": _ring_shift,
}
_BY_RANK = frozenset({"incast", "ping-pong", "ring-shift"})
