"""Check a trace set, trace files, production logs or a workload for problems before a simulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import Cancelled, ChakrascopeError, TraceError, TraceFormatError, UsageError
from ...tracer import MANIFEST_NAME, RankEntry, StepRange, TraceSet
from ..building import (
    LEFT_OUT,
    UNMARKED,
    Doubt,
    FinishedRanks,
    Identity,
    Progress,
    annotated_steps,
    as_assumptions,
    convert,
    convert_files,
    convert_logs,
    disjoint_steps,
    doubts_of_pair,
    doubts_of_ranks,
    finished_ranks,
    profiler_overhead,
    read_rank,
    stand_in_assumption,
    step_times,
)
from ..chakra import Workload
from ..linking import MatchedLogs, match_logs, troubles_of
from ..readers import (
    DeviceTrace,
    RankTraces,
    find_rank_traces,
    find_sides,
    kind_of,
    read_device_trace,
    read_flight_record,
    read_host_trace,
    recorded_operations,
    unpacked,
)
from ..readers.logs import ranks_text, read_logs, which_logs
from ._findings import Finding, worst_first
from ._inspection import load_workload
from ._workload_checks import check_workload

TIMES_ALONE = "It has the times of all steps, but no traces (--steps 0)."
_CAPTURE_AGAIN = "Capture again."
_FOR_CALIBRATION = (
    "`chakrascope diagnose` prints the durations of collectives by size, with which `chakrascope calibrate` "
    "can fit a network; `convert --back-to-back` makes a workload of the collectives only."
)


@dataclass(frozen=True)
class _Rank:
    """The data of one rank's traces for comparison between ranks."""

    rank: int
    steps: tuple[StepRange, ...]
    identity: Identity | None


def check_trace_set(folder: Path) -> tuple[list[Finding], list[Finding]]:
    """Return the problems of the trace set in *folder*, and missing or unreadable traces of its ranks.

    Other ranks may replace the ranks with missing traces. Each file is read only once.
    """
    path = folder / MANIFEST_NAME
    try:
        trace_set = TraceSet.load(folder, need_files=False)
    except TraceError as error:
        return [Finding("error", str(path), error.message)], []
    findings, lacking = list(_check_capture(trace_set, path)), list(_absent(trace_set, path))
    ranks = []
    for entry in trace_set.ranks:
        rank, found, lost = _check_rank(entry, folder)
        findings += found
        lacking += lost
        if rank is not None:
            ranks.append(rank)
    identities = [rank.identity for rank in ranks if rank.identity is not None]
    findings += as_findings(doubts_of_ranks(identities, 0 if trace_set.fake_world else trace_set.world_size))
    findings += _compare_ranks(ranks, folder)
    return findings, lacking


def _absent(trace_set: TraceSet, path: Path) -> Iterator[Finding]:
    """Check that the trace set contains every rank."""
    absent = trace_set.world_size - len(trace_set.ranks)
    if absent > 0 and not trace_set.fake_world:
        yield Finding(
            "error",
            str(path),
            f"{absent} of the job's {trace_set.world_size} ranks left no traces.",
            "Collect the folders of all hosts into one, or capture again if ranks died.",
        )


def _check_capture(trace_set: TraceSet, path: Path) -> Iterator[Finding]:
    """Check that the capture ended normally."""
    if trace_set.partial:
        yield Finding(
            "warning", str(path), f"The capture is partial: {trace_set.why_partial}.", _CAPTURE_AGAIN
        )
    if any(_records_only_times(entry) for entry in trace_set.ranks):
        yield Finding(
            "note",
            str(path),
            TIMES_ALONE,
            f"Find stragglers with `chakrascope diagnose {trace_set.path}`.",
        )
        try:
            recorded_operations(trace_set)
        except TraceError as error:
            yield Finding("error", str(trace_set.path), error.message, _CAPTURE_AGAIN)


def _records_only_times(entry: RankEntry) -> bool:
    """Return whether the capture was requested to record only the step times of a rank."""
    return entry.step_times is not None and not (entry.host_trace or entry.device_trace)


