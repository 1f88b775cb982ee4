"""Recognise the accelerator of a network or system configuration by the figures of the presets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ._network import NetworkConfig
from ._presets import list_presets
from ._system import SystemConfig

__all__ = ["accelerators_of"]

# Prefixes of preset names that name an accelerator; other presets say nothing about the chip.
_OF_NETWORKS = {
    "dgx-2-": "V100",
    "dgx-a100-": "A100",
    "gb200-": "GB200",
    "hgx-h100-": "H100",
    "mi300x-": "MI300X",
    "tpu-v2-": "TPU v2",
}
_OF_SYSTEMS = {
    "roofline-a100": "A100",
    "roofline-gb200": "GB200",
    "roofline-h100": "H100",
    "roofline-mi300x": "MI300X",
    "roofline-tpu-v2": "TPU v2",
    "roofline-v100": "V100",
}
_CHIP = ("peak-perf", "local-mem-bw")


def accelerators_of(network: Mapping[str, Any], system: Mapping[str, Any]) -> list[str]:
    """Return the accelerators of *network*'s links and *system*'s chip, from their files' content, each once.

    A network is recognised by the topology and bandwidth of its innermost dimension, a system by its peaks,
    so that files derived from a preset are recognised too. Empty if no preset has these figures.
    """
    links, chips = _known()
    try:
        link = (network["topology"][0], float(network["bandwidth"][0]))
    except (IndexError, KeyError, TypeError, ValueError):
        link = ("", 0.0)
    found = [links.get(link, ""), chips.get(tuple(system.get(key) for key in _CHIP), "")]
    return [name for name in dict.fromkeys(found) if name]


@lru_cache(1)
def _known() -> tuple[dict[tuple[str, float], str], dict[tuple[Any, ...], str]]:
    links = {}
    for preset in list_presets("network"):
        name = next((name for start, name in _OF_NETWORKS.items() if preset.startswith(start)), "")
        if name:
            network = NetworkConfig.preset(preset)
            links[network.topology[0], network.bandwidth[0]] = name
    chips = {}
    for preset, name in _OF_SYSTEMS.items():
        system = SystemConfig.preset(preset).to_dict()
        chips[tuple(system[key] for key in _CHIP)] = name
    return links, chips
