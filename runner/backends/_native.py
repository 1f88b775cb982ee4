"""The backends of our own engine: congestion-unaware, congestion-aware, and the replay of a measurement."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from ...converter import encode_graph
from ...errors import BackendError, ConfigError
from ...support.table import Columns, Table
from .. import engine
from .._experiment import Detail, Experiment
from .._framed import typed
from .._memory import check_simulation
from .._recorded_nodes import RecordedNodes
from .._result import COLUMNS, MANY_NODES, Result
from ..config import NetworkConfig, PacketNetwork, check_failures, read_per_node
from ..programs import graphs_of
from ._base import Progress
from ._collectives import arranged_calls
from ._ignored import has_own_efficiency, ignored_keys
from ._stall import stall_error

__all__ = [
    "MOST_OVERTAKING",
    "ExternalNetwork",
    "NativeBackend",
    "ReplayBackend",
    "device_links",
    "engine_config",
    "refuse_linkless",
    "run_provenance",
]

ExternalNetwork = Callable[[list[tuple[int, int, int, int, int]], int], list[tuple[int, int]]]
"""Takes messages (id, source, destination, bytes, ns) and a time in ns (-1: none); simulates until something
arrives but not past that time; returns what arrived in that instant (id, ns)."""


MOST_OVERTAKING = 2


class NativeBackend:
    """The analytical network: links without queues, or with them if *congestion_aware* (one dimension)."""

    def __init__(self, *, congestion_aware: bool, replay_only: bool = False) -> None:
        self.congestion_aware = congestion_aware
        self.replay_only = replay_only

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `SimulationStalled` if ranks are left waiting for each other.

        Raises `ConfigError` for a network of links whose dimensions stand for nothing.
        """
        if not self.congestion_aware and not self.replay_only:
            refuse_linkless(experiment.network, experiment.backend)
        return self.simulate(experiment, progress)

    def simulate(
        self,
        experiment: Experiment,
        progress: Progress | None,
        network: ExternalNetwork | None = None,
        overtaking: int = 0,
    ) -> Result:
        """Simulate *experiment*, its messages carried by *network* instead of the analytical one if given.

        *overtaking* (0 to `MOST_OVERTAKING`) says how much may pass what waits for a peer. The analytical
        networks raise it by themselves where a captured job would stall without; with a *network*, the
        caller does, because that has to begin again.
        """
        once = not self.congestion_aware and network is None
        check_simulation(experiment.workload, alike_once=once)
        with _within_memory(experiment):
            output = self._output(experiment, progress, network, overtaking)
            return self._complete(_result(experiment, output), experiment, output)

    def rehearse(self, experiment: Experiment) -> int:
        """Return how much must overtake so that *experiment* ends; raises `SimulationStalled`."""
        return int(self._output(replace(experiment, detail=Detail.TOTALS), None, None, 0).overtaking)

    def _config(self, experiment: Experiment) -> Any:
        return engine_config(experiment, congestion_aware=self.congestion_aware, replay_only=self.replay_only)

    def _complete(self, result: Result, experiment: Experiment, output: Any) -> Result:
        """Return *result* with what only this backend knows of the engine's *output*."""
        return result

    def _output(
        self,
        experiment: Experiment,
        progress: Progress | None,
        network: ExternalNetwork | None,
        overtaking: int,
    ) -> Any:
        config = self._config(experiment)
        config.overtaking = overtaking
        config.record_nodes = config.record_links = experiment.detail is Detail.EVERYTHING
        if network is not None:
            config.external_network = network
        source = experiment.workload
        if source.representative_of_rank is not None:
            config.representative_of_rank = source.representative_of_rank.tolist()
        return self._simulated(config, experiment, progress)

    def _simulated(self, config: Any, experiment: Experiment, progress: Progress | None) -> Any:
        """Return the engine's output; raises `SimulationStalled`, or `BackendError` for an empty workload."""
        source = experiment.workload
        output = engine.simulate(config, list(source.programs), source.program_of_rank, progress)
        if output.unfinished:
            remedies = self._remedies(experiment, progress)
            raise stall_error(output.unfinished, source.num_ranks, output.deadlock, remedies)
        if output.nodes_executed == 0:
            raise BackendError(
                "The simulation executed no node at all; check that the workload is not empty."
            )
        return output

    def _remedies(self, experiment: Experiment, progress: Progress | None) -> list[str]:
        """Return the changes with which the stalled *experiment* ends, each of them tried."""
        if experiment.semantics == "trace":  # has been given every freedom already
            return []
        chunks = (experiment.system.preferred_dataset_splits or 1) * experiment.num_queues_per_dim
        changes: dict[str, dict[str, Any]] = {
            f"'active-chunks-per-dimension' {chunks} in the system file": {
                "active_chunks_per_dimension": chunks
            },
            'semantics="trace"': {"semantics": "trace", "native_collectives": True},
        }
        found = []
        for words, settings in changes.items():
            config = self._config(experiment)
            config.record_nodes = config.record_links = False
            for name, value in settings.items():
                setattr(config, name, value)
            source = experiment.workload
            output = engine.simulate(config, list(source.programs), source.program_of_rank, progress)
            if not output.unfinished:
                found.append(words)
        return found


