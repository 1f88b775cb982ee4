"""Whose links and whose chip a configuration describes, told by its figures: those of the presets."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from ._network import NetworkConfig
from ._presets import list_presets
from ._system import SystemConfig

__all__ = ["accelerators_of"]

# What the names of presets begin with; those of other presets say nothing about what computes.
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
    """Return whose links *network* and whose chip *system* has, as their files hold them, each once.

    A network is known by the topology and the bandwidth of its innermost dimension, a system by its peaks, so
    that files made from a preset are known too. Empty where the figures are no preset's.
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
