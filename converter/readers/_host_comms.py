"""Find the operators that communicate, with bytes, group and times of each communication."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from .._columns import which
from .._files import read_json
from ..chakra import CollectiveType, NodeType
from ._communications import COMM_OPS, FUNCTIONAL, FUNCTIONAL_OPS, GLOO, MESSAGE_OPS, CommOp
from ._host_trace import HostOp, HostTrace, tensors
from ._timeline import Op, Ops

_FLIGHT_SLACK_NS = 100_000
_LONGEST_CALL_NS = 20_000_000
_SPECS = {**COMM_OPS, **FUNCTIONAL_OPS}
# Namespaces of communication operators, and the operators in them that move no data between ranks.
_LIBRARIES = ("c10d::", FUNCTIONAL, "c10d_functional::")
_LOCAL = frozenset({"wait_tensor", "_wrap_tensor_autograd", "_allow_inflight_collective_as_graph_input"})

# The index of the argument that lists the input rows for each member, and operators with a tensor per member.
_INPUT_SPLITS = {"c10d::alltoall_base_": 4, "_c10d_functional::all_to_all_single": 2}
_LISTED = frozenset({"c10d::alltoall_", "c10d::reduce_scatter_"})
_INFERRED = (
    "the traces do not name the process group of some collectives: the listed group with as many ranks "
    "as output size over input size is assumed"
)
_NEAREST = (
    "; of several such groups, one that no named collective uses, and then the one with the closest ranks"
)
_UNLISTED_GROUP = (
    "the sizes of some collectives (output over input) say that {size} of {world} ranks take part, but "
    "the traces list no such process group: consecutive ranks are assumed"
)
_SEVERAL_GROUPS = (
    "the traces list several process groups but not the group of each collective (flight records do): "
    "collectives of unknown groups are assumed to span all ranks"
)
_NO_GROUPS = (
    "the traces list no process groups: collectives are assumed to span all ranks unless their sizes "
    "contradict this"
)


class Communication(msgspec.Struct):
    """One communication of this rank, and the operator that issued it.

    The communication was issued at *issued_ns*, and recorded by the library from *begun_ns* to *end_ns*.
    *awaited_ns* is the time at which the thread had finished waiting for the communication (None: unknown).
    The communication cannot have ended before *entered_ns*, the time at which the last known rank entered it.
    An operator that uses one of the *written* storages probably needs the result. *splits* are the bytes per
    member, if listed. *named* is false if the trace lacks the group. *members* is the group size that the
    amount of data implies (0: unknown).
    """

    op: int
    spec: CommOp
    size_bytes: int
    group_ranks: tuple[int, ...]
    group_label: str
    peer: int
    tag: int
    issued_ns: int
    begun_ns: int
    end_ns: int
    storages: frozenset[int] = frozenset()
    awaited_ns: int | None = None
    splits: tuple[int, ...] = ()
    named: bool = True
    members: int = 0
    entered_ns: int = 0
    written: frozenset[int] = frozenset()


def communications(
    ops: Ops,
    host: HostTrace,
    groups: Mapping[str, tuple[int, ...]],
    flights: Sequence[Flight],
    last_entries: Mapping[Entry, int],
) -> list[Communication]:
    """Return the communications that *ops* issue, in order.

    The record ids of Gloo's annotations, on any thread, directly follow those of their operators.
    *groups* maps names to global ranks; () means all ranks. *last_entries* are the times at which
    the last rank entered the collectives of *flights*.
    """
    spans = _Spans.of(ops)
    flights_of = {
        is_p2p: [flight for flight in flights if flight.is_p2p == is_p2p] for is_p2p in (False, True)
    }
    in_order = {is_p2p: _in_order(ops, flights_of[is_p2p], is_p2p=is_p2p) for is_p2p in (False, True)}
    found = []
    for index in spans.issuing.tolist():
        op = ops[index]
        record = host.operator(op.record_id)
        if record is None:
            continue
        spec = _SPECS[op.name]
        is_p2p = spec.collective is None
        flight = in_order[is_p2p].get(op.record_id) or _flight(op, flights_of[is_p2p])
        name = _group_name(index, ops, host, flight)
        comm = _communication(index, op, record, groups.get(name, ()), spans.measured(op))
        comm.group_label = host.group_labels.get(name, "")
        comm.named, comm.members = name in groups, _members(record, comm)
        entry = flight.entry if flight is not None else None
        entered_ns = last_entries.get(entry, 0) if entry is not None else 0
        # Clocks of ranks differ, so an entry time that contradicts this rank's own times is ignored.
        comm.entered_ns = entered_ns if op.start_ns <= entered_ns <= comm.end_ns else op.start_ns
        comm.storages = host.storages_of(op.record_id)
        if spec.writes_first:
            comm.written = host.storages_of(op.record_id, first_input=True)
        found.append(comm)
    return found


class _Spans(msgspec.Struct, frozen=True):
    """Gloo's annotations by record id; *records* are all communicating operators."""

    issuing: np.ndarray
    records: np.ndarray
    annotations: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray

    @classmethod
    def of(cls, ops: Ops) -> _Spans:
        texts, events = ops.trace.texts, ops.trace.events
        own = events.take(which(texts, lambda text: text.startswith(GLOO))[events.name])
        order = np.argsort(own.record_id, kind="stable")
        communicates = which(texts, COMM_OPS.__contains__)
        # The records are of the whole trace, because the records of the next step bound the last
        # annotations of this step.
        records = np.sort(events.record_id[communicates[events.name] & events.is_operator])
        return cls(issuing(ops), records, own.record_id[order], own.start_ns[order], own.end_ns[order])

    def measured(self, op: Op) -> tuple[int, int]:
        """Return the start and end of the annotations between *op* and the next operator's record.

        Without annotations, the start and the end are the end of *op*.
        """
        following = int(np.searchsorted(self.records, op.record_id, side="right"))
        limit = self.records[following] if following < len(self.records) else 2**63 - 1
        first, last = np.searchsorted(self.annotations, [op.record_id, limit])
        if last == first:
            return op.end_ns, op.end_ns
        return int(self.start_ns[first:last].min()), int(self.end_ns[first:last].max())


