"""The plug-in for logs of NCCL Inspector, a profiler that ships with NCCL (JSON lines).

Up to format 4.0, every line names its communicator and process. From 4.3 on, a line with ``dump_stats``
names these fields for the lines that follow. Each line has the duration of an operation; the times of its
start and end need NCCL_INSPECTOR_DUMP_VERBOSE=1. Serial numbers count the collectives of one kind in a
communicator.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from ....errors import TraceError
from ..._files import unpacked_file
from ...chakra import NodeType
from .._communications import collective_named
from ..logs import (
    MAX_BYTES,
    UNKNOWN,
    Comm,
    LoggedOp,
    LogReader,
    RankLog,
    Reader,
    bounded,
    collective_op,
    counted,
)

_KEYS = re.compile(rb'"(?:coll_perf|p2p_perf|dump_stats)"\s*:\s*\{')
_MAX_US = 2**52
_NS_PER_US = 1_000
# Collectives whose size is counted per rank by NCCL, but for all ranks together by simulators.
_SHARES = frozenset({"reduce_scatter", "all_to_all"})
_PEERS = {"Send": NodeType.COMM_SEND, "Recv": NodeType.COMM_RECV}


class _Header(msgspec.Struct):
    id: str
    rank: int
    n_ranks: int
    comm_name: str = ""


class _Metadata(msgspec.Struct):
    hostname: str = ""
    pid: int = 0


class _Kernel(msgspec.Struct):
    kernel_start_ts: int = 0
    kernel_stop_ts: int = 0


class _Trace(msgspec.Struct):
    coll_start_ts: int = 0
    p2p_start_ts: int = 0
    kernel_events: list[_Kernel] = []


class _Coll(msgspec.Struct):
    coll: str
    coll_sn: int
    coll_msg_size_bytes: int
    coll_exec_time_us: float
    event_trace_ts: _Trace | None = None


class _Peer(msgspec.Struct):
    p2p: str
    p2p_sn: int
    p2p_msg_size_bytes: int
    p2p_exec_time_us: float
    p2p_peer: int = UNKNOWN
    event_trace_ts: _Trace | None = None


class _Stats(msgspec.Struct):
    coll_dropped_since_last_dump: int = 0
    p2p_dropped_since_last_dump: int = 0


class _Line(msgspec.Struct):
    header: _Header | None = None
    metadata: _Metadata | None = None
    coll_perf: _Coll | None = None
    p2p_perf: _Peer | None = None
    dump_stats: _Stats | None = None


class _Process(msgspec.Struct):
    """The log of one process: its ranks in each communicator, and its operations with these ranks."""

    path: str
    host: str
    pid: int
    comms: dict[str, dict[int, Comm]] = {}
    ops: list[tuple[int, LoggedOp]] = []
    dropped: int = 0
    left_out: dict[str, int] = {}
    cut: str = ""


def _read(paths: Sequence[Path]) -> tuple[list[RankLog], list[str]]:
    """Read the logs at *paths*; return the log of each rank, and assumptions.

    Raises `TraceFormatError` naming file and line, and `TraceError` if it cannot determine the
    ranks of the logs.
    """
    processes: dict[tuple[str, int], _Process] = {}
    for path in paths:
        own = _processes(path)
        duplicates = processes.keys() & own.keys()
        if duplicates:
            host, pid = min(duplicates)
            raise TraceError(
                f"{own[host, pid].path} and {processes[host, pid].path} both log process {pid} on {host}: "
                "one of them is a copy. Give each log once."
            )
        processes |= own
    parts = [part for process in processes.values() for part in _ranks_of(process)]
    return _numbered(parts)


def _processes(path: Path) -> dict[tuple[str, int], _Process]:
    """Read one file, possibly with the logs of several processes.

    An incomplete last line, which NCCL was still writing, is omitted with a note that names file and line.
    """
    reader = Reader(str(path), "line")
    found: dict[tuple[str, int], _Process] = {}
    process = None
    decoder = msgspec.json.Decoder(_Line)
    header, metadata = None, None
    lines = unpacked_file(path).split(b"\n")
    for number, text in enumerate(lines, start=1):
        if not text.strip():
            continue
        reader.number = number
        try:
            line = decoder.decode(text)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            is_cut = number == len(lines) and not isinstance(error, msgspec.ValidationError)
            if is_cut and process is not None:
                process.cut = f"line {number:,} of {path.name} is cut off: its record was left out"
                break
            reader.fail(str(error))
        header, metadata = line.header or header, line.metadata or metadata or _Metadata()
        if header is None:
            reader.fail("its communicator is unknown, because no line with 'header' comes before it")
        key = metadata.hostname, metadata.pid
        process = found.setdefault(key, _Process(str(path), *key))
        _take(reader, process, header, line)
    return found


def _take(reader: Reader, process: _Process, header: _Header, line: _Line) -> None:
    """Add the operation in *line* to the log of *process*."""
    bounded(reader, "n_ranks", header.n_ranks, 2**24, 1)
    bounded(reader, "rank", header.rank, header.n_ranks - 1)
    label = header.comm_name if header.comm_name != "unknown" else ""
    comm = Comm(header.n_ranks, header.rank, label=label)
    known = process.comms.setdefault(header.id, {}).setdefault(header.rank, comm)
    if known.size != header.n_ranks:
        reader.fail(
            f"communicator {header.id} has {header.n_ranks} ranks, and {known.size} in an earlier record"
        )
    if line.dump_stats is not None:
        stats = line.dump_stats
        process.dropped += stats.coll_dropped_since_last_dump + stats.p2p_dropped_since_last_dump
    op = None
    if line.coll_perf is not None:
        op = _collective(reader, header, line.coll_perf)
        name = line.coll_perf.coll
    elif line.p2p_perf is not None:
        op = _message(reader, header, line.p2p_perf)
        name = line.p2p_perf.p2p
    elif line.dump_stats is not None:
        return
    else:
        name = "neither collective nor message"
    if op is None:
        process.left_out[name] = process.left_out.get(name, 0) + 1
    else:
        process.ops.append((header.rank, op))


def _collective(reader: Reader, header: _Header, line: _Coll) -> LoggedOp | None:
    library = collective_named(line.coll)
    if library is None:
        return None
    size = bounded(reader, "coll_msg_size_bytes", line.coll_msg_size_bytes, MAX_BYTES)
    sequence = bounded(reader, "coll_sn", line.coll_sn)
    size *= header.n_ranks if library.name in _SHARES else 1
    times = _times(reader, line.coll_exec_time_us, line.event_trace_ts)
    agrees = f"{library.name} of {size:,} bytes"
    return collective_op(
        library, header.id, sequence, size, agrees, series=library.name, completed=True, **times
    )


def _message(reader: Reader, header: _Header, line: _Peer) -> LoggedOp | None:
    kind = _PEERS.get(line.p2p)
    if kind is None:
        return None
    times = _times(reader, line.p2p_exec_time_us, line.event_trace_ts)
    return LoggedOp(
        header.id,
        bounded(reader, "p2p_sn", line.p2p_sn),
        line.p2p.lower(),
        kind,
        None,
        bounded(reader, "p2p_msg_size_bytes", line.p2p_msg_size_bytes, MAX_BYTES),
        peer=bounded(reader, "p2p_peer", line.p2p_peer, header.n_ranks - 1),
        completed=True,
        **times,
    )


def _times(reader: Reader, exec_us: float, trace: _Trace | None) -> dict[str, Any]:
    """Return an operation's duration and, in a verbose log, its times from first to last channel."""
    if not 0 <= exec_us <= _MAX_US:
        reader.fail(f"the execution time is {exec_us} us")
    times: dict[str, Any] = {"duration_ns": round(exec_us * _NS_PER_US)}
    if trace is None:
        return times
    created = bounded(reader, "event_trace_ts", trace.coll_start_ts or trace.p2p_start_ts, _MAX_US)
    begun = [kernel.kernel_start_ts for kernel in trace.kernel_events if kernel.kernel_start_ts > 0]
    ended = [kernel.kernel_stop_ts for kernel in trace.kernel_events if kernel.kernel_stop_ts > 0]
    if created:
        times["created_ns"] = created * _NS_PER_US
    if begun and ended:
        times["started_ns"] = bounded(reader, "kernel_start_ts", min(begun), _MAX_US) * _NS_PER_US
        times["ended_ns"] = bounded(reader, "kernel_stop_ts", max(ended), _MAX_US) * _NS_PER_US
    return times


