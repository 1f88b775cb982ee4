"""Look a study, a trace set or a workload over before anything is simulated."""

from __future__ import annotations

from pathlib import Path

from ..errors import ChakrascopeError, UsageError
from .convert import convert
from .findings import Finding
from .trace_checks import check_trace_set
from .workload import Workload
from .workload_checks import check_workload

__all__ = ["doctor"]

_UNEXPLAINED_SHARE = 0.03
_ORDER = {"error": 0, "warning": 1, "note": 2}


def doctor(target: str | Path) -> list[Finding]:
    """Return what is wrong with *target*, worst first; [] if nothing is.

    *target* is a study's folder, a trace set's folder, or the ``PREFIX`` of ``PREFIX.<rank>.et`` files. Never
    raises for what it finds; raises `UsageError` if *target* is none of them.
    """
    path = Path(target)
    if (path / "study.json").is_file():
        findings = _study(path)
    elif (path / "manifest.json").exists():
        findings = _trace_set(path)
    elif any(path.parent.glob(f"{path.name}.*.et")):
        findings = _workload(path)
    else:
        raise UsageError(
            f"{path} is no study (study.json), no trace set (manifest.json) and no prefix of .et files. "
            "Give one of them."
        )
    return sorted(findings, key=lambda finding: _ORDER[finding.severity])


def _study(path: Path) -> list[Finding]:
    """Check everything in a study: its trace sets and its workloads."""
    sets = sorted(found.parent for found in path.glob("traces/*/manifest.json"))
    findings = [finding for folder in sets for finding in _trace_set(folder)]
    for folder in sorted(path.glob("traces/*")):
        if folder.is_dir() and folder not in sets:
            cause = "It has no manifest.json, so the capture never finished."
            findings.append(Finding("warning", str(folder), cause, "Capture again, and delete this folder."))
    for first in sorted(path.glob("workloads/*/workload.0.et")):
        findings += _workload(first.with_name("workload"))
    if not sets and not findings:
        cause = "It holds no trace set."
        findings.append(Finding("warning", str(path), cause, "Capture one with 'chakrascope trace'."))
    return findings


def _trace_set(folder: Path) -> list[Finding]:
    """Check a trace set's files and, if they can be used, the graphs they become."""
    findings = check_trace_set(folder)
    if any(finding.severity == "error" for finding in findings):
        return findings
    try:
        workload = convert(folder)
    except ChakrascopeError as error:
        return [*findings, Finding("error", str(folder), error.message, "See the message.")]
    findings += check_workload(workload, str(folder))
    findings += _unexplained(workload, str(folder))
    return findings


def _unexplained(workload: Workload, place: str) -> list[Finding]:
    """Return a warning for each rank whose graph does not explain its measured step."""
    findings = []
    for rank, figures in workload.metadata["accounting"].items():
        share = figures["unexplained_ns"] / max(1, figures["measured_step_ns"])
        if share > _UNEXPLAINED_SHARE:
            findings.append(
                Finding(
                    "warning",
                    f"{place}, rank {rank}",
                    f"The graph's replay differs from the measured step by {share:.1%}.",
                    "Try another step; the differences between steps show what the graph misses.",
                )
            )
    return findings


def _workload(prefix: Path) -> list[Finding]:
    try:
        return check_workload(Workload.load(prefix), str(prefix))
    except ChakrascopeError as error:
        return [Finding("error", str(prefix), error.message, "See the message.")]