def issuing(ops: Ops) -> np.ndarray:
    """Return the operators that issue a communication, in order.

    A functional collective itself issues a communication only if no operator inside it does. With fake
    tensors, the trace records a collective as two nested operators.
    """
    plain = np.flatnonzero(which(ops.trace.texts, COMM_OPS.__contains__)[ops.name])
    functional = np.flatnonzero(which(ops.trace.texts, FUNCTIONAL_OPS.__contains__)[ops.name])
    alone = functional[~_encloses(ops, np.union1d(plain, functional))[functional]]
    return np.union1d(plain, alone)


def _encloses(ops: Ops, inner: np.ndarray) -> np.ndarray:
    """Return whether each of *ops* encloses one of the operators *inner*."""
    around = np.zeros(len(ops), dtype=bool)
    while len(inner):
        outer = np.unique(ops.parent[inner])
        inner = outer[outer >= 0]
        inner = inner[~around[inner]]
        around[inner] = True
    return around


def lost_communications(ops: Ops) -> list[str]:
    """Return the names of operators that communicate in an unsupported way."""
    known = issuing(ops)
    lost = which(ops.trace.texts, _may_communicate)[ops.name] & ~_encloses(ops, known)
    lost[known] = False
    return sorted({ops[index].name for index in np.flatnonzero(lost).tolist()})


def _may_communicate(name: str) -> bool:
    return name.startswith(_LIBRARIES) and name not in COMM_OPS and name.rpartition("::")[2] not in _LOCAL


def _communication(
    index: int, op: Op, record: HostOp, group: tuple[int, ...], measured: tuple[int, int]
) -> Communication:
    spec = _SPECS[op.name]
    peer = tag = -1
    if spec.node_type is not NodeType.COMM_COLL:
        local, tag = int(_argument(record.inputs, 2)), int(_argument(record.inputs, 3))
        peer = group[local] if 0 <= local < len(group) else local
    return Communication(
        op=index,
        spec=spec,
        size_bytes=_size_bytes(spec, record),
        group_ranks=group,
        group_label="",
        peer=peer,
        tag=tag,
        issued_ns=op.end_ns,
        begun_ns=measured[0],
        end_ns=measured[1],
        splits=split_bytes(record),
    )


