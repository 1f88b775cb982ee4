"""Figures of networks against closed forms, and networks as files of other simulators."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig
from chakrascope.runner.backends import write_network
from chakrascope.runner.config import (
    Link,
    PacketNetwork,
    list_presets,
    network_facts,
    network_wires,
    read_failures,
)

SAMPLES = Path(__file__).parents[1] / "data" / "runner" / "infragraph"
DEFAULTS = {"link-defaults": {"*": {"bandwidth": "100Gb/s", "latency": "1us"}}}


def as_links(network):
    """Return *network* with its links written out, as a graph without a fabric."""
    wires, names = network_wires(network)
    links = tuple(Link(w.a, w.b, w.rate_bps / 8 / 2**30, w.delay_ps / 1000) for w in wires)
    return replace(network, links=links, devices=tuple(names), packet=None)


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
    assert PacketNetwork.of(again).links == PacketNetwork.of(network).links
    assert PacketNetwork.of(again).settings["CC_MODE"] == PacketNetwork.of(network).settings["CC_MODE"]


def test_what_ns3_cannot_say_is_said(tmp_path):
    network = graph(2, (0, 2, 8.0, 5), (0, 2, 8.0, 5), (1, 2, 4.0, 0.5))
    _, remarks = write_network(network, "ns3", tmp_path)
    assert "1 pairs of devices have parallel links" in remarks[0]
    assert "1 links have a latency between two of them" in remarks[1]


def test_networks_written_as_yaml_are_the_same(tmp_path):
    network = NetworkConfig.load(SAMPLES / "ironwood.json", DEFAULTS)
    (path,), _ = write_network(network, "yaml", tmp_path)
    assert NetworkConfig.load(path) == network


@pytest.mark.parametrize("name", [name for name in list_presets("network") if name.startswith("clos")])
def test_trees_among_links_are_written_for_htsim_as_fabrics_are(name, tmp_path):
    network = NetworkConfig.preset(name)
    texts = []
    for each in (network, as_links(network)):
        (path,), _ = write_network(each, "htsim", tmp_path)
        texts.append(path.read_text(encoding="utf-8"))
    assert texts[0] == texts[1]


def test_one_switch_is_written_for_htsim_as_a_dimension_is(tmp_path):
    network = NetworkConfig.preset("cpu-cluster-16")
    texts = []
    for each in (network, as_links(network)):
        (path,), _ = write_network(each, "htsim", tmp_path)
        texts.append(path.read_text(encoding="utf-8"))
    assert texts[0] == texts[1]


def test_tiers_of_links_keep_their_own_figures(tmp_path):
    up = [(leaf, 6, 2 * 11.641532182693481, 200) for leaf in (4, 5)]
    network = graph(4, *[(rank, 4 + rank // 2, 11.641532182693481, 100) for rank in range(4)], *up)
    (path,), _ = write_network(network, "htsim", tmp_path)
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[:3] == ["Nodes 4", "Tiers 2", "Podsize 4"]
    assert [line for line in lines if line.startswith("Downlink")] == [
        "Downlink_speed_Gbps 100",
        "Downlink_Latency_ns 100",
        "Downlink_speed_Gbps 200",
        "Downlink_Latency_ns 200",
    ]
    assert "Oversubscribed 2" in lines


STAR = [(rank, 4, 1.0, 100) for rank in range(4)]
NO_TREE = [
    ([*STAR, (0, 4, 1.0, 100)], "every rank must have one link"),
    ([*STAR[:3], (3, 4, 2.0, 100)], "the switches of tier 0, or their links, are not alike"),
    ([*STAR[:3], (3, 5, 1.0, 100), (4, 5, 1.0, 100)], "links must join one tier with the next"),
    (
        [(r, 4 + r % 2, 1.0, 1) for r in range(4)] + [(4, 6, 1.0, 1), (5, 6, 1.0, 1)],
        "in the order of their numbers",
    ),
    ([(r, 4 + r // 2, 1.0, 1) for r in range(4)] + [(n, 6, 1.0, 1) for n in (4, 5)] * 2, "parallel links"),
    ([*STAR, (4, 5, 1.0, 1), (5, 6, 1.0, 1), (6, 7, 1.0, 1)], "there are 4 tiers of switches"),
]


@pytest.mark.parametrize(("links", "words"), NO_TREE)
def test_other_links_are_refused_for_htsim(links, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        write_network(graph(4, *links), "htsim", tmp_path)


def test_failures_are_refused_for_htsim(tmp_path):
    network = replace(
        NetworkConfig.preset("clos-2tier-64"), failures=read_failures([{"device": 72}], (), "here")
    )
    with pytest.raises(ConfigError, match="HTSim's topology file cannot say"):
        write_network(network, "htsim", tmp_path)


def test_logical_dimensions_are_written(tmp_path):
    write_network(NetworkConfig.preset("dgx-a100-2x8"), "ns3", tmp_path)
    assert json.loads((tmp_path / "logical.json").read_text()) == {"logical-dims": ["8", "2"]}
