"""InfraGraph files as networks: what becomes of them, to the picosecond, and what is said about it.

The samples in ``tests/data/runner/infragraph`` are blueprints of the package ``infragraph`` (MIT), as
`make_blueprint` writes them.
"""

from __future__ import annotations

import functools
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.config import fabric_of
from chakrascope.runner.config.infragraph import _network

SAMPLES = Path(__file__).parents[2] / "data" / "runner" / "infragraph"
DEFAULTS = {"link-defaults": {"*": {"bandwidth": "100Gb/s", "latency": "1us"}}}
# Ranks, used devices, links between them, and the detected dimensions.
EXPECTED = {
    "clos": (8, 31, 44, "Switch 2 x Switch 4"),
    "clos-fat-tree-2": (8, 30, 40, "Switch 2 x Switch 4"),
    "clos-fat-tree-3": (16, 68, 96, "Switch 2 x Switch 2 x Switch 4"),
    "dgx-a100": (8, 21, 68, "Switch 8"),
    "dgx-gb200": (4, 24, 77, "Switch 4"),
    "dgx-h100": (8, 21, 50, "Switch 8"),
    "dgx1": (8, 14, 29, "FullyConnected 4 x FullyConnected 2"),
    "dgx2": (16, 42, 161, "Switch 8 x Switch 2"),
    "dragonfly": (72, 252, 378, None),
    "ironwood": (64, 160, 320, "Ring 4 x Ring 4 x Ring 4"),
    "mi300x": (8, 14, 41, "FullyConnected 8"),
    "single-tier": (8, 25, 32, "Switch 2 x Switch 4"),
}


def kind(name: str, bandwidth: dict[str, float] | None, latency: dict[str, float] | None) -> dict[str, Any]:
    return {"name": name, "physical": {"bandwidth": bandwidth or {}, "latency": latency or {}}}


def edge(ep1: dict[str, str], ep2: dict[str, str], link: str, scheme: str = "one2one") -> dict[str, Any]:
    return {"ep1": ep1, "ep2": ep2, "link": link, "scheme": scheme}


def part(name: str, choice: str, count: int = 1) -> dict[str, Any]:
    return {"name": name, "choice": choice, "count": count}


def pair() -> dict[str, Any]:
    """Return two hosts of one GPU and one NIC at a switch of two ports: 4 GB/s at 250 ps, 25 Gb/s at 500 "
    "ns."""
    host = {
        "name": "host",
        "components": [part("gpu", "xpu"), part("nic", "nic")],
        "links": [kind("pcie", {"gigabytes_per_second": 4}, {"ns": 0.25})],
        "edges": [edge({"component": "gpu"}, {"component": "nic"}, "pcie")],
    }
    switch = {
        "name": "switch",
        "components": [part("asic", "switch"), part("port", "port", 2)],
        "links": [{"name": "trace"}],
        "edges": [edge({"component": "asic"}, {"component": "port"}, "trace", "many2many")],
    }
    return {
        "name": "pair",
        "devices": [host, switch],
        "instances": [
            {"name": "node", "device": "host", "count": 2},
            {"name": "leaf", "device": "switch", "count": 1},
        ],
        "links": [kind("cable", {"gigabits_per_second": 25}, {"ms": 0.0005})],
        "edges": [
            edge(
                {"instance": "node[0:2]", "component": "nic[0]"},
                {"instance": "leaf", "component": "port"},
                "cable",
            )
        ],
    }


def load(tmp_path: Path, data: Any, **options: Any) -> NetworkConfig:
    path = tmp_path / "fabric.yml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return NetworkConfig.load(path, options)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_public_blueprints_load(name):
    network = NetworkConfig.load(SAMPLES / f"{name}.json", DEFAULTS)
    ranks, devices, links, shape = EXPECTED[name]
    assert (network.num_ranks, len(network.devices), len(network.links)) == (ranks, devices, links)
    found = " x ".join(
        f"{shape} {count}" for shape, count in zip(network.topology, network.npus_count, strict=True)
    )
    assert network.logical == (shape is None)
    assert shape in (None, found)
    packet = fabric_of(network)
    assert packet.hosts == tuple(range(ranks))
    assert packet.nodes == devices


def test_all_samples_are_expected():
    assert {path.stem for path in SAMPLES.glob("*.json")} == set(EXPECTED)


