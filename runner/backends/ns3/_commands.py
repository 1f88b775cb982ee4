"""Describe a packet network in the driver's commands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ....errors import ConfigError
from ...config import SETTINGS, PacketNetwork, parse_rate_bps

__all__ = ["describe_network"]

# Settings the driver has no use for: files, sampling, and what has no effect.
_HOST_ONLY = frozenset(
    {
        "ENABLE_TRACE",
        "ERROR_RATE_PER_LINK",
        "LINK_DOWN",
        "NIC_TOTAL_PAUSE_TIME",
        "PAUSE_TIME",
        "QLEN_MON_END",
        "QLEN_MON_START",
        "SIMULATOR_STOP_TIME",
        "USE_DYNAMIC_PFC_THRESHOLD",
    }
)
_CLOCK_NS = 1000
# Smaller ones do not fit the 16 bits of the header.
_SMALLEST_BASE = 1.001


def describe_network(network: PacketNetwork) -> str:
    """Return the commands that build *network*; raises `ConfigError` for settings that cannot work."""
    settings = network.settings
    if settings["PACKET_PAYLOAD_SIZE"] < 1:
        raise ConfigError(
            "PACKET_PAYLOAD_SIZE is 0, but a packet must carry at least one byte; set e.g. 1000."
        )
    if settings["PINT_LOG_BASE"] < _SMALLEST_BASE:
        raise ConfigError(
            f"PINT_LOG_BASE is {settings['PINT_LOG_BASE']:g}, but loads are told in powers of it; set 1.05."
        )
    lines = [line for key in sorted(settings) for line in _setting(key, settings[key])]
    lines.append(" ".join(map(str, ["nodes", network.nodes, *network.switches])))
    default_loss = settings["ERROR_RATE_PER_LINK"]
    lines += [
        f"link {link.a} {link.b} {link.rate_bps} {link.delay_ps} {link.loss or default_loss!r}"
        for link in network.links
    ]
    lines.append(f"report {'acknowledged' if settings['ASTRA_SIM_CLOCK'] else 'delivered'}")
    lines.append("build")
    return "\n".join(lines) + "\n"


def _setting(key: str, value: Any) -> Iterator[str]:
    kind = SETTINGS[key][0]
    if key == "ASTRA_SIM_CLOCK":
        yield f"set TIME_STEP_PS {_CLOCK_NS if value else 1}"
    elif kind == "text" or key in _HOST_ONLY:
        return
    elif isinstance(value, Mapping):
        for rate, entry in sorted(value.items()):
            yield f"set {key} {rate} {entry!r}"
    elif kind == "rate":
        yield f"set {key} {parse_rate_bps(value, key)}"
    else:
        yield f"set {key} {value!r}"
