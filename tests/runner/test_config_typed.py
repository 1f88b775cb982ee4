"""Networks: typed parts, properties compared with closed forms, symmetries, and presets."""

import json
from dataclasses import replace
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import (
    Experiment,
    MemoryConfig,
    NetworkConfig,
    SystemConfig,
    get_backend,
    list_presets,
    prepare,
    simulate,
)
from chakrascope.runner._experiment import WorkloadSource
from chakrascope.runner.backends import write_network
from chakrascope.runner.config import (
    Clos,
    FabricLink,
    Link,
    PacketPart,
    fabric_of,
    network_facts,
    preset_text,
    read_failures,
)
from chakrascope.runner.config._symmetry import distances, find_dimensions

DIMENSIONS = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [500.0]}
STAR = [
    [0, 4, "400Gbps", "500ns", 0],
    [1, 4, 400e9, "0.0005ms"],
    [2, 4, "400Gbps", 5e-7, 0.1],
    [3, 4, "400Gbps", "1us", 0],
]
MORE = {
    "links": {"links": [[0, 4, 10, 500], [1, 4, 10.0, 500.5], [2, 4, 1, 0], [3, 4, 5, 5]]},
    "packet": {
        "packet": {
            "CC_MODE": 1,
            "EWMA_GAIN": "0.5",
            "KMIN_MAP": {100000000000: 400},
            "LINK_DOWN": [0, 0, 0],
            "RATE_AI": "50Mb/s",
            "RP_TIMER": 900,
        }
    },
    "topology": {"packet": {"nodes": 5, "switches": [4], "links": STAR}},
    "fabric": {"packet": {"fabric": {"hosts_per_leaf": 2, "oversubscription": 1}}},
    "unknown": {"comment": {"a": 1}, "links": [[0, 1, 10, 5]]},
    "nothing": {"packet": {}},
}


def network_of(name):
    return NetworkConfig.from_mapping(DIMENSIONS | MORE[name], "here")


def content_hash(network, system="default", **options):
    source = WorkloadSource((b"program",), np.zeros(network.num_ranks, dtype=np.int32))
    asked = SystemConfig.preset(system, network.dimensions)
    return Experiment(source, asked, network, MemoryConfig(), **options).content_hash


# Names of result folders, by which a finished run is found again.
@pytest.mark.parametrize(
    ("preset", "system", "expected"),
    [
        ("clos-2tier-64-2to1", "default", "d15cd456c7c983ed"),
        ("clos-3tier-128", "default", "10a4319f8490ca84"),
        ("cpu-cluster-8", "default", "5a14e685e9f11f8a"),
        ("dgx-a100-2x8", "default", "0229f826aa851840"),
        ("gb200-nvl72", "default", "73f042d69a0d3aad"),
        ("hgx-h100-8", "default", "61422326f8a74734"),
        ("ring-2", "default", "9a73b1ac729d3eb9"),
        ("tpu-v2-16x16", "default", "b095c07090ea5ba8"),
        ("ring-2", "direct", "6f124af657b05b34"),
        ("ring-2", "halving-doubling", "e319988086e45837"),
        ("ring-2", "roofline-a100", "65e318baa3bee0e0"),
        ("ring-2", "roofline-gb200", "b2a245bda1a4c9db"),
        ("ring-2", "roofline-h100", "8ceff35f856b2847"),
        ("ring-2", "roofline-mi300x", "86727c39fdeb6796"),
        ("ring-2", "roofline-tpu-v2", "49444c4eabf8ff75"),
        ("ring-2", "roofline-v100", "9110350efad1e521"),
    ],
)
def test_presets_keep_their_hashes(preset, system, expected):
    assert content_hash(NetworkConfig.preset(preset), system) == expected


