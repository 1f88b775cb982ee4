"""Change a workload or a network for a what-if."""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from ....converter import CollectiveType, Graph, NodeType, Workload
from ....converter.chakra import BUFFERS, DELAYED, EDGE_COLUMNS
from ....errors import UsageError, did_you_mean
from ....support.table import Flags, TextColumn
from ..._sync_points import SyncPoints
from ..._traits import about_backend, backends_that
from ...config import NetworkConfig, PacketPart, TcpPart, fabric_of, written_out
from .._call_tree import only_callees
from .._host_time import INSIDE_CALLS, SHORT, diffuse_host, least_stall_ns, short_loops, typical_host_ns
from .._labels import at_place, function_of, within
from .._memory_traffic import (
    FUSIBLE,
    PRECISIONS,
    REPEATED,
    Accesses,
    accesses,
    fusible_chains,
    operators_in,
    repeated_copies,
)
from .._path_facts import collective_label, copy_direction
from ._target import COMMUNICATION, Target

_LINK = re.compile(r"(\d{1,18})-(\d{1,18})")


def with_faster_network(network: NetworkConfig, backend: str, target: Target, times: float) -> NetworkConfig:
    """Return *network* for *backend* with the target dimension or link *times* as fast.

    Raises `UsageError` if the network lacks the dimension or link.
    """
    if target.what == "link":
        return _with_faster_link(network, backend, target, times)
    if not (target.name.isdecimal() and len(target.name) < 19 and int(target.name) < network.dimensions):
        choices = ", ".join(f"{target.what}:{dimension}" for dimension in range(network.dimensions))
        raise UsageError(
            f"The network '{network.name}' has no dimension '{target.name[:20]}'; choose from {choices}."
        )
    if _link_list(network, backend):
        raise UsageError(
            f"The network '{network.name}' is a list of links, so its dimensions have no speed on "
            f"'{backend}'. Next: change a link (link:0-8)."
        )
    factors = [times if dimension == int(target.name) else 1.0 for dimension in range(network.dimensions)]
    pairs = zip(getattr(network, target.what), factors, strict=True)
    if target.what == "bandwidth":
        return dataclasses.replace(network, bandwidth=tuple(value * factor for value, factor in pairs))
    return dataclasses.replace(network, latency=tuple(value / factor for value, factor in pairs))


def with_less_latency(network: NetworkConfig, times: float) -> NetworkConfig:
    """Return *network* with the latency of every dimension and link divided by *times*."""
    packet = network.packet
    if packet is not None and packet.topology is not None:
        links = tuple(link._replace(delay_ps=round(link.delay_ps / times)) for link in packet.topology.links)
        packet = dataclasses.replace(packet, topology=dataclasses.replace(packet.topology, links=links))
    return dataclasses.replace(
        network,
        latency=tuple(latency / times for latency in network.latency),
        links=tuple(link._replace(latency=link.latency / times) for link in network.links),
        packet=packet,
    )


def _link_list(network: NetworkConfig, backend: str) -> bool:
    listed = network.packet is not None and network.packet.topology is not None
    return (bool(network.links) or listed) and about_backend(backend).links


def _with_faster_link(network: NetworkConfig, backend: str, target: Target, times: float) -> NetworkConfig:
    match = _LINK.fullmatch(target.name)
    if match is None:
        raise UsageError(
            f"'{target.name[:60]}' is not a link. Next: write the numbers of the link's two ends, such as "
            "link:0-8."
        )
    ends = {int(match[1]), int(match[2])}
    traits = about_backend(backend)
    if traits.fabric or (traits.links and network.packet is not None and network.packet.is_graph):
        return _with_packet_link(network, ends, times)
    if not traits.links or not network.links:
        raise UsageError(
            f"'{backend}' does not model the links of the network '{network.name}', which is described by "
            f"dimensions. Next: change a dimension (bandwidth:0), or use a run on {backends_that('buffers')}."
        )
    changed = tuple(
        link._replace(bandwidth=link.bandwidth * (times if {link.a, link.b} == ends else 1.0))
        for link in _checked_links(network.links, ends)
    )
    return dataclasses.replace(network, links=changed)


def _checked_links(links: Any, ends: set[int]) -> Any:
    if not any({link[0], link[1]} == ends for link in links):
        raise UsageError(
            f"The network has no link between {' and '.join(map(str, sorted(ends)))}. Switches are numbered "
            "after the ranks. Next: `chakrascope summary STUDY --view links` lists all links."
        )
    return links


