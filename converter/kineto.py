"""Device traces: the Kineto JSON of ``torch.profiler``, of any PyTorch since 2022 and any accelerator."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from ..errors import TraceFormatError
from .files import read_json

__all__ = ["Call", "CommArguments", "DeviceTrace", "Event", "Sync", "Work", "read_device_trace"]

_HOST = frozenset({"cpu_op", "user_annotation"})
# The runtime and driver interfaces of every accelerator PyTorch names in its traces.
_CALLS = frozenset(
    {"cuda_runtime", "cuda_driver", "hip_runtime", "hip_driver", "xpu_runtime", "mtia_runtime"}
)
_WORK = {"kernel": "kernel", "gpu_memcpy": "memcpy", "gpu_memset": "memset"}
_SYNC = "cuda_sync"
_PARAMETERS = "record_param_comms"
# An annotation, but made in the profiler's quick way, which files it as an operator.
_MODULE = "chakrascope::module "
_MAX_MICROSECONDS = 2.0**52
_MAX_BASE_NS = 2**61


class _Arguments(msgspec.Struct, gc=False):
    """The arguments of any event; traces disagree about their types, so each use converts them."""

    record_id: Any = msgspec.field(default=0, name="Record function id")
    sequence: Any = msgspec.field(default=-1, name="Sequence number")
    external_id: Any = msgspec.field(default=0, name="External id")
    correlation: Any = -1
    stream: Any = -1
    device: Any = 0
    size_bytes: Any = msgspec.field(default=-1, name="bytes")
    collective: Any = msgspec.field(default=None, name="Collective name")
    in_elements: Any = msgspec.field(default=-1, name="In msg nelems")
    out_elements: Any = msgspec.field(default=-1, name="Out msg nelems")
    dtype: Any = ""
    group_size: Any = msgspec.field(default=0, name="Group size")
    group_name: Any = msgspec.field(default="", name="Process Group Name")
    group_ranks: Any = msgspec.field(default="", name="Process Group Ranks")
    peer_to: Any = msgspec.field(default=-1, name="Dst Rank")
    peer_from: Any = msgspec.field(default=-1, name="Src Rank")
    sync_kind: Any = msgspec.field(default="", name="cuda_sync_kind")
    on_stream: Any = msgspec.field(default=-1, name="wait_on_stream")
    record_correlation: Any = msgspec.field(default=-1, name="wait_on_cuda_event_record_corr_id")


class _RawEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = ""
    name: Any = ""
    tid: Any = 0
    ts: Any = 0.0
    dur: Any = 0.0
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _Distributed(msgspec.Struct):
    rank: int = -1
    world_size: int = 0
    pg_config: Any = None


class _Document(msgspec.Struct):
    traceEvents: list[_RawEvent]
    baseTimeNanoseconds: int = 0
    distributedInfo: _Distributed | None = None


class _LooseDocument(msgspec.Struct):
    """The same for traces in which some event has arguments of another form."""

    traceEvents: list[Any]
    baseTimeNanoseconds: int = 0
    distributedInfo: Any = None


class CommArguments(msgspec.Struct, frozen=True, gc=False):
    """What the trace says about a communication; -1, 0 or "" where it says nothing.

    Element counts are the rank's own; *group_ranks* are global ranks and empty when cut short.
    """

    collective: str
    in_elements: int
    out_elements: int
    dtype: str
    group_size: int
    group_name: str
    group_ranks: tuple[int, ...]
    peer: int = -1


class Event(msgspec.Struct, frozen=True, gc=False):
    """One operator or annotation on a host thread; times are Unix nanoseconds."""

    name: str
    is_operator: bool
    thread: str
    start_ns: int
    end_ns: int
    record_id: int
    sequence: int
    external_id: int = 0
    comm: CommArguments | None = None


class Call(msgspec.Struct, frozen=True, gc=False):
    """One call of the accelerator's runtime on a host thread."""

    name: str
    thread: str
    start_ns: int
    end_ns: int
    correlation: int
    external_id: int


class Work(msgspec.Struct, frozen=True, gc=False):
    """One thing a device did: *category* is ``kernel``, ``memcpy`` or ``memset``."""

    name: str
    category: str
    device: int
    stream: int
    start_ns: int
    end_ns: int
    correlation: int
    external_id: int
    size_bytes: int
    comm: CommArguments | None


class Sync(msgspec.Struct, frozen=True, gc=False):
    """One recorded synchronisation: *stream* (or the host) waits for *on_stream*.

    *record_correlation* is the call that recorded the event waited for, *correlation* the waiting call; -1
    where the trace does not say.
    """

    kind: str
    stream: int
    on_stream: int
    correlation: int
    record_correlation: int


class DeviceTrace(msgspec.Struct, frozen=True):
    """One rank's host events (in order of start, enclosing ones first), calls and device work.

    *rank* and *world_size* are -1 and 0 in traces of jobs that were not distributed; *groups* are the process
    groups the trace lists, by name.
    """

    events: list[Event]
    calls: list[Call] = []
    works: list[Work] = []
    syncs: list[Sync] = []
    rank: int = -1
    world_size: int = 0
    groups: dict[str, tuple[int, ...]] = {}


