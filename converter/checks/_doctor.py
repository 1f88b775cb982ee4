"""Check a trace set, trace files or a workload for problems before a simulation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ...errors import Cancelled, ChakrascopeError, UsageError
from ...tracer import MANIFEST_NAME, RankEntry
from ..building import (
    LEFT_OUT,
    UNMARKED,
    FinishedRanks,
    Identity,
    Progress,
    annotated_steps,
    as_assumptions,
    convert,
    convert_files,
    doubts_of_pair,
    doubts_of_ranks,
    finished_ranks,
    profiler_overhead,
    read_rank,
    step_times,
    stood_in,
)
from ..chakra import Workload
from ..readers import RankTraces, find_rank_traces, find_sides, kind_of, unpacked
from ..readers.logs import which_logs
from ._findings import Finding, worst_first
from ._inspection import load_workload
from ._trace_checks import TIMES_ALONE, as_findings, check_device, check_logs, check_trace_set
from ._workload_checks import check_workload

_UNEXPLAINED_SHARE = 0.03
_KNOW_IT = (
    "Not an error, but consider it when reading results. A capture by 'chakrascope trace', or host and "
    "device traces together, have the most information."
)


@dataclass(frozen=True)
class _How:
    """Options of the conversion: *jobs* processes, *progress*, and the cache of *finished* ranks.

    The fields have the same names as the arguments of `convert`.
    """

    jobs: int | None
    progress: Progress | None
    finished: FinishedRanks

    @property
    def options(self) -> dict[str, Any]:
        """Return the options as keyword arguments of `convert`."""
        return vars(self)


def doctor(
    target: str | Path,
    *,
    jobs: int | None = 1,
    progress: Progress | None = None,
    finished: FinishedRanks | None = None,
) -> list[Finding]:
    """Return the problems of *target*, worst first, or [] without problems.

    *target* is a trace set's folder, an ``.et`` file, the ``PREFIX`` of several ``.et`` files
    (``PREFIX.<rank>.et``), or traces or production logs of other tools: a file, a pattern with ``{rank}`` (of
    traces), a folder, or an archive. For studies, use `check_study`. *jobs*, *progress* and *finished* are
    passed to `convert`, which converts the traces. Without *finished*, converted ranks of large traces are
    cached next to *target*, so that an interrupted check resumes. Problems are returned and never raised.
    Raises `UsageError` for any other *target*. Exceptions of *progress* are passed on.
    """
    if finished is None:
        with finished_ranks(f"{target}.doctor") as cache:
            return _findings(target, _How(jobs, progress, cache))
    return _findings(target, _How(jobs, progress, finished))


def _findings(target: str | Path, how: _How) -> list[Finding]:
    path = Path(target)
    if (path / MANIFEST_NAME).exists():
        findings = _trace_set(path, how)
    elif path.name.endswith((".et", ".et.gz")) or any(path.parent.glob(f"{path.name}.*.et")):
        findings = _workload(path)
    elif path.is_file() and kind_of(path) == "archive":
        findings = _archive(path, how)
    elif which_logs(path):
        findings = check_logs([path])
    elif sides := find_sides(str(target)):
        findings = _trace_files(sides, str(target), how)
    else:
        raise UsageError(
            f"{path} is not a study, a trace set ({MANIFEST_NAME}), a trace (Kineto or "
            "ExecutionTraceObserver JSON), a log of collectives or a prefix of .et files. Give one of "
            "them."
        )
    return worst_first(findings)


def _archive(path: Path, how: _How) -> list[Finding]:
    """Check the content of an archive of traces; findings name paths inside the archive."""
    try:
        with unpacked(path) as folder:
            manifests = sorted(folder.rglob(MANIFEST_NAME))
            found = _findings(manifests[0].parent if len(manifests) == 1 else folder, how)
            return [finding.with_paths(str(folder), str(path)) for finding in found]
    except Cancelled:
        raise
    except ChakrascopeError as error:
        return [Finding("error", str(path), error.message)]


def _trace_set(folder: Path, how: _How) -> list[Finding]:
    """Check the files of a trace set and, if the files are usable, the converted graphs."""
    findings, lacking = check_trace_set(folder)
    if any(finding.severity == "error" or finding.cause == TIMES_ALONE for finding in findings):
        return [*findings, *lacking]
    try:
        workload = convert(folder, **how.options)
    except Cancelled:
        raise
    except ChakrascopeError as error:
        refusal = Finding("error", str(folder), error.message)
        reported = any(finding.cause == error.message for finding in lacking)
        return [*findings, *lacking, *([] if reported else [refusal])]
    if remark := stood_in(workload.metadata):
        findings += [replace(finding, severity="warning") for finding in lacking]
        findings.append(Finding("warning", str(folder), f"{remark[0].upper()}{remark[1:]}.", _ALL_RANKS))
    findings += check_workload(workload, str(folder))
    findings += _unexplained(workload, str(folder))
    findings += _overhead(workload, str(folder))
    findings += _steps(workload, str(folder))
    if LEFT_OUT in workload.metadata["assumptions"]:
        findings.append(
            Finding("warning", str(folder), f"{LEFT_OUT[0].upper()}{LEFT_OUT[1:]}.", _WITHOUT_HOOKS)
        )
    return findings


def _trace_files(sides: dict[str, str], place: str, how: _How) -> list[Finding]:
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
        workload = convert_files(host, device, linked_trace=linked, **how.options)
    except Cancelled:
        raise
    except ChakrascopeError as error:
        return [*findings, Finding("error", place, error.message)]
    findings += check_workload(workload, place)
    findings += _unexplained(workload, place)
    notes = [
        note for note in workload.metadata["assumptions"] if note not in (UNMARKED, *as_assumptions(doubts))
    ]
    causes = [f"{note[0].upper()}{note[1:]}." for note in notes]
    reported = {finding.cause for finding in findings}
    return findings + [Finding("note", place, cause, _KNOW_IT) for cause in causes if cause not in reported]


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


_ALL_RANKS = "Capture again to have what each rank did itself."
_WITHOUT_HOOKS = "Capture the job without its communication hook to see what networks change."
_RESCALE = "Convert with --rescale-host to scale host time by it, and compare both answers."
_WHY_ON_A_DEVICE = (
    "Try another step, or all of them (--step all): alone, a step that the device works on while the host is "
    "in the next begins with an idle device."
)
_WHY_ON_A_CPU = (
    "Try another step: gloo runs two collectives of a group concurrently, but the graph runs one after the "
    "other. If the later one ended first, nodes that wait for it start late."
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
    times = step_times(workload.metadata)
    if times is None or not times.matters:
        return []
    return [Finding("note", place, times.text, "The converted step does not show these.")]


def _overhead(workload: Workload, place: str) -> list[Finding]:
    """Return a warning if captured steps take longer than unprofiled steps."""
    overhead = profiler_overhead(workload.metadata)
    if overhead is None or not overhead.matters:
        return []
    cause = f"{overhead.text[0].upper()}{overhead.text[1:]}: what looks bound by the host may not be."
    return [Finding("warning", place, cause, _RESCALE)]


def _workload(prefix: Path) -> list[Finding]:
    try:
        return check_workload(load_workload(prefix), str(prefix))
    except ChakrascopeError as error:
        return [Finding("error", str(prefix), error.message)]
