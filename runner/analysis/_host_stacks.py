"""Sum up the host calls of the captured step by call stack, for flame graphs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...converter.readers import HostCalls
from ...support.table import Ints

if TYPE_CHECKING:
    import pandas as pd

    from ._run import RunAnalysis


HOST_STACKS = ("rank", "thread", "depth", "name", "calls", "total_ns", "self_ns", "on_path_ns")
"""The columns of `host_stack_table`."""


def host_stack_table(
    run: RunAnalysis, ranks: Sequence[int] | None = None, window: tuple[int, int] | None = None
) -> pd.DataFrame:
    """Return the host call stacks of the captured step, for *ranks* or all traced ranks.

    There is a row per stack, with the columns `HOST_STACKS`; its caller is the last earlier row of
    smaller depth. ``total_ns`` is the time within *window* (ns since the step began; default: the
    whole step), ``self_ns`` the part outside callees, and ``on_path_ns`` the part during the rank's
    host work on the critical path. Runs without traces have no rows. Raises `TraceError` or
    `TraceFormatError` for unreadable traces.
    """
    import pandas as pd  # noqa: PLC0415

    tables = []
    for rank in range(run.info.num_ranks) if ranks is None else ranks:
        calls = run.calls.of_rank(rank) if run.calls else None
        if calls is not None:
            stacks = stacks_of_calls(calls, _host_path(run, rank), window)
            stacks.insert(0, "rank", rank)
            tables.append(stacks)
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=[*HOST_STACKS])


def stacks_of_calls(calls: HostCalls, path: Ints, window: tuple[int, int] | None = None) -> pd.DataFrame:
    """Return the stacks of *calls* with the columns `HOST_STACKS` except the rank.

    *path* are the sorted, disjoint intervals (n, 2) of host work on the critical path.
    """
    import pandas as pd  # noqa: PLC0415

    starts, ends = calls.start_ns, calls.end_ns
    if window is not None:
        starts, ends = starts.clip(*window), ends.clip(*window)
    called = np.flatnonzero((ends > starts) | (calls.end_ns == calls.start_ns) & (starts == calls.start_ns))
    order = called[np.lexsort((calls.depth[called], -ends[called], starts[called], calls.thread[called]))]
    stacks, of_call, until = _stacked(calls, order, starts, ends)
    lasted = until - starts[order]
    on_path = _before(path, until) - _before(path, starts[order])
    totals = [np.zeros(len(stacks), np.int64) for _ in range(3)]
    for total, values in zip(totals, (np.ones_like(lasted), lasted, on_path), strict=True):
        np.add.at(total, of_call, values)
    count, total_ns, on_path_ns = totals
    self_ns = total_ns.copy()
    parents = np.array([parent for parent, _ in stacks], np.int64)
    np.subtract.at(self_ns, parents[parents >= 0], total_ns[parents >= 0])
    depth = np.zeros(len(stacks), np.int64)
    for stack, parent in enumerate(parents.tolist()):
        depth[stack] = depth[parent] + 1 if parent >= 0 else 0
    table = pd.DataFrame(
        {
            "thread": [calls.threads[-1 - parent] if parent < 0 else "" for parent, _ in stacks],
            "depth": depth,
            "name": [calls.names[name] for _, name in stacks],
            "calls": count,
            "total_ns": total_ns,
            "self_ns": self_ns,
            "on_path_ns": on_path_ns,
        }
    )
    rows = _depth_first(parents.tolist())
    table["thread"] = table["thread"].where(parents < 0).iloc[rows].ffill()
    ordered: pd.DataFrame = table.iloc[rows].reset_index(drop=True)
    return ordered


def _stacked(
    calls: HostCalls, order: Ints, starts: Ints, ends: Ints
) -> tuple[list[tuple[int, int]], Ints, Ints]:
    """Return the distinct stacks as (caller's stack, name), and each call's stack and end.

    Outermost calls of a thread have the caller -1 minus the thread's number. A call that outlasts
    its caller is cut at the caller's end.
    """
    stacks: dict[tuple[int, int], int] = {}
    of_call, until = np.zeros(len(order), np.int64), np.zeros(len(order), np.int64)
    open_: list[tuple[int, int]] = []  # (stack, end) of the open calls
    before = -1
    for place, row in enumerate(order.tolist()):
        thread, start, end = int(calls.thread[row]), int(starts[row]), int(ends[row])
        if thread != before:
            open_, before = [], thread
        while open_ and open_[-1][1] <= start:
            open_.pop()
        caller, last = open_[-1] if open_ else (-1 - thread, end)
        stack = stacks.setdefault((caller, int(calls.name[row])), len(stacks))
        of_call[place], until[place] = stack, min(end, last)
        open_.append((stack, min(end, last)))
    return [*stacks], of_call, until


def _depth_first(parents: list[int]) -> list[int]:
    """Return the stacks depth first, the callees of each caller by start."""
    callees: dict[int, list[int]] = {}
    for stack, parent in enumerate(parents):
        callees.setdefault(max(-1, parent), []).append(stack)
    rows, left = [], callees.get(-1, [])[::-1]
    while left:
        stack = left.pop()
        rows.append(stack)
        left += callees.get(stack, [])[::-1]
    return rows


def _before(intervals: Ints, times: Ints) -> Ints:
    """Return how many ns of the sorted, disjoint *intervals* lie before each of *times*."""
    if not len(intervals):
        return np.zeros_like(times)
    starts, ends = intervals.T
    whole = np.concatenate([[0], np.cumsum(ends - starts)])
    begun = np.searchsorted(starts, times, side="right")
    last = np.maximum(begun - 1, 0)
    return whole[begun] - np.where(begun > 0, np.maximum(ends[last] - times, 0), 0)


def _host_path(run: RunAnalysis, rank: int) -> Ints:
    """Return the measured, disjoint intervals of the critical path's host work on *rank*."""
    from ._lanes import path_at_measured_times  # noqa: PLC0415 - imports pandas

    path = run.path.unreasoned
    path = path_at_measured_times(run.workload, path[(path["rank"] == rank) & (path["kind"] == "host")])
    if path.empty:
        return np.zeros((0, 2), np.int64)
    path = path.sort_values("start_ns", kind="stable")
    starts, ends = (path[name].to_numpy(np.int64) for name in ("start_ns", "end_ns"))
    ends = np.maximum.accumulate(ends)
    begins = np.concatenate([[True], starts[1:] > ends[:-1]])
    return np.column_stack([starts[begins], ends[np.concatenate([begins[1:], [True]])]])
