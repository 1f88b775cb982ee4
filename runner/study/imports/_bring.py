"""Check an item before importing it, and import it into a study."""

from __future__ import annotations

import os
import shutil
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ....converter import Finding, Workload, convert, convert_files, convert_logs, doctor
from ....converter.building import FinishedRanks, Progress, StepChoice, step_names
from ....converter.checks import check_logs
from ....converter.readers import read_device_trace, unpacked
from ....errors import Cancelled, ChakrascopeError, StudyError
from ....support import new_folder
from ....tracer import TraceSet
from .._layout import check_name, numbered
from .._study import Study
from ._find import ImportItem, find_item, find_items

# For smaller traces, starting a process takes longer than the time it saves.
_WORTH_PROCESSES_BYTES = 32 << 20
_NAMED = 8
_WITHOUT_STEPS = ("graphs", "logs")
_WITH_CAPTURES = ("traces", "archive")


@dataclass(frozen=True)
class _How:
    """Options of the conversion: *jobs* processes, *progress*, and the cache *finished* of converted ranks.

    *step* selects the step to convert. *capture_trace* is the trace of the capture of the job's
    CUDA graphs.
    """

    jobs: int
    progress: Progress
    finished: FinishedRanks
    step: StepChoice
    capture_trace: str | Path | None

    @property
    def options(self) -> dict[str, Any]:
        """The keyword arguments of `convert` and `doctor`."""
        return {name: getattr(self, name) for name in ("jobs", "progress", "finished")}

    @classmethod
    def of(
        cls,
        item: ImportItem,
        progress: Progress,
        finished: FinishedRanks | None,
        step: StepChoice,
        capture_trace: str | Path | None,
    ) -> _How:
        """Return the options for *item*; its size determines the number of processes.

        Raises `StudyError` for a *step* or *capture_trace* if the item has no steps or no captures.
        """
        if step != "median" and item.kind in _WITHOUT_STEPS:
            raise StudyError(f"{item.place} holds {item.kind}, which have no steps; leave out step '{step}'.")
        if capture_trace is not None and item.kind not in _WITH_CAPTURES:
            raise StudyError(
                f"{item.place} is a {item.kind}, and --capture-trace requires device traces: leave it out."
            )
        jobs = (os.cpu_count() or 1) if item.size_bytes >= _WORTH_PROCESSES_BYTES else 1
        return cls(jobs, progress, finished or FinishedRanks.nowhere(), step, capture_trace)


def check_item(
    folder: Path,
    identity: str,
    progress: Progress,
    *,
    step: StepChoice = "median",
    capture_trace: str | Path | None = None,
    finished: FinishedRanks | None = None,
) -> list[Finding]:
    """Return findings about the importable item *identity* of *folder*, with paths relative to *folder*.

    Traces are converted for the check; *step* and *capture_trace* are as in `import_item`.
    *finished* caches converted ranks of large items for the next check or the import. Raises
    `StudyError` for an item that is missing, has changed or cannot be imported.
    """
    item = find_item(folder, identity)
    progress(0, item.ranks)
    try:
        findings = _findings(folder, item, _How.of(item, progress, finished, step, capture_trace))
    except Cancelled:
        raise
    except ChakrascopeError as error:
        findings = [Finding("error", item.place, error.message)]
    return [_without(folder, finding) for finding in findings]


def step_names_of(folder: Path, identity: str) -> list[str]:
    """Return the annotations of the first rank that can mark steps of the item *identity*.

    The list is empty for an item without steps, and for an unreadable item. Raises `StudyError` for the same
    items as `check_item`.
    """
    item = find_item(folder, identity)
    with ExitStack() as opened, suppress(ChakrascopeError):
        if item.kind == "archive":
            folder = opened.enter_context(unpacked(folder / item.place))
            item = _only_item(folder, item)
        if item.kind == "traces":
            return step_names(read_device_trace(folder / item.files[0]))
        if item.kind == "trace set":
            path = folder / item.place
            return step_names(read_device_trace(path / str(TraceSet.load(path).ranks[0].device_trace)))
    return []


def _findings(folder: Path, item: ImportItem, how: _How) -> list[Finding]:
    if item.kind == "archive":
        with unpacked(folder / item.place) as inside:
            inner = _only_item(inside, item)
            findings = _findings(inside, inner, how)
            return [finding.with_paths(str(inside), str(folder / item.place)) for finding in findings]
    if item.kind == "logs":
        return check_logs([folder / file for file in item.files])
    if item.kind != "traces":
        return doctor(folder / item.place, **how.options)
    with tempfile.TemporaryDirectory(prefix="chakrascope-") as name:
        prefix = Path(name) / Path(item.place).name
        _convert_files(folder, item, how).save(prefix)
        return [_without(Path(name), finding) for finding in doctor(prefix)]


