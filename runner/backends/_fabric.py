"""Pass the fabric of a network, and its packet settings, to the engine."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import engine
from ..config import PacketNetwork, parse_rate_bps

__all__ = ["set_fabric"]

_PS_PER_NS = 1000


def set_fabric(config: engine.Config, model: engine.FabricModel, network: PacketNetwork) -> None:
    """Configure *model* to carry the messages over *network*; raises `ConfigError` if buffers cannot."""
    if model is engine.FabricModel.PACKET:
        network.check_buffers()
        network.check_timeout()
    config.fabric_model = model
    config.fabric = _describe(network)
    config.packet = _settings(network.settings)


def _describe(network: PacketNetwork) -> engine.FabricDescription:
    fabric = engine.FabricDescription()
    fabric.nodes = network.nodes
    fabric.switches = list(network.switches)
    fabric.hosts = list(network.hosts)
    default_loss = network.settings["ERROR_RATE_PER_LINK"]
    fabric.links = [
        (link.a, link.b, link.rate_bps, link.delay_ps, link.loss or default_loss) for link in network.links
    ]
    fabric.changes = [
        (_PS_PER_NS * change.time_ns, change.link, change.rate_bps) for change in network.changes
    ]
    return fabric


def _settings(given: Mapping[str, Any]) -> engine.PacketSettings:
    """Return the settings as the engine takes them; it takes rates in bit/s."""
    rates = [key for key, setting in engine.SETTINGS.items() if setting.kind == "rate"]
    return engine.PacketSettings({**given, **{key: parse_rate_bps(given[key], key) for key in rates}})
