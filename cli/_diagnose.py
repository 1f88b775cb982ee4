"""``chakrascope diagnose``: which rank, stage, NIC, link or host is slow, by how much, and what it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..support import duration_text, share_text
from ._logs import LOG_VIEWS, are_logs, print_logs
from ._output import console, format_option, print_frame, print_json, print_next, print_rows
from ._straggler_tables import TABLE_VIEWS, print_stragglers
from ._studies import open_run, run_option

if TYPE_CHECKING:
    from ..runner.analysis import Anomaly, Diagnosis, SlowestRank

__all__ = ["diagnose_command"]


@click.command("diagnose")
@click.argument("targets", metavar="STUDY|LOGS|TABLE...", nargs=-1, required=True)
@run_option
@click.option(
    "--view",
    type=click.Choice([*LOG_VIEWS, *TABLE_VIEWS]),
    help=f"Print one view only: for logs {', '.join(LOG_VIEWS)}; for tables {', '.join(TABLE_VIEWS)}.",
)
@format_option
def diagnose_command(
    targets: tuple[str, ...], run_id: str | None, view: str | None, output_format: str
) -> None:
    """Name the rank, NIC, link or host that slows a run of STUDY, and what it costs the step.

    Messages and computations are compared with those of their peers; costs come from simulating the run with
    and without each anomaly. LOGS are production logs, such as dumps of PyTorch's flight recorder (files,
    folders or archives): which rank hangs or comes last, by how much, and how fast the collectives were.
    TABLE is a Parquet or CSV table with the timed operations of many steps, or STUDY, if its newest capture
    is of `trace --steps 0`: how much slower they are than without stragglers, because of which
    worker, stage or type, since when, and why.
    """
    from ..runner import Study
    from ..runner.analysis import operations_of, slowest_rank

    first = Path(targets[0])
    if (run_id is None or first.is_file()) and (table := operations_of(first)) is not None:
        wrong = view in LOG_VIEWS or len(targets) > 1 or run_id is not None
        _refuse(wrong, targets[0], "a table", "one TABLE without --run", TABLE_VIEWS)
        print_stragglers(table, view, output_format)
        return
    if not Study.is_study(targets[0]) and are_logs(targets):
        wrong = view in TABLE_VIEWS or run_id is not None
        _refuse(wrong, targets[0], "logs", "LOGS without --run", LOG_VIEWS)
        print_logs(targets, view, output_format)
        return
    if view is not None or len(targets) > 1:
        raise UsageError(f"{targets[0]} holds no logs. Next: name one STUDY, without --view.")
    study_folder = Path(targets[0])
    run = open_run(study_folder, run_id, output_format)
    diagnosis, slowest = run.diagnosis, slowest_rank(run.result)
    if output_format == "json":
        print_json(_as_json(diagnosis) | {"slowest_rank": slowest and slowest.to_json()})
    elif output_format == "csv":
        print_frame(diagnosis.table, "csv")
    else:
        _print(diagnosis, slowest)
        command, *options = _next(diagnosis)
        print_next(command, study_folder, "--run", run.info.id, *options)


def _refuse(wrong: bool, target: str, kind: str, next_targets: str, views: tuple[str, ...]) -> None:
    if wrong:
        raise UsageError(
            f"{target} is {kind}. Next: name {next_targets}, with --view {', '.join(views)} or none."
        )


def _print(diagnosis: Diagnosis, slowest: SlowestRank | None) -> None:
    if diagnosis.anomalies:
        print_rows([_row(one) for one in diagnosis.anomalies], title="Anomalies, those that cost most first")
        for place, one in enumerate(diagnosis.anomalies, 1):
            _say(f"{place}. {one.sentence}")
    elif diagnosis.checked:
        _say("No NIC, link or host is slower than its peers.")
    if slowest is not None:
        _say(slowest.sentence)
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
    """Return the command that shows the first anomaly in detail, and its options."""
    first = diagnosis.anomalies[0] if diagnosis.anomalies else None
    if first is None:
        return ("summary",)
    if first.what == "stall":
        return "timeline", "--from", f"{first.begin_ns}ns", "--to", f"{first.end_ns}ns"
    return ("timeline",) if first.what.endswith("host") else ("summary", "--view", "flows")


def _say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
