"""Say when what was measured on one machine is simulated on another: of other chips, or of more ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...converter import Finding, Workload

__all__ = ["cpu_times", "measured_ranks"]


def cpu_times(network: Mapping[str, Any], system: Mapping[str, Any]) -> Finding | None:
    """Return what compute times measured on CPUs mean on *network* and *system*, as their files hold them.

    None unless these are a machine of accelerators.
    """
    from ..config import accelerators_of  # noqa: PLC0415 - all of networks, and few runs ask for it

    chips = accelerators_of(network, system)
    if not chips:
        return None
    machine = " and ".join(f"{chip}s" for chip in chips)
    cause = (
        f"Compute times were measured on CPUs, but the machine is one of {machine}: only its communication "
        "is simulated, not its speed of computing."
    )
    return Finding("warning", "compute", cause, "Capture on such a machine for its compute times.")


def measured_ranks(workload: Workload) -> int:
    """Return how many ranks of *workload* were measured; the others repeat what they do."""
    return int(workload.metadata.get("scaled_from_ranks", workload.num_ranks))
