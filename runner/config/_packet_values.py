"""The settings of ASTRA-sim's config.txt for ns-3, and the checks of settings, links and topologies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support import parse_bandwidth, parse_duration
from ._topology import PacketLink, PacketTopology
from ._values import shown

__all__ = [
    "OWN_SETTINGS",
    "SETTINGS",
    "TOPOLOGY_KEYS",
    "check_topology",
    "parse_delay_ps",
    "parse_rate_bps",
    "read_link",
    "read_setting",
    "whole_number",
]

_LARGEST = 1 << 62
TOPOLOGY_KEYS = ("links", "nodes", "switches")
# Our own settings, which ASTRA-sim ignores: repeat its clock of 1 ns and its completion at the last
# acknowledgement; the most packets of a train; when to retransmit unacknowledged packets (us, 0: never); the
# random seed.
OWN_SETTINGS = ("ASTRA_SIM_CLOCK", "PACKET_TRAIN", "RETRANSMIT_TIMEOUT", "SEED")
# Every setting of config.txt with its type and its default. "map" is `n (rate value)*n`.
SETTINGS: dict[str, tuple[str, Any]] = {
    "ACK_HIGH_PRIO": ("flag", 0),
    "ALPHA_RESUME_INTERVAL": ("number", 55.0),
    "ASTRA_SIM_CLOCK": ("flag", 0),
    "BUFFER_SIZE": ("integer", 16),
    "CC_MODE": ("integer", 1),
    "CLAMP_TARGET_RATE": ("flag", 0),
    "DCTCP_RATE_AI": ("rate", "1000Mb/s"),
    "ENABLE_QCN": ("flag", 1),
    "ENABLE_TRACE": ("flag", 1),
    "ERROR_RATE_PER_LINK": ("number", 0.0),
    "EWMA_GAIN": ("number", 0.0),
    "FAST_REACT": ("flag", 1),
    "FAST_RECOVERY_TIMES": ("integer", 5),
    "FCT_OUTPUT_FILE": ("text", "fct.txt"),
    "FLOW_FILE": ("text", "flow.txt"),
    "GLOBAL_T": ("flag", 1),
    "HAS_WIN": ("flag", 1),
    "HEADROOM_FACTOR": ("integer", 3),
    "INT_MULTI": ("integer", 1),
    "KMAX_MAP": ("map", {}),
    "KMIN_MAP": ("map", {}),
    "L2_ACK_INTERVAL": ("integer", 0),
    "L2_BACK_TO_ZERO": ("flag", 0),
    "L2_CHUNK_SIZE": ("integer", 0),
    "LINK_DOWN": ("triple", (0, 0, 0)),
    "MI_THRESH": ("integer", 5),
    "MIN_RATE": ("rate", "100Mb/s"),
    "MULTI_RATE": ("flag", 1),
    "NIC_TOTAL_PAUSE_TIME": ("integer", 0),
    "PACKET_PAYLOAD_SIZE": ("integer", 1000),
    "PACKET_TRAIN": ("integer", 1),
    "PAUSE_TIME": ("integer", 5),
    "PFC_OUTPUT_FILE": ("text", "pfc.txt"),
    "PINT_LOG_BASE": ("number", 1.05),
    "PINT_PROB": ("number", 1.0),
    "PMAX_MAP": ("map", {}),
    "QLEN_MON_END": ("integer", 2_100_000_000),
    "QLEN_MON_FILE": ("text", "qlen.txt"),
    "QLEN_MON_START": ("integer", 0),
    "RATE_AI": ("rate", "50Mb/s"),
    "RATE_BOUND": ("flag", 1),
    "RATE_DECREASE_INTERVAL": ("number", 4.0),
    "RATE_HAI": ("rate", "100Mb/s"),
    "RP_TIMER": ("number", 0.0),
    "RETRANSMIT_TIMEOUT": ("number", 1000.0),
    "SAMPLE_FEEDBACK": ("flag", 0),
    "SEED": ("integer", 1),
    "SIMULATOR_STOP_TIME": ("number", 4.0),
    "TOPOLOGY_FILE": ("text", "topology.txt"),
    "TRACE_FILE": ("text", "trace.txt"),
    "TRACE_OUTPUT_FILE": ("text", "mix.tr"),
    "USE_DYNAMIC_PFC_THRESHOLD": ("flag", 1),
    "U_TARGET": ("number", 0.95),
    "VAR_WIN": ("flag", 0),
}


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
        return {whole_number(rate, key, where): _number(item, key, where) for rate, item in value.items()}
    if kind == "triple":
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 3:
            raise ConfigError(f"{where}: '{key}' must be three numbers, not {shown(value)}.")
        return tuple(whole_number(item, key, where) for item in value)
    if kind == "number":
        return _number(value, key, where)
    number = whole_number(value, key, where)
    if kind == "flag" and number not in (0, 1):
        raise ConfigError(f"{where}: '{key}' must be 0 or 1, not {shown(value)}.")
    if number < 0:
        raise ConfigError(f"{where}: '{key}' must be 0 or more, not {shown(value)}.")
    return number


def _number(value: Any, key: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number < 1e18:
        raise ConfigError(f"{where}: '{key}' must be a number of 0 or more, not {shown(value)}.")
    return number


def whole_number(value: Any, key: str, where: str) -> int:
    number = _number(value, key, where)
    if number != int(number):
        raise ConfigError(f"{where}: '{key}' must be a whole number, not {shown(value)}.")
    return int(number)


def read_link(row: Any, where: str) -> PacketLink:
    if not isinstance(row, Sequence) or isinstance(row, str) or not 4 <= len(row) <= 5:
        raise ConfigError(f"{where}: a link is [a, b, rate, delay, loss], not {shown(row)}.")
    place = f"{where}: the link {shown(list(row))}"
    return PacketLink(
        whole_number(row[0], "link", where),
        whole_number(row[1], "link", where),
        parse_rate_bps(row[2], place),
        parse_delay_ps(row[3], place),
        _number(row[4], "link", where) if len(row) == 5 else 0.0,
    )


def check_topology(topology: PacketTopology, where: str) -> None:
    """Raise `ConfigError` for invalid nodes, switches or links."""
    nodes, switches = topology.nodes, topology.switches
    if not 2 <= nodes <= 65_000:
        raise ConfigError(f"{where}: the number of nodes must be between 2 and 65000, not {nodes}.")
    if len(set(switches)) != len(switches) or any(switch >= nodes for switch in switches):
        raise ConfigError(f"{where}: the switches must be distinct nodes below {nodes}.")
    for link in topology.links:
        if not 0 <= min(link.a, link.b) <= max(link.a, link.b) < nodes or link.a == link.b:
            raise ConfigError(f"{where}: a link joins {link.a} and {link.b}, but nodes are 0 to {nodes - 1}.")
        if link.rate_bps <= 0 or not 0 <= link.loss < 1:
            raise ConfigError(f"{where}: the link {link.a}-{link.b} needs a rate above 0 and a loss below 1.")
