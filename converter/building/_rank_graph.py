"""Describe a rank of a conversion: open traces, graph, facts, lateness and uneven splits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import msgspec
import numpy as np

from ...tracer import Evidence, StepRange
from .._columns import which
from ..chakra import CollectiveType, Graph, NodeType, with_splits
from ..readers import (
    COMM_OPS,
    HOST_DEVICES,
    DeviceTrace,
    Entry,
    Flight,
    HostTrace,
    RankTraces,
    read_flight_record,
)
from ._operator_table import OperatorCalls
from ._steps import StepChoice
from ._trace_identity import Identity

# The ranks of a process group, and the group's label.
Group = tuple[tuple[int, ...], str]


@dataclass(frozen=True)
class Selection:
    """The numbers of the *steps* to convert, and the number of ranks of the job."""

    steps: frozenset[int]
    world_size: int


class OpenRank(msgspec.Struct):
    """A rank with known steps; *marked* means that the trace marks the steps.

    If the trace has no marks, a step is the whole trace, a repetition of the work, or the interval up to the
    end of an optimizer's step. *begins_with* names the first kernels or operators of each step, or the
    optimizer. *own* is the time of each step on host and device, if known. *names* are the annotations of
    steps, and *which* are the steps that a requested annotation selects. *world_size* and *stated_rank* come
    from the trace; they are 0 and -1 if the trace has not been read. *trace* is the device trace if it was
    read and is small enough to keep. *host* is the host data of the same file. *last_entries* are the known
    times at which the last rank entered each collective.
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
        """The origin of the traces, as far as it is known before the traces are read completely."""
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
    """The graph of one rank, and the facts in its traces for which a graph has no column.

    The column ``group`` numbers *groups* from 1. A group has ranks and a label (see `group_labels`). Number 0
    is the group of all ranks. *splits* maps a collective's node to the bytes for each member, if the traces
    list the splits. *accounting* divides the time of the measured steps (ns). *step_shares* contains the time
    of each step: number, start and end (ns from *began_ns*, a time of the trace's clock). *arrivals* are the
    times at which each captured step issued communications (Unix ns). *operators* are the calls of each
    operator. *repeated* are the nodes of copies that repeat an earlier copy. *shared_inputs* has rows of two
    nodes and the bytes that the first node reads after the second. *chip* names the device. *identity* is the
    origin of the traces.
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
        """The number of the rank to which the graph belongs."""
        return self.graph.rank


_KEY, _WAITED_LESS = "lateness_ns", "waited_less_ns"
# A rank is usually late if, in at least the first share of steps, it is late by at least the second share of
# its usual delay.
_MAX_STEPS, _MAX_OF_IT = 0.75, 0.5
_MIN_STEPS = 2
# The number of first unprofiled steps to skip (because they allocate memory), the minimum number of
# unprofiled steps, and the minimum share of these steps that ranks spend waiting.
_FIRST, _MIN_UNPROFILED, _MIN_WAIT = 3, 6, 0.02


def arrivals(trace: DeviceTrace, own: np.ndarray, steps: Sequence[StepRange]) -> dict[int, list[int]]:
    """Return the times (Unix ns) at which the thread of the events *own* issued communications, by step."""
    events = trace.events.take(own)
    issues = events.is_operator & which(trace.texts, COMM_OPS.__contains__)[events.name]
    times = events.start_ns[issues]
    return {step.index: times[(times >= step.start_ns) & (times < step.end_ns)].tolist() for step in steps}


def lateness(of_ranks: Mapping[int, Mapping[int, Sequence[int]]]) -> dict[str, Any]:
    """Return the workload's metadata on the lateness of each rank, from `arrivals` on a common clock.

    The lateness in a captured step is the maximum, over the step's collectives, of the rank's delay after the
    median of the other ranks. Steps in which ranks issue different numbers of collectives are omitted. The
    result is {} if no step remains.
    """
    ranks = sorted(of_ranks)
    if len(ranks) < 2:
        return {}
    late: dict[str, list[int]] = {str(rank): [] for rank in ranks}
    for step in sorted(set.intersection(*(set(times) for times in of_ranks.values()))):
        rows = [of_ranks[rank][step] for rank in ranks]
        if not rows[0] or len({len(row) for row in rows}) > 1:
            continue
        times = np.array(rows, dtype=np.int64)
        for place, rank in enumerate(ranks):
            others = np.median(np.delete(times, place, axis=0), axis=0)
            late[str(rank)].append(int((times[place] - others).max()))
    return {_KEY: late} if late[str(ranks[0])] else {}


def waited_less(of_ranks: Mapping[int, Evidence]) -> dict[str, Any]:
    """Return metadata on the time by which each rank waited less for collectives than its peers.

    The last rank to arrive does not wait. For an unprofiled step, this time is the median wait of the other
    ranks minus the wait of the rank (ns). The result is {} for a single rank, for too few steps, or if ranks
    hardly waited, because hosts do not wait for collectives of devices.
    """
    waits = {rank: _waits(evidence) for rank, evidence in of_ranks.items()}
    steps = sorted(set.intersection(*map(set, waits.values()))) if len(waits) > 1 else []
    steps = steps[_FIRST:]
    if len(steps) < _MIN_UNPROFILED:
        return {}
    waited, took = np.array([[own[step] for own in waits.values()] for step in steps], dtype=np.int64).T
    if np.median(waited.max(axis=0)) < _MIN_WAIT * np.median(took):
        return {}
    less = {
        str(rank): np.median(np.delete(waited, place, axis=0), axis=0) - waited[place]
        for place, rank in enumerate(waits)
    }
    return {_WAITED_LESS: {rank: own.astype(int).tolist() for rank, own in less.items()}}


def _waits(evidence: Evidence) -> dict[int, tuple[int, int]]:
    """Return the wait for collectives and the duration (ns) of each unprofiled step."""
    steps = evidence.steps
    return {
        index: (
            steps.collective_ns[end] - steps.collective_ns[begin],
            steps.time_ns[end] - steps.time_ns[begin],
        )
        for index, begin, end in steps.steps()
        if steps.collective_ns and not steps.recorded[end]
    }


def is_usually_late(metadata: Mapping[str, Any], rank: int, late_ns: int) -> bool:
    """Return whether *rank* was late in most steps, or True if the lateness is unknown.

    The rank has to be late in most unprofiled steps (see `usually_late_ns`). If there are no unprofiled
    steps, the rank has to be late by about *late_ns* in most captured steps.
    """
    own = _of_rank(metadata, _WAITED_LESS, rank)
    if own:
        late_ns = usually_late_ns(metadata, rank)
    else:
        own = _of_rank(metadata, _KEY, rank)
    if len(own) < _MIN_STEPS:
        return True
    return late_ns > 0 and sum(ns >= _MAX_OF_IT * late_ns for ns in own) >= _MAX_STEPS * len(own)


def usually_late_ns(metadata: Mapping[str, Any], rank: int) -> int:
    """Return the lateness of *rank* in the median unprofiled step (ns), or 0 if it is unknown."""
    own = _of_rank(metadata, _WAITED_LESS, rank)
    return max(0, round(median(own))) if own else 0


def _of_rank(metadata: Mapping[str, Any], key: str, rank: int) -> list[int]:
    """Return the times of *rank* per step under the *key* of the metadata, or [] if there are no times."""
    stated = metadata.get(key)
    own = stated.get(str(rank)) if isinstance(stated, Mapping) else None
    return own if isinstance(own, list) and all(type(ns) is int for ns in own) else []


def flights_of(traces: RankTraces) -> Sequence[Flight]:
    """Return the flight record of a rank, or an empty sequence without a flight record."""
    if traces.flight_path is None:
        return ()
    return read_flight_record(traces.flight_path)


def last_entries(ranks: Sequence[RankTraces]) -> list[dict[Entry, int]]:
    """Return the time at which the last rank entered each collective of each rank's flight record.

    The times are Unix nanoseconds of the ranks' clocks. Ranks that compute on a device have no entries,
    because the times of their collectives are in the device's work.
    """
    own = [_entries(rank) for rank in ranks]
    latest: dict[tuple[tuple[int, ...], Entry], int] = {}
    for entries in own:
        for key, time_ns in entries.items():
            latest[key] = max(time_ns, latest.get(key, 0))
    return [{entry: latest[ranks_of, entry] for ranks_of, entry in entries} for entries in own]


def _entries(rank: RankTraces) -> dict[tuple[tuple[int, ...], Entry], int]:
    """Return the times at which *rank* entered collectives, by the group's ranks (names may repeat)."""
    if rank.device not in HOST_DEVICES:
        return {}
    return {
        (rank.groups.get(flight.process_group[0], ()), flight.entry): flight.time_created_ns
        for flight in flights_of(rank)
        if flight.entry is not None
    }


