"""Device traces: the Kineto JSON of ``torch.profiler``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from ..errors import TraceFormatError
from .files import read_json

__all__ = ["DeviceTrace", "Event", "read_device_trace"]

_WANTED = frozenset({"cpu_op", "user_annotation"})
_MAX_MICROSECONDS = 2.0**52


class _Arguments(msgspec.Struct, gc=False):
    record_id: int = msgspec.field(default=0, name="Record function id")
    sequence: int = msgspec.field(default=-1, name="Sequence number")


class _RawEvent(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = ""
    name: str = ""
    tid: Any = 0
    ts: float = 0.0
    dur: float = 0.0
    args: _Arguments = msgspec.field(default_factory=_Arguments)


class _Document(msgspec.Struct):
    traceEvents: list[msgspec.Raw]
    baseTimeNanoseconds: int = 0


class _Category(msgspec.Struct, gc=False):
    cat: str | None = ""
    ph: str = ""


class Event(msgspec.Struct, frozen=True, gc=False):
    """One operator or annotation on a host thread; times are Unix nanoseconds."""

    name: str
    is_operator: bool
    thread: str
    start_ns: int
    end_ns: int
    record_id: int
    sequence: int


class DeviceTrace(msgspec.Struct, frozen=True):
    """The host events of one rank, in order of start, enclosing ones first."""

    events: list[Event]


def read_device_trace(path: Path) -> DeviceTrace:
    """Read the Kineto JSON at *path* (plain or gzip).

    Raises `TraceFormatError` when it is truncated, of another kind or without any operator.
    """
    document = read_json(path, _Document)
    category = msgspec.json.Decoder(_Category)
    decoder = msgspec.json.Decoder(_RawEvent)
    events = []
    try:
        for raw in document.traceEvents:
            head = category.decode(raw)
            if head.cat in _WANTED and head.ph == "X":
                events.append(_event(decoder.decode(raw), document.baseTimeNanoseconds, path))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise TraceFormatError(f"{path} holds an event that is none ({error}). Capture again.") from error
    if not any(event.is_operator for event in events):
        raise TraceFormatError(
            f"{path} holds no operator (cpu_op) event: it is not a PyTorch profiler trace, or nothing ran "
            "while it was taken. Capture again, with CPU activities on."
        )
    events.sort(key=lambda event: (event.start_ns, -event.end_ns))
    return DeviceTrace(events)


def _event(raw: _RawEvent, base_ns: int, path: Path) -> Event:
    if not (abs(raw.ts) < _MAX_MICROSECONDS and 0 <= raw.dur < _MAX_MICROSECONDS):
        raise TraceFormatError(
            f"{path}: event '{raw.name}' has an impossible time ({raw.ts}, {raw.dur}). Capture again."
        )
    start = base_ns + round(raw.ts * 1000)
    return Event(
        name=raw.name,
        is_operator=raw.cat == "cpu_op",
        thread=str(raw.tid),
        start_ns=start,
        end_ns=start + round(raw.dur * 1000),
        record_id=raw.args.record_id,
        sequence=raw.args.sequence,
    )
