"""The graph of a run as tables: the surroundings of a node, or the nodes folded into groups."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...errors import StudyError
from ._groups import Groups, module_groups, phase_groups, rank_groups, stream_groups
from ._labels import edge_label
from ._neighbourhood import neighbourhood
from ._run import RunAnalysis

__all__ = ["ON_PATH", "causes", "edges_of", "folded", "graph_tables"]

ON_PATH = -1
"""Stands among kinds of edges for: only those along which the critical path runs."""

_MAKERS = {"modules": module_groups, "phases": phase_groups, "streams": stream_groups}
_FACTS = ["rank", "node_id", "name", "kind", "module", "start_ns"]
_GROUP_FACTS = ["group", "name", "band", "kind", "count", "duration_ns", "on_path_ns", "rank", "node_id"]


def edges_of(run: RunAnalysis, rank: int, kinds: Sequence[int]) -> pd.DataFrame:
    """Return the edges of some *kinds* of the program of *rank*, with `ON_PATH` those of the path alone."""
    edges = run.edges_of(rank)
    chosen: pd.DataFrame = edges[edges["kind"].isin(kinds)]
    if ON_PATH in kinds:
        along = causes(run, rank)
        pairs = zip(chosen["src"].tolist(), chosen["dst"].tolist(), strict=True)
        chosen = chosen[[pair in along for pair in pairs]]
    return chosen


def causes(run: RunAnalysis, rank: int) -> set[tuple[int, int]]:
    """Return the edges along which the critical path runs on *rank*, as (source, target)."""
    path = run.path.unreasoned
    own = run.nodes_of(rank)
    own = own[own["node_id"].isin(path.loc[path["rank"] == rank, "node_id"])]
    return set(zip(own["cause_node"].tolist(), own["node_id"].tolist(), strict=True))


def folded(run: RunAnalysis, rank: int, fold: str, edges: pd.DataFrame) -> Groups:
    """Return the nodes of *rank*, or of all of them, folded as *fold* of :data:`FOLDS` says.

    Raises `StudyError` for all of a large run.
    """
    path = run.path.unreasoned
    if fold == "ranks":
        if run.is_large:
            raise StudyError(
                f"What all {run.result.num_nodes:,} nodes did to each other is too much for one drawing. "
                "Next: choose modules, phases or streams of one rank; the timeline's 'who came when' says "
                "which ranks came late."
            )
        return rank_groups(run.nodes, path)
    return _MAKERS[fold](run.nodes_of(rank), edges, path[path["rank"] == rank])


def graph_tables(
    run: RunAnalysis,
    rank: int,
    node: int,
    *,
    fold: str,
    hops: int,
    kinds: Sequence[int],
    opened: Sequence[int] = (),
) -> dict[str, pd.DataFrame]:
    """Return the ``nodes`` and the ``edges`` of the graph around *node* of *rank*, or of one folded.

    Nodes have ``duration_ns`` and ``on_path``, their part of the critical path in ns; ``why`` says what an
    edge stands for, ``on_path`` whether the path runs along it. Groups have a number instead of an id. The
    neighbours of nodes *opened* are there as well.
    """
    edges = edges_of(run, rank, kinds)
    if fold != "nodes":
        groups = folded(run, rank, fold, edges)
        renamed = groups.edges.rename(columns={"label": "why"})[["src", "dst", "why"]]
        return {"nodes": groups.nodes[_GROUP_FACTS], "edges": renamed}
    cut = neighbourhood(edges, node, hops, opened=opened)
    nodes = cut.nodes[["node_id", "hops"]].merge(run.nodes_of(rank), on="node_id", how="inner")
    path = run.path.unreasoned
    on_path = path[path["rank"] == rank].groupby("node_id")["duration_ns"].sum()
    facts = nodes[[*_FACTS, "hops"]].assign(
        duration_ns=nodes["end_ns"] - nodes["start_ns"],
        on_path_ns=nodes["node_id"].map(on_path).fillna(0).astype("int64"),
    )
    along = causes(run, rank)
    pairs = cut.edges[["src", "dst", "kind"]].to_dict("records")
    rows = [
        (pair["src"], pair["dst"], edge_label(pair["kind"]), (pair["src"], pair["dst"]) in along)
        for pair in pairs
    ]
    return {"nodes": facts, "edges": pd.DataFrame(rows, columns=["src", "dst", "why", "on_path"])}