class ReplayBackend(NativeBackend):
    """Every node takes its measured duration, so the answer is the measured step."""

    def __init__(self) -> None:
        super().__init__(congestion_aware=False, replay_only=True)


@contextlib.contextmanager
def _within_memory(experiment: Experiment) -> Iterator[None]:
    """Turn a `MemoryError` of the block into an error that says what needs less."""
    try:
        yield
    except MemoryError as error:
        raise BackendError(
            f"There is not enough memory to simulate {experiment.workload.num_ranks} ranks; simulate fewer, "
            "without congestion (ranks that behave alike are simulated once), or on a larger machine."
        ) from error


def engine_config(
    experiment: Experiment, *, congestion_aware: bool = False, replay_only: bool = False
) -> engine.Config:
    """Return what the engine is told of *experiment*, all but its programs."""
    config = engine.Config()
    _set_network(config, experiment, congestion_aware)
    _set_system(config, experiment)
    memory = experiment.memory
    config.memory_type = memory.memory_type
    config.remote_mem_latency = memory.remote_mem_latency
    config.remote_mem_bw = memory.remote_mem_bw
    config.num_nodes = memory.num_nodes
    config.num_npus_per_node = memory.num_npus_per_node
    config.groups = {int(group): list(members) for group, members in experiment.groups.items()}
    config.semantics = experiment.semantics
    # ASTRA-sim replays a broadcast and refuses the others; a captured job deserves better.
    config.native_collectives = experiment.semantics == "trace"
    config.replay_only = replay_only or bool(experiment.system.replay_only)
    return config


def _set_network(config: Any, experiment: Experiment, congestion_aware: bool) -> None:
    network = experiment.network
    config.topology = list(network.topology)
    config.npus_count = list(network.npus_count)
    config.bandwidth = list(network.bandwidth)
    config.latency = list(network.latency)
    config.congestion_aware = congestion_aware
    if congestion_aware:
        config.links, config.link_changes = failing_device_links(network)
    _set_efficiency(config, network, measured=has_own_efficiency(experiment.backend))
    config.num_queues_per_dim = experiment.num_queues_per_dim
    config.rendezvous = experiment.rendezvous


def _set_efficiency(config: Any, network: NetworkConfig, *, measured: bool) -> None:
    """Give the engine how the library uses the wire, and what is lost beside it.

    What is *measured* has all losses already. A fabric of packets has headers of its own.
    """
    part = network.efficiency
    if part is None:
        return
    config.collective_substitutes = part.instead()
    config.messages_on_request = part.handshake == "in-order"
    config.sends_first = part.pieces()
    if measured:
        return
    config.collective_costs = part.costs()
    config.message_cost_ns = part.message_cost_ns
    config.message_library_costs = list(part.messages)
    config.bandwidth = [value * part.wire for value in config.bandwidth]
    config.links = [(a, b, bandwidth * part.wire, latency) for a, b, bandwidth, latency in config.links]
    config.link_changes = [(at, link, bandwidth * part.wire) for at, link, bandwidth in config.link_changes]


def refuse_linkless(network: NetworkConfig, backend: str) -> None:
    """Raise `ConfigError` for what *backend*, which knows dimensions alone, would not see of *network*.

    These are failures, and links whose dimensions only arrange the ranks and say nothing of their speed.
    """
    if network.failures:
        raise ConfigError(
            f"The network '{network.name}' has failures of links, and '{backend}' knows no links; use "
            "'analytical-aware', 'flow' or 'packet', or leave 'failures' out."
        )
    if network.logical:
        raise ConfigError(
            f"'{backend}' knows dimensions alone, and those of the network '{network.name}' only arrange its "
            "ranks: its links are not as regular as dimensions (the network's assumptions say where). Next: "
            "use 'analytical-aware', 'flow' or 'packet', which take the links, or give 'topology', "
            "'npus_count', 'bandwidth' and 'latency' in a network YAML."
        )