def _with_packet_link(network: NetworkConfig, ends: set[int], times: float) -> NetworkConfig:
    """Return *network* as an explicit packet-level topology, with the link between *ends* changed."""
    fabric, failures = written_out(network)
    device = fabric.device_of_node
    _checked_links(fabric_of(network).hosts_first().links, ends)
    links = [
        [
            link.a,
            link.b,
            f"{round(link.rate_bps * (times if {device[link.a], device[link.b]} == ends else 1))}bps",
            f"{link.delay_ps}ps",
            link.loss,
        ]
        for link in fabric.links
    ]
    topology = {"nodes": fabric.nodes, "switches": list(fabric.switches), "links": links}
    settings = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in fabric.settings.items()
    }
    # A network with packet settings means RoCE unless it also has TCP settings.
    tcp = (network.tcp or TcpPart()) if network.is_tcp else None
    part = PacketPart.from_mapping(settings | topology)
    return dataclasses.replace(network, packet=part, tcp=tcp, failures=failures)


_FACTS = ["type", "comm_type", "comm_size_bytes", "group"]
# Kinds of nodes that are not an operator's own work: dispatch and waits.
_NOT_WORK = frozenset({"host", "sync", "wait", "idle"})


def with_faster_nodes(
    workload: Workload, target: Target, times: float, *, measured: bool, sync: SyncPoints | None = None
) -> Workload:
    """Return *workload* with the durations of the target's nodes divided by *times*, rounded.

    For simulated communication, the data is divided instead of the duration; for communication of *measured*
    time, the time without the waits in *sync*. A stall is shortened to the typical piece of host work, and a
    fusible chain to the time of the fused kernel. Removed synchronisations do not wait. Raises `UsageError`
    if the target has no nodes, or if only the network determines their duration.
    """
    communicates = target.what == "collective" or target.key == COMMUNICATION
    is_data = communicates and not measured
    waits = _waits(workload, sync)
    graphs, count, changed = [], 0, 0
    data_accesses = accesses(workload.metadata if target.what == "fusion" else {})
    for graph, waited_ns in zip(workload.graphs, waits, strict=True):
        if target.what == "repeated":
            chosen = repeated_copies(graph, workload.metadata) & (target.name == REPEATED)
        else:
            chosen = _nodes_of(graph, target, workload.metadata, data_accesses)
        count += int(chosen.sum())
        if not (is_data or measured):
            chosen &= np.asarray(graph.node_columns["type"]) < NodeType.COMM_SEND
        changed += int(chosen.sum())
        graphs.append(
            _with_less_data(graph, chosen, times)
            if is_data
            else _faster(graph, target, chosen, times, known=data_accesses, waited_ns=waited_ns)
        )
    if not count and target == Target("fusion", FUSIBLE):
        raise UsageError("The workload has no chains of elementwise operators that could be fused.")
    if not count and target.what == "precision" and target.name in PRECISIONS:
        raise UsageError(f"The workload has no operators in {target.name}.")
    if not count and target == Target("repeated", REPEATED):
        raise UsageError("The workload has no casts or copies that repeat an earlier one.")
    if not count:
        raise UsageError(
            f"The workload has no {target.what} '{target.name[:60]}'"
            f"{did_you_mean(target.name, _names(workload, target))}"
        )
    if not changed:
        raise UsageError(
            f"The time of the {target.what} '{target.name[:60]}' depends on the network. Next: change the "
            "network (bandwidth:0) or the collective (collective:all_reduce)."
        )
    return dataclasses.replace(workload, graphs=tuple(graphs))


def _waits(workload: Workload, sync: SyncPoints | None) -> list[npt.NDArray[np.int64]]:
    """Return the time (ns) that each node waited for another rank, as an array per graph of *workload*."""
    if sync is None:
        return [np.zeros(1, np.int64)] * len(workload.graphs)
    rank_of = {program: rank for rank, program in enumerate(workload.program_of_rank.tolist())}
    return [
        sync.waits_of(rank_of[program], np.asarray(graph.node_columns["node_id"]))
        for program, graph in enumerate(workload.graphs)
    ]


