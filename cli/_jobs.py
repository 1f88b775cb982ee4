"""``chakrascope jobs``: the background simulations of a study."""

from __future__ import annotations

from pathlib import Path

import click

from ._output import console, format_option, print_frame

_COLUMNS = ["job", "kind", "state", "backend", "network", "progress", "simulated_ns", "message", "run"]


@click.command("jobs")
@click.argument("study_folder", metavar="STUDY", type=click.Path(path_type=Path))
@click.option("--log", "log_of", type=int, metavar="ID", help="Print the end of this job's log instead.")
@click.option("--cancel", type=int, metavar="ID", help="Cancel this job before listing.")
@click.option("--resume", is_flag=True, help="First restart jobs that still wait after a crash or a reboot.")
@format_option
def jobs_command(
    *, study_folder: Path, log_of: int | None, cancel: int | None, resume: bool, output_format: str
) -> None:
    """List the background jobs of STUDY, started by `chakrascope run --queue` or the viewer."""
    import pandas as pd

    from ..runner import JobStore, Study

    store = JobStore(Study.open(study_folder))
    if log_of is not None:
        console.print(store.log(log_of), markup=False, end="")
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
    print_frame(pd.DataFrame(rows, columns=_COLUMNS), output_format, title="Jobs")