def device_links(network: NetworkConfig) -> list[tuple[int, int, float, float]]:
    """Return the network's own links, or those of its packet-level topology; none means its dimensions.

    Raises `ConfigError` for failures that begin or end within a simulation.
    """
    check_failures(network.failures, f"The network '{network.name}'")
    return failing_device_links(network)[0]


def failing_device_links(
    network: NetworkConfig,
) -> tuple[list[tuple[int, int, float, float]], list[tuple[int, int, float]]]:
    """Return the links as `device_links` does, and their changes: ``(ns, place, bandwidth)``, 0 for down."""
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
# A table of this many node times takes some 300 MB.
_MOST_NODE_ROWS = 5_000_000
_LISTS = tuple(name.replace("-", "_") for name in engine.COLLECTIVES)


def _set_system(config: Any, experiment: Experiment) -> None:
    """Copy the keys the file has; the engine's own defaults are ASTRA-sim's for absent ones."""
    system = experiment.system
    for name in _PLAIN:
        value = getattr(system, name)
        if value is not None:
            setattr(config, name, value)
    if system.endpoint_delay is not None:
        # Only a delay that is given is scaled; the default of 10 ns is not.
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


def _set_programs(config: Any, experiment: Experiment) -> None:
    """Give the engine the messages of each collective that a program runs."""
    speed = experiment.system.local_mem_bw or 0.0  # 10^9 bytes per second are bytes per ns
    for demand, lowered in experiment.program_messages.items():
        what = f"{demand.collective} of {demand.size_bytes} bytes among {demand.ranks} ranks"
        name = f"{lowered.program.name}, {what}"
        graphs = [encode_graph(graph) for graph in graphs_of(lowered, speed)]
        config.add_program(demand.collective, demand.ranks, demand.size_bytes, name, graphs)


def _nodes_of_all(output: Any, recorded: RecordedNodes) -> Columns:
    """Return the node times of all ranks; of those that behave alike, each gets the simulated one's."""
    simulated = recorded.read()  # in ascending order of ranks
    instead = output.rank_representative
    bounds = zip(
        *(np.searchsorted(simulated["rank"], instead, side) for side in ("left", "right")), strict=True
    )
    chosen = [np.arange(first, end) for first, end in bounds]
    nodes = {name: column[np.concatenate(chosen)] for name, column in simulated.items()}
    ranks = np.arange(len(chosen), dtype=np.int32).repeat([len(part) for part in chosen])
    itself = (nodes["origin_rank"] == nodes["rank"]) & (nodes["origin_node"] == nodes["node_id"])
    nodes["origin_rank"] = np.where(itself, ranks, nodes["origin_rank"]).astype(np.int32)
    nodes["rank"] = ranks
    return nodes


def _result(experiment: Experiment, output: Any) -> Result:
    ranks: Columns = {
        "rank": np.arange(experiment.workload.num_ranks, dtype=np.int64),
        "finish_ns": output.rank_finish_ns,
        "exposed_comm_ns": output.rank_exposed_comm_ns,
        "compute_ns": output.rank_compute_ns,
        "comm_ns": output.rank_comm_ns,
        "overlap_ns": output.rank_overlap_ns,
        "copy_ns": output.rank_copy_ns,
        "exposed_copy_ns": output.rank_exposed_copy_ns,
    }
    if output.folded:
        ranks["representative"] = output.rank_representative
    if experiment.system.roofline_enabled:
        # Shares of the time of the compute nodes (ASTRA-sim prints percentages), and operations a byte.
        for name in ("compute_bound", "compute_utilization", "memory_utilization", "operation_intensity"):
            ranks[name] = getattr(output, f"rank_{name}")
    result = Result(
        backend=experiment.backend,
        makespan_ns=int(output.makespan_ns),
        ranks=ranks,
        provenance=run_provenance(experiment, output),
    )
    return _with_tables(result, experiment, output) if experiment.detail is Detail.EVERYTHING else result


def _with_tables(result: Result, experiment: Experiment, output: Any) -> Result:
    """Return *result* with what the engine recorded.

    Where ranks that behave alike would be more rows than a reader can use, or the workload has one of each
    kind of rank only, only the simulated ranks have nodes and collectives.
    """
    alone = experiment.workload.representative_of_rank is not None
    of_all = output.folded and not alone and int(output.nodes_executed) <= _MOST_NODE_ROWS
    links = {
        name: getattr(output, f"link_{name}")
        for name in ("src", "dst", "bytes", "busy_ns", "queue_ns", "messages")
    }
    link_use = typed(output.fabric.stretches, COLUMNS["link_use"])
    told = result.with_columns(
        collectives=arranged_calls(output.collectives(of_all)), links=links, link_use=link_use
    )
    recorded = RecordedNodes(output)
    if of_all:
        return told.with_columns(nodes=_nodes_of_all(output, recorded))
    # The columns of few nodes are made at once: then the engine's records may go.
    is_small = sum(recorded.rows) < MANY_NODES
    return told.with_columns(nodes=recorded.read() if is_small else Table(recorded))


