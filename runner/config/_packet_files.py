"""Read ASTRA-sim's files for ns-3: config.txt, topology.txt and the logical topology JSON."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from os.path import isfile
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support.documents import read_text
from . import _values as values
from ._fabric import SETTINGS, Fabric, read_link, read_setting, whole_number

__all__ = ["read_packet_files"]


def read_packet_files(path: Path, logical: Path | None = None) -> dict[str, Any]:
    """Read ASTRA-sim's config.txt for ns-3, the topology it names and the logical topology JSON.

    Returns the mapping of a network configuration: the four keys of the dimensions and ``packet``. Without
    *logical* all hosts are one dimension. The clock is ASTRA-sim's unless ASTRA_SIM_CLOCK is given. The
    topology may be in the working directory or next to the file. Raises `ConfigError` for invalid files.
    """
    text = read_text(path, "ns-3 configuration")
    given = _parse_settings(text, str(path))
    name = str(given.get("TOPOLOGY_FILE", "topology.txt"))
    topology = _read_topology(_find_beside(name, path), str(path))
    hosts = topology.nodes - len(topology.switches)
    counts = [hosts] if logical is None else _logical_dims(logical)
    rate, delay_ns = _first_host_link(topology)
    # These files are ASTRA-sim's, and so is the default of their clock.
    packet = {"ASTRA_SIM_CLOCK": 1} | {key: _plain(value) for key, value in given.items()}
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
    """Return the settings in the words of a config.txt; the last value of each counts.

    Like ASTRA-sim, skips other words one at a time; a misspelt setting is an error.
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
    """Return the words that belong to *key*."""
    kind = SETTINGS[key][0]
    try:
        if kind == "triple":
            return [next(words), next(words), next(words)]
        if kind != "map":
            return next(words)
        count = whole_number(next(words), key, where)
        if not 0 <= count <= 1000:
            raise ConfigError(f"{where}: '{key}' announces {count} entries; it can have up to 1000.")
        return {next(words): next(words) for _ in range(count)}
    except StopIteration:
        raise ConfigError(f"{where}: the file ends in the middle of '{key}'; is it whole?") from None


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
            "words a link."
        ) from error
    topology = Fabric(nodes, switches, links)
    topology.check(place)
    return topology


def _logical_dims(path: Path) -> list[int]:
    dims = values.read_json(path, "logical topology").get("logical-dims")
    if not isinstance(dims, list) or not dims:
        raise ConfigError(f'{path}: \'logical-dims\' must be a list such as ["8", "2"].')
    return [whole_number(item, "logical-dims", str(path)) for item in dims]


def _first_host_link(topology: Fabric) -> tuple[float, float]:
    """Return rate (bit/s) and delay (ns) of a host's link, which represents all in the analytical keys."""
    switches = set(topology.switches)
    for link in topology.links:
        if link.a not in switches or link.b not in switches:
            return float(link.rate_bps), link.delay_ps / 1000
    raise ConfigError("The packet-level topology has no link to a host; correct the topology file.")


def _find_beside(name: str, config: Path) -> Path:
    for candidate in (Path(name), config.parent / name):
        if isfile(candidate):  # also for a name that is too long for a file
            return candidate
    raise ConfigError(
        f"{config}: the topology file '{name}' is neither in the working directory nor in {config.parent}."
    )


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
