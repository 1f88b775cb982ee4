"""Build small workloads for tests: a list of node mappings per rank, and prices of generated steps."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import BREAKDOWNS, get_backend


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


def send(node_id, source, to, size_bytes=1000, after=(), **facts):
    return {
        "node_id": node_id,
        "name": "send",
        "type": NodeType.COMM_SEND,
        "duration_ns": 0,
        "comm_src": source,
        "comm_dst": to,
        "comm_tag": 1,
        "comm_size_bytes": size_bytes,
        "kind": "communication",
        "after": after,
    } | facts


def recv(node_id, source, to, size_bytes=1000, after=(), **facts):
    received = {"name": "recv", "type": NodeType.COMM_RECV} | facts
    return send(node_id, source, to, size_bytes, after, **received)


def workload(*ranks, groups=None, metadata=None):
    graphs = []
    for rank, nodes in enumerate(ranks):
        edges = [(source, node["node_id"], EdgeKind.DATA) for node in nodes for source in node["after"]]
        plain = [{key: value for key, value in node.items() if key != "after"} for node in nodes]
        graphs.append(Graph.build(rank, plain, edges))
    return Workload(tuple(graphs), np.arange(len(ranks), dtype=np.int32), groups or {}, metadata or {})


def makespan(asked):
    return get_backend(asked.backend).run(asked).makespan_ns


def check_path(path):
    """Check that the segments of a critical path, and its breakdowns, add up to the makespan."""
    segments = path.segments
    assert segments["start_ns"].iloc[0] == 0
    assert segments["end_ns"].iloc[-1] == path.makespan_ns
    assert (segments["start_ns"].to_numpy()[1:] == segments["end_ns"].to_numpy()[:-1]).all()
    assert segments["duration_ns"].sum() == path.makespan_ns
    for by in BREAKDOWNS:
        assert path.breakdown(by)["duration_ns"].sum() == path.makespan_ns


@dataclass(frozen=True)
class Prices:
    """The times of the operators and messages of a generated step."""

    host_ns: float = 0.0
    step_ns: float = 0.0
    unit_ns: float = 0.001  # per operation, and per byte that an operator moves
    begin_ns: float = 5.0
    byte_ns: float = 0.0  # of a message

    def operator_ns(self, operator):
        return self.unit_ns * (operator.flops + operator.moved_bytes)

    def start_ns(self, where):
        return self.begin_ns

    def slowed_ns(self, exchange, where):
        return self.byte_ns * exchange.size_bytes