def _check_rank(entry: RankEntry, folder: Path) -> tuple[_Rank | None, list[Finding], list[Finding]]:
    """Check the files of one rank; return missing or unreadable files separately from other findings."""
    findings: list[Finding] = []
    lacking: list[Finding] = []
    if _records_only_times(entry):
        return None, findings, lacking
    host = device = None
    for name, kind in ((entry.host_trace, "host"), (entry.device_trace, "device")):
        place = f"{folder / name}" if name else f"{folder}, rank {entry.rank}"
        if not name:
            lacking.append(Finding("error", place, f"There is no {kind} trace.", _CAPTURE_AGAIN))
            continue
        try:
            if kind == "host":
                host = read_host_trace(folder / name)
            else:
                device = read_device_trace(folder / name)
        except TraceFormatError as error:
            lacking.append(Finding("error", place, error.message, _CAPTURE_AGAIN))
        except ChakrascopeError as error:
            findings.append(Finding("error", place, error.message, _CAPTURE_AGAIN))
    if entry.flight_record is not None:
        try:
            read_flight_record(folder / entry.flight_record)
        except ChakrascopeError as error:
            cause = f"{error.message} Groups of gloo collectives may be unknown."
            findings.append(Finding("warning", str(folder / entry.flight_record), cause, _CAPTURE_AGAIN))
    if device is None:
        return None, findings, lacking
    steps = tuple(entry.steps or annotated_steps(device).steps)
    findings += check_device(entry, device, steps, f"{folder / str(entry.device_trace)}")
    if host is None:
        return _Rank(entry.rank, steps, None), findings, lacking
    covered = () if entry.structure_step is None else (entry.structure_step,)
    findings += as_findings(doubts_of_pair(host, device, covered, f"{folder}, rank {entry.rank}"))
    traces = RankTraces(
        entry.rank, folder / str(entry.host_trace), folder / str(entry.device_trace), process=entry.pid
    )
    return _Rank(entry.rank, steps, Identity.of(traces, device, host)), findings, lacking


def check_device(
    entry: RankEntry, device: DeviceTrace, steps: Sequence[StepRange], place: str
) -> Iterator[Finding]:
    """Check that the device trace of a rank is complete."""
    if device.left_out:
        yield Finding("warning", place, _sentence(device.left_out), _CAPTURE_AGAIN)
    if not steps:
        yield Finding(
            "warning",
            place,
            "No step is marked, so steps end with the optimizer, follow from a repeating sequence, or the "
            "whole recording is one step.",
            "Capture with 'chakrascope trace', or call the profiler's step() after each step.",
        )
    for step in steps:
        starts = device.events.start_ns[device.events.is_operator]
        if not ((starts >= step.start_ns) & (starts < step.end_ns)).any():
            yield Finding(
                "error",
                f"{place}, step {step.index}",
                "No operator ran in the step by the clock of the trace, so the clocks of manifest and trace "
                "disagree.",
                _CAPTURE_AGAIN,
            )
    if not len(device.works) and (len(device.calls) or entry.device not in ("", "cpu")):
        yield Finding(
            "error",
            place,
            f"The rank computed on {entry.device or 'a device'}, but no kernel was recorded.",
            "Capture again with device activities, and without another profiler.",
        )


def as_findings(doubts: Iterable[Doubt]) -> list[Finding]:
    """Return *doubts* about whether traces belong together as findings."""
    return [
        Finding("error" if doubt.certain else "warning", doubt.place, doubt.cause, doubt.remedy)
        for doubt in doubts
    ]


def _compare_ranks(ranks: Sequence[_Rank], folder: Path) -> Iterator[Finding]:
    """Check that the ranks have common steps, and execute these steps at the same time."""
    if len(ranks) < 2 or not all(rank.steps for rank in ranks):
        return
    common = set.intersection(*({step.index for step in rank.steps} for rank in ranks))
    if not common:
        yield Finding(
            "error",
            str(folder),
            "The ranks have no captured step in common.",
            "Capture more steps, all ranks in one job.",
        )
        return
    index = min(common)
    spans = {rank.rank: next(step for step in rank.steps if step.index == index) for rank in ranks}
    yield from as_findings(disjoint_steps(spans, str(folder)))


def check_logs(targets: Sequence[str | Path]) -> list[Finding]:
    """Return the problems of the logs at *targets* and of the logs' workload, worst first."""
    place = str(targets[0])
    try:
        matched = match_logs(read_logs(targets))
        findings = check_matched(matched)
        if all(finding.severity != "error" for finding in findings) and matched.logs.has_times:
            workload = convert_logs(targets)
            findings += check_workload(workload, place)
            findings += [Finding("note", place, _sentence(note)) for note in workload.metadata["assumptions"]]
    except ChakrascopeError as error:
        return [Finding("error", place, error.message)]
    return worst_first(findings)


