"""Whether the points of a sweep compare clusters: their work per step, and their compute times."""

from __future__ import annotations

import json

import pandas as pd

from ...support import count_text, share_text
from ..analysis import cpu_times, has_cpu_times
from ..prediction import foreign_text
from ..study import Study
from ._settings import Base, Builder
from ._start import base_workload, read_start

WORK = ("captured_steps", "captured_steps_per_s", "captured_steps_per_s_per_rank")
"""The columns for the work of a step (in steps of the captured job), and for the work per second."""


def with_work(study: Study, workload: str | None, points: pd.DataFrame) -> pd.DataFrame:
    """Return *points* with the columns :data:`WORK`.

    A captured job runs on more ranks by data parallelism, so a step does the work of several captured steps.
    The work is missing without a *workload*, for failed points, and for a part of a job's ranks.
    """
    work = pd.Series(pd.NA, index=points.index, dtype="Float64")
    if workload in study.workloads() and "workload" not in points:
        work = points["ranks"].astype("Float64") / study.workload_ranks(workload)
    work = work.where((work >= 1) & (points["state"] == "done"))
    rate = 1e9 * work / points["makespan_ns"]
    figures = (work, rate, rate / points["ranks"])
    table: pd.DataFrame = points.assign(**dict(zip(WORK, figures, strict=True)))
    return table


def comparison_notes(study: Study, name: str, points: pd.DataFrame) -> list[str]:
    """Return sentences on why the makespans of *points* of the sweep *name* do not rank clusters, if so."""
    if base_workload(study, name) is None:
        return []
    base = read_start(study.sweep_dir(name))
    done = points[points["state"] == "done"]
    if done.empty:
        return []
    return [*_compute_notes(study, base, done), *filter(None, [_work_note(study, base, done)])]


def _work_note(study: Study, base: Base, done: pd.DataFrame) -> str:
    """Return a sentence on makespans of steps with different amounts of work, "" for equal amounts."""
    if "workload" in done and done["workload"].nunique() > 1:
        return (
            "The workloads may do different amounts of work per step, so makespans compare steps, not "
            "throughput."
        )
    sizes = done.dropna(subset=[WORK[0]]).drop_duplicates("ranks").sort_values("ranks")
    if len(sizes) < 2:
        return ""
    works = ", ".join(
        f"{work:g} on {ranks}" for work, ranks in zip(sizes[WORK[0]], sizes["ranks"], strict=True)
    )
    captured = count_text(study.workload_ranks(str(base.workload)), "captured rank")
    return (
        f"A step does the work of several captured steps, as data parallelism repeats the {captured}: "
        f"{works} ranks. Compare captured steps per second, not makespans or costs of a step."
    )


def _compute_notes(study: Study, base: Base, done: pd.DataFrame) -> list[str]:
    """Return sentences on compute times that are not those of the simulated chips."""
    builder = Builder(study, base)
    settings = [json.loads(text) for text in done["settings"]]
    names = {str(one.get("workload", base.workload)) for one in settings}
    if not names <= {*study.workloads()}:  # a workload was deleted after the sweep
        return []
    workloads = {name: study.workload(name) for name in names}
    of_cpus: list[bool] = []
    scaled: list[bool] = []
    notes: list[str] = []
    for one in settings:
        workload = workloads[str(one.get("workload", base.workload))]
        network, system = builder.machine(one)
        scaled.append(bool(system.roofline_enabled))
        of_cpus.append(has_cpu_times(workload) and bool(cpu_times(network.to_dict(), system.to_dict())))
        notes.append("" if scaled[-1] else foreign_text(workload, network))
    return [*filter(None, [_cpu_note(done[of_cpus], all(scaled)), *dict.fromkeys(notes)])]


def _cpu_note(rows: pd.DataFrame, scaled: bool) -> str:
    """Return a sentence on *rows* that simulate a job of CPUs on accelerators, "" for no rows."""
    if rows.empty:
        return ""
    if not scaled:
        cause = "compute and host times are those of a CPU on every cluster; only communication is simulated"
    else:
        host = 1 - (rows["compute_ns"] + rows["comm_ns"] - rows["overlap_ns"]) / rows["makespan_ns"]
        shares = " to ".join(dict.fromkeys(share_text(float(share)) for share in (host.min(), host.max())))
        cause = (
            f"ranks spend {shares} of a makespan in host work measured on a CPU, or waiting for this work, "
            "and compute times are lower bounds from the peaks of each chip"
        )
    return (
        f"These makespans do not rank the clusters, because the job was captured on CPUs: {cause}. Next: "
        "capture the job on one of these chips, or `chakrascope predict`."
    )
