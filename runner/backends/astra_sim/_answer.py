"""Convert ASTRA-sim's reports to a result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ....converter import NodeType, Workload
from ....errors import BackendError
from ..._experiment import Experiment
from ..._result import COLUMNS, Result, empty_table
from .._collectives import collective_table
from ._log import AstraSimLog, RankReport

__all__ = ["build_result", "infer_causes"]

Intervals = Mapping[tuple[int, int], tuple[int, int]]
_KEYS = {
    NodeType.COMM_SEND: ("comm_src", "comm_dst", "comm_tag", "comm_size_bytes"),
    NodeType.COMM_RECV: ("comm_src", "comm_dst", "comm_tag", "comm_size_bytes"),
}


def build_result(
    experiment: Experiment, log: AstraSimLog, intervals: Intervals | None, provenance: dict[str, Any]
) -> Result:
    """Return the result of a run in which every rank finished; *intervals* None means unknown node times."""
    workload = experiment.workload.model
    nodes = empty_table("nodes")
    if intervals is not None:
        nodes = infer_causes(_node_table(intervals), workload)
    ranks = pd.DataFrame([_rank_row(rank, log.ranks[rank]) for rank in range(log.num_ranks)])
    return Result(
        backend=experiment.backend,
        makespan_ns=max(report.finish_ns for report in log.ranks.values()),
        ranks=ranks.astype(COLUMNS["ranks"]),
        nodes=nodes,
        collectives=collective_table(nodes, workload) if len(nodes) else empty_table("collectives"),
        provenance=provenance,
    )


def _rank_row(rank: int, report: RankReport) -> dict[str, int]:
    return {
        "rank": rank,
        "finish_ns": report.finish_ns,
        "exposed_comm_ns": report.exposed_comm_ns,
        "compute_ns": report.compute_ns or 0,
        "comm_ns": report.comm_ns or 0,
        "overlap_ns": report.overlap_ns or 0,
        "copy_ns": 0,
        "exposed_copy_ns": 0,
    }


def _node_table(intervals: Intervals) -> pd.DataFrame:
    keys = np.array(sorted(intervals), dtype=np.int64).reshape(-1, 2)
    times = np.array([intervals[rank, node] for rank, node in keys.tolist()], dtype=np.int64).reshape(-1, 2)
    table: pd.DataFrame = pd.DataFrame(
        {"rank": keys[:, 0], "node_id": keys[:, 1], "start_ns": times[:, 0], "end_ns": times[:, 1]}
    )
    return table


def infer_causes(nodes: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Return *nodes* (rank, node_id, start_ns, end_ns) with the cause and origin columns of a result.

    The log does not contain causes, so they are inferred: a dependency that ended at the node's start, else
    another node of the rank that ended then and freed the resource. The origin of a collective is the member
    that arrived last, that of a receive its send if that came later.
    """
    facts = _facts(nodes, workload)
    causes = _causes(facts, workload)
    table = facts.merge(causes, on=["rank", "node_id"], how="left")
    table["cause_node"] = table["cause_node"].fillna(-1).astype("int64")
    table["cause_is_dependency"] = table["cause_is_dependency"].eq(True)
    table = _origins(table)
    chosen: pd.DataFrame = (
        table[list(COLUMNS["nodes"])]
        .astype(COLUMNS["nodes"])
        .sort_values(["rank", "node_id"], ignore_index=True)
    )
    return chosen


_FACTS = ("node_id", "type", "comm_type", "group", "comm_size_bytes", "comm_src", "comm_dst", "comm_tag")


