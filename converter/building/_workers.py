"""Convert ranks in processes of this machine, or on a Dask cluster, and store finished graphs.

For large traces, the converting process writes each graph to a file. The graph's file is read by column, and
an interrupted conversion reuses it. The file records its inputs. It is not reused if the traces' sizes or
times, the selected steps or the version differ.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import socket
import uuid
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from ...errors import BackendError, ChakrascopeError
from ...support import code_version, end_with_parent, signals_blocked
from ...tracer import StepRange
from ..chakra import Graph, read_graph, write_graph
from ..readers import RankTraces
from ._rank import StepsDiffer, open_rank, rank_graph
from ._rank_graph import OpenRank, RankGraph, Selection
from ._steps import StepChoice

if TYPE_CHECKING:
    from ...support.cluster import Cluster

# Minimum total size of traces for which starting another process saves time.
_WORTH_PROCESSES_BYTES = 32 << 20


T = TypeVar("T")
A = TypeVar("A")


@contextmanager
def workers_at(cluster: str | None, jobs: int | None, finished: FinishedRanks | None) -> Iterator[Workers]:
    """Yield the executor: a Dask *cluster*, or up to *jobs* processes (None: as many as are useful).

    *finished* stores the graphs of large traces. If *finished* is missing, all graphs stay in memory. For a
    batch system's cluster, *jobs* is the number of the batch system's jobs. Raises the errors of
    `connected`.
    """
    finished = finished or FinishedRanks.nowhere()
    if cluster is None:
        yield Workers(finished, jobs)
        return
    from ...support.cluster import connected  # noqa: PLC0415 - seldom needed

    with connected(cluster, jobs or 1, "conversion") as place:
        yield _OnCluster(finished, None, place)


@dataclass(frozen=True)
class Workers:
    """Converts one rank per task, in up to *jobs* processes of this machine (None: as many as are useful).

    *finished* stores finished graphs.
    """

    finished: FinishedRanks
    jobs: int | None

    def readers(self, ranks: Sequence[RankTraces]) -> int:
        """Return the number of threads for reading *ranks* in this process."""
        return min(self.jobs, len(ranks)) if self.jobs is not None else _worth(ranks)

    def keeps(self, ranks: Sequence[RankTraces]) -> bool:
        """Return whether data of *ranks* that this process has read is available during the conversion."""
        return self.readers(ranks) == 1

    def begun(
        self, ranks: Sequence[RankTraces], selection: Selection
    ) -> Iterator[tuple[int, OpenRank, bool]]:
        """Open and convert each rank with the steps of *selection*, and store the rank's graph.

        Yields, in order of completion, the index in *ranks*, the opened rank and whether the conversion
        succeeded. Raises the errors of `open_rank`.
        """
        begin = partial(_begin, selection=selection, finished=self.finished)
        with closing(_mapped(begin, ranks, self.readers(ranks))) as answers:
            for index, (opened, graph, well) in enumerate(answers):
                yield index, opened, well and graph is None

    def graphs(self, opened: Sequence[OpenRank], selection: Selection) -> Iterator[tuple[int, RankGraph]]:
        """Yield the index in *opened* and the graph of each rank, in order of completion.

        Raises the error of `rank_graph` for the first rank whose conversion fails.
        """
        convert = partial(_convert, selection=selection, finished=self.finished)
        with closing(_mapped(convert, opened, self.readers([rank.traces for rank in opened]))) as answers:
            for index, (rank, answer) in enumerate(zip(opened, answers, strict=True)):
                yield index, _found(answer, rank, selection, self.finished)


def _mapped(work: Callable[[T], A], items: Sequence[T], jobs: int) -> Generator[A]:
    """Yield the results of *work* for *items*, in order, computed by several processes.

    Closing the generator early waits only for running tasks. An interrupt waits for no task.
    """
    if jobs < 2:
        yield from map(work, items)
        return
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import, seldom needed
    from multiprocessing import active_children, get_context  # noqa: PLC0415 - as above

    others = active_children()
    # Processes are spawned because a fork of a process with threads (a server, torch) may deadlock.
    with ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent, (os.getpid(),)) as pool:
        try:
            with signals_blocked(signal.SIGINT):  # otherwise, Ctrl-C would also reach the workers
                results = pool.map(work, items)
            yield from results
        except KeyboardInterrupt:
            for worker in active_children():
                if worker not in others:
                    worker.kill()
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _begin(
    traces: RankTraces, selection: Selection, finished: FinishedRanks
) -> tuple[OpenRank, RankGraph | None, bool]:
    """Open and convert a rank; return the opened rank, its graph, and whether the conversion succeeded.

    The returned graph is None if *finished* stores the graph, or if the conversion failed.
    """
    opened = open_rank(traces, keep=True)
    graph = None
    if selection.steps <= {step.index for step in opened.steps}:
        with suppress(ChakrascopeError, StepsDiffer):  # an error is raised again if the result is needed
            graph = rank_graph(opened, selection)
    opened.trace = opened.host = None
    if graph is None:
        return opened, None, False
    return opened, None if finished.keep(graph, opened, selection) else graph, True


def _convert(opened: OpenRank, selection: Selection, finished: FinishedRanks) -> RankGraph | None:
    """Convert a rank; return the graph, or None if the graph is stored in *finished*."""
    graph = rank_graph(opened, selection)
    return None if finished.keep(graph, opened, selection) else graph


def _found(
    answer: RankGraph | None, opened: OpenRank, selection: Selection, finished: FinishedRanks
) -> RankGraph:
    """Return the graph of a converted rank; if *answer* is None, the graph is read from *finished*."""
    return answer or finished.find(opened, selection) or rank_graph(opened, selection)


def _worth(ranks: Sequence[RankTraces]) -> int:
    size = sum(path.stat().st_size for rank in ranks for path in _files(rank) if path.is_file())
    return min(os.cpu_count() or 1, len(ranks)) if size >= _WORTH_PROCESSES_BYTES else 1


@dataclass(frozen=True)
class _OnCluster(Workers):
    place: Cluster

    def keeps(self, ranks: Sequence[RankTraces]) -> bool:
        return False

    def graphs(self, opened: Sequence[OpenRank], selection: Selection) -> Iterator[tuple[int, RankGraph]]:
        with closing(self._answers(opened, selection)) as answers:
            for index, rank, answer, _ in answers:
                is_kept = answer is not None and self.finished.keep(answer, rank, selection)
                yield index, _found(None if is_kept else answer, rank, selection, self.finished)

    def begun(
        self, ranks: Sequence[RankTraces], selection: Selection
    ) -> Iterator[tuple[int, OpenRank, bool]]:
        unopened = [OpenRank(traces, []) for traces in ranks]
        with closing(self._answers(unopened, selection)) as answers:
            for index, opened, graph, well in answers:
                finished = graph is None or self.finished.keep(graph, opened, selection)
                # The worker's paths are absolute, so the original traces are restored.
                yield index, msgspec.structs.replace(opened, traces=ranks[index]), well and finished

    def _answers(
        self, opened: Sequence[OpenRank], selection: Selection
    ) -> Generator[tuple[int, OpenRank, RankGraph | None, bool]]:
        """Yield the index of each rank, the opened rank, and the graph and success as from `_begin`."""
        errors: dict[int, Exception] = {}

        def tasks() -> Iterator[_Task]:
            for index, rank in enumerate(opened):
                if errors:  # errors of earlier ranks that are still being converted are raised first
                    return
                yield _Task.of(index, rank, selection, self.finished)

        with closing(self.place.answers(_Task.answer, tasks())) as answers:  # type: ignore[type-var]
            for answered in answers:
                if answered is None:
                    continue
                task, answer = answered
                if isinstance(answer, Exception):
                    errors[task.index] = answer
                else:
                    rank, graph, well = answer
                    yield task.index, rank or task.opened, graph, well
        if errors:
            raise errors[min(errors)]


@dataclass(frozen=True)
class _Task:
    """A task to convert a rank; *seen* are the rank's files that exist on the submitting machine."""

    index: int
    opened: OpenRank
    selection: Selection
    finished: FinishedRanks
    seen: list[Path]

    @classmethod
    def of(cls, index: int, opened: OpenRank, selection: Selection, finished: FinishedRanks) -> _Task:
        """Return the task of a rank with absolute paths, which runs in any working directory."""
        named = opened.traces
        absolute: dict[str, Any] = {
            name: path.absolute()
            for name in ("host_path", "device_path", "flight_path", "evidence_path")
            if (path := getattr(named, name)) is not None
        }
        absolute["capture_paths"] = tuple(path.absolute() for path in named.capture_paths)
        traces = msgspec.structs.replace(named, **absolute)
        seen = [path for path in _files(traces) if path.is_file()]
        return cls(index, msgspec.structs.replace(opened, traces=traces), selection, finished, seen)

    def answer(self) -> tuple[OpenRank | None, RankGraph | None, bool] | Exception:
        """Convert the rank on a worker, which opens the traces if necessary; return errors as the result.

        If there is no error, the result is the rank (if the worker opened it), the graph, and whether the
        conversion succeeded. The graph is None if the worker stored the graph in an accessible folder.
        """
        for path in self.seen:
            if not path.is_file():
                return BackendError(
                    f"The Dask worker on {socket.gethostname()} has no {path}, a trace of rank "
                    f"{self.opened.traces.rank}. Next: keep unpacked traces in a folder that all workers see "
                    "at the same path, or convert without --cluster."
                )
        try:
            if not self.opened.steps:
                return _begin(self.opened.traces, self.selection, self.finished)
            return None, _convert(self.opened, self.selection, self.finished), True
        except (ChakrascopeError, StepsDiffer) as error:
            return error


