"""Networks with queues, routes over any graph of links, and the order of chunks in them."""

import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import build
from chakrascope.runner import engine
from chakrascope.runner.config import Fabric, FabricLink, NetworkConfig, fabric_of

UNIT = 1e9 / 1073741824  # the bandwidth of one byte per nanosecond, in the file's units
RATE, DELAY = 8 * 10**9, 100_000  # the same in bit/s, and 100 ns in ps


def p2p(pairs, ranks, size=1000):
    """Return programs in which each pair exchanges one message."""
    programs = [[] for _ in range(ranks)]
    for tag, (source, to) in enumerate(pairs):
        programs[source].append(build.send(2 * tag, source, to, size, tag=tag))
        programs[to].append(build.recv(2 * tag + 1, source, to, size, tag=tag))
    for nodes in programs:
        nodes.append(build.comp(10_000, 0))
    return programs


def network(topology, counts, **more):
    dimensions = len(counts)
    return build.config(
        topology=topology,
        npus_count=counts,
        bandwidth=[UNIT] * dimensions,
        latency=[100.0] * dimensions,
        aware=True,
        record_links=True,
        **more,
    )


@pytest.mark.parametrize(
    ("topology", "hops"),
    [
        (["Ring", "Ring"], 2),
        (["Switch", "Ring"], 3),
        (["FullyConnected", "Switch"], 3),
        (["Switch", "Switch"], 4),
    ],
)
def test_a_message_crosses_every_dimension_it_must(topology, hops):
    output = build.run(p2p([(0, 5)], 16), network(topology, [4, 4]))
    assert output.rank_finish_ns[5] == hops * 1100
    assert sorted(output.link_messages.tolist(), reverse=True)[:hops] == [1] * hops
    assert output.link_messages.sum() == hops


# GPU 4 of a node and GPU 0 of the next differ in both dimensions.
NODES = {"topology": ["Switch", "Switch"], "npus_count": [8, 2], "bandwidth": [400 * UNIT, UNIT]}


@pytest.mark.parametrize(
    ("semantics", "whole_ns"), [("astra-sim", 2 * 500 + 2500), ("trace", 2 * 500 + 2 * 5000 + 1_000_000)]
)
def test_only_astra_sims_semantics_charge_one_dimension_of_several(semantics, whole_ns):
    settings = build.config(**NODES, latency=[500.0, 5000.0], semantics=semantics)
    output = build.run(p2p([(4, 8)], 16, 1_000_000), settings)
    assert output.rank_finish_ns[8] == whole_ns
    worst = (4, 8, 1_000_000, whole_ns, 1_011_000)
    assert output.undercharged == (worst if semantics == "astra-sim" else None)


@pytest.mark.parametrize("semantics", ["astra-sim", "trace"])
def test_a_message_within_one_dimension_is_charged_in_full(semantics):
    settings = build.config(**NODES, latency=[500.0, 5000.0], semantics=semantics)
    output = build.run(p2p([(4, 12), (1, 3)], 16, 1_000_000), settings)
    assert output.rank_finish_ns[12] == 2 * 5000 + 1_000_000
    assert output.rank_finish_ns[3] == 2 * 500 + 2500
    assert output.undercharged is None


def test_messages_queue_on_a_shared_link():
    output = build.run(p2p([(0, 2), (1, 2)], 3), network(["Switch"], [3]))
    assert output.rank_finish_ns[2] == 3200
    down = int(output.link_queue_ns.argmax())
    assert (output.link_src[down], output.link_dst[down]) == (3, 2)
    assert output.link_queue_ns[down] == 1000
    assert output.link_busy_ns[down] == 2000
    assert output.link_bytes[down] == 2000


@given(st.integers(2, 5), st.integers(1, 100_000), st.sampled_from(["Ring", "Switch", "FullyConnected"]))
def test_a_graph_with_the_links_of_a_dimension_is_that_dimension(count, size, topology):
    if topology == "Switch":
        links = [(rank, count, RATE, DELAY) for rank in range(count)]
    else:
        links = [
            (a, b, RATE, DELAY) for a in range(count) for b in range(a + 1, count)
            if topology == "FullyConnected" or b - a in {1, count - 1}
        ]  # fmt: skip
    ranks = [[build.coll(0, size)]] * count
    plain = network([topology], [count])
    graph = network([topology], [count], links=links)
    if topology == "Ring" and count > 3:  # ranks do not forward in a graph, but a ring's neighbours need not
        assert build.finish(ranks, graph) == build.finish(ranks, plain)
    assert build.finish(ranks, graph) == build.finish(ranks, plain)


def test_the_shortest_way_through_the_lowest_switch():
    links = [(rank, switch, RATE, DELAY) for rank in (0, 1) for switch in (2, 3)]
    output = build.run(p2p([(0, 1)], 2), network(["Switch"], [2], links=links))
    used = [
        (int(a), int(b))
        for a, b, n in zip(output.link_src, output.link_dst, output.link_messages, strict=True)
        if n
    ]
    assert used == [(0, 2), (2, 1)]


def test_ranks_do_not_forward():
    links = [(0, 1, RATE, DELAY), (1, 2, RATE, DELAY)]
    with pytest.raises(build.engine.errors.ConfigError, match="no path from device 0 to rank 2"):
        build.run(p2p([(0, 2)], 3), network(["Switch"], [3], links=links))


