"""Read the tables that TraceLens publishes with the traces of its tests."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Expected", "expected_of", "rows_of_table"]

csv.field_size_limit(1 << 30)  # a cell lists the kernels of an operator


@dataclass(frozen=True)
class Expected:
    """What TraceLens says of a trace: times in ns by name, and its kernels, -1 where its tables do not say.

    Tables that keep recomputed kernels apart leave them out of the busy time of the others, and of what they
    cover: these only tell all computation and communication.
    """

    times: Mapping[str, int]
    total_ns: int
    kernels: int


def expected_of(trace: Path) -> Expected | None:
    """Return the figures of the tables next to *trace*; None without tables."""
    for folder in _folders(trace):
        rows = list(_rows(folder / "gpu_timeline.csv"))
        if rows:
            counts = [row.get("Kernel duration (µs)_count") for row in _rows(folder / "kernel_summary.csv")]
            kernels = sum(int(float(count)) for count in counts if count) if counts else -1
            return Expected(_times(rows), _ns(rows, "total_time"), kernels)
    return None


def rows_of_table(trace: Path, name: str) -> list[dict[str, str]]:
    """Return the rows of the table *name* of *trace*; none without it."""
    return next(filter(None, (list(_rows(folder / name)) for folder in _folders(trace))), [])


def _times(rows: Sequence[Mapping[str, str]]) -> dict[str, int]:
    recomputed = [row for row in rows if row.get("is_recompute") == "True"]
    if not recomputed:
        return {
            "busy": _ns(rows, "busy_time"),
            "exposed communication": _ns(rows, "exposed_comm_time"),
        }
    compute = _ns(rows, "computation_time") + _ns(recomputed, "computation_time")
    return {"computation": compute, "communication": _ns(rows, "total_comm_time")}


def _ns(rows: Sequence[Mapping[str, str]], kind: str) -> int:
    return round(next(float(row["time ms"]) for row in rows if row["type"] == kind) * 1e6)


def _folders(trace: Path) -> Iterator[Path]:
    """Yield where tables of *trace* may be: named after it, or the only tables next to a single trace."""
    stem = trace.name.removesuffix(".gz").removesuffix(".json")
    yield from sorted(trace.parent.glob(f"{stem}*_csvs"))
    yield trace.parent / "perf_csvs"


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.is_file():
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file)
