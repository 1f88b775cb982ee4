"""How the page New run shows the jobs it started."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any

import dash_mantine_components as dmc
from dash import dcc

from ...runner import Job
from ..state import Selection
from ..theme import duration_text
from .parts import empty, page_address

__all__ = ["job_list"]

_COLOURS = {"queued": "gray", "running": "blue", "done": "green", "failed": "red", "cancelled": "yellow"}
_MOST_SHOWN = 30


def job_list(jobs: Sequence[Job], known_runs: set[str]) -> Any:
    """Return one panel a job, the newest first; *known_runs* are the ids of the runs that still exist."""
    if not jobs:
        return empty(
            "None yet. A job goes on when this page is closed, and is listed here when it comes back."
        )
    return dmc.Stack([_job(job, known_runs) for job in jobs[:_MOST_SHOWN]], gap="xs")


def _job(job: Job, known_runs: set[str]) -> dmc.Paper:
    started = datetime.fromtimestamp(job.created, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    head: list[Any] = [
        dmc.Badge(job.state, color=_COLOURS.get(job.state, "gray"), variant="light"),
        dmc.Text(job.label or f"{job.backend} on {job.network}", fw=600, size="sm"),
        dmc.Text(started, size="xs", c="dimmed"),
    ]
    if job.is_active:
        head.append(dmc.Button("Cancel", id={"form": "cancel", "job": job.id}, size="compact-xs",
                               variant="default"))  # fmt: skip
    if job.state == "done" and job.experiment in known_runs:
        address = page_address("/", Selection(job.experiment).search)
        head.append(dcc.Link("Open the result", href=address, className="text-link"))
    parts: list[Any] = [dmc.Group(head, gap="sm")]
    if job.is_active:
        done = 100 * job.done / max(1, job.total)
        parts += [dmc.Progress(value=done, size="sm", mt=6, animated=job.state == "running"),
                  dmc.Text(_progress(job), size="xs", c="dimmed")]  # fmt: skip
    if job.message:
        parts.append(dmc.Text(job.message, size="sm", mt=4, className="finding"))
    return dmc.Paper(parts, withBorder=True, p="xs", radius="sm", className="job")


def _progress(job: Job) -> str:
    if job.state == "queued":
        return "Waits for its turn: one simulation of a study works at a time."
    done = f"{job.done:,} of {job.total:,} ranks finished"
    return f"{done}, {duration_text(job.simulated_ns)} simulated so far"
