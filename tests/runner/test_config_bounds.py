"""Absurd numbers in configurations: refused where they are read, with the key and the file."""

from __future__ import annotations

import dataclasses
import json
import math

import pytest
import yaml
from workloads import coll, workload

from chakrascope.errors import ConfigError
from chakrascope.runner import MemoryConfig, NetworkConfig, SystemConfig, prepare

DIMENSIONS = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [50], "latency": [500]}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("active-chunks-per-dimension", 0),
        ("active-chunks-per-dimension", 4294967296),
        ("endpoint-delay", -1),
        ("endpoint-delay", 1e30),
        ("endpoint-delay", 2**31),
        ("local-mem-bw", -1),
        ("local-mem-bw", 1e300),
        ("local-reduction-delay", 2**31),
        ("model-shared-bus", 2**31),
        ("peak-perf", 1e300),
        ("preferred-dataset-splits", 0),
        ("preferred-dataset-splits", 2_000_000_000),
        ("G", 1e300),
        ("L", -1),
        ("g", 1e13),
        ("o", 1e39),
    ],
)
def test_absurd_systems_are_refused(key, value, tmp_path):
    path = tmp_path / "system.json"
    path.write_text(json.dumps({key: value}))
    with pytest.raises(ConfigError, match=f"system.json: '{key}' must be between"):
        SystemConfig.load(path)
    with pytest.raises(ConfigError, match=f"'{key}' must be between"):
        dataclasses.replace(SystemConfig(), **{key.replace("-", "_"): value})


@pytest.mark.parametrize("key", ["remote-mem-latency", "remote-mem-bw", "num-nodes", "num-npus-per-node"])
@pytest.mark.parametrize("value", [-1, 2**64, 1e300])
def test_absurd_memories_are_refused(key, value, tmp_path):
    path = tmp_path / "memory.json"
    path.write_text(json.dumps({"memory-type": "MEMORY_POOL", key: value}))
    with pytest.raises(ConfigError, match=f"memory.json: '{key}' must be between"):
        MemoryConfig.load(path)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("bandwidth", [1e-300]),  # took 150 ns for a MiB
        ("bandwidth", [1e300]),
        ("latency", [1e18]),  # "stalled"
        ("latency", [1e300]),
        ("npus_count", [2**31]),
        ("links", [[1, 4, 50, [[]]]]),
        ("links", [[1, 4, 50]]),
        ("links", [[1, 1, 50, 500]]),
        ("links", [[1.5, 4, 50, 500]]),
        ("links", [[-1, 4, 50, 500]]),
        ("links", [[1, 2**40, 50, 500]]),
        ("links", [[1, 4, 0, 500]]),
        ("links", [[1, 4, math.nan, 500]]),
        ("links", [[1, 4, 50, math.inf]]),
        ("links", [[1, 4, True, "500"]]),
        ("links", {"a": 1}),
        ("links", "0-4"),
        ("links", 7),
    ],
)
def test_absurd_networks_are_refused(key, value, tmp_path):
    path = tmp_path / "network.yml"
    path.write_text(yaml.safe_dump(DIMENSIONS | {key: value}))
    with pytest.raises(ConfigError, match=rf"network.yml: .*'{key}'"):
        NetworkConfig.load(path)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("num-queues-per-dim", 0),
        ("num-queues-per-dim", 4294967296),
        ("injection-scale", math.nan),
        ("injection-scale", math.inf),
        ("injection-scale", -1.0),
        ("injection-scale", 1e18),
    ],
)
def test_absurd_options_are_refused(option, value):
    with pytest.raises(ConfigError, match=option):
        prepare(
            workload(*[[coll(0, 1 << 20)]] * 4),
            "default",
            NetworkConfig.from_mapping(DIMENSIONS, "here"),
            semantics="astra-sim",
            **{option.replace("-", "_"): value},
        )
