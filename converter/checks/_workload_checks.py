"""Check a workload for problems that stop a simulation, such as circular waits, or invalidate its result."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ...support.table import positions
from ..chakra import (
    MESSAGES,
    CollectiveType,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    circular_wait,
    has_attributes,
    has_unknown_type,
    shortest_cycle,
    unreachable,
)
from ..kernels import unsized_communication
from ._findings import Finding

if TYPE_CHECKING:
    import pandas as pd

_COMM = (*MESSAGES, NodeType.COMM_COLL)
_NOT_SIMULATED = frozenset(
    {
        CollectiveType.REDUCE,
        CollectiveType.GATHER,
        CollectiveType.SCATTER,
        CollectiveType.REDUCE_SCATTER_BLOCK,
        CollectiveType.BARRIER,
    }
)
_CONVERT_AGAIN = "Convert the traces again, or obtain the file again from its source."
_CONVERT_HERE = (
    "The converter of mlc-chakra wrote this file. Next: convert its source with `chakrascope convert "
    "--linked-trace LINKED.json -o PREFIX`, or better the two unlinked traces with --host-trace and "
    "--device-trace."
)
_MAY_BE_UNEVEN = frozenset(
    {CollectiveType.ALL_TO_ALL, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER}
)
# Part of the text of the assumption about traces that lack the groups of collectives.
_UNNAMED = "all ranks are assumed"
# Maximum number of nodes to check for deadlocks. Larger workloads are usually scaled out from workloads that
# can be checked.
_MAX_NODES = 5_000_000
# Attributes of PyTorch's host traces that only the public converter copies.
_PUBLIC_ATTRIBUTES = ("fw_parent", "op_schema")


def check_workload(workload: Workload, place: str = "workload") -> list[Finding]:
    """Return the problems of *workload*; *place* names the workload in the findings."""
    findings: list[Finding] = []
    for graph in workload.graphs:
        findings += _check_graph(graph, f"{place}, rank {graph.rank}")
    if workload.representative_of_rank is not None:  # ranks that another rank represents have no graph
        return findings
    findings += _check_presence(workload, place)
    findings += _check_groups(workload, place)
    findings += _check_collectives(workload, place)
    findings += _check_peers(workload, place)
    if all(finding.severity != "error" for finding in findings):
        findings += _check_waits(workload, place)
    return findings


def _check_graph(graph: Graph, place: str) -> Iterator[Finding]:
    """Check the graph of one program independently of other programs."""
    if graph.nodes.empty:
        yield Finding(
            "error", place, "The graph has no nodes, so there is nothing to simulate.", _CONVERT_AGAIN
        )
        return
    remedy = _CONVERT_HERE if has_attributes(graph, _PUBLIC_ATTRIBUTES) else _CONVERT_AGAIN
    yield from _check_edges(graph, place, remedy)
    yield from _check_nodes(graph, place, remedy)
    yield from _check_dependents(graph, place, remedy)


def _check_edges(graph: Graph, place: str, remedy: str) -> Iterator[Finding]:
    """Check that dependencies refer to existing nodes and form no cycle."""
    ids = graph.nodes["node_id"].to_numpy()
    src, dst = (positions(ids, graph.edges[end].to_numpy()) for end in ("src", "dst"))
    exists = src >= 0
    if not exists.all():
        edge = graph.edges.iloc[int(np.argmin(exists))]
        yield Finding(
            "error",
            f"{place}, node {edge['dst']}",
            f"It waits for node {edge['src']}, which does not exist ({(~exists).sum()} such dependencies). "
            "Simulators refuse the file.",
            remedy,
        )
    exists &= dst >= 0
    src, dst = src[exists], dst[exists]
    stuck = unreachable(len(ids), src, dst)
    if stuck.any():
        among = stuck[src] & stuck[dst]
        cycle = shortest_cycle(src[among].tolist(), dst[among].tolist())
        yield _cycle_finding(graph, cycle, int(stuck.sum()), place, remedy)


def _cycle_finding(graph: Graph, cycle: Sequence[int], stuck: int, place: str, remedy: str) -> Finding:
    """Return the finding for the dependency *cycle*, given as positions of nodes."""
    nodes = graph.nodes.iloc[list(cycle)]
    kinds = {(src, dst): EdgeKind(kind) for src, dst, kind in graph.edges.itertuples(index=False)}
    ids, names = nodes["node_id"].tolist(), nodes["name"].tolist()
    steps = []
    for index, (node, name) in enumerate(zip(ids, names, strict=True)):
        reason = kinds[ids[index - 1], node].name.lower().replace("_", " ")
        steps.append(f"node {node} '{name}' waits for node {ids[index - 1]} ({reason})")
    return Finding(
        "error",
        f"{place}, node {ids[0] if ids else '?'}",
        f"Nodes wait for each other in a dependency cycle: {'; '.join(steps)}. {stuck} nodes never run.",
        remedy,
    )


def _check_nodes(graph: Graph, place: str, remedy: str) -> Iterator[Finding]:
    """Check the types, sizes and ranks of all nodes."""
    nodes = graph.nodes
    comm, collective = nodes["type"].isin(_COMM), nodes["type"] == NodeType.COMM_COLL
    peer, sizes = nodes["type"].isin(MESSAGES), nodes["comm_size_bytes"]
    unending = ((nodes["type"] == NodeType.COMM_SEND) & (nodes["comm_dst"] < 0)) | (
        (nodes["type"] == NodeType.COMM_RECV) & (nodes["comm_src"] < 0)
    )
    unsimulated = nodes["comm_type"].isin([int(kind) for kind in _NOT_SIMULATED])
    invalid = nodes["type"] == NodeType.INVALID
    newer = nodes["node_id"].isin(
        [node for node in nodes.loc[invalid, "node_id"].tolist() if has_unknown_type(graph, node)]
    )
    errors = {
        "nodes of an unknown type, which simulators refuse": newer,
        "communication marked as a CPU operation, which ASTRA-sim refuses": comm & nodes["is_cpu_op"],
        "communication without a size": comm & (sizes < 0),
        "point-to-point messages of 0 bytes, at which ASTRA-sim stops": peer & (sizes == 0),
        "receives without a source or sends without a destination": unending,
        "collectives without a type": collective & (nodes["comm_type"] < 0),
    }
    warnings = {
        "METADATA nodes, at which ASTRA-sim stops (Chakrascope counts their time as 0)": nodes["type"]
        == NodeType.METADATA,
        ("nodes of type INVALID, at which ASTRA-sim hangs (Chakrascope counts their time as 0)"): invalid
        & ~newer,
        ("collectives at which ASTRA-sim stops (only Chakrascope's engine supports them)"): collective
        & unsimulated,
    }
    for what, found in {**errors, **warnings}.items():
        if found.any():
            first = nodes.loc[found].iloc[0]
            yield Finding(
                "error" if what in errors else "warning",
                f"{place}, node {first['node_id']} '{first['name']}'",
                f"The graph has {what}: {int(found.sum())} in all.",
                remedy,
            )


def _check_dependents(graph: Graph, place: str, remedy: str) -> Iterator[Finding]:
    """Check that some node waits for device work, if the graph also contains host work."""
    nodes, sources = graph.nodes, graph.edges["src"]
    work = nodes.loc[~nodes["is_cpu_op"] & (nodes["type"] >= NodeType.COMP), ["node_id", "stream"]]
    if not nodes["is_cpu_op"].any() or work.empty or sources.isin(work["node_id"]).any():
        return
    if remedy != _CONVERT_HERE and not work["stream"].duplicated().any():
        return  # every stream has only one piece of device work
    yield Finding(
        "error",
        place,
        f"No node waits for the device's work ({len(work)} nodes), not even later work on the same stream, "
        "so a slower network or device would hardly change the step.",
        remedy,
    )


def _check_presence(workload: Workload, place: str) -> Iterator[Finding]:
    """Check that ranks communicate, because otherwise the network has no effect."""
    unsized = unsized_communication(workload)
    if unsized is not None:
        yield Finding("note", place, unsized.text, "Capture with a host trace, or with record_shapes.")
    elif workload.num_ranks > 1 and not workload.summary()["communication_nodes"]:
        yield Finding(
            "warning",
            place,
            f"The {workload.num_ranks} ranks never communicate, so the network has no effect.",
            "If the job communicates, capture a step with communication (with gradient accumulation, the "
            "last step of a cycle).",
        )


def _check_groups(workload: Workload, place: str) -> Iterator[Finding]:
    """Check that the groups of collectives exist, contain the issuing rank, and have valid ranks."""
    used = _collectives(workload)
    for number, ranks in workload.groups.items():
        outside = [rank for rank in ranks if not 0 <= rank < workload.num_ranks]
        if outside or len(set(ranks)) < len(ranks):
            what = f"rank {outside[0]}" if outside else "a rank twice"
            yield Finding(
                "error",
                f"{place}, group {number}",
                f"It lists {what}; the workload has ranks 0 to {workload.num_ranks - 1}.",
                "Correct the groups file, or convert the traces again.",
            )
    for number in sorted(set(used["group"]) - {0}):
        issuing = sorted(set(used.loc[used["group"] == number, "rank"].tolist()))
        members = workload.groups.get(number)
        strangers = [rank for rank in issuing if members is None or rank not in members]
        if strangers:
            state = "does not exist" if members is None else "does not contain this rank"
            yield Finding(
                "error",
                f"{place}, rank {strangers[0]}",
                f"It communicates in group {number}, which {state}.",
                "Give the groups file that belongs to these graphs, or convert the traces again.",
            )


def _collectives(workload: Workload) -> pd.DataFrame:
    """Return the collectives of all ranks in program order: rank, node_id, name, comm_type, size, group."""
    import pandas as pd  # noqa: PLC0415 - converting does without

    columns = ["node_id", "name", "comm_type", "comm_size_bytes", "group"]
    tables = []
    for rank, program in enumerate(workload.program_of_rank.tolist()):
        nodes = workload.graphs[program].nodes
        tables.append(nodes.loc[nodes["type"] == NodeType.COMM_COLL, columns].assign(rank=rank))
    table: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return table


def _check_collectives(workload: Workload, place: str) -> Iterator[Finding]:
    """Check that all members of a group issue the same collectives in the same order."""
    for number, used in _collectives(workload).groupby("group"):
        group = int(str(number))
        members = workload.groups.get(group) or range(workload.num_ranks)
        by_rank = {int(str(rank)): part for rank, part in used.groupby("rank")}
        first, *others = [rank for rank in members if rank < workload.num_ranks]
        where = f"{place}, group {group}" if group else f"{place}, all ranks"
        yield from _check_sizes({rank: by_rank[rank] for rank in members if rank in by_rank}, where)
        for rank in others:
            finding = _compare(by_rank.get(first), by_rank.get(rank), first, rank)
            if finding is not None:
                if not group and any(_UNNAMED in note for note in workload.metadata.get("assumptions", [])):
                    finding += " They may belong to different groups, which the traces do not name."
                yield Finding(
                    "error",
                    where,
                    finding,
                    "Capture the same step on every rank, with all events. If the ranks' programs differ, "
                    "simulate only steps in which they are equal; or read each trace alone, as in "
                    "`chakrascope summary TRACE`.",
                )
                break


def _check_sizes(by_rank: dict[int, pd.DataFrame], where: str) -> Iterator[Finding]:
    """Check that all members of a group state the same size of a collective, as ASTRA-sim requires."""
    listed = [(rank, _listed(table)) for rank, table in by_rank.items()]
    for index, parts in enumerate(zip(*(collectives for _, collectives in listed), strict=False)):
        kinds, sizes = {part[1] for part in parts}, [part[2] for part in parts]
        if len(kinds) > 1 or not kinds <= _MAY_BE_UNEVEN or len(set(sizes)) == 1:
            continue
        other = next(place for place, size in enumerate(sizes) if size != sizes[0])
        yield Finding(
            "warning",
            where,
            f"Collective {index} is {_described(parts[0])} on rank {listed[0][0]} (node {parts[0][0]}) and "
            f"{_described(parts[other])} on rank {listed[other][0]} (node {parts[other][0]}): the "
            "collective is uneven, and ASTRA-sim never completes it. With semantics 'trace', it runs as "
            "messages between the ranks, with equal shares if the graphs do not list the amounts.",
            "Convert the traces again, which adds the bytes of each member (comm_splits).",
        )
        return


def _compare(ours: pd.DataFrame | None, theirs: pd.DataFrame | None, first: int, rank: int) -> str | None:
    """Return the first difference between the collectives of two ranks, or None if they are equal."""
    if ours is None or theirs is None:
        lone, silent = (rank, first) if ours is None else (first, rank)
        return f"Rank {lone} issues collectives and rank {silent} issues none."
    for index, (mine, its) in enumerate(zip(_listed(ours), _listed(theirs), strict=False)):
        if mine[1] != its[1] or (mine[2] != its[2] and mine[1] not in _MAY_BE_UNEVEN):
            return (
                f"Collective {index} is {_described(mine)} on rank {first} (node {mine[0]}) but "
                f"{_described(its)} on rank {rank} (node {its[0]})."
            )
    if len(ours) != len(theirs):
        return f"Rank {first} issues {len(ours)} collectives, rank {rank} {len(theirs)}."
    return None


def _listed(table: pd.DataFrame) -> list[tuple[int, int, int]]:
    """Return (node id, collective, bytes) of each row."""
    columns = (table[name].tolist() for name in ("node_id", "comm_type", "comm_size_bytes"))
    return list(zip(*columns, strict=True))


def _described(collective: tuple[int, int, int]) -> str:
    _, kind, size = collective
    exists = 0 <= kind < len(CollectiveType)
    return f"{CollectiveType(kind).name.lower() if exists else 'unknown'} of {size} bytes"


def _check_peers(workload: Workload, place: str) -> Iterator[Finding]:
    """Check that every send matches a receive of the same size and tag."""
    import pandas as pd  # noqa: PLC0415 - converting does without

    tables = {NodeType.COMM_SEND: ("rank", "comm_dst"), NodeType.COMM_RECV: ("comm_src", "rank")}
    counts = {}
    for node_type, (source, target) in tables.items():
        found = []
        for rank, program in enumerate(workload.program_of_rank.tolist()):
            nodes = workload.graphs[program].nodes
            found.append(nodes.loc[nodes["type"] == node_type].assign(rank=rank))
        table = pd.concat(found, ignore_index=True)
        keys = [table[source].tolist(), table[target].tolist(), table["comm_tag"].tolist()]
        counts[node_type] = pd.Series(zip(*keys, strict=True), dtype=object).value_counts()
    sends, receives = counts[NodeType.COMM_SEND], counts[NodeType.COMM_RECV]
    balance = sends.sub(receives, fill_value=0)
    wrong = balance[balance != 0]
    if len(wrong):
        (source, target, tag), more = min(wrong.items(), key=lambda item: str(item[0]))
        lacking = "receive" if more > 0 else "send"
        yield Finding(
            "error",
            f"{place}, rank {target if more > 0 else source}",
            f"{abs(int(more))} {lacking}(s) are missing for messages from rank {source} to rank {target} "
            f"with tag {tag}; in all {len(wrong)} pairs of ranks do not match.",
            "Capture the same step on every rank: with pipelines, steps must start and end together.",
        )


def _check_waits(workload: Workload, place: str) -> Iterator[Finding]:
    """Check that individually valid ranks do not deadlock with each other."""
    ranks = {rank: workload.graph_of(rank) for rank in range(workload.num_ranks)}
    if sum(graph.num_nodes for graph in ranks.values()) > _MAX_NODES:
        return
    circle = circular_wait(ranks)
    if circle is not None:
        yield Finding(
            "error",
            place,
            f"{circle} Simulations stall there.",
            "Convert the traces again; in graphs from another tool, remove one of these dependencies.",
        )