@pytest.mark.parametrize(
    ("name", "expected", "with_options"),
    [
        ("links", "6a1bc85b1e9d7a2f", "d636a1d89342a0c0"),
        ("packet", "56fc8049fab80158", "2edb0dccf8c0aae0"),
        ("topology", "1f486e15836a16ef", "808eabbe438f3848"),
        ("fabric", "812c9c70b6c5cd05", "759ae86051847017"),
        ("unknown", "8fe1d9b85f5ca8a9", "478eba5406cad73c"),
        ("nothing", "3991be4e84a9e767", "8de4a09a918c179f"),
    ],
)
def test_networks_of_more_than_dimensions_keep_their_hashes(name, expected, with_options):
    options = {"num_queues_per_dim": 2, "injection_scale": 1.5, "rendezvous": True, "semantics": "trace"}
    assert content_hash(network_of(name)) == expected
    assert content_hash(network_of(name), backend="fake", **options) == with_options


@pytest.mark.parametrize("name", MORE)
def test_what_was_read_is_written_back(name, tmp_path):
    network = network_of(name)
    assert network.to_dict() == DIMENSIONS | MORE[name]
    network.save(tmp_path / "network.yml")
    assert yaml.safe_load((tmp_path / "network.yml").read_text()) == DIMENSIONS | MORE[name]
    assert NetworkConfig.load(tmp_path / "network.yml") == network


@pytest.mark.parametrize("nothing", [{"links": []}, {"links": None}])
def test_a_list_of_no_links_changes_no_hash_when_it_is_written_back(nothing, tmp_path):
    network = NetworkConfig.from_mapping(DIMENSIONS | nothing, "here")
    network.save(tmp_path / "network.yml")
    written = NetworkConfig.load(tmp_path / "network.yml")
    plain = NetworkConfig.from_mapping(DIMENSIONS, "here")
    assert content_hash(network) == content_hash(written) == content_hash(plain)


NUMBERS = st.one_of(st.integers(1, 10**6), st.floats(1e-3, 1e6))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(4, 9), NUMBERS, NUMBERS), min_size=1, max_size=6))
def test_links_are_written_as_they_were_read(links):
    rows = [list(link) for link in links]
    network = NetworkConfig.from_mapping(DIMENSIONS | {"links": rows}, "here")
    assert network.links == tuple(Link(*link) for link in links)
    assert repr(network.to_dict()["links"]) == repr(rows)


def test_each_part_has_a_type():
    assert network_of("links").links[0] == Link(a=0, b=4, bandwidth=10, latency=500)
    part = network_of("packet").packet
    assert (part.settings["KMIN_MAP"], part.settings["EWMA_GAIN"]) == ({10**11: 400.0}, 0.5)
    assert (part.topology, part.fabric, part.is_graph) == (None, None, False)
    topology = network_of("topology").packet.topology
    assert (topology.nodes, topology.switches) == (5, (4,))
    assert [link.rate_bps for link in topology.links] == [4 * 10**11] * 4
    assert network_of("fabric").packet.fabric == Clos(hosts_per_leaf=2)


def test_only_comments_are_unknown():
    for name in set(MORE) - {"unknown"}:
        assert network_of(name).unknown == {}
    assert network_of("unknown").unknown == {"comment": {"a": 1}}
    with pytest.raises(ConfigError, match="here: there is no key 'failure' - did you mean 'failures'"):
        NetworkConfig.from_mapping(DIMENSIONS | {"failure": []}, "here")
    with pytest.raises(ConfigError, match="'packet' is a known key"):
        NetworkConfig(("Switch",), (4,), (50.0,), (500.0,), unknown={"packet": {}})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (None, "'packet' must be a mapping"),
        ({"CC_MOD": 1}, "'packet': there is no setting 'CC_MOD' - did you mean 'CC_MODE'"),
        ({"fabric": {"hosts_per_leaf": 0}}, "'fabric': 'hosts_per_leaf' must be"),
        ({"nodes": 2}, "'packet' has a topology without 'links'"),
        ({"nodes": 3, "switches": [2], "links": [[0, 1]]}, "a link is"),
        ({"nodes": 3, "switches": 2, "links": []}, "must be lists"),
        (
            {"nodes": 5, "switches": [4], "links": STAR, "fabric": {"hosts_per_leaf": 2}},
            "'packet' has both 'links' and a 'fabric'",
        ),
    ],
)
def test_a_wrong_packet_part_is_refused_where_it_is_read(part, message, tmp_path):
    path = tmp_path / "network.yml"
    path.write_text(yaml.safe_dump(DIMENSIONS | {"packet": part}))
    with pytest.raises(ConfigError, match=message) as caught:
        NetworkConfig.load(path)
    assert str(path) in str(caught.value)
    assert PacketPart.from_mapping({}).settings == {}


