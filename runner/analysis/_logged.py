"""Find late ranks and their delays in production logs, and compute the bandwidth of collectives.

If all ranks log the duration of a collective, the rank with the shortest duration arrived last, and no clocks
are compared. Otherwise, start or enqueue times determine the last rank, on clocks that are corrected from the
logs if possible.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ...converter import CollectiveType
from ...converter.linking import Clocks, MatchedCollective, MatchedLogs
from ...converter.readers.logs import UNKNOWN
from ...support import duration_text, share_text

ALL_GROUPS = "all groups"
_TABLE = (
    "group", "number", "operation", "size_bytes", "ranks", "first_rank", "last_rank", "skew_ns", "source",
    "shortest_ns", "longest_ns",
)  # fmt: skip
_STRAGGLERS = (
    "group",
    "rank",
    "collectives",
    "last",
    "share",
    "median_behind_ns",
    "worst_behind_ns",
    "total_behind_ns",
)
_SPEEDS = (
    "operation", "ranks", "size_bytes", "count", "transfer_ns", "fastest_ns", "slowest_ns", "longest_ns",
    "algorithm_bytes_per_ns", "bus_bytes_per_ns",
)  # fmt: skip


def logged_table(matched: MatchedLogs) -> pd.DataFrame:
    """Return a row per collective: the first and the last rank to arrive, and the time in between.

    ``source`` is the origin of the arrival times: ``duration``, ``begin`` or ``enqueue``. If the logs contain
    no arrival times, ``source`` is ``""``, the ranks are -1 and ``skew_ns`` is 0. ``shortest_ns`` and
    ``longest_ns`` are the durations on the ranks, -1 if unknown. If several ranks arrive together, the lowest
    rank is named. If all ranks arrive together, no rank is named.
    """
    rows = [_row(matched, found) for found in matched.agreed()]
    table: pd.DataFrame = pd.DataFrame(rows, columns=list(_TABLE))
    return table


def _row(matched: MatchedLogs, found: MatchedCollective) -> tuple[Any, ...]:
    source, behind = _delays(found, matched.clocks)
    first, last, skew = -1, -1, 0
    if behind:
        skew = max(behind.values())
        if skew:  # ties go to the lowest rank
            first, last = (min(rank for rank in behind if behind[rank] == late) for late in (0, skew))
    took = [op.duration_ns for op in found.ops.values() if op.duration_ns != UNKNOWN]
    op = found.first
    return (
        matched.logs.label(found.group), found.sequence, op.name, op.size_bytes, len(found.ops), first, last,
        skew, source, min(took, default=-1), max(took, default=-1),
    )  # fmt: skip


def _delays(found: MatchedCollective, clocks: Clocks) -> tuple[str, dict[int, int]]:
    """Return the source of arrival times, and each rank's delay (ns) after the first ({}: unknown)."""
    ops = found.ops
    if len(ops) < 2:
        return "", {}
    if not found.first.rooted and all(op.duration_ns != UNKNOWN for op in ops.values()):
        longest = max(op.duration_ns for op in ops.values())
        return "duration", {rank: longest - op.duration_ns for rank, op in ops.items()}
    if clocks.source == "nothing":
        return "", {}
    for source, name in (("begin", "started_ns"), ("enqueue", "created_ns")):
        times = {rank: int(getattr(op, name)) for rank, op in ops.items()}
        if UNKNOWN not in times.values():
            arrived = {rank: time - clocks.ahead_ns[rank] for rank, time in times.items()}
            first = min(arrived.values())
            return source, {rank: time - first for rank, time in arrived.items()}
    return "", {}


def logged_stragglers(matched: MatchedLogs) -> pd.DataFrame:
    """Count how often each rank arrives last, by group and for all groups together.

    ``share`` is the fraction of collectives, among those of known order, at which the rank arrives
    last. ``median_behind_ns``, ``worst_behind_ns`` and ``total_behind_ns`` are its delays after the
    first rank there. Ranks with the largest total delay come first.
    """
    table = logged_table(matched)
    comparable = table[table["source"] != ""]
    groups = {str(name): part for name, part in comparable.groupby("group", sort=True)}
    if len(groups) != 1:
        groups = {ALL_GROUPS: comparable, **groups}
    rows = []
    for name, part in groups.items():
        for rank, late in part[part["last_rank"] >= 0].groupby("last_rank")["skew_ns"]:
            share = len(late) / len(part)
            behind = round(late.median()), int(late.max()), int(late.sum())
            rows.append((name, rank, len(part), len(late), share, *behind))
    result: pd.DataFrame = pd.DataFrame(rows, columns=list(_STRAGGLERS))
    result["place"] = result["group"].map({name: place for place, name in enumerate(groups)})
    by = ["place", "total_behind_ns", "rank"]
    result = result.sort_values(by, ascending=[True, False, True], ignore_index=True)
    del result["place"]
    return result


def straggler_texts(stragglers: pd.DataFrame) -> list[str]:
    """Return sentences about the rank for which other ranks wait longest, in all groups and in each group."""
    texts = []
    for name, part in stragglers.groupby("group", sort=False):
        worst = part.iloc[0]
        where = "" if name == ALL_GROUPS or stragglers["group"].nunique() == 1 else f" of {name}"
        texts.append(
            f"Rank {worst['rank']} comes last in {share_text(float(worst['share']))} of the "
            f"collectives{where}, with a median delay of {duration_text(int(worst['median_behind_ns']))} "
            "after the first rank."
        )
    return texts


def logged_speeds(matched: MatchedLogs) -> pd.DataFrame:
    """Return durations of collectives by kind, size and number of ranks, to calibrate a network.

    ``transfer_ns`` is the median duration on the rank that arrived last, which did not wait; ``fastest_ns``
    and ``slowest_ns`` are the shortest and longest of these durations. ``longest_ns`` is the median on the
    rank that waited longest. Bandwidths of the whole operation and of the bus are in bytes per ns of
    ``transfer_ns``. The table is empty if the logs lack durations.
    """
    rows = [
        (op.name, len(matched.logs.groups[found.group]), op.size_bytes, min(took), max(took))
        for found in matched.agreed()
        if (op := found.first).collective is not None and (took := _durations(found))
    ]
    table = pd.DataFrame(rows, columns=["operation", "ranks", "size_bytes", "shortest_ns", "longest_ns"])
    results = []
    for (name, ranks, size), part in table.groupby(["operation", "ranks", "size_bytes"]):
        transfer = float(part["shortest_ns"].median())
        rate = _whole_bytes(str(name), int(size), int(ranks)) / transfer if transfer else float("nan")
        results.append(
            (
                name, ranks, size, len(part), round(transfer), int(part["shortest_ns"].min()),
                int(part["shortest_ns"].max()), round(part["longest_ns"].median()), rate,
                rate * _bus_factor(str(name), int(ranks)),
            )
        )  # fmt: skip
    speeds: pd.DataFrame = pd.DataFrame(results, columns=list(_SPEEDS))
    return speeds


def _durations(found: MatchedCollective) -> Sequence[int]:
    took = [op.duration_ns for op in found.ops.values()]
    return () if UNKNOWN in took else took


def _whole_bytes(name: str, size: int, ranks: int) -> int:
    """Return the bytes of the whole operation if each rank contributes *size* bytes."""
    return size * ranks if name == "all_gather" else size


def _bus_factor(name: str, ranks: int) -> float:
    kind = CollectiveType.__members__.get(name.upper())
    passes = 1 if kind is None else kind.ring_passes
    return passes * (ranks - 1) / max(1, ranks) if passes else 1.0
