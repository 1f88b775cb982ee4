"""Check all trace sets, workloads, runs, sweeps and jobs of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from ..converter import Finding, doctor, worst_first
from ..converter.building import Progress, finished_ranks
from ..errors import ChakrascopeError
from ..support import load_json
from ..tracer import MANIFEST_NAME
from ._checksums import CHECKSUMS_FILE, refuse_damaged
from .jobs import JobStore
from .study import RUN_FILE, Study, network_names, note_problem, read_network_file, timeline_notes
from .sweep import read_sweep, sweep_names


def check_study(study: Study, *, jobs: int | None = 1, progress: Progress | None = None) -> list[Finding]:
    """Return the problems in all parts of *study*, worst first, or [] if there are no problems.

    *jobs* and *progress* are the options of `convert`, which converts each trace set for the check. A problem
    in the study never raises an error.
    """
    sets = sorted(study.trace_set_dirs())
    findings = []
    for folder in sets:
        with finished_ranks(f"{study.path}.{folder.name}.doctor") as finished:
            findings += doctor(folder, jobs=jobs, progress=progress, finished=finished)
    for folder in study.unfinished_trace_dirs():
        cause = f"It has no {MANIFEST_NAME}, so the capture never finished."
        findings.append(Finding("warning", str(folder), cause, "Capture again, and delete this folder."))
    findings += _workloads(study)
    if not sets and not findings:
        cause = "The folder has no trace set."
        findings.append(Finding("warning", str(study.path), cause, "Capture one with 'chakrascope trace'."))
    findings += _refused(str(study.path), partial(Study.open, study.path))
    findings += [*_runs(study), *_sweeps(study), *_networks(study), *_jobs(study), *_defaults(study)]
    return worst_first(findings)


def _workloads(study: Study) -> Iterator[Finding]:
    """Yield workloads with changed files, and the problems of the graphs of unchanged workloads."""
    graphs = {prefix.parent: prefix for prefix in study.graph_prefixes()}
    without = []
    for folder in _folders(study.workloads_dir):
        if not (folder / CHECKSUMS_FILE).exists():
            without.append(folder.name)
        damage = [*_refused(f"{study.path}, workload {folder.name}", partial(refuse_damaged, folder))]
        yield from damage or (doctor(graphs[folder]) if folder in graphs else ())
    yield from _without_checksums(study, "workload", without)


def _runs(study: Study) -> Iterator[Finding]:
    """Yield the problems of a study's runs: changed files, contradictory results, and damaged notes."""
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
            yield Finding("error", place, error.message, "Restore the file, or repeat the run.")
        yield from _note(folder, place)
    yield from _note(study.path, str(study.path))
    yield from _without_checksums(study, "run", without)
    for folder in study.unlisted_run_dirs():
        cause = f"It has no {RUN_FILE}, so no command lists it."
        yield Finding(
            "error", str(folder), cause, "Restore the file, or delete the folder and repeat the run."
        )


def _note(folder: Path, place: str) -> Iterator[Finding]:
    problem = note_problem(folder)
    if problem:
        yield Finding("warning", place, f"{problem}.")


def _sweeps(study: Study) -> Iterator[Finding]:
    """Yield sweeps with changed files, and unreadable sweeps without checksums."""
    names = sweep_names(study)
    for folder in _folders(study.sweeps_dir):
        place = f"{study.path}, sweep {folder.name}"
        yield from _refused(place, partial(refuse_damaged, folder))
        if folder.name in names and not (folder / CHECKSUMS_FILE).exists():
            yield from _refused(place, partial(read_sweep, study, folder.name))


def _networks(study: Study) -> Iterator[Finding]:
    """Yield invalid files among the user's own networks."""
    for name in network_names(study):
        yield from _refused(f"{study.path}, network {name}", partial(read_network_file, study, name))


def _jobs(study: Study) -> Iterator[Finding]:
    yield from _refused(f"{study.path}, jobs", JobStore(study).database.check)


def _defaults(study: Study) -> Iterator[Finding]:
    """Yield unreadable files without which commands and pages only lose a default or a suggestion."""
    files = [study.current_file, *sorted(study.jobs_dir.glob("findings/*.json"))]
    for file in filter(Path.exists, files):
        try:
            load_json(file)
        except (OSError, ValueError) as error:  # noqa: PERF203 - few files
            yield Finding("warning", str(study.path), f"{file} is damaged ({error}).", "Delete the file.")


def _folders(parent: Path) -> list[Path]:
    return sorted(folder for folder in parent.glob("[!.]*") if folder.is_dir())


def _refused(place: str, check: Callable[[], object]) -> Iterator[Finding]:
    try:
        check()
    except ChakrascopeError as error:
        yield Finding("error", place, error.message)


def _without_checksums(study: Study, what: str, names: Sequence[str]) -> Iterator[Finding]:
    if names:
        counted = f"1 {what} has" if len(names) == 1 else f"{len(names)} {what}s have"
        cause = f"{counted} no checksums, which version 0.3 introduced: {', '.join(names[:3])}."
        yield Finding("note", str(study.path), cause, "Make them again, so that damage can be detected.")
