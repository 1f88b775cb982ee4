"""Read the evidence of a rank: step times of the whole run, stacks, counters and garbage collections.

This module reads ``rankR.evidence.json.gz``, which ``_agent.evidence`` writes (see docs/how-to/capture.md).
"""

from __future__ import annotations

import gzip
import itertools
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from ..errors import TraceError, TraceFormatError
from ..support import open_file
from ._trace_set import MAX_RANKS, RankEntry, TraceSet

_FORMAT = "chakrascope-evidence"
_VERSION = 1
# The tables in the file have bounded sizes, so a larger file is damaged or a decompression bomb.
_MAX_BYTES = 1 << 28
OPTIONAL_COLUMNS = ("idle_ns", "compile_ns", "faults", "system_ns")
_ADDED_COLUMNS = ("forward_ns", "backward_ns", "collective_ns", "optimizer_ns", *OPTIONAL_COLUMNS)

_Integer = Annotated[int, msgspec.Meta(ge=-1, le=2**63 - 1)]
_Natural = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Column = list[_Integer]


class Thread(msgspec.Struct, frozen=True):
    """A thread with its system id (0 if unknown) and its name in Python."""

    tid: _Natural
    name: str


class SourceFile(msgspec.Struct, frozen=True):
    """A Python file; *origin* is ``script``, ``library``, ``standard`` or ``builtin``."""

    path: str
    origin: str


class Loader(msgspec.Struct, frozen=True):
    """A ``DataLoader`` in use; *dataset* creates items in *file* (-1: unknown) at *line*."""

    dataset: str
    file: _Integer
    line: _Integer
    collate: str
    workers: _Natural
    start_method: str
    batch_size: _Integer
    pin_memory: bool


class _Table(msgspec.Struct, frozen=True):
    """A table of integer columns of equal length."""

    def __len__(self) -> int:
        return len(getattr(self, self.__struct_fields__[0]))

    @property
    def columns(self) -> dict[str, list[int]]:
        """The columns of the table by name."""
        return {name: getattr(self, name) for name in self.__struct_fields__}


class StepReadings(_Table, frozen=True):
    """Readings of times and counters at the boundaries between steps.

    All columns except *index* (the number of ended steps), *time_ns* (Unix) and *recorded* are cumulative; -1
    means not read. The columns after *recorded* are [] in old captures. *collective_ns* is the time spent
    waiting. *idle_ns* is the idle time of all cores that the process may use. *faults* and *system_ns* are
    the page faults and the system time of the thread. Two rows with the same index enclose the work of the
    agent, which belongs to no step.
    """

    index: _Column
    time_ns: _Column
    cpu_ns: _Column
    process_cpu_ns: _Column
    delay_ns: _Column
    voluntary: _Column
    involuntary: _Column
    read_bytes: _Column
    written_bytes: _Column
    gc_ns: _Column
    loader_ns: _Column
    fetch_ns: _Column
    recorded: _Column
    forward_ns: _Column = []
    backward_ns: _Column = []
    collective_ns: _Column = []
    optimizer_ns: _Column = []
    idle_ns: _Column = []
    compile_ns: _Column = []
    faults: _Column = []
    system_ns: _Column = []

    def steps(self) -> Iterator[tuple[int, int, int]]:
        """Yield the index, first row and last row of each complete step."""
        for row, (before, after) in enumerate(itertools.pairwise(self.index)):
            if after == before + 1:
                yield before, row, row + 1


class Samples(_Table, frozen=True):
    """Samples of Python stacks; rows with the same *time_ns* form a sample, which was *late_ns* late.

    *thread*, *stack* and *wait* are indices; *cpu_ns* and *delay_ns* are cumulative times of the thread.
    """

    time_ns: _Column
    late_ns: _Column
    thread: _Column
    stack: _Column
    cpu_ns: _Column
    delay_ns: _Column
    wait: _Column


class Counters(_Table, frozen=True):
    """Cumulative counters of the process and, for throttling, its control group."""

    time_ns: _Column
    process_cpu_ns: _Column
    read_bytes: _Column
    written_bytes: _Column
    disk_read_bytes: _Column
    disk_written_bytes: _Column
    throttled_periods: _Column
    throttled_ns: _Column


class Collections(_Table, frozen=True):
    """Garbage collections in order of their ends; *collected* is the number of objects."""

    start_ns: _Column
    end_ns: _Column
    generation: _Column
    thread: _Column
    collected: _Column


