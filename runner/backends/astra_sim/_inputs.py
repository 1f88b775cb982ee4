"""Write an experiment or a network as ASTRA-sim's input files and command-line options."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ....errors import BackendError, ConfigError
from ....support import write_file
from ..._experiment import Experiment
from ...config import (
    OWN_SETTINGS,
    RATES,
    SETTINGS,
    THRESHOLDS,
    Fabric,
    NetworkConfig,
    SystemConfig,
    check_failures,
    copied_into,
    fabric_of,
    refuse_programs,
)
from .._engine import refuse_linkless

# Names of ns-3's input and output files.
OUTPUTS = {
    "FCT_OUTPUT_FILE": "fct.txt",
    "FLOW_FILE": "flow.txt",
    "PFC_OUTPUT_FILE": "pfc.txt",
    "QLEN_MON_FILE": "qlen.txt",
    "TOPOLOGY_FILE": "topology.txt",
    "TRACE_FILE": "trace.txt",
    "TRACE_OUTPUT_FILE": "mix.tr",
}

NETWORK_FORMATS = ("ns3", "yaml")
"""The formats of `write_network`."""


def write_network(network: NetworkConfig, kind: str, folder: Path) -> tuple[list[Path], list[str]]:
    """Write *network* into *folder* in the format *kind*; return the files, and notes on what they omit.

    *kind* is one of `NETWORK_FORMATS`: ``ns3`` writes config.txt, topology.txt, logical.json and
    the empty files that ASTRA-sim requires, and ``yaml`` writes Chakrascope's own format. Raises
    `ConfigError` for a network that the format cannot express, and `OSError` if *folder* is not
    writable.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if kind == "ns3":
        return _write_ns3(network, folder)
    path = folder / f"{network.name}.yml"
    network.save(path)
    return [path], []


def lasting_fabric(network: NetworkConfig) -> Fabric:
    """Return the fabric of *network* with hosts first, so that node r is rank r as ASTRA-sim expects.

    Raises `ConfigError` for failures that begin or end during a simulation, other than LINK_DOWN.
    """
    check_failures(network.failures, f"The network '{network.name}'")
    return fabric_of(network).hosts_first()


def write_fabric(fabric: Fabric, network: NetworkConfig, folder: Path) -> list[Path]:
    """Write ASTRA-sim's files for the *fabric* of *network*, including the empty files that it requires.

    The files are not synced to disk, because only one simulation reads them.
    """
    switches = " ".join(map(str, fabric.switches))
    head = f"{fabric.nodes} {len(fabric.switches)} {len(fabric.links)}"
    links = [" ".join(map(str, row)) for row in link_texts(fabric)]
    texts = {
        "config.txt": "\n".join(f"{key} {words}" for key, words in setting_texts(fabric).items()),
        "topology.txt": "\n".join([head, switches, *links]),
        "logical.json": json.dumps({"logical-dims": [str(count) for count in network.npus_count]}),
        "flow.txt": "0",
        "trace.txt": "0",
    }
    for name, text in texts.items():
        write_file(folder / name, text + "\n", sync=False)
    return [folder / name for name in texts]


def link_texts(fabric: Fabric) -> list[tuple[int, int, str, str, str]]:
    """Return the two nodes, rate, delay and loss of each link as written to topology.txt."""
    return [(a, b, f"{rate}bps", f"{delay}ps", _words(loss)) for a, b, rate, delay, loss in fabric.links]


def setting_texts(fabric: Fabric) -> dict[str, str]:
    """Return the packet settings of *fabric* as written to config.txt.

    Every link rate gets a threshold: ASTRA-sim marks every packet on links whose rate has none.
    """
    keys = sorted(set(SETTINGS) - set(OWN_SETTINGS))
    marks = {key: _thresholds(fabric, fabric.settings[key]) for key in THRESHOLDS}
    rates = {key: f"{fabric.settings[key]}bps" for key in RATES}
    values = {**fabric.settings, **marks, **rates, **OUTPUTS}
    return {key: _words(values[key]) for key in keys}


def _thresholds(fabric: Fabric, given: Mapping[int, float]) -> dict[int, float]:
    """Add the missing link rates to the thresholds in *given*, copying the next faster rate."""
    rates = {link.rate_bps for link in fabric.links} if given else set()
    return dict(given) | {
        rate: given[min((each for each in given if each >= rate), default=max(given))] for rate in rates
    }


def _words(value: Any) -> str:
    """Return a setting's value as written to config.txt."""
    if isinstance(value, Mapping):
        pairs = [f"{rate} {_words(item)}" for rate, item in sorted(value.items())]
        return " ".join([str(len(pairs)), *pairs])
    if isinstance(value, tuple):
        return " ".join(map(str, value))
    # ASTRA-sim reads some numbers as integers and would misread 800.0 or 1e+06.
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _write_ns3(network: NetworkConfig, folder: Path) -> tuple[list[Path], list[str]]:
    fabric = lasting_fabric(network)
    files = write_fabric(fabric, network, folder)
    fine = sum(link.delay_ps % 1000 > 0 for link in fabric.links)
    remarks = parallel_warning(fabric)
    if fine:
        remarks.append(f"ASTRA-sim's ns-3 rounds latencies to whole ns, which changes {fine} links.")
    return files, remarks + _without_efficiency(network)


