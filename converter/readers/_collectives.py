"""Find the operators that communicate, with their bytes, groups and ends."""

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
from ._host_trace import HostOp, HostTrace, tensors
from ._timeline import Op, Ops

__all__ = [
    "COMM_OPS",
    "Communication",
    "Entry",
    "Flight",
    "communication_of",
    "communications",
    "issuing",
    "lost_communications",
    "read_flight_record",
    "shared_out",
    "split_bytes",
]


_GLOO = "gloo:"
_BARRIER_BYTES = 64
_FLIGHT_SLACK_NS = 100_000
_LONGEST_CALL_NS = 20_000_000


class CommOp(msgspec.Struct, frozen=True):
    """The communication of an operator; *sized_by* is the argument whose bytes count (as in ASTRA-sim)."""

    node_type: NodeType
    collective: CollectiveType | None
    sized_by: int
    note: str = ""

    @property
    def writes_first(self) -> bool:
        """Whether its first argument is written, so that nothing may use it meanwhile.

        The data of a send, and of a broadcast on its root, may be read.
        """
        return self.node_type is not NodeType.COMM_SEND and self.collective is not CollectiveType.BROADCAST


def _collective(kind: CollectiveType, sized_by: int, note: str = "") -> CommOp:
    return CommOp(NodeType.COMM_COLL, kind, sized_by, note)


# Simulators accept five collectives; the others are written as the nearest of them, and the note is kept.
COMM_OPS: Mapping[str, CommOp] = {
    "c10d::allreduce_": _collective(CollectiveType.ALL_REDUCE, 0),
    "c10d::allreduce_coalesced_": _collective(CollectiveType.ALL_REDUCE, 0),
    "c10d::_allgather_base_": _collective(CollectiveType.ALL_GATHER, 1),
    "c10d::allgather_": _collective(CollectiveType.ALL_GATHER, 1),
    "c10d::allgather_coalesced_": _collective(CollectiveType.ALL_GATHER, 1),
    "c10d::allgather_into_tensor_coalesced_": _collective(CollectiveType.ALL_GATHER, 1),
    "c10d::_reduce_scatter_base_": _collective(CollectiveType.REDUCE_SCATTER, 1),
    "c10d::reduce_scatter_": _collective(CollectiveType.REDUCE_SCATTER, 1),
    "c10d::reduce_scatter_tensor_coalesced_": _collective(CollectiveType.REDUCE_SCATTER, 1),
    "c10d::alltoall_base_": _collective(CollectiveType.ALL_TO_ALL, 1),
    "c10d::alltoall_": _collective(CollectiveType.ALL_TO_ALL, 1),
    "c10d::broadcast_": _collective(CollectiveType.BROADCAST, 0),
    "c10d::scatter_": _collective(CollectiveType.BROADCAST, 0, "scatter is written as a broadcast"),
    "c10d::gather_": _collective(CollectiveType.ALL_GATHER, 1, "gather is written as an all-gather"),
    "c10d::reduce_": _collective(CollectiveType.ALL_REDUCE, 0, "reduce is written as an all-reduce"),
    "c10d::barrier": _collective(
        CollectiveType.ALL_REDUCE, -1, f"a barrier is written as an all-reduce of {_BARRIER_BYTES} bytes"
    ),
    "c10d::send": CommOp(NodeType.COMM_SEND, None, 0),
    "c10d::recv_": CommOp(NodeType.COMM_RECV, None, 0),
}

