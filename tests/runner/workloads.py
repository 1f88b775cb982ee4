"""Build small workloads for tests: a list of node mappings per rank."""

from __future__ import annotations

import numpy as np

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload


def comp(node_id, duration_ns, after=(), **facts):
    return {
        "node_id": node_id,
        "name": f"op{node_id}",
        "type": NodeType.COMP,
        "duration_ns": duration_ns,
        "operator": "aten::mm",
        "module": "layers.0",
        "phase": "forward",
        "kind": "compute",
        "after": after,
    } | facts


def coll(node_id, size_bytes, after=(), comm_type=CollectiveType.ALL_REDUCE, **facts):
    return {
        "node_id": node_id,
        "name": f"coll{node_id}",
        "type": NodeType.COMM_COLL,
        "duration_ns": 1000,
        "comm_type": comm_type,
        "comm_size_bytes": size_bytes,
        "stream": 1,
        "kind": "communication",
        "phase": "backward",
        "after": after,
    } | facts


def workload(*ranks, groups=None, metadata=None):
    graphs = []
    for rank, nodes in enumerate(ranks):
        edges = [(source, node["node_id"], EdgeKind.DATA) for node in nodes for source in node["after"]]
        plain = [{key: value for key, value in node.items() if key != "after"} for node in nodes]
        graphs.append(Graph.build(rank, plain, edges))
    return Workload(tuple(graphs), np.arange(len(ranks), dtype=np.int32), groups or {}, metadata or {})
