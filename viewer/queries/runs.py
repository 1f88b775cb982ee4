"""List the runs of a study, and choose which of several are compared with which."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from ...runner import RunInfo
from ..theme import run_name

__all__ = ["compared", "run_table"]

_COLUMNS = ["id", "label", "backend", "network", "ranks", "makespan_ns", "created", "workload", "note"]


def run_table(runs: Sequence[RunInfo]) -> pd.DataFrame:
    """Return a row a run, the newest first; ``created`` is UTC to the second."""
    rows = [
        {
            "id": info.id,
            "label": run_name(info),
            "backend": info.backend,
            "network": info.network,
            "ranks": info.num_ranks,
            "makespan_ns": info.makespan_ns,
            "created": info.created[:19].replace("T", " "),
            "workload": info.workload,
            "note": info.note,
        }
        for info in sorted(runs, key=lambda info: (info.created, info.id), reverse=True)
    ]
    table: pd.DataFrame = pd.DataFrame(rows, columns=_COLUMNS)
    return table


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
