"""Read the tables that TraceLens keeps beside the traces of its tests."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Expected", "expected_of"]


@dataclass(frozen=True)
class Expected:
    """What TraceLens says of a trace: times in ns, and its kernels; -1 where its tables do not say."""

    busy_ns: int
    exposed_comm_ns: int
    total_ns: int
    kernels: int


def expected_of(trace: Path) -> Expected | None:
    """Return what the tables beside *trace* say; None where there are none."""
    for folder in _folders(trace):
        timeline = {
            row["type"]: round(float(row["time ms"]) * 1e6)
            for row in _rows(folder / "gpu_timeline.csv")
            if row.get("is_recompute", "False") == "False"
        }
        if timeline:
            counts = [row.get("Kernel duration (µs)_count") for row in _rows(folder / "kernel_summary.csv")]
            kernels = sum(int(float(count)) for count in counts if count) if counts else -1
            return Expected(
                timeline["busy_time"], timeline["exposed_comm_time"], timeline["total_time"], kernels
            )
    return None


def _folders(trace: Path) -> Iterator[Path]:
    """Yield where tables of *trace* may be: named after it, or the only ones beside a trace on its own."""
    stem = trace.name.removesuffix(".gz").removesuffix(".json")
    yield from sorted(trace.parent.glob(f"{stem}*_csvs"))
    yield trace.parent / "perf_csvs"


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.is_file():
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file)
