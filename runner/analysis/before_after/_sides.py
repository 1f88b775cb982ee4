"""Read the steps of one side of a comparison: captures, single steps, workloads, or runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Literal

from ....converter import convert
from ....converter.building import is_captured
from ....errors import StudyError, TraceError, UsageError, did_you_mean
from ....support import count_text
from ....tracer import TraceSet
from ..._cached_traces import study_of_traces
from ..._traits import about_backend
from ...study import Study, run_name
from .._differences import measured_result
from ._diff import Side
from ._step import Step, read_step

ALL = "all"
Progress = Callable[[int, int], None]


def read_side(text: str, progress: Progress | None = None) -> Side:
    """Read the steps of the side *text*, which is ``STUDY`` or ``STUDY@WHAT``.

    STUDY may be a trace, which is replayed. WHAT is a capture (all its measured steps),
    ``CAPTURE/STEP``, a workload, the first letters of a run's id, ``all`` for all captures, or
    several of these, separated by commas. The default is the newest capture or, without one, the
    newest run. *progress* is called with the steps read and their total number. Raises `StudyError`
    for missing items.
    """
    folder, what = _split(text)
    study = study_of_traces([folder]) if _is_trace(folder) else Study.open(folder)
    return side_of(study, what, name=text, progress=progress)


def check_side(text: str) -> None:
    """Raise the errors of `read_side` for names that do not exist, without reading a trace or a step."""
    folder, what = _split(text)
    if not _is_trace(folder):
        study = Study.open(folder)
        for part in side_parts(study, what)[0]:
            list(_makers(study, part))  # making a reader checks the names


def _is_trace(folder: Path) -> bool:
    return folder.exists() and not Study.is_study(folder)


def _split(text: str) -> tuple[Path, str]:
    """Split *text* into a folder, whose name may contain an @, and a selection."""
    folder, at, what = text.rpartition("@")
    return (Path(folder), what) if at and not Path(text).exists() else (Path(text), "")


def side_of(
    study: Study,
    what: str = "",
    *,
    name: str = "",
    progress: Progress | None = None,
    ranks: Progress | None = None,
) -> Side:
    """Return the side called *name*, with the steps *what* of *study* (see `read_side`).

    *ranks* is called with the ranks read of the current step and their total number. An exception
    of a callback ends the reading.
    """
    chosen, notes = side_parts(study, what)
    makers = [maker for part in chosen for maker in _makers(study, part)]
    steps = []
    for done, make in enumerate(makers):
        if progress is not None and not done:
            progress(0, len(makers))
        steps.append(make(ranks))
        if progress is not None:
            progress(done + 1, len(makers))
    kinds = {step.exact for step in steps}
    if len(kinds) > 1:
        notes.append(
            "Some steps are simulated and others measured, so their differences include the error of the "
            "simulation."
        )
    return Side(name or study.path.name, tuple(steps), tuple(notes))


def side_parts(study: Study, what: str = "") -> tuple[list[str], list[str]]:
    """Return the parts of *study* that *what* selects, and notes on the selection."""
    sets = study.trace_sets()
    if what == ALL:
        if not sets:
            raise StudyError(
                f"The study {study.path} has no capture. Next: make one with `chakrascope trace`."
            )
        return sets, []
    if what:
        parts = [part.strip() for part in what.split(",") if part.strip()]
        return parts, []
    if sets:
        older = len(sets) - 1
        newest = f"{study.path}: only the newest of {len(sets)} captures is compared; '@all' compares all."
        notes = [newest] if older else []
        return [sets[-1]], notes
    if study.runs():
        return [study.run_info().id], []
    return study.workloads()[-1:], []


def _makers(study: Study, part: str) -> Iterator[Callable[[Progress | None], Step]]:
    """Yield a function per step of *part* of the study, which reads that step."""
    capture, slash, number = part.partition("/")
    if capture in study.trace_sets():
        folder = study.trace_dir(capture)
        for step in _step_numbers(folder, number if slash else ""):
            yield partial(_captured, folder, capture, step)
    elif part in study.workloads():
        yield partial(_measured, study, part)
    else:
        yield partial(_run, study, _run_id(study, part))


def _run_id(study: Study, part: str) -> str:
    ids = [info.id for info in study.runs()]
    matches = [run_id for run_id in ids if run_id.startswith(part)]
    if len(matches) == 1:
        return matches[0]
    choices = {*study.trace_sets(), *study.workloads(), *(run_id[:8] for run_id in ids)}
    raise StudyError(
        f"The study {study.path} has {len(matches) or 'no'} captures, workloads or runs named '{part}'"
        f"{did_you_mean(part, choices)}"
    )


def _step_numbers(folder: Path, number: str) -> list[int | Literal["median"]]:
    """Return the steps that every rank of a capture has, or ``median`` if there is only one."""
    common = step_numbers(folder)
    if number:
        if not (number.isdecimal() and len(number) < 19) or int(number) not in common:
            choices = ", ".join(map(str, common))
            raise UsageError(f"{folder} has no step '{number}'; it has {choices or 'no steps'}.")
        return [int(number)]
    return [*common] if len(common) > 1 else ["median"]


def step_numbers(folder: Path) -> list[int]:
    """Return the sorted numbers of the steps that every rank of the capture in *folder* has."""
    ranks = TraceSet.load(folder).ranks
    steps = [{step.index for step in entry.steps} for entry in ranks]
    return sorted(set.intersection(*steps)) if steps else []


def _captured(folder: Path, capture: str, step: int | Literal["median"], ranks: Progress | None) -> Step:
    workload = convert(folder, step=step, progress=ranks)
    result = measured_result(workload)
    label = f"{capture}/{step}" if step != "median" else capture
    start = str(folder.resolve())
    return read_step(result, workload, name=label, start=start, exact=False)


def _measured(study: Study, name: str, _ranks: Progress | None) -> Step:
    workload = study.workload(name)
    if not is_captured(workload.metadata):
        raise TraceError(
            f"The workload '{name}' of {study.path} was not measured. Next: simulate it with `chakrascope "
            "run`, and compare the runs."
        )
    start = str(workload.metadata.get("trace_set") or name)
    return read_step(measured_result(workload), workload, name=name, start=start, exact=False)


def _run(study: Study, run_id: str, _ranks: Progress | None) -> Step:
    info = study.run_info(run_id)
    workload = study.run_workload(run_id)
    traits = about_backend(info.backend)
    measured = not traits.needs_network
    name = f"{run_name(info)}, {count_text(info.num_ranks, 'rank')} ({run_id[:6]})"
    start = run_id if not traits.replays else str(workload.metadata.get("trace_set") or run_id)
    return read_step(study.result(run_id), workload, name=name, start=start, exact=not measured)
