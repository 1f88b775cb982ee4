"""Describe a network as HTSim takes it: a fat tree of two or three tiers."""

from __future__ import annotations

from dataclasses import dataclass

from ....errors import ConfigError
from ...config import Clos, NetworkConfig

__all__ = ["htsim_topology"]

_REMEDY = (
    "describe it with one 'Switch' dimension and, in its 'packet' part, a 'fabric', or name a topology file "
    "of HTSim's with 'htsim-topology'"
)


@dataclass(frozen=True)
class _Tier:
    """The switches of a tier: how many links each has down and up (0: none)."""

    down: int
    up: int


def htsim_topology(network: NetworkConfig) -> str:
    """Return HTSim's topology file for a network of one ``Switch`` dimension, or of a Clos ``fabric``.

    Rates are rounded to whole Gb/s and latencies to whole ns, as the file has them. Raises `ConfigError` for
    a network that is no such tree.
    """
    fabric = None if network.packet is None else network.packet.fabric
    listed = network.packet is not None and network.packet.topology is not None
    if network.topology != ("Switch",) or network.links or (fabric is None and listed):
        raise ConfigError(
            f"The network '{network.name}' is no fat tree, and HTSim knows nothing else; {_REMEDY}."
        )
    ranks = network.num_ranks
    clos = fabric or Clos(ranks, oversubscription=ranks)
    tiers, pod = _tiers(ranks, clos)
    rate = max(1, round(network.bandwidth_bytes_per_ns[0] * 8))
    latency = max(1, round(network.latency[0]))
    lines = [f"Nodes {ranks}", f"Tiers {len(tiers)}", f"Podsize {pod}"]
    for number, tier in enumerate(tiers):
        lines += [f"Tier {number}", f"Downlink_speed_Gbps {rate}", f"Radix_Down {tier.down}"]
        lines += [f"Radix_Up {tier.up}", f"Oversubscribed {tier.down // tier.up}"] if tier.up else []
        lines += [f"Downlink_Latency_ns {latency}", "Switch_Latency_ns 0"]
    return "\n".join(lines) + "\n"


def _tiers(ranks: int, clos: Clos) -> tuple[list[_Tier], int]:
    """Return the tiers from below, and how many hosts a pod has. The top has a link to every pod or leaf."""
    leaf = _Tier(clos.hosts_per_leaf, clos.hosts_per_leaf // clos.oversubscription)
    pod = clos.hosts_per_leaf * clos.leaves_per_pod
    if ranks % clos.hosts_per_leaf or (pod and ranks % pod):
        raise ConfigError(
            f"HTSim wants every leaf and pod full, but {ranks} ranks do not fill leaves of "
            f"{clos.hosts_per_leaf} hosts and pods of {clos.leaves_per_pod or 'all'} leaves; {_REMEDY}."
        )
    if not pod or ranks == pod:
        return [leaf, _Tier(ranks // clos.hosts_per_leaf, 0)], ranks
    spine = _Tier(clos.leaves_per_pod, clos.leaves_per_pod // clos.oversubscription)
    return [leaf, spine, _Tier(ranks // pod, 0)], pod
