"""Compile an experiment to the engine's input, the only place that makes one: `compile_scenario`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...converter import encode_graph
from .. import engine
from .._experiment import Detail, Experiment
from .._traits import about_backend
from ..config import read_per_node
from ..engine import NetworkModel
from ..programs import graphs_of

__all__ = ["Scenario", "compile_scenario"]


@dataclass(frozen=True, eq=False)
class Scenario:
    """The engine's input: the distinct *programs*, the program of each rank, and the *config*."""

    programs: tuple[bytes | str, ...]
    program_of_rank: npt.NDArray[np.int32]
    config: engine.Config


def compile_scenario(experiment: Experiment, network: NetworkModel = NetworkModel.UNAWARE) -> Scenario:
    """Return the engine's input for *experiment*, whose messages that model of a *network* carries.

    Raises `ConfigError` for an invalid experiment.
    """
    source = experiment.workload
    config = _configured(experiment)
    config.network_model = network
    if network is not NetworkModel.UNAWARE:
        _set_fabric(config, experiment)
    config.record_nodes = config.record_links = experiment.detail is Detail.EVERYTHING
    if source.representative_of_rank is not None:
        config.representative_of_rank = source.representative_of_rank.tolist()
    return Scenario(source.programs, source.program_of_rank, config)


def _configured(experiment: Experiment) -> engine.Config:
    """Return the engine's configuration for *experiment*; for absent keys its defaults are ASTRA-sim's."""
    config = engine.Config()
    system = experiment.system
    origins = {
        "experiment": experiment,
        "memory": experiment.memory,
        "network": experiment.network,
        "system": system,
    }
    for name, field in engine.FIELDS.items():
        value = getattr(origins[field.origin], name) if field.origin in origins else None
        if value is not None:
            setattr(config, name, list(value) if isinstance(value, tuple) else value)
    if system.endpoint_delay is not None:
        # Only a given delay is scaled; the default of 10 ns is not.
        config.endpoint_delay = int(system.endpoint_delay * experiment.injection_scale)
    config.custom_base = str(system.folder)
    if system.per_node_custom_implementation is not None:
        config.per_node_custom_implementation = read_per_node(system)
    config.groups = {int(group): list(members) for group, members in experiment.groups.items()}
    # ASTRA-sim replays a broadcast and refuses other rooted collectives; a captured job needs them simulated.
    config.native_collectives = experiment.semantics == "trace"
    _set_efficiency(config, experiment)
    if experiment.gpu_machine is None:
        _set_programs(config, experiment)
    return config


def _set_efficiency(config: engine.Config, experiment: Experiment) -> None:
    """Set the library's use of the wire, and its overheads, in the engine's configuration.

    Measurements already include all overheads. A fabric of packets has its own headers.
    """
    part = experiment.network.efficiency
    if part is None:
        return
    config.collective_substitutes = part.instead()
    config.messages_on_request = part.handshake == "in-order"
    config.sends_first = part.pieces()
    if about_backend(experiment.backend).efficiency == "what is sent":
        return
    config.collective_costs = part.costs()
    config.message_cost_ns = part.message_cost_ns
    config.message_library_costs = list(part.messages)
    config.wire_share = part.wire


def _set_fabric(config: engine.Config, experiment: Experiment) -> None:
    """Set the links of the network; messages that queue on links of dimensions have the engine's own."""
    if config.network_model is NetworkModel.AWARE and not experiment.network.has_links:
        return
    if config.network_model is NetworkModel.PACKET:
        experiment.fabric.check_packets()
    config.set_fabric(experiment.fabric)


def _set_programs(config: engine.Config, experiment: Experiment) -> None:
    """Set the messages of each collective that a program runs."""
    speed = experiment.system.local_mem_bw or 0.0  # 10^9 bytes per second are bytes per ns
    for demand, lowered in experiment.program_messages.items():
        what = f"{demand.collective} of {demand.size_bytes} bytes among {demand.ranks} ranks"
        name = f"{lowered.program.name}, {what}"
        graphs = [encode_graph(graph) for graph in graphs_of(lowered, speed)]
        config.add_program(demand.collective, demand.ranks, demand.size_bytes, name, graphs)
