"""Convert a trace set, or separate trace files, to a workload: one graph per rank, as measured."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from ...errors import TraceError, TraceFormatError
from ...support import duration_text
from ...tracer import RankEntry, TraceSet
from ..chakra import Workload, check_prefix
from ..readers import (
    HOST_DEVICES,
    Files,
    RankTraces,
    find_rank_traces,
    group_labels,
    with_archives_open,
    with_capture_traces,
)
from ._conversion import Conversion, Progress
from ._measured_steps import measured_steps
from ._overhead import measured_overhead, usual_step_ns, with_overhead_noted, without_overhead
from ._rank import StepsDiffer, read_rank
from ._stand_ins import STEP_CHOICE, pose_for_all
from ._step_times import RUN_DELAYS
from ._steps import StepChoice, is_annotation, typical_steps
from ._workers import FinishedRanks, Workers, finished_ranks, workers_at


def convert(
    trace_dir: Path,
    *,
    step: StepChoice = "median",
    rescale_host: bool = False,
    progress: Progress | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    finished: FinishedRanks | None = None,
) -> Workload:
    """Convert the trace set in *trace_dir* to a workload.

    *step* is the number of a captured step, ``"median"`` for the step with the median time of the slowest
    rank, ``"all"``, or an annotation of the script. An annotation is ``"NAME"`` for the median occurrence,
    ``"NAME#3"`` for the fourth occurrence (counted from 0), ``"NAME#all"``, or a glob. *progress* is called
    with (ranks done, ranks). *jobs* processes convert ranks concurrently (None: the number of cores, if the
    files are large enough). With several processes, the caller's main module must be safe to import. On a
    Dask *cluster* (an address or a scheduler file), the cluster's workers convert ranks and need the traces
    at the same path. If *cluster* is a YAML file for a batch system, *jobs* is the number of batch jobs.
    *rescale_host* scales host time by the ratio of an unprofiled step to a captured step. For large traces,
    *finished* stores each rank's graph on disk. The workload reads these graphs from disk, and a repeated
    conversion reuses them. Raises `TraceError` for an unusable trace set, `UsageError` for a step that was
    not captured, or for *rescale_host* if no step was timed before the capture, and `BackendError` for a
    cluster that does not answer.
    """
    trace_set = TraceSet.load(trace_dir)
    lost = _lost_ranks(trace_set)
    with workers_at(cluster, jobs, finished) as workers:
        workload = _Capture(trace_set, lost, step, workers, progress).workload()
    workload = without_overhead(workload, str(trace_dir)) if rescale_host else with_overhead_noted(workload)
    if not trace_set.fake_world:
        return workload
    return pose_for_all(workload, trace_set.world_size, trace_set.ranks[0].all_groups, str(trace_dir))


def _lost_ranks(trace_set: TraceSet) -> list[int]:
    """Return the lost ranks, which other ranks must replace; raises `TraceError` for too many lost ranks."""
    unusable = trace_set.unusable_ranks
    stepless = [entry.rank for entry in trace_set.ranks if not entry.steps and entry.rank not in unusable]
    lost = sorted({*unusable, *(stepless if trace_set.partial else [])})
    if trace_set.fake_world or 2 * len(lost) > trace_set.world_size:
        trace_set.check_usable()
        if lost:
            raise TraceError(
                f"{trace_set.path} holds no complete step of rank {lost[0]}: {trace_set.why_partial}. Next: "
                "let the script complete the captured steps (see --warmup and --steps) and capture again."
            )
    return lost


@dataclass(frozen=True)
class _Capture:
    """A trace set with the *step* to convert; other ranks replace the *lost* ranks."""

    trace_set: TraceSet
    lost: Sequence[int]
    step: StepChoice
    workers: Workers
    progress: Progress | None

    def workload(self) -> Workload:
        """Return the workload of a trace set; if it is partial, ranks with damaged files count as lost."""
        try:
            return self._of_whole_ranks()
        except TraceFormatError as damage:
            damaged = self._damaged() if self.trace_set.partial and not self.trace_set.fake_world else []
            lost = sorted([*self.lost, *damaged])
            if not damaged or 2 * len(lost) > self.trace_set.world_size:
                raise
            reasons = [*self.trace_set.reasons, damage.message]
            trace_set = msgspec.structs.replace(self.trace_set, reasons=reasons)
            return replace(self, trace_set=trace_set, lost=lost)._of_whole_ranks()

    def _damaged(self) -> list[int]:
        """Return the ranks with traces that cannot be read."""
        entries = [entry for entry in self.trace_set.ranks if entry.rank not in self.lost]
        return [
            entry.rank for entry in entries if not _is_readable(_traces(self.trace_set, entry, timed=True))
        ]

    def _of_whole_ranks(self) -> Workload:
        """Convert the first candidate step that has the communication of the step recorded in detail."""
        *timed, detailed = self._candidates()
        for candidate in timed:
            try:
                return candidate.workload()
            except StepsDiffer:  # noqa: PERF203 - the next candidate may communicate the same
                continue
        return detailed.workload()

    def _candidates(self) -> list[Conversion]:
        """Return the conversions to try, in order of preference.

        The last conversion uses steps with host traces. If the communication of the median step differs from
        the communication of the step recorded in detail, the step closest to the median is tried next. An
        annotation covers a part of a step, to which the host trace of another step does not apply.
        """
        entries = [entry for entry in self.trace_set.ranks if entry.rank not in self.lost]
        structured = {entry.structure_step is not None for entry in entries}
        measured = measured_steps(entries, self.trace_set.path)
        choices: list[StepChoice] = [self.step]
        why = ""
        if self.step == "median" and len(structured) == 1:
            usual_ns = usual_step_ns(entries)
            # With several ranks or a device, other ranks may wait, and the device may work, during a delay of
            # the host.
            is_alone = len(entries) == 1 and entries[0].device in HOST_DEVICES
            delays = measured.get(RUN_DELAYS, {}) if is_alone else {}
            ordered = typical_steps([entry.steps for entry in entries], usual_ns, delays)
            choices = [*ordered] if ordered and (usual_ns or delays) else [self.step, *ordered[1:]]
            why = _why(usual_ns, delays, len(choices))
        if is_annotation(self.step) or structured != {True}:
            return [self._conversion(choices[0], entries, measured, why=why, timed=False)]
        timed = [self._conversion(choice, entries, measured, why=why, timed=True) for choice in choices]
        return [*timed, self._conversion("median", entries, measured, why="", timed=False)]

    def _conversion(
        self,
        step: StepChoice,
        entries: Sequence[RankEntry],
        measured: Mapping[str, Any],
        *,
        why: str,
        timed: bool,
    ) -> Conversion:
        """Return the conversion of *step* for the ranks of *entries*, with the reason *why* it was chosen.

        *measured* contains the measurements of all steps. If *timed* is true, all captured steps can be
        chosen. Otherwise, only steps with a host trace can be chosen.
        """
        folder = self.trace_set.path
        ranks = [_traces(self.trace_set, entry, timed=timed) for entry in entries]
        facts: dict[str, Any] = {"trace_set": folder.name, "torch_version": self.trace_set.torch_version}
        facts |= {STEP_CHOICE: why} if why else {}
        facts |= measured
        facts |= measured_overhead(entries, [rank.steps for rank in ranks])
        notes = list(self.trace_set.notes)
        if self.trace_set.partial:
            notes.append(
                f"the capture is partial ({self.trace_set.why_partial}); its complete part was converted"
            )
        structured = any(entry.structure_step is not None for entry in entries)
        if not timed and structured and not is_annotation(step):
            notes.append(
                "the steps differ in their communication, or a rank ended early: the step recorded in detail "
                "was converted, and the recording slowed its operators"
            )
        return Conversion(
            ranks,
            step,
            str(folder),
            self.workers,
            self.progress,
            facts,
            notes,
            job_size=0 if self.trace_set.fake_world else self.trace_set.world_size,
            why_missing=self.trace_set.lacking(self.lost),
        )


def _why(usual_ns: int, delays: Mapping[str, int], count: int) -> str:
    """Return the reason for the choice among *count* captured steps, or "" for the plain median."""
    if count < 2 or not (usual_ns or delays):
        return ""
    if usual_ns:
        return f"the captured step closest to the median unprofiled step ({duration_text(usual_ns)})"
    return f"the median of {count} captured steps, without run delay"


def _is_readable(traces: RankTraces) -> bool:
    try:
        read_rank(traces)
    except TraceFormatError:
        return False
    return True


def _traces(trace_set: TraceSet, entry: RankEntry, *, timed: bool) -> RankTraces:
    """Return the trace files of a manifest's *entry*, with timed steps (*timed*) or detailed steps."""
    structure, folder = entry.structure_step, trace_set.path
    steps = entry.steps if timed or structure is None else [structure]
    return RankTraces(
        rank=entry.rank,
        host_path=folder / str(entry.host_trace),
        device_path=folder / str(entry.device_trace),
        flight_path=folder / entry.flight_record if entry.flight_record else None,
        evidence_path=folder / entry.evidence if entry.evidence else None,
        groups={group.name: tuple(group.ranks) for group in entry.process_groups},
        group_labels=group_labels(
            (group.name, group.description, tuple(group.ranks)) for group in entry.process_groups
        ),
        steps=tuple(steps),
        structure=structure if timed else None,
        device=entry.device,
        process=entry.pid,
        host=entry.hostname,
    )


