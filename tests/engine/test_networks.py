"""Networks with queues: several dimensions, and any graph of links."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import build

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
    with pytest.raises(build.engine.errors.ConfigError, match="no way from device 0 to rank 2"):
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
