"""The key ``packet`` of a network configuration: its packet-level part.

It holds the settings of config.txt by their names. Unless the topology is derived from the dimensions, it
also has ``nodes``, ``switches`` and ``links`` (``[a, b, rate, delay, loss]``), or a ``fabric`` in place of
the last dimension. One file thus describes a network to every backend.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ...errors import ConfigError
from ._fabric import TOPOLOGY_KEYS, Fabric, read_link, read_setting, whole_number
from ._topology import Clos
from ._values import shown

__all__ = ["PacketPart"]


@dataclass(frozen=True, kw_only=True)
class PacketPart:
    """The given settings by their names in config.txt, and the topology or else the fabric, if any.

    *written* is the part as in the file (``400Gbps``, not a number), which is written back and hashed.
    """

    settings: Mapping[str, Any]
    topology: Fabric | None
    fabric: Clos | None
    written: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_mapping(cls, data: Any, where: str = "The packet-level part of the network") -> PacketPart:
        """Return the part that *data* describes; raises `ConfigError` for errors in it."""
        if not isinstance(data, Mapping):
            raise ConfigError(f"{where}: 'packet' must be a mapping of settings, not {shown(data)}.")
        place = f"{where}: 'packet'"
        stated = [key for key in TOPOLOGY_KEYS if key in data]
        if stated and "fabric" in data:
            raise ConfigError(
                f"{place} has both '{stated[0]}' and a 'fabric', and one of them would be ignored; keep the "
                "topology or the fabric."
            )
        given = {str(key): value for key, value in data.items() if key not in (*TOPOLOGY_KEYS, "fabric")}
        return cls(
            settings={key: read_setting(key, value, place) for key, value in given.items()},
            topology=_topology(data, place) if any(key in data for key in TOPOLOGY_KEYS) else None,
            fabric=Clos.from_mapping(data["fabric"], place) if "fabric" in data else None,
            written=dict(data),
        )

    @property
    def is_graph(self) -> bool:
        """Whether it has a topology, which replaces the dimensions."""
        return self.topology is not None or self.fabric is not None


def _topology(part: Mapping[str, Any], where: str) -> Fabric:
    missing = [key for key in TOPOLOGY_KEYS if key not in part]
    if missing:
        raise ConfigError(f"{where} has a topology without '{missing[0]}'; give {', '.join(TOPOLOGY_KEYS)}.")
    nodes = whole_number(part["nodes"], "nodes", where)
    if not isinstance(part["switches"], list) or not isinstance(part["links"], list):
        raise ConfigError(f"{where}: 'switches' and 'links' must be lists.")
    switches = tuple(whole_number(item, "switches", where) for item in part["switches"])
    topology = Fabric(nodes, switches, tuple(read_link(row, where) for row in part["links"]))
    topology.check(where)
    return topology
