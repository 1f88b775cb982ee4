"""Check a configuration before it runs, and estimate how long its simulation takes.

Checks find errors that would prevent the run, and warnings. For collective algorithms, the engine
plans every collective of the workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from ...converter import CollectiveType, Finding, Workload
from ...converter.building import is_captured, stand_in_assumption
from ...converter.chakra import saved_columns
from ...converter.checks import worst_first
from ...errors import ChakrascopeError, ConfigError, WorkloadError
from ...support import bandwidth_text, load_json
from .. import engine
from .._experiment import Experiment, WorkloadSource
from .._simulate import choose_groups, load_source, load_workload_head
from .._traits import about_backend
from ..backends import compile_scenario, refuse_linkless
from ..config import NetworkConfig, SystemConfig, fabric_of, program_files, read_per_node
from ..programs import Demand, choose_programs
from ._foreign_times import cpu_times, has_cpu_times


@dataclass(frozen=True, eq=False)
class Communication:
    """A workload's communication: its programs, its *groups* of ranks, and whether it was *captured*.

    A workload that *repeats* is repeated on a larger network and never cut; files of other programs
    are cut. *on_cpu* means that compute times were measured on CPUs. *stand_ins* describes ranks
    that represent others.
    """

    source: WorkloadSource
    groups: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    captured: bool = True
    repeats: bool = True
    on_cpu: bool = False
    stand_ins: str = ""
    _known: dict[tuple[frozenset[int], frozenset[int]], list[engine.Collective]] = field(
        default_factory=dict, repr=False
    )
    _repeated: dict[int, Communication] = field(default_factory=dict, repr=False)

    @property
    def num_ranks(self) -> int:
        """The number of ranks of the workload."""
        return self.source.num_ranks

    def collectives(self, num_ranks: int, apart: frozenset[int] = frozenset()) -> list[engine.Collective]:
        """Return the distinct collectives of the first *num_ranks* ranks; nodes in *apart* stay separate."""
        used = frozenset(self.source.program_of_rank[:num_ranks].tolist())
        if (used, apart) not in self._known:
            programs = [self.source.programs[number] for number in sorted(used)]
            self._known[used, apart] = engine.collectives(programs, apart)
        return self._known[used, apart]

    def on(self, num_ranks: int) -> Communication:
        """Return this communication in a simulation of *num_ranks* ranks.

        In a repeated workload, the first repetition represents all repetitions, but groups may span all
        repetitions. Raises `WorkloadError` for a workload that cannot be repeated.
        """
        if num_ranks <= self.num_ranks or not self.repeats or num_ranks % self.num_ranks:
            return self
        if num_ranks not in self._repeated:
            model = replace(self.source.model, groups=dict(self.groups))
            first = model.scale_out(num_ranks, first_only=True)
            self._repeated[num_ranks] = Communication(
                WorkloadSource.of_model(first), first.groups, self.captured
            )
        return self._repeated[num_ranks]


def communication_of(workload: Workload | str | Path) -> Communication:
    """Return the communication of *workload*, a model or the PREFIX of files.

    Recent results are cached until the files change. Raises `WorkloadError` if the workload cannot
    be read.
    """
    if isinstance(workload, Workload):
        source = WorkloadSource.of_model(workload)
        return Communication(
            source,
            choose_groups(None, source),
            is_captured(workload.metadata),
            on_cpu=has_cpu_times(workload),
            stand_ins=stand_in_assumption(workload.metadata),
        )
    prefix = Path(workload)
    files = [prefix.parent / f"{prefix.name}.{end}" for end in ("workload.json", "groups.json", "0.et")]
    return _communication(prefix, tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files))


@lru_cache(16)
def _communication(prefix: Path, _changed: tuple[int, ...]) -> Communication:
    num_ranks, captured = load_workload_head(prefix)
    source, _ = load_source(prefix, num_ranks)
    origin = Workload.load(prefix) if captured else None
    return Communication(
        source,
        choose_groups(None, source),
        captured,
        repeats=captured,
        on_cpu=origin is not None and has_cpu_times(origin),
        stand_ins="" if origin is None else stand_in_assumption(origin.metadata),
    )


def check_setup(
    network: NetworkConfig, system: SystemConfig, workload: Communication, backends: Sequence[str]
) -> list[Finding]:
    """Check whether *backends* can simulate *workload*; return errors first, then warnings."""
    findings = [_ranks(network, workload), *_bandwidths(network), *_linkless(network, backends)]
    findings += _buffers(network, backends)
    if not backends:
        findings.append(
            Finding("error", "backends", "No backend is selected.", "Select at least one backend.")
        )
    plans = not backends or any(about_backend(name).network for name in backends)
    if plans and findings[0].severity != "error":
        findings += _refusals(network, system, workload)
        findings += _origin(network, system, workload)
    return worst_first(findings)


def _ranks(network: NetworkConfig, workload: Communication) -> Finding:
    ranks, known = network.num_ranks, workload.num_ranks
    sizes = f"The sizes multiply to {ranks:,} rank{'s' if ranks > 1 else ''}"
    if ranks == known:
        return Finding("note", "network", f"{sizes}, which is the number of ranks of the workload.")
    if not workload.repeats and ranks < known:
        cause = f"{sizes}, but the workload has {known:,} ranks: only the first {ranks:,} are simulated."
        return Finding(
            "warning", "network", cause, f"Choose sizes with the product {known:,} to simulate all ranks."
        )
    if workload.repeats and ranks % known == 0:
        try:
            workload.on(ranks)
        except WorkloadError as error:
            return Finding("error", "workload", f"{sizes}. {error.message}")
        cause = (
            f"{sizes}: the {known:,} ranks of the workload are repeated {ranks // known:,} times, as in "
            "data parallelism, each with its own batch."
        )
        return Finding("note", "network", cause)
    remedy = f"Choose sizes with the product {'a multiple of ' if workload.repeats else ''}{known:,}."
    return Finding("error", "network", f"{sizes}, but the workload has {known:,} ranks.", remedy)


def _origin(network: NetworkConfig, system: SystemConfig, workload: Communication) -> Iterator[Finding]:
    """Yield warnings about programs captured on another machine or only on some ranks."""
    times = cpu_times(network.to_dict(), system.to_dict()) if workload.on_cpu else None
    if times is not None:
        yield times
    if workload.stand_ins:
        cause = f"{workload.stand_ins[0].upper()}{workload.stand_ins[1:]}."
        yield Finding("warning", "workload", cause, "Convert the traces of all ranks.")


def _refusals(network: NetworkConfig, system: SystemConfig, workload: Communication) -> Iterator[Finding]:
    """Yield an error per type and size of collective that the engine refuses, with the first reason."""
    ranks = network.num_ranks
    workload = workload.on(ranks)
    groups = dict(workload.groups)
    try:
        experiment = Experiment(
            workload=WorkloadSource((), np.zeros(ranks, dtype=np.int32)),
            system=system,
            network=network,
            groups=groups,
            semantics="trace" if workload.captured else "astra-sim",
        )
        special = {} if system.per_node_custom_implementation is None else read_per_node(system)
        asked = workload.collectives(ranks, frozenset(special))
        answers = engine.refusals(compile_scenario(experiment).config, asked)
    except ChakrascopeError as error:
        yield Finding("error", "configuration", error.message)
        return
    yield from _misfits(system, groups, ranks, asked)
    refused: dict[tuple[int, int], list[tuple[engine.Collective, str]]] = {}
    for collective, answer in zip(asked, answers, strict=True):
        size = len(groups.get(collective.group, ())) or ranks
        lacks = f"Node {collective.node_id} takes part only in dimensions that the network lacks."
        reason = answer if collective.spans(network.npus_count) else lacks
        if reason:
            refused.setdefault((collective.comm_type, size), []).append((collective, reason))
    for (comm_type, size), those in refused.items():
        yield Finding("error", _place(comm_type, size, [each.group for each, _ in those]), those[0][1])


def _misfits(
    system: SystemConfig, groups: Mapping[int, Sequence[int]], ranks: int, asked: Sequence[engine.Collective]
) -> Iterator[Finding]:
    """Yield errors for collectives that fit no program of *system*, and for invalid programs."""
    demands = [
        Demand.of(each.comm_type, len(groups.get(each.group, ())) or ranks, each.size_bytes) for each in asked
    ]
    try:
        choose_programs(program_files(system), [demand for demand in demands if demand is not None])
    except ConfigError as error:
        yield Finding("error", "programs", error.message)


def _place(comm_type: int, size: int, groups: Sequence[int]) -> str:
    name = f"{CollectiveType(comm_type).name.lower()} of {size:,} ranks"
    named = [str(group) for group in dict.fromkeys(groups) if group]
    if not named:
        return name
    more = f" and {len(named) - 1:,} more" if len(named) > 1 else ""
    return f"{name} (group {named[0]}{more})"


def _buffers(network: NetworkConfig, backends: Sequence[str]) -> Iterator[Finding]:
    if not any(about_backend(name).buffers for name in backends):
        return
    try:
        fabric_of(network).check_packets()
    except ConfigError as error:
        yield Finding("error", "network", error.message)


def _linkless(network: NetworkConfig, backends: Sequence[str]) -> Iterator[Finding]:
    """Yield why backends that support only dimensions refuse the *network*."""
    for backend in backends:
        if about_backend(backend).dimensions_only:
            try:
                refuse_linkless(network, backend)
            except ConfigError as error:
                yield Finding("error", "network", error.message)


def _bandwidths(network: NetworkConfig) -> Iterator[Finding]:
    if network.logical:
        return
    rates = network.bandwidth_bytes_per_ns
    for number, rate in enumerate(rates, start=1):
        both = f"{bandwidth_text(rate)} = {bandwidth_text(rate, 'Gb/s')}"
        cause = f"{both} per link and direction."
        yield Finding("note", f"dimension {number}", cause)
    if rates[-1] > rates[0]:
        cause = (
            "The last dimension is faster than the first; usually the first dimension is inside a host and "
            "the fastest."
        )
        yield Finding("warning", "network", cause)


# Times measured on a busy 2-core machine: to start a process, to read a node, per event of the
# engine, per row of its result, and per packet and link in ns-3.
_START_S = 2.0
_NODE_S = 8e-7
_EVENT_S = 1 / 5e6
_ROW_S = 1e-6
_PACKET_S = 4e-6
_PACKET_BYTES = 1000
_SEGMENT_S = 2.5e-5  # time per TCP segment in ns-3
_SEGMENT_BYTES = 1448
_EVENTS_A_MESSAGE = 2.5
# From this many ranks, the engine computes contention-free phases as a whole, in 10 events each.
_WORKED_OUT_RANKS = 64
_EVENTS_A_PHASE = 10
_NAMES = tuple(dict.fromkeys(kind.key for kind in CollectiveType if kind.ring_passes))
_TREE = "doubleBinaryTree"


@dataclass(frozen=True)
class Load:
    """The size of a simulation: *nodes* nodes in *programs* distinct programs, on *ranks* ranks.

    *collectives* has each collective's name, number of calls and total bytes, averaged over
    programs.
    """

    ranks: int
    programs: int
    nodes: int
    collectives: tuple[tuple[str, float, float], ...]


def load_of(prefix: Path) -> Load:
    """Return the load of the workload at *prefix*, cached for recent requests."""
    stat = (prefix.parent / f"{prefix.name}.workload.json").stat()
    return _load(prefix, stat.st_mtime_ns)


@lru_cache(16)
def _load(prefix: Path, _changed: int) -> Load:
    parts, ranks = _nodes_of(prefix)
    programs: set[int] = set()
    nodes = 0
    calls: dict[int, tuple[int, float]] = {}
    for part in parts:
        nodes += len(part["rank"])
        programs.update(np.unique(part["rank"]).tolist())
        sent = np.flatnonzero(part["comm_type"] >= 0)
        kinds, sizes = part["comm_type"][sent], np.maximum(part["comm_size_bytes"][sent], 0)
        for kind in np.unique(kinds).tolist():
            count, size = calls.get(kind, (0, 0.0))
            own = sizes[kinds == kind]
            calls[kind] = count + len(own), size + float(own.sum(dtype=np.float64))
    divided = max(1, len(programs))
    totals: dict[str, tuple[float, float]] = {}
    for kind, (count, size) in calls.items():
        collective = CollectiveType.of(kind)
        name = collective.key if collective is not None and collective.ring_passes else "all-reduce"
        before = totals.get(name, (0.0, 0.0))
        totals[name] = before[0] + count / divided, before[1] + size / divided
    collectives = tuple((name, *totals[name]) for name in _NAMES if name in totals)
    return Load(ranks, divided, nodes, collectives)


def _nodes_of(prefix: Path) -> tuple[Iterator[dict[str, Any]], int]:
    """Yield the traffic of all programs, from saved tables if any, and return the number of ranks."""
    columns = ["comm_type", "comm_size_bytes"]
    saved = saved_columns(prefix, columns)
    head = prefix.parent / f"{prefix.name}.workload.json"
    if saved is not None:
        with suppress(OSError, ValueError, KeyError, TypeError):
            return saved, int(load_json(head)["num_ranks"])
    workload = Workload.load(prefix)
    parts = (
        {"rank": np.full(graph.num_nodes, number), **{name: graph.node_columns[name] for name in columns}}
        for number, graph in enumerate(workload.graphs)
    )
    return parts, workload.num_ranks


def estimate_s(network: NetworkConfig, system: SystemConfig, load: Load, backend: str) -> float:
    """Estimate how many seconds *backend* takes, including process start and saving.

    The order of magnitude is right if collectives span all ranks; for smaller groups, it is an
    upper bound.
    """
    traits = about_backend(backend)
    ranks = load.ranks if traits.replays else network.num_ranks
    nodes = load.nodes / load.programs * ranks
    # Ranks that behave alike are simulated once, unless they compete for links or use tree algorithms.
    trees = any(_TREE in _algorithms(network, system, name) for name in _NAMES)
    simulated = ranks if not traits.folds or trees else min(ranks, load.programs)
    carried = () if traits.replays else load.collectives
    whole = simulated == ranks and not sends_one_by_one(network, system, load, backend)
    messages = sum(_messages(network, system, name, count, whole=whole) for name, count, _ in carried)
    events = simulated * (2 * nodes / ranks + messages)
    read_s = _START_S + _NODE_S * load.nodes + _ROW_S * nodes
    return read_s + _EVENT_S * events + _packets_s(network, load, backend)


def sends_one_by_one(network: NetworkConfig, system: SystemConfig, load: Load, backend: str) -> str:
    """Return why each message of all ranks must be simulated; "" if phases are computed as a whole.

    Even then, the engine may have to simulate messages if the order within one nanosecond is
    ambiguous.
    """
    if not about_backend(backend).folds:
        return f"messages of '{backend}' share links"
    if network.num_ranks < _WORKED_OUT_RANKS:
        return f"there are fewer than {_WORKED_OUT_RANKS}"
    for name, _count, _size in load.collectives:
        algorithms = _algorithms(network, system, name)
        for size, algorithm in zip(network.npus_count, algorithms, strict=True):
            halves = "alving" in algorithm and size & (size - 1) == 0
            if not halves and algorithm not in {"ring", "oneRing"}:
                return f"{name} is '{algorithm}', which is simulated message by message, unlike a ring"
    return ""


def _algorithms(network: NetworkConfig, system: SystemConfig, collective: str) -> list[str]:
    """Return the algorithm of a *collective* on each dimension; rings by default."""
    named = system.to_dict().get(f"{collective}-implementation", [])
    return [*named, *["ring"] * network.dimensions][: network.dimensions]


def _messages(
    network: NetworkConfig, system: SystemConfig, collective: str, count: float, *, whole: bool
) -> float:
    """Return the number of events per rank for *count* calls of a *collective*.

    With *whole*, each phase is computed at once, however many messages it has.
    """
    chunks = float(system.preferred_dataset_splits or 1)
    phases = 2 if collective == "all-reduce" else 1
    events = 0.0
    algorithms = _algorithms(network, system, collective)
    if whole:
        return count * chunks * phases * network.dimensions * _EVENTS_A_PHASE
    for size, topology, algorithm in zip(network.npus_count, network.topology, algorithms, strict=True):
        steps = math.log2(size) if "alving" in algorithm or algorithm == _TREE else size - 1
        events += phases * steps * _EVENTS_A_MESSAGE * (1 + _hops(topology))
    return count * chunks * events


def _hops(topology: str) -> int:
    return 2 if topology == "Switch" else 1


def _packets_s(network: NetworkConfig, load: Load, backend: str) -> float:
    """Return the seconds to simulate every packet on every link; 0 for backends without packets."""
    # The time that `auto` saves by not simulating packets is only known after the run.
    traits = about_backend(backend)
    if not traits.packets:
        return 0.0
    tcp = traits.tcp and network.is_tcp
    packet_s, packet_bytes = (_SEGMENT_S, _SEGMENT_BYTES) if tcp else (_PACKET_S, _PACKET_BYTES)
    crossings = 0.0
    for name, _count, size in load.collectives:
        share = size
        for extent, topology in zip(network.npus_count, network.topology, strict=True):
            moved = (2 if name == "all-reduce" else 1) * share * (extent - 1) / extent
            crossings += moved / packet_bytes * _hops(topology)
            share /= extent
    return packet_s * crossings * network.num_ranks


def duration_estimate(seconds: Sequence[float]) -> str:
    """Return the total duration of consecutive jobs of *seconds*, as text."""
    total = sum(seconds)
    for scale, unit in ((3600, "h"), (60, "min")):
        if total >= 2 * scale:
            return f"about {total / scale:.0f} {unit}"
    return f"about {max(1, round(total))} s"
