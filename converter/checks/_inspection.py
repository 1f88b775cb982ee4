"""Inspect a workload: counts, sizes, steps, the longest chain, and all data of individual nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DependencyError, UsageError, WorkloadError
from .._columns import united
from ..building import batch_of
from ..chakra import (
    DEVICE_LANE,
    MESSAGES,
    CollectiveType,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    decode_graph,
    other_attributes,
    read_et,
    replay,
)
from ..readers import kind_of
from ..readers.logs import which_logs
from ._findings import worst_first
from ._workload_checks import check_workload

if TYPE_CHECKING:
    import pandas as pd

_TRACE_OPTIONS = {"device": "--device-trace", "host": "--host-trace", "linked": "--linked-trace"}
_COMM = (*MESSAGES, NodeType.COMM_COLL)


def load_workload(path: str | Path) -> Workload:
    """Read the workload at *path*, a single ``.et`` file or the PREFIX of several ``.et`` files.

    Raises `WorkloadError` if *path* is neither.
    """
    path = Path(path)
    if path.is_file() and kind_of(path) in _TRACE_OPTIONS:
        option = _TRACE_OPTIONS[kind_of(path)]
        raise WorkloadError(
            f"{path} is a trace, not a graph. Convert it with 'chakrascope convert {option} {path} -o "
            "PREFIX', or check it with 'chakrascope doctor'."
        )
    if which_logs(path):
        raise WorkloadError(
            f"{path} holds logs of collectives, not a graph. Convert them with 'chakrascope convert {path} "
            "-o PREFIX', or check them with 'chakrascope doctor'."
        )
    if not path.name.endswith((".et", ".et.gz")):
        return Workload.load(path)
    return Workload((decode_graph(read_et(path), source=str(path)),), np.zeros(1, dtype=np.int32))


def inspect_workload(workload: Workload) -> dict[str, Any]:
    """Return counts and sizes of *workload*, and of its programs by their first rank, as plain data.

    ``ranks`` of a program are all ranks that run the program. ``replay_ns`` of a rank is the time of a replay
    of its nodes, without other ranks. ``longest_chain_nodes`` is the length of the longest dependency chain.
    Both figures are -1 if a dependency is missing or circular. ``findings`` are the findings of `doctor`.
    """
    ranks = {
        str(rank): {
            "ranks": np.flatnonzero(workload.program_of_rank == program).tolist(),
            **_rank_summary(workload.graphs[program]),
        }
        for rank, program in enumerate(workload.program_of_rank.tolist())
        if program not in workload.program_of_rank[:rank]
    }
    return {
        **workload.summary(),
        "programs": len(workload.graphs),
        "groups": {str(number): list(members) for number, members in workload.groups.items()},
        "metadata": workload.metadata,
        "ranks": ranks,
        "findings": [finding.to_dict() for finding in worst_first(check_workload(workload))],
    }


def _rank_summary(graph: Graph) -> dict[str, Any]:
    """Return counts, sizes and times of one program's graph."""
    nodes = graph.nodes
    types = nodes["type"].map(lambda number: NodeType(number).name)
    comm = nodes[nodes["type"].isin(_COMM)]
    return {
        "nodes": len(nodes),
        "edges": len(graph.edges),
        "by_type": _counts(types),
        "by_kind": _counts(nodes["kind"]),
        "by_phase": _counts(nodes["phase"]),
        "edges_by_kind": _counts(graph.edges["kind"].map(lambda number: EdgeKind(number).name)),
        "duration_ns_by_kind": _durations_ns(nodes, "kind"),
        "duration_ns_by_lane": _durations_ns(nodes, "stream"),
        "communication": _communication(comm),
        "num_ops": int(nodes.loc[nodes["num_ops"] > 0, "num_ops"].sum()),
        "replay_ns": _replayed(graph),
        "longest_chain_nodes": _longest_chain(graph),
    }


def _counts(values: pd.Series[Any]) -> dict[str, int]:
    return {str(key): int(count) for key, count in values.value_counts().sort_index().items()}


