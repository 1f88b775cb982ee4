"""The network configuration: ASTRA-sim's analytical YAML, or links between devices."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, InitVar, dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from ...errors import ConfigError
from ...support import write_file
from ...support.documents import yaml_mapping
from .._traits import AWARE
from ..engine import TOPOLOGIES
from . import _values as values
from ._efficiency import EfficiencyPart
from ._failures import Failure, read_failures
from ._packet import PacketPart, read_packet_files
from ._presets import is_preset, list_presets, preset_of_nodes, preset_text
from ._tcp import TcpPart
from ._values import mapping_of, shown
from .infragraph import read_network


class Link(NamedTuple):
    """A full-duplex link between the devices *a* and *b*; numbers start with the ranks, then the switches.

    *bandwidth* is in units of 2^30 bytes per second, *latency* in ns. Bandwidth and latency keep the file's
    notation, such as 10 or 10.0.
    """

    a: int
    b: int
    bandwidth: float
    latency: float


def read_links(data: Any, where: str) -> tuple[Link, ...]:
    """Parse the list of links *data*; ``None`` means no links. Raises `ConfigError`."""
    if data is None:
        return ()
    if not isinstance(data, (list, tuple)):
        raise values.wrong(f"{where}: 'links'", "a list of [device, device, bandwidth, latency]", data)
    check_links(data, where)
    return tuple(Link(*link) for link in data)


def check_links(links: Sequence[Any], where: str) -> None:
    """Raise `ConfigError` for an entry of *links* that does not join two distinct devices."""
    for link in links:
        if not isinstance(link, (list, tuple)) or len(link) != 4 or not all(map(values.is_number, link)):
            raise ConfigError(
                f"{where}: every entry of 'links' must be [device, device, bandwidth, latency], not "
                f"{shown(link)}."
            )
        a, b, bandwidth, latency = link
        valid = all(isinstance(device, int) and 0 <= device < values.MAX_RANKS for device in (a, b))
        if not valid or a == b:
            raise ConfigError(
                f"{where}: a link of 'links' joins two devices by their numbers, ranks first and then "
                f"switches, and not {shown(a)} and {shown(b)}."
            )
        values.check_range(bandwidth, values.BANDWIDTH, f"{where}: 'links'")
        values.check_range(latency, values.DELAY_NS, f"{where}: 'links'")


def check_devices(names: Sequence[str], links: Sequence[Link], where: str) -> None:
    """Raise `ConfigError` unless *names* lists every device of *links* exactly once."""
    devices = 1 + max((max(link.a, link.b) for link in links), default=-1)
    if names and (len(names) < devices or len(set(names)) < len(names)):
        raise ConfigError(
            f"{where}: 'devices' must name all {devices} devices of 'links', each once; it has "
            f"{len(set(names))} names."
        )


def _npus(value: Any, where: str) -> int:
    """Return *value* as an integer; a fraction is an error, as in ASTRA-sim's YAML reader."""
    if type(value) is not int:
        raise values.wrong(where, "a whole number", value)
    return value


_TOPOLOGY = values.one_of(TOPOLOGIES)
_DIMENSIONS: dict[str, values.Reader] = {
    "topology": _TOPOLOGY,
    "npus_count": _npus,
    "bandwidth": values.floating,
    "latency": values.floating,
}
DIMENSION_KEYS: tuple[str, ...] = tuple(_DIMENSIONS)
# Keys of Chakrascope that ASTRA-sim ignores.
EXTENSIONS: tuple[str, ...] = (
    "assumptions",
    "calibration",
    "devices",
    "dimensions",
    "efficiency",
    "failures",
    "links",
    "packet",
    "tcp",
)
_LOGICAL = "logical"
GIB = 1 << 30
_MAX_NAMED = 2  # failures named in the title of a network; others are counted


