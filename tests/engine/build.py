"""Short notations for nodes and configurations of the engine's tests."""

from __future__ import annotations

import math

import et

from chakrascope.runner import engine
from chakrascope.runner.config import Fabric, FabricLink


def config(**settings) -> engine.Config:
    """Return a ring of 4 with one algorithm for each collective; *settings* override.

    Messages queue if the network is *aware*; *links* replace the ring if they are given.
    """
    chosen = engine.Config()
    defaults = {
        "topology": ["Ring"],
        "npus_count": [4],
        "bandwidth": [50.0],
        "latency": [500.0],
        "all_reduce_implementation": ["ring"],
        "all_gather_implementation": ["ring"],
        "reduce_scatter_implementation": ["ring"],
        "all_to_all_implementation": ["ring"],
    }
    links = settings.pop("links", ())
    if settings.pop("aware", False):
        chosen.network_model = engine.NetworkModel.AWARE
    for name, value in (defaults | settings).items():
        setattr(chosen, name, value)
    if links:
        chosen.set_fabric(fabric(math.prod(chosen.npus_count), links))
    return chosen


def fabric(ranks, links) -> Fabric:
    """Return the *links* (both nodes, bit/s, ps) of *ranks* and of switches, numbered after the ranks."""
    nodes = max(ranks, *(1 + max(link[:2]) for link in links))
    return Fabric(nodes, tuple(range(ranks, nodes)), tuple(FabricLink(*link) for link in links))


def comp(node_id, micros=1, after=(), **facts):
    return {
        "id": node_id,
        "name": f"comp{node_id}",
        "type": "COMP",
        "duration_micros": micros,
        "data_deps": after,
    } | facts


def coll(node_id, size=1 << 20, after=(), comm_type="ALL_REDUCE", **facts):
    kind = {"id": node_id, "name": f"coll{node_id}", "type": "COLL", "comm_type": comm_type}
    return kind | {"comm_size": size, "data_deps": after} | facts


def send(node_id, source, to, size=1024, *, after=(), tag=1):
    place = {"comm_src": source, "comm_dst": to, "comm_tag": tag, "comm_size": size}
    return {"id": node_id, "name": f"send{node_id}", "type": "SEND", "data_deps": after} | place


def recv(node_id, source, to, size=1024, *, after=(), tag=1):
    return send(node_id, source, to, size, after=after, tag=tag) | {"name": f"recv{node_id}", "type": "RECV"}


def run(ranks, settings=None, **more):
    """Simulate one list of nodes per rank."""
    programs = [et.program(nodes) for nodes in ranks]
    return engine.simulate(settings or config(npus_count=[len(ranks)], **more), programs, range(len(ranks)))


def finish(ranks, settings=None, **more):
    return run(ranks, settings, **more).rank_finish_ns.tolist()
