"""Change a network: a dimension with more bandwidth or less latency, or one link of it."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any

from ....errors import UsageError
from ..._traits import about_backend, backends_that
from ...config import NetworkConfig, PacketPart, TcpPart, fabric_of, written_out
from ._target import Target

__all__ = ["with_faster_network"]

_LINK = re.compile(r"(\d+)-(\d+)")


def with_faster_network(network: NetworkConfig, backend: str, target: Target, times: float) -> NetworkConfig:
    """Return *network* with the target *times* as fast, where the *backend* looks for it.

    Raises `UsageError` if it has no such dimension or link.
    """
    if target.what == "link":
        return _with_faster_link(network, backend, target, times)
    if not (target.name.isdecimal() and len(target.name) < 19 and int(target.name) < network.dimensions):
        known = ", ".join(f"{target.what}:{dimension}" for dimension in range(network.dimensions))
        raise UsageError(
            f"The network '{network.name}' has no dimension '{target.name[:20]}', counted from 0; choose "
            f"from {known}."
        )
    if _link_list(network, backend):
        raise UsageError(
            f"The network '{network.name}' is a list of links, so its dimensions have no speed of their own "
            f"for '{backend}'; change a link (link:0-8)."
        )
    factors = [times if dimension == int(target.name) else 1.0 for dimension in range(network.dimensions)]
    pairs = zip(getattr(network, target.what), factors, strict=True)
    if target.what == "bandwidth":
        return dataclasses.replace(network, bandwidth=tuple(value * factor for value, factor in pairs))
    return dataclasses.replace(network, latency=tuple(value / factor for value, factor in pairs))


def _link_list(network: NetworkConfig, backend: str) -> bool:
    listed = network.packet is not None and network.packet.topology is not None
    return (bool(network.links) or listed) and about_backend(backend).links


def _with_faster_link(network: NetworkConfig, backend: str, target: Target, times: float) -> NetworkConfig:
    match = _LINK.fullmatch(target.name)
    if match is None:
        raise UsageError(
            f"'{target.name[:60]}' is not a link; write the numbers of its ends, such as link:0-8."
        )
    ends = {int(match[1]), int(match[2])}
    traits = about_backend(backend)
    if traits.fabric or (traits.links and network.packet is not None and network.packet.is_graph):
        return _with_packet_link(network, ends, times)
    if not traits.links or not network.links:
        raise UsageError(
            f"'{backend}' does not know single links of the network '{network.name}', which is described by "
            f"its dimensions; change one of them (bandwidth:0), or ask a run on {backends_that('buffers')}."
        )
    changed = tuple(
        link._replace(bandwidth=link.bandwidth * (times if {link.a, link.b} == ends else 1.0))
        for link in _found(network.links, ends)
    )
    return dataclasses.replace(network, links=changed)


def _found(links: Any, ends: set[int]) -> Any:
    if not any({link[0], link[1]} == ends for link in links):
        raise UsageError(
            f"The network has no link between {' and '.join(map(str, sorted(ends)))}; switches are numbered "
            "after the ranks, and 'chakrascope summary STUDY --view links' lists all links."
        )
    return links


def _with_packet_link(network: NetworkConfig, ends: set[int], times: float) -> NetworkConfig:
    """Return *network* with its packet-level topology written out, and the link between *ends* changed."""
    fabric, failures = written_out(network)
    device = fabric.device_of_node
    _found(fabric_of(network).hosts_first().links, ends)
    links = [
        [
            link.a,
            link.b,
            f"{round(link.rate_bps * (times if {device[link.a], device[link.b]} == ends else 1))}bps",
            f"{link.delay_ps}ps",
            link.loss,
        ]
        for link in fabric.links
    ]
    topology = {"nodes": fabric.nodes, "switches": list(fabric.switches), "links": links}
    settings = {
        key: dict(value) if isinstance(value, Mapping) else value for key, value in fabric.settings.items()
    }
    # The written-out links are a packet part, which alone would make a network of RoCE of it.
    tcp = (network.tcp or TcpPart()) if network.is_tcp else None
    part = PacketPart.from_mapping(settings | topology)
    return dataclasses.replace(network, packet=part, tcp=tcp, failures=failures)