# Functional collectives issue those above, but with fake tensors, which never get that far.
_FUNCTIONAL = "_c10d_functional::"
_FUNCTIONAL_OPS: Mapping[str, CommOp] = {
    _FUNCTIONAL + name: _collective(kind, 0)
    for names, kind in (
        (("all_reduce", "all_reduce_", "all_reduce_coalesced"), CollectiveType.ALL_REDUCE),
        (("all_reduce_coalesced_",), CollectiveType.ALL_REDUCE),
        (("all_gather_into_tensor", "all_gather_into_tensor_coalesced"), CollectiveType.ALL_GATHER),
        (("all_gather_into_tensor_out",), CollectiveType.ALL_GATHER),
        (("reduce_scatter_tensor", "reduce_scatter_tensor_coalesced"), CollectiveType.REDUCE_SCATTER),
        (("reduce_scatter_tensor_out",), CollectiveType.REDUCE_SCATTER),
        (("all_to_all_single",), CollectiveType.ALL_TO_ALL),
        (("broadcast", "broadcast_"), CollectiveType.BROADCAST),
    )
    for name in names
}
_SPECS = {**COMM_OPS, **_FUNCTIONAL_OPS}
# Operators of these libraries that move nothing between ranks.
_LIBRARIES = ("c10d::", _FUNCTIONAL, "c10d_functional::")
_LOCAL = frozenset({"wait_tensor", "_wrap_tensor_autograd", "_allow_inflight_collective_as_graph_input"})

# Where operators list the rows of their input for each member, and those with a tensor for each.
_INPUT_SPLITS = {"c10d::alltoall_base_": 4, "_c10d_functional::all_to_all_single": 2}
_LISTED = frozenset({"c10d::alltoall_", "c10d::reduce_scatter_"})


class Communication(msgspec.Struct):
    """One communication of this rank, with the operator that issued it.

    *awaited_ns* is the time at which the thread had waited for it, if that differs from its end. It cannot
    have ended before *entered_ns*, when the last rank known to participate entered it; an operator with one
    of the *written* storages as an argument probably needs its result. *splits* are the bytes for each member
    of the group, if the trace lists them. It is not *named* if the trace lacks its group; *members* is the
    group size that its data implies, 0 if it implies none.
    """

    op: int
    spec: CommOp
    size_bytes: int
    group_ranks: tuple[int, ...]
    peer: int
    tag: int
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

    The trace's annotations of gloo (of any thread) have record ids that follow directly on those of their
    operators; *groups* maps names to global ranks, () meaning all. *last_entries* are the times at which the
    last rank entered collectives of the *flights*.
    """
    ends = _Ends.of(ops)
    flights_of = {
        is_p2p: [flight for flight in flights if flight.is_p2p == is_p2p] for is_p2p in (False, True)
    }
    in_order = {is_p2p: _in_order(ops, flights_of[is_p2p], is_p2p=is_p2p) for is_p2p in (False, True)}
    found = []
    for index in ends.issuing.tolist():
        op = ops[index]
        record = host.operator(op.record_id)
        if record is None:
            continue
        spec = _SPECS[op.name]
        is_p2p = spec.collective is None
        flight = in_order[is_p2p].get(op.record_id) or _flight(op, flights_of[is_p2p])
        group = _group(index, ops, host, groups, flight)
        comm = _communication(index, op, record, group or (), ends.measured(op))
        comm.named, comm.members = group is not None, _members(record, comm)
        entry = flight.entry if flight is not None else None
        entered_ns = last_entries.get(entry, 0) if entry is not None else 0
        # Another rank's clock that contradicts this rank's measurement tells nothing.
        comm.entered_ns = entered_ns if op.start_ns <= entered_ns <= comm.end_ns else op.start_ns
        comm.storages = host.storages_of(op.record_id)
        if spec.writes_first:
            comm.written = host.storages_of(op.record_id, first_input=True)
        found.append(comm)
    return found


class _Ends(msgspec.Struct, frozen=True):
    """Ends of gloo's annotations by record id; *records* are all communicating operators."""

    issuing: np.ndarray
    records: np.ndarray
    annotations: np.ndarray
    end_ns: np.ndarray

    @classmethod
    def of(cls, ops: Ops) -> _Ends:
        texts, events = ops.trace.texts, ops.trace.events
        own = events.take(which(texts, lambda text: text.startswith(_GLOO))[events.name])
        order = np.argsort(own.record_id, kind="stable")
        communicates = which(texts, COMM_OPS.__contains__)
        # Those of the whole trace: the last annotations of a window end where the next step's records begin.
        records = np.sort(events.record_id[communicates[events.name] & events.is_operator])
        return cls(issuing(ops), records, own.record_id[order], own.end_ns[order])

    def measured(self, op: Op) -> int:
        """Return the end of the last annotation of *op* before the next operator's record."""
        following = int(np.searchsorted(self.records, op.record_id, side="right"))
        limit = self.records[following] if following < len(self.records) else 2**63 - 1
        first, last = np.searchsorted(self.annotations, [op.record_id, limit])
        return int(self.end_ns[first:last].max(initial=-1)) if last > first else op.end_ns


