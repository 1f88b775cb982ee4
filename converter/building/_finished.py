"""Ranks whose conversion has ended, on the disk: a conversion that is stopped goes on from there.

Of large traces each graph goes to a file when it is made, by the process that made it, and is read from there
by column. What a file was made from is in it: traces of other sizes or times, other steps or another version
make it again.
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
from ._rank import OpenRank
from ._rank_graph import RankGraph, Selection
from ._steps import StepChoice

__all__ = ["FinishedRanks", "finished_ranks"]

_FORMAT = 8
_NAME = "rank{rank}"
# Traces that are smaller together are converted again sooner than they are looked up.
_WORTH_KEEPING_BYTES = 128 << 20


class _Head(msgspec.Struct):
    """What a graph was made from, the steps of its traces, and its facts; its columns are in the tables."""

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
    """The graphs in *folder*, which is made when the traces are known to be worth it.

    Workers get a copy, by which they tell whether they see the folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = folder / f"{uuid.uuid4().hex}.mark"
        self._lock: int | None = None

    @classmethod
    def nowhere(cls) -> FinishedRanks:
        """Return what keeps nothing."""
        return cls(Path(os.devnull))

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_lock": None}

    @property
    def count(self) -> int:
        """How many ranks are kept."""
        return sum(1 for _ in self.folder.glob(_NAME.format(rank="*") + ".nodes.parquet"))

    @property
    def is_used(self) -> bool:
        """Whether graphs are kept, and where this process sees them."""
        return self._mark.is_file()

    def begin(self, ranks: Sequence[RankTraces]) -> None:
        """Make the folder if *ranks* are worth it and no other process uses it."""
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
        """Let others use the folder; if all ended *well* nobody needs it any more."""
        if self._lock is None:
            return
        self._mark.unlink(missing_ok=True)
        if well:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def keep(self, own: RankGraph, opened: OpenRank, selection: Selection) -> bool:
        """Write the graph of a rank, *own*; returns False where the folder is not seen, or cannot take it."""
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
        """Return the graph of a rank if it was made from the same; None if it is not there, or damaged."""
        head = self._read(opened.traces)
        return head.rank_graph if head and head.made_from == _made_from(opened, selection) else None

    def opened(self, traces: RankTraces) -> OpenRank | None:
        """Return the rank with the steps that were found in the same traces; None if it is not there."""
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
    """Give where the ranks of a conversion to *target* are kept: beside it, until the block ends well."""
    target = Path(target).absolute()
    finished = FinishedRanks(target.with_name(f".{target.name}.converting"))
    well = False
    try:
        yield finished
        well = True
    finally:
        finished.end(well=well)


def _made_from(opened: OpenRank, selection: Selection) -> str:
    """Return what tells the graph of a rank from others: files by name, size and time, steps, what is known.

    Folders do not count: what was unpacked or copied again is the same as long as its times are.
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
    """Return the size of a file, and when it was changed last; zeros of one that is not there."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _decoded(graph: Graph, kind: type, value: Any) -> Any:
    return graph if kind is Graph else kind(value)
