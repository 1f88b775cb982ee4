"""Read device traces: ``torch.profiler``'s Kineto JSON, of any PyTorch since 2022 and any accelerator."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace

from ...errors import TraceFormatError
from ...support.table import positions
from .._columns import Columns, which
from .._files import stream
from .._native import DeviceReader
from ._communications import described_groups, group_labels

# Kinds of device work, by number.
CATEGORIES = ("kernel", "memcpy", "memset")
# Prefixes of the tracer's annotations, which are recorded as operators because that is faster.
MODULE_RANGE = "chakrascope::module "
CALL_RANGE = "chakrascope::call "
_LINE_MARK = "chakrascope::line "
OWN_RANGES = ("chakrascope::",)
# Prefix of calls of modules in the profiler's Python frames (with_stack).
MODULE_FRAME = "nn.Module: "
# The profiler's annotation of a step, up to the step's number.
STEP_MARK = "ProfilerStep#"
_MAX_BASE_NS = 2**61
_MAX_NS = 2**63
_MAX_KINDS = 5  # maximum number of kinds of unreadable events in an error
_LONGEST_NS = 30 * 86_400 * 10**9  # no profiler records for so long, but a damaged time is 0, for example
# A larger fraction of events with impossible times means that the whole trace is unreliable.
_MAX_MISTIMED = 0.05


class _Distributed(msgspec.Struct):
    rank: int = -1
    world_size: int = 0
    pg_config: Any = None


class _Device(msgspec.Struct):
    id: int = -1
    name: str = ""


class CommArguments(NamedTuple):
    """The trace's arguments of a communication; -1, 0 or "" if absent.

    Element counts are those of this rank. *group_ranks* are global ranks; the list is empty if the trace
    truncated it.
    """

    collective: str
    in_elements: int
    out_elements: int
    dtype: str
    group_size: int
    group_name: str
    group_ranks: tuple[int, ...]
    peer: int = -1


class Event(NamedTuple):
    """One operator or annotation on a host thread; times are Unix nanoseconds.

    *arguments* is an index into the trace's arguments, -1 if none were recorded.
    """

    name: str
    is_operator: bool
    thread: str
    start_ns: int
    end_ns: int
    record_id: int
    sequence: int
    external_id: int = 0
    comm: CommArguments | None = None
    arguments: int = -1


class Call(NamedTuple):
    """A call of the accelerator's runtime on a host thread, and the launched *kernel* ("" if unknown)."""

    name: str
    thread: str
    start_ns: int
    end_ns: int
    correlation: int
    external_id: int
    kernel: str = ""


class Work(NamedTuple):
    """One piece of device work; *category* is one of `CATEGORIES`."""

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


class Events(Columns, frozen=True):
    """Columns of `Event`; texts and *arguments* are indices, *comm* is a row of `Comms` or -1."""

    name: np.ndarray
    is_operator: np.ndarray
    thread: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    record_id: np.ndarray
    sequence: np.ndarray
    external_id: np.ndarray
    comm: np.ndarray
    arguments: np.ndarray


class Frames(Columns, frozen=True):
    """Calls of Python functions and modules on host threads, from ``with_stack``.

    Functions that took less than 20 us are omitted. Texts are indices into the trace's texts.
    """

    name: np.ndarray
    thread: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray


class Calls(Columns, frozen=True):
    """Columns of `Call`; texts are indices into the trace's texts."""

    name: np.ndarray
    thread: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    correlation: np.ndarray
    external_id: np.ndarray
    kernel: np.ndarray


class Works(Columns, frozen=True):
    """Columns of `Work`; *category* is an index into `CATEGORIES`, *comm* is a row of `Comms` or -1."""

    name: np.ndarray
    category: np.ndarray
    device: np.ndarray
    stream: np.ndarray
    start_ns: np.ndarray
    end_ns: np.ndarray
    correlation: np.ndarray
    external_id: np.ndarray
    size_bytes: np.ndarray
    comm: np.ndarray


class Syncs(Columns, frozen=True):
    """Recorded synchronisations: *stream*, or the host, waits for *on_stream*.

    *record_correlation* is the call that recorded the awaited event, and *correlation* is the call that waits
    (-1: unknown). *kind* is an index into the trace's texts.
    """

    kind: np.ndarray
    stream: np.ndarray
    on_stream: np.ndarray
    correlation: np.ndarray
    record_correlation: np.ndarray