def read_device_trace(path: Path) -> DeviceTrace:
    """Read the Kineto JSON at *path* (plain or gzip).

    Raises `TraceFormatError` when it is truncated, of another kind or without any operator.
    """
    document = _document(path)
    base = document.baseTimeNanoseconds
    if not 0 <= base < _MAX_BASE_NS:
        raise TraceFormatError(f"{path} has an impossible base time ({base} ns). Capture again.")
    events: list[Event] = []
    calls: list[Call] = []
    works: list[Work] = []
    syncs: list[Sync] = []
    for raw in document.traceEvents:
        if raw.ph != "X":
            continue
        category = raw.cat
        if category in _HOST:
            events.append(_event(raw, base, path))
        elif category in _CALLS:
            calls.append(_call(raw, base, path))
        elif category is not None and category in _WORK:
            works.append(_work(raw, base, path))
        elif category == _SYNC:
            syncs.append(_sync(raw.args))
    if not any(event.is_operator for event in events):
        raise TraceFormatError(
            f"{path} holds no operator (cpu_op) event: it is not a PyTorch profiler trace, or nothing ran "
            "while it was taken. Capture again, with CPU activities on."
        )
    events.sort(key=lambda event: (event.start_ns, -event.end_ns))
    calls.sort(key=lambda call: call.start_ns)
    works.sort(key=lambda work: (work.start_ns, work.end_ns, work.correlation))
    info = document.distributedInfo or _Distributed()
    return DeviceTrace(events, calls, works, syncs, info.rank, info.world_size, _listed_groups(info))


def _document(path: Path) -> _Document:
    """Decode the file at once; event by event when an irrelevant one has an unheard-of form."""
    try:
        return read_json(path, _Document)
    except TraceFormatError as error:
        if not isinstance(error.__cause__, msgspec.ValidationError):
            raise
    loose = read_json(path, _LooseDocument)
    return _Document(
        [event for item in loose.traceEvents if (event := _readable(item)) is not None],
        loose.baseTimeNanoseconds,
        _distributed(loose.distributedInfo),
    )


def _readable(item: Any) -> _RawEvent | None:
    try:
        return msgspec.convert(item, _RawEvent)
    except msgspec.ValidationError:
        return None


def _distributed(value: Any) -> _Distributed | None:
    try:
        return msgspec.convert(value, _Distributed | None)
    except msgspec.ValidationError:
        return None


def _listed_groups(info: _Distributed) -> dict[str, tuple[int, ...]]:
    """Return the groups the trace lists; anything odd counts as absent."""
    listed = info.pg_config if isinstance(info.pg_config, list) else []
    groups = {}
    for item in listed:
        if isinstance(item, Mapping) and isinstance(item.get("ranks"), list):
            groups[str(item.get("pg_name"))] = tuple(r for r in item["ranks"] if isinstance(r, int))
    return groups


def _span(raw: _RawEvent, base_ns: int, path: Path) -> tuple[int, int]:
    """Return start and end of *raw* in Unix nanoseconds."""
    ts, dur = raw.ts, raw.dur
    try:
        if -_MAX_MICROSECONDS < ts < _MAX_MICROSECONDS and 0 <= dur < _MAX_MICROSECONDS:
            start = base_ns + round(ts * 1000)
            return start, start + round(dur * 1000)
    except TypeError:
        pass
    raise TraceFormatError(
        f"{path}: event '{raw.name}' has an impossible time ({ts!r}, {dur!r}). Capture again."
    )


def _event(raw: _RawEvent, base_ns: int, path: Path) -> Event:
    start, end = _span(raw, base_ns, path)
    args, name = raw.args, str(raw.name)
    return Event(
        name,
        raw.cat == "cpu_op" and not name.startswith(_MODULE),
        str(raw.tid),
        start,
        end,
        _integer(args.record_id, 0),
        _integer(args.sequence, -1),
        _integer(args.external_id, 0),
        _comm(args) if name == _PARAMETERS else None,
    )


def _call(raw: _RawEvent, base_ns: int, path: Path) -> Call:
    start, end = _span(raw, base_ns, path)
    args = raw.args
    correlation = _integer(args.correlation, -1)
    return Call(str(raw.name), str(raw.tid), start, end, correlation, _integer(args.external_id, 0))


def _work(raw: _RawEvent, base_ns: int, path: Path) -> Work:
    start, end = _span(raw, base_ns, path)
    args = raw.args
    return Work(
        str(raw.name),
        _WORK[str(raw.cat)],
        _integer(args.device, 0),
        _integer(args.stream, -1),
        start,
        end,
        _integer(args.correlation, -1),
        _integer(args.external_id, 0),
        _integer(args.size_bytes, -1),
        _comm(args),
    )


def _sync(args: _Arguments) -> Sync:
    return Sync(
        str(args.sync_kind),
        _integer(args.stream, -1),
        _integer(args.on_stream, -1),
        _integer(args.correlation, -1),
        _integer(args.record_correlation, -1),
    )


def _comm(args: _Arguments) -> CommArguments | None:
    """Return what *args* says about a communication, if anything."""
    if args.collective is None:
        return None
    peer_to = _integer(args.peer_to, -1)
    return CommArguments(
        str(args.collective),
        _integer(args.in_elements, -1),
        _integer(args.out_elements, -1),
        str(args.dtype),
        _integer(args.group_size, 0),
        str(args.group_name),
        _ranks(args.group_ranks),
        peer_to if peer_to >= 0 else _integer(args.peer_from, -1),
    )


def _ranks(value: Any) -> tuple[int, ...]:
    """Return the ranks that *value*, such as ``"[0, 1]"``, lists; none when the trace cut the list short."""
    try:
        ranks = ast.literal_eval(value) if isinstance(value, str) and "..." not in value else value
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    return tuple(ranks) if isinstance(ranks, list) and all(type(rank) is int for rank in ranks) else ()


def _integer(value: Any, default: int) -> int:
    """Return *value* as an integer; some traces write integers as text."""
    if type(value) is int:
        return value
    if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 20:
        return int(value)
    return default