@dataclass(frozen=True)
class NetworkConfig:
    """A network configuration; its dimensions are ordered from the fastest-varying to the slowest.

    *topology* is the shape of each dimension (``Ring``, ``FullyConnected``, ``Switch``),
    *npus_count* its size, *bandwidth* that of its links in units of 2^30 bytes per second, and
    *latency* their delay in ns. A dimension has at least two ranks, but a single rank, which
    ASTRA-sim does not support, is one dimension of size 1.

    *links* replace the dimensions in backends that model congestion, and *devices* names their
    ranks and switches. With *logical*, the dimensions only arrange the ranks, and their bandwidth
    and latency are unused. *packet* and *tcp* hold the settings of packet-level backends and of
    TCP. *failures* remove links or slow them down. *efficiency* has the overheads of the
    communication library, and *calibration* the measurements behind the figures. *assumptions*
    lists what was assumed for links and devices, and *unknown* holds comments. Raises
    `ConfigError`, naming the file *where*, for a wrong key or value.
    """

    topology: tuple[str, ...]
    npus_count: tuple[int, ...]
    bandwidth: tuple[float, ...]
    latency: tuple[float, ...]
    _: KW_ONLY
    links: tuple[Link, ...] = ()
    packet: PacketPart | None = None
    tcp: TcpPart | None = None
    devices: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    logical: bool = False
    failures: tuple[Failure, ...] = ()
    efficiency: EfficiencyPart | None = None
    calibration: Mapping[str, Any] = field(default_factory=dict)
    unknown: Mapping[str, Any] = field(default_factory=dict)
    name: str = field(default="network", compare=False)
    where: InitVar[str] = "The network configuration"

    def __post_init__(self, where: str) -> None:
        for key in self.unknown:
            if key in EXTENSIONS:
                raise ConfigError(f"{where}: '{key}' is a known key; it has its own field.")
        values.refuse_unknown(self.unknown, (*DIMENSION_KEYS, *EXTENSIONS), where, values.COMMENTS)
        check_links(self.links, where)
        check_devices(self.devices, self.links, where)
        if not self.topology:
            raise ConfigError(f"{where}: 'topology' is empty; name at least one dimension.")
        for name in self.topology:
            _TOPOLOGY(name, f"{where}: 'topology'")
        for key in DIMENSION_KEYS[1:]:
            count = len(getattr(self, key))
            if count != self.dimensions:
                raise ConfigError(
                    f"{where}: '{key}' has {count} entries but 'topology' has {self.dimensions}."
                )
        if self.npus_count != (1,) and any(count < 2 for count in self.npus_count):
            raise ConfigError(
                f"{where}: every entry of 'npus_count' must be at least 2 (or [1] for a single rank), not "
                f"{shown(list(self.npus_count))}."
            )
        values.check_range(self.num_ranks, (1, values.MAX_RANKS), f"{where}: 'npus_count'")
        for value in self.bandwidth:
            if value <= 0:
                raise ConfigError(f"{where}: every entry of 'bandwidth' must be more than 0, not {value}.")
            values.check_range(value, values.BANDWIDTH, f"{where}: 'bandwidth'")
        for value in self.latency:
            if value < 0:
                raise ConfigError(f"{where}: every entry of 'latency' must be 0 or more, not {value}.")
            values.check_range(value, values.DELAY_NS, f"{where}: 'latency'")

    @property
    def title(self) -> str:
        """The name of the network and its failures, as shown in results."""
        if not self.failures:
            return self.name
        named = [failure.short_text(self.devices) for failure in self.failures[:_MAX_NAMED]]
        left = len(self.failures) - len(named)
        return f"{self.name} ({', '.join(named)}{f' and {left} more' if left else ''})"

    @property
    def dimensions(self) -> int:
        """The number of dimensions."""
        return len(self.topology)

    @property
    def num_ranks(self) -> int:
        """The number of ranks: the product of the dimensions."""
        return math.prod(self.npus_count)

    @property
    def has_links(self) -> bool:
        """Whether there are links, a packet-level topology or link failures in addition to the dimensions."""
        return bool(self.links or self.failures) or (self.packet is not None and self.packet.is_graph)

    @property
    def is_tcp(self) -> bool:
        """Whether ``ns3`` simulates TCP: there is a ``tcp`` part, or no RoCE part (``packet``)."""
        return self.tcp is not None or self.packet is None

    @property
    def bandwidth_bytes_per_ns(self) -> tuple[float, ...]:
        """The link bandwidth of each dimension in bytes per ns."""
        return tuple(value * GIB / 1e9 for value in self.bandwidth)

    @property
    def remarks(self) -> list[str]:
        """Notes on the network's assumptions and failures."""
        failed = [self.failure_text(failure) for failure in self.failures]
        own = self.links or (self.packet is not None and self.packet.is_graph)
        passing = self.dimensions > 1 or (self.topology == ("Ring",) and self.num_ranks > 3)
        if failed and not own and passing:
            failed.append(
                "To route messages around failures, dimensions are modelled as links, with a router for each "
                f"rank. Without failures, {AWARE} has no routers, so it is slightly faster."
            )
        return [*self.assumptions, *failed]

    def failure_text(self, failure: Failure) -> str:
        """Describe the links that *failure* affects, in a sentence."""
        return failure.text(self.devices, self.num_ranks)

    @classmethod
    def load(cls, path: str | Path, options: Mapping[str, Any] | None = None) -> NetworkConfig:
        """Read a network YAML; raises `ConfigError` wherever ASTRA-sim would fail, except for a single rank.

        A ``.txt`` file is read as ASTRA-sim's config.txt for ns-3, with all hosts in one dimension.
        An InfraGraph file, or the XML of lstopo or NCCL, is converted to links, and *options*
        supply missing figures (``link-defaults``) like the keys of a network YAML that names an
        InfraGraph.
        """
        file = Path(path)
        if file.suffix == ".txt":
            return cls.load_packet(file)
        return cls.from_mapping(read_network(file, options or {}), str(file), file.stem)

    @classmethod
    def load_packet(cls, path: str | Path, logical: str | Path | None = None) -> NetworkConfig:
        """Read ASTRA-sim's config.txt for ns-3 with its topology, and the logical topology JSON *logical*."""
        file = Path(path)
        data = read_packet_files(file, None if logical is None else Path(logical))
        return cls.from_mapping(data, str(file), file.stem)

    @classmethod
    def preset(cls, name: str) -> NetworkConfig:
        """Return the shipped network called *name* (see `list_presets`).

        Presets of nodes, such as ``hgx-h100-8x8``, exist for any number of nodes:
        ``hgx-h100-512x8``.
        """
        nodes = None if name in list_presets("network") else preset_of_nodes(name)
        where, like = f"The preset '{name}'", name if nodes is None else nodes[1]
        network = cls.from_mapping(yaml_mapping(preset_text("network", like), where), where, name)
        if nodes is None:
            return network
        return replace(network, npus_count=(*network.npus_count[:-1], nodes[0]), where=where)

    @classmethod
    def find(cls, name: str | Path, options: Mapping[str, Any] | None = None) -> NetworkConfig:
        """Return the preset *name* if `is_preset`, otherwise `load` the file."""
        return cls.preset(str(name)) if is_preset("network", name) else cls.load(name, options)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str, name: str = "network") -> NetworkConfig:
        """Build the configuration from a mapping; errors name its source, *where*."""
        missing = [key for key in DIMENSION_KEYS if key not in data]
        if missing:
            unlike = [str(key) for key in data if key not in DIMENSION_KEYS]
            close = difflib.get_close_matches(missing[0], unlike, n=1)
            spelt = f" ({shown(close[0])} may be a misspelling of it)" if close else ""
            raise ConfigError(
                f"{where}: the key '{missing[0]}' is missing{spelt}; a network needs "
                f"{', '.join(DIMENSION_KEYS)}."
            )
        for key in DIMENSION_KEYS:
            if not isinstance(data[key], (list, tuple)):
                raise ConfigError(
                    f"{where}: '{key}' must be a list with one entry per dimension, not {shown(data[key])}."
                )
        return cls(
            **{
                key: tuple(read(item, f"{where}: every entry of '{key}'") for item in data[key])
                for key, read in _DIMENSIONS.items()
            },
            links=read_links(data.get("links"), where),
            packet=PacketPart.from_mapping(data["packet"], where) if "packet" in data else None,
            tcp=TcpPart.from_mapping(data["tcp"], where) if "tcp" in data else None,
            devices=values.strings(data.get("devices", []), f"{where}: 'devices'"),
            assumptions=values.strings(data.get("assumptions", []), f"{where}: 'assumptions'"),
            logical="dimensions" in data
            and values.one_of((_LOGICAL,))(data["dimensions"], f"{where}: 'dimensions'") == _LOGICAL,
            failures=read_failures(data.get("failures"), data.get("devices", ()), where),
            efficiency=EfficiencyPart.from_mapping(data["efficiency"], where)
            if "efficiency" in data
            else None,
            calibration=dict(mapping_of(data.get("calibration", {}), f"{where}: 'calibration'")),
            unknown={key: data[key] for key in data if key not in (*DIMENSION_KEYS, *EXTENSIONS)},
            name=name,
            where=where,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the content for a network file, including ignored keys."""
        return {key: list(getattr(self, key)) for key in DIMENSION_KEYS} | self.without_dimensions()

    def without_dimensions(self) -> dict[str, Any]:
        """Return the content for a network file without the four keys of the dimensions."""
        data: dict[str, Any] = {}
        if self.links:
            data["links"] = [list(link) for link in self.links]
        for key in ("devices", "assumptions"):
            if getattr(self, key):
                data[key] = list(getattr(self, key))
        if self.failures:
            data["failures"] = [failure.to_dict() for failure in self.failures]
        if self.logical:
            data["dimensions"] = _LOGICAL
        if self.packet is not None:
            data["packet"] = dict(self.packet.written)
        if self.tcp is not None:
            data["tcp"] = dict(self.tcp.written)
        if self.efficiency is not None:
            data["efficiency"] = self.efficiency.to_dict()
        if self.calibration:
            data["calibration"] = dict(self.calibration)
        return data | dict(self.unknown)

    def save(self, path: str | Path) -> None:
        """Write the configuration in ASTRA-sim's format."""
        write_file(path, yaml.safe_dump(self.to_dict(), sort_keys=False), parents=True)
