"""A network's nodes, links and packet settings as integers, and the parsers for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any, NamedTuple

from ...errors import ConfigError, did_you_mean
from ...support import parse_bandwidth, parse_duration
from ..engine import CONGESTION_CONTROLS, PORT_RESERVE_BYTES
from ..engine import SETTINGS as ENGINE_SETTINGS
from ._values import check_range, reported_at, shown, wrong

# The rate of the link between a rank and its router, relative to the fastest dimension.
ROUTER_SPEEDUP = 8

_LARGEST = 1 << 62
TOPOLOGY_KEYS = ("links", "nodes", "switches")
# Packet settings of Chakrascope that ASTRA-sim ignores.
OWN_SETTINGS = ("ASTRA_SIM_CLOCK", "PACKET_TRAIN", "RETRANSMIT_TIMEOUT", "SEED")
# Every setting of config.txt with its type and default: those of the engine, the default loss and
# failure of links, and those without effect. Values of the type "map" have the format `n (rate
# value)*n`.
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
    """Parse a rate in bit/s (the default unit, as in ns-3). Raises `ConfigError`."""
    return _quantity(lambda: parse_bandwidth(value, bare="bps") * 8 * 10**9, where)


def parse_delay_ps(value: Any, where: str) -> int:
    """Parse a delay in ps; a bare number is in seconds, as in ns-3. Raises `ConfigError`."""
    return _quantity(lambda: parse_duration(value, bare="s") * 1000, where)


def _quantity(read: Callable[[], Fraction], where: str) -> int:
    with reported_at(where):
        number = read()
    if number > _LARGEST:
        raise ConfigError(f"{where} is too large.")
    return round(number)


def read_setting(key: str, value: Any, where: str) -> Any:
    """Return *value* as the type of the setting *key*; raises `ConfigError` if it has another type."""
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
            raise wrong(f"{where}: '{key}'", "a mapping of rates in bit/s to values", value)
        return {whole_number(rate, key, where): number_of(item, key, where) for rate, item in value.items()}
    if kind == "triple":
        if not isinstance(value, Sequence) or isinstance(value, str) or len(value) != 3:
            raise wrong(f"{where}: '{key}'", "three numbers", value)
        return tuple(whole_number(item, key, where) for item in value)
    number = number_of(value, key, where) if kind == "number" else whole_number(value, key, where)
    if kind == "flag" and number not in (0, 1):
        raise wrong(f"{where}: '{key}'", "0 or 1", value)
    if key in ENGINE_SETTINGS:
        check_range(number, ENGINE_SETTINGS[key][-2:], f"{where}: '{key}'")
    return number


def number_of(value: Any, key: str, where: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = float("nan")
    if not 0 <= number < 1e18:
        raise wrong(f"{where}: '{key}'", "a number of 0 or more", value)
    return number


def whole_number(value: Any, key: str, where: str) -> int:
    number = number_of(value, key, where)
    if number != int(number):
        raise wrong(f"{where}: '{key}'", "a whole number", value)
    return int(number)


_MIB = 1 << 20
NO_CONTROL = 12
THRESHOLDS = ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP")
_NO_EFFECT = {
    "ENABLE_TRACE": "packets are not traced",
    "NIC_TOTAL_PAUSE_TIME": "no artificial pauses are made",
    "PAUSE_TIME": "a pause lasts until it is cancelled",
    "QLEN_MON_END": "nothing is sampled",
    "QLEN_MON_START": "nothing is sampled",
    "SIMULATOR_STOP_TIME": "a simulation ends when all ranks have finished",
    "USE_DYNAMIC_PFC_THRESHOLD": "the threshold is always dynamic",
}


@dataclass(frozen=True)
class Dimension:
    """A network dimension: its shape (``Ring``, ``FullyConnected``, ``Switch``), size, and link figures."""

    shape: str
    count: int
    rate_bps: int
    delay_ps: float


class FabricLink(NamedTuple):
    """A full-duplex link between the nodes *a* and *b*; *loss* is the fraction of packets lost."""

    a: int
    b: int
    rate_bps: int
    delay_ps: int
    loss: float = 0.0


class LinkChange(NamedTuple):
    """From *time_ns* on, link number *link* has a new rate; 0 means that the link is down."""

    time_ns: int
    link: int
    rate_bps: int


@dataclass(frozen=True)
class Fabric:
    """The nodes of a packet-level network, numbered from 0, with its *switches* and links.

    Nodes that are not switches are hosts, and rank r is the r-th host. Hosts do not forward
    packets. *changes* lists links that fail or recover during a simulation, in order of time.
    *settings* has every key of `SETTINGS`. *assumptions* are notes on settings that were derived
    for this network.
    """

    nodes: int
    switches: tuple[int, ...]
    links: tuple[FabricLink, ...]
    changes: tuple[LinkChange, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = field(default=(), compare=False)

    @property
    def hosts(self) -> tuple[int, ...]:
        """The nodes that are not switches, in ascending order."""
        switches = set(self.switches)
        return tuple(node for node in range(self.nodes) if node not in switches)

    @property
    def device_of_node(self) -> dict[int, int]:
        """The device number of each node in the network configuration: ranks first, then switches."""
        return {node: place for place, node in enumerate((*self.hosts, *sorted(self.switches)))}

    @property
    def lossy(self) -> bool:
        """Whether any link loses packets."""
        return any(link.loss > 0 for link in self.links)

    @property
    def changes_later(self) -> bool:
        """Whether any link changes its rate after the start of the simulation."""
        return any(change.time_ns > 0 for change in self.changes)

    def check(self, where: str) -> None:
        """Raise `ConfigError` for invalid nodes, switches or links, or too many nodes."""
        nodes, switches = self.nodes, self.switches
        if not 2 <= nodes <= 65_000:
            raise ConfigError(f"{where}: the number of nodes must be between 2 and 65000, not {nodes}.")
        if len(set(switches)) != len(switches) or any(switch >= nodes for switch in switches):
            raise ConfigError(f"{where}: the switches must be distinct nodes below {nodes}.")
        for a, b, rate_bps, _, loss in self.links:
            if not 0 <= min(a, b) <= max(a, b) < nodes or a == b:
                raise ConfigError(f"{where}: a link joins {a} and {b}, but nodes are 0 to {nodes - 1}.")
            if rate_bps <= 0 or not 0 <= loss < 1:
                raise ConfigError(f"{where}: the link {a}-{b} needs a rate above 0 and a loss below 1.")

    def hosts_first(self) -> Fabric:
        """Return the same fabric with nodes renumbered: hosts first, then switches."""
        number = self.device_of_node
        links = tuple(link._replace(a=number[link.a], b=number[link.b]) for link in self.links)
        time_us, *ends = self.settings["LINK_DOWN"]
        down = (time_us, *(number.get(node, node) if time_us else node for node in ends))
        switches = tuple(number[node] for node in self.switches)
        return replace(self, switches=switches, links=links, settings={**self.settings, "LINK_DOWN": down})

    def check_packets(self) -> None:
        """Raise `ConfigError` for a buffer below its ports' reserves, or losses without retransmission."""
        switch, reserved = self._largest_reserve()
        size, factor = self.settings["BUFFER_SIZE"], self.settings["HEADROOM_FACTOR"]
        if reserved >= size * _MIB:
            raise ConfigError(
                f"The ports of switch {switch} of the packet-level network reserve {reserved / _MIB:.1f} "
                f"MiB ({PORT_RESERVE_BYTES // 1024} KiB each, and HEADROOM_FACTOR ({factor}) times the "
                f"bandwidth-delay product of each link), but its BUFFER_SIZE is {size} MiB, so the switch "
                f"would pause its senders permanently; set BUFFER_SIZE to {reserved // _MIB + 1} or more."
            )
        if self.settings["RETRANSMIT_TIMEOUT"] == 0 and any(change.rate_bps == 0 for change in self.changes):
            raise ConfigError(
                "A link goes down in the middle of the simulation and loses packets, but RETRANSMIT_TIMEOUT "
                "is 0, so that they would never be retransmitted; set it to a few us, such as "
                f"{SETTINGS['RETRANSMIT_TIMEOUT'][1]:g}, the default."
            )

    def with_room(self) -> Fabric:
        """Return the fabric with a larger default buffer if the ports' reserves exceed it."""
        switch, reserved = self._largest_reserve()
        default = self.settings["BUFFER_SIZE"]
        if reserved < default * _MIB:
            return self
        size = reserved // _MIB + 1 + default
        sentence = (
            f"BUFFER_SIZE is {size} MiB and not {default}: the ports of switch {switch} set aside "
            f"{reserved / _MIB:.1f} MiB."
        )
        return replace(self, settings={**self.settings, "BUFFER_SIZE": size}, assumptions=(sentence,))

    def _largest_reserve(self) -> tuple[int, int]:
        """Return the switch with the largest total port reserve and that reserve in bytes, or (-1, 0)."""
        step = 1000 if self.settings["ASTRA_SIM_CLOCK"] else 1
        reserved = dict.fromkeys(self.switches, 0)
        for link in self.links:
            delay_ns = (link.delay_ps + step // 2) // step * step // 1000
            headroom = link.rate_bps * delay_ns // (8 * 10**9) * self.settings["HEADROOM_FACTOR"]
            for node in {link.a, link.b} & reserved.keys():
                reserved[node] += PORT_RESERVE_BYTES + headroom
        return max(reserved.items(), key=lambda item: item[1], default=(-1, 0))

    def warnings(self) -> list[str]:
        """Return a note for each packet setting that is unusual or has no effect."""
        sentences = []
        mode = self.settings["CC_MODE"]
        if mode not in (*CONGESTION_CONTROLS, NO_CONTROL):
            sentences.append(
                f"CC_MODE {mode} selects no congestion control: only windows and pauses limit flows."
            )
        rates = {link.rate_bps for link in self.links}
        for key in THRESHOLDS:
            absent = sorted(rates - set(self.settings[key]))
            if absent and self.settings[key] and self.settings["ENABLE_QCN"]:
                sentences.append(f"{key} has no entry for {absent[0]} bit/s; the next faster one is used.")
        for key, reason in _NO_EFFECT.items():
            if self.settings[key] != SETTINGS[key][1]:
                sentences.append(f"'{key}' has no effect: {reason}.")
        return sentences


def read_link(row: Any, where: str) -> FabricLink:
    """Parse a link ``[a, b, rate, delay, loss]`` of a topology; raises `ConfigError` if invalid."""
    if not isinstance(row, Sequence) or isinstance(row, str) or not 4 <= len(row) <= 5:
        raise ConfigError(f"{where}: a link is [a, b, rate, delay, loss], not {shown(row)}.")
    place = f"{where}: the link {shown(list(row))}"
    return FabricLink(
        whole_number(row[0], "link", where),
        whole_number(row[1], "link", where),
        parse_rate_bps(row[2], place),
        parse_delay_ps(row[3], place),
        number_of(row[4], "link", where) if len(row) == 5 else 0.0,
    )