def _ranks_of(process: _Process) -> list[tuple[_Process, dict[str, Comm], list[LoggedOp]]]:
    """Return the logs in *process*: of its rank, or of one rank per device."""
    places = {place for comm in process.comms.values() for place in comm}
    if all(len(comm) == 1 for comm in process.comms.values()):
        comms = {name: next(iter(comm.values())) for name, comm in process.comms.items()}
        return [(process, comms, [op for _, op in process.ops])]
    if any(comm.keys() != places for comm in process.comms.values()):
        raise TraceError(
            f"{process.path}: process {process.pid} drives several devices, and its communicators do not "
            "identify them. Only logs of jobs with one process per device can be read."
        )
    by_place: dict[int, list[LoggedOp]] = defaultdict(list)
    for place, op in process.ops:
        by_place[place].append(op)
    return [
        (process, {name: comm[place] for name, comm in process.comms.items()}, by_place[place])
        for place in sorted(places)
    ]


def _numbered(
    parts: Sequence[tuple[_Process, Mapping[str, Comm], list[LoggedOp]]],
) -> tuple[list[RankLog], list[str]]:
    """Assign ranks by the index in job-wide communicators, or otherwise by host and process."""
    world = max((comm.size for _, comms, _ in parts for comm in comms.values()), default=0)
    stated = [{comm.place for comm in comms.values() if comm.size == world} for _, comms, _ in parts]
    notes = []
    ranks = [min(places, default=UNKNOWN) for places in stated]
    if any(len(places) != 1 for places in stated) or len(parts) > world or _alone(parts, world):
        order = sorted(range(len(parts)), key=lambda at: (parts[at][0].host, parts[at][0].pid, ranks[at]))
        ranks = [order.index(at) for at in range(len(parts))]
        notes.append("no communicator spans all processes: ranks are numbered by host and process")
    logs = []
    for rank, (process, comms, ops) in zip(ranks, parts, strict=True):
        own = [f"records of unknown kinds were ignored: {counted(process.left_out)}"]
        lost = [f"{process.dropped:,} records were overwritten before they were written out"]
        notes_of_rank = (own if process.left_out else []) + (lost if process.dropped else [])
        notes_of_rank += [process.cut] if process.cut else []
        logs.append(RankLog(rank, process.path, ops, dict(comms), process.host, notes=tuple(notes_of_rank)))
    return logs, notes


def _alone(parts: Sequence[tuple[_Process, Mapping[str, Comm], list[LoggedOp]]], world: int) -> bool:
    """Return whether the largest communicators share no process, so that none spans the job."""
    spanning = [{name for name, comm in comms.items() if comm.size == world} for _, comms, _ in parts]
    return len(parts) > 1 and not set.intersection(*spanning)


READER = LogReader("NCCL Inspector", lambda head: _KEYS.search(head) is not None, _read)
