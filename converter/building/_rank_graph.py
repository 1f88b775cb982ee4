"""The graph of one rank, with other facts from its traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ..chakra import Graph
from ._belonging import Identity
from ._operator_table import OperatorCalls

__all__ = ["RankGraph", "Selection"]


@dataclass(frozen=True)
class Selection:
    """The numbers of the *steps* to convert, and how many ranks the job has."""

    steps: frozenset[int]
    world_size: int


@dataclass(frozen=True)
class RankGraph:
    """The graph of one rank, and the facts of its traces for which a graph has no column.

    The column ``group`` counts *groups* from 1 on; 0 is all ranks. *splits* are the bytes for each member by
    node, of the collectives whose splits the traces list. *accounting* says where the measured steps went
    (ns), *step_shares* which time is each step's own: number, start and end (ns from *began_ns*, which is in
    the trace's clock). *arrivals* are when each captured step issued communications (Unix ns). *operators*
    are the calls of each operator, *repeated* the nodes of copies that repeat an earlier one. *chip* names
    the device, *identity* is where the traces come from.
    """

    graph: Graph
    groups: Sequence[tuple[int, ...]] = ()
    splits: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    accounting: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    began_ns: int = 0
    step_shares: Sequence[Sequence[int]] = ()
    arrivals: Mapping[int, Sequence[int]] = field(default_factory=dict)
    operators: Sequence[OperatorCalls] = ()
    repeated: Sequence[int] = ()
    chip: str = ""
    identity: Identity | None = None

    @property
    def rank(self) -> int:
        """The rank whose graph it is."""
        return self.graph.rank
