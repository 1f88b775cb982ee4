"""The blocks of a rank's program: a pass over the layers of a stage, or the end of a step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from ....converter.chakra import CollectiveType, EdgeKind, NodeType
from ._operators import PRODUCTS, WITHIN, Exchange, Item, Operator, Phase, Spread, phases, spread
from ._plan import Plan

GroupKey = tuple[tuple[str, ...], str]
"""The axes of a group, and its level: ``within`` a node, ``across`` nodes, or ``all`` ranks of the group."""

# The streams of the device. Nodes on the same stream run one after another.
LANES = {"compute": 0, "host": 1, "store": 24, "load": 26, "send": 30, "receive": 31}
AXIS_LANES = {
    "tp": 10, "cp": 12, "ep": 14, "etp": 16, "dispatch": 18, "overlap": 20, "experts": 22, "gather": 40,
    "scatter": 42,
}  # fmt: skip


_KINDS = {"overhead": "host", "launches": "host", "host": "host", "copy": "copy"}


class Prices(Protocol):
    """The interface of prices: times of operators and collectives on a chip and its links, in ns."""

    @property
    def host_ns(self) -> float:
        """The host's time in ns to start a pass over a layer."""

    @property
    def step_ns(self) -> float:
        """The fixed overhead of a step in ns."""

    def operator_ns(self, operator: Operator) -> float:
        """Return the time of *operator* in ns."""

    def start_ns(self, where: Spread) -> float:
        """Return the start-up time (ns) of a collective with the placement *where*, before its transfer."""

    def slowed_ns(self, exchange: Exchange, where: Spread) -> float:
        """Return the time (ns) by which a concurrent collective prolongs computation."""


@dataclass
class Block:
    """The nodes of one part of a program, numbered from 0, and the edges between them.

    * *first* and *last* are the first and the last node of the block's computation.
    * *receive* is the node that waits for a message from another stage.
    * *late* is the node at which the block's last layer begins.
    * *early* lists the nodes that wait for the node *late* of the previous block.
    * *open* lists the nodes for which the end of the step waits.
    * *exchanged* is the last exchange of experts during computation. The end of the next block, which belongs
      to another micro-batch, waits for the exchange.
    * *stored* lists the copies of the layers' activations to the host.
    * *launched* lists the launches of the host in order.
    * *synced* is the last node before which the host waited for the chip.
    """

    nodes: list[dict[str, Any]] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    first: int = -1
    last: int = -1
    receive: int = -1
    late: int = -1
    exchanged: int = -1
    synced: int = -1
    early: list[int] = field(default_factory=list)
    open: list[int] = field(default_factory=list)
    stored: list[int] = field(default_factory=list)
    launched: list[int] = field(default_factory=list)

    def add(self, waits: Sequence[int], **columns: Any) -> int:
        """Append a node that depends on *waits*, and return its number."""
        number = len(self.nodes)
        self.nodes.append(columns)
        self.edges += [(source, number, int(EdgeKind.DATA)) for source in waits if source >= 0]
        return number

    def compute(self, name: str, duration_ns: float, waits: Sequence[int] = (), **columns: Any) -> int:
        """Append a compute node that depends on the last node and on *waits*, and return its number."""
        number = self.add(
            [self.last, *waits],
            name=name,
            type=NodeType.COMP,
            duration_ns=round(duration_ns),
            stream=LANES["compute"],
            **columns,
        )
        if self.first < 0:
            self.first = number
        self.last = number
        return number


@lru_cache(1 << 14)
def _where(layout: Plan, rank: int, axes: tuple[str, ...], node_size: int) -> Spread:
    return spread(layout.group(rank, *axes), node_size)


