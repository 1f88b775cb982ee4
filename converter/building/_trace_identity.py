"""Check that trace files belong to one run and to the correct ranks, and that no file is given twice."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from ...errors import TraceError
from ...support import duration_text
from ...tracer import StepRange
from ..chakra import Graph, collective_kinds
from ..readers import DeviceTrace, HostTrace, RankTraces

_AGREEING_SHARE = 0.9
_OWN_PLACE = "Give each rank's host trace with the device trace of the same rank."
_TOGETHER = "Give the two files that were captured together."
_ONE_JOB = "Give the files of one job, captured together."


class Doubt(NamedTuple):
    """A reason why trace files may not belong together; *certain* means that they do not belong together."""

    certain: bool
    place: str
    cause: str
    remedy: str


class Identity(msgspec.Struct, frozen=True):
    """The origin of one rank's traces, read from the traces; unknown fields are -1, 0 or ().

    *process* is the process id in the manifest. *host_process* and *device_process* are the process ids in
    the host trace and the device trace. *stated_rank* and *world_size* are the values in the device trace.
    *span* is the first time, the last time and the number of events of the device trace.
    """

    rank: int
    host_path: Path | None
    device_path: Path
    process: int = 0
    host_process: int = -1
    device_process: int = -1
    stated_rank: int = -1
    world_size: int = 0
    span: tuple[int, ...] = ()

    @classmethod
    def of(cls, traces: RankTraces, device: DeviceTrace, host: HostTrace) -> Identity:
        """Return the identity of a rank according to its host trace and device trace."""
        events = device.events
        span = (int(events.start_ns[0]), int(events.end_ns.max()), len(events)) if len(events) else ()
        return cls(
            rank=traces.rank,
            host_path=None if traces.host_path == traces.device_path else traces.host_path,
            device_path=traces.device_path,
            process=traces.process,
            host_process=-1 if traces.host_path is None else host.process,
            device_process=device.process,
            stated_rank=device.rank,
            world_size=device.world_size,
            span=span,
        )

    @property
    def own_processes(self) -> set[int]:
        """The ids of the processes that may have written the host trace."""
        return {number for number in (self.process, self.device_process) if number > 0}


def as_assumptions(doubts: Sequence[Doubt]) -> list[str]:
    """Return *doubts* as assumptions; raises `TraceError` for the first certain doubt."""
    for doubt in doubts:
        if doubt.certain:
            raise TraceError(f"{doubt.place}: {doubt.cause} {doubt.remedy}")
    # Users read assumptions without the folder of the traces, so an assumption names only the file.
    return [
        f"{doubt.place.rpartition('/')[2]}: {doubt.cause[0].lower()}{doubt.cause[1:].removesuffix('.')}"
        for doubt in doubts
    ]


def doubts_of_pair(
    host: HostTrace, device: DeviceTrace, covered: Sequence[StepRange], place: str
) -> list[Doubt]:
    """Return a doubt if the host trace and the device trace do not belong to the same run.

    Events of the device trace in the *covered* steps (all by default) must have the same name as the host
    trace's record with the same record-function id.
    """
    events = device.events
    recorded = events.record_id > 0
    inside = [(events.start_ns >= step.start_ns) & (events.start_ns < step.end_ns) for step in covered]
    named = recorded & np.logical_or.reduce(inside) if covered else recorded
    named = named if named.any() else recorded
    if not named.any() or not len(host):
        return []
    _, equal = _agreement(host, device, named)
    if equal >= _AGREEING_SHARE * named.sum():
        return []
    agreement = f"only {equal} of {named.sum()} recorded operators have the same number and name in both."
    # Ids that the host trace lacks may belong to steps that it does not cover. Different names for the same
    # id show that the traces come from different runs.
    known, equal = _agreement(host, device, recorded)
    if not equal or equal < _AGREEING_SHARE * known:
        return [
            Doubt(
                True,
                place,
                f"The host trace and the device trace come from different runs: {agreement}",
                _TOGETHER,
            )
        ]
    return [Doubt(False, place, f"The host trace covers little of the device trace: {agreement}", _TOGETHER)]


def _agreement(host: HostTrace, device: DeviceTrace, chosen: np.ndarray) -> tuple[int, int]:
    """Count the *chosen* events with a host record of equal id, and those that also have an equal name."""
    rows = host.rows(device.events.record_id[chosen])
    known = rows >= 0
    names = np.array(device.texts, dtype=object)[device.events.name[chosen]]
    return int(known.sum()), int((host.names()[rows[known]] == names[known]).sum())


def doubts_of_ranks(ranks: Sequence[Identity], world_size: int = 0) -> list[Doubt]:
    """Return doubts about whether the trace files belong to the given *ranks* of one job.

    With the *world_size* of a manifest (not 0), each file must state the rank for which it is given. Without
    a manifest, files of some ranks, in the order of the ranks, may represent all ranks of a job.
    """
    doubts = _twice(ranks)
    doubts += _other_ranks(ranks, exact=world_size > 0)
    doubts += _other_jobs(ranks, world_size)
    return doubts + _other_processes(ranks)


def _twice(ranks: Sequence[Identity]) -> list[Doubt]:
    """Return a doubt for each trace file that is given for two ranks, as the same file or as a copy."""
    doubts = []
    seen: dict[object, Identity] = {}
    for rank in ranks:
        keys: list[tuple[object, Path | None]] = [
            (rank.span, rank.device_path),
            (rank.host_path, rank.host_path),
        ]
        for key, path in keys:
            other = seen.setdefault(key, rank) if key else rank
            if other is not rank:
                cause = f"Ranks {other.rank} and {rank.rank} were given the same trace."
                remedy = "Give one file per rank; missing ranks are replaced by others."
                doubts.append(Doubt(True, str(path), cause, remedy))
    return doubts


def _other_ranks(ranks: Sequence[Identity], *, exact: bool) -> list[Doubt]:
    stated = [rank.stated_rank for rank in ranks]
    misplaced = exact or stated != sorted(stated)
    doubts = []
    for number, rank in enumerate(ranks):
        if rank.stated_rank in (-1, rank.rank):
            continue
        before = [other for other in ranks[:number] if other.stated_rank == rank.stated_rank]
        cause = f"It is the trace of rank {rank.stated_rank}, "
        if misplaced:
            remedy = _OWN_PLACE if exact else "Give the files in the order of their ranks."
            cause += f"but is given as rank {rank.rank}."
        elif before:
            remedy = "Give one file of each rank."
            cause += f"like {before[0].device_path}."
        else:
            continue
        doubts.append(Doubt(True, str(rank.device_path), cause, remedy))
    return doubts


def _other_jobs(ranks: Sequence[Identity], world_size: int) -> list[Doubt]:
    """Return doubts for traces of a job of another size, and a doubt if there are more traces than ranks."""
    stating = [rank for rank in ranks if rank.world_size > 0]
    if not stating:
        return []
    size, source = (
        (world_size, "the manifest") if world_size else (stating[0].world_size, stating[0].device_path)
    )
    doubts = [
        Doubt(
            True,
            str(rank.device_path),
            f"It belongs to a job of {rank.world_size} ranks, but {source} belongs to a job of {size} ranks.",
            _ONE_JOB,
        )
        for rank in stating
        if rank.world_size != size
    ]
    if not doubts and len(ranks) > size:
        cause = f"The trace comes from a job of {size} ranks, but traces of {len(ranks)} ranks were given."
        doubts.append(Doubt(True, str(stating[0].device_path), cause, _ONE_JOB))
    return doubts


def _other_processes(ranks: Sequence[Identity]) -> list[Doubt]:
    """Return a doubt for each trace of an unexpected process; it is certain for another rank's process."""
    rank_of = {number: rank for rank in ranks for number in rank.own_processes}
    doubts = []
    for rank in ranks:
        for path, process, own in (
            (rank.host_path, rank.host_process, rank.own_processes),
            (rank.device_path, rank.device_process, {rank.process} - {0}),
        ):
            if path is None or process <= 0 or not own or process in own:
                continue
            other = rank_of.get(process, rank)
            if other is not rank:
                cause = (
                    f"It belongs to process {process} (rank {other.rank}), but is given as rank {rank.rank}."
                )
                doubts.append(Doubt(True, str(path), cause, _OWN_PLACE))
            elif path == rank.host_path:
                cause = (
                    f"The host trace comes from process {process}, the device trace from process "
                    f"{rank.device_process}: they come from different runs."
                )
                doubts.append(Doubt(False, str(path), cause, _TOGETHER))
    return doubts


