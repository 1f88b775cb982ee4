"""Check a configuration before it runs: errors that would prevent the run, and warnings.

For collective algorithms, the engine plans every collective of the workload.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from ...converter import CollectiveType, Finding, Workload
from ...converter.building import is_captured, stand_in_assumption
from ...converter.checks import worst_first
from ...errors import ChakrascopeError, ConfigError, WorkloadError
from ...support import bandwidth_text
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

    A workload that *repeats* is repeated on a larger network, and never truncated. Files of other programs
    are truncated to the network. *on_cpu* means that compute times were measured on CPUs. *stand_ins*
    describes ranks that represent others.
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
        """Return the distinct collectives of the first *num_ranks* ranks; nodes in *apart* are distinct."""
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
        return _communication(source, workload, captured=is_captured(workload.metadata), repeats=True)
    prefix = Path(workload)
    files = [prefix.parent / f"{prefix.name}.{end}" for end in ("workload.json", "groups.json", "0.et")]
    return _of_files(prefix, tuple(file.stat().st_mtime_ns if file.exists() else 0 for file in files))


@lru_cache(16)
def _of_files(prefix: Path, _changed: tuple[int, ...]) -> Communication:
    num_ranks, captured = load_workload_head(prefix)
    source, _ = load_source(prefix, num_ranks)
    origin = Workload.load(prefix) if captured else None
    return _communication(source, origin, captured=captured, repeats=captured)


def _communication(
    source: WorkloadSource, origin: Workload | None, *, captured: bool, repeats: bool
) -> Communication:
    return Communication(
        source,
        choose_groups(None, source),
        captured,
        repeats,
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