def check_matched(matched: MatchedLogs) -> list[Finding]:
    """Return the problems in the logs of a job, worst first."""
    logs = matched.logs
    findings = [Finding("error", logs.place, found.cause, found.remedy) for found in troubles_of(matched)]
    absent = sorted(set(range(logs.world_size)) - logs.ranks.keys())
    if absent:
        findings.append(
            Finding(
                "warning", logs.place, f"There is no log of {ranks_text(absent)}.", "Add the missing logs."
            )
        )
    if matched.clocks.source == "nothing" and len(logs.ranks) > 1 and logs.has_times:
        findings.append(
            Finding(
                "note", logs.place, "The offsets of the ranks' clocks are unknown.",
                "Times of different ranks are not compared; the durations of a collective still show "
                "which rank came last.",
            )
        )  # fmt: skip
    if not logs.has_times:
        findings.append(
            Finding("note", logs.place, "The logs have no times of the collectives.", _FOR_CALIBRATION)
        )
        findings += [Finding("note", logs.place, _sentence(note)) for note in logs.notes]
    return worst_first(findings)


def _sentence(note: str) -> str:
    return f"{note[0].upper()}{note[1:]}."


_UNEXPLAINED_SHARE = 0.03
_NOT_AN_ERROR = (
    "Not an error, but consider it when reading results. A capture by 'chakrascope trace', or host and "
    "device traces together, have the most information."
)


def doctor(
    target: str | Path,
    *,
    jobs: int | None = 1,
    progress: Progress | None = None,
    finished: FinishedRanks | None = None,
) -> list[Finding]:
    """Return the problems of *target*, worst first, or [] if there are no problems.

    *target* is a trace set's folder, an ``.et`` file, the ``PREFIX`` of several ``.et`` files
    (``PREFIX.<rank>.et``), or traces or production logs of other tools: a file, a pattern with ``{rank}`` (of
    traces), a folder, or an archive. For studies, use `check_study`. *jobs*, *progress* and *finished* are
    passed to `convert`, which converts the traces. If *finished* is missing, converted ranks of large traces
    are cached next to *target*, so that an interrupted check resumes. Problems are returned and never raised.
    Raises `UsageError` for any other *target*. Exceptions of *progress* are passed on.
    """
    if finished is None:
        with finished_ranks(f"{target}.doctor") as cache:
            return doctor(target, jobs=jobs, progress=progress, finished=cache)
    return _findings(target, {"jobs": jobs, "progress": progress, "finished": finished})


def _findings(target: str | Path, options: Mapping[str, Any]) -> list[Finding]:
    """Return the problems of *target*; *options* are arguments of `convert`."""
    path = Path(target)
    if (path / MANIFEST_NAME).exists():
        findings = _trace_set(path, options)
    elif path.name.endswith((".et", ".et.gz")) or any(path.parent.glob(f"{path.name}.*.et")):
        findings = _workload(path)
    elif path.is_file() and kind_of(path) == "archive":
        findings = _archive(path, options)
    else:
        findings = _traces_and_logs(path, str(target), options)
    return worst_first(findings)


def _traces_and_logs(path: Path, target: str, options: Mapping[str, Any]) -> list[Finding]:
    """Check the traces and the production logs at *path*; raises `UsageError` if there is neither."""
    files = [path, *sorted(path.iterdir())] if path.is_dir() else [path]
    logs = any(which_logs(file) for file in files)
    sides = {} if logs and path.is_file() else find_sides(target)
    if not logs and not sides:
        raise UsageError(
            f"{path} is not a study, a trace set ({MANIFEST_NAME}), a trace (Kineto or "
            "ExecutionTraceObserver JSON), a log of collectives or a prefix of .et files. Give one of "
            "them."
        )
    findings = _trace_files(sides, target, options) if sides else []
    return findings + (check_logs([path]) if logs else [])


def _archive(path: Path, options: Mapping[str, Any]) -> list[Finding]:
    """Check the content of an archive of traces; findings name paths inside the archive."""
    try:
        with unpacked(path) as folder:
            manifests = sorted(folder.rglob(MANIFEST_NAME))
            found = _findings(manifests[0].parent if len(manifests) == 1 else folder, options)
            return [finding.with_paths(str(folder), str(path)) for finding in found]
    except Cancelled:
        raise
    except ChakrascopeError as error:
        return [Finding("error", str(path), error.message)]


def _trace_set(folder: Path, options: Mapping[str, Any]) -> list[Finding]:
    """Check the files of a trace set and, if the files are usable, the converted graphs."""
    findings, lacking = check_trace_set(folder)
    if any(finding.severity == "error" or finding.cause == TIMES_ALONE for finding in findings):
        return [*findings, *lacking]
    try:
        workload = convert(folder, **options)
    except Cancelled:
        raise
    except ChakrascopeError as error:
        refusal = Finding("error", str(folder), error.message)
        reported = any(finding.cause == error.message for finding in lacking)
        return [*findings, *lacking, *([] if reported else [refusal])]
    if remark := stand_in_assumption(workload.metadata):
        findings += [replace(finding, severity="warning") for finding in lacking]
        findings.append(Finding("warning", str(folder), _sentence(remark), _ALL_RANKS))
    findings += check_workload(workload, str(folder))
    findings += _unexplained(workload, str(folder))
    findings += _overhead(workload, str(folder))
    findings += _steps(workload, str(folder))
    if LEFT_OUT in workload.metadata["assumptions"]:
        findings.append(Finding("warning", str(folder), _sentence(LEFT_OUT), _WITHOUT_HOOKS))
    return findings


