"""The work of each kind of job, executed in the job's process."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from ...converter.building import Progress, finished_ranks, step_choice
from ...errors import BackendError, Cancelled, StudyError
from ...support import count_text, write_file
from .._experiment import Experiment
from .._result import Result
from ..backends import get_backend
from ..study import Study, check_item, import_item, step_names_of
from ._job import ImportRequest, Job, SweepRequest, read_request

Note = Callable[[Mapping[str, int]], bool]
"""Callback that records the progress of the job as columns, and returns whether to continue."""


def _simulate(study: Study, job: Job, request: str, note: Note) -> str:
    """Simulate an experiment and save the result as a run of the study."""
    experiment = read_request(study, request)
    if experiment.content_hash != job.experiment:
        raise StudyError(f"The workload '{job.workload}' has changed since; submit the experiment again.")
    if not study.has_run(experiment):
        result = get_backend(experiment.backend).run(
            experiment,
            lambda simulated_ns, ranks: note({"simulated_ns": int(simulated_ns), "done": int(ranks)}),
        )
        keep_run(study, experiment, result, job)
    return ""


def keep_run(study: Study, experiment: Experiment, result: Result, job: Job) -> None:
    """Save the result as a run of the study, atomically."""
    try:
        study.add_run(experiment, result, label=job.label, workload=job.workload)
    except StudyError:
        # Another process may have saved the same run since the start of the simulation.
        if not study.has_run(experiment):
            raise


def _sweep(study: Study, _job: Job, request: str, note: Note) -> str:
    """Run the points of a sweep that have no results in the sweep's table yet."""
    from ..sweep import run_sweep  # noqa: PLC0415 - imports pandas, which other jobs do not need

    def progress(finished: int, points: int, _failed: int) -> None:
        _go_on(note, finished, points)

    sweep = run_sweep(study, **SweepRequest(**json.loads(request)).arguments(), progress=progress)
    if sweep.failed == len(sweep.points):
        raise BackendError(f"No point of the sweep has a result: {sweep.points['error'].iloc[0]}")
    failed = f", {sweep.failed} of them failed" if sweep.failed else ""
    return f"The sweep '{sweep.name}' has {count_text(len(sweep.points), 'point')}{failed}."


def findings_file(study: Study, request: ImportRequest) -> Path:
    """Return the path of the file with the findings on an item to import."""
    return study.findings_file(request.item)


def _check(study: Study, _job: Job, request: str, note: Note) -> str:
    """Check an item to import, and store the findings and the annotations that mark steps."""
    asked = ImportRequest(**json.loads(request))
    with finished_ranks(study.import_target(asked.item)) as finished:
        findings = check_item(Path(asked.folder), asked.item, _progress(note), finished=finished)
    file = findings_file(study, asked)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(study.step_names_file(asked.item), json.dumps(step_names_of(Path(asked.folder), asked.item)))
    write_file(file, json.dumps([finding.to_dict() for finding in findings]))
    return f"{count_text(len(findings), 'finding')}." if findings else "Nothing is wrong with it."


def _import(study: Study, _job: Job, request: str, note: Note) -> str:
    """Convert an imported item to a workload of the study, atomically."""
    asked = ImportRequest(**json.loads(request))
    with finished_ranks(study.import_target(asked.item)) as finished:
        made = import_item(
            study,
            Path(asked.folder),
            asked.item,
            asked.name,
            _progress(note),
            step=step_choice(asked.step),
            finished=finished,
        )
    return f"It is now the workload '{made}'."


def _progress(note: Note) -> Progress:
    return lambda done, total: _go_on(note, done, total)


def _go_on(note: Note, done: int, total: int) -> None:
    if not note({"done": done, "total": total}):
        raise Cancelled("Cancelled.")


WORK: Mapping[str, Callable[[Study, Job, str, Note], str]] = {
    "simulation": _simulate,
    "sweep": _sweep,
    "check": _check,
    "import": _import,
}
"""The function for each kind of job, which returns the final message."""
