"""Pass the fabric of a network, and its packet settings, to the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...errors import ConfigError
from .. import engine
from ..config import PacketNetwork, parse_rate_bps

__all__ = ["set_fabric"]

_ASTRA_SIM_STEP_PS = 1000
_PS_PER_NS = 1000
_PS_PER_US = 1e6
# Smaller ones do not fit into the header's 16 bits.
_SMALLEST_BASE = 1.001
_MOST_32 = (1 << 32) - 1
_LONGEST_TRAIN = 256
_MOST_63 = (1 << 63) - 1


def _count(value: Any) -> int:
    return min(int(value), _MOST_32)


def _duration(value: Any) -> int:
    """Return microseconds in ps."""
    return min(int(value * _PS_PER_US), _MOST_63)


def _rate(value: Any) -> float:
    return float(parse_rate_bps(value, "rate"))


def _mebibytes(value: Any) -> int:
    return min(int(value) << 20, _MOST_63)


def _table(value: Mapping[int, Any]) -> dict[int, float]:
    return {int(rate): float(entry) for rate, entry in value.items()}


# The engine's name of each setting of config.txt, and its conversion. Missing settings have no effect (names
# of files, sampling), or are not settings of the engine (LINK_DOWN, which is a failure).
_NAMES: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "ACK_HIGH_PRIO": ("ack_high_priority", bool),
    "ALPHA_RESUME_INTERVAL": ("alpha_interval", _duration),
    "BUFFER_SIZE": ("buffer_bytes", _mebibytes),
    "CC_MODE": ("control", lambda mode: min(int(mode), (1 << 31) - 1)),
    "CLAMP_TARGET_RATE": ("clamp_target", bool),
    "DCTCP_RATE_AI": ("dctcp_additive_bps", _rate),
    "ENABLE_QCN": ("mark", bool),
    "EWMA_GAIN": ("gain", float),
    "FAST_REACT": ("fast_react", bool),
    "FAST_RECOVERY_TIMES": ("fast_recovery_times", _count),
    "GLOBAL_T": ("global_window", bool),
    "HAS_WIN": ("window", bool),
    "HEADROOM_FACTOR": ("headroom_factor", int),
    "INT_MULTI": ("telemetry_scale", _count),
    "KMAX_MAP": ("mark_high_kb", _table),
    "KMIN_MAP": ("mark_low_kb", _table),
    "L2_ACK_INTERVAL": ("ack_interval_bytes", _count),
    "L2_BACK_TO_ZERO": ("back_to_zero", bool),
    "L2_CHUNK_SIZE": ("chunk_bytes", _count),
    "MI_THRESH": ("stages", _count),
    "MIN_RATE": ("minimum_bps", _rate),
    "MULTI_RATE": ("rate_per_hop", bool),
    "PACKET_TRAIN": ("train", _count),
    "PACKET_PAYLOAD_SIZE": ("payload_bytes", _count),
    "PINT_LOG_BASE": ("pint_base", float),
    "PINT_PROB": ("pint_probability", float),
    "PMAX_MAP": ("mark_probability", _table),
    "RATE_AI": ("additive_bps", _rate),
    "RATE_BOUND": ("rate_bound", bool),
    "RATE_DECREASE_INTERVAL": ("decrease_interval", _duration),
    "RATE_HAI": ("hyper_bps", _rate),
    "RETRANSMIT_TIMEOUT": ("retransmit_timeout", _duration),
    "RP_TIMER": ("increase_interval", _duration),
    "SAMPLE_FEEDBACK": ("skip_empty_queues", bool),
    "SEED": ("seed", _count),
    "U_TARGET": ("target_utilisation", float),
    "VAR_WIN": ("variable_window", bool),
}


def set_fabric(config: engine.Config, model: engine.FabricModel, network: PacketNetwork) -> None:
    """Configure *model* to carry the messages over *network*; raises `ConfigError` for invalid settings."""
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
    if given["PACKET_PAYLOAD_SIZE"] < 1:
        raise ConfigError(
            "PACKET_PAYLOAD_SIZE is 0, but a packet must carry at least one byte; set e.g. 1000."
        )
    if given["PINT_LOG_BASE"] < _SMALLEST_BASE:
        raise ConfigError(
            f"PINT_LOG_BASE is {given['PINT_LOG_BASE']:g}, but loads are encoded as powers of it; set 1.05."
        )
    if not 1 <= given["PACKET_TRAIN"] <= _LONGEST_TRAIN:
        raise ConfigError(
            f"PACKET_TRAIN is {given['PACKET_TRAIN']}, but a train has 1 (each packet by itself) to "
            f"{_LONGEST_TRAIN} packets; set e.g. 64."
        )
    settings = engine.PacketSettings()
    for key, (name, convert) in _NAMES.items():
        setattr(settings, name, convert(given[key]))
    settings.time_step = _ASTRA_SIM_STEP_PS if given["ASTRA_SIM_CLOCK"] else 1
    return settings
