"""The analytical backends: messages never queue, queue on links, or take their measured time."""

from __future__ import annotations

from ...errors import ConfigError
from .. import engine
from .._experiment import Experiment
from .._traits import AWARE, REPLAY, backends_that
from ..config import NetworkConfig
from ..engine import NetworkModel
from ._engine import EngineBackend, Model


def analytical_backend(name: str) -> EngineBackend:
    """Return the analytical backend called *name*."""
    if name == AWARE:
        return EngineBackend(Model(NetworkModel.AWARE))
    return EngineBackend(Model(configure=_as_measured if name == REPLAY else _without_queues))


def _without_queues(_config: engine.Config, experiment: Experiment) -> None:
    refuse_linkless(experiment.network, experiment.backend)


def _as_measured(config: engine.Config, experiment: Experiment) -> None:
    config.replay_only = True
    if experiment.sync is not None:
        names = ("rank", "node_id", "point", "wait_ns", "begin_ns")
        config.set_sync_points(*(getattr(experiment.sync, name).tolist() for name in names))


def refuse_linkless(network: NetworkConfig, backend: str) -> None:
    """Raise `ConfigError` if *backend*, which only models dimensions, would ignore parts of *network*.

    The ignored parts are failures, and the links of a network with dimensions that only number the ranks.
    """
    if network.failures:
        raise ConfigError(
            f"The network '{network.name}' has link failures, but '{backend}' does not model links; use "
            f"{backends_that('links')}, or leave 'failures' out."
        )
    if network.logical:
        raise ConfigError(
            f"'{backend}' only supports dimensions, and those of the network '{network.name}' only "
            "arrange its ranks: its links are less regular than dimensions (the network's assumptions say "
            "where). Next: "
            f"use {backends_that('links')}, which take the links, or give 'topology', "
            "'npus_count', 'bandwidth' and 'latency' in a network YAML."
        )
