"""Print the findings of ``chakrascope diagnose`` in production logs."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ._doctor import print_findings
from ._output import console, print_frame, print_json, print_next

if TYPE_CHECKING:
    import pandas as pd

    from ..converter import Finding
    from ..converter.linking import MatchedLogs

LOG_VIEWS = ("stragglers", "collectives", "speeds")
_TITLES = {
    "stragglers": "Ranks that arrive last",
    "collectives": "Collectives",
    "speeds": "Speed by size, for calibration",
}
_NARROW = {
    "stragglers": ["worst_behind_ns"],
    "collectives": ["first_rank", "shortest_ns", "longest_ns"],
    "speeds": ["fastest_ns", "slowest_ns"],
}
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
    "known_from": "from",
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
        tables = {
            name: json.loads(table(matched).to_json(orient="records", double_precision=15))
            for name, table in _views().items()
        }
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
            "known_from": clocks.known_from,
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
            console.print(text, markup=False, soft_wrap=True)
    for name, table in _views().items():
        if show not in (None, name):
            continue
        rows = table(matched).drop(columns=_NARROW[name]).rename(columns=_PLAIN)
        if "last" in rows:
            rows["last"] = ["-" if rank < 0 else str(rank) for rank in rows["last"]]
        print_frame(rows, "table", title=_TITLES[name], limit=20 if show is None else 1000)
        if not rows.empty and name != "stragglers":
            console.print(f"[dim]{_FROM if name == 'collectives' else _SPEED}.[/]")
    for note in matched.logs.notes:
        console.print(f"Note: {note}.", style="dim", markup=False, soft_wrap=True)
