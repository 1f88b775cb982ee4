"""The backend of Chakrascope's own engine: compiles an experiment to the engine's input and runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter import encode_graph
from ...errors import BackendError, BackendTimeout, ConfigError, SimulationStalled
from .. import engine
from .._experiment import Detail, Experiment
from .._memory import check_simulation, within_memory
from .._result import Result
from .._traits import AWARE, REPLAY, about_backend, backends_that
from ..config import NetworkConfig, read_per_node
from ..engine import NetworkModel
from ..programs import graphs_of
from ._base import Progress
from ._outcome import result_of
from ._process import backend_timeout_s


@dataclass(frozen=True, eq=False)
class Scenario:
    """The engine's input: the distinct *programs*, the index of each rank's program, and the *config*."""

    programs: tuple[bytes | str, ...]
    program_of_rank: npt.NDArray[np.int32]
    config: engine.Config


def compile_scenario(experiment: Experiment, network: NetworkModel = NetworkModel.UNAWARE) -> Scenario:
    """Compile *experiment* to the engine's input, for the network model *network*.

    Raises `ConfigError` for an invalid experiment.
    """
    source = experiment.workload
    _refuse_missing_dimensions(experiment)
    config = _configured(experiment)
    config.network_model = network
    if network is not NetworkModel.UNAWARE:
        _set_fabric(config, experiment)
    config.record_nodes = config.record_links = experiment.detail is Detail.EVERYTHING
    if source.representative_of_rank is not None:
        config.representative_of_rank = source.representative_of_rank.tolist()
    return Scenario(source.programs, source.program_of_rank, config)


def _refuse_missing_dimensions(experiment: Experiment) -> None:
    """Raise `ConfigError` for a collective without a dimension of the network, which would take no time."""
    network = experiment.network
    if about_backend(experiment.backend).replays:
        return
    for rank, each in experiment.workload.flagged_collectives:
        if not each.spans(network.npus_count):
            raise ConfigError(
                f"Rank {rank}: node {each.node_id} takes part only in dimensions that the network "
                f"'{network.name}' lacks (involved_dim), so ASTRA-sim never completes it. Next: choose a "
                "network with these dimensions, or correct the workload."
            )


def _configured(experiment: Experiment) -> engine.Config:
    """Return the engine's configuration for *experiment*; absent keys take ASTRA-sim's defaults."""
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
        # The injection scale applies only to an explicit endpoint delay, not to the default of 10
        # ns.
        config.endpoint_delay = int(system.endpoint_delay * experiment.injection_scale)
    # The engine needs a UTF-8 path. If the folder's name is not UTF-8, the engine finds no custom
    # algorithms, and reports this.
    config.custom_base = str(system.folder).encode(errors="replace").decode()
    if system.per_node_custom_implementation is not None:
        config.per_node_custom_implementation = read_per_node(system)
    config.groups = {int(group): list(members) for group, members in experiment.groups.items()}
    # ASTRA-sim replays broadcasts and refuses other rooted collectives; captured jobs need both
    # simulated.
    config.native_collectives = experiment.semantics == "trace"
    _set_efficiency(config, experiment)
    if experiment.gpu_machine is None:
        _set_programs(config, experiment)
    return config


def _set_efficiency(config: engine.Config, experiment: Experiment) -> None:
    """Set the wire efficiency and overheads of the collective library.

    Measured durations already include every overhead, and a packet-level model adds the packet
    headers itself.
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
    """Set the network's links. The congestion-aware model builds the links of dimensions itself."""
    if config.network_model is NetworkModel.AWARE and not experiment.network.has_links:
        return
    if config.network_model is NetworkModel.PACKET:
        experiment.fabric.check_packets()
    config.set_fabric(experiment.fabric)


def _set_programs(config: engine.Config, experiment: Experiment) -> None:
    """Set the messages of each collective that has a collective program."""
    speed = experiment.system.local_mem_bw or 0.0  # 10^9 bytes per second are 1 byte per ns
    for demand, lowered in experiment.program_messages.items():
        what = f"{demand.collective} of {demand.size_bytes} bytes among {demand.ranks} ranks"
        name = f"{lowered.program.name}, {what}"
        graphs = [encode_graph(graph) for graph in graphs_of(lowered, speed)]
        config.add_program(demand.collective, demand.ranks, demand.size_bytes, name, graphs)


_SHOWN = 4
_SHOWN_OF_CYCLE = 8


