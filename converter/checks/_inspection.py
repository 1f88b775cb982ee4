"""The content of a workload: counts, sizes, the longest chain, and single nodes in full."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...errors import DependencyError, UsageError, WorkloadError
from ..chakra import (
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

__all__ = ["inspect_node", "inspect_workload", "load_workload"]

_TRACE_OPTIONS = {"device": "--device-trace", "host": "--host-trace", "linked": "--linked-trace"}
_COMM = (*MESSAGES, NodeType.COMM_COLL)


def load_workload(path: str | Path) -> Workload:
    """Read the workload at *path*: a single ``.et`` file, or the PREFIX of several.

    Raises `WorkloadError` if neither is there.
    """
    path = Path(path)
    if path.is_file() and kind_of(path) in _TRACE_OPTIONS:
        option = _TRACE_OPTIONS[kind_of(path)]
        raise WorkloadError(
            f"{path} is a trace, not a graph. Convert it with 'chakrascope convert {option} {path} -o "
            "PREFIX', or look it over with 'chakrascope doctor'."
        )
    if which_logs(path):
        raise WorkloadError(
            f"{path} holds logs of collectives, not a graph. Convert them with 'chakrascope convert {path} "
            "-o PREFIX', or look them over with 'chakrascope doctor'."
        )
    if not path.name.endswith((".et", ".et.gz")):
        return Workload.load(path)
    return Workload((decode_graph(read_et(path), source=str(path)),), np.zeros(1, dtype=np.int32))


def inspect_workload(workload: Workload) -> dict[str, Any]:
    """Return counts and sizes of *workload* and of each of its programs, by the first rank, for JSON.

    A program's ``ranks`` are all that run it. A rank's ``replay_ns`` is the time of its nodes with their own
    durations and dependencies only, ``longest_chain_nodes`` the length of the longest dependency chain; both
    are -1 if a dependency is missing or circular. ``findings`` are those of `doctor`.
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
    """Return the content of one program."""
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
        "duration_ns_by_kind": _sums(nodes, "kind", "duration_ns"),
        "duration_ns_by_lane": _sums(nodes, "stream", "duration_ns"),
        "communication": _communication(comm),
        "num_ops": int(nodes.loc[nodes["num_ops"] > 0, "num_ops"].sum()),
        "replay_ns": _replayed(graph),
        "longest_chain_nodes": _longest_chain(graph),
    }


def _counts(values: pd.Series[Any]) -> dict[str, int]:
    return {str(key): int(count) for key, count in values.value_counts().sort_index().items()}


def _sums(nodes: pd.DataFrame, by: str, column: str) -> dict[str, int]:
    return {str(key): int(total) for key, total in nodes.groupby(by)[column].sum().items()}


def _communication(comm: pd.DataFrame) -> list[dict[str, Any]]:
    """Return count, bytes and time of each kind of communication in each group."""
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
    """Return the number of nodes of the longest chain of dependencies."""
    ones, lanes = np.ones(graph.num_nodes, dtype=np.int64), np.arange(graph.num_nodes)
    return _replayed(graph.with_columns(duration_ns=ones, stream=lanes))


def _replayed(graph: Graph) -> int:
    """Return the time of *graph* on its own, -1 if it cannot run."""
    try:
        return replay(graph).makespan_ns
    except DependencyError:
        return -1


def inspect_node(graph: Graph, node_id: int) -> dict[str, Any]:
    """Return all data on one node: its columns, attributes of other tools, and its neighbours.

    Raises `UsageError` if there is no such node.
    """
    found = graph.nodes[graph.nodes["node_id"] == node_id]
    if found.empty:
        near = graph.nodes["node_id"].to_numpy()
        raise UsageError(
            f"Rank {graph.rank} has no node {node_id}. Its {len(near)} nodes have ids from "
            f"{near.min(initial=0)} to {near.max(initial=0)}."
        )
    columns = {str(key): _plain(value) for key, value in found.iloc[0].items()}
    names = graph.nodes.set_index("node_id")["name"]

    def neighbours(of: str, other: str) -> list[dict[str, Any]]:
        return [
            {"node_id": int(end), "name": str(names.get(end, "")), "kind": EdgeKind(kind).name}
            for end, kind in graph.edges.loc[graph.edges[of] == node_id, [other, "kind"]].itertuples(
                index=False
            )
        ]

    return {
        **columns,
        "type": NodeType(columns["type"]).name,
        "comm_type": CollectiveType(columns["comm_type"]).name if columns["comm_type"] >= 0 else "",
        "waits_for": neighbours("dst", "src"),
        "waited_for_by": neighbours("src", "dst"),
        "other_attributes": other_attributes(graph, node_id),
    }


def _plain(value: Any) -> Any:
    """Return *value* as a Python type."""
    return value.item() if hasattr(value, "item") else value