class Comms(Columns, frozen=True):
    """Columns of `CommArguments`; *group_ranks* is a list as text."""

    collective: np.ndarray
    in_elements: np.ndarray
    out_elements: np.ndarray
    dtype: np.ndarray
    group_size: np.ndarray
    group_name: np.ndarray
    group_ranks: np.ndarray
    peer: np.ndarray


class DeviceTrace(msgspec.Struct, frozen=True):
    """The device trace of a rank: host events, calls and device work.

    *rank* and *world_size* are -1 and 0 in jobs that were not distributed. *groups* are the listed
    process groups by name, with *group_labels*. *arguments*, if requested, are JSON arrays of
    shapes, types and values. *process* is the process number (-1: unknown). *unread* counts unsupported
    events by kind, such as events of another accelerator. *frames* are Python calls in order of start,
    enclosing calls first. *lines* are the lines of the script that the tracer marked, in order and without
    overlaps. *devices* are device names by number. *left_out* describes the events that were
    omitted because of impossible times.
    """

    events: Events
    calls: Calls
    works: Works
    syncs: Syncs
    comms: Comms
    texts: list[str]
    rank: int = -1
    world_size: int = 0
    groups: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    group_labels: dict[str, str] = msgspec.field(default_factory=dict)
    arguments: Sequence[str] = ()
    process: int = -1
    unread: dict[str, int] = msgspec.field(default_factory=dict)
    frames: Frames = msgspec.field(default_factory=Frames.none)
    lines: Frames = msgspec.field(default_factory=Frames.none)
    devices: dict[int, str] = msgspec.field(default_factory=dict)
    left_out: str = ""

    def names(self, numbers: np.ndarray) -> list[str]:
        """Return the texts of the trace with the given *numbers*."""
        return [self.texts[number] for number in numbers.tolist()]

    def comm(self, row: int) -> CommArguments | None:
        """Return the arguments in *row* of the communications, or None for row -1."""
        if row < 0:
            return None
        values = self.comms.row(row)
        for column in ("collective", "dtype", "group_name", "group_ranks"):
            values[column] = self.texts[values[column]]
        return CommArguments(**values | {"group_ranks": _ranks(values["group_ranks"])})

    def rows(self) -> list[Event]:
        """Return all events as rows, which is slow."""
        columns: dict[str, list[Any]] = {name: getattr(self.events, name).tolist() for name in Event._fields}
        columns |= {name: [self.texts[number] for number in columns[name]] for name in ("name", "thread")}
        columns["comm"] = [self.comm(row) for row in columns["comm"]]
        return [Event(*values) for values in zip(*columns.values(), strict=True)]

    def work(self, index: int) -> Work:
        """Return the device work at *index* as a row."""
        values = self.works.row(index)
        values |= {"name": self.texts[values["name"]], "category": CATEGORIES[values["category"]]}
        return Work(**values | {"comm": self.comm(values["comm"])})

    def call(self, index: int) -> Call:
        """Return the call at *index* as a row."""
        values = self.calls.row(index)
        return Call(**values | {name: self.texts[values[name]] for name in ("name", "thread", "kernel")})

    def issuing_calls(self) -> np.ndarray:
        """Return the first call with the correlation id of each piece of device work, or -1 without one."""
        known = np.flatnonzero(self.calls.correlation > 0)
        correlations, first = np.unique(self.calls.correlation[known], return_index=True)
        found = positions(correlations, self.works.correlation)
        return np.append(known[first], -1)[found]

    def with_records(self, record_ids: np.ndarray) -> DeviceTrace:
        """Return this trace with other record-function ids for its events."""
        return replace(self, events=replace(self.events, record_id=record_ids))

    def with_lines(self, lines: Sequence[Frames]) -> DeviceTrace:
        """Return this trace with *lines* added to its lines."""
        joined = self.lines.joined(*lines)
        return replace(self, lines=joined.take(np.lexsort((joined.start_ns, joined.thread))))

    def with_annotations(self, annotations: Sequence[Events]) -> DeviceTrace:
        """Return this trace with *annotations* added to its events; enclosing events come first."""
        first, *rest = (*annotations, self.events)
        return _sorted(replace(self, events=first.joined(*rest)))