def test_figures_are_exact(tmp_path):
    network = load(tmp_path, pair())
    assert network.devices == (
        "node.0.gpu.0",
        "node.1.gpu.0",
        "node.0.nic.0",
        "node.1.nic.0",
        "leaf.0.asic.0",
    )
    links = {(link.a, link.b): (link.rate_bps, link.delay_ps) for link in fabric_of(network).links}
    assert links == {
        (0, 2): (32_000_000_000, 250),
        (1, 3): (32_000_000_000, 250),
        (2, 4): (25_000_000_000, 500_000),
        (3, 4): (25_000_000_000, 500_000),
    }


def test_dimensions_have_path_latency_and_slowest_bandwidth(tmp_path):
    network = load(tmp_path, pair())
    assert (network.topology, network.npus_count, network.logical) == (("Switch",), (2,), False)
    assert network.bandwidth_bytes_per_ns == (3.125,)
    assert network.latency == (500.25,)  # two of them form the path: 2 x 0.25 + 2 x 500 ns


def test_assumptions_are_listed_in_the_result(tmp_path):
    data = pair()
    data["links"][0]["physical"] = {}
    network = load(
        tmp_path, data, **{"link-defaults": {"cable": {"bandwidth": "25Gb/s", "latency": "500ns"}}}
    )
    result = simulate(
        microbenchmark("all-reduce", 2, 1 << 20), "default", network, backend="analytical-aware"
    )
    said = result.provenance["assumptions"]
    assert (
        "The link 'cable' (2 links) has missing values from link-defaults: bandwidth 25Gb/s ('cable') and "
        "latency 500ns ('cable')." in said
    )
    assert any("2 ports (switch.port) belong to the component behind them" in text for text in said)
    assert any("Ranks (xpu) do not forward" in text for text in said)
    assert load(tmp_path, pair()).links == network.links


def test_links_without_figures_are_an_error_that_lists_them(tmp_path):
    data = pair()
    data["links"][0] = kind("cable", {"gigabits_per_second": 25}, None)
    data["devices"][0]["links"][0] = {"name": "pcie"}
    with pytest.raises(ConfigError) as error:
        load(tmp_path, data)
    text = str(error.value)
    assert "'host.pcie' has no bandwidth and no latency (such as node.0.gpu.0 - node.0.nic.0)" in text
    assert "'cable' has no latency" in text
    assert "link-defaults" in text


def test_transfers_need_a_width(tmp_path):
    data = pair()
    data["devices"][0]["links"][0] = kind("pcie", {"gigatransfers_per_second": 32}, {"ns": 100})
    with pytest.raises(ConfigError, match="no width for its giga-transfers"):
        load(tmp_path, data)
    network = load(tmp_path, data, **{"link-defaults": {"pcie": {"width": 16}}})
    assert {link.rate_bps for link in fabric_of(network).links} == {512_000_000_000, 25_000_000_000}
    assert any("16 lanes of 32 Gb/s" in text for text in network.assumptions)


def test_defaults_go_from_the_most_particular_to_all(tmp_path):
    data = pair()
    data["links"][0] = {"name": "cable"}
    data["devices"][0]["links"][0] = {"name": "pcie"}
    given = {
        "host.pcie": {"bandwidth": "32GB/s"},
        "pcie": {"bandwidth": "1GB/s", "latency": "7ns"},
        "*": {"bandwidth": "25Gb/s", "latency": "9ns"},
    }
    links = fabric_of(load(tmp_path, data, **{"link-defaults": given})).links
    assert {(link.rate_bps, link.delay_ps) for link in links} == {(256 * 10**9, 7000), (25 * 10**9, 9000)}


def test_a_port_with_figures_is_a_node_of_its_own(tmp_path):
    given = {"link-defaults": {"switch.trace": {"bandwidth": "1Tb/s", "latency": "10ns"}}}
    network = load(tmp_path, pair(), **given)
    assert "leaf.0.port.1" in network.devices
    assert network.latency == (510.25,)


