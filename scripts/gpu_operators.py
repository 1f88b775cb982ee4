"""Compare time, operations and bytes of operators with the tables that TraceLens publishes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gpu_peers import rows_of_table

__all__ = ["Agreement", "agreements", "modelled_shares"]

Key = tuple[str, tuple[str, ...]]
_ALIKE = 0.01
_SHOWN = 3  # tensors of a call that our table names
_PRODUCTS = ("gemm", "attention")
# Of other classes TraceLens counts one operation per element, and normalizations and convolutions another
# number of passes over their tensors.
_FIGURES: Mapping[str, tuple[int, tuple[str, ...]]] = {
    "time of operators": (1, ()),
    "FLOPs of products": (2, _PRODUCTS),
    "bytes of operators": (3, (*_PRODUCTS, "elementwise", "copy")),
}


@dataclass(frozen=True)
class Agreement:
    """The number of *rows* of operators in both tables, and of rows that are *alike* within 1 %."""

    figure: str
    alike: int
    rows: int


@dataclass
class _Sums:
    """Calls, time (us), operations and bytes of all calls of an operator with the same shapes."""

    kind: str = ""
    figures: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0)

    def add(self, kind: str, *figures: float) -> None:
        self.kind = self.kind or kind
        self.figures = tuple(one + more for one, more in zip(self.figures, figures, strict=True))


def agreements(metadata: Mapping[str, Any], trace: Path) -> list[Agreement]:
    """Return the agreement of the operators in *metadata* with the tables of the *trace*."""
    ours, theirs = _ours(metadata), _theirs(trace)
    both = [key for key in theirs if key in ours and ours[key].kind and theirs[key].kind]
    found = []
    for figure, (place, kinds) in _FIGURES.items():
        own = [key for key in both if not kinds or ours[key].kind in kinds]
        alike = [key for key in own if _is_alike(ours[key].figures[place], theirs[key].figures[place])]
        if own:
            found.append(Agreement(figure, len(alike), len(own)))
    return found


def modelled_shares(metadata: Mapping[str, Any], trace: Path) -> tuple[float, float] | None:
    """Return the shares of operator time with a cost model, here and in TraceLens; None without a table."""
    tables = _ours(metadata), _theirs(trace)
    times = [[(bool(one.kind), one.figures[1]) for one in table.values()] for table in tables]
    totals = [sum(time for _, time in rows) for rows in times]
    if not all(totals):
        return None
    ours, theirs = (
        sum(time for modelled, time in rows if modelled) / total
        for rows, total in zip(times, totals, strict=True)
    )
    return ours, theirs


def _is_alike(one: float, other: float) -> bool:
    return abs(one - other) <= _ALIKE * max(abs(one), abs(other))


def _ours(metadata: Mapping[str, Any]) -> dict[Key, _Sums]:
    operators = metadata.get("operators", {"kinds": [], "ranks": {}})
    sums: dict[Key, _Sums] = {}
    for number, calls, _, time_ns in (call for own in operators["ranks"].values() for call in own):
        name, kind, _, arguments, flops, read, written = operators["kinds"][number]
        key = name, tuple(re.findall(r"\[[\d,]+\]", arguments))
        sums.setdefault(key, _Sums()).add(kind, calls, time_ns / 1e3, calls * flops, calls * (read + written))
    return sums


def _theirs(trace: Path) -> dict[Key, _Sums]:
    sums: dict[Key, _Sums] = {}
    for row in rows_of_table(trace, "unified_perf_summary.csv"):
        key = row["name"], tuple(_shapes(row["Input Dims"]))[:_SHOWN]
        calls, kind = float(row["operation_count"]), row["op category"] * (row["has_perf_model"] == "True")
        names = ("Kernel Time (µs)_sum", "GFLOPS", "Data Moved (MB)")
        time_us, giga, mebi = (float(row[name] or 0) for name in names)
        sums.setdefault(key, _Sums()).add(kind, calls, time_us, calls * giga * 1e9, calls * mebi * 2**20)
    return sums


def _shapes(text: str) -> Iterator[str]:
    """Yield the shapes of a call that are no scalars."""
    for shape in ast.literal_eval(text or "()"):
        if shape and all(isinstance(size, int) for size in shape):
            yield f"[{','.join(map(str, shape))}]"