def _faster(
    graph: Graph,
    target: Target,
    chosen: Flags,
    times: float,
    *,
    known: Accesses,
    waited_ns: npt.NDArray[np.int64],
) -> Graph:
    """Return *graph* with the *chosen* nodes faster; their waits, *waited_ns*, stay the same."""
    durations = np.array(graph.node_columns["duration_ns"])
    waits = np.broadcast_to(waited_ns, durations.shape)
    least = np.zeros(len(durations), np.int64)
    if target.what == "stall":
        least = np.minimum(durations, typical_host_ns(graph))
    elif target.what == "fusion":
        chains = fusible_chains(graph, known)
        least[chains.rows] = chains.fused_ns
    scaled = waits[chosen] + np.rint((durations - waits)[chosen] / times).astype(np.int64)
    durations[chosen] = np.maximum(scaled, least[chosen])
    faster = graph.with_columns(duration_ns=durations)
    return _without_waits(faster, chosen) if target.what == "sync" and times == math.inf else faster


def _without_waits(graph: Graph, chosen: Flags) -> Graph:
    """Return *graph* in which the *chosen* nodes wait for no node of another lane."""
    streams, ids = (np.asarray(graph.node_columns[name]) for name in ("stream", "node_id"))
    edges = np.stack([np.asarray(graph.edge_columns[name]).astype(np.int64) for name in EDGE_COLUMNS], axis=1)
    sources, targets = np.searchsorted(ids, edges[:, 0]), np.searchsorted(ids, edges[:, 1])
    return graph.with_edges(edges[~chosen[targets] | (streams[sources] == streams[targets])])


def _with_less_data(graph: Graph, chosen: Flags, times: float) -> Graph:
    values = np.asarray(graph.node_columns["comm_size_bytes"])
    unit = _units(values)
    smaller = np.maximum(np.rint(values / times / unit).astype(np.int64) * unit, unit)
    return graph.with_columns(comm_size_bytes=np.where(chosen & (values > 0), smaller, values))