def issuing(ops: Ops) -> np.ndarray:
    """Return the operators that issue a communication, in order.

    A functional collective does if none inside it does; fake tensors record it twice, inside itself.
    """
    plain = np.flatnonzero(which(ops.trace.texts, COMM_OPS.__contains__)[ops.name])
    functional = np.flatnonzero(which(ops.trace.texts, _FUNCTIONAL_OPS.__contains__)[ops.name])
    alone = functional[~_encloses(ops, np.union1d(plain, functional))[functional]]
    return np.union1d(plain, alone)


def _encloses(ops: Ops, inner: np.ndarray) -> np.ndarray:
    """Return for each of *ops* whether it encloses one of the operators *inner*."""
    around = np.zeros(len(ops), dtype=bool)
    while len(inner):
        outer = np.unique(ops.parent[inner])
        inner = outer[outer >= 0]
        inner = inner[~around[inner]]
        around[inner] = True
    return around


def lost_communications(ops: Ops) -> list[str]:
    """Return the names of those of *ops* whose communication is unknown to this module."""
    known = issuing(ops)
    lost = which(ops.trace.texts, _may_communicate)[ops.name] & ~_encloses(ops, known)
    lost[known] = False
    return sorted({ops[index].name for index in np.flatnonzero(lost).tolist()})


def _may_communicate(name: str) -> bool:
    return name.startswith(_LIBRARIES) and name not in COMM_OPS and name.rpartition("::")[2] not in _LOCAL


def _communication(index: int, op: Op, record: HostOp, group: tuple[int, ...], end_ns: int) -> Communication:
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
        peer=peer,
        tag=tag,
        end_ns=end_ns,
        splits=split_bytes(record),
    )


def _size_bytes(spec: CommOp, record: HostOp) -> int:
    if spec.sized_by < 0:
        return _BARRIER_BYTES
    sized = tensors(_argument(record.inputs, spec.sized_by)) or tensors(record.inputs)
    return sum(tensor.size_bytes for tensor in sized)


def communication_of(record: HostOp) -> tuple[CommOp, int, tuple[int, ...]] | None:
    """Return the communication of an operator, its bytes and those for each member; None if it computes.

    Raises `ValueError` if its communication is unknown to this module.
    """
    spec = _SPECS.get(record.name)
    if spec is None:
        if record.name.startswith(_LIBRARIES):
            raise ValueError(record.name)
        return None
    return spec, _size_bytes(spec, record), split_bytes(record)


def _members(record: HostOp, comm: Communication) -> int:
    """Return the number of participating ranks that the data of *comm* implies, 0 if unknown.

    Gathered or scattered data is that many times the data of one rank.
    """
    if comm.splits:
        return len(comm.splits)
    if comm.spec.collective not in (CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER):
        return 0
    moved = [record.inputs[:1], record.outputs] if record.name in _FUNCTIONAL_OPS else record.inputs[:2]
    sizes = [sum(t.size_bytes for t in tensors(each)) for each in moved]
    small, large = sorted(sizes)
    return large // small if small and large % small == 0 else 0


