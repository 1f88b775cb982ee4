"""Describe a network as HTSim takes it: a fat tree of two or three tiers."""

from __future__ import annotations

from ....errors import ConfigError
from ...config import Clos, NetworkConfig
from ._htsim_tree import Tier, tree_of_links

__all__ = ["htsim_topology"]

_REMEDY = (
    "describe it with one 'Switch' dimension and, in its 'packet' part, a 'fabric', or name a topology file "
    "of HTSim's with 'htsim-topology'"
)


def htsim_topology(network: NetworkConfig) -> str:
    """Return HTSim's topology file for one ``Switch`` dimension, a Clos ``fabric``, or links that are a tree.

    Rates are rounded to whole Gb/s and latencies to whole ns, as the file has them. Raises `ConfigError` for
    a network that is no such tree.
    """
    if network.failures:
        raise ConfigError(
            f"The network '{network.name}' has failures of links, which HTSim's topology file cannot say; "
            "use 'packet', or leave 'failures' out."
        )
    tiers, pod = _tiers(network)
    lines = [f"Nodes {network.num_ranks}", f"Tiers {len(tiers)}", f"Podsize {pod}"]
    for number, tier in enumerate(tiers):
        rate, latency = (max(1, round(figure)) for figure in (tier.rate_bps / 1e9, tier.delay_ps / 1000))
        lines += [f"Tier {number}", f"Downlink_speed_Gbps {rate}", f"Radix_Down {tier.down}"]
        lines += [f"Radix_Up {tier.up}", f"Oversubscribed {tier.down // tier.up}"] if tier.up else []
        lines += [f"Downlink_Latency_ns {latency}", "Switch_Latency_ns 0"]
    return "\n".join(lines) + "\n"


def _tiers(network: NetworkConfig) -> tuple[list[Tier], int]:
    """Return the tiers from below, and the ranks of a pod; raises `ConfigError` for what is not a tree."""
    fabric = None if network.packet is None else network.packet.fabric
    listed = network.packet is not None and network.packet.topology is not None
    if fabric is None and (network.links or listed):
        found = tree_of_links(network)
        if isinstance(found, str):
            raise ConfigError(
                f"The links of the network '{network.name}' are no fat tree, and HTSim knows nothing else: "
                f"{found}; {_REMEDY}."
            )
        return found
    if network.topology != ("Switch",):
        raise ConfigError(
            f"The network '{network.name}' is not a fat tree, and HTSim knows nothing else; {_REMEDY}."
        )
    return _of_fabric(network, fabric or Clos(network.num_ranks, oversubscription=network.num_ranks))


def _of_fabric(network: NetworkConfig, clos: Clos) -> tuple[list[Tier], int]:
    """Return the tiers of *clos* and the ranks of a pod. The top has a link to every pod or leaf."""
    ranks = network.num_ranks
    rate, delay = round(network.bandwidth_bytes_per_ns[0] * 8e9), round(network.latency[0] * 1000)
    leaf = Tier(clos.hosts_per_leaf, clos.hosts_per_leaf // clos.oversubscription, rate, delay)
    pod = clos.hosts_per_leaf * clos.leaves_per_pod
    if ranks % clos.hosts_per_leaf or (pod and ranks % pod):
        raise ConfigError(
            f"HTSim wants every leaf and pod full, but {ranks} ranks do not fill leaves of "
            f"{clos.hosts_per_leaf} hosts and pods of {clos.leaves_per_pod or 'all'} leaves; {_REMEDY}."
        )
    if not pod or ranks == pod:
        return [leaf, Tier(ranks // clos.hosts_per_leaf, 0, rate, delay)], ranks
    spine = Tier(clos.leaves_per_pod, clos.leaves_per_pod // clos.oversubscription, rate, delay)
    return [leaf, spine, Tier(ranks // pod, 0, rate, delay)], pod
