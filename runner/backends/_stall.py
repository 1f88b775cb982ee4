"""The error of a stalled simulation: which operations wait for which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...errors import SimulationStalled

__all__ = ["stall_error"]

_SHOWN = 4
_SHOWN_OF_CYCLE = 8


def stall_error(
    unfinished: Sequence[Mapping[str, Any]],
    num_ranks: int,
    deadlock: Sequence[Mapping[str, Any]] = (),
    remedies: Sequence[str] = (),
) -> SimulationStalled:
    """Return the error for the engine's *unfinished* operations among *num_ranks* ranks.

    *deadlock* is the engine's cycle, if there is one; *remedies* are changes with which the simulation ends.
    """
    waits = [_facts(item, waits_for=str(item["waits_for"])) for item in unfinished]
    cycle = [_facts(item, begun=bool(item["begun"])) for item in deadlock]
    ranks = {wait["rank"] for wait in waits}
    return SimulationStalled(
        f"The simulation stalled: {len(ranks)} of {num_ranks} ranks never finish, because they wait for each "
        f"other and nothing is left to happen. {_who_waits(waits, cycle)} {_advice(cycle, remedies)}",
        waits,
        cycle,
    )


def _facts(item: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    place = {"rank": int(item["rank"]), "node_id": int(item["node_id"])}
    return place | {"node_name": str(item["name"]), "operation": str(item["operation"])} | more


def _who_waits(waits: Sequence[Mapping[str, Any]], cycle: Sequence[Mapping[str, Any]]) -> str:
    if cycle:
        steps = [_step(item) for item in cycle[:_SHOWN_OF_CYCLE]]
        more = len(cycle) - len(steps)
        steps += [f"{more} more"] if more else []
        return f"The deadlock: {', which waits for '.join([*steps, _step(cycle[0])])}."
    shown = "; ".join(_sentence(wait) for wait in waits[:_SHOWN])
    return f"{shown}; and {len(waits) - _SHOWN} more." if len(waits) > _SHOWN else f"{shown}."


def _advice(cycle: Sequence[Mapping[str, Any]], remedies: Sequence[str]) -> str:
    if remedies:
        return f"The program itself can end: it does with {', or with '.join(remedies)}."
    if cycle:
        return (
            "No order of events completes this program; let these ranks issue these operations in one order."
        )
    return (
        "Check that every send has a receive of the same size and tag, "
        "and that all members of a group issue its collectives in the same order."
    )


def _step(item: Mapping[str, Any]) -> str:
    state = "" if item["begun"] else ", not begun"
    return f"rank {item['rank']}'s {item['operation']} '{item['node_name']}' (node {item['node_id']}{state})"


def _sentence(wait: Mapping[str, Any]) -> str:
    return (
        f"rank {wait['rank']} is in {wait['operation']} '{wait['node_name']}' (node {wait['node_id']}) "
        f"and waits for {wait['waits_for']}"
    )