# Properties of networks compared with closed forms, and networks as files of other simulators.

SAMPLES = Path(__file__).parents[1] / "data" / "runner" / "infragraph"
DEFAULTS = {"link-defaults": {"*": {"bandwidth": "100Gb/s", "latency": "1us"}}}


def graph(ranks, *links):
    return NetworkConfig(("Switch",), (ranks,), (1.0,), (1.0,), links=tuple(Link(*link) for link in links))


@pytest.mark.parametrize(
    ("name", "tiers", "diameter", "half"),
    [
        ("cpu-cluster-16", (1,), 2, 8),
        ("clos-2tier-64", (8, 8), 4, 32),
        ("clos-2tier-64-2to1", (8, 4), 4, 16),
        ("clos-3tier-128", (16, 32, 32), 6, 64),
        ("clos-3tier-128-2to1", (16, 16, 8), 6, 16),
        ("mi300x-8", (), 1, 16),
    ],
)
def test_figures_of_regular_networks(name, tiers, diameter, half):
    network = NetworkConfig.preset(name)
    facts = network_facts(network)
    assert (facts.tiers, facts.diameter_links, facts.unreachable) == (tiers, diameter, 0)
    # Between halves: half the ranks at full speed, divided by the oversubscription; of a mesh, 4 x 4 links.
    assert facts.halves_bytes_per_ns == pytest.approx(half * network.bandwidth_bytes_per_ns[0])
    assert facts.diameter_ns == diameter * network.latency[0]


def test_figures_count_what_is_left_of_a_network():
    whole = NetworkConfig.preset("clos-2tier-64")
    failed = replace(whole, failures=read_failures([{"device": 72}, {"link": [0, 64]}], (), "here"))
    facts = network_facts(failed)
    assert facts.links == 128 - 8 - 1
    assert facts.unreachable == 63
    assert facts.halves_bytes_per_ns == pytest.approx(28 * whole.bandwidth_bytes_per_ns[0])


def test_figures_of_parallel_and_uneven_links():
    facts = network_facts(graph(2, (0, 2, 8.0, 5), (0, 2, 8.0, 7), (1, 2, 4.0, 1)))
    assert (facts.parallel, facts.links, facts.switches) == (1, 3, 1)
    assert facts.diameter_ns == 8
    assert facts.halves_bytes_per_ns == pytest.approx(4 * 2**30 / 1e9)


@pytest.mark.parametrize("name", sorted(path.stem for path in SAMPLES.glob("*.json")))
def test_networks_written_for_ns3_are_read_again(name, tmp_path):
    network = NetworkConfig.load(SAMPLES / f"{name}.json", DEFAULTS)
    files, _ = write_network(network, "ns3", tmp_path)
    assert {file.name for file in files} >= {"config.txt", "topology.txt", "logical.json"}
    again = NetworkConfig.load_packet(tmp_path / "config.txt", tmp_path / "logical.json")
    assert again.npus_count == network.npus_count
    assert fabric_of(again).links == fabric_of(network).links
    assert fabric_of(again).settings["CC_MODE"] == fabric_of(network).settings["CC_MODE"]


