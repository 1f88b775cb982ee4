"""Warn if times measured on one machine are simulated on a machine with other chips or more ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...converter import Finding, Workload
from ...converter.building import COMPUTED_FOR, computed_on_host, is_captured
from .._result import Result
from .._traits import about_backend

_REMEDY = (
    "Next: capture the job on such a machine, or estimate its compute times with `rescale --chip` or "
    "`predict --script`."
)


def cpu_times(network: Mapping[str, Any], system: Mapping[str, Any]) -> Finding | None:
    """Return a warning that compute times of CPUs are simulated on accelerators, or None.

    *network* and *system* have the keys of their files.
    """
    from ..config import accelerators_of  # noqa: PLC0415 - imports all of networks, which few runs need

    chips = accelerators_of(network, system)
    if not chips:
        return None
    machine = " and ".join(f"{chip}s" for chip in chips)
    if system.get("roofline-enabled") in (1, True):
        cause = (
            "Compute times come from the system's roofline where an operator's FLOPs are known; the others "
            f"were measured on CPUs, but the machine is one of {machine}."
        )
        return Finding("note", "compute", cause, _REMEDY)
    cause = (
        f"Compute times were measured on CPUs, but the machine is one of {machine}: the communication of "
        "this machine is simulated, but not its speed of computation."
    )
    return Finding("warning", "compute", cause, _REMEDY)


def has_cpu_times(workload: Workload) -> bool:
    """Return whether the compute times in *workload* were measured on CPUs."""
    metadata = workload.metadata
    if COMPUTED_FOR in metadata or any(metadata.get("chips", {}).values()):
        return False
    return is_captured(metadata) and computed_on_host(workload)


def foreign_compute(result: Result, workload: Workload) -> str:
    """Return a warning if *result* has compute times of CPUs on accelerators, otherwise ""."""
    if not about_backend(result.backend).network or not has_cpu_times(workload):
        return ""
    times = cpu_times(result.provenance.get("network", {}), result.provenance.get("system", {}))
    return "" if times is None else times.text


def measured_ranks(workload: Workload) -> int:
    """Return the number of measured ranks in *workload*; other ranks repeat their programs."""
    return int(workload.metadata.get("scaled_from_ranks", workload.num_ranks))