def read_device_trace(path: Path, *, with_arguments: bool = False) -> DeviceTrace:
    """Read the Kineto JSON at *path* (plain or gzip), optionally with the arguments of operators.

    Events with impossible times, such as a negative duration or years from the others, are omitted if there
    are few. Raises `TraceFormatError` if the file is truncated, of another kind, or has neither operators nor
    device work with calls that may have issued it.
    """
    reader = DeviceReader(with_arguments)
    stream(path, reader)
    _refuse_merged(path, reader.processes())
    about, texts = reader.about(), reader.texts()
    base = _base_ns(about, path)
    info = _distributed(about)
    events, calls, works = Events(**reader.events()), Calls(**reader.calls()), Works(**reader.works())
    frames = Frames(**reader.frames())
    (events, calls, works), strays, stray = _without_strays((events, calls, works), texts)
    count, first = reader.mistimed()
    left_out = _left_out(path, (count + strays, first or stray), len(events) + len(calls) + len(works))
    for table in (events, calls, works, frames):
        if len(table) and int(table.end_ns.max()) + base >= _MAX_NS:
            raise TraceFormatError(f"{path} has an event with an impossible time. Next: capture again.")
        table.start_ns[:] += base
        table.end_ns[:] += base
    is_range = which(texts, lambda text: text.startswith(OWN_RANGES))
    events = replace(events, is_operator=events.is_operator.astype(bool) & ~is_range[events.name])
    if not events.is_operator.any() and not (len(calls) and len(works)):
        held = _instead(len(calls), len(works), reader.unread())
        raise TraceFormatError(
            f"{path} holds no operator (cpu_op) event{held}: it is not a PyTorch profiler trace, or "
            "nothing ran while it was recorded. Capture again, with CPU activities on."
        )
    events, lines = _without_lines(events, texts)
    trace = DeviceTrace(events, calls, works, Syncs(**reader.syncs()), Comms(**reader.comms()), texts)
    groups = described_groups(info.pg_config if isinstance(info.pg_config, list) else [])
    return replace(
        _sorted(trace),
        rank=info.rank,
        world_size=info.world_size,
        groups={name: ranks for name, _, ranks in groups},
        group_labels=group_labels(groups),
        arguments=reader.arguments(),
        process=reader.process(),
        unread=reader.unread(),
        frames=frames.take(np.lexsort((-frames.end_ns, frames.start_ns))),
        lines=lines,
        devices=_devices(about),
        left_out=left_out,
    )


def _without_lines(events: Events, texts: list[str]) -> tuple[Events, Frames]:
    """Return *events* without the tracer's marks of lines, and the lines, whose places are added to *texts*.

    A line ends at the next mark on the same thread.
    """
    is_mark = which(texts, lambda text: text.startswith(_LINE_MARK))
    marks = events.take(is_mark[events.name])
    marks = marks.take(np.lexsort((marks.start_ns, marks.thread)))
    lines = Frames(marks.name[:-1], marks.thread[:-1], marks.start_ns[:-1], marks.start_ns[1:])
    lines = lines.take(lines.thread == marks.thread[1:])
    numbers = np.arange(len(texts))
    for mark in np.flatnonzero(is_mark).tolist():
        numbers[mark] = len(texts)
        texts.append(texts[mark].removeprefix(_LINE_MARK))
    return events.take(~is_mark[events.name]), replace(lines, name=numbers[lines.name])


def _refuse_merged(path: Path, processes: Sequence[str]) -> None:
    """Raise `TraceFormatError` for a merged trace of several *processes*, whose call numbers collide."""
    if len(processes) > 1:
        raise TraceFormatError(
            f"{path} holds the operators of {len(processes):,} processes "
            f"({', '.join(processes[:4])}{', ...' * (len(processes) > 4)}), like a merged trace of several "
            "ranks, so it does not show which process issued which kernel. Next: give the trace of each rank."
        )


def _without_strays(
    tables: tuple[Events, Calls, Works], texts: Sequence[str]
) -> tuple[tuple[Events, Calls, Works], int, str]:
    """Return *tables* without rows more than `_LONGEST_NS` from the others, their number, and the first."""
    timed: Sequence[Events | Calls | Works] = tables
    starts = np.concatenate([table.start_ns for table in timed])
    middle = float(np.median(starts)) if len(starts) else 0.0
    far = [
        np.maximum(np.abs(table.start_ns - middle), np.abs(table.end_ns - middle)) > _LONGEST_NS
        for table in timed
    ]
    count = sum(int(strays.sum()) for strays in far)
    if not count:
        return tables, 0, ""
    table, row = next((one, strays.argmax()) for one, strays in zip(timed, far, strict=True) if strays.any())
    start, length = int(table.start_ns[row]), int(table.end_ns[row] - table.start_ns[row])
    first = f"'{texts[table.name[row]]}' (ts {start / 1e3:.16g}, dur {length / 1e3:.16g})"
    events, calls, works = tables
    return (events.take(~far[0]), calls.take(~far[1]), works.take(~far[2])), count, first