_NAME = "rank{rank}"
# Minimum total size of traces for which a cache lookup is faster than a repeated conversion.
_WORTH_KEEPING_BYTES = 128 << 20


class _Head(msgspec.Struct):
    """A cached graph, the sources and choices that it results from, and the facts of its traces."""

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


# Fields that the head of a rank has in common with an open rank.
_OF_OPEN = ("steps", "marked", "names", "which", "world_size", "stated_rank", "begins_with")


class FinishedRanks:
    """Caches the graphs of finished ranks in *folder*, which is created only for large traces.

    Workers get a copy of the cache, with which they check that they can access the folder.
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
        """Whether graphs are cached in a folder that this process can access."""
        return self._mark.is_file()

    def begin(self, ranks: Sequence[RankTraces]) -> None:
        """Create the folder if the traces of *ranks* are large and no other process uses the folder."""
        if self._lock is not None or self.folder == Path(os.devnull):
            return
        size = sum(_state(path)[0] for rank in ranks for path in _files(rank))
        if size < _WORTH_KEEPING_BYTES and not self.folder.is_dir():
            return
        with suppress(OSError):  # without write permission, no graph is cached
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
        """Release the folder, and remove the folder if the conversion ended *well*."""
        if self._lock is None:
            return
        self._mark.unlink(missing_ok=True)
        if well:
            shutil.rmtree(self.folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = None

    def keep(self, own: RankGraph, opened: OpenRank, selection: Selection) -> bool:
        """Write a rank's graph *own* to the cache; return False if the folder is not accessible."""
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
        """Return the cached graph of a rank with the same inputs, or None if missing or damaged."""
        head = self._read(opened.traces)
        return head.rank_graph if head and head.made_from == _made_from(opened, selection) else None

    def opened(self, traces: RankTraces) -> OpenRank | None:
        """Return the rank with the cached steps of the same traces, or None if missing."""
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
    """Yield the cache of a conversion to *target*: a folder next to *target*, removed upon success."""
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

    Folders are not part of the key, so files match after being unpacked or copied with their times.
    """
    facts = (opened.steps, opened.marked, opened.stated_rank, opened.last_entries)
    return _digest((*_of_traces(opened.traces), sorted(selection.steps), selection.world_size, *facts))


def _of_traces(traces: RankTraces) -> tuple[Any, ...]:
    return (
        code_version(),
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
    """Return the size and the modification time of the file *path*, or zeros for a missing file."""
    try:
        status = path.stat()
    except OSError:
        return 0, 0
    return status.st_size, status.st_mtime_ns


def _decoded(graph: Graph, kind: type, value: Any) -> Any:
    return graph if kind is Graph else kind(value)