def _units(sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return the largest power of two, at most 1024, that divides each size.

    ASTRA-sim puts the remainder of a size that is not divisible into another chunk, so that a
    smaller size could take longer than a larger one.
    """
    units: npt.NDArray[np.int64] = np.minimum(sizes & -sizes, 1024)
    return units


def _nodes_of(graph: Graph, target: Target, metadata: Mapping[str, Any], known: Accesses) -> Flags:
    nodes, is_it = graph.node_columns, target.name.__eq__
    texts: Mapping[str, TextColumn] = nodes
    if target.what == "module":
        inside = texts["module"].passes(within(target.name))
        return inside & ~texts["cause"].passes(DELAYED.__eq__)
    types: npt.NDArray[np.integer] = np.asarray(nodes["type"])
    if target.key == COMMUNICATION:
        is_message: Flags = types >= NodeType.COMM_SEND
        is_message |= texts["place"].passes({*BUFFERS.values()}.__contains__)
        is_message |= nodes["cause"] == INSIDE_CALLS
        return is_message | texts["kind"].passes(is_it)
    if target.what == "place":
        return texts["place"].passes(at_place(target.name))
    if target.what == "function":
        functions = only_callees(metadata, target.name)
        return texts["place"].passes(lambda place: function_of(place) in functions)
    if target.what == "collective":
        return _communications(graph, target.name, metadata)
    if target.what == "precision":
        return operators_in(target.name, graph, metadata)
    if target.what == "fusion":
        fusible: Flags = np.zeros(len(types), bool)
        fusible[fusible_chains(graph, known).rows] = target.name == FUSIBLE
        return fusible
    if target.what == "loops":
        return short_loops(graph) & (target.name == SHORT)
    if target.what == "kernel":
        is_kernel: Flags = types == NodeType.COMP
        return is_kernel & texts["name"].passes(is_it)
    if target.what == "copy":
        is_copy = texts["kind"].passes("copy".__eq__)
        return is_copy & texts["name"].passes(lambda name: copy_direction(name) == target.name)
    if target.key == "phase:optimizer":
        # Host work before the optimizer's first operator belongs to the script.
        on_host = texts["kind"].passes("host".__eq__)
        own = texts["phase"].passes(is_it) & ~on_host
        return own | texts["cause"].passes(is_it)
    named = texts["name"].passes(is_it)
    if target.what == "operator":
        # The critical path also uses the own name of a node that no operator issued.
        named &= nodes["operator"] == ""
    if target.what not in ("sync", "stall", "host", "operator"):
        return texts[target.what].passes(is_it)
    named |= texts["operator"].passes(is_it)
    if target.what == "operator":
        # A faster kernel does not shorten its operator's dispatch.
        work = named & ~texts["kind"].passes(_NOT_WORK.__contains__)
        return work if work.any() else named
    if target.what == "sync":
        return named & texts["kind"].passes("sync".__eq__)
    if target.what == "host" and target.name != "dispatch":
        return diffuse_host(graph) & texts["place"].passes(is_it)
    is_long: Flags = np.asarray(nodes["duration_ns"]) > least_stall_ns(graph)
    if target.what == "stall":
        return named & diffuse_host(graph) & is_long
    return diffuse_host(graph) & ~is_long & (target.name == "dispatch")


def _communications(graph: Graph, name: str, metadata: Mapping[str, Any]) -> Flags:
    types = np.asarray(graph.node_columns["type"])
    if name == "send_recv":
        return np.isin(types, [NodeType.COMM_SEND, NodeType.COMM_RECV])
    mask: Flags = np.zeros(len(types), bool)
    for facts, rows in _collectives(graph, metadata):
        mask[rows] = name in facts
    if name in BUFFERS and mask.any():
        mask |= graph.node_columns["place"] == BUFFERS[name]
    operators = graph.node_columns["operator"]
    issuing = {*operators[np.flatnonzero(mask)].compact().texts} - {""}
    inside = graph.node_columns["cause"] == INSIDE_CALLS
    mask |= inside & operators.passes(issuing.__contains__)
    return mask


def _collectives(
    graph: Graph, metadata: Mapping[str, Any]
) -> list[tuple[tuple[str, str], npt.NDArray[np.int64]]]:
    """Return the type and description of each kind of collective, with its rows."""
    rows = np.flatnonzero(graph.nodes["type"] == NodeType.COMM_COLL)
    groups = graph.nodes[_FACTS].iloc[rows].groupby(_FACTS, sort=False).indices
    collectives = []
    for key, places in groups.items():
        facts = dict(zip(_FACTS, (int(value) for value in key), strict=True))
        kind = CollectiveType(facts["comm_type"]).name.lower()
        names = kind, collective_label(metadata, kind, facts["comm_size_bytes"], facts["group"])
        collectives.append((names, rows[places]))
    return collectives


def _names(workload: Workload, target: Target) -> list[str]:
    if target.what == "collective":
        return sorted(
            {
                name
                for graph in workload.graphs
                for names, _ in _collectives(graph, workload.metadata)
                for name in names
            }
        )
    if target.what in ("fusion", "loops"):
        return [FUSIBLE if target.what == "fusion" else SHORT]
    if target.what in ("precision", "repeated"):
        return [*PRECISIONS] if target.what == "precision" else [REPEATED]
    columns = {
        "kernel": "name", "copy": "name", "sync": "name", "stall": "name", "host": "place",
        "function": "place",
    }  # fmt: skip
    column = columns.get(target.what, target.what)
    texts = {text for graph in workload.graphs for text in graph.node_columns[column].texts}
    named = {"copy": copy_direction, "function": function_of}.get(target.what, str)
    return sorted({named(text) for text in texts} - {""})


def without_edge(workload: Workload, rank: int, source: int, target: int) -> Workload:
    """Return *workload* in which node *target* of *rank* does not depend on node *source*.

    The change applies to all ranks of the same program. Raises `UsageError` if there is no such
    dependency.
    """
    if rank >= workload.num_ranks:
        raise UsageError(f"There is no rank {rank}: the workload has ranks 0 to {workload.num_ranks - 1}.")
    program = int(workload.program_of_rank[rank])
    graph = workload.graphs[program]
    edges = graph.edges
    dropped = ((edges["src"] == source) & (edges["dst"] == target)).to_numpy()
    if not dropped.any():
        others = ", ".join(map(str, edges.loc[edges["dst"] == target, "src"].head(8)))
        raise UsageError(
            f"Node {target} of rank {rank} does not depend on node {source}; it depends on "
            f"{'the nodes ' + others if others else 'none'}."
        )
    graphs = list(workload.graphs)
    graphs[program] = graph.with_edges(edges[~dropped].to_numpy(np.int64))
    return dataclasses.replace(workload, graphs=tuple(graphs))