def test_unsupported_settings_of_ns3_are_reported(tmp_path):
    network = graph(2, (0, 2, 8.0, 5), (0, 2, 8.0, 5), (1, 2, 4.0, 0.5))
    _, remarks = write_network(network, "ns3", tmp_path)
    assert "1 pairs of devices have parallel links" in remarks[0]
    assert "which changes 1 links" in remarks[1]


def test_logical_dimensions_are_written(tmp_path):
    write_network(NetworkConfig.preset("dgx-a100-2x8"), "ns3", tmp_path)
    assert json.loads((tmp_path / "logical.json").read_text()) == {"logical-dims": ["8", "2"]}


# Shortest paths between ranks, and dimensions proved from them, compared with an enumeration of all paths.

RANKS = 4
_WIRE = st.builds(
    FabricLink,
    st.integers(0, 9),
    st.integers(0, 9),
    st.sampled_from([10, 25, 40]),
    st.sampled_from([0, 1, 7]),
)


def every_way(wires, source, target):
    """Return latency and slowest link of every path with the fewest links that passes no other rank."""
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


# The presets: the sources of their figures, and support by every backend.


ROOFLINES = [name for name in list_presets("system") if name.startswith("roofline-")]


@pytest.mark.parametrize("name", list_presets("network"))
@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "packet"])
def test_every_network_runs_on_every_backend(name, backend):
    network = NetworkConfig.preset(name)
    result = simulate(
        microbenchmark("all-reduce", network.num_ranks, 4096), "default", network, backend=backend
    )
    assert len(result.ranks) == network.num_ranks
    assert result.makespan_ns > 2 * min(network.latency)
    assert result.provenance["ignored_keys"] == [
        "'scheduling-policy' has no effect: chunks that compete always share a priority."
    ]


@pytest.mark.parametrize("name", list_presets("network"))
def test_every_network_names_its_source_and_its_units(name):
    text = preset_text("network", name)
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert any(word in text for word in ("white paper", "data sheet", "IEEE", "publication"))
    assert "2^30 bytes per second" in " ".join(comments)
    for exact, stated in zip(
        _stated(text, "bandwidth"), NetworkConfig.preset(name).bandwidth_bytes_per_ns, strict=True
    ):
        assert stated == pytest.approx(exact / 1e9, rel=1e-3)


def _stated(text, key):
    line = next(line for line in text.splitlines() if line.startswith(key))
    words = line.partition("#")[2].replace("B/s", "").replace("and", "")
    return [float(word) for word in words.split()]


@pytest.mark.parametrize("name", ROOFLINES)
def test_every_chip_names_its_source_and_bounds_a_kernel(name):
    data = json.loads(preset_text("system", name))
    assert "data sheet" in data["source"] or "Communications of the ACM" in data["source"]
    system = SystemConfig.preset(name)
    assert system.ineffective() == SystemConfig.preset("default").ineffective()
    heavy = {"num_ops": 10**12, "tensor_size_bytes": 10**6}
    wide = {"num_ops": 10**6, "tensor_size_bytes": 10**9}
    job = workload(*[[comp(0, 7, **heavy), comp(1, 7, (0,), **wide), coll(2, 4096, (1,))]] * 2)
    nodes = simulate(job, system, "ring-2").nodes.set_index(["rank", "node_id"])
    times = nodes["end_ns"] - nodes["start_ns"]
    assert times[0, 0] == pytest.approx(10**12 / (data["peak-perf"] * 1e12) * 1e9, abs=1)
    assert times[0, 1] == pytest.approx(10**9 / (data["local-mem-bw"] * 1e9) * 1e9, abs=1)


def test_oversubscription_shows_where_all_send_to_all():
    times = {}
    for name in ("clos-2tier-64", "clos-2tier-64-2to1"):
        asked = prepare(microbenchmark("all-to-all", 64, 1 << 20), "default", name, backend="packet")
        times[name] = get_backend("packet").run(asked).makespan_ns
    assert times["clos-2tier-64-2to1"] > 1.2 * times["clos-2tier-64"]
