"""torchcomms' ClogHook: a text with a line for each signature, enqueue, begin, end and wait.

Lines of version 1, fields separated by ``|``, times in seconds since the header's with three digits:

* ``V|1|base_timestamp=T``, the header;
* ``new_comm|comm=NAME|rank=R|world_size=N`` and ``split|parent=NAME|child=NAME|ranks=R,R``;
* ``C7|sig|OP|KEY=VALUE|...|comm=NAME``, what number 7 stands for;
* ``C7|Q|work_id=N|+T`` (enqueued), ``C7|S|+T`` (begun), ``C7|E|+T`` (ended), ``C7|W|+T`` (awaited);
* the same behind ``G3|`` while a CUDA graph is recorded, and ``G3|R2|C7|S|+T`` when it runs again.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict, deque
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from ..._files import unpacked_file
from ...chakra import NodeType
from .._nccl import LoggedCollective, logged_collective
from ._model import MOST_BYTES, UNKNOWN, Comm, LoggedOp, RankLog, Reader, bounded, collective_op, counted

__all__ = ["read_clog"]

_VERSION = "1"
_HEADER = re.compile(r"V\|(\d{1,9})\|base_timestamp=(\d{1,12})(?:\.(\d{1,9}))?")
_EVENT = re.compile(
    r"(?:G(?P<graph>\d{1,20})\|)?(?:R(?P<replay>\d{1,20})\|)?C(?P<number>\d{1,18})\|"
    r"(?P<event>[QSEW])(?:\|work_id=\d{1,20})?\|\+(?P<seconds>-?\d{1,12})\.(?P<part>\d{1,9})"
)
_SIGNATURE = re.compile(r"C(?P<number>\d{1,18})\|sig\|(?P<op>[^|=]{1,80})\|(?P<more>.*)")
_NS_PER_S = 10**9
_WIDTHS = {
    "f32": 4, "f64": 8, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "i16": 2, "i8": 1, "u8": 1, "bool": 1,
    "fp8e4m3": 1, "fp8e5m2": 1,
}  # fmt: skip
_PEERS = {"send": NodeType.COMM_SEND, "recv": NodeType.COMM_RECV}
_BATCH = "batch_op_issue"
_UNSIZED = "all_to_all_v_single"
_ROWS = (
    "the log has the splits of all_to_all_v_single in rows, not in bytes: they count as if each row was one "
    "element"
)
_COARSE = "the log's times are in whole milliseconds"


class _Signature(NamedTuple):
    """What a number stands for; *told* is None for a send, a receive, or what moves no data."""

    text: str
    op: str
    comm: str
    told: LoggedCollective | None
    size_bytes: int
    agrees: str
    peer: int


class _Running(msgspec.Struct):
    """An operation as far as the log has got."""

    signature: _Signature
    created_ns: int = UNKNOWN
    started_ns: int = UNKNOWN
    ended_ns: int = UNKNOWN
    replayed: bool = False
    recorded: bool = False


class _State(msgspec.Struct):
    base_ns: int
    signatures: dict[int, _Signature] = {}
    comms: dict[str, Comm] = {}
    running: list[_Running] = []
    without_begin: dict[tuple[str, str, int], deque[_Running]] = {}
    without_end: dict[tuple[str, str, int], deque[_Running]] = {}
    warnings: int = 0


def read_clog(path: Path) -> RankLog:
    """Read the log at *path*; its rank is its place in the largest communicator.

    Raises `TraceFormatError` naming file and line.
    """
    reader = Reader(str(path), "line")
    state: _State | None = None
    text = unpacked_file(path).decode("utf-8", "replace")
    lines = text.split("\n")
    for number, line in enumerate(lines, start=1):
        reader.number = number
        if line.startswith("V|") or state is None:
            state = _header(reader, line, state)
        elif line.strip():
            _take(reader, state, line.rstrip("\r"), is_cut=number == len(lines))
    if state is None:
        reader.fail("it is empty")
    return _log(reader, state)


def _header(reader: Reader, line: str, before: _State | None) -> _State:
    found = _HEADER.fullmatch(line.strip())
    if found is None:
        reader.fail(f"'{line[:80]}' is not a header of a ClogHook log")
    if found[1] != _VERSION:
        reader.fail(f"the log has version {found[1]}; version {_VERSION} can be read")
    if before is not None:
        reader.fail("a second log begins here; give each in a file of its own")
    return _State(int(found[2]) * _NS_PER_S + int((found[3] or "0").ljust(9, "0")))


def _take(reader: Reader, state: _State, line: str, *, is_cut: bool) -> None:
    """Take one line; the last is cut off where it has no end, and only then may be broken."""
    event = _EVENT.fullmatch(line)
    if event is not None:
        _event(reader, state, event)
    elif (signature := _SIGNATURE.fullmatch(line)) is not None:
        state.signatures[int(signature["number"])] = _signature(reader, signature["op"], signature["more"])
    elif line.startswith(("new_comm|", "split|")):
        _communicator(reader, state, line)
    elif line.startswith("WARN|"):
        state.warnings += 1
    elif not is_cut:
        reader.fail(f"'{line[:80]}' is not a line of a ClogHook log")


def _fields(text: str) -> dict[str, str]:
    """Return ``KEY=VALUE|KEY=VALUE`` as a mapping; ``comm`` is last and may hold anything."""
    before, separator, comm = f"|{text}".partition("|comm=")
    fields = dict(part.split("=", 1) for part in before.split("|") if "=" in part)
    return {**fields, "comm": comm} if separator else fields


def _communicator(reader: Reader, state: _State, line: str) -> None:
    if line.startswith("split|"):
        found = re.fullmatch(r"split\|parent=(.*)\|child=(.*)\|ranks=([\d,]*)", line)
        if found is None:
            reader.fail(f"'{line[:80]}' names no ranks")
        ranks = tuple(_numbers(reader, found[3])) if found[3] else ()
        above = state.comms.get(found[1], Comm()).ranks
        if above and max(ranks, default=0) < len(above):
            ranks = tuple(above[rank] for rank in ranks)
        if ranks:  # a rank that takes no part lists none
            state.comms[found[2]] = Comm(len(ranks), UNKNOWN, ranks, found[2])
        return
    found = re.fullmatch(r"new_comm\|comm=(.*)\|rank=(\d{1,9})\|world_size=(\d{1,9})", line)
    if found is None or not int(found[2]) < int(found[3]) <= 2**24:
        reader.fail(f"'{line[:80]}' tells no rank and number of ranks")
    state.comms[found[1]] = Comm(int(found[3]), int(found[2]), label=found[1])


def _signature(reader: Reader, op: str, more: str) -> _Signature:
    fields = _fields(more)
    told = logged_collective(op)
    width = _WIDTHS.get(fields.get("dtype", ""), 0)
    if ((told is not None and told.fixed_bytes < 0) or op in _PEERS) and not width:
        reader.fail(f"'{fields.get('dtype', '')[:40]}' is not a type with a known size")
    given = _count(reader, fields, ("in_count", "in_counts", "in_splits")) * width
    taken = _count(reader, fields, ("out_count", "out_counts", "out_splits")) * width
    bounded(reader, "the size", max(given, taken), MOST_BYTES)
    peer = fields.get("peer", "")
    if op in _PEERS and not peer.isdecimal():
        reader.fail("it does not say to or from which rank")
    size = max(given, taken) if told is None or (told.sized_by_output and not given) else given
    if told is not None:
        size = told.fixed_bytes if told.fixed_bytes >= 0 else taken if told.sized_by_output else given
    agrees = op if told is None else _agreement(told, op, size, taken, fields.get("dtype", ""))
    comm = fields.get("comm", "")
    return _Signature(f"{op}|{more}", op, comm, told, size, agrees, int(peer[:9]) if peer.isdecimal() else -1)


def _agreement(told: LoggedCollective, op: str, size: int, taken: int, dtype: str) -> str:
    """Return what all ranks of a collective must agree on, for people."""
    if told.fixed_bytes >= 0:
        return told.name
    if told.name == "all_to_all":  # what each has for each may differ
        return f"{told.name} of {dtype}"
    return f"{told.name} of {taken if told.name == 'all_gather' else size:,} bytes of {dtype}"


def _count(reader: Reader, fields: dict[str, str], names: tuple[str, ...]) -> int:
    return sum(sum(_numbers(reader, fields[name])) for name in names if fields.get(name))


def _numbers(reader: Reader, text: str) -> list[int]:
    parts = text.split(",")
    if not all(part.isascii() and part.isdecimal() and len(part) <= 18 for part in parts):
        reader.fail(f"'{text[:80]}' are no numbers")
    return [int(part) for part in parts]


def _event(reader: Reader, state: _State, event: re.Match[str]) -> None:
    """Take an event: the first operation of its number that lacks it has it now."""
    signature = state.signatures.get(int(event["number"]))
    if signature is None:
        reader.fail(f"C{event['number']} has no signature before it")
    sign = -1 if event["seconds"].startswith("-") else 1
    seconds, part = int(event["seconds"]), int(event["part"].ljust(9, "0"))
    time = bounded(reader, "the time", state.base_ns + seconds * _NS_PER_S + sign * part)
    key = event["graph"] or "", event["replay"] or "", int(event["number"])
    kind = event["event"]
    if kind == "W":
        return
    begins = kind == "Q" or (kind == "S" and event["replay"])
    if begins:
        running = _Running(signature, time, recorded=bool(event["graph"]), replayed=bool(event["replay"]))
        state.running.append(running)
        if kind == "S":
            running.started_ns = time
        else:
            state.without_begin.setdefault(key, deque()).append(running)
        state.without_end.setdefault(key, deque()).append(running)
        return
    waiting = state.without_begin if kind == "S" else state.without_end
    if not waiting.get(key):
        return  # the hook itself warns of these
    running = waiting[key].popleft()
    if kind == "S":
        running.started_ns = time
    else:
        running.ended_ns = time


def _log(reader: Reader, state: _State) -> RankLog:
    """Return the log of the rank, its operations counted as on all ranks."""
    lifecycle = any(running.ended_ns != UNKNOWN for running in state.running)
    counts: Counter[tuple[str, str]] = Counter()
    left_out: Counter[str] = Counter()
    ops = []
    for running in state.running:
        signature = running.signature
        if running.recorded and not running.replayed and running.ended_ns == UNKNOWN:
            left_out["recorded into a CUDA graph"] += 1
            continue
        # The order of replayed ones is not that in which they ran: those of one signature keep it.
        series = signature.text if running.replayed else ""
        counter = signature.comm, series if signature.told is not None else "messages"
        op = _op(running, counts[counter], series, lifecycle)
        if op is None:
            left_out[signature.op] += 1
        else:
            counts[counter] += 1
            ops.append(op)
    notes = [_COARSE]
    if left_out:
        notes.append(f"records without a size, or that moved nothing, were left out: {counted(left_out)}")
    if any(signature.op == _UNSIZED for signature in state.signatures.values()):
        notes.append(_ROWS)
    if state.warnings:
        notes.append(f"the hook wrote {state.warnings:,} warnings of its own")
    # Groups that were split off share a name: their ranks tell them apart.
    keys = {name: f"{name} {list(comm.ranks)}" if comm.ranks else name for name, comm in state.comms.items()}
    ops = [msgspec.structs.replace(op, group=keys.get(op.group, op.group)) for op in ops]
    known = defaultdict(Comm, {keys[name]: comm for name, comm in state.comms.items()})
    comms = {name: known[name] for name in {**dict(known), **{op.group: None for op in ops}}}
    largest = max((comm for comm in comms.values() if comm.place >= 0), key=lambda c: c.size, default=Comm())
    return RankLog(largest.place, reader.place, ops, comms, from_the_start=True, notes=tuple(notes))


def _op(running: _Running, sequence: int, series: str, lifecycle: bool) -> LoggedOp | None:
    signature = running.signature
    times: dict[str, Any] = {
        "created_ns": running.created_ns,
        "started_ns": running.started_ns,
        "ended_ns": running.ended_ns,
        "completed": running.ended_ns != UNKNOWN if lifecycle else None,
    }
    if signature.op in _PEERS:
        kind = _PEERS[signature.op]
        return LoggedOp(
            signature.comm, sequence, signature.op, kind, None, signature.size_bytes,
            peer=signature.peer, **times,
        )  # fmt: skip
    if signature.told is None:
        return None
    return collective_op(
        signature.told, signature.comm, sequence, signature.size_bytes, signature.agrees,
        series=series, **times,
    )  # fmt: skip
