"""Configuration files: conversions, round trips, and what is refused."""

from __future__ import annotations

import base64
import gzip
import json
import re

import pytest

from chakrascope.errors import ConfigError
from chakrascope.runner import MemoryConfig, NetworkConfig, SystemConfig, list_presets, load_groups

NETWORK = "topology: [Ring, Switch]\nnpus_count: [4, 2]\nbandwidth: [50, 25.5]\nlatency: [500, 0]\n"


def write(folder, name, content):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def test_network_round_trip(tmp_path):
    config = NetworkConfig.load(write(tmp_path, "n.yml", NETWORK + "comment: 1\n"))
    assert config.num_ranks == 8
    assert config.bandwidth_bytes_per_ns[0] == 50 * 2**30 / 1e9
    assert config.unknown == {"comment": 1}
    config.save(tmp_path / "copy.yml")
    assert NetworkConfig.load(tmp_path / "copy.yml") == config


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (NETWORK.replace("Ring", "Rign"), "did you mean 'Ring'"),
        (NETWORK.replace("[4, 2]", "[4]"), "1 entries"),
        (NETWORK.replace("[4, 2]", "[4, 1]"), r"at least 2 \(or \[1\]"),
        (NETWORK.replace("[4, 2]", "[4, 2.5]"), "whole number"),
        (NETWORK.replace("[50, 25.5]", "[50, 0]"), "more than 0"),
        (NETWORK.replace("[50, 25.5]", "50"), "must be a list"),
        (NETWORK.replace("[500, 0]", "[500, -1]"), "0 or more"),
        (NETWORK.replace("latency", "latncy"), r"'latency' is missing \(is 'latncy' meant to be it\?\)"),
        ("topology: [", "not valid YAML"),
        ("- 1", "mapping"),
        ("", "mapping"),
    ],
)
def test_wrong_networks_are_refused(tmp_path, content, message):
    with pytest.raises(ConfigError, match=message):
        NetworkConfig.load(write(tmp_path, "n.yml", content))


def test_aliases_that_stand_for_billions_of_values_are_refused(tmp_path):
    lines = ["a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1, 1]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 12)]
    path = write(tmp_path, "n.yml", NETWORK + "\n".join(lines) + "\n")
    with pytest.raises(ConfigError, match=r"alias \*a\d+ repeats too much.*line \d+"):
        NetworkConfig.load(path)
    path = write(tmp_path, "n.yml", NETWORK + "self: &self [*self]\n")
    with pytest.raises(ConfigError, match=r"alias \*self repeats too much"):
        NetworkConfig.load(path)


def test_a_few_aliases_are_read(tmp_path):
    content = NETWORK.replace("[4, 2]", "&size [4, 2]") + "source: *size\n"
    content += "comment: {<<: &m {a: 1}, b: &n {<<: *m, a: 2}, c: {<<: *n}}\n"
    config = NetworkConfig.load(write(tmp_path, "n.yml", content))
    assert config.unknown == {
        "source": [4, 2],
        "comment": {"a": 1, "b": {"a": 2}, "c": {"a": 2}},
    }


def test_of_merged_mappings_the_first_holds_and_own_keys_before_it(tmp_path):
    content = NETWORK + "comment: {m: &m {alpha: 1, x: 5}, n: &n {alpha: 2, y: 6}, o: {<<: [*m, *n], y: 7}}\n"
    config = NetworkConfig.load(write(tmp_path, "n.yml", content))
    assert config.unknown["comment"]["o"] == {"alpha": 1, "x": 5, "y": 7}
    path = write(tmp_path, "n.yml", NETWORK + "comment: {<<: [1]}\n")
    with pytest.raises(ConfigError, match=r"'<<' merges mappings only.*line \d+"):
        NetworkConfig.load(path)


def test_system_conversions_are_astra_sims(tmp_path):
    data = {"preferred-dataset-splits": 4.0, "roofline-enabled": False, "replay-only": 0, "boost-mode": 1}
    config = SystemConfig.load(write(tmp_path, "s.json", data))
    assert config.preferred_dataset_splits == 4
    assert config.roofline_enabled is True
    assert config.replay_only is False
    assert any("boost-mode" in line for line in config.ineffective())
    config.save(tmp_path / "copy.json")
    assert SystemConfig.load(tmp_path / "copy.json") == config


@pytest.mark.parametrize(
    ("load", "content", "message"),
    [
        (SystemConfig.load, '{"endpoint-dely": 3}', r"c\.json: .*did you mean 'endpoint-delay'"),
        (MemoryConfig.load, '{"remote-memory-bw": 3}', r"c\.json: .*did you mean 'remote-mem-bw'"),
        (NetworkConfig.load, NETWORK + "pakcet: {}\n", r"'pakcet' - did you mean 'packet'"),
        (SystemConfig.load, '{"endpoint-delay": 3, "endpoint-delay": 4}', "'endpoint-delay' .* twice"),
        (MemoryConfig.load, '{"num-nodes": 3, "num-nodes": 3}', "'num-nodes' occurs twice"),
        (NetworkConfig.load, NETWORK + "latency: [1, 2]\n", r"'latency' occurs twice.*line"),
        (load_groups, '{"1": [0, 1], "1": [2, 3]}', "'1' occurs twice"),
        (load_groups, '{"1": [0, 1], "01": [2, 3]}', "group 1 occurs twice"),
        (NetworkConfig.load, NETWORK + "comment: {1: a, '1': b}\n", "'1' occurs twice"),
    ],
)  # fmt: skip
def test_unknown_and_repeated_keys_are_errors(tmp_path, load, content, message):
    path = tmp_path / ("c.yml" if load == NetworkConfig.load else "c.json")
    path.write_text(content)
    with pytest.raises(ConfigError, match=message):
        load(path)


@pytest.mark.parametrize(
    ("load", "content", "message"),
    [
        (SystemConfig.load, '{"preferred-dataset-splits": 2.5}', "whole number, but is 2.5"),
        (SystemConfig.load, '{"endpoint-delay": true}', "whole number, but is True"),
        (SystemConfig.load, '{"endpoint-delay": NaN}', "whole number"),
        (SystemConfig.load, '{"endpoint-delay": Infinity}', "whole number"),
        (SystemConfig.load, '{"peak-perf": true}', "must be a number"),
        (SystemConfig.load, '{"roofline-enabled": "yes"}', "must be 0 or 1, but is 'yes'"),
        (SystemConfig.load, '{"trace-enabled": null}', "must be 0 or 1"),
        (MemoryConfig.load, '{"remote-mem-bw": 6.5}', "whole number, but is 6.5"),
        (NetworkConfig.load, NETWORK.replace("[50,", "[true,"), "'bandwidth' must be a number"),
    ],
)
def test_values_of_another_type_are_errors(tmp_path, load, content, message):
    assert content != NETWORK
    with pytest.raises(ConfigError, match=message):
        load(write(tmp_path, "c.yml" if load == NetworkConfig.load else "c.json", content))


@pytest.mark.parametrize("text", ["1e3", "1E+3", "1.e3", "+1e3", "10000e-1"])
def test_numbers_with_exponents_need_neither_point_nor_sign(tmp_path, text):
    content = re.sub(r"bandwidth: \[[^,]*,", f"bandwidth: [{text},", NETWORK)
    assert NetworkConfig.load(write(tmp_path, "n.yml", content)).bandwidth[0] == 1000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"scheduling-policy": "LILO"}, "did you mean 'LIFO'"),
        ({"collective-optimization": "localBW"}, "did you mean"),
        ({"all-reduce-implementation": "ring"}, "list of strings"),
        ({"all-reduce-implementation": ["rign"]}, "did you mean 'ring'"),
        ({"all-reduce-implementation-custom": ["a", "b"]}, "exactly one"),
        ({"endpoint-delay": "10"}, "must be a whole number"),
        ([], "mapping"),
        ("{", "not valid JSON"),
    ],
)
def test_wrong_systems_are_refused(tmp_path, data, message):
    with pytest.raises(ConfigError, match=message):
        SystemConfig.load(write(tmp_path, "s.json", data))


