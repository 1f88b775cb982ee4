"""List the runs of a study, search them, and choose which are compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .._traits import about_backend
from ._study import RunInfo

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["compared", "run_name", "run_rows", "run_table"]

_COLUMNS = [
    "id",
    "label",
    "backend",
    "network",
    "ranks",
    "makespan_ns",
    "steps",
    "created",
    "workload",
    "tags",
    "note",
]
# Characters that change the direction of adjacent text; text of any script is readable without them.
_NO_TURNS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")


def run_name(info: RunInfo) -> str:
    """Return the title of a run: its label, or that it is the measurement."""
    plain = f"{info.backend} on {info.network}"
    if about_backend(info.backend).replays and info.label in ("", plain):
        return "measured (replay)"
    return (info.label or plain).translate(_NO_TURNS)


def run_rows(runs: Sequence[RunInfo], find: str = "") -> list[dict[str, Any]]:
    """Return a row per run that has *find* in any of its texts, newest first; ``created`` is UTC.

    ``steps`` are the captured training steps that ``makespan_ns`` spans.
    """
    rows = [
        {
            "id": info.id,
            "label": run_name(info),
            "backend": info.backend,
            "network": info.network,
            "ranks": info.num_ranks,
            "makespan_ns": info.makespan_ns,
            "steps": info.steps,
            "created": info.created[:19].replace("T", " "),
            "workload": info.workload,
            "tags": ", ".join(info.tags),
            "note": info.note,
        }
        for info in sorted(runs, key=lambda info: (info.created, info.id), reverse=True)
    ]
    wanted = find.casefold()
    return [row for row in rows if any(wanted in str(value).casefold() for value in row.values())]


def run_table(runs: Sequence[RunInfo], find: str = "") -> pd.DataFrame:
    """Return :func:`run_rows` as a table."""
    import pandas as pd  # noqa: PLC0415 - most of the time that a list of runs would take

    table: pd.DataFrame = pd.DataFrame(run_rows(runs, find), columns=_COLUMNS)
    return table


def compared(runs: Sequence[RunInfo], chosen: Sequence[str]) -> tuple[str, list[str]]:
    """Return the reference run among the *chosen* runs, and the others, oldest first.

    It is a measured replay, if there is one, or else the oldest run.
    """
    infos = sorted(
        (info for info in runs if info.id in chosen),
        key=lambda info: (not about_backend(info.backend).replays, info.created),
    )
    names = [info.id for info in infos]
    return names[0], names[1:]
