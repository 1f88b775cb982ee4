"""Compare operators and synchronisation of a trace with the figures of TraceLens and HTA."""

from __future__ import annotations

import ast
import csv
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from gpu_intervals import CLASSES, DeviceEvents

from chakrascope.converter import EdgeKind, Workload

__all__ = ["Agreement", "Edges", "Expected", "agreements", "compare_edges", "expected_of", "modelled_shares"]

csv.field_size_limit(1 << 30)  # a cell lists the kernels of an operator

# HTA's times are floating-point microseconds since 1970, with errors of up to 0.25 us.
_CLOSE_NS = 1_500
_SYNCS = (EdgeKind.EVENT_SYNC, EdgeKind.COMM_WAIT)


@dataclass(frozen=True)
class Edges:
    """The number of HTA's edges that the graph has (directly or not) or lacks, and its own edges."""

    theirs: int
    missing: tuple[str, ...]
    ours: int


def compare_edges(
    pairs: Sequence[Sequence[int]], trace: Mapping[str, Any], events: DeviceEvents, workload: Workload
) -> Edges:
    """Compare HTA's *pairs* (start of source, start of target) with the first graph of *workload*.

    *events* are those device events of *trace* that were converted.
    """
    nodes = workload.graphs[0].nodes
    device = ~nodes["is_cpu_op"].to_numpy(bool) & nodes["kind"].isin(CLASSES).to_numpy(bool)
    start = nodes["measured_start_ns"].to_numpy(np.int64)
    start = start + int(events.start.min()) - int(start[device].min())
    end = start + nodes["duration_ns"].to_numpy(np.int64)
    links = workload.graphs[0].edges
    after = defaultdict(list)
    for source, target in zip(links["src"].tolist(), links["dst"].tolist(), strict=True):
        after[source].append(target)
    calls = {
        round(event["ts"] * 1000): event
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and "cuda_" in str(event.get("cat"))
    }
    missing = []
    for source_ns, target_ns in pairs:
        sources = np.flatnonzero(device & (abs(start - source_ns) <= _CLOSE_NS))
        targets = np.flatnonzero(device & (abs(start - target_ns) <= _CLOSE_NS))
        name = "a kernel"
        if not len(targets):
            call = min(calls.values(), key=lambda event: abs(event["ts"] * 1000 - target_ns))
            name = str(call["name"])
            until = (call["ts"] + call["dur"]) * 1000 + _CLOSE_NS
            # Work after the steps' own time is placed at the end of this time.
            reached = min(target_ns, int(end.max()))
            targets = np.flatnonzero(~device & (end >= reached) & (start <= until))
        if not _reaches(sources.tolist(), set(targets.tolist()), after):
            missing.append(f"{nodes['name'].iloc[int(sources[0])] if len(sources) else 'nothing'} -> {name}")
    kinds = np.isin(links["kind"].to_numpy(), [int(kind) for kind in _SYNCS])
    own = kinds | (device[links["src"].to_numpy()] & ~device[links["dst"].to_numpy()])
    return Edges(len(pairs), tuple(missing), int(own.sum()))


def _reaches(sources: list[int], targets: set[int], after: Mapping[int, list[int]]) -> bool:
    seen, waiting = set(sources), list(sources)
    while waiting:
        for node in after.get(waiting.pop(), ()):
            if node in targets:
                return True
            if node not in seen:
                seen.add(node)
                waiting.append(node)
    return False


@dataclass(frozen=True)
class Expected:
    """TraceLens's figures of a trace: times in ns by name, and the number of kernels, -1 if missing.

    Tables that list recomputed kernels separately exclude these from the busy time and overlap of other
    kernels. For such tables, only total computation and communication are compared.
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
    """Yield the folders that may hold tables of *trace*: named after it, or next to a single trace."""
    stem = trace.name.removesuffix(".gz").removesuffix(".json")
    yield from sorted(trace.parent.glob(f"{stem}*_csvs"))
    yield trace.parent / "perf_csvs"


def _rows(path: Path) -> Iterator[dict[str, str]]:
    if path.is_file():
        with path.open(encoding="utf-8-sig", newline="") as file:
            yield from csv.DictReader(file)


Key = tuple[str, tuple[str, ...]]
_ALIKE = 0.01
_SHOWN = 3  # number of tensors of a call that Chakrascope's table names
_PRODUCTS = ("gemm", "attention")
# For other classes, TraceLens counts one operation per element. For normalizations and convolutions, it
# counts a different number of passes over the tensors.
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