def _trace_files(sides: dict[str, str], place: str, options: Mapping[str, Any]) -> list[Finding]:
    """Check traces of other tools, and the converted graphs; missing information becomes a note."""
    host, device, linked = (sides.get(side) for side in ("host", "device", "linked"))
    try:
        ranks = find_rank_traces(host, device, linked)
    except ChakrascopeError as error:
        return [Finding("error", place, error.message)]
    findings: list[Finding] = []
    identities = []
    for traces in ranks:
        identity, found = _rank_files(traces)
        findings += found
        identities += [] if identity is None else [identity]
    doubts = doubts_of_ranks(identities)
    findings += as_findings(doubts)
    if any(finding.severity == "error" for finding in findings):
        return findings
    try:
        workload = convert_files(host, device, linked_trace=linked, **options)
    except Cancelled:
        raise
    except ChakrascopeError as error:
        return [*findings, Finding("error", place, error.message)]
    findings += check_workload(workload, place)
    findings += _unexplained(workload, place)
    notes = [
        note for note in workload.metadata["assumptions"] if note not in (UNMARKED, *as_assumptions(doubts))
    ]
    reported = {finding.cause for finding in findings}
    causes = [cause for cause in map(_sentence, notes) if cause not in reported]
    return findings + [Finding("note", place, cause, _NOT_AN_ERROR) for cause in causes]


def _rank_files(traces: RankTraces) -> tuple[Identity | None, list[Finding]]:
    """Check the traces of one rank independently of other ranks; also return the origin of the traces."""
    place = str(traces.device_path)
    try:
        device, host, _ = read_rank(traces)
    except ChakrascopeError as error:
        return None, [Finding("error", place, error.message, "Capture again, or leave the file out.")]
    findings = list(check_device(RankEntry(traces.rank), device, annotated_steps(device).steps, place))
    if traces.host_path is not None and traces.host_path != traces.device_path:
        findings += as_findings(doubts_of_pair(host, device, (), str(traces.device_path.parent)))
    return Identity.of(traces, device, host), findings


_ALL_RANKS = "Capture again to record the work of every rank."
_WITHOUT_HOOKS = "Capture the job without its communication hook to see the effect of networks."
_RESCALE = "Convert with --rescale-host to correct host times for the profiler, and compare both answers."
_WHY_ON_A_DEVICE = (
    "Try another step, or all steps (--step all): if the device still works on a step while the host runs "
    "the next one, the converted step begins with an idle device."
)
_WHY_ON_A_CPU = (
    "Try another step: gloo runs two collectives of a group concurrently, but the graph runs them in "
    "sequence. If the second collective ended first, nodes that wait for it start late."
)


def _unexplained(workload: Workload, place: str) -> list[Finding]:
    """Return a warning for each rank whose graph does not reproduce its measured step."""
    findings = []
    for rank, figures in workload.metadata["accounting"].items():
        share = figures["unexplained_ns"] / max(1, figures["measured_step_ns"])
        if share > _UNEXPLAINED_SHARE:
            findings.append(
                Finding(
                    "warning",
                    f"{place}, rank {rank}",
                    f"The graph's replay differs from the measured step by {share:.1%}.",
                    _WHY_ON_A_DEVICE if "device_compute_ns" in figures else _WHY_ON_A_CPU,
                )
            )
    return findings


def _steps(workload: Workload, place: str) -> list[Finding]:
    """Return a note if some steps of the run take longer than the converted step."""
    times = step_times(workload.metadata, or_captured=True)
    if times is None or not times.matters:
        return []
    return [Finding("note", place, times.text, "The converted step does not show these.")]


def _overhead(workload: Workload, place: str) -> list[Finding]:
    """Return a warning if captured steps take longer than unprofiled steps."""
    overhead = profiler_overhead(workload.metadata)
    if overhead is None or not overhead.matters:
        return []
    cause = f"{overhead.text}, so the host may bound the step only because of the profiler"
    return [Finding("warning", place, _sentence(cause), _RESCALE)]


def _workload(prefix: Path) -> list[Finding]:
    try:
        return check_workload(load_workload(prefix), str(prefix))
    except ChakrascopeError as error:
        return [Finding("error", str(prefix), error.message)]