def _left_out(path: Path, mistimed: tuple[int, str], usable: int) -> str:
    """Describe the *mistimed* events; raises `TraceFormatError` if there are too many."""
    count, first = mistimed
    if not count:
        return ""
    total = count + usable
    share = f"{count:,} of {total:,} events"
    cause = f"have impossible times (the first is {first})"
    if count > _MAX_MISTIMED * total:
        raise TraceFormatError(f"{path}: {share} {cause}: the profiler's clock failed. Capture again.")
    return f"{share} in {path.name} {cause}: they were left out"


def _instead(calls: int, works: int, unread: Mapping[str, int]) -> str:
    """Describe the content of a trace without operators, as part of a sentence."""
    counts = {"runtime calls": calls, "kernels and copies": works}
    counts |= {f"events of kind '{kind}'": count for kind, count in unread.items()}
    held = [f"{count:,} {what}" for what, count in counts.items() if count]
    more = len(held) - _MAX_KINDS
    held = held[:_MAX_KINDS] + [f"{more:,} more kinds"] * (more > 0)
    return f", but {', '.join(held)}" if held else ""


def _sorted(trace: DeviceTrace) -> DeviceTrace:
    """Return *trace* with events, calls and device work sorted by start."""
    events, calls, works = trace.events, trace.calls, trace.works
    return replace(
        trace,
        events=events.take(np.lexsort((-events.end_ns, events.start_ns))),
        calls=calls.take(np.argsort(calls.start_ns, kind="stable")),
        works=works.take(np.lexsort((works.correlation, works.end_ns, works.start_ns))),
    )


def device_trace(
    events: Sequence[Event],
    calls: Sequence[Call] = (),
    works: Sequence[Work] = (),
    *,
    world_size: int = 0,
    groups: Mapping[str, tuple[int, ...]] | None = None,
) -> DeviceTrace:
    """Return the device trace with the given rows, in any order, without communication arguments."""
    numbers: dict[str, int] = {}
    trace = DeviceTrace(
        events=_columns(Events, Event, events, numbers),
        calls=_columns(Calls, Call, calls, numbers),
        works=_columns(Works, Work, works, numbers),
        syncs=Syncs.none(),
        comms=Comms.none(),
        texts=list(numbers),  # the columns above number their texts
        world_size=world_size,
        groups=dict(groups or {}),
    )
    return _sorted(trace)


def _columns(table: Any, row_type: Any, rows: Sequence[Any], numbers: dict[str, int]) -> Any:
    """Convert *rows* to *table*, numbering their texts."""

    def plain(name: str, value: Any) -> Any:
        if name == "category":
            return CATEGORIES.index(value)
        if name == "comm":
            return -1
        return numbers.setdefault(value, len(numbers)) if isinstance(value, str) else value

    names = row_type._fields
    return table(
        **{
            name: np.array([plain(name, getattr(row, name)) for row in rows], dtype=_dtype(name))
            for name in names
        }
    )


def _dtype(column: str) -> type:
    return bool if column == "is_operator" else np.int64


def _base_ns(about: Mapping[str, str], path: Path) -> int:
    """Return the base time (Unix ns) of the trace's relative times."""
    try:
        base = msgspec.json.decode(about.get("baseTimeNanoseconds", "0"), type=int)
    except msgspec.MsgspecError:
        base = -1
    if not 0 <= base < _MAX_BASE_NS:
        base_text = about["baseTimeNanoseconds"]
        raise TraceFormatError(f"{path} has an impossible base time ({base_text} ns). Capture again.")
    return base


def _distributed(about: Mapping[str, str]) -> _Distributed:
    """Parse the trace's information on the job; unexpected values count as absent."""
    try:
        found = msgspec.json.decode(about.get("distributedInfo", "null"), type=_Distributed | None)
    except msgspec.MsgspecError:
        return _Distributed()
    return found or _Distributed()


def _devices(about: Mapping[str, str]) -> dict[int, str]:
    """Parse the trace's ``deviceProperties``; unexpected values count as absent."""
    try:
        found = msgspec.json.decode(about.get("deviceProperties", "[]"), type=list[_Device])
    except msgspec.MsgspecError:
        return {}
    return {device.id: device.name for device in found if device.name}


def _ranks(text: str) -> tuple[int, ...]:
    """Parse ranks such as ``"[0, 1]"``; () if the trace truncated the list."""
    try:
        ranks = ast.literal_eval(text) if "..." not in text else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return ()
    return tuple(ranks) if isinstance(ranks, list) and all(type(rank) is int for rank in ranks) else ()
