"""Simulate a workload on a cluster, with each input given as a path, a preset's name, or a model."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

from ..converter import Workload
from ..converter.building import has_lanes, is_captured, measured_world_size
from ..converter.chakra import check_attributes
from ..errors import ConfigError, WorkloadError
from ..support import load_json
from ._experiment import Experiment, WorkloadSource
from ._result import Result
from ._traits import DEFAULT_BACKEND, REPLAY, about_backend
from .backends import Progress, get_backend
from .config import (
    MemoryConfig,
    NetworkConfig,
    SystemConfig,
    is_preset,
    load_groups,
    with_absolute_algorithms,
    with_algorithms,
)
from .study import refuse_damaged_workload


def simulate(  # noqa: PLR0917 - the order of ASTRA-sim's files
    workload: Workload | str | Path,
    system: SystemConfig | str | Path,
    network: NetworkConfig | str | Path | None,
    memory: MemoryConfig | str | Path | None = None,
    groups: Mapping[int, tuple[int, ...]] | str | Path | None = None,
    backend: str = DEFAULT_BACKEND,
    *,
    num_queues_per_dim: int = 1,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
    semantics: str | None = None,
    algorithms: Mapping[str, Sequence[str]] | None = None,
    progress: Progress | None = None,
) -> Result:
    """Simulate *workload* on the cluster and return its result, in integer nanoseconds.

    *workload* is a model or the ``PREFIX`` of ``PREFIX.<rank>.et``. The configurations are models, paths of
    ASTRA-sim's files, or names of presets. A captured workload with fewer ranks than the network is scaled
    out data-parallel. *algorithms* are programs (MSCCL XML, MSCCL++ plans) or built-in algorithms by
    collective, such as ``{"all-reduce": ["plan.json"]}``. The function raises `ConfigError`, `WorkloadError`
    and `BackendError`, with messages that name the next step.
    """
    experiment = prepare(
        workload,
        system,
        network,
        memory,
        groups,
        backend,
        num_queues_per_dim=num_queues_per_dim,
        injection_scale=injection_scale,
        rendezvous=rendezvous,
        semantics=semantics,
        algorithms=algorithms,
    )
    return get_backend(backend).run(experiment, progress)


def prepare(  # noqa: PLR0917 - as simulate
    workload: Workload | str | Path,
    system: SystemConfig | str | Path,
    network: NetworkConfig | str | Path | None,
    memory: MemoryConfig | str | Path | None = None,
    groups: Mapping[int, tuple[int, ...]] | str | Path | None = None,
    backend: str = DEFAULT_BACKEND,
    *,
    num_queues_per_dim: int = 1,
    injection_scale: float = 1.0,
    rendezvous: bool = False,
    semantics: str | None = None,
    algorithms: Mapping[str, Sequence[str]] | None = None,
) -> Experiment:
    """Return the experiment that `simulate` would run with the same arguments, with all inputs loaded."""
    get_backend(backend)  # an unknown backend is an error before any file is read
    _check_ranks(workload, backend)
    loaded_network = load_network(workload, network, backend)
    source, in_lanes = load_source(workload, loaded_network.num_ranks, groups)
    chosen = load_system(system, loaded_network.dimensions)
    if algorithms:
        chosen = with_algorithms(chosen, algorithms, loaded_network.dimensions)
    return Experiment(
        workload=source,
        system=chosen,
        network=loaded_network,
        memory=load_memory(memory),
        groups=choose_groups(groups, source),
        backend=backend,
        num_queues_per_dim=num_queues_per_dim,
        injection_scale=injection_scale,
        rendezvous=rendezvous,
        semantics=semantics or ("trace" if in_lanes else "astra-sim"),
        assumptions=tuple(source.metadata.get("assumptions", [])),
        occasion=datetime.now(timezone.utc).isoformat() if about_backend(backend).measures else "",
    )


def _check_ranks(workload: Workload | str | Path, backend: str) -> None:
    """Raise `WorkloadError` for a simulation of measured ranks if *workload* lacks their peers."""
    job = measured_world_size(workload.metadata if isinstance(workload, Workload) else _metadata(workload))
    if job and not about_backend(backend).replays:
        raise WorkloadError(
            f"The workload has only some of the job's {job:,} ranks, and they communicate in groups, so "
            f"these ranks cannot represent the others, and '{backend}' cannot simulate the workload. Next: "
            f"use '{REPLAY}', or convert the traces of all ranks."
        )


def load_network(
    workload: Workload | str | Path, network: NetworkConfig | str | Path | None, backend: str
) -> NetworkConfig:
    """Return the network; for replays and measurements, the default is a network of the workload's size."""
    if about_backend(backend).replays:
        ranks = workload.num_ranks if isinstance(workload, Workload) else _count_files(workload)
        return NetworkConfig(("Switch",), (max(ranks, 1),), (1.0,), (0.0,), name="measured")
    if network is None:
        from .backends import EmulationBackend  # noqa: PLC0415 - needed for emulations only

        chosen = get_backend(backend)
        if isinstance(chosen, EmulationBackend):
            ranks = workload.num_ranks if isinstance(workload, Workload) else _count_files(workload)
            return chosen.network(max(ranks, 1))
        raise ConfigError(f"The backend '{backend}' needs a network: a YAML file, or one of the presets.")
    if isinstance(network, NetworkConfig):
        return network
    return NetworkConfig.find(network)


