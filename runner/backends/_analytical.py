"""The analytical models: messages that never queue, that queue on links, or that take their measured time."""

from __future__ import annotations

from ...errors import ConfigError
from .. import engine
from .._experiment import Experiment
from .._traits import DEFAULT_BACKEND, REPLAY, backends_that
from ..config import NetworkConfig, PacketNetwork, check_failures
from ._engine import EngineBackend, Model

__all__ = ["analytical_backend", "device_links", "refuse_linkless"]


def analytical_backend(name: str) -> EngineBackend:
    """Return the analytical backend called *name*."""
    configure = {DEFAULT_BACKEND: _without_queues, REPLAY: _as_measured}.get(name, _with_queues)
    return EngineBackend(Model(configure))


def _without_queues(_config: engine.Config, experiment: Experiment) -> None:
    refuse_linkless(experiment.network, experiment.backend)


def _as_measured(config: engine.Config, _experiment: Experiment) -> None:
    config.replay_only = True


def _with_queues(config: engine.Config, experiment: Experiment) -> None:
    network = experiment.network
    config.congestion_aware = True
    links, changes = failing_device_links(network)
    # Overheads beyond the wire; see `compile_scenario`.
    share = 1.0 if network.efficiency is None else network.efficiency.wire
    config.links = [(a, b, bandwidth * share, latency) for a, b, bandwidth, latency in links]
    config.link_changes = [(at, link, bandwidth * share) for at, link, bandwidth in changes]


def refuse_linkless(network: NetworkConfig, backend: str) -> None:
    """Raise `ConfigError` if *backend*, which only models dimensions, would ignore parts of *network*.

    These are failures, and links whose dimensions only arrange the ranks and do not give their speed.
    """
    if network.failures:
        raise ConfigError(
            f"The network '{network.name}' has failures of links, and '{backend}' knows no links; use "
            f"{backends_that('links')}, or leave 'failures' out."
        )
    if network.logical:
        raise ConfigError(
            f"'{backend}' knows dimensions alone, and those of the network '{network.name}' only arrange its "
            "ranks: its links are not as regular as dimensions (the network's assumptions say where). Next: "
            f"use {backends_that('links')}, which take the links, or give 'topology', "
            "'npus_count', 'bandwidth' and 'latency' in a network YAML."
        )


def device_links(network: NetworkConfig) -> list[tuple[int, int, float, float]]:
    """Return the network's own links, or those of its packet-level topology; None if it only has dimensions.

    Raises `ConfigError` for failures that begin or end within a simulation.
    """
    check_failures(network.failures, f"The network '{network.name}'")
    return failing_device_links(network)[0]


def failing_device_links(
    network: NetworkConfig,
) -> tuple[list[tuple[int, int, float, float]], list[tuple[int, int, float]]]:
    """Return the links as `device_links` does, and their changes: ``(ns, link, bandwidth)``, 0 for down."""
    packets = network.packet is not None and network.packet.is_graph
    if packets or (network.failures and not network.links):
        packet = PacketNetwork.of(network, timed=True)
        return list(packet.device_links()), packet.device_changes()
    left, changed = network.failing_links()
    links = [(a, b, float(bandwidth), float(latency)) for a, b, bandwidth, latency in left]
    changes = [
        (time_ns, place, 0.0 if link is None else float(link.bandwidth)) for time_ns, place, link in changed
    ]
    return links, changes
