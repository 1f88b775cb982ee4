"""Look over everything a study holds."""

from __future__ import annotations

from ...converter import Finding, doctor, worst_first
from ...converter.building import Progress, finished_ranks
from ...tracer import MANIFEST_NAME
from ._study import Study

__all__ = ["check_study"]


def check_study(study: Study, *, jobs: int | None = 1, progress: Progress | None = None) -> list[Finding]:
    """Return what is wrong with the trace sets and workloads of *study*, worst first; [] if nothing is.

    *jobs* and *progress* are those of `convert`, which each trace set goes through. Never raises for what it
    finds.
    """
    sets = sorted(study.trace_set_dirs())
    findings = []
    for folder in sets:
        with finished_ranks(f"{study.path}.{folder.name}.doctor") as finished:
            findings += doctor(folder, jobs=jobs, progress=progress, finished=finished)
    for folder in study.unfinished_trace_dirs():
        cause = f"It has no {MANIFEST_NAME}, so the capture never finished."
        findings.append(Finding("warning", str(folder), cause, "Capture again, and delete this folder."))
    for prefix in study.graph_prefixes():
        findings += doctor(prefix)
    if not sets and not findings:
        cause = "It holds no trace set."
        findings.append(Finding("warning", str(study.path), cause, "Capture one with 'chakrascope trace'."))
    return worst_first(findings)
