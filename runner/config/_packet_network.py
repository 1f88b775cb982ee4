"""The packet-level network of a network configuration, and its files for ASTRA-sim's ns-3."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

from ...errors import ConfigError
from ...support import write_file
from ._failures import Failure, check_failures, fail_links
from ._links import Link
from ._network import GIB, NetworkConfig
from ._packet import PacketPart
from ._packet_values import OWN_SETTINGS, SETTINGS, check_topology
from ._topology import PacketDimension, PacketLink, PacketTopology, has_routers, packet_topology

__all__ = ["NO_CONTROL", "OUTPUTS", "LinkChange", "PacketNetwork"]

_MIB = 1 << 20
# The buffer that a switch reserves for each port, in addition to the headroom of its link.
_RESERVE_BYTES = 4096
# The zero of LINK_DOWN's time in ASTRA-sim.
_LINK_DOWN_FROM_NS = 2_000_000_000
_CC_MODES = (1, 3, 7, 8, 10)
NO_CONTROL = 12
# The default settings of a network made from dimensions, as in ASTRA-sim's sample, scaled to its rates.
_OWN_DEFAULTS: dict[str, Any] = {
    "ALPHA_RESUME_INTERVAL": 1.0,
    "BUFFER_SIZE": 32,
    "CC_MODE": NO_CONTROL,
    "EWMA_GAIN": 0.00390625,
    "FAST_RECOVERY_TIMES": 1,
    "GLOBAL_T": 0,
    "L2_ACK_INTERVAL": 1,
    "L2_CHUNK_SIZE": 4000,
    "MI_THRESH": 0,
    "MULTI_RATE": 0,
    "RP_TIMER": 900.0,
    "VAR_WIN": 1,
}
_THRESHOLDS = ("KMIN_MAP", "KMAX_MAP", "PMAX_MAP")
_NO_EFFECT = {
    "ENABLE_TRACE": "packets are not traced",
    "FLOW_FILE": "the flows come from the workload",
    "NIC_TOTAL_PAUSE_TIME": "no artificial pauses are made",
    "PAUSE_TIME": "a pause lasts until it is taken back",
    "QLEN_MON_END": "nothing is sampled",
    "QLEN_MON_START": "nothing is sampled",
    "SIMULATOR_STOP_TIME": "a simulation ends when all ranks have finished",
    "TRACE_FILE": "packets are not traced",
    "USE_DYNAMIC_PFC_THRESHOLD": "the threshold is always dynamic",
}
# Thresholds of ASTRA-sim's sample: (bit/s, KMIN in kB, KMAX in kB, PMAX).
_SAMPLE_ECN = (
    (25e9, 100, 400, 0.2),
    (40e9, 200, 800, 0.2),
    (100e9, 400, 1600, 0.2),
    (200e9, 600, 2400, 0.2),
    (400e9, 800, 3200, 0.2),
)
# Names of the files that ASTRA-sim reads and writes.
OUTPUTS = {
    "FCT_OUTPUT_FILE": "fct.txt",
    "FLOW_FILE": "flow.txt",
    "PFC_OUTPUT_FILE": "pfc.txt",
    "QLEN_MON_FILE": "qlen.txt",
    "TOPOLOGY_FILE": "topology.txt",
    "TRACE_FILE": "trace.txt",
    "TRACE_OUTPUT_FILE": "mix.tr",
}


class LinkChange(NamedTuple):
    """From *time_ns* on, link number *link* of a network has that rate; 0: it is down."""

    time_ns: int
    link: int
    rate_bps: int


@dataclass(frozen=True)
class PacketNetwork:
    """Nodes, links and settings of a packet-level network. Hosts are the nodes that are not switches.

    Rank r is host r of the hosts in ascending order. *settings* has every key of `SETTINGS`; *assumptions*
    are sentences on the settings that were chosen for this network. *changes* are the links that fail, or
    come back, during a simulation, ascending by time.
    """

    nodes: int
    switches: tuple[int, ...]
    links: tuple[PacketLink, ...]
    settings: Mapping[str, Any] = field(default_factory=dict)
    assumptions: tuple[str, ...] = field(default=(), compare=False)
    changes: tuple[LinkChange, ...] = ()

    @property
    def hosts(self) -> tuple[int, ...]:
        """The nodes that are not switches, ascending."""
        switches = set(self.switches)
        return tuple(node for node in range(self.nodes) if node not in switches)

    @classmethod
    def of(cls, network: NetworkConfig, timed: bool = False) -> PacketNetwork:
        """Return the packet-level network that *network* describes, or that its dimensions translate to.

        With *timed*, its `changes` are the failures that begin or end during a simulation, including
        ASTRA-sim's LINK_DOWN; without, such failures raise `ConfigError`. So does a network with fewer hosts
        than ranks.
        """
        if not timed:
            check_failures(network.failures, f"The network '{network.name}'")
        part = network.packet
        settings = {key: default for key, (_, default) in SETTINGS.items()}
        given = {} if part is None else dict(part.settings)
        if part is not None and part.topology is not None:
            topology, changes = _failing(network, part.topology, given if timed else {})
        else:
            topology, changes = _translate(network, part, given if timed else {})
            settings |= _OWN_DEFAULTS | _scaled_ecn({link.rate_bps for link in topology.links}, changes)
        packet = cls(
            topology.nodes, topology.switches, topology.links, settings | given, changes=tuple(changes)
        )
        if "BUFFER_SIZE" not in given and (part is None or part.topology is None):
            packet = packet._with_room()
        if len(packet.hosts) < network.num_ranks:
            raise ConfigError(
                f"The packet-level part of the network '{network.name}' has {len(packet.hosts)} hosts but "
                f"the network has {network.num_ranks} ranks; add hosts, or correct the logical dimensions."
            )
        return packet

    @classmethod
    def written_out(cls, network: NetworkConfig) -> tuple[PacketNetwork, tuple[Failure, ...]]:
        """Return *network* with all its links, as if none failed, and its failures with its numbers.

        Both together, as a list of links, are the same network for every backend. The settings are those of
        the network with failures.
        """
        settings = cls.of(network, timed=True).settings
        whole = replace(cls.of(replace(network, failures=())), settings=settings)
        part, dimensions = network.packet, _dimensions(network)
        fabric = None if part is None else part.fabric
        listed = part is not None and part.topology is not None
        if listed or (fabric is None and network.links) or not has_routers(dimensions, fabric):
            return whole, network.failures
        moved = (_behind_routers(failure, whole, network.num_ranks) for failure in network.failures)
        return whole, tuple(one for some in moved for one in some)

    @property
    def lossy(self) -> bool:
        """Whether links lose packets."""
        return self.settings["ERROR_RATE_PER_LINK"] > 0 or any(link.loss > 0 for link in self.links)

    @property
    def changes_later(self) -> bool:
        """Whether links change after the start."""
        return any(change.time_ns > 0 for change in self.changes)

    def device_links(self) -> tuple[tuple[int, int, float, float], ...]:
        """Return ``(a, b, bandwidth, latency)`` of every link in a network configuration's units and numbers.

        Devices are numbered ranks first, then switches, as in the key ``links``.
        """
        order = {node: place for place, node in enumerate((*self.hosts, *sorted(self.switches)))}
        return tuple(
            (order[link.a], order[link.b], link.rate_bps / 8 / GIB, link.delay_ps / 1000)
            for link in self.links
        )

    def device_changes(self) -> list[tuple[int, int, float]]:
        """Return ``(ns, index, bandwidth)`` of every change of the links of `device_links`, in its units."""
        return [(time_ns, link, rate_bps / 8 / GIB) for time_ns, link, rate_bps in self.changes]

    def check_timeout(self) -> None:
        """Raise `ConfigError` if links go down during a simulation and losses are never retransmitted."""
        if self.settings["RETRANSMIT_TIMEOUT"] == 0 and any(change.rate_bps == 0 for change in self.changes):
            raise ConfigError(
                "A link goes down in the middle of the simulation, and what was on it is lost, but "
                "RETRANSMIT_TIMEOUT is 0, so that nobody would send it again; set it to some us, such as "
                f"{SETTINGS['RETRANSMIT_TIMEOUT'][1]:g}, the default."
            )

    def check_buffers(self) -> None:
        """Raise `ConfigError` for a switch whose ports reserve more than its buffer holds."""
        switch, aside = self._largest_aside()
        size, factor = self.settings["BUFFER_SIZE"], self.settings["HEADROOM_FACTOR"]
        if aside < size * _MIB:
            return
        raise ConfigError(
            f"The ports of switch {switch} of the packet-level network set aside {aside / _MIB:.1f} MiB "
            f"({_RESERVE_BYTES // 1024} KiB each, and HEADROOM_FACTOR, {factor}, times what links carry "
            f"in a delay), but its BUFFER_SIZE is {size} MiB, so that it would pause all the time; set "
            f"BUFFER_SIZE to {aside // _MIB + 1} or more."
        )

    def _with_room(self) -> PacketNetwork:
        """Return the network with a larger buffer if the default is smaller than the ports' reserves."""
        switch, aside = self._largest_aside()
        default = self.settings["BUFFER_SIZE"]
        if aside < default * _MIB:
            return self
        size = aside // _MIB + 1 + default
        sentence = (
            f"BUFFER_SIZE is {size} MiB and not {default}: the ports of switch {switch} set aside "
            f"{aside / _MIB:.1f} MiB."
        )
        return replace(self, settings={**self.settings, "BUFFER_SIZE": size}, assumptions=(sentence,))

    def _largest_aside(self) -> tuple[int, int]:
        """Return the switch whose ports reserve the most bytes, and the bytes; -1 and 0 without switches."""
        step = 1000 if self.settings["ASTRA_SIM_CLOCK"] else 1
        aside = dict.fromkeys(self.switches, 0)
        for link in self.links:
            delay_ns = (link.delay_ps + step // 2) // step * step // 1000
            headroom = link.rate_bps * delay_ns // (8 * 10**9) * self.settings["HEADROOM_FACTOR"]
            for node in {link.a, link.b} & aside.keys():
                aside[node] += _RESERVE_BYTES + headroom
        return max(aside.items(), key=lambda item: item[1], default=(-1, 0))

    def warnings(self) -> list[str]:
        """Return one sentence for each setting that is unusual or has no effect here."""
        sentences = []
        mode = self.settings["CC_MODE"]
        if mode not in (*_CC_MODES, NO_CONTROL):
            sentences.append(f"CC_MODE {mode} is no congestion control: window and pauses alone limit flows.")
        rates = {link.rate_bps for link in self.links}
        for key in _THRESHOLDS:
            absent = sorted(rates - set(self.settings[key]))
            if absent and self.settings[key] and self.settings["ENABLE_QCN"]:
                sentences.append(f"{key} has no entry for {absent[0]} bit/s; the next faster one is used.")
        for key, reason in _NO_EFFECT.items():
            if self.settings[key] != SETTINGS[key][1] and key not in OUTPUTS:
                sentences.append(f"'{key}' has no effect: {reason}.")
        return sentences

    def texts(self) -> dict[str, str]:
        """Return ASTRA-sim's settings as the words of config.txt, with our file names.

        Thresholds are given for the rate of every link: ASTRA-sim marks each packet of a rate without one.
        """
        keys = sorted(set(SETTINGS) - set(OWN_SETTINGS))
        marks = {key: self._thresholds(self.settings[key]) for key in keys if key in _THRESHOLDS}
        return {key: _words(OUTPUTS.get(key, marks.get(key, self.settings[key]))) for key in keys}

    def _thresholds(self, given: Mapping[int, float]) -> dict[int, float]:
        """Return *given* with an entry for the rate of every link.

        That of the next faster one, else of the fastest.
        """
        filled = dict(given)
        for rate in {link.rate_bps for link in self.links} if given else ():
            filled[rate] = given[min((known for known in given if known >= rate), default=max(given))]
        return filled

    def hosts_first(self) -> PacketNetwork:
        """Return the same network with the hosts numbered first, as ASTRA-sim takes node r for rank r."""
        number = {node: place for place, node in enumerate((*self.hosts, *sorted(self.switches)))}
        switches = tuple(number[node] for node in self.switches)
        links = tuple(replace(link, a=number[link.a], b=number[link.b]) for link in self.links)
        time_us, *ends = self.settings["LINK_DOWN"]
        down = (time_us, *(number.get(node, node) if time_us else node for node in ends))
        return replace(self, switches=switches, links=links, settings={**self.settings, "LINK_DOWN": down})

    def link_texts(self) -> list[tuple[int, int, str, str, str]]:
        """Return both nodes, rate, delay and loss of each link, as in topology.txt."""
        return [
            (link.a, link.b, f"{link.rate_bps}bps", f"{link.delay_ps}ps", _words(link.loss))
            for link in self.links
        ]

    def save(self, folder: Path) -> None:
        """Write ``config.txt``, ``topology.txt`` and the empty files that ASTRA-sim requires into *folder*.

        Nodes are numbered hosts first, as ASTRA-sim takes node r for rank r. Nothing is synced: the files are
        for one simulation.
        """
        numbered = self.hosts_first()
        lines = [f"{key} {words}" for key, words in numbered.texts().items()]
        write_file(folder / "config.txt", "\n".join(lines) + "\n", sync=False)
        head = f"{numbered.nodes} {len(numbered.switches)} {len(numbered.links)}"
        switches = " ".join(map(str, numbered.switches))
        rows = [" ".join(map(str, row)) for row in numbered.link_texts()]
        write_file(folder / "topology.txt", "\n".join([head, switches, *rows]) + "\n", sync=False)
        write_file(folder / "flow.txt", "0\n", sync=False)
        write_file(folder / "trace.txt", "0\n", sync=False)


def _translate(
    network: NetworkConfig, part: PacketPart | None, given: Mapping[str, Any]
) -> tuple[PacketTopology, list[LinkChange]]:
    """Return the topology of the network's links, or else of its dimensions, and its changes."""
    fabric = None if part is None else part.fabric
    if fabric is not None or not network.links:
        dimensions = _dimensions(network)
        first = network.num_ranks if has_routers(dimensions, fabric) else 0
        return _failing(network, packet_topology(dimensions, fabric), given, first)

    def packet_link(link: Link) -> PacketLink:
        return PacketLink(link.a, link.b, round(link.bandwidth * GIB * 8), round(link.latency * 1000))

    nodes = max(network.num_ranks, *(1 + max(link.a, link.b) for link in network.links))
    left, changed = network.failing_links(_link_down(given, range(nodes)))
    switches = tuple(range(network.num_ranks, nodes))
    topology = PacketTopology(nodes, switches, tuple(map(packet_link, left)))
    check_topology(topology, f"The network '{network.name}'")
    changes = [
        LinkChange(time_ns, place, 0 if link is None else max(1, packet_link(link).rate_bps))
        for time_ns, place, link in changed
    ]
    return topology, changes


def _link_down(given: Mapping[str, Any], nodes: Sequence[int]) -> tuple[Failure, ...]:
    """Return ASTRA-sim's LINK_DOWN as a failure; *nodes* has the device number of each node."""
    time_us, *ends = given.get("LINK_DOWN", (0, 0, 0))
    if not time_us:
        return ()
    if not all(0 <= node < len(nodes) for node in ends):
        raise ConfigError(
            f"LINK_DOWN must be a time in us, counted from 2 s on, and the two nodes of a link, not "
            f"{_words((time_us, *ends))}; nodes are numbered from 0 to {len(nodes) - 1}."
        )
    devices = tuple(nodes[node] for node in ends)
    return (Failure(devices, at_ns=_LINK_DOWN_FROM_NS + 1000 * time_us),)


def _failing(
    network: NetworkConfig, topology: PacketTopology, given: Mapping[str, Any], routers: int = 0
) -> tuple[PacketTopology, list[LinkChange]]:
    """Return *topology* with failed links removed and slow ones slowed, and its changes over time.

    Failures number devices ranks first, then switches. The first *routers* switches are those of the ranks:
    links of ranks end there, and these switches are not counted.
    """
    switches = sorted(topology.switches)
    hosts = sorted(set(range(topology.nodes)) - set(switches))
    order = {node: place - routers for place, node in enumerate((*hosts, *switches))}
    failures = network.failures + _link_down(given, [order[node] for node in range(topology.nodes)])
    if not failures:
        return topology, []

    def ends(link: PacketLink) -> tuple[int, int]:
        a, b = order[link.a], order[link.b]
        return (a, b) if min(a, b) >= 0 or not routers else (-1, -1)

    def slowed(link: PacketLink, share: float) -> PacketLink:
        return replace(link, rate_bps=max(1, round(link.rate_bps * share)))

    left, changed = fail_links(failures, topology.links, ends, slowed, f"The network '{network.name}'")
    changes = [
        LinkChange(time_ns, place, 0 if link is None else link.rate_bps) for time_ns, place, link in changed
    ]
    return replace(topology, links=tuple(left)), changes


def _behind_routers(failure: Failure, whole: PacketNetwork, ranks: int) -> list[Failure]:
    """Return *failure* with the link numbers of *whole*, whose *ranks* have a router each.

    A rank's links end at its router. The link between the two is not in the list, so a rank that fails is
    translated to the other links of its router.
    """
    devices = tuple(device + ranks for device in failure.devices)
    if len(devices) > 1 or devices[0] >= 2 * ranks:
        return [failure.of(devices, failure.count)]
    (router,) = devices
    ends = [(a, b) for a, b, _, _ in whole.device_links() if router in (a, b) and min(a, b) >= ranks]
    peers = Counter(a + b - router for a, b in ends[: failure.count])
    return [failure.of((router, peer), count) for peer, count in peers.items()]


def _dimensions(network: NetworkConfig) -> list[PacketDimension]:
    columns = zip(
        network.topology, network.npus_count, network.bandwidth_bytes_per_ns, network.latency, strict=True
    )
    return [
        PacketDimension(shape, count, round(rate * 8e9), round(latency * 1000))
        for shape, count, rate, latency in columns
    ]


def _scaled_ecn(rates: set[int], changes: Sequence[LinkChange]) -> dict[str, Any]:
    """Return the marking thresholds of ASTRA-sim's sample at *rates* and at those of *changes*."""
    maps: dict[str, dict[int, float]] = {"KMIN_MAP": {}, "KMAX_MAP": {}, "PMAX_MAP": {}}
    for rate in sorted(rates | {change.rate_bps for change in changes if change.rate_bps > 0}):
        low, high, probability = _interpolate(float(rate))
        maps["KMIN_MAP"][rate] = low
        maps["KMAX_MAP"][rate] = high
        maps["PMAX_MAP"][rate] = probability
    return maps


def _interpolate(rate: float) -> tuple[float, float, float]:
    if rate <= _SAMPLE_ECN[0][0] or rate >= _SAMPLE_ECN[-1][0]:
        base, low, high, probability = _SAMPLE_ECN[0] if rate <= _SAMPLE_ECN[0][0] else _SAMPLE_ECN[-1]
        return round(low * rate / base), round(high * rate / base), probability
    above = next(index for index, entry in enumerate(_SAMPLE_ECN) if entry[0] >= rate)
    left, right = _SAMPLE_ECN[above - 1], _SAMPLE_ECN[above]
    share = (rate - left[0]) / (right[0] - left[0])
    return (
        round(left[1] + share * (right[1] - left[1])),
        round(left[2] + share * (right[2] - left[2])),
        left[3],
    )


def _words(value: Any) -> str:
    """Return *value* in the format of config.txt."""
    if isinstance(value, Mapping):
        pairs = [f"{rate} {_words(item)}" for rate, item in sorted(value.items())]
        return " ".join([str(len(pairs)), *pairs])
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    # ASTRA-sim reads some of these numbers as integers: 800.0 or 1e+06 would be misread.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)
