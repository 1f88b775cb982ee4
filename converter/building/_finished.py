"""Cache of converted ranks on disk, from which an interrupted conversion resumes.

For large traces the converting process writes each graph to a file, which is read by column. A file records
its inputs: it is invalid for traces of other sizes or times, other steps or another version.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from ...support import package_version
from ...tracer import StepRange
from ..chakra import Graph, read_graph, write_graph
from ..readers import RankTraces
from ._rank_graph import OpenRank, RankGraph, Selection
from ._steps import StepChoice

_FORMAT = 8
_NAME = "rank{rank}"
# Traces that are smaller together are converted again sooner than they are looked up.
_WORTH_KEEPING_BYTES = 128 << 20


class _Head(msgspec.Struct):
    """The sources of a graph, the steps of its traces, and its facts; its columns are in the tables."""

    made_from: str
    of_traces: str
    steps: list[StepRange]
    marked: bool
    names: dict[int, str]
    which: StepChoice
    world_size: int
    stated_rank: int
    begins_with: str
    rank_graph: RankGraph


# Of these fields of a head, those of an open rank.
_OF_OPEN = ("steps", "marked", "names", "which", "world_size", "stated_rank", "begins_with")


class FinishedRanks:
    """The graphs in *folder*, which is created for large traces only.

    Workers get a copy, by which they check that they see the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = folder / f"{uuid.uuid4().hex}.mark"
        self._lock: int | None = None

    @classmethod
    def nowhere(cls) -> FinishedRanks:
        """Return a cache that stores nothing."""
        return cls(Path(os.devnull))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_lock": None}

    @property
    def count(self) -> int:
        """The number of cached ranks."""
        return sum(1 for _ in self.folder.glob(_NAME.format(rank="*") + ".nodes.parquet"))

    @property
    def is_used(self) -> bool:
        """Whether graphs are cached in a folder that this process sees."""
        return self._mark.is_file()

    def begin(self, ranks: Sequence[RankTraces]) -> None:
        """Create the folder if *ranks* are large and no other process uses it."""
        if self._lock is not None or self.folder == Path(os.devnull):
            return
        size = sum(_state(path)[0] for rank in ranks for path in _files(rank))
        if size < _WORTH_KEEPING_BYTES and not self.folder.is_dir():
            return
        with suppress(OSError):  # a place that may not be written to keeps nothing
            self.folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._mark.touch()
            except OSError:
                os.close(lock)
                raise
            self._lock = lock

    def end(self, *, well: bool) -> None:
        """Release the folder; remove it if the conversion ended *well*."""
        if self._lock is None:
            return
        self._mark.unlink(missing_ok=True)
        if well:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def keep(self, own: RankGraph, opened: OpenRank, selection: Selection) -> bool:
        """Write the graph of a rank, *own*; returns False if the folder is not visible or writable."""
        if not self.is_used or own.graph.extra:
            return False
        head = _Head(
            _made_from(opened, selection),
            _digest(_of_traces(opened.traces)),
            **{name: getattr(opened, name) for name in _OF_OPEN},
            rank_graph=own,
        )
        try:
            note = msgspec.json.encode(head, enc_hook=str).decode()
            write_graph(self._prefix(opened.traces), own.graph, note)
        except OSError:
            return False
        return True

    def find(self, opened: OpenRank, selection: Selection) -> RankGraph | None:
        """Return the cached graph of a rank with the same inputs; None if it is missing or damaged."""
        head = self._read(opened.traces)
        return head.rank_graph if head and head.made_from == _made_from(opened, selection) else None

    def opened(self, traces: RankTraces) -> OpenRank | None:
        """Return the rank with the cached steps of the same traces; None if missing."""
        head = self._read(traces)
        if head is None or head.of_traces != _digest(_of_traces(traces)):
            return None
        return OpenRank(traces, **{name: getattr(head, name) for name in _OF_OPEN})

    def _read(self, traces: RankTraces) -> _Head | None:
        try:
            read = read_graph(self._prefix(traces), traces.rank)
            return read and msgspec.json.decode(read[1], type=_Head, dec_hook=partial(_decoded, read[0]))
        except (OSError, ValueError, msgspec.MsgspecError):
            return None

    def _prefix(self, traces: RankTraces) -> Path:
        return self.folder / _NAME.format(rank=traces.rank)


@contextmanager
def finished_ranks(target: str | Path) -> Iterator[FinishedRanks]:
    """Yield the cache of a conversion to *target*: a folder next to it, removed when the block succeeds."""
    target = Path(target).absolute()
    finished = FinishedRanks(target.with_name(f".{target.name}.converting"))
    well = False
    try:
        yield finished
        well = True
    finally:
        finished.end(well=well)


def _made_from(opened: OpenRank, selection: Selection) -> str:
    """Return the cache key of a rank's graph: files by name, size and time, steps and facts.

    Folders do not count, so files that were unpacked or copied again with their times match.
    """
    known = (opened.steps, opened.marked, opened.stated_rank, opened.last_entries)
    return _digest((*_of_traces(opened.traces), sorted(selection.steps), selection.world_size, *known))


def _of_traces(traces: RankTraces) -> tuple[Any, ...]:
    return (
        _FORMAT,
        package_version(),
        [(path.name, *_state(path)) for path in _files(traces)],
        (traces.rank, traces.groups, traces.structure, traces.device, traces.linked, traces.process),
        traces.annotation,
    )


def _digest(facts: tuple[Any, ...]) -> str:
    return hashlib.sha256(repr(facts).encode()).hexdigest()


def _files(traces: RankTraces) -> list[Path]:
    paths = (traces.host_path, traces.device_path, traces.flight_path, *traces.capture_paths)
    return [path for path in paths if path is not None]


def _state(path: Path) -> tuple[int, int]:
    """Return the size and the modification time of a file; zeros if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _decoded(graph: Graph, kind: type, value: Any) -> Any:
    return graph if kind is Graph else kind(value)