_KINDS = (CollectiveType.ALL_TO_ALL, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
_LEFT_EVEN = (
    "the traces list the amounts of each rank for some collectives, but some ranks are missing: the "
    "amounts of these collectives are assumed to be equal"
)
_FOR_ASTRA_SIM = (
    "some collectives are uneven ({count} on a rank at most): each pair of ranks exchanges its own "
    "number of bytes; ASTRA-sim has one size for all members, and uses the largest"
)
_SPREAD = (
    "of {count} uneven collectives the traces only have the total of each rank, which is divided evenly "
    "among the members"
)


class _Part(msgspec.Struct):
    """One member's part in a collective; *splits* are the part's bytes for each member, or () if unknown."""

    rank: int
    row: int
    node: int
    kind: int
    size: int
    splits: tuple[int, ...]


class _Calls(msgspec.Struct):
    """The collectives of a graph by group, each as (row, node id, kind, size)."""

    group: np.ndarray
    figures: np.ndarray

    @classmethod
    def of(cls, graph: Graph) -> _Calls:
        columns = graph.node_columns
        rows = np.flatnonzero(columns["type"] == NodeType.COMM_COLL)
        figures = (columns[name][rows] for name in ("node_id", "comm_type", "comm_size_bytes"))
        return cls(columns["group"][rows], np.column_stack([rows, *figures]))

    def of_group(self, group: int) -> list[tuple[int, int, int, int]]:
        """Return the row, id, kind and size of each collective of a *group*, in order."""
        return [tuple(call) for call in self.figures[self.group == group].tolist()]


def with_uneven_splits(
    ranks: Sequence[RankGraph], groups: Mapping[int, tuple[int, ...]], world_size: int
) -> tuple[list[Graph], list[str]]:
    """Return the graphs of all *ranks* with the members' bytes in uneven collectives, and notes.

    ASTRA-sim supports a single size for all members. Therefore, the size of the largest member is used.
    """
    graphs, splits_by_rank = [one.graph for one in ranks], [one.splits for one in ranks]
    if len(graphs) < max(2, world_size):
        uneven = any(len(set(sizes)) > 1 for splits in splits_by_rank for sizes in splits.values())
        return graphs, [_LEFT_EVEN] if uneven else []
    calls = [_Calls.of(graph) for graph in graphs]
    levels: list[dict[int, int]] = [{} for _ in graphs]
    written: list[dict[int, tuple[int, ...]]] = [{} for _ in graphs]
    spread = 0
    for group in (0, *groups):
        members = groups.get(group, tuple(range(world_size)))
        for parts in _collectives(calls, splits_by_rank, group, members):
            if not _is_uneven(parts):
                continue
            spread += any(not part.splits and part.kind != CollectiveType.ALL_GATHER for part in parts)
            for part in parts:
                levels[part.rank][part.row] = max(other.size for other in parts)
                written[part.rank][part.node] = part.splits or _shares(part, len(parts))
    made = [_levelled(*each) if each[1] else each[0] for each in zip(graphs, levels, written, strict=True)]
    count = max(map(len, levels))
    notes = [_FOR_ASTRA_SIM.format(count=count)] if count else []
    return made, [*notes, _SPREAD.format(count=spread)] if spread else notes


def _collectives(
    calls: Sequence[_Calls],
    splits_by_rank: Sequence[Mapping[int, tuple[int, ...]]],
    group: int,
    members: Sequence[int],
) -> Iterator[list[_Part]]:
    """Yield the members' parts in each collective of *group* that may be uneven, in order."""
    for same in zip(*(calls[rank].of_group(group) for rank in members), strict=False):
        parts = []
        for rank, (row, node, kind, size) in zip(members, same, strict=True):
            splits = splits_by_rank[rank].get(node, ())
            parts.append(_Part(rank, row, node, kind, size, splits if len(splits) == len(members) else ()))
        if parts[0].kind in _KINDS and len({part.kind for part in parts}) == 1:
            yield parts


def _is_uneven(parts: Sequence[_Part]) -> bool:
    return len({part.size for part in parts}) > 1 or any(len(set(part.splits)) > 1 for part in parts)


def _shares(part: _Part, members: int) -> tuple[int, ...]:
    """Return equal shares for all members, or the whole size for each member if all get the same data."""
    if part.kind == CollectiveType.ALL_GATHER:
        return (part.size,) * members
    share, more = divmod(part.size, members)
    return tuple(share + (place < more) for place in range(members))


def _levelled(graph: Graph, level: Mapping[int, int], splits: Mapping[int, tuple[int, ...]]) -> Graph:
    return with_splits(graph.derived(comm_size_bytes=partial(_sizes, level)), splits)


def _sizes(level: Mapping[int, int], columns: Mapping[str, Any]) -> np.ndarray:
    sizes: np.ndarray = columns["comm_size_bytes"].copy()
    sizes[list(level)] = list(level.values())
    return sizes
