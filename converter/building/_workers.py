"""Convert ranks in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import msgspec

from ...errors import BackendError, ChakrascopeError
from ...support import end_with_parent
from ..readers import RankTraces
from ._finished import FinishedRanks
from ._rank import StepsDiffer, open_rank, rank_graph
from ._rank_graph import OpenRank, RankGraph, Selection

if TYPE_CHECKING:
    from ...support.cluster import Cluster

# Below this, starting another process takes longer than it saves.
_WORTH_PROCESSES_BYTES = 32 << 20


T = TypeVar("T")
A = TypeVar("A")


class Workers(Protocol):
    """An executor of conversions of single ranks."""

    @property
    def finished(self) -> FinishedRanks:
        """The store of finished graphs, after the start."""

    def readers(self, ranks: Sequence[RankTraces]) -> int:
        """Return the number of threads for reading *ranks* in this process."""

    def keeps(self, ranks: Sequence[RankTraces]) -> bool:
        """Return whether data of *ranks* read in this process is available during their conversion."""

    def begun(
        self, ranks: Sequence[RankTraces], selection: Selection
    ) -> Iterator[tuple[int, OpenRank, bool]]:
        """Open and convert each rank, with the steps of *selection*, and store its graph.

        Yields in order of completion the index in *ranks*, the opened rank and whether its graph could be
        made. Raises what `open_rank` does.
        """

    def graphs(self, opened: Sequence[OpenRank], selection: Selection) -> Iterator[tuple[int, RankGraph]]:
        """Yield the index in *opened* and the graph of each rank, in order of completion.

        Raises the errors of `rank_graph` for the first rank with one.
        """


@contextmanager
def workers_at(cluster: str | None, jobs: int | None, finished: FinishedRanks | None) -> Iterator[Workers]:
    """Yield the executor: a Dask *cluster*, or up to *jobs* processes (None: a useful number).

    *finished* stores their graphs, if they are large; without it graphs stay in memory. For a batch
    system's cluster, *jobs* is its number of jobs. Raises what `connected` does.
    """
    if cluster is None:
        yield _Processes(jobs, finished or FinishedRanks.nowhere())
        return
    from ...support.cluster import connected  # noqa: PLC0415 - seldom needed

    with connected(cluster, jobs or 1, "conversion") as place:
        yield _OnCluster(place, finished or FinishedRanks.nowhere())


@dataclass(frozen=True)
class _Processes:
    jobs: int | None
    finished: FinishedRanks

    def readers(self, ranks: Sequence[RankTraces]) -> int:
        return min(self.jobs, len(ranks)) if self.jobs is not None else _worth(ranks)

    def keeps(self, ranks: Sequence[RankTraces]) -> bool:
        return self.readers(ranks) == 1

    def begun(
        self, ranks: Sequence[RankTraces], selection: Selection
    ) -> Iterator[tuple[int, OpenRank, bool]]:
        begin = partial(_begin, selection=selection, finished=self.finished)
        with closing(_mapped(begin, ranks, self.readers(ranks))) as answers:
            for index, (opened, graph, well) in enumerate(answers):
                yield index, opened, well and graph is None

    def graphs(self, opened: Sequence[OpenRank], selection: Selection) -> Iterator[tuple[int, RankGraph]]:
        convert = partial(_convert, selection=selection, finished=self.finished)
        with closing(_mapped(convert, opened, self.readers([rank.traces for rank in opened]))) as answers:
            yield from enumerate(_found(answers, opened, selection, self.finished))


def _mapped(work: Callable[[T], A], items: Sequence[T], jobs: int) -> Generator[A]:
    """Yield the results of *work* for *items*, in order, computed by several processes.

    If closed before its end, it only waits for running tasks; if interrupted, for none.
    """
    if jobs < 2:
        yield from map(work, items)
        return
    from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import, seldom needed
    from multiprocessing import active_children, get_context  # noqa: PLC0415 - as above

    others = active_children()
    # Spawned, not forked: a fork of a process with threads (a server, torch) may never return.
    with ProcessPoolExecutor(jobs, get_context("spawn"), end_with_parent, (os.getpid(),)) as pool:
        try:
            yield from pool.map(work, items)
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
    """Open and convert a rank; the graph is None if stored in *finished* or not made (last value: made)."""
    opened = open_rank(traces, keep=True)
    graph = None
    if selection.steps <= {step.index for step in opened.steps}:
        with suppress(ChakrascopeError, StepsDiffer):  # raised again if it has to be converted so
            graph = rank_graph(opened, selection)
    opened.trace = opened.host = None
    if graph is None:
        return opened, None, False
    return opened, None if finished.keep(graph, opened, selection) else graph, True


def _convert(opened: OpenRank, selection: Selection, finished: FinishedRanks) -> RankGraph | None:
    """Convert a rank; returns None if its graph is stored in *finished*."""
    graph = rank_graph(opened, selection)
    return None if finished.keep(graph, opened, selection) else graph


def _found(
    answers: Iterable[RankGraph | None],
    opened: Sequence[OpenRank],
    selection: Selection,
    finished: FinishedRanks,
) -> Iterator[RankGraph]:
    """Yield the graphs in *answers*, or those stored in *finished*."""
    for rank, graph in zip(opened, answers, strict=False):
        yield graph or finished.find(rank, selection) or rank_graph(rank, selection)


def _worth(ranks: Sequence[RankTraces]) -> int:
    size = sum(path.stat().st_size for rank in ranks for path in _files(rank) if path.is_file())
    return min(os.cpu_count() or 1, len(ranks)) if size >= _WORTH_PROCESSES_BYTES else 1


def _files(traces: RankTraces) -> list[Path]:
    return [path for path in (traces.host_path, traces.device_path) if path is not None]


@dataclass(frozen=True)
class _OnCluster:
    place: Cluster
    finished: FinishedRanks

    def readers(self, ranks: Sequence[RankTraces]) -> int:
        return _worth(ranks)

    def keeps(self, ranks: Sequence[RankTraces]) -> bool:
        return False

    def graphs(self, opened: Sequence[OpenRank], selection: Selection) -> Iterator[tuple[int, RankGraph]]:
        with closing(self._answers(opened, selection)) as answers:
            for index, rank, answer, _ in answers:
                is_kept = answer is not None and self.finished.keep(answer, rank, selection)
                (graph,) = _found([None if is_kept else answer], [rank], selection, self.finished)
                yield index, graph

    def begun(
        self, ranks: Sequence[RankTraces], selection: Selection
    ) -> Iterator[tuple[int, OpenRank, bool]]:
        unopened = [OpenRank(traces, []) for traces in ranks]
        with closing(self._answers(unopened, selection)) as answers:
            for index, opened, graph, well in answers:
                finished = graph is None or self.finished.keep(graph, opened, selection)
                # The worker's paths are absolute.
                yield index, msgspec.structs.replace(opened, traces=ranks[index]), well and finished

    def _answers(
        self, opened: Sequence[OpenRank], selection: Selection
    ) -> Generator[tuple[int, OpenRank, RankGraph | None, bool]]:
        """Yield the index of each rank, the opened rank, and its graph as from `_begin`."""
        errors: dict[int, Exception] = {}

        def tasks() -> Iterator[_Task]:
            for index, rank in enumerate(opened):
                if errors:  # the ranks before it are on their way, and theirs would be the first
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
    """A rank to convert; *seen* are its files that exist where the command runs."""

    index: int
    opened: OpenRank
    selection: Selection
    finished: FinishedRanks
    seen: list[Path]

    @classmethod
    def of(cls, index: int, opened: OpenRank, selection: Selection, finished: FinishedRanks) -> _Task:
        """Return the task of a rank with absolute paths, so that it runs in any working directory."""
        named = opened.traces
        absolute = {
            name: path.absolute()
            for name in ("host_path", "device_path", "flight_path")
            if (path := getattr(named, name)) is not None
        }
        traces = msgspec.structs.replace(named, **absolute)
        seen = [path for path in _files(traces) if path.is_file()]
        return cls(index, msgspec.structs.replace(opened, traces=traces), selection, finished, seen)

    def answer(self) -> tuple[OpenRank | None, RankGraph | None, bool] | Exception:
        """Convert the rank on a worker, which opens it if necessary; an error in its traces is the result.

        Otherwise the result is the rank if it was opened, its graph (None if it is stored in a folder
        that the worker sees), and whether it could be made.
        """
        for path in self.seen:
            if not path.is_file():
                return BackendError(
                    f"The Dask worker on {socket.gethostname()} has no {path}, a trace of rank "
                    f"{self.opened.traces.rank}; keep traces, out of archives, in a folder that all workers "
                    "see at the same path, or convert without --cluster."
                )
        try:
            if not self.opened.steps:
                return _begin(self.opened.traces, self.selection, self.finished)
            return None, _convert(self.opened, self.selection, self.finished), True
        except (ChakrascopeError, StepsDiffer) as error:
            return error