class Frame(NamedTuple):
    """A function and the line that was being executed.

    *call* is the name of the function that the line calls, if it has no Python frame (otherwise "").
    """

    function: str
    path: str
    line: int
    origin: str
    call: str

    @property
    def place(self) -> str:
        """The frame as ``function (path:line)``; a generator expression has its function's name."""
        from ._agent.sources import outer_function  # noqa: PLC0415 - imports the whole agent

        return f"{outer_function(self.function)} ({self.path}:{self.line})"


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence from one rank's agent; all times are Unix nanoseconds.

    *stacks* are pairs of a parent stack (-1: none) and the innermost frame. Stack 0 is empty.
    *step_histogram* counts all steps of the run without a profiler by the lower bound of their duration.
    *cores* is the number of cores that the process may use, and *quota_cores* is the core limit of the
    control group. *page_fault_ns* is the CPU time of a page fault. 0 means unknown or unlimited.
    *bfloat16* states whether the processor has units for this precision; None means unknown.
    """

    format: str
    version: int
    rank: _Natural
    pid: _Natural
    thread: _Natural
    threads: list[Thread]
    files: list[SourceFile]
    frames: list[tuple[str, _Natural, _Natural, str]]
    stacks: list[tuple[_Integer, _Integer]]
    waits: list[str]
    loaders: list[Loader]
    steps: StepReadings
    samples: Samples
    counters: Counters
    collections: Collections
    steps_total: _Natural
    step_histogram: list[tuple[_Natural, _Natural]]
    switch_interval_ns: _Natural
    sampling: dict[str, int | bool]
    end_ns: _Natural
    cores: _Natural = 0
    quota_cores: float = 0.0
    page_fault_ns: _Natural = 0
    bfloat16: bool | None = None

    def frame(self, index: int) -> Frame:
        """Return the stack frame with the number *index*."""
        function, file, line, call = self.frames[index]
        return Frame(function, self.files[file].path, line, self.files[file].origin, call)

    def frames_of(self, stack: int) -> list[Frame]:
        """Return the frames of *stack*, beginning with the innermost frame."""
        frames = []
        while stack > 0:
            stack, frame = self.stacks[stack]
            frames.append(self.frame(frame))
        return frames


def read_evidence(path: Path) -> Evidence:
    """Read and check the evidence in the file *path*.

    Raises:
        TraceError: the file cannot be read.
        TraceFormatError: the file is truncated, damaged, of another format or version, or contradictory.

    """
    data = _contents(path)
    try:
        head = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        versions = [msgspec.json.decode(head.get(key, b"null")) for key in ("format", "version")]
    except (RecursionError, ValueError) as error:
        raise TraceFormatError(f"{path} is not valid JSON ({error}). {_NEXT}") from None
    if versions != [_FORMAT, _VERSION] or versions[1] is True:
        raise TraceFormatError(
            f'{path} is not evidence of a capture: "format" and "version" are {versions!r:.80}, not '
            f"{_FORMAT!r} and {_VERSION}. Use the chakrascope that captured it, or capture again."
        )
    try:
        evidence = msgspec.json.decode(data, type=Evidence)
    except (RecursionError, ValueError) as error:
        raise TraceFormatError(f"{path}: {error}. {_NEXT}") from None
    contradiction = next(_contradictions(evidence), None)
    if contradiction:
        raise TraceFormatError(f"{path}: {contradiction}. {_NEXT}")
    return evidence


_NEXT = "The file is damaged or truncated: copy the trace set again or capture again."


def _contents(path: Path) -> bytes:
    try:
        with open_file(path) as packed, gzip.open(packed) as file:
            data = file.read(_MAX_BYTES + 1)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise TraceFormatError(f"{path} cannot be decompressed ({error}). {_NEXT}") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from None
    if len(data) > _MAX_BYTES:
        raise TraceFormatError(f"{path} unpacks to more than {_MAX_BYTES >> 20} MiB. {_NEXT}")
    return data


def _contradictions(evidence: Evidence) -> Iterator[str]:
    """Yield the errors in *evidence*: invalid indices, and rows out of order."""
    tables = {name: getattr(evidence, name) for name in ("steps", "samples", "counters", "collections")}
    for name, table in tables.items():
        for column, values in table.columns.items():
            if len(values) != len(table) and (values or column not in _ADDED_COLUMNS):
                yield f"column {column} of {name} has {len(values)} rows, others have {len(table)}"
    for name, times in (
        ("steps", evidence.steps.time_ns),
        ("steps", evidence.steps.index),
        ("samples", evidence.samples.time_ns),
        ("counters", evidence.counters.time_ns),
        ("collections", evidence.collections.end_ns),
    ):
        if any(later < earlier for earlier, later in itertools.pairwise(times)):
            yield f"the rows of {name} are not in order"
    for number, (parent, _) in enumerate(evidence.stacks):
        if parent >= number:
            yield f"stack {number} is called by stack {parent}, which comes after it"
    if not evidence.stacks or evidence.stacks[0] != (-1, -1):
        yield "stack 0 is not empty"
    for what, indices, of, least in (
        ("a frame's file", [file for _, file, _, _ in evidence.frames], evidence.files, 0),
        ("a loader's file", [loader.file for loader in evidence.loaders], evidence.files, -1),
        ("a stack's frame", [frame for _, frame in evidence.stacks[1:]], evidence.frames, 0),
        ("a stack's parent", [parent for parent, _ in evidence.stacks[1:]], evidence.stacks, 0),
        ("a sample's stack", evidence.samples.stack, evidence.stacks, 0),
        ("a sample's thread", evidence.samples.thread, evidence.threads, 0),
        ("a sample's wait", evidence.samples.wait, evidence.waits, 0),
        ("a collection's thread", evidence.collections.thread, evidence.threads, 0),
    ):
        yield from _out_of_range(what, indices, of, least)


def _out_of_range(what: str, indices: Sequence[int], of: Sequence[object], least: int) -> Iterator[str]:
    if indices and not (least <= min(indices) and max(indices) < len(of)):
        wrong = next(index for index in indices if not least <= index < len(of))
        yield f"{what} is number {wrong} of {len(of)}"


_Rank = Annotated[int, msgspec.Meta(ge=0, lt=MAX_RANKS)]
_READ_BYTES = 1 << 16
_NEXT_OF_STEPS = "The file is damaged, or of another version: copy it again or record again."


class StepTimes(msgspec.Struct, frozen=True):
    """Readings of consecutive steps of *rank*; *sends* are the ranks to which *rank* sends messages."""

    rank: _Rank
    steps: StepReadings
    sends: list[_Rank] = []


class _Part(StepTimes, frozen=True, kw_only=True):
    format: Literal["chakrascope-steps"]
    version: Literal[1]


def read_step_times(trace_set: TraceSet, entry: RankEntry) -> Iterator[StepTimes]:
    """Yield the recorded steps of *entry*, a rank of *trace_set*, part by part, in order of time.

    Only captures of 0 steps have recorded steps. An incomplete part, which a killed process leaves, is
    dropped.

    Raises:
        TraceError: the file cannot be read.
        TraceFormatError: the file is damaged or of another format or version.

    """
    if entry.step_times is None:
        return
    path = trace_set.path / entry.step_times
    for document in _documents(path):
        try:
            part = msgspec.json.decode(document, type=_Part)
        except (RecursionError, ValueError) as error:
            raise TraceFormatError(f"{path}: {error}. {_NEXT_OF_STEPS}") from None
        _check(path, part, entry.rank)
        yield part


def _check(path: Path, part: StepTimes, rank: int) -> None:
    columns = part.steps.columns
    lengths = {len(own) for name, own in columns.items() if own or name not in OPTIONAL_COLUMNS}
    times = part.steps.time_ns
    if len(lengths) > 1:
        raise TraceFormatError(f"{path}: columns of one part have {sorted(lengths)} rows. {_NEXT_OF_STEPS}")
    if times != sorted(times) or part.steps.index != sorted(part.steps.index):
        raise TraceFormatError(f"{path}: its steps are not in order. {_NEXT_OF_STEPS}")
    if part.rank != rank:
        raise TraceFormatError(
            f"{path} belongs to rank {part.rank}, but the manifest lists it for rank {rank}. {_NEXT_OF_STEPS}"
        )


def _documents(path: Path) -> Iterator[bytes]:
    """Yield the content of each gzip member in order; an incomplete last member is dropped."""
    try:
        with open_file(path) as file:
            rest = file.read(_READ_BYTES)
            while rest:
                member: Any = zlib.decompressobj(zlib.MAX_WBITS | 16)
                document = bytearray()
                while rest and not member.eof:
                    document += member.decompress(rest, _MAX_BYTES + 1 - len(document))
                    if len(document) > _MAX_BYTES:
                        raise TraceFormatError(
                            f"{path}: a part unpacks to over {_MAX_BYTES >> 20} MiB. {_NEXT_OF_STEPS}"
                        )
                    rest = member.unconsumed_tail or member.unused_data or file.read(_READ_BYTES)
                if member.eof:
                    yield bytes(document)
    except zlib.error as error:
        raise TraceFormatError(f"{path} cannot be decompressed ({error}). {_NEXT_OF_STEPS}") from None
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}. Check its permissions.") from None