def _without_efficiency(network: NetworkConfig) -> list[str]:
    """Return a note if *network* has library overheads, which ASTRA-sim's files cannot express."""
    if network.efficiency is None:
        return []
    return ["These files cannot contain overheads: they are written without 'efficiency'."]


def parallel_warning(fabric: Fabric) -> list[str]:
    """Return a warning if *fabric* has parallel links, of which ASTRA-sim's ns-3 uses only one."""
    pairs = Counter(frozenset((link.a, link.b)) for link in fabric.links)
    parallel = sum(count > 1 for count in pairs.values())
    if not parallel:
        return []
    return [
        f"{parallel} pairs of devices have parallel links; ASTRA-sim's ns-3 uses one link per pair, and "
        "'packet' uses all."
    ]


# ASTRA-sim keeps the last 100 MiB of its log, and a node takes two lines of about 120 bytes.
TRACE_LIMIT_NODES = 400_000
# ASTRA-sim's ns-3 would write every queue's length every 100 ns to a file that Chakrascope does not read.
_UNWATCHED = {"ENABLE_TRACE": 0, "QLEN_MON_START": 10**17}


def write_inputs(experiment: Experiment, kind: str, folder: Path, *, trace: bool) -> list[str]:
    """Write all input files of *experiment* into *folder*; return the options that name them.

    Paths are relative, so the program must run in *folder*: ASTRA-sim treats any path that contains
    "empty" as absent. *trace* makes it log the interval of every node.
    """
    try:
        _write_workload(experiment, folder / "workload")
        system = _write_system(experiment, folder, trace=trace)
    except OSError as error:
        raise BackendError(
            f"ASTRA-sim's inputs cannot be written to {folder} ({error.strerror}); free disk space or set "
            "TMPDIR to another folder."
        ) from error
    system.save(folder / "system.json")
    experiment.memory.save(folder / "memory.json")
    options = [
        "--workload-configuration=workload/workload",
        "--system-configuration=system.json",
        "--remote-memory-configuration=memory.json",
        f"--num-queues-per-dim={experiment.num_queues_per_dim}",
        f"--injection-scale={experiment.injection_scale!r}",
    ]
    if experiment.rendezvous:
        options.append("--rendezvous-protocol=true")
    if experiment.groups:
        groups = {str(group): list(members) for group, members in sorted(experiment.groups.items())}
        (folder / "groups.json").write_text(json.dumps(groups) + "\n", encoding="utf-8")
        options.append("--comm-group-configuration=groups.json")
    return options + _network_options(experiment, kind, folder)


def _write_workload(experiment: Experiment, folder: Path) -> None:
    """Write each distinct program once and one symbolic link per rank; ASTRA-sim needs writable files."""
    folder.mkdir()
    source = experiment.workload
    for index, program in enumerate(source.programs):
        target = folder / f"program{index}.et"
        if isinstance(program, bytes):
            target.write_bytes(program)
        else:
            shutil.copyfile(program, target)
    for rank, program_index in enumerate(source.program_of_rank):
        (folder / f"workload.{rank}.et").symlink_to(f"program{program_index}.et")


def _write_system(experiment: Experiment, folder: Path, *, trace: bool) -> SystemConfig:
    """Return the system with every value set that ASTRA-sim would leave uninitialised.

    Custom algorithms are copied, because ASTRA-sim opens their files for writing.
    """
    refuse_programs(experiment.system, experiment.backend)
    system = copied_into(experiment.system, folder, "custom")
    return replace(
        system,
        scheduling_policy=system.value("scheduling_policy"),
        collective_optimization=system.value("collective_optimization"),
        preferred_dataset_splits=system.value("preferred_dataset_splits"),
        # ASTRA-sim takes any value but the number 0 as true, even false.
        trace_enabled=True if trace else None,
    )


def _network_options(experiment: Experiment, kind: str, folder: Path) -> list[str]:
    network = experiment.network
    refuse_unsupported(network, kind, f"astra-sim:{kind}")
    if kind == "ns3":
        fabric = lasting_fabric(network)
        write_fabric(replace(fabric, settings={**fabric.settings, **_UNWATCHED}), network, folder)
        return ["--network-configuration=config.txt", "--logical-topology-configuration=logical.json"]
    replace(network, efficiency=None, calibration={}).save(folder / "network.yml")
    return ["--network-configuration=network.yml"]


def refuse_unsupported(network: NetworkConfig, kind: str, backend: str) -> None:
    """Raise `ConfigError` for a single rank, and for links if ASTRA-sim's *kind* only supports dimensions."""
    if network.num_ranks < 2:
        raise ConfigError(
            f"The network '{network.name}' has one rank, and ASTRA-sim simulates two or more; use one of "
            f"Chakrascope's backends, such as 'analytical-unaware', or a larger network."
        )
    if kind == "analytical-unaware":
        refuse_linkless(network, backend)
    if kind != "analytical-aware":
        return
    check_failures(network.failures, f"The network '{network.name}'")
    if network.has_links:
        raise ConfigError(
            f"The network '{network.name}' is a graph of links, but ASTRA-sim's analytical backend only "
            "reads dimensions; use Chakrascope's 'analytical-aware', or ASTRA-sim's ns-3."
        )
