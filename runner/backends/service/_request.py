"""Translate an experiment to request messages of ASTRA-sim Service."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from ....errors import ConfigError
from ..._experiment import Experiment
from ...config import SETTINGS, Fabric, NetworkConfig, SystemConfig, refuse_programs
from ...engine import COLLECTIVES
from .._analytical import refuse_linkless
from ..astra_sim import lasting_fabric, link_texts, refuse_links, refuse_single, setting_texts
from ._messages import MESSAGES, message

BACKENDS = {
    "analytical-aware": (1, "analytical_congestion_aware"),
    "analytical-unaware": (2, "analytical_congestion_unaware"),
    "ns3": (3, "ns3"),
}
"""Number and name of each network of the service."""
KINDS = tuple(BACKENDS)

_PREFIX = "workload"
_TOPOLOGIES = {"Ring": 1, "FullyConnected": 2, "Switch": 3}
# The service supports fewer algorithms than ASTRA-sim.
_ALGORITHMS = ("direct", "oneDirect", "oneRing", "ring")
_ALL_REDUCE = ("doubleBinaryTree", *_ALGORITHMS)
_COLLECTIVES = tuple(name.replace("-", "_") for name in COLLECTIVES)
_UNSCALED_ENDPOINT_DELAY_NS = 10
_CHUNK_BYTES = 1 << 20
_HPCC = 3
_HPCC_RATES_BPS = frozenset(gbit * 10**9 for gbit in (25, 50, 100, 200, 400, 2400))
# The fixed time stamp of every archive entry, so that equal experiments give equal archives.
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_archive(experiment: Experiment, folder: str, path: Path, keep_on: Callable[[], None]) -> None:
    """Write one program per rank as ``folder/workload.<rank>.et`` into the zip archive *path*.

    The service unpacks the archive into plain files, so ranks cannot share a file. The callback *keep_on* is
    called after every MiB that is written.
    """
    source = experiment.workload
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for rank, index in enumerate(source.program_of_rank):
            program = source.programs[index]
            content = program if isinstance(program, bytes) else Path(program).read_bytes()
            entry = zipfile.ZipInfo(f"{folder}/{_PREFIX}.{rank}.et", _EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            with archive.open(entry, "w", force_zip64=len(content) > 1 << 31) as file:
                for start in range(0, max(len(content), 1), _CHUNK_BYTES):
                    keep_on()
                    file.write(content[start : start + _CHUNK_BYTES])


def configuration(experiment: Experiment, kind: str, folder: str, *, trace: bool) -> tuple[Any, list[str]]:
    """Return the request that configures *experiment*, and sentences on values that the service changes.

    With *trace*, the log will contain the start and end of every node. Raises `ConfigError` for settings that
    the service's interface lacks: halving-doubling and custom algorithms, networks of links, numbers beyond
    32 bits.
    """
    warnings: list[str] = []
    number, name = BACKENDS[kind]
    common = {
        "workload": f"{folder}/{_PREFIX}",
        "system": _system(experiment, warnings, trace=trace),
        "communicator_group": [
            {"identifier": str(group), "npu_list": list(members)}
            for group, members in sorted(experiment.groups.items())
        ],
        "remote_memory": _memory(experiment),
        "logging": _logging() if trace else None,
        "cmd_parameters": _arguments(experiment),
    }
    network = {"choice": number, name: _network(experiment.network, kind, warnings)}
    content = {"common_config": common, "network_backend": network}
    try:
        return message("SetConfigRequest", {"config": content}), warnings
    except ValueError as error:
        raise ConfigError(
            f"A number of the experiment is too large for ASTRA-sim Service, which stores 32 bits ({error}); "
            "use the backends 'astra-sim:...' or ours."
        ) from error


def _system(experiment: Experiment, warnings: list[str], *, trace: bool) -> dict[str, Any]:
    """Return the system with ASTRA-sim's defaults for absent keys; the service has other defaults."""
    system = experiment.system
    _refuse_custom(system)
    endpoint_delay = system.endpoint_delay
    settings = {
        "scheduling_policy": system.scheduling_policy or "LIFO",
        "collective_optimization": system.collective_optimization or "localBWAware",
        "local_reduction_delay": 1 if system.local_reduction_delay is None else system.local_reduction_delay,
        "active_chunks_per_dimension": system.active_chunks_per_dimension or 1,
        "endpoint_delay": _UNSCALED_ENDPOINT_DELAY_NS if endpoint_delay is None else endpoint_delay,
        "model_shared_bus": system.model_shared_bus or 0,
        "preferred_dataset_splits": system.preferred_dataset_splits or 1,
        "peak_perf": system.peak_perf or 0.0,
        "local_mem_bw": system.local_mem_bw or 0.0,
        "trace_enabled": int(trace),
    }
    bus = {"latency": "L", "overhead": "o", "gap": "g", "global_memory": "G"}
    numbers = {name: getattr(system, key) or 0.0 for name, key in bus.items()}
    flags = ("roofline_enabled", "replay_only", "track_local_mem")
    switches = {key: int(getattr(system, key) or 0) for key in flags}
    return settings | numbers | switches | _algorithms(system, experiment.network.dimensions, warnings)


def _refuse_custom(system: SystemConfig) -> None:
    refuse_programs(system, "ASTRA-sim Service")
    given = [key for key, value in vars(system).items() if "custom" in key and value is not None]
    if given:
        raise ConfigError(
            f"'{given[0].replace('_', '-')}' cannot be used with ASTRA-sim Service, which ignores all other "
            "algorithms if one is custom; use the backends 'astra-sim:...' or ours."
        )


