"""Where the ranks of a workload are converted: in processes of this machine, or on a Dask cluster."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import msgspec

from ...errors import BackendError, ChakrascopeError
from ..chakra import Graph
from ..readers import RankTraces
from ._finished import FinishedRanks
from ._rank import OpenRank, StepsDiffer, rank_graph

if TYPE_CHECKING:
    from ...support.cluster import Cluster

__all__ = ["Workers", "workers_at"]

# Below this, starting another process takes longer than it saves.
_WORTH_PROCESSES_BYTES = 32 << 20


class Workers(Protocol):
    """What converts ranks, each by itself."""

    @property
    def finished(self) -> FinishedRanks:
        """What keeps the graphs, once it has begun."""

    def readers(self, ranks: Sequence[RankTraces]) -> int:
        """Return how many threads are worth reading *ranks* here at the same time."""

    def keeps(self, ranks: Sequence[RankTraces]) -> bool:
        """Return whether what is read of *ranks* here is there when they are converted."""

    def graphs(
        self, opened: Sequence[OpenRank], chosen: set[int], world_size: int
    ) -> Iterator[tuple[int, Graph]]:
        """Yield the place among *opened* and the graph of each rank, as they come.

        Raises what `rank_graph` does, of the first rank that has an error.
        """


@contextmanager
def workers_at(cluster: str | None, jobs: int | None, finished: FinishedRanks | None) -> Iterator[Workers]:
    """Give the workers: a Dask *cluster*, or up to *jobs* processes (None: as many as are worth it).

    *finished* keeps what they make, if it is worth it; without it graphs stay in memory.
    Of a batch system's cluster, *jobs* are asked for. Raises what `connected` does.
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

    def graphs(
        self, opened: Sequence[OpenRank], chosen: set[int], world_size: int
    ) -> Iterator[tuple[int, Graph]]:
        jobs = self.readers([rank.traces for rank in opened])
        convert = partial(_convert, chosen=chosen, world_size=world_size, finished=self.finished)
        if jobs < 2:
            yield from enumerate(_found(map(convert, opened), opened, chosen, world_size, self.finished))
            return
        from concurrent.futures import ProcessPoolExecutor  # noqa: PLC0415 - slow to import, seldom needed
        from multiprocessing import get_context  # noqa: PLC0415 - as above

        # Spawned, not forked: a fork of a process with threads (a server, torch) may never return.
        with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
            answers = pool.map(convert, opened)
            yield from enumerate(_found(answers, opened, chosen, world_size, self.finished))


def _convert(opened: OpenRank, chosen: set[int], world_size: int, finished: FinishedRanks) -> Graph | None:
    """Convert a rank; None if its graph is among the *finished* then."""
    graph = rank_graph(opened, chosen, world_size)
    return None if finished.keep(graph, opened, chosen, world_size) else graph


def _found(
    answers: Iterable[Graph | None],
    opened: Sequence[OpenRank],
    chosen: set[int],
    world_size: int,
    finished: FinishedRanks,
) -> Iterator[Graph]:
    """Yield the graphs that *answers* are, or that are among the *finished*."""
    for rank, graph in zip(opened, answers, strict=False):
        yield graph or finished.find(rank, chosen, world_size) or rank_graph(rank, chosen, world_size)


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

    def graphs(
        self, opened: Sequence[OpenRank], chosen: set[int], world_size: int
    ) -> Iterator[tuple[int, Graph]]:
        errors: dict[int, Exception] = {}

        def tasks() -> Iterator[_Task]:
            for index, rank in enumerate(opened):
                if errors:  # the ranks before it are on their way, and theirs would be the first
                    return
                yield _Task.of(index, rank, chosen, world_size, self.finished)

        with closing(self.place.answers(_Task.answer, tasks())) as answers:  # type: ignore[type-var]
            for answered in answers:
                if answered is None:
                    continue
                task, answer = answered
                if isinstance(answer, Exception):
                    errors[task.index] = answer
                    continue
                if answer is not None and self.finished.keep(answer, task.opened, chosen, world_size):
                    answer = None
                (graph,) = _found([answer], [task.opened], chosen, world_size, self.finished)
                yield task.index, graph
        if errors:
            raise errors[min(errors)]


@dataclass(frozen=True)
class _Task:
    """A rank to convert; *seen* are its files, as far as they are there where the command runs."""

    index: int
    opened: OpenRank
    chosen: set[int]
    world_size: int
    finished: FinishedRanks
    seen: list[Path]

    @classmethod
    def of(
        cls, index: int, opened: OpenRank, chosen: set[int], world_size: int, finished: FinishedRanks
    ) -> _Task:
        """Return the task of a rank, its paths such that any working directory will do."""
        named = opened.traces
        absolute = {
            name: path.absolute()
            for name in ("host_path", "device_path", "flight_path")
            if (path := getattr(named, name)) is not None
        }
        traces = msgspec.structs.replace(named, **absolute)
        seen = [path for path in _files(traces) if path.is_file()]
        return cls(index, msgspec.structs.replace(opened, traces=traces), chosen, world_size, finished, seen)

    def answer(self) -> Graph | Exception | None:
        """Convert the rank, on a worker; what is wrong with its traces is an answer too.

        None if the graph is among the finished then, whose folder the worker sees.
        """
        for path in self.seen:
            if not path.is_file():
                return BackendError(
                    f"The Dask worker on {socket.gethostname()} has no {path}, a trace of rank "
                    f"{self.opened.traces.rank}; keep traces, out of archives, in a folder that all workers "
                    "see at the same path, or convert without --cluster."
                )
        try:
            return _convert(self.opened, self.chosen, self.world_size, self.finished)
        except (ChakrascopeError, StepsDiffer) as error:
            return error
