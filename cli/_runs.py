"""``chakrascope runs``: list the runs and background jobs of a study, or the studies of a folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from ..errors import UsageError
from ..support import bytes_text, duration_text
from ._output import console, format_option, print_frame, print_json, print_rows

if TYPE_CHECKING:
    import pandas as pd

    from ..runner import Study, Workspace

# The options for each list that `runs` prints, by parameter name.
_OPTIONS = {
    "cached studies": ("clear_traces",),
    "studies": ("find", "list_studies", "begun", "name", "tags", "note"),
    "background jobs": ("list_jobs", "log_of", "cancel", "resume"),
    "runs": ("find", "run_id", "label", "tags", "note", "to_delete"),
}
_JOB_COLUMNS = ["job", "kind", "state", "backend", "network", "progress", "simulated_ns", "message", "run"]


@click.command("runs")
@click.argument("folders", metavar="[STUDY|FOLDER]...", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--find",
    default="",
    metavar="TEXT",
    help="List only rows with this text in any column, such as name, note or tags.",
)
@click.option("--run", "run_id", metavar="ID", help="Set --label, --tag or --note of this run.")
@click.option("--label", help='New label of the run; "" restores the original label.')
@click.option("--tag", "tags", multiple=True, help='New tags of the run or study; "" removes all tags.')
@click.option("--note", help='Note on the run or study; "" removes the note.')
@click.option("--delete", "to_delete", multiple=True, metavar="ID", help="Delete this run. Repeatable.")
@click.option(
    "--jobs", "list_jobs", is_flag=True, help="List the background jobs of STUDY instead of its runs."
)
@click.option(
    "--log", "log_of", type=int, metavar="JOB", help="Print the end of the log of this background job."
)
@click.option("--cancel", type=int, metavar="JOB", help="Cancel this background job.")
@click.option(
    "--resume",
    is_flag=True,
    help="Restart background jobs that a crash or a reboot interrupted.",
)
@click.option(
    "--studies",
    "list_studies",
    is_flag=True,
    help="List the studies in FOLDER, even if FOLDER itself is a study.",
)
@click.option("--new", "begun", metavar="NAME", help="Create an empty study with this name in FOLDER.")
@click.option("--study", "name", metavar="NAME", help="Set --tag or --note of this study in FOLDER.")
@click.option("--clear-traces", is_flag=True, help="Delete the cached studies of converted traces.")
@format_option
def runs_command(
    *,
    folders: tuple[Path, ...],
    find: str,
    run_id: str | None,
    label: str | None,
    tags: tuple[str, ...],
    note: str | None,
    to_delete: tuple[str, ...],
    list_jobs: bool,
    log_of: int | None,
    cancel: int | None,
    resume: bool,
    list_studies: bool,
    begun: str | None,
    name: str | None,
    clear_traces: bool,
    output_format: str,
) -> None:
    """List the runs of STUDY, newest first, or its background jobs, or the studies in FOLDER.

    Without STUDY and FOLDER, `runs` lists the cached studies of converted traces. `runs` also labels,
    annotates and deletes runs, cancels and resumes jobs, and describes studies. The first letters of an ID
    are enough if no other ID begins with them.
    """
    if clear_traces or not folders:
        _refuse_other_options("cached studies")
        if clear_traces:
            from ..runner import clear_cached_traces

            console.print_text(f"Deleted {bytes_text(clear_cached_traces())} of cached studies.")
        else:
            _print_cached(output_format)
        return
    if list_studies or begun is not None or name is not None or not _is_study(folders):
        _refuse_other_options("studies")
        _studies(folders, find, begun=begun, name=name, tags=tags, note=note, output_format=output_format)
        return

    from ..runner import Study

    lists_jobs = list_jobs or log_of is not None or cancel is not None or resume
    _refuse_other_options("background jobs" if lists_jobs else "runs")
    study = Study.open(folders[0])
    if lists_jobs:
        _jobs(study, log_of, cancel, output_format, resume=resume)
        return
    if (run_id is None) != (label is None and note is None and not tags):
        raise UsageError("--run ID and one of --label, --tag and --note must be given together.")
    deleted = dict.fromkeys(study.run_info(each).id for each in to_delete)
    if run_id is not None:
        study.annotate(study.run_info(run_id).id, label=label, note=note, tags=tags or None)
    for found in deleted:
        study.delete_run(found)
        if output_format == "table":
            console.print_text(f"Deleted run {found}.")
    _print_runs(study, find, output_format)


def _refuse_other_options(listed: str) -> None:
    """Raise `UsageError` for an option that the list of *listed* would ignore."""
    ctx = click.get_current_context()
    used = {*_OPTIONS[listed], "folders", "output_format"}
    for option in ctx.command.params:
        name = str(option.name)
        if name in used or ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        text = option.opts[0]
        if not ctx.params["folders"]:
            raise UsageError(f"{text} needs a STUDY or a FOLDER. Next: chakrascope runs STUDY {text} ...")
        lists = " and ".join(lists for lists, names in _OPTIONS.items() if name in names)
        step = f"chakrascope runs FOLDER/NAME {text} ..." if listed == "studies" else "leave it out."
        raise UsageError(f"{text} applies to {lists}, but this call lists {listed}. Next: {step}")


def _is_study(folders: tuple[Path, ...]) -> bool:
    """Return whether *folders* is a single one that is a study, is missing, or contains no studies."""
    from ..runner import Study

    if len(folders) > 1:
        return False
    # `Path.is_dir` raises an error for a name that no file can have.
    return not os.path.isdir(folders[0]) or Study.is_study(folders[0]) or not Study.folders_in(folders[0])


def _print_runs(study: Study, find: str, output_format: str) -> None:
    from ..runner import REPLAY
    from ..runner.study import run_rows, run_table

    if output_format == "csv":
        print_frame(run_table(study.runs(), find), "csv")
        return
    rows = run_rows(study.runs(), find)
    if output_format == "json":
        print_json(rows)
        return
    print_rows(_runs_shown(rows), title="Runs")
    default = study.default_run()
    if default is not None and default.backend == REPLAY:
        console.print_text(
            f"Without --run, commands use run {default.id[:8]}, the replay of the capture.", "dim"
        )


def _runs_shown(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the columns of the table of runs that fit on a terminal.

    Default labels are left out: they repeat the backend and the network.
    """
    for row in rows:
        if row["label"] in (f"{row['backend']} on {row['network']}", f"measured ({row['backend']})"):
            row["label"] = ""
    texts = [name for name in ("label", "tags", "note") if any(row[name] for row in rows)]
    steps = ["steps"] if any(row["steps"] > 1 for row in rows) else []
    names = ["id", "backend", "network", "ranks", "makespan_ns", *steps, *texts]
    return [{name: row[name] for name in names} for row in rows]