def test_memory_round_trip_and_refusal(tmp_path):
    data = {"memory-type": "MEMORY_POOL", "remote-mem-latency": 100.0, "remote-mem-bw": 50}
    config = MemoryConfig.load(write(tmp_path, "m.json", data))
    assert config.remote_mem_latency == 100
    config.save(tmp_path / "copy.json")
    assert MemoryConfig.load(tmp_path / "copy.json") == config
    with pytest.raises(ConfigError, match="did you mean 'MEMORY_POOL'"):
        MemoryConfig.load(write(tmp_path, "m.json", {"memory-type": "MEMORY_POL"}))


@pytest.mark.parametrize(
    "data", [{"0": [1]}, {"x": [1]}, {"1": []}, {"1": [1, 1]}, {"1": "a"}, {"1": [True]}]
)
def test_wrong_groups_are_refused(tmp_path, data):
    with pytest.raises(ConfigError):
        load_groups(write(tmp_path, "g.json", data))


def test_groups_keep_their_order(tmp_path):
    assert load_groups(write(tmp_path, "g.json", {"1": [2, 0]})) == {1: (2, 0)}


@pytest.mark.parametrize("name", list_presets("network"))
def test_presets_load(name):
    network = NetworkConfig.preset(name)
    system = SystemConfig.preset("default", network.dimensions)
    assert len(system.all_reduce_implementation) == network.dimensions
    assert 2 <= network.num_ranks <= 256


def test_a_missing_file_is_explained(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        NetworkConfig.load(tmp_path / "absent.yml")


def test_the_configurations_of_the_recorded_cases_round_trip(data_dir, tmp_path):
    with gzip.open(data_dir / "engine" / "cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) == 150
    for case in cases:
        for name in ("system.json", "network.yml"):
            (tmp_path / name).write_bytes(base64.b64decode(case["files"][name]))
        system = SystemConfig.load(tmp_path / "system.json")
        assert SystemConfig.from_mapping(system.to_dict(), "copy") == system
        network = NetworkConfig.load(tmp_path / "network.yml")
        assert NetworkConfig.from_mapping(network.to_dict(), "copy") == network