def split_bytes(record: HostOp) -> tuple[int, ...]:
    """Return the bytes that the operator *record* has for each member of its group; () if it lists none.

    Operators in `_INPUT_SPLITS` list the rows of their input for each member, others have a tensor for each.
    """
    moved = tensors(_argument(record.inputs, 0 if record.name in _FUNCTIONAL_OPS else 1))
    place = _INPUT_SPLITS.get(record.name)
    if place is not None:
        return shared_out(sum(tensor.size_bytes for tensor in moved), _argument(record.inputs, place))
    if record.name not in _LISTED:
        return ()
    return tuple(tensor.size_bytes for tensor in moved)


def shared_out(size_bytes: int, parts: Any) -> tuple[int, ...]:
    """Return *size_bytes* divided in proportion to *parts*; () without parts, or if they do not divide it."""
    if not isinstance(parts, list) or not parts or not all(type(part) is int and part >= 0 for part in parts):
        return ()
    total = sum(parts)
    if total == 0 or size_bytes % total:
        return (0,) * len(parts) if size_bytes == total == 0 else ()
    return tuple(size_bytes // total * part for part in parts)


def _argument(values: list[Any], index: int) -> Any:
    """Return argument *index*, 0 if the trace lacks it."""
    value = values[index] if index < len(values) else 0
    return value if isinstance(value, (int, list)) else 0


def _group(
    index: int,
    ops: Ops,
    host: HostTrace,
    groups: Mapping[str, tuple[int, ...]],
    flight: Flight | None,
) -> tuple[int, ...] | None:
    """Return the ranks of the group of operator *index*; () means all ranks, None unknown.

    With gloo the operator itself does not name the group: the enclosing functional collective does (its last
    text argument), or else the flight record.
    """
    name: str | None = None
    outer = index
    while name is None and outer >= 0:
        record = host.operator(ops[outer].record_id)
        if record is not None and record.name.startswith(_FUNCTIONAL):
            name = next((str(value) for value in reversed(record.inputs) if isinstance(value, str)), None)
        outer = ops[outer].parent
    return groups.get(name or (flight.process_group[0] if flight is not None else ""))


def _in_order(ops: Ops, flights: Sequence[Flight], *, is_p2p: bool) -> dict[int, Flight]:
    """Return the flight of each of the trace's collectives, or messages, by record id, if known.

    Both sources have the same order, but their clocks may differ by more than the distance of two records.
    The order decides if the numbers are equal and this match is closer in time than one shifted by one.
    """
    events = ops.trace.events
    alike = which(
        ops.trace.texts, lambda name: name in COMM_OPS and (COMM_OPS[name].collective is None) == is_p2p
    )
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
    """Return the flight that encloses *op*, was enqueued during it, or is nearest to it."""
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


# A collective: the name of its group, and which of the group's it is.
Entry = tuple[str, int]


class Flight(msgspec.Struct, frozen=True):
    """A collective or message of the flight record: when it was enqueued (Unix ns), and its group.

    *time_ended_ns* is the return of the call, if recorded (for messages, and in a fake world).
    *collective_seq_id* counts the group's collectives: it is the same on every rank.
    """

    time_created_ns: int = 0
    time_ended_ns: int = 0
    process_group: list[str] = msgspec.field(default_factory=list)
    is_p2p: bool = False
    collective_seq_id: int = 0

    @property
    def entry(self) -> Entry | None:
        """The key of the same collective on every rank; None for a message, or if unknown."""
        if self.is_p2p or self.collective_seq_id < 1:
            return None
        return self.process_group[0], self.collective_seq_id


class _FlightRecord(msgspec.Struct):
    entries: list[Flight] = msgspec.field(default_factory=list)


def read_flight_record(path: Path) -> list[Flight]:
    """Read a flight record; returns its entries that name a group, in order of time."""
    entries = read_json(path, _FlightRecord).entries
    return sorted(
        (entry for entry in entries if entry.process_group), key=lambda entry: entry.time_created_ns
    )