def stall_error(
    unfinished: Sequence[Mapping[str, Any]],
    num_ranks: int,
    deadlock: Sequence[Mapping[str, Any]] = (),
    remedies: Sequence[str] = (),
) -> SimulationStalled:
    """Return the error for a simulation that stalled with *unfinished* operations among *num_ranks* ranks.

    *deadlock* is the cycle of waits that the engine found, if any. *remedies* are changes to the
    experiment with which it completes.
    """
    waits = [_facts(item, waits_for=str(item["waits_for"])) for item in unfinished]
    cycle = [_facts(item, begun=bool(item["begun"])) for item in deadlock]
    ranks = {wait["rank"] for wait in waits}
    return SimulationStalled(
        f"The simulation stalled: {len(ranks)} of {num_ranks} ranks never finish, because they wait for each "
        f"other and no event is left. {_who_waits(waits, cycle)} {_advice(cycle, remedies)}",
        waits,
        cycle,
    )


def _facts(item: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    place = {"rank": int(item["rank"]), "node_id": int(item["node_id"])}
    return place | {"node_name": str(item["name"]), "operation": str(item["operation"])} | more


def _who_waits(waits: Sequence[Mapping[str, Any]], cycle: Sequence[Mapping[str, Any]]) -> str:
    if cycle:
        steps = [_step(item) for item in cycle[:_SHOWN_OF_CYCLE]]
        more = len(cycle) - len(steps)
        steps += [f"{more} more"] if more else []
        return f"The deadlock: {', which waits for '.join([*steps, _step(cycle[0])])}."
    shown = "; ".join(_sentence(wait) for wait in waits[:_SHOWN])
    return f"{shown}; and {len(waits) - _SHOWN} more." if len(waits) > _SHOWN else f"{shown}."


def _advice(cycle: Sequence[Mapping[str, Any]], remedies: Sequence[str]) -> str:
    if remedies:
        return f"The program can complete with {', or with '.join(remedies)}."
    if cycle:
        return (
            "No order of events completes this program. Next: make these ranks issue these operations in the "
            "same order."
        )
    return (
        "Check that every send has a receive of the same size and tag, "
        "and that all members of a group issue its collectives in the same order."
    )


def _step(item: Mapping[str, Any]) -> str:
    state = "" if item["begun"] else ", not begun"
    return f"rank {item['rank']}'s {item['operation']} '{item['node_name']}' (node {item['node_id']}{state})"


def _sentence(wait: Mapping[str, Any]) -> str:
    return (
        f"rank {wait['rank']} is in {wait['operation']} '{wait['node_name']}' (node {wait['node_id']}) "
        f"and waits for {wait['waits_for']}"
    )


MAX_OVERTAKING = int(engine.FIELDS["overtaking"].largest)
ExternalNetwork = Callable[[list[tuple[int, int, int, int, int]], int], list[tuple[int, int]]]
"""A network outside the engine: called with messages (id, source, destination, bytes, ns) and a time
limit in ns (-1: none). It simulates until the first arrival or the limit, and returns every arrival
of that instant (id, ns).
"""


@dataclass(frozen=True)
class Run:
    """A finished simulation: the *experiment*, the engine's *output*, and *rerun* to repeat it.

    *rerun* takes engine settings to change, and records no tables.
    """

    experiment: Experiment
    output: Any
    rerun: Callable[..., Any]


@dataclass(frozen=True)
class Model:
    """A network model of the engine, with hooks that configure the engine and complete its result.

    A *limited* model is stopped after ``CHAKRASCOPE_BACKEND_TIMEOUT`` seconds, like an external
    program.
    """

    network: NetworkModel = NetworkModel.UNAWARE
    configure: Callable[[engine.Config, Experiment], None] = lambda _config, _experiment: None
    complete: Callable[[Result, Run], Result] = lambda result, _run: result
    limited: bool = False


class EngineBackend:
    """Simulates with *model*, for at most *timeout_s* seconds if the model is limited."""

    def __init__(self, model: Model | None = None, timeout_s: float | None = None) -> None:
        self.model = model or Model()
        self.timeout_s = timeout_s

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Simulate *experiment*; raises `SimulationStalled` if ranks wait for each other forever.

        Raises `ConfigError` for a network that the model cannot simulate, and `BackendTimeout`
        after the time limit.
        """
        if self.model.limited:
            limit_s = backend_timeout_s() if self.timeout_s is None else self.timeout_s
            progress = _within_time(progress, limit_s)
        return self.simulate(experiment, progress)

    def simulate(
        self,
        experiment: Experiment,
        progress: Progress | None,
        network: ExternalNetwork | None = None,
        overtaking: int = 0,
    ) -> Result:
        """Simulate *experiment*, on *network* instead of the model's own network if one is given.

        *overtaking* (0 to `MAX_OVERTAKING`) is the degree to which operations may overtake operations that
        wait for a peer. If a captured job would stall, the engine raises it by itself. With a *network*, the
        caller must raise it, because the network has to restart.
        """
        with within_memory(experiment.workload.num_ranks):
            scenario = self.scenario(experiment, overtaking=overtaking)
            if network is not None:
                scenario.config.external_network = network
            once = self.model.network is not NetworkModel.AWARE and network is None
            check_simulation(experiment.workload, alike_once=once)
            output = self._simulated(scenario, experiment, progress)
            result = result_of(experiment, output)

            def rerun(**settings: Any) -> Any:
                def finished(_now: int, _done: int) -> bool:
                    return progress is None or progress(result.makespan_ns, experiment.workload.num_ranks)

                return self._attempt(experiment, finished, settings)

            return self.model.complete(result, Run(experiment, output, rerun))

    def rehearse(self, experiment: Experiment) -> int:
        """Return the degree of overtaking that *experiment* needs to complete; raises `SimulationStalled`."""
        with within_memory(experiment.workload.num_ranks):
            scenario = self.scenario(experiment, record_nodes=False, record_links=False)
            return int(self._simulated(scenario, experiment, None).overtaking)

    def scenario(self, experiment: Experiment, **settings: Any) -> Scenario:
        """Return the engine's input for *experiment*, with *settings* of the engine overridden."""
        scenario = compile_scenario(experiment, self.model.network)
        self.model.configure(scenario.config, experiment)
        for name, value in settings.items():
            setattr(scenario.config, name, value)
        return scenario

    def _simulated(self, scenario: Scenario, experiment: Experiment, progress: Progress | None) -> Any:
        """Return the engine's output; raises `SimulationStalled`, or `BackendError` if no node ran."""
        output = _simulate(scenario, progress)
        if output.unfinished:
            remedies = self._remedies(experiment, progress)
            raise stall_error(output.unfinished, experiment.workload.num_ranks, output.deadlock, remedies)
        if output.nodes_executed == 0:
            raise BackendError("The simulation executed no node. Next: check that the workload is not empty.")
        return output

    def _attempt(self, experiment: Experiment, progress: Progress | None, settings: dict[str, Any]) -> Any:
        """Simulate *experiment* with *settings* of the engine overridden, and without tables."""
        settings |= {"record_nodes": False, "record_links": False}
        return _simulate(self.scenario(experiment, **settings), progress)

    def _remedies(self, experiment: Experiment, progress: Progress | None) -> list[str]:
        """Return the changes with which the stalled *experiment* completes; each change has been tried."""
        if experiment.semantics == "trace":  # the engine has already tried every degree of overtaking
            return []
        chunks = (experiment.system.preferred_dataset_splits or 1) * experiment.num_queues_per_dim
        changes: dict[str, dict[str, Any]] = {
            f"'active-chunks-per-dimension' {chunks} in the system file": {
                "active_chunks_per_dimension": chunks
            },
            'semantics="trace"': {"semantics": "trace", "native_collectives": True},
        }
        return [
            words
            for words, settings in changes.items()
            if not self._attempt(experiment, progress, settings).unfinished
        ]


def _simulate(scenario: Scenario, progress: Progress | None) -> Any:
    return engine.simulate(scenario.config, list(scenario.programs), scenario.program_of_rank, progress)


def _within_time(progress: Progress | None, timeout_s: float) -> Progress:
    """Wrap *progress* so that it raises `BackendTimeout` after *timeout_s* seconds."""
    deadline = time.monotonic() + timeout_s

    def asked(now_ns: int, finished: int) -> bool:
        if time.monotonic() > deadline:
            raise BackendTimeout(
                f"The packet-level simulation did not finish within {timeout_s:g} s; allow more time with "
                "CHAKRASCOPE_BACKEND_TIMEOUT, or simulate smaller messages or fewer ranks."
            )
        return progress is None or progress(now_ns, finished)

    return asked


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
    """Raise `ConfigError` if *backend*, which only models dimensions, would ignore part of *network*.

    Such a backend ignores failures, and the links of a network whose dimensions only number the ranks.
    """
    if network.failures:
        raise ConfigError(
            f"The network '{network.name}' has link failures, but '{backend}' does not model links; use "
            f"{backends_that('links')}, or leave 'failures' out."
        )
    if network.logical:
        raise ConfigError(
            f"'{backend}' models dimensions, but the links of the network '{network.name}' do not form "
            f"regular dimensions (see the assumptions of the network). Next: use {backends_that('links')}, "
            "which model links, or give 'topology', 'npus_count', 'bandwidth' and 'latency' in a network "
            "YAML."
        )
