"""The key ``packet`` of a network configuration, for packet-level backends.

The key contains settings of config.txt by name and, unless the topology follows from the dimensions,
``nodes``, ``switches`` and ``links`` (``[a, b, rate, delay, loss]``), or a ``fabric`` in place of the last
dimension. One file can thus describe a network to every backend.
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from os.path import isfile
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support.documents import read_json, read_text
from ._fabric import SETTINGS, TOPOLOGY_KEYS, Fabric, read_link, read_setting, whole_number
from ._values import MAX_RANKS, check_range, mapping_of, read_keys, whole

_MOST = 65_000


@dataclass(frozen=True)
class Clos:
    """A Clos fabric of two tiers, or of three with *leaves_per_pod*; all links have the same rate.

    Each leaf has *hosts_per_leaf* hosts and *hosts_per_leaf* / *oversubscription* uplinks, one to
    each spine. With pods, every pod has its own spines, each with *leaves_per_pod* /
    *oversubscription* uplinks to the cores that join the pods.
    """

    hosts_per_leaf: int
    leaves_per_pod: int = 0
    oversubscription: int = 1

    @classmethod
    def from_mapping(cls, data: Any, where: str) -> Clos:
        """Parse *data*; raises `ConfigError` for a Clos network that cannot exist."""
        place = f"{where}: 'fabric'"
        given = read_keys(data, dict.fromkeys((key.name for key in fields(cls)), whole(1, _MOST)), place)
        if "hosts_per_leaf" not in given:
            raise ConfigError(f"{place} needs 'hosts_per_leaf'.")
        clos = cls(**given)
        for key in ("hosts_per_leaf", "leaves_per_pod"):
            if getattr(clos, key) % clos.oversubscription:
                raise ConfigError(
                    f"{place}: '{key}' ({getattr(clos, key)}) must be a multiple of "
                    f"'oversubscription' ({clos.oversubscription})."
                )
        return clos

    def links(self, hosts: Sequence[int], first_switch: int) -> tuple[list[tuple[int, int]], int]:
        """Return the pairs of linked nodes, and the first unused node number."""
        leaf_count = -(-len(hosts) // self.hosts_per_leaf)
        leaves = range(first_switch, first_switch + leaf_count)
        pairs = [(host, leaves[place // self.hosts_per_leaf]) for place, host in enumerate(hosts)]
        spines_each = self.hosts_per_leaf // self.oversubscription
        if leaf_count == 1:
            return pairs, leaves.stop
        pods = self._pods(leaves)
        free = leaves.stop
        spines = [range(free + pod * spines_each, free + (pod + 1) * spines_each) for pod in range(len(pods))]
        free += len(pods) * spines_each
        for members, above in zip(pods, spines, strict=True):
            pairs += [(leaf, spine) for leaf in members for spine in above]
        if len(pods) == 1:
            return pairs, free
        cores_each = self.leaves_per_pod // self.oversubscription
        for above in spines:
            for place, spine in enumerate(above):
                pairs += [(spine, free + place * cores_each + core) for core in range(cores_each)]
        return pairs, free + spines_each * cores_each

    def _pods(self, leaves: range) -> list[range]:
        size = self.leaves_per_pod or len(leaves)
        return [leaves[start : start + size] for start in range(0, len(leaves), size)]


@dataclass(frozen=True, kw_only=True)
class PacketPart:
    """Packet settings by their names in config.txt, and the topology or the Clos fabric, if any.

    *written* is the mapping in the file's own notation (``400Gbps``), which is hashed and saved.
    """

    settings: Mapping[str, Any]
    topology: Fabric | None
    fabric: Clos | None
    written: Mapping[str, Any] = field(repr=False, compare=False)

    @classmethod
    def from_mapping(cls, data: Any, where: str = "The packet-level part of the network") -> PacketPart:
        """Parse *data*; raises `ConfigError` if it is invalid."""
        place = f"{where}: 'packet'"
        stated = [key for key in TOPOLOGY_KEYS if key in mapping_of(data, place)]
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
        """Whether the part has a topology, which replaces the dimensions."""
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


def read_packet_files(path: Path, logical: Path | None = None) -> dict[str, Any]:
    """Read ASTRA-sim's config.txt for ns-3, the topology file that it names, and the logical topology JSON.

    Returns the mapping of a network configuration: the four keys of the dimensions and ``packet``.
    Without *logical*, all hosts form one dimension. The topology file may be in the working
    directory or next to config.txt. The simulation uses ASTRA-sim's clock unless ASTRA_SIM_CLOCK is
    given. Raises `ConfigError` for invalid files.
    """
    text = read_text(path, "ns-3 configuration")
    given = _parse_settings(text, str(path))
    name = str(given.get("TOPOLOGY_FILE", "topology.txt"))
    topology = _read_topology(_find_next_to(name, path), str(path))
    hosts = topology.nodes - len(topology.switches)
    counts = [hosts] if logical is None else _logical_dims(logical)
    rate, delay_ns = _first_host_link(topology)
    # Times in files for ASTRA-sim refer to ASTRA-sim's clock.
    packet = {"ASTRA_SIM_CLOCK": 1} | {
        key: list(value) if isinstance(value, tuple) else value for key, value in given.items()
    }
    packet |= {
        "nodes": topology.nodes,
        "switches": list(topology.switches),
        "links": [
            [link.a, link.b, f"{link.rate_bps}bps", f"{link.delay_ps}ps", link.loss]
            for link in topology.links
        ],
    }
    return {
        "topology": ["Switch"] * len(counts),
        "npus_count": counts,
        "bandwidth": [rate / 8 / (1 << 30)] * len(counts),
        "latency": [delay_ns] * len(counts),
        "packet": packet,
    }


def _parse_settings(text: str, where: str) -> dict[str, Any]:
    """Parse the *text* of a config.txt; the last value of a setting wins.

    Words that are no settings are skipped one at a time, as in ASTRA-sim, but a misspelt setting is
    an error.
    """
    words = iter(text.split())
    settings: dict[str, Any] = {}
    for word in words:
        if word in SETTINGS:
            settings[word] = read_setting(word, _take(words, word, where), where)
        elif re.fullmatch(r"[A-Z][A-Z0-9_]{3,}", word) and difflib.get_close_matches(word, SETTINGS, 1, 0.8):
            raise ConfigError(f"{where}: there is no setting '{word}'{did_you_mean(word, SETTINGS)}")
    return settings


def _take(words: Iterator[str], key: str, where: str) -> Any:
    """Return the words that belong to the setting *key*."""
    kind = SETTINGS[key][0]
    try:
        if kind == "triple":
            return [next(words), next(words), next(words)]
        if kind != "map":
            return next(words)
        count = whole_number(next(words), key, where)
        if not 0 <= count <= 1000:
            raise ConfigError(f"{where}: '{key}' states {count} entries; the limit is 1000.")
        return {next(words): next(words) for _ in range(count)}
    except StopIteration:
        raise ConfigError(f"{where}: the file ends in the middle of '{key}'; is it complete?") from None


def _read_topology(path: Path, where: str) -> Fabric:
    words = iter(read_text(path, "topology").split())
    place = f"{path}, named in {where}"
    try:
        nodes, switch_count, link_count = (whole_number(next(words), "head", place) for _ in range(3))
        switches = tuple(whole_number(next(words), "switches", place) for _ in range(switch_count))
        links = tuple(read_link([next(words) for _ in range(5)], place) for _ in range(link_count))
    except (StopIteration, RuntimeError) as error:
        raise ConfigError(
            f"{place}: the topology ends early; it needs 'nodes switches links', the switches, and five "
            "values for each link."
        ) from error
    topology = Fabric(nodes, switches, links)
    topology.check(place)
    return topology


def _logical_dims(path: Path) -> list[int]:
    dims = read_json(path, "logical topology").get("logical-dims")
    if not isinstance(dims, list) or not dims:
        raise ConfigError(f'{path}: \'logical-dims\' must be a list such as ["8", "2"].')
    counts = [whole_number(item, "logical-dims", str(path)) for item in dims]
    check_range(math.prod(counts), (1, MAX_RANKS), f"{path}: 'logical-dims'")
    return counts


def _first_host_link(topology: Fabric) -> tuple[float, float]:
    """Return the rate (bit/s) and delay (ns) of the first host's link, as figures for the dimension."""
    switches = set(topology.switches)
    for link in topology.links:
        if link.a not in switches or link.b not in switches:
            return float(link.rate_bps), link.delay_ps / 1000
    raise ConfigError("The packet-level topology has no link to a host; correct the topology file.")


def _find_next_to(name: str, config: Path) -> Path:
    for candidate in (Path(name), config.parent / name):
        if isfile(candidate):  # isfile, unlike Path.is_file, accepts names too long for a file
            return candidate
    raise ConfigError(
        f"{config}: the topology file '{name}' is neither in the working directory nor in {config.parent}."
    )