def _size_bytes(spec: CommOp, record: HostOp) -> int:
    if spec.library is not None and spec.library.fixed_bytes >= 0:
        return spec.library.fixed_bytes
    sized = tensors(_argument(record.inputs, spec.sized_by)) or tensors(record.inputs)
    return sum(tensor.size_bytes for tensor in sized)


def communication_of(record: HostOp) -> tuple[CommOp, int, tuple[int, ...]] | None:
    """Return an operator's communication, total bytes and bytes per member; None if it computes.

    Raises `ValueError` for an unsupported communication.
    """
    spec = _SPECS.get(record.name)
    if spec is None:
        if record.name.startswith(_LIBRARIES):
            raise ValueError(record.name)
        return None
    return spec, _size_bytes(spec, record), split_bytes(record)


def _members(record: HostOp, comm: Communication) -> int:
    """Return the number of participating ranks that the amount of data implies, or 0 if unknown.

    The number is the ratio of the gathered or scattered data to the data of one rank.
    """
    if comm.splits:
        return len(comm.splits)
    if comm.spec.collective not in (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER):
        return 0
    moved = [record.inputs[:1], record.outputs] if record.name in FUNCTIONAL_OPS else record.inputs[:2]
    sizes = [sum(t.size_bytes for t in tensors(each)) for each in moved]
    small, large = sorted(sizes)
    return large // small if small and large % small == 0 else 0


def split_bytes(record: HostOp) -> tuple[int, ...]:
    """Return the bytes per group member that an operator lists, or () if it lists none.

    Operators in `_INPUT_SPLITS` list rows of their input, others have a tensor per member.
    """
    moved = tensors(_argument(record.inputs, 0 if record.name in FUNCTIONAL_OPS else 1))
    place = _INPUT_SPLITS.get(record.name)
    if place is not None:
        return shared_out(sum(tensor.size_bytes for tensor in moved), _argument(record.inputs, place))
    if record.name not in _LISTED:
        return ()
    return tuple(tensor.size_bytes for tensor in moved)


