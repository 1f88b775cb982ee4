"""``chakrascope diagnose``: which NIC, link or host is slow, by how much, and what that costs the step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..support import duration_text, share_text
from ._output import console, format_option, print_frame, print_json, print_next, print_rows
from ._studies import of_a_run, open_run

if TYPE_CHECKING:
    from ..runner.analysis import Anomaly, Diagnosis

__all__ = ["diagnose_command"]


@click.command("diagnose")
@of_a_run
@format_option
def diagnose_command(study_folder: Path, run_id: str | None, output_format: str) -> None:
    """Name the NIC, link or host that is slow in a run of STUDY, and when links stood still.

    From the run's own messages and computations, each held against its peers. What it costs the step comes
    from replaying the run with and without it.
    """
    run = open_run(study_folder, run_id)
    diagnosis = run.diagnosis
    if output_format == "json":
        print_json(_as_json(diagnosis))
    elif output_format == "csv":
        print_frame(diagnosis.table, "csv")
    else:
        _print(diagnosis)
        command, *options = _next(diagnosis)
        print_next(command, study_folder, "--run", run.info.id, *options)


def _print(diagnosis: Diagnosis) -> None:
    if diagnosis.anomalies:
        print_rows([_row(one) for one in diagnosis.anomalies], title="Anomalies, those that cost most first")
        for place, one in enumerate(diagnosis.anomalies, 1):
            _say(f"{place}. {one.sentence}")
    elif diagnosis.checked:
        _say("Nothing is slower than its peers.")
    if diagnosis.checked:
        _say(f"Looked at: {'; '.join(diagnosis.checked)}.")
    for remark in diagnosis.remarks:
        console.print(f"Note: {remark}", style="yellow", markup=False, soft_wrap=True)


def _row(one: Anomaly) -> dict[str, Any]:
    cost = one.cost
    return {
        "what": one.what,
        "where": one.where,
        "how much": one.amount,
        "sure": share_text(one.confidence),
        "costs": duration_text(cost.ns),
        "from": duration_text(cost.low_ns),
        "to": duration_text(cost.high_ns),
    }


def _as_json(diagnosis: Diagnosis) -> dict[str, Any]:
    anomalies = []
    for one, row in zip(diagnosis.anomalies, diagnosis.table.to_dict("records"), strict=True):
        rows = json.loads(one.evidence.to_json(orient="records"))
        lists = {"hosts": list(one.hosts), "or_else": list(one.or_else), "evidence": rows}
        anomalies.append(row | lists)
    return {
        "anomalies": anomalies,
        "looked_at": list(diagnosis.checked),
        "remarks": list(diagnosis.remarks),
    }


def _next(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the command that shows the first anomaly from nearby, and its options."""
    first = diagnosis.anomalies[0] if diagnosis.anomalies else None
    if first is None:
        return ("summary",)
    if first.what == "stall":
        return "timeline", "--from", f"{first.begin_ns}ns", "--to", f"{first.end_ns}ns"
    return ("timeline",) if first.what.endswith("host") else ("links", "--view", "flows")


def _say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
