"""The graph of a run as tables: the neighbourhood of a node, or nodes folded into groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from ...support import count_text, duration_text
from ...support.table import Ints
from ._labels import edge_label
from ._lanes import is_communication, lane_table
from ._layers import cut_names
from ._run import RunAnalysis

_PHASES = ("forward", "backward", "communication", "optimizer", "other")
_MAX_RANKS = 256


@dataclass(frozen=True)
class Groups:
    """Groups of nodes, and the edges between groups.

    *nodes* has ``group, name, band, kind, count, duration_ns, on_path_ns, rank`` and ``node_id``. ``kind`` is
    the kind with most of a group's time, and ``rank`` and ``node_id`` identify the longest node. Groups of
    one ``band``, such as a phase, are adjacent. *edges* has ``src`` and ``dst`` (groups) and ``label``.
    *group_of* maps each folded node to its group.
    """

    nodes: pd.DataFrame
    edges: pd.DataFrame
    group_of: pd.Series


def module_groups(nodes: pd.DataFrame, edges: pd.DataFrame, path: pd.DataFrame, most: int = 60) -> Groups:
    """Group the executed *nodes* of one rank by phase and module, into at most *most* groups.

    *edges* are those of the rank's program, and *path* the segments of the critical path on the
    rank.
    """
    names = cut_names(nodes["module"].astype(str), most, nodes["phase"].astype(str))
    return _program_groups(nodes, nodes["phase"], names.where(names != "", "(no module)"), edges, path)


def phase_groups(nodes: pd.DataFrame, edges: pd.DataFrame, path: pd.DataFrame) -> Groups:
    """Group the executed *nodes* of one rank by phase; see :func:`module_groups`."""
    return _program_groups(nodes, pd.Series("", index=nodes.index), nodes["phase"], edges, path)


def stream_groups(nodes: pd.DataFrame, edges: pd.DataFrame, path: pd.DataFrame) -> Groups:
    """Group the executed *nodes* of one rank by lane; see :func:`module_groups`."""
    keys = pd.DataFrame(
        {
            "rank": nodes["rank"],
            "comm": is_communication(nodes["type"]),
            "stream": nodes["stream"],
        }
    )
    lanes = keys.drop_duplicates().sort_values(["comm", "stream"])
    named = lanes.assign(lane=lane_table(lanes)["label"].to_numpy())
    names = keys.merge(named, on=list(keys.columns), how="left")["lane"]
    return _program_groups(nodes, pd.Series("", index=nodes.index), names.set_axis(nodes.index), edges, path)


def rank_groups(nodes: pd.DataFrame, path: pd.DataFrame) -> Groups:
    """Group all executed *nodes* by rank, with edges for the waits between ranks.

    Of more than 256 ranks, only those with most time on the critical path are included.
    """
    names = "rank " + nodes["rank"].astype(str)
    table, group_of = _folded(nodes, pd.Series("", index=nodes.index), names, path)
    starts = nodes.set_index(["rank", "node_id"])["start_ns"]
    late = nodes[nodes["origin_rank"] != nodes["rank"]]
    places = pd.MultiIndex.from_frame(late[["origin_rank", "origin_node"]])
    waited = starts.reindex(places).to_numpy() - late["start_ns"].to_numpy()
    pairs = pd.DataFrame(
        {
            "src": late["origin_rank"].map(dict(zip(nodes["rank"], group_of, strict=True))).to_numpy(),
            "dst": group_of[late.index].to_numpy(),
            "waited_ns": np.nan_to_num(waited, nan=0.0).clip(min=0).astype(np.int64),
        }
    )
    sums = pairs[pairs["waited_ns"] > 0].groupby(["src", "dst"], as_index=False)["waited_ns"].sum()
    largest = table.nlargest(_MAX_RANKS, "on_path_ns")["group"]
    sums = sums[sums["src"].isin(largest) & sums["dst"].isin(largest)]
    edges = sums.assign(label=["waited " + duration_text(ns) for ns in sums["waited_ns"]])
    return Groups(
        table[table["group"].isin(largest)].sort_values("rank", ignore_index=True),
        edges[["src", "dst", "label"]],
        group_of,
    )


def _program_groups(
    nodes: pd.DataFrame, band: pd.Series, names: pd.Series, edges: pd.DataFrame, path: pd.DataFrame
) -> Groups:
    table, group_of = _folded(nodes, band, names, path)
    order = table["band"].map({phase: place for place, phase in enumerate(_PHASES)}).fillna(len(_PHASES))
    table = table.assign(order=order).sort_values(["order", "start_ns"], kind="stable").drop(columns="order")
    by_node = pd.Series(group_of.to_numpy(), index=nodes["node_id"])
    return Groups(table.reset_index(drop=True), _between(edges, by_node), group_of)


def _folded(
    nodes: pd.DataFrame, band: pd.Series, names: pd.Series, path: pd.DataFrame
) -> tuple[pd.DataFrame, pd.Series]:
    """Return a row per group, and the group of each of *nodes*."""
    table = nodes[["rank", "node_id", "kind", "start_ns"]].assign(
        duration_ns=nodes["end_ns"] - nodes["start_ns"], band=band, name=names
    )
    table["group"] = table.groupby(["band", "name"], sort=False).ngroup()
    on_path = path.groupby(["rank", "node_id"])["duration_ns"].sum()
    keys = pd.MultiIndex.from_frame(table[["rank", "node_id"]])
    table["on_path_ns"] = on_path.reindex(keys).fillna(0).to_numpy(np.int64)
    longest = table.loc[table.groupby("group")["duration_ns"].idxmax(), ["group", "rank", "node_id"]]
    kinds = table.groupby(["group", "kind"], as_index=False)["duration_ns"].sum()
    most = kinds.loc[kinds.groupby("group")["duration_ns"].idxmax(), ["group", "kind"]]
    groups = table.groupby(["group", "band", "name"], as_index=False).agg(
        count=("node_id", "size"),
        duration_ns=("duration_ns", "sum"),
        on_path_ns=("on_path_ns", "sum"),
        start_ns=("start_ns", "min"),
    )
    return groups.merge(longest, on="group").merge(most, on="group"), table["group"]


def _between(edges: pd.DataFrame, group_of: pd.Series) -> pd.DataFrame:
    table = pd.DataFrame({"src": edges["src"].map(group_of), "dst": edges["dst"].map(group_of)}).dropna()
    crossing = table[table["src"] != table["dst"]].astype(np.int64)
    counted = crossing.groupby(["src", "dst"]).size().rename("count").reset_index()
    labels = [count_text(count, "edge") for count in counted["count"]]
    labelled: pd.DataFrame = counted[["src", "dst"]].assign(label=labels)
    return labelled


@dataclass(frozen=True)
class Neighbourhood:
    """The nodes (node_id, hops, layer) around a node, and their edges (src, dst, kind).

    Outside of cycles, edges lead to later layers. ``cut`` means that the limit left out nodes.
    """

    nodes: pd.DataFrame
    edges: pd.DataFrame
    cut: bool


def neighbourhood(
    edges: pd.DataFrame, focus: int, hops: int, limit: int = 300, opened: Sequence[int] = ()
) -> Neighbourhood:
    """Return at most *limit* nodes within *hops* edges of the node *focus*, in layers.

    The neighbours of *opened* nodes are included, too.
    """
    src, dst = edges["src"].to_numpy(np.int64), edges["dst"].to_numpy(np.int64)
    distance, cut = _reach(src, dst, focus, hops, limit)
    for node in opened:
        if node in distance:
            near, more = _reach(src, dst, node, 1, limit)
            fresh = [each for each in near if each not in distance][: max(0, limit - len(distance))]
            distance |= dict.fromkeys(fresh, distance[node] + 1)
            cut = cut or more
    ids = np.array(list(distance), dtype=np.int64)
    inside = np.isin(src, ids) & np.isin(dst, ids)
    among = edges[inside].reset_index(drop=True)
    layers = _layers(ids, among["src"].to_numpy(np.int64), among["dst"].to_numpy(np.int64))
    nodes = pd.DataFrame({"node_id": ids, "hops": list(distance.values()), "layer": layers})
    nodes = nodes.sort_values(["layer", "hops", "node_id"], kind="stable").reset_index(drop=True)
    return Neighbourhood(nodes, among, cut)


@dataclass(frozen=True)
class Neighbour:
    """A direct neighbour of a node: its id, its name, the kind of edge, and whether it runs *before*.

    *of* is the number of neighbours that run before, or of those that run after.
    """

    before: bool
    node_id: int
    name: str
    why: str
    of: int


def neighbours(
    edges: pd.DataFrame, name_of: Callable[[int], str], focus: int, count: int = 8
) -> list[Neighbour]:
    """Return the dependencies and the dependents of *focus*, at most *count* of each."""
    rows = []
    for before, here, there in ((True, "dst", "src"), (False, "src", "dst")):
        near = edges[edges[here] == focus]
        first = near.head(count)
        for kind, node in zip(first["kind"].tolist(), first[there].tolist(), strict=True):
            rows.append(Neighbour(before, node, name_of(node), edge_label(kind), len(near)))
    return rows


def _reach(src: Ints, dst: Ints, focus: int, hops: int, limit: int) -> tuple[dict[int, int], bool]:
    """Return the number of hops from *focus* to each node, and whether there are more than *limit* nodes.

    The search works on arrays, because the whole graph has too many edges for networkx.
    """
    distance, front = {focus: 0}, np.array([focus])
    for hop in range(1, hops + 1):
        near = np.union1d(dst[np.isin(src, front)], src[np.isin(dst, front)])
        fresh = [int(node) for node in near if int(node) not in distance]
        for node in fresh:
            if len(distance) >= limit:
                return distance, True
            distance[node] = hop
        front = np.array(fresh, dtype=np.int64)
    return distance, False


def _layers(ids: Ints, src: Ints, dst: Ints) -> list[int]:
    """Return each node's layer: the longest path (in edges) to it within the neighbourhood.

    A node with no more dependencies than dependents is moved to the layer before its first dependent, so
    that few edges cross many layers. Nodes in a cycle share a layer.
    """
    import networkx as nx  # noqa: PLC0415 - slow to import, and one page in twenty needs it

    graph = nx.DiGraph()
    graph.add_nodes_from(ids.tolist())
    graph.add_edges_from(zip(src.tolist(), dst.tolist(), strict=True))
    knots = nx.condensation(graph)
    layer = {
        knot: number for number, knots_of in enumerate(nx.topological_generations(knots)) for knot in knots_of
    }
    for knot in sorted(layer, key=layer.__getitem__, reverse=True):
        after = [layer[each] for each in knots.successors(knot)]
        if after and knots.in_degree(knot) <= len(after):
            layer[knot] = min(after) - 1
    return [layer[knots.graph["mapping"][node]] for node in ids.tolist()]


ON_PATH = -1
"""Pseudo kind of edge: selects the edges on the critical path."""
_MAKERS = {"modules": module_groups, "phases": phase_groups, "streams": stream_groups}
_FACTS = ["rank", "node_id", "name", "kind", "module", "start_ns"]
_GROUP_FACTS = ["group", "name", "band", "kind", "count", "duration_ns", "on_path_ns", "rank", "node_id"]


def edges_of(run: RunAnalysis, rank: int, kinds: Sequence[int]) -> pd.DataFrame:
    """Return the edges of *kinds* in the program of *rank*; `ON_PATH` selects those on the critical path."""
    edges = run.edges_of(rank)
    chosen: pd.DataFrame = edges[edges["kind"].isin(kinds)]
    if ON_PATH in kinds:
        along = causes(run, rank)
        pairs = zip(chosen["src"].tolist(), chosen["dst"].tolist(), strict=True)
        chosen = chosen[[pair in along for pair in pairs]]
    return chosen


def causes(run: RunAnalysis, rank: int) -> set[tuple[int, int]]:
    """Return the edges on the critical path on *rank*, as (source, target) node ids."""
    path = run.path.unreasoned
    own = run.nodes_of(rank)
    own = own[own["node_id"].isin(path.loc[path["rank"] == rank, "node_id"])]
    return set(zip(own["cause_node"].tolist(), own["node_id"].tolist(), strict=True))


def folded(run: RunAnalysis, rank: int, fold: str, edges: pd.DataFrame) -> Groups:
    """Fold the nodes of *rank*, or of all ranks, by *fold*, one of :data:`FOLDS`."""
    path = run.path.unreasoned
    if fold == "ranks":
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
    """Return the ``nodes`` and ``edges`` around *node* of *rank*, or of a folded graph.

    Nodes have ``duration_ns`` and ``on_path_ns``, their time on the critical path. Edges have
    ``why``, their meaning, and ``on_path``. Groups of a folded graph have a number instead of a
    node id. The neighbours of *opened* nodes are included.
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
