"""Check everything in a study."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ...converter import Finding, doctor, worst_first
from ...converter.building import Progress, finished_ranks
from ...errors import ChakrascopeError
from ...tracer import MANIFEST_NAME
from .._checksums import CHECKSUMS_FILE
from ._marks import timeline_notes
from ._notes import note_problem
from ._study import Study


def check_study(study: Study, *, jobs: int | None = 1, progress: Progress | None = None) -> list[Finding]:
    """Return the problems of trace sets, workloads and runs of *study*, worst first; [] if there are none.

    *jobs* and *progress* are those of `convert`, which each trace set goes through. Never raises for a
    problem in the study.
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
    return worst_first([*findings, *_runs(study)])


def _runs(study: Study) -> Iterator[Finding]:
    """Yield the problems of the runs: files that changed, contradictory results, lost notes."""
    without = []
    for folder in sorted(study.run_dirs()):
        place = f"{study.path}, run {folder.name}"
        if not (folder / CHECKSUMS_FILE).exists():
            without.append(folder.name)
        try:
            study.result(folder.name)
            study.run_configs(folder.name)
            timeline_notes(study, folder.name)
        except ChakrascopeError as error:
            yield Finding("error", place, error.message, "Restore the file, or run it again.")
        yield from _note(folder, place)
    yield from _note(study.path, str(study.path))
    if without:
        counted = "1 run has" if len(without) == 1 else f"{len(without)} runs have"
        cause = f"{counted} no checksums, which version 0.3 introduced: {', '.join(without[:3])}."
        yield Finding("note", str(study.path), cause, "Run them again to have damage noticed.")


def _note(folder: Path, place: str) -> Iterator[Finding]:
    problem = note_problem(folder)
    if problem:
        yield Finding("warning", place, f"{problem}.")
