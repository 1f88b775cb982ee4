"""The settings of ASTRA-sim's config.txt for ns-3, and how their values are read and checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support import parse_bandwidth, parse_duration
from ..engine import SETTINGS as ENGINE_SETTINGS
from . import _limits as limits
from ._values import shown

__all__ = [
    "OWN_SETTINGS",
    "RATES",
    "SETTINGS",
    "TOPOLOGY_KEYS",
    "number_of",
    "parse_delay_ps",
    "parse_rate_bps",
    "read_setting",
    "whole_number",
]

_LARGEST = 1 << 62
TOPOLOGY_KEYS = ("links", "nodes", "switches")
# Our own settings, which ASTRA-sim ignores.
OWN_SETTINGS = ("ASTRA_SIM_CLOCK", "PACKET_TRAIN", "RETRANSMIT_TIMEOUT", "SEED")
# Every setting of config.txt with its type and its default: those of the engine, the default loss and failure
# of links, and those without effect. "map" is `n (rate value)*n`.
SETTINGS: dict[str, tuple[str, Any]] = {
    key: (setting.kind, f"{setting.default}Mb/s" if setting.kind == "rate" else setting.default)
    for key, setting in ENGINE_SETTINGS.items()
} | {
    "ENABLE_TRACE": ("flag", 1),
    "ERROR_RATE_PER_LINK": ("number", 0.0),
    "FCT_OUTPUT_FILE": ("text", "fct.txt"),
    "FLOW_FILE": ("text", "flow.txt"),
    "LINK_DOWN": ("triple", (0, 0, 0)),
    "NIC_TOTAL_PAUSE_TIME": ("integer", 0),
    "PAUSE_TIME": ("integer", 5),
    "PFC_OUTPUT_FILE": ("text", "pfc.txt"),
    "QLEN_MON_END": ("integer", 2_100_000_000),
    "QLEN_MON_FILE": ("text", "qlen.txt"),
    "QLEN_MON_START": ("integer", 0),
    "SIMULATOR_STOP_TIME": ("number", 4.0),
    "TOPOLOGY_FILE": ("text", "topology.txt"),
    "TRACE_FILE": ("text", "trace.txt"),
    "TRACE_OUTPUT_FILE": ("text", "mix.tr"),
    "USE_DYNAMIC_PFC_THRESHOLD": ("flag", 1),
}
RATES = [key for key, (kind, _) in SETTINGS.items() if kind == "rate"]


def parse_rate_bps(value: Any, where: str) -> int:
    """Return a rate in bit/s; a bare number, or prefix, is in bit/s as in ns-3. Raises `ConfigError`."""
    return _quantity(lambda: parse_bandwidth(value, bare="bps") * 8 * 10**9, where)


def parse_delay_ps(value: Any, where: str) -> int:
    """Return a delay in ps; a bare number is in seconds, as in ns-3. Raises `ConfigError`, naming *where*."""
    return _quantity(lambda: parse_duration(value, bare="s") * 1000, where)


def _quantity(read: Callable[[], Fraction], where: str) -> int:
    try:
        number = read()
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    if number > _LARGEST:
        raise ConfigError(f"{where} is too large.")
    return round(number)


def read_setting(key: str, value: Any, where: str) -> Any:
    """Return *value* in the type of the setting *key*; raises `ConfigError` if it cannot be."""
    if key not in SETTINGS:
        raise ConfigError(
            f"{where}: there is no setting '{key}'{did_you_mean(key, [*SETTINGS, *TOPOLOGY_KEYS])}"
        )
    kind = SETTINGS[key][0]
    if kind == "text":
        return str(value)
    if kind == "rate":
        return value if parse_rate_bps(value, f"{where}: '{key}'") >= 0 else None
    if kind == "map":
        if not isinstance(value, Mapping):
            raise ConfigError(f"{where}: '{key}' must map rates in bit/s to values, not {shown(value)}.")
        return {whole_number(rate, key, where): number_of(item, key, where) for rate, item in value.items()}
    if kind == "triple":
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 3:
            raise ConfigError(f"{where}: '{key}' must be three numbers, not {shown(value)}.")
        return tuple(whole_number(item, key, where) for item in value)
    number = number_of(value, key, where) if kind == "number" else whole_number(value, key, where)
    if kind == "flag" and number not in (0, 1):
        raise ConfigError(f"{where}: '{key}' must be 0 or 1, not {shown(value)}.")
    if key in ENGINE_SETTINGS:
        limits.check_range(number, ENGINE_SETTINGS[key][-2:], key, where)
    return number


def number_of(value: Any, key: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number < 1e18:
        raise ConfigError(f"{where}: '{key}' must be a number of 0 or more, not {shown(value)}.")
    return number


def whole_number(value: Any, key: str, where: str) -> int:
    number = number_of(value, key, where)
    if number != int(number):
        raise ConfigError(f"{where}: '{key}' must be a whole number, not {shown(value)}.")
    return int(number)