def test_single_message_takes_the_latency_of_its_path(tmp_path):
    network = load(tmp_path, pair())
    size = 1 << 20
    one_way = 2 * 500.25 + size / 2 / 3.125
    result = simulate(microbenchmark("all-reduce", 2, size), "default", network)
    plain = NetworkConfig(("Switch",), (2,), network.bandwidth, network.latency)
    assert result.makespan_ns == simulate(microbenchmark("all-reduce", 2, size), "default", plain).makespan_ns
    assert result.makespan_ns > 2 * one_way


def test_directly_linked_ranks_forward():
    network = NetworkConfig.load(SAMPLES / "ironwood.json", DEFAULTS)
    assert any("Ranks (xpu) forward messages of others" in text for text in network.assumptions)
    assert network.devices[64] == f"{network.devices[0]}.router"
    with pytest.raises(ConfigError, match="without passing other ranks"):
        NetworkConfig.load(SAMPLES / "ironwood.json", DEFAULTS | {"rank-forwarding": False})


def test_dragonfly_is_refused_by_dimension_backends():
    network = NetworkConfig.load(SAMPLES / "dragonfly.json", DEFAULTS)
    workload = microbenchmark("all-reduce", 72, 1 << 16)
    with pytest.raises(ConfigError, match=r"do not form regular dimensions.*analytical-aware"):
        simulate(workload, "default", network)
    assert simulate(workload, "default", network, backend="analytical-aware").makespan_ns > 0


def test_equal_ways_of_different_speed_are_named_and_can_be_left_out():
    figures = {
        "xpu_fabric": {"bandwidth": "300GB/s", "latency": "100ns"},
        "*": {"bandwidth": "32GB/s", "latency": "500ns"},
    }
    mixed = NetworkConfig.load(SAMPLES / "dgx-a100.json", {"link-defaults": figures})
    assert any("differ in speed (32.0 GB/s and 300 GB/s)" in text for text in mixed.assumptions)
    assert mixed.logical
    clean = NetworkConfig.load(SAMPLES / "dgx-a100.json", {"link-defaults": figures, "without": ["pcie"]})
    assert (len(clean.devices), len(clean.links), clean.npus_count) == (14, 48, (8,))
    assert any("Left out because of 'without' (pcie)" in text for text in clean.assumptions)


def test_parallel_links_are_kept_and_said(tmp_path):
    data = pair()
    data["devices"][1]["components"][1]["count"] = 4
    data["edges"].append(
        edge({"instance": "node", "component": "nic"}, {"instance": "leaf", "component": "port[2:]"}, "cable")
    )
    network = load(tmp_path, data)
    assert len(network.links) == 6
    assert any("2 pairs of devices have parallel links" in text for text in network.assumptions)


def test_an_edge_listed_twice_is_one_link(tmp_path):
    data = pair()
    data["edges"] *= 2
    network = load(tmp_path, data)
    assert len(network.links) == 4
    assert any(
        "2 links between two components are listed more than once" in text for text in network.assumptions
    )


def test_annotations_number_the_ranks(tmp_path):
    def annotated(*ranks: str) -> dict[str, Any]:
        nodes = [
            {"name": f"node.{index}.gpu.0", "attributes": [{"attribute": "rank", "value": rank}]}
            for index, rank in enumerate(ranks)
        ]
        more = {"name": "leaf.0.asic.0", "attributes": [{"attribute": "vendor", "value": "x"}]}
        return {"infrastructure": pair(), "annotations": {"nodes": [*nodes, more]}}

    network = load(tmp_path, annotated("1", "0"))
    assert network.devices[:2] == ("node.1.gpu.0", "node.0.gpu.0")
    assert "Annotations without effect: vendor." in network.assumptions
    with pytest.raises(ConfigError, match="must number all 2 components"):
        load(tmp_path, annotated("1", "1"))


def test_schemes_and_slices(tmp_path):
    device = {
        "name": "box",
        "components": [part("gpu", "xpu", 6)],
        "links": [kind("wire", {"gigabits_per_second": 10}, {"us": 1.5})],
        "edges": [edge({"component": "gpu[::2]"}, {"component": "gpu[-5::2]"}, "wire", "ring")],
    }
    network = load(tmp_path, device)
    joined = {(link.a - 6, link.b - 6) for link in network.links if link.a >= 6}
    assert joined == {(0, 2), (2, 4), (1, 4), (1, 3), (3, 5), (0, 5)}


