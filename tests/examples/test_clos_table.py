"""The example of ASTRA-sim 3.0's Table 1 gives the figures its page has."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path

import pytest

from chakrascope.errors import BackendUnavailable, ConfigError
from chakrascope.runner import NetworkConfig

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "clos_table"


@pytest.fixture(scope="module")
def table():
    specification = importlib.util.spec_from_file_location("clos_table_run", FOLDER / "run.py")
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    try:
        return module.table_1("ns3")
    except BackendUnavailable as error:
        pytest.skip(f"no packet-level backend here: {error}")


def test_table_1_comes_out(table):
    assert table["as-run"].to_dict() == {
        "makespan_us": 165.989,
        "bus_bandwidth_gbps": 88.44,
        "shortest_ns": 11_250,
        "longest_ns": 14_552,
        "mean_ns": 11_476.55,
        "drops": 0,
    }
    assert table["as-meant"]["makespan_us"] == 438.567
    assert round(table["as-run"]["mean_ns"]) == table["published"]["mean_ns"]


def test_the_page_has_the_figures_of_the_table(table):
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    numbers = {float(word.replace(",", "")) for word in re.findall(r"\d[\d,]*(?:\.\d+)?", text)}
    assert {value for column in table for value in table[column]} <= numbers


def test_without_defaults_the_links_are_refused():
    with pytest.raises(ConfigError, match=r"'dgx_a100\.xpu_fabric' has no bandwidth and no latency"):
        NetworkConfig.load(FOLDER / "dgx_a100.yml")


def test_the_defaults_are_named():
    network = NetworkConfig.load(FOLDER / "network-as-run.yml")
    assert any("bandwidth 100Gb/s ('xpu_fabric') and latency 0ns" in text for text in network.assumptions)
    assert (network.num_ranks, len(network.devices), len(network.links)) == (8, 14, 48)