def _durations_ns(nodes: pd.DataFrame, by: str) -> dict[str, int]:
    return {str(key): int(total) for key, total in nodes.groupby(by)["duration_ns"].sum().items()}


def _communication(comm: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the count, bytes and time of each kind of communication in each group."""
    found = []
    for key, part in comm.groupby(["type", "comm_type", "group"]):
        node_type, kind, group = (int(str(value)) for value in key)
        collective = node_type == NodeType.COMM_COLL and kind >= 0
        name = CollectiveType(kind).name if collective else NodeType(node_type).name
        found.append(
            {
                "operation": name.lower(),
                "group": group,
                "count": len(part),
                "bytes": int(part["comm_size_bytes"].clip(lower=0).sum()),
                "duration_ns": int(part["duration_ns"].sum()),
            }
        )
    return found


def _longest_chain(graph: Graph) -> int:
    """Return the number of nodes in the longest dependency chain."""
    ones, lanes = np.ones(graph.num_nodes, dtype=np.int64), np.arange(graph.num_nodes)
    return _replayed(graph.with_columns(duration_ns=ones, stream=lanes))


def _replayed(graph: Graph) -> int:
    """Return the makespan (ns) of *graph* without other ranks, or -1 if *graph* cannot run."""
    try:
        return replay(graph).makespan_ns
    except DependencyError:
        return -1


def inspect_node(graph: Graph, node_id: int) -> dict[str, Any]:
    """Return all data on one node: columns, attributes of other tools, and neighbours.

    Raises `UsageError` for a missing node.
    """
    found = graph.nodes[graph.nodes["node_id"] == node_id]
    if found.empty:
        near = graph.nodes["node_id"].to_numpy()
        raise UsageError(
            f"Rank {graph.rank} has no node {node_id}. Its {len(near)} nodes have ids from "
            f"{near.min(initial=0)} to {near.max(initial=0)}."
        )
    (columns,) = found.to_dict("records")
    names = graph.nodes.set_index("node_id")["name"]

    def neighbours(of: str, other: str) -> list[dict[str, Any]]:
        edges = graph.edges.loc[graph.edges[of] == node_id, [other, "kind"]]
        return [
            {"node_id": int(end), "name": str(names.get(end, "")), "kind": EdgeKind(kind).name}
            for end, kind in edges.itertuples(index=False)
        ]

    return {
        **columns,
        "type": NodeType(columns["type"]).name,
        "comm_type": CollectiveType(columns["comm_type"]).name if columns["comm_type"] >= 0 else "",
        "waits_for": neighbours("dst", "src"),
        "waited_for_by": neighbours("src", "dst"),
        "other_attributes": other_attributes(graph, node_id),
    }


# Kinds of busy time in order of precedence. Concurrent time counts for the first kind.
_BUSY = ("compute", "communication", "copy")
_ON_HOST = ("host", "sync")
_ISSUES = (int(EdgeKind.LAUNCH), int(EdgeKind.COMM_ISSUE))
_MEDIANS = ("compute_ns", "communication_ns", "copy_ns", "idle_ns", "gap_before_ns", "kernels", "launches")


def step_rows(workload: Workload) -> list[dict[str, Any]]:
    """Return a row per captured step of the slowest rank, or [] for a workload that was not captured.

    ``kind, requests, tokens`` describe the step's batch ("" and -1 without an annotation). ``duration_ns`` is
    the step's duration, the sum of computation, exposed communication, exposed copies and idle time.
    ``gap_before_ns`` is the time since the previous step, and ``longest_gap_ns`` is the longest idle
    interval. ``kernels``, ``copies`` and ``launches`` (calls that issued device work) belong to the step that
    issued them. ``host_ns`` is the busy time of the main thread until the next step. ``bound_by`` is the
    largest part of the step; idle time of the device counts as bound by the host.
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
    """Return the breakdown and the counts of step *number* of *graph*."""
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
        covered = united(np.concatenate([covered, times]))
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


def step_kinds(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row per kind of step in *rows*: number of steps, spread of durations, and medians.

    ``bound_by`` is the bound with the most time over all steps of the kind.
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