def test_a_device_within_a_device(tmp_path):
    data = pair()
    nic = {
        "name": "nic",
        "components": [part("chip", "nic"), part("plug", "port")],
        "links": [{"name": "inner"}],
        "edges": [edge({"component": "chip"}, {"component": "plug"}, "inner")],
    }
    data["devices"].append(nic)
    host = data["devices"][0]
    host["components"][1] = part("nic", "device")
    host["edges"][0] = edge({"component": "gpu"}, {"device": "nic[0]", "component": "chip[0]"}, "pcie")
    data["edges"][0]["ep1"]["component"] = "nic[0].plug[0]"
    network = load(tmp_path, data)
    assert network.links == load(tmp_path, pair()).links
    assert network.devices[2] == "node.0.nic.0.chip.0"


def test_network_yaml_names_infragraph_and_defaults(tmp_path):
    data = pair()
    data["links"][0] = {"name": "cable"}
    (tmp_path / "fabric.yml").write_text(yaml.safe_dump(data), encoding="utf-8")
    described = {
        "infragraph": "fabric.yml",
        "link-defaults": {"cable": {"bandwidth": "25Gb/s", "latency": "0.5us"}},
        "packet": {"CC_MODE": 1},
    }
    path = tmp_path / "network.yml"
    path.write_text(yaml.safe_dump(described), encoding="utf-8")
    network = NetworkConfig.load(path)
    assert network.links == load(tmp_path, pair()).links
    assert network.packet is not None
    assert network.packet.settings["CC_MODE"] == 1
    arranged = described | {"topology": ["Ring"], "npus_count": [2], "bandwidth": [1.0], "latency": [5.0]}
    (tmp_path / "fabric.yml").write_text(yaml.safe_dump(data), encoding="utf-8")
    path.write_text(yaml.safe_dump(arranged), encoding="utf-8")
    network = NetworkConfig.load(path)
    assert (network.topology, network.latency, network.logical) == (("Ring",), (5.0,), False)
    note = "The dimensions come from network.yml, and were not checked against the links."
    assert note in network.assumptions


@pytest.mark.parametrize("name", ["dragonfly", "single-tier"])
def test_saved_networks_are_the_same_when_read_again(name, tmp_path):
    network = NetworkConfig.load(SAMPLES / f"{name}.json", DEFAULTS)
    network.save(tmp_path / f"{name}.yml")
    assert NetworkConfig.load(tmp_path / f"{name}.yml") == network


# Keys whose absence changes nothing, and keys of the tool that wrote the file.
FREE = {"description", "type", "custom", "choice"}
GONE = object()


def changed(path: str, value: Any) -> dict[str, Any]:
    """Return `pair` with *value* at *path* (``edges.0.link``; ``+`` appends), or with the key removed."""
    data: Any = pair()
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    inner = data
    for step in way:
        inner = inner[step]
    if value is GONE:
        del inner[last]
    elif last == "+":
        inner.append(value)
    else:
        inner[last] = value
    return dict(data)