def import_item(
    study: Study,
    folder: Path,
    identity: str,
    name: str,
    progress: Progress,
    *,
    step: StepChoice = "median",
    capture_trace: str | Path | None = None,
    finished: FinishedRanks | None = None,
) -> str:
    """Import the item *identity* of *folder* as a workload of *study*; return the workload's name.

    A trace set is first copied into the study. The workload is called *name*, or *name*-2 and so on if the
    name is taken. *step* selects the step of traces. *capture_trace* is the trace, or the folder of traces,
    of the capture of CUDA or HIP graphs (None: the captures next to the traces). Ranks of large traces are
    not converted again if *finished* caches them.

    Raises `StudyError` for an invalid name, and for a *step* or *capture_trace* if the item has no
    steps or captures; `TraceError`, `UsageError` or `WorkloadError` for an item that cannot be
    converted. After an error, the study is unchanged.
    """
    check_name(name, "a workload")
    item = find_item(folder, identity)
    progress(0, item.ranks)
    return _import(study, folder, item, name, _How.of(item, progress, finished, step, capture_trace))


def import_with_defaults(study: Study, folder: Path, item: ImportItem, name: str, progress: Progress) -> str:
    """Import *item* of *folder* with default options; see `import_item`."""
    return _import(study, folder, item, name, _How.of(item, progress, None, "median", None))


def _only_item(inside: Path, archive: ImportItem) -> ImportItem:
    """Return the only importable item in the folder *inside*; raises `StudyError` otherwise."""
    items = find_items(inside)
    usable = [item for item in items if not item.problem]
    if len(usable) == 1:
        return usable[0]
    listed = usable or items
    places = ", ".join(
        f"{item.place}{f' ({item.problem})' if item.problem else ''}" for item in listed[:_NAMED]
    )
    if usable:
        holds = f"several sets of traces or graphs: {places}. Unpack it, and import from the folder"
    else:
        holds = f"no usable traces or graphs{places and ': '}{places}"
    raise StudyError(f"{archive.place} cannot be imported: it holds {holds}.")


def _import(
    study: Study, folder: Path, item: ImportItem, name: str, how: _How, *, will_stay: bool = True
) -> str:
    if item.kind == "archive":
        with unpacked(folder / item.place) as inside:
            return _import(study, inside, _only_item(inside, item), name, how, will_stay=False)
    taken = study.taken_names()
    chosen = next(free for free in numbered(name) if free not in taken)
    if item.kind == "graphs":
        prefix = study.add_workload(Workload.load(folder / item.place), chosen)
    elif item.kind == "logs":
        prefix = study.add_workload(convert_logs([folder / file for file in item.files]), chosen)
    elif item.kind == "traces":
        workload = _convert_files(folder, item, how)
        if will_stay:  # the timeline reads calls of host threads from the traces
            ranks = sorted(workload.metadata["began_ns"], key=int)
            files = [str((folder / file).resolve()) for file in item.files]
            traces = dict(zip(ranks, files, strict=False))
            workload = replace(workload, metadata=workload.metadata | {"device_traces": traces})
        prefix = study.add_workload(workload, chosen)
    else:
        prefix = _import_trace_set(study, folder, item, chosen, how)
    return prefix.parent.name


def _import_trace_set(study: Study, folder: Path, item: ImportItem, name: str, how: _How) -> Path:
    """Copy the trace set into the study and convert the copy, which is removed if the conversion fails.

    Copies keep their modification times, because the converter's cache recognises ranks by the times and
    sizes of their files.
    """
    with new_folder(study.trace_dir(name)) as copied:
        for file in item.files:
            target = copied / Path(file).relative_to(item.place)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / file, target, follow_symlinks=False)
            status = (folder / file).stat(follow_symlinks=False)
            os.utime(target, ns=(status.st_atime_ns, status.st_mtime_ns))
        workload = convert(copied, step=how.step, **how.options)
        workload = replace(workload, metadata=workload.metadata | {"trace_set": name})
    return study.add_workload(workload, name)


def _convert_files(folder: Path, item: ImportItem, how: _How) -> Workload:
    hosts = [folder / file for file in item.host_files] or None
    devices = [folder / file for file in item.files]
    captures = how.capture_trace or [folder / file for file in item.capture_files]
    return convert_files(hosts, devices, capture_trace=captures, step=how.step, **how.options)


def _without(folder: Path, finding: Finding) -> Finding:
    """Return *finding* with paths relative to *folder*."""
    return finding.with_paths(f"{folder}/", "").with_paths(str(folder), ".")
