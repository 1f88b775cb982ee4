"""The breakdown of each captured step, as measured, and the differences between steps of one kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median_low
from typing import Any

import numpy as np

from ..building import batch_of
from ..chakra import DEVICE_LANE, EdgeKind, Graph, Workload

__all__ = ["step_kinds", "step_rows"]

# In this order: concurrent time counts for the first.
_BUSY = ("compute", "communication", "copy")
_ON_HOST = ("host", "sync")
_ISSUES = (int(EdgeKind.LAUNCH), int(EdgeKind.COMM_ISSUE))
_MEDIANS = ("compute_ns", "communication_ns", "copy_ns", "idle_ns", "gap_before_ns", "kernels", "launches")


def step_rows(workload: Workload) -> list[dict[str, Any]]:
    """Return a row per captured step, of the slowest rank; [] for a workload that was not captured.

    ``kind, requests, tokens`` are those of its batch ("" and -1 without an annotation). ``duration_ns`` is
    the step's own time: computation, exposed communication, exposed copies and idle time add up to it.
    ``gap_before_ns`` is the time since the step before, ``longest_gap_ns`` the longest idle interval.
    ``kernels``, ``copies`` and ``launches`` (calls that issued device work) are counted where they were
    issued, ``host_ns`` is how long the main thread was busy until the next step. ``bound_by`` is the largest
    part; idle time of the device counts for the host.
    """
    shares = workload.metadata.get("step_shares")
    if not isinstance(shares, Mapping):
        return []
    names = workload.metadata.get("step_names", {})
    graphs = {graph.rank: graph for graph in workload.graphs}
    slowest: dict[int, tuple[int, int, int, int]] = {}
    for rank, own in shares.items():
        before = None
        for number, start, end in own if int(rank) in graphs else []:
            gap = 0 if before is None else max(0, start - before)
            before = end
            slowest[number] = max(slowest.get(number, (-1, 0, 0, 0)), (end - start, -int(rank), start, gap))
    rows = []
    for number, (duration, rank, start, gap) in sorted(slowest.items(), key=lambda item: item[1][2]):
        name = str(names.get(str(number), ""))
        batch = batch_of(name)
        about = {"step": number, "name": name, "kind": "" if batch is None else batch.kind}
        sizes = {key: -1 if batch is None else getattr(batch, key) for key in ("requests", "tokens")}
        figures = _figures(graphs[-rank], number, start, start + duration)
        rows.append(about | sizes | {"rank": -rank, "duration_ns": duration, "gap_before_ns": gap} | figures)
    return rows


def _figures(graph: Graph, number: int, start_ns: int, end_ns: int) -> dict[str, Any]:
    """Return the breakdown of step *number* of *graph*, and its counts."""
    columns = graph.node_columns
    kinds, stream = columns["kind"], columns["stream"]
    of_kind = {kind: kinds == kind for kind in (*_BUSY, *_ON_HOST, "idle")}
    starts = columns["measured_start_ns"]
    ends = starts + columns["duration_ns"]
    near = (starts < end_ns) & (ends > start_ns)
    busy_ns, covered, busy = 0, np.empty((0, 2), dtype=np.int64), {}
    for name in _BUSY:
        own = near & of_kind[name]
        times = np.column_stack([starts[own], ends[own]]).clip(start_ns, end_ns)
        covered = _united(np.concatenate([covered, times]))
        total = int((covered[:, 1] - covered[:, 0]).sum())
        busy[f"{name}_ns"], busy_ns = total - busy_ns, total
    idle = np.append(covered[:, 0], end_ns) - np.append(start_ns, covered[:, 1])
    issued = (stream >= DEVICE_LANE) & (columns["step"] == number)
    copies = int((issued & of_kind["copy"]).sum())
    on_host = (stream == 0) & (columns["step"] == number) & np.any([of_kind[kind] for kind in _ON_HOST], 0)
    edges = graph.edge_columns
    targets = np.searchsorted(columns["node_id"], edges["dst"])
    launching = np.isin(edges["kind"], _ISSUES) & issued[targets]
    figures = busy | {"idle_ns": int(idle.sum())}
    bound_by = max(figures, key=lambda name: figures[name]).removesuffix("_ns")
    return figures | {
        "longest_gap_ns": int(idle.max()),
        "host_ns": int(columns["duration_ns"][on_host].sum()),
        "kernels": int((issued & ~of_kind["idle"]).sum()) - copies,
        "copies": copies,
        "launches": len(np.unique(edges["src"][launching])),
        "bound_by": "host" if bound_by == "idle" else bound_by,
    }


def _united(times: np.ndarray) -> np.ndarray:
    """Return the union of intervals (rows of start and end), in order, with touching ones merged."""
    times = times[np.argsort(times[:, 0], kind="stable")]
    if not len(times):
        return times
    until = np.maximum.accumulate(times[:, 1])
    first = np.append(True, times[1:, 0] > until[:-1])
    last = np.append(first[1:], True)
    return np.column_stack([times[first, 0], until[last]])


def step_kinds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per kind of the steps in *rows*: their number, the spread of their time, and medians.

    ``bound_by`` is the bound of most of their time.
    """
    found = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        times = sorted(row["duration_ns"] for row in own)
        bound = dict.fromkeys((row["bound_by"] for row in own), 0)
        for row in own:
            bound[row["bound_by"]] += row["duration_ns"]
        figures = {"min_ns": times[0], "median_ns": median_low(times), "max_ns": times[-1]}
        figures |= {name: median_low([row[name] for row in own]) for name in _MEDIANS}
        sizes = {name: median_low([row[name] for row in own]) for name in ("requests", "tokens")}
        bound_by = max(bound, key=lambda name: bound[name])
        found.append({"kind": kind, "steps": len(own)} | sizes | figures | {"bound_by": bound_by})
    return found