BAD = [
    ("devices", "none", r"'devices' must be a list, not 'none'"),
    ("devices.0", 7, r"devices\[0\] must be a mapping"),
    ("devices.0.name", GONE, r"devices\[0\]: 'name' must be a name, not None; is the file complete"),
    ("devices.0.components.0.choice", "gpu", r"'choice' of component 'gpu' cannot be 'gpu'.*xpu"),
    ("devices.0.components.0.count", 10**9, r"'count' of 'gpu' must be a whole number from 0 to"),
    ("devices.0.components.0.count", "two", r"'count' of 'gpu'"),
    ("devices.0.components.0.count", True, r"'count' of 'gpu'"),
    ("instances.0.count", 10**9, r"'count' of 'node' must be a whole number from 0 to 1,000,000"),
    ("instances.0.count", 900000, r"there are 1,800,000 components, but the maximum is 500,000"),
    ("instances.0.device", "hots", r"instance 'node' names the unknown device 'hots' - did you mean 'host'"),
    ("devices.+", pair()["devices"][0], r"the name 'host' occurs twice"),
    (
        "edges.0.ep1.component",
        "nik[0]",
        r"the device 'host' has no component 'nik' - did you mean 'nic'",
    ),
    ("edges.0.ep1.instance", "nod[0]", r"no instance 'nod' - did you mean 'node'"),
    ("edges.0.ep1.instance", "node[2]", r"\[2\] in 'node\[2\]' is out of range: there are 2"),
    ("edges.0.ep1.instance", "node[0:3]", r"\[0:3\] .* out of range"),
    ("edges.0.ep1.instance", "node[-3:]", r"out of range"),
    ("edges.0.ep1.instance", "node[1:1]", r"\[1:1\] .* is empty"),
    ("edges.0.ep1.instance", "node[::0]", r"is neither an index nor a slice"),
    ("edges.0.ep1.instance", "node[a]", r"is neither an index nor a slice"),
    ("edges.0.ep1.instance", "node[0", r"is not a component; write a name and a slice"),
    ("edges.0.ep1.component", "nic.port", r"'nic' in 'nic.port' has no components"),
    ("edges.0.ep1", GONE, r"edges\[0\]: 'ep1' must be a mapping"),
    ("edges.0.link", "cabel", r"the infrastructure has no link 'cabel' - did you mean 'cable'"),
    ("edges.0.scheme", "all2all", r"'scheme' cannot be 'all2all'"),
    ("links.0.physical.bandwidth", {"megabits": 3}, r"'cable' has no bandwidth"),
    ("links.0.physical.bandwidth", {"choice": "bits", "bits": 1}, r"unit cannot be 'bits'"),
    ("links.0.physical.bandwidth", {"gigabits_per_second": -1}, r"must be a number of 0 or more"),
    ("links.0.physical.bandwidth", {"gigabits_per_second": 0}, r"must be more than 0"),
    ("links.0.physical.bandwidth", {"gigabits_per_second": float("nan")}, r"must be a number"),
    ("links.0.physical.latency", {"ns": "5"}, r"'ns' must be a number"),
    ("links.0.physical.latency", 5, r"'latency' must be a mapping"),
    ("edges", [], r"no path from node.0.gpu.0 to node.1.gpu.0"),
    ("devices.0.components.0.choice", "cpu", r"no component of type 'xpu'.*cpu, nic"),
    ("devices.0.components.+", part("host", "device"), r"'host' in 'host' contains itself"),
    ("devices.0.components.+", part("ghost", "device"), r"names the unknown device 'ghost'"),
]


@pytest.mark.parametrize(("path", "value", "words"), BAD)
def test_bad_files_are_refused_in_one_sentence(path, value, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, changed(path, value))