def run_provenance(experiment: Experiment, output: Any) -> dict[str, Any]:
    """Return what a result says of where it comes from; *output* has the engine's counts."""
    warnings = [
        *experiment.system.warnings,
        *_short_lists(experiment),
        *_overtaking(output),
        *_replayed(output),
        *_evened(output),
    ]
    skipped = int(output.nodes_total) - int(output.nodes_executed)
    if skipped:
        warnings.append(
            f"{skipped} of {output.nodes_total} nodes were never executed: they wait in a dependency cycle."
        )
    return experiment.describe() | {
        "network_name": experiment.network.name,
        "system_name": experiment.system.name,
        "experiment_hash": experiment.content_hash,
        "workload_hash": experiment.workload.content_hash,
        "versions": {"chakrascope": _version()},
        "ignored_keys": ignored_keys(experiment),
        "warnings": warnings,
        "assumptions": [
            *experiment.network.remarks,
            *experiment.assumptions,
            *experiment.programs.remarks,
            *_program_remarks(experiment),
        ],
        "nodes_total": int(output.nodes_total),
        "nodes_executed": int(output.nodes_executed),
        "events": int(output.events),
        "overtaking": int(output.overtaking),
        "overtaken": int(output.overtaken),
        "folded": bool(output.folded),
        "ranks_simulated": len(np.unique(output.rank_representative)),
        "finish_order": output.finish_order.tolist(),
    }


def _program_remarks(experiment: Experiment) -> list[str]:
    """Return a sentence if the network lets the messages of a program have more than there is."""
    if not experiment.programs.programs:
        return []
    remarks = {remark for lowered in experiment.program_messages.values() for remark in lowered.remarks}
    if experiment.backend == "analytical-unaware":
        remarks.add(
            "This network gives every message a link of its own: a program that sends several at a time "
            "looks faster than it is. 'analytical-aware', 'flow' and 'packet' share the links."
        )
    return sorted(remarks)


def _overtaking(output: Any) -> list[str]:
    """Return a sentence if operations had to pass others, so that the ranks did not wait for each other."""
    if not output.overtaking:
        return []
    lanes = " and the lanes of the ranks" if output.overtaking > 1 else ""
    return [
        f"In the order of the queues{lanes} the ranks would wait for each other for ever, where the job did "
        f"not: {output.overtaken} chunks or operations passed others that wait for a peer "
        "(each process group makes progress by itself, as a communicator does)."
    ]


def _replayed(output: Any) -> list[str]:
    """Return a sentence if collectives sent no messages, as ASTRA-sim's broadcasts do not."""
    if not output.replayed:
        return []
    return [
        "Broadcasts send no messages: as in ASTRA-sim, which has no algorithm for them, each takes the time "
        "that its node records, and 1 ns if it records none. In 'trace' semantics (run --semantics trace) "
        "they are simulated."
    ]


def _evened(output: Any) -> list[str]:
    """Return a sentence if collectives lost their unequal amounts."""
    if not output.evened:
        return []
    return [
        "The workload lists unequal amounts for the members of some collectives "
        f"({output.evened} on a rank at most), and semantics 'astra-sim' have one size for all: they ran as "
        "even ones. With semantics 'trace' each pair of ranks exchanges its own bytes."
    ]


def _short_lists(experiment: Experiment) -> list[str]:
    """Return a sentence for each algorithm list that leaves out dimensions: its collective shrinks."""
    sentences = []
    for name in _LISTS:
        value = getattr(experiment.system, f"{name}_implementation")
        short = value is not None and 0 < len(value) < experiment.network.dimensions
        if short and not value[-1].startswith(engine.WHOLE_ALGORITHMS):
            sentences.append(
                f"'{name.replace('_', '-')}-implementation' names {len(value)} of "
                f"{experiment.network.dimensions} dimensions: the collective runs only inside these."
            )
    return sentences


@lru_cache
def _version() -> str:
    try:
        return version("chakrascope")
    except PackageNotFoundError:
        return "unknown (not installed)"
