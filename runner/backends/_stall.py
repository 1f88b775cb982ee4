"""Turn operations that never ended into one paragraph: who waits for whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import SimulationStalled

__all__ = ["stall_error"]

_SHOWN = 4


def stall_error(unfinished: Sequence[Mapping[str, Any]], num_ranks: int) -> SimulationStalled:
    """Return the error for the engine's *unfinished* operations among *num_ranks* ranks."""
    waits = [
        {
            "rank": int(item["rank"]),
            "node_id": int(item["node_id"]),
            "node_name": str(item["name"]),
            "operation": str(item["operation"]),
            "waits_for": str(item["waits_for"]),
        }
        for item in unfinished
    ]
    ranks = {wait["rank"] for wait in waits}
    shown = "; ".join(_sentence(wait) for wait in waits[:_SHOWN])
    more = f"; and {len(waits) - _SHOWN} more" if len(waits) > _SHOWN else ""
    return SimulationStalled(
        f"The simulation stalled: {len(ranks)} of {num_ranks} ranks never finish: they wait for each other, "
        f"and nothing is left to happen. {shown}{more}. "
        "Check that every send has a receive of the same size and tag, "
        "and that all members of a group issue its collectives in the same order.",
        waits,
    )


def _sentence(wait: Mapping[str, Any]) -> str:
    return (
        f"rank {wait['rank']} is in {wait['operation']} '{wait['node_name']}' (node {wait['node_id']}) "
        f"and waits for {wait['waits_for']}"
    )
