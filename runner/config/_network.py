"""The network configuration: ASTRA-sim's analytical network YAML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError
from ...support import write_file
from ..engine import TOPOLOGIES
from . import _values as values
from ._packet_files import read_packet_files
from ._presets import preset_path
from ._values import shown

__all__ = ["NetworkConfig"]

_KEYS = ("topology", "npus_count", "bandwidth", "latency")
# Keys of ours that the analytical backends have no use for: they are no spelling mistakes.
_EXTENSIONS = ("htsim-topology", "links", "packet")
GIB = 1 << 30


@dataclass(frozen=True)
class NetworkConfig:
    """The dimensions of a network, fastest-varying first.

    *topology* names each dimension (``Ring``, ``FullyConnected``, ``Switch``), *npus_count* its size,
    *bandwidth* its links' speed in units of 2^30 bytes a second and *latency* its links' delay in ns, as in
    the file. *unknown* holds the keys ASTRA-sim ignores. A dimension joins two ranks or more; a rank on its
    own, which ASTRA-sim does not know, is one dimension of size 1. A wrong value raises `ConfigError`.
    """

    topology: tuple[str, ...]
    npus_count: tuple[int, ...]
    bandwidth: tuple[float, ...]
    latency: tuple[float, ...]
    unknown: Mapping[str, Any] = field(default_factory=dict)
    name: str = field(default="network", compare=False)

    def __post_init__(self) -> None:
        self._check("The network configuration")

    @property
    def dimensions(self) -> int:
        """The number of dimensions."""
        return len(self.topology)

    @property
    def num_ranks(self) -> int:
        """The number of ranks: the product of the dimensions' sizes."""
        return math.prod(self.npus_count)

    @property
    def bandwidth_bytes_per_ns(self) -> tuple[float, ...]:
        """The links' speed in bytes a nanosecond (10^9 bytes a second), one a dimension."""
        return tuple(value * GIB / 1e9 for value in self.bandwidth)

    @property
    def links(self) -> tuple[tuple[int, int, float, float], ...]:
        """Full-duplex links ``(a, b, bandwidth, latency)`` of the extension key ``links``.

        They replace the dimensions where congestion counts. Devices are numbered: ranks first, then switches.
        """
        links = self._raw_links()
        return tuple((int(a), int(b), float(rate), float(delay)) for a, b, rate, delay in links)

    def _raw_links(self) -> Sequence[Any]:
        links = self.unknown.get("links") or ()
        for link in links if isinstance(links, list) else [links] if links else []:
            numbers = isinstance(link, (list, tuple)) and len(link) == 4
            if not numbers or any(isinstance(item, (bool, str)) or item is None for item in link):
                raise ConfigError(
                    f"The network '{self.name}': every entry of 'links' must be "
                    f"[device, device, bandwidth, latency], not {shown(link)}."
                )
        return list(links)

    @property
    def warnings(self) -> list[str]:
        """Sentences about the keys that were ignored."""
        return values.spelling_hints([key for key in self.unknown if key not in _EXTENSIONS], _KEYS)

    @classmethod
    def load(cls, path: str | Path) -> NetworkConfig:
        """Read a network YAML; raises `ConfigError` for what ASTRA-sim would refuse, but for a single rank.

        A ``.txt`` is read as ASTRA-sim's config.txt for ns-3, all its hosts one dimension.
        """
        file = Path(path)
        if file.suffix == ".txt":
            return cls.load_packet(file)
        return cls.from_mapping(values.read_yaml(file, "network configuration"), str(file), file.stem)

    @classmethod
    def load_packet(cls, path: str | Path, logical: str | Path | None = None) -> NetworkConfig:
        """Read ASTRA-sim's config.txt for ns-3, with its topology and the logical topology JSON *logical*."""
        file = Path(path)
        data = read_packet_files(file, None if logical is None else Path(logical))
        return cls.from_mapping(data, str(file), file.stem)

    @classmethod
    def preset(cls, name: str) -> NetworkConfig:
        """Return the shipped network called *name*; `list_presets` lists them."""
        return cls.load(preset_path("network", name))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str, name: str = "network") -> NetworkConfig:
        """Return the configuration of the mapping read from *where*."""
        missing = [key for key in _KEYS if key not in data]
        if missing:
            raise ConfigError(
                f"{where}: the key '{missing[0]}' is missing; a network needs {', '.join(_KEYS)}."
            )
        for key in _KEYS:
            if not isinstance(data[key], (list, tuple)):
                raise ConfigError(
                    f"{where}: '{key}' must be a list with one entry a dimension, not {shown(data[key])}."
                )
        config = cls(
            topology=tuple(values.choice(item, TOPOLOGIES, "topology", where) for item in data["topology"]),
            npus_count=tuple(_whole(item, where) for item in data["npus_count"]),
            bandwidth=tuple(values.floating(item, "bandwidth", where) for item in data["bandwidth"]),
            latency=tuple(values.floating(item, "latency", where) for item in data["latency"]),
            unknown={key: data[key] for key in data if key not in _KEYS},
            name=name,
        )
        config._check(where)
        return config

    def _check(self, where: str) -> None:
        self._raw_links()
        if not self.topology:
            raise ConfigError(f"{where}: 'topology' is empty; name at least one dimension.")
        for name in self.topology:
            values.choice(name, TOPOLOGIES, "topology", where)
        for key in _KEYS[1:]:
            count = len(getattr(self, key))
            if count != self.dimensions:
                raise ConfigError(
                    f"{where}: '{key}' has {count} entries but 'topology' has {self.dimensions}."
                )
        for key, minimum, ok in (
            (
                "npus_count",
                "at least 2 (or [1] for a single rank)",
                self.npus_count == (1,) or all(item >= 2 for item in self.npus_count),
            ),
            ("bandwidth", "more than 0", all(item > 0 for item in self.bandwidth)),
            ("latency", "0 or more", all(item >= 0 for item in self.latency)),
        ):
            if not ok:
                raise ConfigError(
                    f"{where}: every entry of '{key}' must be {minimum}, not {list(getattr(self, key))}."
                )

    def to_dict(self) -> dict[str, Any]:
        """Return what the file holds, ignored keys included."""
        known = {key: list(getattr(self, key)) for key in _KEYS}
        return known | dict(self.unknown)

    def save(self, path: str | Path) -> None:
        """Write the configuration as ASTRA-sim reads it."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_file(path, yaml.safe_dump(self.to_dict(), sort_keys=False))


def _whole(value: Any, where: str) -> int:
    """Return a YAML integer: the YAML reader of ASTRA-sim does not cut fractions."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{where}: every entry of 'npus_count' must be a whole number, not {shown(value)}.")
    return value