def _jobs(study: Study, log_of: int | None, cancel: int | None, output_format: str, *, resume: bool) -> None:
    """Print a job's log, or the jobs of *study* after cancelling or resuming some."""
    import pandas as pd

    from ..runner import JobStore

    store = JobStore(study)
    if log_of is not None:
        console.print(store.log(log_of), markup=False, end="", soft_wrap=True)
        return
    if cancel is not None:
        store.cancel(cancel)
    if resume:
        store.resume()
    rows = [
        {
            "job": job.id,
            "kind": job.kind,
            "state": job.state,
            "backend": job.backend,
            "network": job.network,
            "progress": f"{job.done} of {job.total}" if job.is_active else "",
            "simulated_ns": job.simulated_ns,
            "message": job.message,
            "run": job.experiment if job.kind == "simulation" and job.state == "done" else "",
        }
        for job in store.jobs()
    ]
    print_frame(pd.DataFrame(rows, columns=_JOB_COLUMNS), output_format, title="Jobs")


def _print_cached(output_format: str) -> None:
    """Print the cached studies of converted traces, most recently used first."""
    import pandas as pd

    from ..runner import cached_traces

    rows = [{"study": str(study), "size_bytes": size} for study, size in cached_traces()]
    title = "Cached studies of converted traces"
    print_frame(pd.DataFrame(rows, columns=["study", "size_bytes"]), output_format, title=title)


def _studies(
    folders: tuple[Path, ...],
    find: str,
    *,
    begun: str | None,
    name: str | None,
    tags: tuple[str, ...],
    note: str | None,
    output_format: str,
) -> None:
    """Print the studies in *folders*, after creating a study or changing the tags and note of a study."""
    from ..runner import Workspace, describe_study

    workspace = Workspace(*folders)
    if (name is None) != (note is None and not tags):
        raise UsageError("--study NAME and one of --tag and --note must be given together.")
    if name is not None and name != begun:
        workspace.study(name)  # a missing study must be an error before another one is created
    if begun is not None:
        workspace.create(begun)
    if name is not None:
        describe_study(workspace.study(name), note=note, tags=[tag for tag in tags if tag] if tags else None)
    _print_studies(workspace, find, output_format)


def _print_studies(workspace: Workspace, find: str, output_format: str) -> None:
    table = workspace.table(find)
    if output_format == "table" and table.empty:
        console.print_text(
            "The folder has no matching study. Next: create one with `chakrascope profile -o FOLDER/NAME "
            "...`."
        )
        return
    print_frame(_studies_shown(table) if output_format == "table" else table, output_format, title="Studies")


def _studies_shown(table: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the table of studies that fit on a terminal.

    For a study that cannot be read, the note is the reason.
    """
    damaged = table["problem"] != ""
    described = table.assign(note=table["note"].where(~damaged, "cannot be read: " + table["problem"]))
    described["shortest"] = ["" if ns < 0 else duration_text(ns) for ns in table["shortest_ns"]]
    texts = [column for column in ("tags", "note") if (described[column] != "").any()]
    frame: pd.DataFrame = described[["name", "ranks", "workloads", "runs", "shortest", "changed", *texts]]
    return frame