def doubts_of_work(graphs: Sequence[Graph], spans: Mapping[int, StepRange], place: str) -> list[Doubt]:
    """Return a doubt if ranks worked at different times; it is certain if their collectives also differ.

    *spans* maps each rank to the first step in the graph of the rank.
    """
    doubts = disjoint_steps(spans, place)
    if not doubts or len({collective_kinds(graph, 0) for graph in graphs}) == 1:
        return doubts
    cause = (
        f"{doubts[0].cause.partition(':')[0]}, and the ranks issue different collectives: the traces come "
        "from different jobs."
    )
    return [Doubt(True, doubts[0].place, cause, _ONE_JOB)]


def disjoint_steps(spans: Mapping[int, StepRange], place: str) -> list[Doubt]:
    """Return a doubt if one rank ended its step before another rank began; *spans* maps ranks to steps."""
    if len(spans) < 2:
        return []
    first = min(spans, key=lambda rank: spans[rank].end_ns)
    last = max(spans, key=lambda rank: spans[rank].start_ns)
    ahead = spans[last].start_ns - spans[first].end_ns
    if ahead <= 0:
        return []
    cause = (
        f"In step {spans[first].index}, rank {first} had ended {duration_text(ahead)} before rank {last} "
        "began: their clocks disagree, the ranks do not run in step, or the traces come from different runs."
    )
    remedy = (
        "Durations are correct, and the clocks of ranks with common collectives are aligned at the ends of "
        "these collectives. Synchronise the clocks of the hosts to compare the times of other ranks."
    )
    return [Doubt(False, f"{place}, ranks {first} and {last}", cause, remedy)]
