"""The package ``infragraph``: its blueprints and importers, and a comparison of both graph readers."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import yaml

from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig
from chakrascope.runner.config.blueprints import BLUEPRINTS
from chakrascope.runner.config.infragraph import _expand, _schema

SAMPLES = sorted((Path(__file__).parents[2] / "data" / "runner" / "infragraph").glob("*.json"))
EVERY = {"*": {"bandwidth": "100Gb/s", "latency": "1us"}}
FABRICS = {
    "clos": {},
    "clos-fat-tree": {"ports": 8, "host": "server", "levels": 3, "bandwidth": [100, 200, 400]},
    "dragonfly": {"ports": 16, "host": "server", "a": 4, "p": 2, "h": 2, "bandwidth": [100, 100, 100]},
    "hybrid-debruijn": {"ports": 8, "host": "server", "order": 2},
    "multi-host-debruijn": {"ports": 8, "host": "server", "order": 2},
    "single-tier": {"host": "dgx_a100", "hosts": 2, "bandwidth": 100},
}
RANKS = {"clos": 8, "clos-fat-tree": 128, "dragonfly": 72, "single-tier": 16, "ironwood": 64, "dgx2": 16}

LSTOPO = """<?xml version="1.0" encoding="UTF-8"?>
<topology version="2.0">
  <object type="Machine" os_index="0" gp_index="1">
    <info name="DMIProductName" value="box"/>
    <object type="Package" os_index="0" gp_index="2">
      <info name="CPUModel" value="some CPU"/>
      <object type="NUMANode" os_index="0" gp_index="3" local_memory="1024"/>
      <object type="Bridge" gp_index="10" bridge_type="0-1" depth="0" bridge_pci="0000:[00-02]">
        <object type="PCIDev" gp_index="11" pci_busid="0000:01:00.0"
                pci_type="0302 [10de:20b0] [10de:134f] a1" pci_link_speed="31.5">
          <object type="OSDev" gp_index="12" name="cuda0" osdev_type="5"/>
        </object>
        <object type="PCIDev" gp_index="13" pci_busid="0000:02:00.0"
                pci_type="0302 [10de:20b0] [10de:134f] a1" pci_link_speed="31.5">
          <object type="OSDev" gp_index="14" name="cuda1" osdev_type="5"/>
        </object>
      </object>
    </object>
  </object>
</topology>
"""
NCCL = """<system version="1">
  <cpu numaid="0" affinity="ff" arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="85">
    <pci busid="0000:01:00.0" class="0x060400" vendor="0x1000" device="0xc010" link_speed="16">
      <pci busid="0000:02:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16">
        <gpu dev="0" sm="80" rank="0"><nvlink target="0000:03:00.0" count="12" tclass="0x030200"/></gpu>
      </pci>
      <pci busid="0000:03:00.0" class="0x030200" vendor="0x10de" device="0x20b0" link_speed="16">
        <gpu dev="1" sm="80" rank="1"><nvlink target="0000:02:00.0" count="12" tclass="0x030200"/></gpu>
      </pci>
    </pci>
  </cpu>
