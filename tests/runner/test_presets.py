"""The presets: where their figures come from, and that every backend takes them."""

from __future__ import annotations

import json

import pytest
from workloads import coll, comp, workload

from chakrascope.converter import microbenchmark
from chakrascope.runner import NetworkConfig, SystemConfig, get_backend, list_presets, prepare, simulate
from chakrascope.runner.config import fabric_of, preset_path

GIB = 1 << 30
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
    text = preset_path("network", name).read_text()
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
    data = json.loads(preset_path("system", name).read_text())
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


@pytest.mark.parametrize(
    ("name", "switches", "uplinks"),
    [
        ("clos-2tier-64", 8 + 8, 64),
        ("clos-2tier-64-2to1", 8 + 4, 32),
        ("clos-3tier-128", 16 + 32 + 32, 128 + 128),
        ("clos-3tier-128-2to1", 16 + 16 + 8, 64 + 32),
    ],
)
def test_clos_networks_have_the_switches_and_links_they_claim(name, switches, uplinks):
    network = NetworkConfig.preset(name)
    packet = fabric_of(network)
    assert len(packet.switches) == switches
    assert len(packet.links) == network.num_ranks + uplinks


def test_oversubscription_shows_where_all_send_to_all():
    times = {}
    for name in ("clos-2tier-64", "clos-2tier-64-2to1"):
        asked = prepare(microbenchmark("all-to-all", 64, 1 << 20), "default", name, backend="packet")
        times[name] = get_backend("packet").run(asked).makespan_ns
    assert times["clos-2tier-64-2to1"] > 1.2 * times["clos-2tier-64"]
