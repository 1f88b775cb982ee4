"""Shortest ways between ranks, and dimensions proven from them, against all ways written out."""

from __future__ import annotations

import networkx as nx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.runner.config import FabricLink
from chakrascope.runner.config._symmetry import distances, find_dimensions

RANKS = 4
_WIRE = st.builds(
    FabricLink,
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from([10, 25, 40]),
    st.sampled_from([0, 1, 7]),
)


def every_way(wires, source, target):
    """Return latency and slowest link of every way with the fewest links that passes no other rank."""
    graph = nx.MultiGraph()
    graph.add_nodes_from(range(10))
    graph.add_edges_from((wire.a, wire.b, number) for number, wire in enumerate(wires))
    graph.remove_nodes_from(set(range(RANKS)) - {source, target})
    if not nx.has_path(graph, source, target):
        return 0, []
    fewest = nx.shortest_path_length(graph, source, target)
    ways = nx.all_simple_edge_paths(graph, source, target, cutoff=fewest)
    used = [[wires[number] for _, _, number in way] for way in ways]
    return fewest, [(sum(w.delay_ps for w in way), min(w.rate_bps for w in way)) for way in used]


@settings(max_examples=50, deadline=None)
@given(st.lists(_WIRE.filter(lambda wire: wire.a != wire.b), min_size=1, max_size=14))
def test_ways_are_the_extremes_of_all_shortest_ones(wires):
    for source, row in distances(RANKS, wires):
        for target, way in enumerate(row):
            if source == target:
                continue
            fewest, figures = every_way(wires, source, target)
            assert (way is None) == (not figures)
            if way is None:
                continue
            latencies, rates = zip(*figures, strict=True)
            assert way.hops == fewest
            assert (way.least_ps, way.most_ps) == (min(latencies), max(latencies))
            assert way.slowest_bps == min(rates)


def torus(*sizes):
    """Return rings of *sizes*, lowest dimension first, between ranks themselves: 10 bit/s and 5 ps a link."""
    strides = [1]
    for size in sizes:
        strides.append(strides[-1] * size)
    wires = set()
    for rank in range(strides[-1]):
        for size, stride in zip(sizes, strides, strict=False):
            place = rank // stride % size
            other = rank + ((place + 1) % size - place) * stride
            wires.add((min(rank, other), max(rank, other)))
    ranks = strides[-1]
    own = [FabricLink(rank, ranks + rank, 80, 0) for rank in range(ranks)]
    return ranks, own + [FabricLink(ranks + a, ranks + b, 10, 5) for a, b in sorted(wires)]


@pytest.mark.parametrize("sizes", [(4,), (8,), (4, 4), (5, 4), (4, 2), (3, 4, 5), (2, 2, 2)])
def test_tori_are_found(sizes):
    ranks, wires = torus(*sizes)
    found, reason = find_dimensions(ranks, wires, 2)
    assert [item.count for item in found] == list(sizes), reason
    assert all(item.shape == ("Ring" if item.count > 3 else "FullyConnected") for item in found)
    assert all((item.rate_bps, item.delay_ps) == (10, 5) for item in found)


@pytest.mark.parametrize("sizes", [(8,), (4, 4), (3, 4, 5)])
def test_a_torus_with_one_odd_link_is_none(sizes):
    ranks, wires = torus(*sizes)
    for odd in (FabricLink(wires[-1].a, wires[-1].b, 10, 6), FabricLink(wires[-1].a, wires[-1].b, 9, 5)):
        found, reason = find_dimensions(ranks, [*wires[:-1], odd], 2)
        assert not found
        assert reason
    assert not find_dimensions(ranks, wires[:-1], 2)[0]


def test_groups_out_of_order_are_none():
    star = [FabricLink(rank, 4 + rank % 2, 10, 5) for rank in range(4)]
    assert not find_dimensions(4, [*star, FabricLink(4, 6, 10, 5), FabricLink(5, 6, 10, 5)])[0]
    nested = [FabricLink(rank, 4 + rank // 2, 10, 5) for rank in range(4)]
    found, _ = find_dimensions(4, [*nested, FabricLink(4, 6, 10, 5), FabricLink(5, 6, 10, 5)])
    assert [(item.shape, item.count, item.delay_ps) for item in found] == [
        ("Switch", 2, 5),
        ("Switch", 2, 10),
    ]