</system>
"""


def need_package() -> None:
    pytest.importorskip(
        "infragraph.translators", reason="the package infragraph is not installed: pip install infragraph"
    )


def blueprint(tmp_path: Path, name: str, **settings: object) -> NetworkConfig:
    path = tmp_path / "network.yml"
    described = {"infragraph": {"blueprint": name, **settings}, "link-defaults": EVERY}
    path.write_text(yaml.safe_dump(described), encoding="utf-8")
    return NetworkConfig.load(path)


def test_a_named_pipe_is_refused_instead_of_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "nccl.xml")
    with pytest.raises(ConfigError, match=r"nccl\.xml cannot be read \(it is a device or a named pipe"):
        NetworkConfig.load(tmp_path / "nccl.xml")


@pytest.mark.parametrize("name", BLUEPRINTS)
def test_every_blueprint_loads(name, tmp_path):
    need_package()
    network = blueprint(tmp_path, name, **FABRICS.get(name, {}))
    assert network.links
    assert network.num_ranks == RANKS.get(name, network.num_ranks)


def test_errors_of_blueprints_are_corrected_with_a_note(tmp_path):
    need_package()
    network = blueprint(tmp_path, "dgx2")
    assert any("'nvlsw', which is missing; 'nvsw' is assumed" in text for text in network.assumptions)
    tree = blueprint(tmp_path, "clos-fat-tree", **FABRICS["clos-fat-tree"])
    assert any("here they have a separate bandwidth" in text for text in tree.assumptions)
    number = {name: place for place, name in enumerate(tree.devices)}
    spine = number["tier_2.0.asic.0"]
    assert {round(link.bandwidth * 8 * 2**30) for link in tree.links if spine in (link.a, link.b)} == {
        400 * 10**9
    }


def test_settings_of_blueprints_are_checked(tmp_path):
    with pytest.raises(ConfigError, match="no blueprint 'clos-fat-three' - did you mean 'clos-fat-tree'"):
        blueprint(tmp_path, "clos-fat-three")
    with pytest.raises(ConfigError, match="needs 'bandwidth'"):
        blueprint(tmp_path, "single-tier", host="server", hosts=2)
    with pytest.raises(ConfigError, match="has no 'host'"):
        blueprint(tmp_path, "dgx1", host="server")


def test_what_the_package_refuses_is_one_of_our_errors(tmp_path):
    need_package()
    with pytest.raises(ConfigError, match="the package 'infragraph' refuses this"):
        blueprint(tmp_path, "dragonfly", **(FABRICS["dragonfly"] | {"a": 5}))
    with pytest.raises(ConfigError, match="there is no host 'servr' - did you mean 'server'"):
        blueprint(tmp_path, "single-tier", host="servr", hosts=2, bandwidth=100)


def test_missing_infragraph_names_the_package(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "infragraph.blueprints.devices.nvidia.dgx", None)
    with pytest.raises(ConfigError, match=r"pip install 'chakrascope\[infragraph\]'"):
        blueprint(tmp_path, "dgx1")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda path: path.stem)
def test_graphs_are_the_package_s_own(path):
    need_package()
    from infragraph.infragraph_service import InfraGraphService

    text = path.read_text(encoding="utf-8")
    data = json.loads(text)
    if "instances" not in data:
        inner = {"name": data["name"], "device": data["name"], "count": 1}
        data = {"name": "one", "devices": [data], "instances": [inner]}
    service = InfraGraphService()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("warnings.warn", lambda *_: None)  # of components that nothing is linked to
        service.set_graph(json.dumps(data))
    theirs = service.get_networkx_graph()
    graph = _expand.expand(_schema.read(data, path.name), path.name)
    assert [node.name for node in graph.nodes] == list(theirs.nodes)
    found = {frozenset((graph.nodes[line.a].name, graph.nodes[line.b].name)) for line in graph.lines}
    assert found == {frozenset(pair) for pair in theirs.edges}


@pytest.mark.parametrize(("text", "ranks"), [(LSTOPO, 2), (NCCL, 2)], ids=["lstopo", "nccl"])
def test_machines_are_imported(text, ranks, tmp_path):
    need_package()
    path = tmp_path / "my-machine.xml"
    path.write_text(text, encoding="utf-8")
    network = NetworkConfig.load(path, {"link-defaults": EVERY})
    assert network.num_ranks == ranks
    assert network.links


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<topology><object", "is not valid XML"),
        ("<html/>", "begins with <'html'>; lstopo's XML"),
        ("", "is not valid XML"),
        ('<!DOCTYPE a [<!ENTITY x "y">]><a>&z;</a>', "is not valid XML"),
    ],
)
def test_other_xml_is_refused(text, words, tmp_path):
    path = tmp_path / "machine.xml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match=words):
        NetworkConfig.load(path)