def shared_out(size_bytes: int, parts: Any) -> tuple[int, ...]:
    """Divide *size_bytes* in proportion to *parts*; return () if the division is not exact."""
    if not isinstance(parts, list) or not parts or not all(type(part) is int and part >= 0 for part in parts):
        return ()
    total = sum(parts)
    if total == 0 or size_bytes % total:
        return (0,) * len(parts) if size_bytes == total == 0 else ()
    return tuple(size_bytes // total * part for part in parts)


def _argument(values: list[Any], index: int) -> Any:
    """Return the argument at *index*, or 0 if the trace lacks it."""
    value = values[index] if index < len(values) else 0
    return value if isinstance(value, (int, list)) else 0


def _group_name(index: int, ops: Ops, host: HostTrace, flight: Flight | None) -> str:
    """Return the process group's name for operator *index*, or "" if unknown.

    Gloo's operators do not name the group. The name comes from the last text argument of the enclosing
    functional collective, or from the flight record.
    """
    name: str | None = None
    outer = index
    while name is None and outer >= 0:
        record = host.operator(ops[outer].record_id)
        if record is not None and record.name.startswith(FUNCTIONAL):
            name = next((str(value) for value in reversed(record.inputs) if isinstance(value, str)), None)
        outer = ops[outer].parent
    return name or (flight.process_group[0] if flight is not None else "")


def _in_order(ops: Ops, flights: Sequence[Flight], *, is_p2p: bool) -> dict[int, Flight]:
    """Match the trace's collectives, or messages, with flights; return the flights by record id.

    Both are in the same order, but the offset of their clocks may exceed the time between two records. They
    are matched in order if there are equally many of both, and a match shifted by one is not closer in time.
    Otherwise, the result is {}.
    """
    events = ops.trace.events
    alike = which(ops.trace.texts, (MESSAGE_OPS if is_p2p else COMM_OPS.keys() - MESSAGE_OPS).__contains__)
    issued = np.flatnonzero(alike[events.name] & events.is_operator)
    if not len(flights) or len(issued) != len(flights):
        return {}
    issued = issued[np.argsort(events.start_ns[issued], kind="stable")]
    recorded = sorted(flights, key=lambda flight: flight.time_created_ns)
    starts = events.start_ns[issued]
    created = np.array([flight.time_created_ns for flight in recorded], dtype=starts.dtype)
    away, *one_off = (
        np.median(np.abs(those - these))
        for those, these in ((starts, created), (starts[1:], created[:-1]), (starts[:-1], created[1:]))
        if len(those)
    )
    if any(away >= other for other in one_off):
        return {}
    return dict(zip(events.record_id[issued].tolist(), recorded, strict=True))


def _flight(op: Op, flights: Sequence[Flight]) -> Flight | None:
    """Return the flight that encloses *op*, was enqueued during it, or else is nearest in time."""
    at = bisect_left(flights, op.start_ns - _LONGEST_CALL_NS, key=lambda flight: flight.time_created_ns)
    best: tuple[int, Flight] | None = None
    for flight in flights[at:]:
        if flight.time_created_ns > op.end_ns + _FLIGHT_SLACK_NS:
            break
        if flight.time_created_ns <= op.start_ns <= flight.time_ended_ns:
            return flight
        away = max(0, op.start_ns - flight.time_created_ns, flight.time_created_ns - op.end_ns)
        if away <= _FLIGHT_SLACK_NS and (best is None or away < best[0]):
            best = (away, flight)
    return best[1] if best else None


def with_inferred_groups(
    comms: Sequence[Communication], rank: int, groups: Mapping[str, tuple[int, ...]], world_size: int
) -> tuple[list[Communication], list[str]]:
    """Infer the groups of *comms* for which the traces of *rank* name no group; also return assumptions.

    *groups* are the groups in the traces; () means all ranks. The group of all ranks is used unless
    the sizes of communications contradict it.
    """
    listed = {ranks for ranks in groups.values() if rank in ranks}
    used = {comm.group_ranks for comm in comms if comm.named}
    inferred, notes = list(comms), set()
    for index, comm in enumerate(comms):
        if comm.named or comm.members == world_size:
            continue
        fitting = sorted(listed, key=lambda ranks: (ranks in used, max(ranks) - min(ranks), ranks))
        fitting = [ranks for ranks in fitting if len(ranks) == comm.members]
        if fitting:
            inferred[index] = msgspec.structs.replace(comm, group_ranks=fitting[0])
            notes.add(_INFERRED + _NEAREST * (len(fitting) > 1))
        elif 1 < comm.members < world_size and world_size % comm.members == 0:
            first = rank - rank % comm.members
            inferred[index] = msgspec.structs.replace(
                comm, group_ranks=tuple(range(first, first + comm.members))
            )
            notes.add(_UNLISTED_GROUP.format(size=comm.members, world=world_size))
        elif any(1 < len(ranks) < world_size for ranks in groups.values()):
            notes.add(_SEVERAL_GROUPS)
        elif not groups and world_size > 2:
            notes.add(_NO_GROUPS)
    return inferred, sorted(notes)


# Identifies a collective on every rank: the name of its group, and its number in the group.
Entry = tuple[str, int]


class Flight(msgspec.Struct, frozen=True):
    """A collective or message in the flight record, with its enqueue time (Unix ns) and group.

    *time_ended_ns* is the time at which the call returned, if recorded (for messages, and in a fake world).
    *collective_seq_id* numbers the collectives of the group, with the same numbers on every rank.
    """

    time_created_ns: int = 0
    time_ended_ns: int = 0
    process_group: list[str] = msgspec.field(default_factory=list)
    is_p2p: bool = False
    collective_seq_id: int = 0

    @property
    def entry(self) -> Entry | None:
        """The key that identifies a collective on every rank; or None for a message."""
        if self.is_p2p or self.collective_seq_id < 1:
            return None
        return self.process_group[0], self.collective_seq_id


class _FlightRecord(msgspec.Struct):
    entries: list[Flight] = msgspec.field(default_factory=list)


def read_flight_record(path: Path) -> list[Flight]:
    """Read a flight record; return the entries that name a group, in order of time."""
    entries = read_json(path, _FlightRecord).entries
    return sorted(
        (entry for entry in entries if entry.process_group), key=lambda entry: entry.time_created_ns
    )
