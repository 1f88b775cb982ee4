"""Write a network as the files of ASTRA-sim's ns-3, or as our own YAML."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

from ....support import write_file
from ...config import NetworkConfig, PacketNetwork

__all__ = ["NETWORK_FORMATS", "parallel_warning", "write_network"]

NETWORK_FORMATS = ("ns3", "yaml")
"""What `write_network` writes."""


def write_network(network: NetworkConfig, kind: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Write *network* into *folder* as one of `NETWORK_FORMATS`; return the files, and their gaps.

    ``ns3``: config.txt, topology.txt and logical.json, and the empty files that ASTRA-sim insists on;
    ``yaml``: our network YAML. Raises `ConfigError` for a network that
    the format cannot hold, `OSError` where *folder* cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "ns3":
        return _write_ns3(network, folder)
    path = folder / f"{network.name}.yml"
    network.save(path)
    return [path], []


def _write_ns3(network: NetworkConfig, folder: Path) -> tuple[list[Path], list[str]]:
    packet = PacketNetwork.of(network)
    packet.save(folder)
    logical = {"logical-dims": [str(count) for count in network.npus_count]}
    write_file(folder / "logical.json", json.dumps(logical) + "\n", sync=False)
    names = ("config.txt", "topology.txt", "logical.json", "flow.txt", "trace.txt")
    fine = sum(link.delay_ps % 1000 > 0 for link in packet.links)
    remarks = parallel_warning(packet)
    if fine:
        remarks.append(
            f"ASTRA-sim's ns-3 counts whole ns, and {fine} links have a latency between two of them."
        )
    return [folder / name for name in names], remarks + _without_efficiency(network)


def _without_efficiency(network: NetworkConfig) -> list[str]:
    """Return a sentence if *network* has overheads beyond the wire, which ASTRA-sim's files cannot hold."""
    if network.efficiency is None:
        return []
    return ["These files cannot say what is lost beside the wire: they are written without 'efficiency'."]


def parallel_warning(packet: PacketNetwork) -> list[str]:
    """Return a sentence if *packet* has parallel links, of which ASTRA-sim's ns-3 uses one each."""
    pairs = Counter(frozenset((link.a, link.b)) for link in packet.links)
    parallel = sum(count > 1 for count in pairs.values())
    if not parallel:
        return []
    return [
        f"{parallel} pairs of devices have parallel links, of which ASTRA-sim's ns-3 uses one each; "
        "'packet' uses all."
    ]