@dataclass(frozen=True)
class Stage:
    """A pipeline stage, seen from one of its ranks, with *node_size* ranks per node."""

    plan: Plan
    prices: Prices
    node_size: int
    stage: int

    @property
    def rank(self) -> int:
        """The rank that represents the stage: the first rank along every axis except ``pp``."""
        return self.stage * self.plan.strides["pp"]

    def where(self, axes: tuple[str, ...]) -> Spread:
        """Return the placement (in nodes) of the group of ranks along *axes*."""
        return _where(self.plan.layout, self.rank, axes, self.node_size)

    def append(self, block: Block, items: Sequence[Item], phase: str) -> None:
        """Append *items* to *block* in sequence, except collectives that overlap matmuls."""
        first = before = block.last
        overlapped = -1
        for item in items:
            if isinstance(item, Operator):
                is_product = item.kind in PRODUCTS
                before = block.last if is_product else before
                appended = self._operator(block, item, phase, -1 if is_product else overlapped)
                if is_product and appended:
                    block.nodes[-1]["hides"] = overlapped >= 0
                overlapped = overlapped if is_product else -1
            elif item.overlapped and item.kind is CollectiveType.ALL_TO_ALL:
                block.exchanged = self.exchange(block, item, [first, block.exchanged], AXIS_LANES["experts"])
            elif item.overlapped:
                gathers = item.kind is CollectiveType.ALL_GATHER
                waits = [block.last if gathers else before, overlapped]
                if not gathers:
                    block.nodes[block.last]["hides"] = True
                overlapped = self.exchange(block, item, waits, AXIS_LANES["overlap"])
            else:
                lane = AXIS_LANES["dispatch" if item.routing else item.axes[0]]
                block.last = self.exchange(block, item, [block.last, overlapped], lane)
                overlapped = -1

    def _operator(self, block: Block, operator: Operator, phase: str, waits_for: int) -> bool:
        """Append *operator* unless it takes less than 1 ns; return whether it was appended."""
        duration = self.prices.operator_ns(operator)
        if duration < 1:
            return False
        block.compute(
            operator.name,
            duration,
            [waits_for],
            num_ops=max(1, round(operator.flops)),
            tensor_size_bytes=max(1, round(operator.moved_bytes)),
            operator=operator.kind,
            module=operator.module,
            phase=phase,
            kind=_KINDS.get(operator.kind, "compute"),
            scores=operator.scores,
        )
        if operator.kind == "launches":
            block.synced = block.last
        return True

    def copied(self, block: Block, operator: Operator, waits: Sequence[int], lane: str, phase: str) -> int:
        """Append a copy to or from the host that overlaps computation after *waits*, and return its node."""
        return block.add(
            waits,
            name=operator.name,
            type=NodeType.COMP,
            duration_ns=round(self.prices.operator_ns(operator)),
            stream=LANES[lane],
            num_ops=1,
            tensor_size_bytes=max(1, round(operator.moved_bytes)),
            operator=operator.kind,
            module=operator.module,
            phase=phase,
            kind="copy",
        )

    def exchange(self, block: Block, exchange: Exchange, waits: Sequence[int], lane: int) -> int:
        """Append the phases of a collective that begins after *waits*, and return its last node.

        With a routing, tokens are sent in many parts, so that both phases run at the same time: DeepEP
        reaches the bandwidth between nodes while it forwards within nodes, and HybridEP pipelines chunks.
        """
        where = self.where(exchange.axes)
        last = list(waits)
        start = self.prices.start_ns(where)
        steps = phases(exchange.kind, exchange.size_bytes, where, exchange.routing)
        if start >= 1 and steps:
            node = block.add(
                last,
                name=f"start {exchange.name}",
                type=NodeType.COMP,
                duration_ns=round(start),
                stream=lane + 100,
                operator="start within" if where.nodes == 1 else "start across",
                module=exchange.module,
                phase="communication",
                kind="host",
            )
            last = [node]
        if exchange.routing and len(steps) > 1:
            both = [self._phase(block, exchange, step, where, last, lane) for step in steps]
            return block.add(
                both, name=f"end {exchange.name}", type=NodeType.COMP, duration_ns=1, stream=lane + 100,
                operator="end", module=exchange.module, phase="communication", kind="host",
            )  # fmt: skip
        for step in steps:
            last = [self._phase(block, exchange, step, where, last, lane)]
        return last[-1] if last else -1

    def _phase(  # noqa: PLR0917 - same arguments as exchange
        self, block: Block, exchange: Exchange, step: Phase, where: Spread, waits: Sequence[int], lane: int
    ) -> int:
        split = min(where) > 1
        key: GroupKey = (exchange.axes, step.level if split else "all")
        return block.add(
            waits,
            name=exchange.name if not split else f"{exchange.name} {step.level}",
            type=NodeType.COMM_COLL,
            comm_type=int(step.kind),
            comm_size_bytes=max(1, round(step.size_bytes)),
            group=key,
            stream=lane + (step.level != WITHIN),
            operator=step.kind.name.lower(),
            module=exchange.module,
            phase="communication",
            kind="communication",
        )

    def message(self, block: Block, name: str, size_bytes: float, waits: Sequence[int], step: int) -> int:
        """Append a message to (*name* ``send``) or from (``receive``) the stage at distance *step*."""
        sends = name == "send"
        return block.add(
            waits,
            name=f"{name} {'activations' if (step > 0) == sends else 'gradients'}",
            type=NodeType.COMM_SEND if sends else NodeType.COMM_RECV,
            comm_size_bytes=max(1, round(size_bytes)),
            peer=step,
            stream=LANES[name] + (0 if step > 0 else 2),
            operator=name,
            phase="communication",
            kind="communication",
        )
