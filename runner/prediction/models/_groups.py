"""Phases of a collective of ranks in several nodes: within the nodes, and between them."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from typing import NamedTuple

from ....converter.chakra import CollectiveType

WITHIN, ACROSS = "within", "across"


class Spread(NamedTuple):
    """The placement of a group's members: *inside* of them in each of *nodes* nodes."""

    inside: int
    nodes: int


class Phase(NamedTuple):
    """A collective on one kind of link; *size_bytes* as in Chakra (for an all-gather, each rank's shard)."""

    kind: CollectiveType
    level: str
    size_bytes: float


class Routing(NamedTuple):
    """The routing of a token: *chosen* of *experts*, from *chosen_groups* of *groups* equal groups."""

    experts: int
    chosen: int
    groups: int = 1
    chosen_groups: int = 1

    def places(self, count: int) -> float:
        """Return how many of *count* nodes or ranks, with equally many experts each, hold a token's."""
        share = self.chosen_groups / self.groups if count >= self.groups else 1.0
        places, experts = count * share, self.experts * share
        others = experts - experts / places
        missed = math.prod(max(0.0, others - each) / (experts - each) for each in range(self.chosen))
        return places * (1 - missed)


def spread(members: tuple[int, ...], node_size: int) -> Spread:
    """Return the placement of *members* in nodes of *node_size* ranks; uneven ones count as one per node."""
    counts: dict[int, int] = defaultdict(int)
    for rank in members:
        counts[rank // node_size] += 1
    sizes = set(counts.values())
    return Spread(sizes.pop(), len(counts)) if len(sizes) == 1 else Spread(1, len(members))


def phases(
    kind: CollectiveType, size_bytes: float, where: Spread, routing: Routing | None = None
) -> list[Phase]:
    """Return the phases of a collective of *size_bytes* in total: first within the nodes, then between them.

    This equals NCCL's rings over all adapters of a node. In an all-to-all, each rank exchanges its node's
    part within the node, and sends the rest through its own adapter. With *routing*, a token is sent once
    to each node, where a rank forwards it.
    """
    inside, nodes = where
    members = inside * nodes
    if members == 1:
        return []
    if kind is CollectiveType.ALL_TO_ALL:
        within, across = size_bytes / nodes, size_bytes
        if routing:
            copy = size_bytes / routing.chosen
            within, across = (copy * routing.places(count) for count in (members, nodes))
        levels = [(WITHIN, inside, within), (ACROSS, nodes, across)]
        return [Phase(kind, level, size) for level, count, size in levels if count > 1]
    step: dict[str, Callable[[str], Phase]] = {
        "gather": lambda level: Phase(
            CollectiveType.ALL_GATHER, level, size_bytes / (inside if level == WITHIN else members)
        ),
        "scatter": lambda level: Phase(
            CollectiveType.REDUCE_SCATTER, level, size_bytes / (1 if level == WITHIN else inside)
        ),
        "reduce": lambda level: Phase(kind, level, size_bytes / (1 if level == WITHIN else inside)),
    }
    if nodes == 1 or inside == 1:
        only = WITHIN if nodes == 1 else ACROSS
        return [step[_STEPS[kind]](only)]
    if kind is CollectiveType.ALL_GATHER:
        return [step["gather"](ACROSS), step["gather"](WITHIN)]
    if kind is CollectiveType.REDUCE_SCATTER:
        return [step["scatter"](WITHIN), step["scatter"](ACROSS)]
    return [step["scatter"](WITHIN), step["reduce"](ACROSS), step["gather"](WITHIN)]


_STEPS = {
    CollectiveType.ALL_GATHER: "gather",
    CollectiveType.REDUCE_SCATTER: "scatter",
    CollectiveType.ALL_REDUCE: "reduce",
}
