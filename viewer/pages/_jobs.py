"""The list of a study's jobs, for several pages: progress, logs, and cancelling."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import dash_mantine_components as dmc
from dash import Dash, Input, Output, State, dcc, html, no_update, set_props

from ...errors import ChakrascopeError
from ...runner import Job, JobStore
from ...support import duration_text
from .._state import Selection, StudyView
from .._theme import run_options
from ..queries import form_of_workload
from ._parts import card, empty, error_alert, link_to

_POLL_MS = 700
_COLOURS = {"queued": "gray", "running": "blue", "done": "green", "failed": "red", "cancelled": "yellow"}
_MAX_SHOWN = 30
_UNSPOKEN = {"aria-live": "off"}
_NEARLY = 0.98  # a progress bar shows at most this fraction while the remaining time is unknown
_WHOLE = {
    "simulation": "ranks finished",
    "sweep": "points done",
    "check": "ranks done",
    "import": "ranks done",
}


def jobs_card() -> dmc.Paper:
    """Return the card with the list of jobs, at most one on a page; it updates itself.

    The style sheet hides the card while the list is empty.
    """
    return card(
        "Jobs",
        dcc.Store(id="jobs-seen"),
        dcc.Store(id="job-asked"),  # the data is set by 05_pages.js
        dcc.Interval(id="jobs-clock", interval=_POLL_MS),
        html.Div(id="job-list", **{"aria-live": "polite"}),
        dmc.Modal(
            dmc.Code(id="job-log", block=True), id="job-log-shown", title="Log", opened=False, size="xl"
        ),
        id="jobs",
    )


def register(app: Dash, view: StudyView) -> None:
    """Register the callbacks that update the list of jobs, cancel jobs and show logs."""
    jobs = JobStore(view.study)

    @app.callback(
        Output("job-list", "children"), Output("run-select", "data"), Output("jobs-seen", "data"),
        Input("jobs-clock", "n_intervals"), State("jobs-seen", "data"),
    )  # fmt: skip
    def look(_ticks: int | None, seen: Any) -> tuple[Any, Any, Any]:
        """Show the progress of every job."""
        try:
            jobs.resume()
            listed = jobs.jobs()[::-1]
        except ChakrascopeError as error:
            # Errors are shown in the list itself, because every poll would add another notification.
            return error_alert(error.message), no_update, no_update
        state = [[job.id, job.state] for job in listed]
        moved = {str(job.id): [job.done, job.simulated_ns] for job in listed if job.is_active}
        clocks = {str(job.id): _lasted(job) for job in listed[:_MAX_SHOWN] if job.state == "running"}
        now = {"state": state, "moved": moved, "clocks": clocks}
        if now == seen:
            return no_update, no_update, no_update
        runs = view.runs()
        lengths = {info.workload: info.makespan_ns for info in runs}  # of the latest run of each workload
        if isinstance(seen, dict) and state == seen.get("state"):
            for number, lasted in clocks.items():
                set_props({"job": int(number), "part": "lasted"}, {"children": lasted})
            # Only changed jobs are redrawn, so that buttons keep the keyboard focus.
            for job in listed[:_MAX_SHOWN]:
                if job.is_active and moved[str(job.id)] != seen["moved"].get(str(job.id)):
                    _show_progress(job, lengths.get(job.workload, 0))
            return no_update, no_update, now
        return job_list(listed, {info.id for info in runs}, lengths), run_options(runs), now

    @app.callback(
        Output("job-log", "children"), Output("job-log-shown", "opened"), Output("job-log-shown", "title"),
        Input("job-asked", "data"), prevent_initial_call=True,
    )  # fmt: skip
    def answer(asked: Any) -> tuple[Any, Any, Any]:
        """Cancel a job, or show the end of its log in a dialogue."""
        if not asked or not str(asked.get("job")).isdecimal():
            return no_update, no_update, no_update
        number = int(asked["job"])
        if asked.get("action") == "cancel":
            # Dash joins calls of `look` that wait at the same time, which would lose clicks there.
            jobs.cancel(number)
            return no_update, no_update, no_update
        return jobs.log(number) or "The log is empty.", True, f"Log of job {number}"


def _show_progress(job: Job, length_ns: int) -> None:
    share, text = _progress(job, length_ns)
    set_props({"job": job.id, "part": "bar"}, {"value": 100 * share})
    set_props({"job": job.id, "part": "told"}, {"children": text})


def job_list(jobs: Sequence[Job], known_runs: set[str], lengths: Mapping[str, int] | None = None) -> Any:
    """Return a panel per job, the newest first; None without jobs.

    *known_runs* are the ids of existing runs. *lengths* maps workloads to approximate step times in
    ns.
    """
    if not jobs:
        return None
    more = len(jobs) - _MAX_SHOWN
    older = [empty(f"{more:,} older ones: chakrascope runs STUDY --jobs")] if more > 0 else []
    known = lengths or {}
    panels = [_job(job, known_runs, known.get(job.workload, 0)) for job in jobs[:_MAX_SHOWN]]
    return dmc.Stack([*panels, *older], gap="xs")


def _job(job: Job, known_runs: set[str], length_ns: int) -> dmc.Paper:
    started = datetime.fromtimestamp(job.created, timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC")
    head: list[Any] = [
        dmc.Badge(job.state, color=_COLOURS.get(job.state, "gray"), variant="light"),
        dmc.Text(_name(job), fw=600, size="sm", className="finding"),
        dmc.Text(started, size="xs", c="dimmed"),
        # Screen readers should not announce the time each second.
        dmc.Text(_lasted(job), size="xs", c="dimmed", id={"job": job.id, "part": "lasted"}, **_UNSPOKEN),
        _button("Log", "log", job),
    ]
    if job.is_active:
        head.append(_button("Cancel", "cancel", job))
    if job.state == "done":
        head += _result(job, known_runs)
    parts: list[Any] = [dmc.Group(head, gap="sm")]
    if job.is_active:
        share, text = _progress(job, length_ns)
        named = {"aria-label": f"Progress of job {job.id}"}
        parts += [dmc.Progress(value=100 * share, size="sm", mt=6, animated=job.state == "running",
                               id={"job": job.id, "part": "bar"}, **named),
                  dmc.Text(text, size="xs", c="dimmed", id={"job": job.id, "part": "told"})]  # fmt: skip
    if job.message:
        parts.append(dmc.Text(job.message, size="sm", mt=4, className="finding"))
    return dmc.Paper(parts, withBorder=True, p="xs", radius="sm", className="job")


def _name(job: Job) -> str:
    if job.kind == "simulation":
        return job.label or f"{job.backend} on {job.network}"
    if job.kind == "sweep":
        return f"Sweep {job.label}".rstrip()
    return f"{'Import of' if job.kind == 'import' else 'Check of'} {job.label}"


def _lasted(job: Job) -> str:
    if not job.started:
        return ""
    lasted = (job.ended or time.time()) - job.started
    # Times are in whole seconds while the job runs, so that digits stay readable.
    return duration_text(1e9 * lasted) if job.ended else f"{int(lasted):,} s so far"


def _button(text: str, action: str, job: Job) -> dmc.Button:
    style = {"size": "compact-xs", "variant": "default", "aria-label": f"{text} of job {job.id}"}
    return dmc.Button(text, **style, **{"data-job-action": action, "data-job": str(job.id)})


def _result(job: Job, known_runs: set[str]) -> list[Any]:
    """Return a link to a finished job's result; empty if that is gone."""
    if job.kind == "simulation" and job.experiment in known_runs:
        return [link_to("Open the result", "/", Selection(job.experiment).search)]
    if job.kind == "import":
        # The message has the workload's real name, which differs from the requested one if that was taken.
        made = job.message.partition("'")[2].rpartition("'")[0] or job.workload
        search = Selection().with_option("setup", form_of_workload(made)).search
        return [link_to("Simulate it", "/new-run", search)]
    return []


def _progress(job: Job, length_ns: int) -> tuple[float, str]:
    """Return the finished fraction of *job*, from 0 to 1, and the progress as text.

    All ranks of a simulation finish near its end, so its progress is the simulated time over
    *length_ns*, the step time of an earlier run (0: unknown).
    """
    if job.state == "queued":
        return 0.0, "Waiting for other jobs: a study runs one job at a time."
    if not job.total:
        return 0.0, "Starting."
    share, whole = job.done / job.total, f"{job.done:,} of {job.total:,} {_WHOLE.get(job.kind, 'done')}"
    if job.kind != "simulation":
        return share, whole
    text = f"{duration_text(job.simulated_ns)} simulated so far"
    if length_ns:
        share = max(share, min(_NEARLY, job.simulated_ns / length_ns))
        text += f" (the workload's newest run takes {duration_text(length_ns)})"
    return share, f"{text}, {whole}"
