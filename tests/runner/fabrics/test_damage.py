"""Whatever an InfraGraph file holds, it becomes a network or one of our errors."""

from __future__ import annotations

import contextlib
import copy
import json
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig
from chakrascope.runner.config.infragraph import _network

SAMPLES = Path(__file__).parents[2] / "data" / "runner" / "infragraph"
DEFAULTS = {"link-defaults": {"*": {"bandwidth": "100Gb/s", "latency": "1us"}}}
WHOLE = json.loads((SAMPLES / "single-tier.json").read_text(encoding="utf-8"))
JUNK = st.sampled_from(
    [
        None,
        "",
        "x",
        "nic[9]",
        "nic[::-1]",
        "[",
        "a.b.c",
        -1,
        0,
        10**30,
        1.5,
        float("inf"),
        True,
        [],
        {},
        [{}],
        ["x"],
    ]
)


def places(value: Any, way: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the way to every value within *value*."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [way] * bool(way) + [place for key, item in inner for place in places(item, (*way, key))]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(places(WHOLE)), JUNK), min_size=1, max_size=3))
def test_damaged_files_are_networks_or_errors(changes):
    data = copy.deepcopy(WHOLE)
    for way, junk in changes:
        inner = data
        with contextlib.suppress(KeyError, IndexError, TypeError):
            for step in way[:-1]:
                inner = inner[step]
            inner[way[-1]] = copy.deepcopy(junk)
    with contextlib.suppress(ConfigError):
        mapping = _network.network_mapping(data, "here", DEFAULTS)
        network = NetworkConfig.from_mapping(mapping, "here")
        assert len(network.devices) == 1 + max(max(link.a, link.b) for link in network.links)