def keys_of(data: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the path of every key in *data*."""
    for key, value in data.items() if isinstance(data, dict) else enumerate(data):
        if isinstance(key, str):
            yield (*path, key)
        if isinstance(value, (dict, list)):
            yield from keys_of(value, (*path, key))


@pytest.mark.parametrize("name", sorted(EXPECTED))
@given(chance=st.randoms(use_true_random=False))
@settings(max_examples=10, deadline=None)
def test_misspelled_keys_are_refused(name, chance):
    data = json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    path = chance.choice([each for each in keys_of(data) if each[-1] not in FREE])
    inner = functools.reduce(lambda value, key: value[key], path[:-1], data)
    place, wrong = chance.randrange(len(path[-1]) + 1), path[-1]
    wrong = wrong[:place] + chance.choice("eqx_") + wrong[place:]
    inner[wrong] = inner.pop(path[-1])
    with pytest.raises(ConfigError):
        described(data, DEFAULTS)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_keys_of_other_tools_are_allowed(name):
    data = json.loads((SAMPLES / f"{name}.json").read_text(encoding="utf-8"))
    expected = described(data, DEFAULTS)
    for path in [each[:-1] for each in keys_of(data) if each[-1] == "name"]:
        part = functools.reduce(lambda value, key: value[key], path, data)
        part.pop("description", None)
        part.update(version="1.1", comment="front", position=3, device_type="SXM", width=16)
    assert described(data, DEFAULTS) == expected


def test_errors_of_options_name_their_own_file(tmp_path):
    shutil.copy(SAMPLES / "dgx1.json", tmp_path / "machine.json")
    network = {"infragraph": "machine.json", "link-defaults": {"*": {"bandwidth": "100Gb/s", "latency": 7}}}
    (tmp_path / "net.yml").write_text(yaml.safe_dump(network))
    with pytest.raises(ConfigError, match=r"net\.yml: 'latency' of|net\.yml: 'link-defaults'"):
        NetworkConfig.load(tmp_path / "net.yml")


def test_instances_without_devices_are_an_error():
    with pytest.raises(ConfigError, match=r"names the device 'server', but .* no 'devices'"):
        described({"instances": [{"name": "host", "device": "server", "count": 2}]})


def test_devices_nested_without_end_are_refused():
    chain = [{"name": f"d{n}", "components": [part(f"d{n + 1}", "device")]} for n in range(3000)]
    data = {
        "devices": [*chain, {"name": "d3000", "components": [part("gpu", "xpu")]}],
        "instances": [{"name": "i", "device": "d0", "count": 1}],
    }
    with pytest.raises(ConfigError, match="nested more than 20 deep"):
        described(data)


def described(data: dict[str, Any], options: dict[str, Any] | None = None) -> dict[str, Any]:
    return _network.network_mapping(data, "here", options or {}, "here")


def test_counts_that_multiply_are_refused():
    devices = [{"name": f"d{n}", "components": [part(f"d{n + 1}", "device", 1000)]} for n in range(5)]
    data = {
        "devices": [*devices, {"name": "d5", "components": [part("gpu", "xpu")]}],
        "instances": [{"name": "i", "device": "d0", "count": 1}],
    }
    with pytest.raises(ConfigError, match="more than 500,000 components"):
        described(data)


def test_a_truncated_file_is_refused(tmp_path):
    text = (SAMPLES / "dgx1.json").read_text(encoding="utf-8")
    path = tmp_path / "cut.json"
    path.write_text(text[: len(text) // 2], encoding="utf-8")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        NetworkConfig.load(path)


def test_hostile_yaml_is_refused(tmp_path):
    path = tmp_path / "bomb.yml"
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    path.write_text("\n".join([*lines, "instances: *a9"]), encoding="utf-8")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        NetworkConfig.load(path)
    path.write_text("instances: !!python/object/apply:os.system [true]", encoding="utf-8")
    with pytest.raises(ConfigError, match="is not valid YAML"):
        NetworkConfig.load(path)


WRONG_OPTIONS = [
    ({"link-defaults": {"cabel": {"latency": "1us"}}}, "'link-defaults' names 'cabel'.*did you mean 'cable'"),
    ({"link-defaults": {"cable": {"latency": 5}}}, "5 has no unit"),
    ({"link-defaults": {"cable": {"bandwidth": "25"}}}, "'25' has no unit"),
    ({"link-defaults": {"cable": {"latency": "1e3"}}}, "'1e3' has no unit"),
    ({"link-defaults": {"cable": {"bandwidth": "0Gb/s"}}}, "must be more than 0"),
    ({"link-defaults": {"cable": {"speed": "25Gb/s"}}}, "there is no key 'speed'"),
    ({"link-defaults": {"cable": {"width": 0}}}, "'width' must be a whole number from 1 to 1,024"),
    ({"link-defaults": {"cable": {}}}, "must be a mapping with at least one of bandwidth, latency, width"),
    ({"link-defaults": ["cable"]}, "'link-defaults' must be a mapping"),
    ({"without": "cable"}, "'without' must be a list"),
    ({"without": ["nick"]}, "'without' names 'nick'.*did you mean 'nic'"),
    ({"ranks": 3}, "'ranks' must be a string"),
    ({"ranks": "memory"}, "no component of type 'memory'"),
    ({"rank-forwarding": "yes"}, "'rank-forwarding' must be true or false"),
]


@pytest.mark.parametrize(("options", "words"), WRONG_OPTIONS)
def test_wrong_options_are_refused(options, words, tmp_path):
    with pytest.raises(ConfigError, match=words):
        load(tmp_path, pair(), **options)


def test_options_without_an_infragraph_are_refused(tmp_path):
    plain = {"topology": ["Ring"], "npus_count": [2], "bandwidth": [1.0], "latency": [5.0]}
    with pytest.raises(ConfigError, match="'without' requires an InfraGraph"):
        load(tmp_path, plain, without=["pcie"])


def test_other_components_can_be_the_ranks(tmp_path):
    network = load(tmp_path, pair(), ranks="nic")
    assert network.devices == ("node.0.nic.0", "node.1.nic.0", "leaf.0.asic.0")
