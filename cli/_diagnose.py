"""``chakrascope diagnose``: name the slow rank, stage, NIC, link or host, and its cost in step time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import UsageError
from ..support import count_text, duration_text, share_text
from ._doctor import print_findings
from ._options import Choice
from ._output import (
    console,
    format_option,
    print_clocks,
    print_frame,
    print_json,
    print_next,
    print_rows,
    records,
)
from ._studies import are_logs, open_run, run_option

if TYPE_CHECKING:
    import pandas as pd

    from ..converter import Finding
    from ..converter.linking import MatchedLogs
    from ..converter.readers import OperationTable
    from ..runner.analysis import Anomaly, Diagnosis, RunAnalysis

LOG_VIEWS = ("stragglers", "collectives", "speeds")
TABLE_VIEWS = ("causes", "types", "workers", "steps", "heat-map")
_TITLES = {
    "causes": "Causes, most costly first",
    "types": "Slowdown by type of operation",
    "workers": "Slowdown by worker",
    "steps": "Steps",
    "heat-map": "Slowdown by worker and step",
    "stragglers": "Ranks that arrive last",
    "collectives": "Collectives",
    "speeds": "Speed by size, for calibration",
}
_NARROW = {
    "causes": ["rank", "replica", "stage", "evidence"],
    "workers": ["replica_slowdown", "stage_slowdown"],
    "stragglers": ["worst_behind_ns"],
    "collectives": ["first_rank", "shortest_ns", "longest_ns"],
    "speeds": ["fastest_ns", "slowest_ns"],
}
_STEP_COLUMNS = ["step", "recorded_ns", "replayed_ns", "slowdown", "slowest_rank", "rank_slowdown"]
_MAX_ROWS = 16
_MAX_CELLS = 56
_LEVELS = {1.03: ".", 1.1: "-", 1.25: "+", 1.5: "*"}  # maximum slowdown -> character in the heat map
_HIGHEST = "#"


@click.command("diagnose")
@click.argument("targets", metavar="STUDY|TRACE|LOGS|TABLE...", nargs=-1, required=True)
@run_option
@click.option(
    "--view",
    type=Choice([*LOG_VIEWS, *TABLE_VIEWS]),
    help=(
        f"View to print. For logs: {', '.join(LOG_VIEWS)}; for tables of operations: "
        f"{', '.join(TABLE_VIEWS)}."
    ),
)
@format_option
def diagnose_command(
    targets: tuple[str, ...], run_id: str | None, view: str | None, output_format: str
) -> None:
    """Name the rank, NIC, link or host that slows a run of STUDY, and its cost in step time.

    Messages and computations are compared with similar ones on other links and ranks. The cost of an anomaly
    is found by simulating the run with and without it. TRACEs (Kineto) are replayed as measured. For LOGS
    (production logs, such as dumps of PyTorch's flight recorder), `diagnose` prints hanging ranks, late
    ranks, and the speed of collectives. For TABLE (a Parquet or CSV table of the operations of many steps),
    and for a STUDY that `trace --steps 0` captured, `diagnose` prints how much stragglers slow the job down,
    from which step, on which worker or stage, and why.
    """
    from ..runner import Study
    from ..runner.analysis import contention, operations_of

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
    if view is not None:
        raise UsageError(
            f"{targets[0]} holds no logs. Next: leave out --view; `chakrascope summary --view collectives` "
            "prints the collectives of a study."
        )
    run = open_run([Path(target) for target in targets], run_id, output_format)
    diagnosis, slowest = run.diagnosis, run.slowest_rank
    answer = _no_slow_rank(run) if slowest is None else slowest.sentence
    if output_format == "json":
        more = {"answer": answer, "slowest_rank": slowest and slowest.to_json(), "clocks": run.clocks}
        print_json(_as_json(diagnosis) | more)
    elif output_format == "csv":
        print_frame(diagnosis.table, "csv")
    else:
        _print(diagnosis, answer, contention(run.workload, run.result.makespan_ns))
        print_clocks(run.clocks, run.measured, run.info.num_ranks)
        command, *options = _next(diagnosis)
        study = Path(targets[0]) if len(targets) == 1 else run.study.path
        print_next(command, study, "--run", run.info.id, *options)


def _refuse(wrong: bool, target: str, kind: str, next_targets: str, views: tuple[str, ...]) -> None:
    if wrong:
        raise UsageError(
            f"{target} is {kind}. Next: name {next_targets}, with --view {', '.join(views)} or none."
        )


def _no_slow_rank(run: RunAnalysis) -> str:
    """Explain why a run has no slowest rank: it has one rank, or all repeat one measured rank."""
    if run.info.num_ranks == 1:
        return f"The run has one rank, so there is no other rank to compare it with. {run.summary.headline}"
    ranks = count_text(run.info.num_ranks, "rank")
    return f"No rank is slow: all {ranks} repeat one measured rank, so no rank waits for another."


def _print(diagnosis: Diagnosis, answer: str, busy: str) -> None:
    if diagnosis.anomalies:
        print_rows([_row(one) for one in diagnosis.anomalies], title="Anomalies, most costly first")
        for place, one in enumerate(diagnosis.anomalies, 1):
            _print_text(f"{place}. {one.sentence}")
    _print_text(answer)
    if diagnosis.checked:
        none = "No slow host, NIC or link stands out from the noise in "
        _print_text(f"{'Checked: ' if diagnosis.anomalies else none}{'; '.join(diagnosis.checked)}.")
    for remark in filter(None, [busy, *diagnosis.remarks]):
        console.print_text(f"Note: {remark}", "yellow")


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
        lists = {"hosts": one.hosts, "or_else": one.or_else, "evidence": records(one.evidence)}
        anomalies.append(row | lists)
    return {
        "anomalies": anomalies,
        "looked_at": list(diagnosis.checked),
        "remarks": list(diagnosis.remarks),
    }


def _next(diagnosis: Diagnosis) -> tuple[str, ...]:
    """Return the command and options that show the first anomaly in detail."""
    first = diagnosis.anomalies[0] if diagnosis.anomalies else None
    if first is None:
        return ("summary",)
    if first.what == "stall":
        return "timeline", "--from", f"{first.begin_ns}ns", "--to", f"{first.end_ns}ns"
    return ("timeline",) if first.what.endswith("host") else ("summary", "--view", "flows")


def _print_text(text: str) -> None:
    console.print_text(text)


def print_stragglers(table: OperationTable, show: str | None, output_format: str) -> None:
    """Print the stragglers in *table*: a summary, or the view *show*."""
    from ..runner.analysis import STRAGGLER_TABLES, find_stragglers

    if output_format == "csv" and show is None:
        raise UsageError(f"CSV holds one table. Add --view {', '.join(TABLE_VIEWS)}.")
    found = find_stragglers(table)
    if show is not None and output_format != "table":
        print_frame(STRAGGLER_TABLES[show](found), output_format)
    elif output_format == "json":
        tables = {name: of(found).to_dict("records") for name, of in STRAGGLER_TABLES.items()}
        for row, cause in zip(tables["causes"], found.causes, strict=True):
            row["steps"] = list(cause.steps)
        print_json({"kind": "operations", **found.to_json(), **tables})
    else:
        if show is None:
            for sentence in found.sentences:
                _print_text(sentence)
        for name, of in STRAGGLER_TABLES.items():
            if show == name or (show is None and name in ("types", "workers", "heat-map")):
                _print_table(name, of(found), show)
        for remark in found.remarks:
            console.print_text(f"Note: {remark}.", "yellow")
        if show is None:
            print_next("diagnose", table.path, "--view", "steps")


def _print_table(name: str, rows: pd.DataFrame, show: str | None) -> None:
    if name == "heat-map":
        _print_heat_map(rows)
        return
    rows = rows[_STEP_COLUMNS] if name == "steps" else rows.drop(columns=_NARROW.get(name, []))
    print_frame(rows.round(3), "table", title=_TITLES[name], limit=_MAX_ROWS if show is None else 1000)


def _print_heat_map(rows: pd.DataFrame) -> None:
    """Print a heat map of the slowest workers, a character per step.

    A character for several steps shows the largest of their slowdowns.
    """
    values = rows.drop(columns="rank").to_numpy()
    steps = [name.removeprefix("step ") for name in rows.columns[1:]]
    worst = sorted(values.mean(axis=1).argsort(kind="stable")[::-1][:_MAX_ROWS])
    cells = min(_MAX_CELLS, len(steps))
    bounds = [len(steps) * cell // cells for cell in range(cells + 1)]
    _print_text(f"{_TITLES['heat-map']}, steps {steps[0]} to {steps[-1]}")
    for row in worst:
        signs = [_sign(values[row, low:high].max()) for low, high in pairwise(bounds)]
        _print_text(f"{'rank ' + str(rows['rank'][row]):>10} {''.join(signs)}")
    levels = ", ".join(f"{sign} up to {level:g}" for level, sign in _LEVELS.items())
    _print_text(f"{levels}, {_HIGHEST} more; {len(worst)} of {len(rows)} workers; {len(steps)} steps.")


def _sign(value: float) -> str:
    return next((sign for level, sign in _LEVELS.items() if value <= level), _HIGHEST)


_FROM = (
    "last: the rank that arrived last (-: no rank). from: how this rank was found. duration: the operation "
    "took the least time on this rank, which needs no synchronised clocks. begin or enqueue: this rank began "
    "or issued the operation last, by clocks corrected as far as the logs allow. --view collectives --format "
    "csv prints all columns"
)
_SPEED = (
    "transfer: the median duration on the rank that arrived last, which did not wait; longest: the duration "
    "on the rank that waited longest. GB/s: bytes of the operation over the transfer time; bus GB/s: GB/s "
    "times 2(n-1)/n for an all-reduce and (n-1)/n for other collectives of n ranks"
)

_MAX_NAMED = 8  # maximum number of targets in the suggested next command
_PLAIN = {
    "algorithm_bytes_per_ns": "GB/s",
    "bus_bytes_per_ns": "bus GB/s",
    "last_rank": "last",
    "source": "from",
    "median_behind_ns": "median_ns",
    "total_behind_ns": "total_ns",
    "collectives": "of",
}


def _views() -> dict[str, Callable[[MatchedLogs], pd.DataFrame]]:
    """Return the function for each table in `LOG_VIEWS`."""
    from ..runner.analysis import logged_speeds, logged_stragglers, logged_table

    return dict(zip(LOG_VIEWS, (logged_stragglers, logged_table, logged_speeds), strict=True))


def print_logs(targets: Sequence[str], show: str | None, output_format: str) -> None:
    """Print everything about the production logs *targets*, or only the table *show*."""
    from ..converter import match_logs, read_logs
    from ..converter.checks import check_matched

    matched = match_logs(read_logs(targets))
    findings = check_matched(matched)
    if output_format == "csv" and show is None:
        raise UsageError(f"CSV holds one table. Add --view {', '.join(LOG_VIEWS)}.")
    if show is not None and output_format != "table":
        print_frame(_views()[show](matched), output_format)
    elif output_format == "json":
        tables = {name: records(table(matched)) for name, table in _views().items()}
        print_json({**_facts(matched), "findings": [found.to_dict() for found in findings], **tables})
    else:
        _print_for_people(matched, findings, targets[0], show)
        if all(found.severity != "error" for found in findings):
            few = targets if len(targets) <= _MAX_NAMED else ()
            print_next("convert", *few, then="-o PREFIX" if few else "LOGS... -o PREFIX")


def _facts(matched: MatchedLogs) -> dict[str, Any]:
    """Return facts about the logs as JSON: kind, ranks, groups, messages, notes and clocks."""
    logs, clocks = matched.logs, matched.clocks
    return {
        "kind": logs.kind,
        "ranks": sorted(logs.ranks),
        "world_size": logs.world_size,
        "groups": {logs.label(group): list(members) for group, members in logs.groups.items()},
        "messages": len(matched.messages),
        "notes": list(logs.notes),
        "clocks": {
            "source": clocks.source,
            "ahead_ns": {str(rank): ahead for rank, ahead in clocks.corrected.items()},
            "spread_ns": clocks.spread_ns,
        },
    }


def _print_for_people(
    matched: MatchedLogs, findings: Sequence[Finding], place: str, show: str | None
) -> None:
    from ..runner.analysis import logged_stragglers, straggler_texts

    print_findings(findings, place)
    stragglers = logged_stragglers(matched)
    if show in (None, "stragglers"):
        for text in straggler_texts(stragglers):
            console.print_text(text)
    for name, table in _views().items():
        if show not in (None, name):
            continue
        rows = table(matched).drop(columns=_NARROW[name]).rename(columns=_PLAIN)
        if "last" in rows:
            rows["last"] = ["-" if rank < 0 else str(rank) for rank in rows["last"]]
        print_frame(rows, "table", title=_TITLES[name], limit=20 if show is None else 1000)
        if not rows.empty and name != "stragglers":
            console.print_text(f"{_FROM if name == 'collectives' else _SPEED}.", "dim")
    for note in matched.logs.notes:
        console.print_text(f"Note: {note}.", "dim")
