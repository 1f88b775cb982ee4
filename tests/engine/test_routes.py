"""Routes over a fabric: shortest ways, the hash that chooses between equal ones, and what windows need."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner import engine
from chakrascope.runner.config import Fabric, FabricLink, NetworkConfig, fabric_of

RECEIVER_PORT, INTERFACE_SEED = 100, 0x8BADF00D


def fabric(nodes, switches, links):
    return Fabric(nodes, tuple(switches), tuple(FabricLink(*link) for link in links))


def murmur(words, seed):
    """MurmurHash3 for 32 bits, in whole words."""
    mask = 0xFFFFFFFF

    def rotate(value, bits):
        return ((value << bits) | (value >> (32 - bits))) & mask

    value = seed
    for word in words:
        value ^= rotate(word * 0xCC9E2D51 & mask, 15) * 0x1B873593 & mask
        value = (rotate(value, 13) * 5 + 0xE6546B64) & mask
    value ^= 4 * len(words)
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        value = (value ^ (value >> shift)) * factor & mask
    return value ^ (value >> 16)


def address(host):
    return (11 << 24) + (host // 256 << 16) + (host % 256 << 8) + 1


def expected_path(described, source, destination, ports):
    """Return the directions by the rule: of the nearer neighbours by number, the hash's."""
    distance = {destination: 0}
    queue = [destination]
    leaving = {node: [] for node in range(described.nodes)}
    for index, (a, b, *_) in enumerate(described.links):
        leaving[a].append((b, 2 * index))
        leaving[b].append((a, 2 * index + 1))
    visited = []
    for node in queue:
        visited.append(node)
        for neighbour, _ in sorted(leaving[node], key=lambda item: item[0]):
            if neighbour not in distance:
                distance[neighbour] = distance[node] + 1
                if neighbour in described.switches:
                    queue.append(neighbour)
    if source not in distance:
        return []
    path, node = [], source
    while node != destination:
        ways = [
            direction
            for nearer in visited
            if distance[nearer] == distance[node] - 1
            for other, direction in leaving[node]
            if other == nearer
        ]
        seed = node if node in described.switches else INTERFACE_SEED
        words = [address(source), address(destination), ports]
        path.append(ways[murmur(words, seed) % len(ways)] if len(ways) > 1 else ways[0])
        node = described.links[path[-1] // 2][1 - path[-1] % 2]
    return path


@given(st.data())
def test_messages_take_the_shortest_ways_that_the_hash_chooses(data):
    hosts, switches = data.draw(st.integers(2, 6)), data.draw(st.integers(1, 6))
    nodes = hosts + switches
    ends = st.tuples(st.integers(0, nodes - 1), st.integers(0, nodes - 1)).filter(
        lambda pair: pair[0] != pair[1]
    )
    links = [(a, b, 10**9, 1000) for a, b in data.draw(st.lists(ends, min_size=1, max_size=20))]
    described = fabric(nodes, list(range(hosts, nodes)), links)
    routes = engine.Routes(described)
    for source in range(hosts):
        for destination in range(hosts):
            if source == destination:
                continue
            port = data.draw(st.integers(10_000, 10_050))
            for ports in (port | RECEIVER_PORT << 16, RECEIVER_PORT | port << 16):
                assert routes.path(source, destination, ports) == expected_path(
                    described, source, destination, ports
                )


def test_ways_are_spread_over_all_spines():
    clos = fabric_of(NetworkConfig.preset("clos-2tier-64"))
    routes = engine.Routes(clos)
    spines = {
        clos.links[path[1] // 2][1]
        for port in range(10_000, 10_200)
        if len(path := routes.path(0, 63, port | RECEIVER_PORT << 16)) == 4
    }
    leaf = clos.links[0][1]
    above = {b for a, b, *_ in clos.links if a == leaf}
    assert spines == above
    assert len(above) > 1


def test_astra_sim_s_clock_counts_switches_from_the_last():
    links = [(0, 2, 10**9, 0), (1, 3, 10**9, 0)]
    links += [(leaf, spine, 10**9, 0) for leaf in (2, 3) for spine in (4, 5)]
    described = fabric(6, [2, 3, 4, 5], links)
    ours, theirs = engine.Routes(described), engine.Routes(described, 1000)
    for port in range(10_000, 10_020):
        one, other = (routes.path(0, 1, port | RECEIVER_PORT << 16) for routes in (ours, theirs))
        # Of two ways, the hash takes the other one where they are counted from the other end.
        assert {one[1], other[1]} == {4, 6}


@pytest.mark.parametrize(("step", "delay_ps"), [(1, 1_500_600), (1000, 1_501_000)])
def test_a_window_is_sized_for_a_payload_and_the_slowest_link(step, delay_ps):
    described = fabric(3, [2], [(0, 2, 400 * 10**9, 1_500_600), (1, 2, 3 * 10**9, 0)])
    rtt, product = engine.Routes(described, step).measure(0, 1, 1000)
    sending = [8_000 * 10**12 // rate // step * step for rate in (400 * 10**9, 3 * 10**9)]
    assert rtt == 2 * delay_ps + sum(sending)
    assert product == rtt * 3 * 10**9 // (8 * 10**12)