def _facts(nodes: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Return *nodes* with their properties from the workload."""
    programs = [
        graph.nodes[list(_FACTS)].assign(program=index) for index, graph in enumerate(workload.graphs)
    ]
    facts = pd.concat(programs, ignore_index=True)
    owner = np.asarray(workload.program_of_rank, dtype=np.int64)
    if len(nodes) and int(nodes["rank"].max()) >= len(owner):
        raise BackendError("ASTRA-sim's log names a rank that the workload does not have.")
    merged = nodes.assign(program=owner[nodes["rank"].to_numpy()]).merge(facts, on=["program", "node_id"])
    if len(merged) != len(nodes):
        raise BackendError("ASTRA-sim's log names nodes that the workload does not have.")
    # A send or receive has its own rank at one end, with or without the attribute.
    own_source = (merged["type"] == NodeType.COMM_SEND) & (merged["comm_src"] < 0)
    own_target = (merged["type"] == NodeType.COMM_RECV) & (merged["comm_dst"] < 0)
    merged.loc[own_source, "comm_src"] = merged["rank"]
    merged.loc[own_target, "comm_dst"] = merged["rank"]
    result: pd.DataFrame = merged
    return result


def _causes(facts: pd.DataFrame, workload: Workload) -> pd.DataFrame:
    """Return ``rank, node_id, cause_node, cause_is_dependency`` of the nodes that did not start at time 0."""
    late = facts.loc[facts["start_ns"] > 0, ["rank", "node_id", "program", "start_ns"]]
    edges = pd.concat(
        [graph.edges[["src", "dst"]].assign(program=index) for index, graph in enumerate(workload.graphs)],
        ignore_index=True,
    ).drop_duplicates()
    ended = facts[["rank", "node_id", "start_ns", "end_ns"]].rename(
        columns={"node_id": "cause_node", "start_ns": "cause_start_ns", "end_ns": "time"}
    )
    named = late.rename(columns={"start_ns": "time"})
    parents = named.merge(edges, left_on=["program", "node_id"], right_on=["program", "dst"])
    parents = parents.rename(columns={"src": "cause_node"}).merge(ended, on=["rank", "cause_node", "time"])
    # A node without duration frees nothing; as a cause it could close a cycle within one instant.
    freeing = ended[ended["cause_start_ns"] < ended["time"]]
    slots = named.merge(freeing, on=["rank", "time"])
    found = pd.concat([parents.assign(cause_is_dependency=True), slots.assign(cause_is_dependency=False)])
    first = found.sort_values(
        ["rank", "node_id", "cause_is_dependency", "cause_node"], ascending=[True, True, False, True]
    )
    chosen: pd.DataFrame = first.drop_duplicates(["rank", "node_id"])[
        ["rank", "node_id", "cause_node", "cause_is_dependency"]
    ]
    return chosen


def _origins(table: pd.DataFrame) -> pd.DataFrame:
    """Return *table* with ``origin_rank`` and ``origin_node``."""
    table = table.sort_values(["rank", "node_id"], ignore_index=True)
    table["origin_rank"], table["origin_node"] = table["rank"], table["node_id"]
    collectives = table[table["type"] == NodeType.COMM_COLL]
    if len(collectives):
        key = ["group", "comm_type", "turn"]
        turns = collectives.assign(
            turn=collectives.groupby(["rank", "group", "comm_type"]).cumcount(),
            row=collectives.index,
        )
        last = turns.sort_values("start_ns", kind="stable").drop_duplicates(key, keep="last")
        _adopt(
            table, turns.merge(last[[*key, "rank", "node_id", "start_ns"]], on=key, suffixes=("", "_peer"))
        )
    messages = table[table["type"].isin((NodeType.COMM_SEND, NodeType.COMM_RECV))]
    if len(messages):
        key = ["comm_src", "comm_dst", "comm_tag", "comm_size_bytes", "turn"]
        turns = messages.assign(turn=messages.groupby(["type", *key[:-1]]).cumcount(), row=messages.index)
        sends = turns[turns["type"] == NodeType.COMM_SEND]
        receives = turns[turns["type"] == NodeType.COMM_RECV]
        _adopt(
            table,
            receives.merge(sends[[*key, "rank", "node_id", "start_ns"]], on=key, suffixes=("", "_peer")),
        )
    return table


def _adopt(table: pd.DataFrame, pairs: pd.DataFrame) -> None:
    """Make the peer the origin if it started after the node did, and before the node ended."""
    later = pairs[(pairs["start_ns_peer"] > pairs["start_ns"]) & (pairs["start_ns_peer"] <= pairs["end_ns"])]
    table.loc[later["row"], "origin_rank"] = later["rank_peer"].to_numpy()
    table.loc[later["row"], "origin_node"] = later["node_id_peer"].to_numpy()
