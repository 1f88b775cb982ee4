"""Figures of networks against closed forms, and networks as files of other simulators."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from chakrascope.runner import NetworkConfig
from chakrascope.runner.backends import write_network
from chakrascope.runner.config import (
    Link,
    fabric_of,
    network_facts,
    read_failures,
)

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


def test_what_ns3_cannot_say_is_said(tmp_path):
    network = graph(2, (0, 2, 8.0, 5), (0, 2, 8.0, 5), (1, 2, 4.0, 0.5))
    _, remarks = write_network(network, "ns3", tmp_path)
    assert "1 pairs of devices have parallel links" in remarks[0]
    assert "1 links have a latency between two of them" in remarks[1]


def test_networks_written_as_yaml_are_the_same(tmp_path):
    network = NetworkConfig.load(SAMPLES / "ironwood.json", DEFAULTS)
    (path,), _ = write_network(network, "yaml", tmp_path)
    assert NetworkConfig.load(path) == network


def test_logical_dimensions_are_written(tmp_path):
    write_network(NetworkConfig.preset("dgx-a100-2x8"), "ns3", tmp_path)
    assert json.loads((tmp_path / "logical.json").read_text()) == {"logical-dims": ["8", "2"]}
