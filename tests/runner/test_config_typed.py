"""The parts of a network beside its dimensions: typed, written back as they were, in every hash as before."""

from __future__ import annotations

import ast
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.errors import ConfigError
from chakrascope.runner import Experiment, MemoryConfig, NetworkConfig, SystemConfig, config
from chakrascope.runner._experiment import WorkloadSource
from chakrascope.runner.config import Clos, Link, PacketPart

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


# Names of result folders: what has run once is found again by these.
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
    with pytest.raises(ConfigError, match="'packet' is no unknown key"):
        NetworkConfig(("Switch",), (4,), (50.0,), (500.0,), unknown={"packet": {}})


@pytest.mark.parametrize(
    ("part", "message"),
    [
        (None, "'packet' must be a mapping"),
        ({"CC_MOD": 1}, "'packet': there is no setting 'CC_MOD' - did you mean 'CC_MODE'"),
        ({"fabric": {"hosts_per_leaf": 0}}, "'hosts_per_leaf' of 'fabric' must be"),
        ({"nodes": 2}, "'packet' has a topology without 'links'"),
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


def test_no_module_of_the_configurations_imports_in_a_circle():
    folder = Path(config.__file__).parent
    modules = {path.stem: [path] for path in folder.glob("_*.py") if path.stem != "__init__"}
    packages = {path.parent.name: [*path.parent.glob("*.py")] for path in folder.glob("*/__init__.py")}
    names = modules.keys() | packages.keys()
    imports = {}
    for name, files in (modules | packages).items():
        nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
        level = 2 if name in packages else 1
        siblings = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.level == level]
        found = {node.module or alias.name for node in siblings for alias in node.names}
        assert found <= names, f"{name} imports the face of its own package"
        imports[name] = found
    assert len(list(TopologicalSorter(imports).static_order())) == len(names)  # raises CycleError