def convert_files(
    host_trace: Files | None = None,
    device_trace: Files | None = None,
    output: str | Path | None = None,
    *,
    linked_trace: Files | None = None,
    capture_trace: str | Path | Sequence[Path] | None = None,
    step: StepChoice = "median",
    progress: Progress | None = None,
    jobs: int | None = 1,
    cluster: str | None = None,
    finished: FinishedRanks | None = None,
) -> Workload:
    """Convert trace files of other tools to a workload, and write the workload at *output*.

    *host_trace* and *device_trace* are each a pattern with ``{rank}`` (and ``*``, ``?``), such as
    ``et_{rank}.json.gz``, a folder or a pattern without ``{rank}`` (in which case the files state their
    ranks), the files of ranks 0, 1, ... in order, plain or gzip, or a tar or zip archive of trace files. If
    there are no host traces (None), costs and collectives are derived from the device traces, and data
    dependencies are unknown. *linked_trace* are files of mlc-chakra's trace linker, which may also be given
    as *host_trace* alone. *capture_trace* is a trace, or a folder of traces, taken during the capture of CUDA
    or HIP graphs. The operators of the graphs' kernels come from a capture trace. None means a folder
    ``capture_traces`` next to the device traces, in which files of other kinds are ignored. *output* is the
    prefix of the files to write (None: no files). *step*, *progress*, *jobs*, *cluster* and *finished* are
    arguments of `convert`. If *output* is given, finished ranks are stored next to *output*. Raises
    `UsageError` for patterns that match nothing or different ranks, and `TraceError` for unusable files.
    """
    if output is not None:
        check_prefix(output)
    with ExitStack() as open_until_saved:
        if finished is None and output is not None:
            finished = open_until_saved.enter_context(finished_ranks(output))
        with with_archives_open(host_trace, device_trace, linked_trace) as (hosts, devices, linked):
            ranks = with_capture_traces(find_rank_traces(hosts, devices, linked), capture_trace)
            folder = ranks[0].device_path.parent
            with workers_at(cluster, jobs, finished) as workers:
                facts = {"trace_set": folder.name, "torch_version": ""}
                workload = Conversion(ranks, step, str(folder), workers, progress, facts).workload()
        if output is not None:
            workload.save(output)
            if finished is not None and finished.is_used:
                return Workload.load(output)
    return workload
