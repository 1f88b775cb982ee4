"""The origin of a workload's programs: the computing device, and the ranks without traces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..chakra import Workload
from ._conventions import DEVICE_LANE

__all__ = [
    "FROM_LOGS",
    "STAND_INS",
    "STAND_IN_OF",
    "STEP_CHOICE",
    "captured_steps",
    "computed_on_host",
    "stand_in_of",
    "stand_ins_text",
    "step_choice_text",
    "stood_in",
]

FROM_LOGS = "logs"
STAND_INS = "stand_ins"
# Which rank's program each of these ranks has, where a replica stands in for single ones.
STAND_IN_OF = "stand_in_of"
# Why this step of several was converted.
STEP_CHOICE = "step_choice"
_NAMED_AT_MOST = 8


def captured_steps(metadata: Mapping[str, Any]) -> int:
    """Return the number of training steps in a workload with this *metadata*, by default 1."""
    steps = metadata.get("steps")
    return max(1, len(steps)) if isinstance(steps, list) else 1


def step_choice_text(metadata: Mapping[str, Any]) -> str:
    """Return the step in a workload with this *metadata* and why it was chosen; "" without a choice."""
    steps, why = metadata.get("steps"), metadata.get(STEP_CHOICE)
    if not isinstance(steps, list) or len(steps) != 1 or not isinstance(why, str):
        return ""
    return f"Step {steps[0]} is shown: {why}."


def computed_on_host(workload: Workload) -> bool:
    """Return whether all computation of a captured *workload* ran on a CPU. Unknown for production logs."""
    if FROM_LOGS in workload.metadata:
        return False
    return not any((graph.node_columns["stream"] >= DEVICE_LANE).any() for graph in workload.graphs)


def stand_ins_text(given: int, world_size: int, stated: Sequence[int]) -> str:
    """Return the assumption that the *given* ranks represent all *world_size* ranks of the job.

    *stated* are the ranks that the traces state, -1 if unknown.
    """
    known = list(stated) if min(stated) >= 0 else list(range(given))
    missing = np.setdiff1d(np.arange(world_size), known).tolist()
    more = len(missing) - _NAMED_AT_MOST
    named = ", ".join(map(str, missing[:_NAMED_AT_MOST])) + (f" and {more:,} more" if more > 0 else "")
    others = f" ({', '.join(map(str, known))})" if known != list(range(given)) else ""
    return (
        f"the traces of {given:,} of {world_size:,} ranks were given{others}: they are repeated for the "
        f"others ({named}), as if all did the same"
    )


def stand_in_of(metadata: Mapping[str, Any], rank: int) -> int | None:
    """Return the rank whose program replaces that of *rank*, whose traces are unusable; None if none does."""
    other = metadata.get(STAND_IN_OF, {}).get(str(rank))
    return None if other is None else int(other)


def stood_in(metadata: Mapping[str, Any]) -> str:
    """Return the assumption in a workload's *metadata* on ranks that represent others, or nothing."""
    return str(metadata.get(STAND_INS, ""))
