"""List the runs of a study, and choose which of several are compared with which."""

from __future__ import annotations

from collections.abc import Sequence

from ...runner import RunInfo
from ...runner.study import run_table

__all__ = ["compared", "run_table"]


def compared(runs: Sequence[RunInfo], chosen: Sequence[str]) -> tuple[str, list[str]]:
    """Return which of the *chosen* runs is the base of their comparison, and the others, oldest first.

    The base is a measured replay, what simulations are held against, or else the oldest run.
    """
    infos = sorted(
        (info for info in runs if info.id in chosen),
        key=lambda info: (info.backend != "replay", info.created),
    )
    names = [info.id for info in infos]
    return names[0], names[1:]
