"""Compile an experiment to the engine's input: `compile_scenario`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from ...converter import encode_graph
from .. import engine
from .._experiment import Detail, Experiment
from ..config import read_per_node
from ..programs import graphs_of
from ._ignored import has_own_efficiency

__all__ = ["Scenario", "compile_scenario"]


@dataclass(frozen=True, eq=False)
class Scenario:
    """The engine's input: the distinct *programs*, the program of each rank, and the *config*."""

    programs: tuple[bytes | str, ...]
    program_of_rank: npt.NDArray[np.int32]
    config: engine.Config


def compile_scenario(experiment: Experiment) -> Scenario:
    """Return the engine's input for *experiment*, on the analytical network of its dimensions.

    A backend's model then sets how messages are carried. Raises `ConfigError` for an invalid experiment.
    """
    source = experiment.workload
    config = _configured(experiment)
    config.record_nodes = config.record_links = experiment.detail is Detail.EVERYTHING
    if source.representative_of_rank is not None:
        config.representative_of_rank = source.representative_of_rank.tolist()
    return Scenario(source.programs, source.program_of_rank, config)


def _configured(experiment: Experiment) -> engine.Config:
    """Return the engine's configuration for *experiment*."""
    config = engine.Config()
    _set_network(config, experiment)
    _set_efficiency(config, experiment)
    _set_system(config, experiment)
    memory = experiment.memory
    config.memory_type = memory.memory_type
    config.remote_mem_latency = memory.remote_mem_latency
    config.remote_mem_bw = memory.remote_mem_bw
    config.num_nodes = memory.num_nodes
    config.num_npus_per_node = memory.num_npus_per_node
    config.groups = {int(group): list(members) for group, members in experiment.groups.items()}
    config.semantics = experiment.semantics
    # ASTRA-sim replays a broadcast and refuses other rooted collectives; a captured job needs them simulated.
    config.native_collectives = experiment.semantics == "trace"
    config.replay_only = bool(experiment.system.replay_only)
    return config


def _set_network(config: engine.Config, experiment: Experiment) -> None:
    network = experiment.network
    config.topology = list(network.topology)
    config.npus_count = list(network.npus_count)
    config.bandwidth = list(network.bandwidth)
    config.latency = list(network.latency)
    config.num_queues_per_dim = experiment.num_queues_per_dim
    config.rendezvous = experiment.rendezvous


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
    if has_own_efficiency(experiment.backend):
        return
    config.collective_costs = part.costs()
    config.message_cost_ns = part.message_cost_ns
    config.message_library_costs = list(part.messages)
    config.bandwidth = [value * part.wire for value in config.bandwidth]


_PLAIN = (
    "preferred_dataset_splits",
    "active_chunks_per_dimension",
    "local_reduction_delay",
    "local_mem_bw",
    "peak_perf",
    "roofline_enabled",
    "track_local_mem",
    "collective_optimization",
    "scheduling_policy",
    "intra_dimension_policy",
    "inter_dimension_policy",
    "L",
    "o",
    "g",
    "G",
)
_LISTS = tuple(name.replace("-", "_") for name in engine.COLLECTIVES)


def _set_system(config: engine.Config, experiment: Experiment) -> None:
    """Copy the keys that the file has; for absent keys, the engine's defaults are ASTRA-sim's."""
    system = experiment.system
    for name in _PLAIN:
        value = getattr(system, name)
        if value is not None:
            setattr(config, name, value)
    if system.endpoint_delay is not None:
        # Only a given delay is scaled; the default of 10 ns is not.
        config.endpoint_delay = int(system.endpoint_delay * experiment.injection_scale)
    for name in _LISTS:
        for suffix in ("_implementation", "_implementation_custom"):
            value = getattr(system, name + suffix)
            if value is not None:
                setattr(config, name + suffix, list(value))
    config.model_shared_bus = system.model_shared_bus == 1
    config.custom_base = str(system.folder)
    if experiment.gpu_machine is None:
        _set_programs(config, experiment)
    if system.per_node_custom_implementation is not None:
        config.per_node_custom_implementation = read_per_node(system)


def _set_programs(config: engine.Config, experiment: Experiment) -> None:
    """Set the messages of each collective that a program runs."""
    speed = experiment.system.local_mem_bw or 0.0  # 10^9 bytes per second are bytes per ns
    for demand, lowered in experiment.program_messages.items():
        what = f"{demand.collective} of {demand.size_bytes} bytes among {demand.ranks} ranks"
        name = f"{lowered.program.name}, {what}"
        graphs = [encode_graph(graph) for graph in graphs_of(lowered, speed)]
        config.add_program(demand.collective, demand.ranks, demand.size_bytes, name, graphs)