@given(st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3), st.integers(1, 1 << 22), st.data())
def test_contention_never_saves_time(counts, size, data):
    topology = [data.draw(st.sampled_from(["Ring", "Switch", "FullyConnected"])) for _ in counts]
    algorithm = data.draw(st.sampled_from(["ring", "direct"]))
    ranks = 1
    for count in counts:
        ranks *= count
    settings = network(topology, counts, all_reduce_implementation=[algorithm] * len(counts))
    aware = build.finish([[build.coll(0, size)]] * ranks, settings)
    settings.network_model = build.engine.NetworkModel.UNAWARE
    unaware = build.finish([[build.coll(0, size)]] * ranks, settings)
    assert all(slow >= fast for slow, fast in zip(aware, unaware, strict=True))


# Routes in a fabric: shortest paths, the hash that chooses between equal paths, and window sizes.

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
    """Return the directions by the rule: the hash chooses among the neighbours that are nearer, by number."""
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
def test_messages_take_shortest_paths_by_hash(data):
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
        # If the hash chooses between two paths, it takes the other one from the other end.
        assert {one[1], other[1]} == {4, 6}


@pytest.mark.parametrize(("step", "delay_ps"), [(1, 1_500_600), (1000, 1_501_000)])
def test_a_window_is_sized_for_a_payload_and_the_slowest_link(step, delay_ps):
    described = fabric(3, [2], [(0, 2, 400 * 10**9, 1_500_600), (1, 2, 3 * 10**9, 0)])
    rtt, product = engine.Routes(described, step).measure(0, 1, 1000)
    sending = [8_000 * 10**12 // rate // step * step for rate in (400 * 10**9, 3 * 10**9)]
    assert rtt == 2 * delay_ps + sum(sending)
    assert product == rtt * 3 * 10**9 // (8 * 10**12)


# Our policies: the order of dimensions for a chunk, and the order of chunks in a queue.

INTRA = ["FIFO", "smallest-first", "less-remaining-phase-first", "reduce-first"]
INTER = ["ascending", "round-robin", "greedy"]
KINDS = ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"]


def policies_network(counts, **more):
    dimensions = len(counts)
    defaults = {
        "topology": ["Switch"] * dimensions,
        "npus_count": counts,
        "bandwidth": [50.0] * dimensions,
        "latency": [100.0] * dimensions,
        "all_reduce_implementation": ["ring"] * dimensions,
        "all_gather_implementation": ["ring"] * dimensions,
        "reduce_scatter_implementation": ["ring"] * dimensions,
        "all_to_all_implementation": ["ring"] * dimensions,
        "preferred_dataset_splits": 16,
        "active_chunks_per_dimension": 1,
    }
    return build.config(**(defaults | more))


def makespan(counts, kind="ALL_REDUCE", size=1 << 26, **more):
    ranks = 1
    for count in counts:
        ranks *= count
    return max(
        build.finish([[build.coll(0, size, comm_type=kind)]] * ranks, policies_network(counts, **more))
    )


@pytest.mark.parametrize("kind", ["ALL_REDUCE", "ALL_GATHER", "REDUCE_SCATTER"])
def test_greedy_uses_dimensions_that_would_idle(kind):
    """With equal links, ascending order keeps the first dimension busy and the second one idle."""
    assert makespan([4, 4], kind, inter_dimension_policy="greedy") < 0.85 * makespan([4, 4], kind)


def test_one_dimension_has_one_order():
    """Without another dimension, only the split of an all-reduce into its two halves remains."""
    for kind in ("ALL_GATHER", "REDUCE_SCATTER", "ALL_TO_ALL"):
        times = {makespan([4], kind, inter_dimension_policy=policy) for policy in INTER}
        assert len(times) == 1


@given(
    st.lists(st.sampled_from([2, 3, 4]), min_size=1, max_size=3),
    st.sampled_from(KINDS),
    st.sampled_from(INTRA),
    st.sampled_from(INTER),
    st.tuples(st.integers(1, 1 << 22), st.integers(1, 6), st.integers(1, 8)),
)
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
def test_every_policy_completes_or_names_waiting_ranks(counts, kind, intra, inter, amounts):
    """With fewer active chunks than chunks, ranks may process them in different orders, and deadlock."""
    size, splits, active = amounts
    chosen = policies_network(
        counts,
        intra_dimension_policy=intra,
        inter_dimension_policy=inter,
        preferred_dataset_splits=splits,
        active_chunks_per_dimension=active,
    )
    ranks = math.prod(counts)
    programs = [[build.coll(0, size, comm_type=kind)]] * ranks
    folded = build.run(programs, chosen)
    chosen.fold = False
    plain = build.run(programs, chosen)
    assert plain.rank_finish_ns.tolist() == folded.rank_finish_ns.tolist()
    stuck = [rank for rank, time in enumerate(plain.rank_finish_ns.tolist()) if time < 0]
    assert [item["rank"] for item in plain.unfinished] == stuck
    chunks = max(splits, math.ceil(size / max(1, size // splits)))
    if active >= chunks or (intra, inter) == ("FIFO", "ascending"):  # nothing waits in a queue
        assert stuck == []