def _algorithms(system: SystemConfig, dimensions: int, warnings: list[str]) -> dict[str, list[str]]:
    algorithms = {}
    for collective in _COLLECTIVES:
        key = f"{collective}_implementation"
        names = getattr(system, key)
        if names is None:
            names = ("ring",) * dimensions
            warnings.append(f"'{key.replace('_', '-')}' is absent; the service cannot leave it out: ring.")
        allowed = _ALL_REDUCE if collective == "all_reduce" else _ALGORITHMS
        wrong = next((name for name in names if name not in allowed), None)
        if wrong:
            raise ConfigError(
                f"ASTRA-sim Service does not take the algorithm '{wrong}' in '{key.replace('_', '-')}', only "
                f"{', '.join(sorted(allowed))}; choose one, or use the backends 'astra-sim:...' or ours."
            )
        algorithms[key] = list(names)
    return algorithms


def _memory(experiment: Experiment) -> dict[str, Any]:
    memory = experiment.memory
    return {name: getattr(memory, name) for name, _, _ in MESSAGES["RemoteMemory"]}


def _logging() -> dict[str, Any]:
    """Return the logging configuration that writes node times to standard output, which the service keeps."""
    sink = {"name": "console", "type": "stdout_sink_mt"}
    return {"sink": [sink], "logger": [{"name": "workload", "sinks": ["console"], "level": "debug"}]}


def _arguments(experiment: Experiment) -> dict[str, Any]:
    # If the endpoint delay is absent, ASTRA-sim uses its default delay, to which the injection scale does not
    # apply.
    scaled = experiment.system.endpoint_delay is not None
    return {
        "num_queues_per_dim": experiment.num_queues_per_dim,
        "comm_scale": 1.0,
        "injection_scale": experiment.injection_scale if scaled else 1.0,
        "rendezvous_protocol": experiment.rendezvous,
    }


def _network(network: NetworkConfig, kind: str, warnings: list[str]) -> dict[str, Any]:
    refuse_single(network)
    if kind == "ns3":
        return _packets(network, warnings)
    if kind == "analytical-aware":
        refuse_links(network)
    if kind == "analytical-unaware":
        refuse_linkless(network, kind)
    return _dimensions(network, warnings)


def _dimensions(network: NetworkConfig, warnings: list[str]) -> dict[str, Any]:
    rows = [
        {
            "topology": _TOPOLOGIES[topology],
            "npus_count": count,
            "bandwidth": _single(bandwidth, "the network's bandwidth", warnings),
            "latency": _single(latency, "the network's latency", warnings),
        }
        for topology, count, bandwidth, latency in zip(
            network.topology, network.npus_count, network.bandwidth, network.latency, strict=True
        )
    ]
    return {"topology": {"choice": 1, "network": rows}}


def _single(value: float, what: str, warnings: list[str]) -> float:
    """Return *value*; add a warning to *warnings* if the service will store another number."""
    stored = float(str(np.float32(value)))
    if stored != value:
        warnings.append(f"The service stores 32 bits of {what}: {stored!r} for {value!r}.")
    return value


def _packets(network: NetworkConfig, warnings: list[str]) -> dict[str, Any]:
    fabric = lasting_fabric(network)
    _refuse_flood(fabric)
    settings = setting_texts(fabric)
    chosen = {}
    for name, kind, repeated in MESSAGES["NS3Network"]:
        words = settings.pop(name.upper())
        chosen[name] = (
            [int(word) for word in words.split()] if repeated else _setting(words, name, kind, warnings)
        )
    warnings += [
        f"'{key}' has no effect: the service's interface lacks it."
        for key in settings
        if fabric.settings[key] != SETTINGS[key][1]
    ]
    ends = ("source_index", "destination_index", "bandwidth", "latency", "error_rate")
    topology = {
        "total_nodes": fabric.nodes,
        "total_switches": len(fabric.switches),
        "total_links": len(fabric.links),
        "switch_ids": list(fabric.switches),
        "connections": [dict(zip(ends, row, strict=True)) for row in link_texts(fabric)],
    }
    return {
        "network": chosen,
        "topology": {"choice": 1, "nc_topology": topology},
        "logical_topology": {"logical_dimensions": list(network.npus_count)},
    }


def _refuse_flood(fabric: Fabric) -> None:
    """Raise `ConfigError` for a network on which ASTRA-sim's ns-3 prints a line for every packet."""
    rates = {link.rate_bps for link in fabric.links} - _HPCC_RATES_BPS
    if fabric.settings["CC_MODE"] == _HPCC and rates:
        raise ConfigError(
            f"ASTRA-sim's HPCC (CC_MODE 3) does not support links of {min(rates)} bit/s, and its warnings "
            "hang a service; give them 25, 50, 100, 200, 400 or 2400 Gbit/s, or use the "
            "backend 'packet'."
        )


def _setting(text: str, name: str, kind: str, warnings: list[str]) -> Any:
    """Return the value of a setting of config.txt in the service's type *kind*."""
    if kind == "string":
        return text
    if kind == "float":
        return _single(float(text), name.upper(), warnings)
    number = float(text)
    if not number.is_integer():
        warnings.append(f"The service stores whole numbers of {name.upper()}: {int(number)} for {text}.")
    return int(number)
