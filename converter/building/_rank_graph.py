"""A rank of a conversion: the steps of its open traces, and its graph with other facts from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from ...tracer import StepRange
from ..chakra import Graph
from ..readers import DeviceTrace, Entry, HostTrace, RankTraces
from ._belonging import Identity
from ._operator_table import OperatorCalls
from ._steps import StepChoice

__all__ = ["Group", "OpenRank", "RankGraph", "Selection"]

# The ranks of a process group, and its label.
Group = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Selection:
    """The numbers of the *steps* to convert, and how many ranks the job has."""

    steps: frozenset[int]
    world_size: int


class OpenRank(msgspec.Struct):
    """A rank with known steps; *marked* says whether the trace marks them.

    Else all of it counts as one, or each repetition of what it holds, where *begins_with* names the first
    kernels or operators of each. *own* is the time on host and device that is each step's own, if known.

    *names* are the annotations of steps that have one, and *which* the steps an annotation asks for.
    *world_size* and *stated_rank* are what the trace says, 0 and -1 if it was not asked. *trace* is the
    device trace if it had to be read for that and is small enough to keep, *host* what the same file has of
    the host. *last_entries* are when the last of all ranks entered each collective, as far as it is known.
    """

    traces: RankTraces
    steps: list[StepRange]
    marked: bool = True
    names: dict[int, str] = msgspec.field(default_factory=dict)
    which: StepChoice = "median"
    world_size: int = 0
    stated_rank: int = -1
    begins_with: str = ""
    own: list[StepRange] = msgspec.field(default_factory=list)
    trace: DeviceTrace | None = None
    host: HostTrace | None = None
    last_entries: dict[Entry, int] = msgspec.field(default_factory=dict)

    @property
    def identity(self) -> Identity:
        """The origin of the traces, as known before they are read completely."""
        traces = self.traces
        host_path = None if traces.host_path == traces.device_path else traces.host_path
        return Identity(
            traces.rank,
            host_path,
            traces.device_path,
            stated_rank=self.stated_rank,
            world_size=self.world_size,
        )


@dataclass(frozen=True)
class RankGraph:
    """The graph of one rank, and the facts of its traces for which a graph has no column.

    The column ``group`` counts *groups* from 1 on, each of ranks and a label (see `group_labels`); 0 is all
    ranks. *splits* are the bytes for each member by
    node, of the collectives whose splits the traces list. *accounting* says where the measured steps went
    (ns), *step_shares* which time is each step's own: number, start and end (ns from *began_ns*, which is in
    the trace's clock). *arrivals* are when each captured step issued communications (Unix ns). *operators*
    are the calls of each operator, *repeated* the nodes of copies that repeat an earlier one, *shared_inputs*
    rows of two nodes and the bytes that the first reads after the second. *chip* names the device, *identity*
    is where the traces come from.
    """

    graph: Graph
    groups: Sequence[Group] = ()
    splits: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    accounting: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    began_ns: int = 0
    step_shares: Sequence[Sequence[int]] = ()
    arrivals: Mapping[int, Sequence[int]] = field(default_factory=dict)
    operators: Sequence[OperatorCalls] = ()
    repeated: Sequence[int] = ()
    shared_inputs: Sequence[Sequence[int]] = ()
    chip: str = ""
    identity: Identity | None = None

    @property
    def rank(self) -> int:
        """The rank whose graph it is."""
        return self.graph.rank
