"""Machine files: those that ship are whole and sourced, and mistakes in one are named."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest
import yaml

from chakrascope.errors import ConfigError
from chakrascope.runner import gpu
from chakrascope.runner.chips import find_chip
from chakrascope.runner.gpu import find_machine, list_machines, load_machine

PARTS = ("compute", "mesh", "memory", "scale_up", "scale_out")


def plain(name):
    path = Path(gpu.__file__).parent / "machines" / f"{name}.yml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def written(tmp_path, data):
    path = tmp_path / "mine.yml"
    path.write_text(yaml.safe_dump(data), encoding="utf-8")
    return path


@pytest.mark.parametrize("name", list_machines())
def test_every_figure_of_a_shipped_machine_says_where_it_is_from(name):
    machine = find_machine(name)
    given = {f"{part}.{key}" for part in PARTS for key in plain(name)[part]}
    assert given <= set(machine.sources), given - set(machine.sources)
    assert "protocols" in machine.sources or {
        f"protocols.{protocol}" for protocol in machine.protocols
    } <= set(machine.sources)
    assert machine.title


def test_the_shipped_machines():
    assert list_machines() == ["a100", "generic", "h100", "mi300x"]
    generic = find_machine("generic")
    assert generic.compute.units + generic.memory.channels + generic.scale_up.ports == 448
    h100 = find_machine("h100")
    # 365 to 370 GB/s of data are measured on the links.
    assert 365 <= h100.scale_up.bytes_per_ns * 128 / (128 + h100.scale_up.header_bytes) <= 370
    # A load from the peer's L2 takes 826 ns, less what a load from the own one takes.
    assert 2 * h100.scale_up.latency_ns == pytest.approx(826 - 150)


@pytest.mark.parametrize(("machine", "chip"), [("h100", "h100"), ("a100", "a100-80"), ("mi300x", "mi300x")])
def test_what_a_chip_file_says_is_said_there_alone(machine, chip):
    assert "bytes_per_ns" not in plain(machine)["memory"]
    found = find_machine(machine)
    assert found.memory.bytes_per_ns == find_chip(chip).memory_bytes_per_s / 1e9
    assert chip in found.sources["memory.bytes_per_ns"]


def test_a_file_of_ones_own(tmp_path):
    data = plain("h100")
    data["memory"]["bytes_per_ns"] = 2000
    data["scale_up"]["gpus"] = 16
    machine = load_machine(written(tmp_path, data))
    assert (machine.name, machine.memory.bytes_per_ns, machine.scale_up.gpus) == ("mine", 2000.0, 16)
    kinds = {type(getattr(machine.scale_up, item.name)) for item in fields(machine.scale_up)}
    assert kinds == {int, float, str, bool}


@pytest.mark.parametrize(
    ("part", "key", "value", "words"),
    [
        ("compute", "unit", 3, "did you mean 'units'"),
        ("scale_up", "latency_ns", "1.5e9", "must be a number"),
        ("compute", "units", 1.5, "must be a whole number"),
        ("scale_up", "multicast", "yes please", "must be true or false"),
        ("memory", "latency_ns", -1, "memory.latency_ns"),
        ("scale_up", "topology", "swich", "switch, direct"),
        ("sources", "memory.latency", "a guess", "did you mean 'memory.latency_ns'"),
        ("protocols", "LL12", {"slot_bytes": 1}, "did you mean 'LL128'"),
    ],
)
def test_a_mistake_is_named(tmp_path, part, key, value, words):
    data = plain("h100")
    data[part][key] = value
    with pytest.raises(ConfigError, match=words.replace("?", ".")):
        load_machine(written(tmp_path, data))


def test_what_is_missing_is_named(tmp_path):
    data = plain("h100")
    del data["scale_up"]["latency_ns"]
    with pytest.raises(ConfigError, match=r"scale_up: the key 'latency_ns' is missing"):
        load_machine(written(tmp_path, data))
    data = plain("h100")
    del data["protocols"]["LL"]
    with pytest.raises(ConfigError, match="protocol 'LL' is missing"):
        load_machine(written(tmp_path, data))
    with pytest.raises(ConfigError, match="did you mean 'h100'"):
        find_machine("h10")
    with pytest.raises(ConfigError, match="cannot be read"):
        load_machine(tmp_path / "none.yml")
