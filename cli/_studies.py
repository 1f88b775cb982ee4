"""Open the study and the run that a command needs, and print the first line of the output."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..runner import REPLAY
from ..support import count_text
from ._options import joined
from ._output import console, counter, stage

if TYPE_CHECKING:
    from ..runner import RunInfo, Study
    from ..runner.analysis import RunAnalysis

run_option = click.option(
    "--run",
    "run_id",
    metavar="ID",
    help="Run to explain: the first letters of its id, or `measured` for the capture. [default: "
    "measured; without a capture, the newest run]",
)
MEASURED = "measured"
"""The value of --run that means the capture."""


of_a_run = joined(
    click.argument("study_folder", metavar="STUDY|TRACE", type=click.Path(path_type=Path)), run_option
)


def open_study(paths: Path | Sequence[Path]) -> Study:
    """Return the study at *paths*, or the cached study of traces: files, a folder or an archive."""
    from ..runner import Study, study_of_traces

    given = [paths] if isinstance(paths, Path) else list(paths)
    absent = next((path for path in given if not path.exists()), None)
    if absent is not None or (len(given) == 1 and (Study.is_study(given[0]) or not holds_traces(given[0]))):
        return Study.open(absent or given[0])
    names = given[0].name if len(given) == 1 else f"{given[0].name} and {len(given) - 1} more"
    with stage(f"read {names}") as status:
        return study_of_traces(given, counter(status, "ranks"))


def holds_traces(path: Path) -> bool:
    """Return whether *path* is a file, or a folder with traces or graphs to import."""
    from ..runner.study import find_items

    return path.is_file() or bool(path.is_dir() and find_items(path))


def are_logs(targets: Sequence[str]) -> bool:
    """Return whether *targets* are production logs, or a folder or archive of logs without traces."""
    from ..converter.readers import kind_of
    from ..converter.readers.logs import which_logs
    from ..runner.study import find_items

    path = Path(targets[0])
    if which_logs(path):
        return path.is_file() or not {item.kind for item in find_items(path)} & {"trace set", "traces"}
    if not path.is_file() or kind_of(path) != "archive":
        return False
    return not find_items(path.parent, {path.name})


def open_run(paths: Path | Sequence[Path], run_id: str | None, output_format: str = "") -> RunAnalysis:
    """Return the run *run_id* of a study or of traces.

    Without *run_id*, or for ``measured``, the run is the replay of the newest capture or, without a
    capture, the newest run. For the output format "table", a line about the run is printed first.
    """
    from ..runner.analysis import analyse_run

    study = open_study(paths)
    run = analyse_run(study, chosen_run(study, run_id))
    if output_format == "table":
        print_run(run.info, study.runs() if run_id is None else (), run.measured)
    return run


def chosen_run(study: Study, run_id: str | None) -> str | None:
    """Return the id of the run that `open_run` opens for *run_id*; None for the study's default run."""
    runs = study.runs()
    if run_id is None and runs and not os.access(study.path, os.W_OK):
        return None  # a read-only study cannot get a replay
    if run_id is None and (study.measured_workload() or not runs) and study.workloads():
        return _measured(study)
    return _measured(study) if run_id == MEASURED else run_id


def _measured(study: Study) -> str:
    """Return the id of a replay of the newest captured workload, simulating it if missing."""
    prefix = study.workload_prefix(study.measured_workload())
    for info in reversed(study.runs()):
        if info.backend == REPLAY and info.workload == prefix.parent.name:
            return info.id
    from ._run import simulate_study
    from ._target import Target

    target = Target(system="default", network=None, memory=None, backends=(REPLAY,))
    return simulate_study(study, target, prefix)[-1][0]


def print_run(info: RunInfo, chosen_of: Sequence[RunInfo] = (), measured: int = 0) -> None:
    """Print the first line: the run, its workload, ranks, backend and network.

    *chosen_of* are the runs from which a default was chosen. *measured* is the number of measured ranks,
    which is printed for a replay if other ranks repeat these ranks.
    """
    ranks = count_text(info.num_ranks, "rank")
    if info.backend == REPLAY and 0 < measured < info.num_ranks:
        ranks = f"{measured} of {ranks}"
    where = "as measured" if info.backend == REPLAY else f"{info.backend} on {info.network}"
    which = "the newest" if chosen_of and info.id == chosen_of[-1].id else "one"
    of_several = f" ({which} of {len(chosen_of)} runs; --run chooses another)" if len(chosen_of) > 1 else ""
    text = f"Run {info.id[:8]}: {info.workload}, {ranks}, {where}{of_several}"
    console.print_text(text, "dim")