def load_system(system: SystemConfig | str | Path, dimensions: int) -> SystemConfig:
    """Return the system with this name or path, for a network with the given number of *dimensions*."""
    if isinstance(system, SystemConfig):
        return system
    if is_preset("system", system):
        return SystemConfig.preset(str(system), dimensions)
    return with_absolute_algorithms(SystemConfig.load(system))


def load_memory(memory: MemoryConfig | str | Path | None) -> MemoryConfig:
    """Return the memory configuration with this name or path (default: no remote memory)."""
    if memory is None or isinstance(memory, MemoryConfig):
        return memory or MemoryConfig()
    return MemoryConfig.preset(str(memory)) if is_preset("memory", memory) else MemoryConfig.load(memory)


_Groups = Mapping[int, tuple[int, ...]] | str | Path | None


def choose_groups(groups: _Groups, source: WorkloadSource) -> dict[int, tuple[int, ...]]:
    """Return the given communicator *groups*, or the groups of the workload or of its groups file."""
    if groups is None and source.loaded is not None:
        groups = source.loaded.groups
    return _groups_of(groups, source.prefix)


def _groups_of(groups: _Groups, prefix: str | Path | None) -> dict[int, tuple[int, ...]]:
    if isinstance(groups, (str, Path)):
        return load_groups(groups)
    if groups is not None:
        return {int(key): tuple(members) for key, members in groups.items()}
    beside = Path(f"{prefix}.groups.json")
    return load_groups(beside) if beside.is_file() else {}


def load_source(
    workload: Workload | str | Path, num_ranks: int, groups: _Groups = None
) -> tuple[WorkloadSource, bool]:
    """Return the programs of *num_ranks* ranks, and whether their streams are lanes (semantics ``trace``).

    *groups* replace those of the workload when a model or files of other programs are checked.
    """
    if isinstance(workload, Workload):
        members = workload.groups if groups is None else _groups_of(groups, None)
        for graph in workload.graphs:
            captured = is_captured(workload.metadata)
            check_attributes(graph, members, workload.num_ranks, f"Rank {graph.rank}", captured=captured)
        return _scaled(workload, num_ranks), has_lanes(workload.metadata)
    refuse_damaged_workload(Path(workload))
    metadata = _metadata(workload)
    if "representatives" in metadata:
        return _scaled(Workload.load(workload), num_ranks), has_lanes(metadata)
    available = _count_files(workload)
    expected = metadata.get("num_ranks", available)
    if isinstance(expected, int) and available < expected:
        raise WorkloadError(
            f"The workload {workload} has {expected} ranks, but {workload}.{available}.et is missing; "
            "convert the traces again."
        )
    # ASTRA-sim ignores files of ranks beyond the network's size, but dropping ranks of a captured job is an
    # error.
    captured = is_captured(metadata)
    if 0 < available != num_ranks and captured:
        return _scaled(Workload.load(workload), num_ranks), True
    members = _groups_of(groups, workload)
    return WorkloadSource.of_prefix(workload, num_ranks, members, captured=captured), has_lanes(metadata)


def _scaled(workload: Workload, num_ranks: int) -> WorkloadSource:
    if workload.num_ranks > num_ranks:
        raise ConfigError(
            f"The workload has {workload.num_ranks} ranks but the network only {num_ranks}; choose a network "
            f"whose number of ranks (the product of npus_count) is a multiple of {workload.num_ranks}. "
            "`chakrascope network` lists the presets."
        )
    if workload.num_ranks < num_ranks and workload.representative_of_rank is None:
        workload = workload.scale_out(num_ranks)
    return WorkloadSource.of_model(workload)


def _count_files(prefix: str | Path) -> int:
    count = 0
    while os.path.isfile(f"{prefix}.{count}.et"):
        count += 1
    return count


def _metadata(prefix: str | Path) -> dict[str, object]:
    path = Path(f"{prefix}.workload.json")
    if not path.is_file():
        return {}
    try:
        data = load_json(path)
    except (OSError, ValueError) as error:
        raise WorkloadError(
            f"The workload description {path} is damaged ({error}); convert the traces again."
        ) from error
    return data if isinstance(data, dict) else {}


def load_workload_head(prefix: str | Path) -> tuple[int, bool]:
    """Return the number of ranks of the workload at *prefix*, and whether it was captured."""
    metadata = _metadata(prefix)
    expected = metadata.get("num_ranks")
    return expected if isinstance(expected, int) else _count_files(prefix), is_captured(metadata)
