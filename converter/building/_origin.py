"""Where the programs of a workload come from: which device computed, and whose traces were not given."""

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
    """Return how many training steps a workload with this *metadata* holds: 1 unless it says more."""
    steps = metadata.get("steps")
    return max(1, len(steps)) if isinstance(steps, list) else 1


def step_choice_text(metadata: Mapping[str, Any]) -> str:
    """Return which step a workload with this *metadata* holds and why that one; "" where nobody chose."""
    steps, why = metadata.get("steps"), metadata.get(STEP_CHOICE)
    if not isinstance(steps, list) or len(steps) != 1 or not isinstance(why, str):
        return ""
    return f"Step {steps[0]} is shown: {why}."


def computed_on_host(workload: Workload) -> bool:
    """Return whether no node of *workload*, a captured one, ran on a device: its compute is a CPU's.

    Production logs do not tell.
    """
    if FROM_LOGS in workload.metadata:
        return False
    return not any((graph.node_columns["stream"] >= DEVICE_LANE).any() for graph in workload.graphs)


def stand_ins_text(given: int, world_size: int, stated: Sequence[int]) -> str:
    """Return the assumption that the *given* ranks stand for all *world_size* of the job.

    *stated* are the ranks that the traces say they are of, -1 where they do not.
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
    """Return whose program *rank* has in place of its own, whose traces cannot be used; None if its own."""
    other = metadata.get(STAND_IN_OF, {}).get(str(rank))
    return None if other is None else int(other)


def stood_in(metadata: Mapping[str, Any]) -> str:
    """Return the assumption on ranks that stand for others which a workload's *metadata* hold, or nothing."""
    return str(metadata.get(STAND_INS, ""))
