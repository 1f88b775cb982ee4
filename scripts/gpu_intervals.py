"""Read the device events of a Kineto trace without the converter, and sum up their intervals."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["DeviceEvents", "Times", "device_events", "read_trace", "times_of", "trimmed"]

CLASSES = ("compute", "communication", "copy")
_CATEGORIES = {"kernel": "", "gpu_memcpy": "copy", "gpu_memset": "copy", "memcpy": "copy", "memset": "copy"}
# Kernel names from the sources of the libraries, independent of the product's table: NCCL and RCCL, oneCCL,
# DeepEP, NVSHMEM, PyTorch's symmetric memory, and the all-reduces of vLLM, SGLang, TensorRT-LLM, FlashInfer,
# AITER and MSCCL++.
_COMMUNICATION = re.compile(
    r"^nccl|rccl|oneccl|deep_ep::|dpsk::ep::|nvshmem|^mscclpp|cross_device_reduce|one_shot_all_reduce|two_shot_all_reduce"
    r"|multimem_all_reduce|multimem_one_shot|allreduce_fusion|lamport|oneshotAllreduce|twoShotAllReduce",
    re.IGNORECASE,
)
_LAUNCHES = ("cuda_runtime", "cuda_driver", "runtime", "hip_runtime")
Intervals = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Times:
    """The time of a device in ns.

    Overlapping time counts for the first kind, so the time of later kinds is exposed. *count* is the number
    of kernels, copies and memory sets, and *kernels* is the number of kernels.
    """

    count: int
    kernels: int
    span_ns: int
    compute_ns: int
    exposed_comm_ns: int
    exposed_copy_ns: int
    idle_ns: int
    comm_ns: int
    overlap_ns: int

    @property
    def busy_ns(self) -> int:
        """The time during which the device was busy."""
        return self.span_ns - self.idle_ns


@dataclass(frozen=True)
class DeviceEvents:
    """Kernels, copies and memory sets of a trace: ``start_ns, end_ns``, class, and the ns of their launch.

    *launched* is -1 if the file does not link an event with its launch. *graph* marks events of a CUDA graph.
    """

    start: Intervals
    end: Intervals
    kind: npt.NDArray[np.int8]
    launched: Intervals
    graph: npt.NDArray[np.bool_]
    rows: npt.NDArray[np.int64]

    def of(self, rows: npt.NDArray[np.bool_]) -> DeviceEvents:
        """Return the device events at the positions *rows*."""
        return DeviceEvents(**{name: column[rows] for name, column in vars(self).items()})

    def within(self, begin_ns: int, end_ns: int) -> DeviceEvents:
        """Return the parts of the events inside an interval, in ns after the first event."""
        first = int(self.start.min()) if len(self.start) else 0
        begin, end = first + begin_ns, first + end_ns
        start, stop = np.maximum(self.start, begin), np.minimum(self.end, end)
        return replace(self, start=start, end=stop).of(start < stop)


def read_trace(path: Path) -> dict[str, Any] | None:
    """Return the trace in *path*, or None for other JSON. Raises ValueError for a damaged file."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    data = json.loads(content)
    return data if isinstance(data, dict) and isinstance(data.get("traceEvents"), list) else None


def device_events(trace: Mapping[str, Any]) -> DeviceEvents:
    """Return the device events of *trace*, by start."""
    events = trace["traceEvents"]
    launches = _launches(events)
    found = []
    for row, event in enumerate(events):
        category = str(event.get("cat", "")).lower()
        if event.get("ph") != "X" or category not in _CATEGORIES or "ts" not in event:
            continue
        start = _ns(event["ts"])
        kind = CLASSES.index(_CATEGORIES[category] or _class(str(event.get("name", ""))))
        launched, graph = _launch_of(event.get("args") or {}, launches)
        found.append((start, start + _ns(event.get("dur", 0)), kind, launched, graph, row))
    found.sort()
    columns = list(zip(*found, strict=True)) or [()] * 6
    start, end, kind, launched, graph, rows = columns
    return DeviceEvents(
        np.array(start, np.int64),
        np.array(end, np.int64),
        np.array(kind, np.int8),
        np.array(launched, np.int64),
        np.array(graph, bool),
        np.array(rows, np.int64),
    )


def _class(name: str) -> str:
    return "communication" if _COMMUNICATION.search(name) else "compute"


def _launches(events: Iterable[Mapping[str, Any]]) -> dict[tuple[str, Any], tuple[int, bool]]:
    """Return the launch time of each correlation and External id, and whether a graph launched it."""
    launches: dict[tuple[str, Any], tuple[int, bool]] = {}
    for event in events:
        if event.get("ph") == "X" and str(event.get("cat", "")).lower() in _LAUNCHES:
            arguments = event.get("args") or {}
            graph = "GraphLaunch" in str(event.get("name", ""))
            for key in ("correlation", "External id"):
                if arguments.get(key) is not None:
                    launches.setdefault((key, arguments[key]), (_ns(event["ts"]), graph))
    return launches


def _launch_of(
    arguments: Mapping[str, Any], launches: Mapping[tuple[str, Any], tuple[int, bool]]
) -> tuple[int, bool]:
    for key in ("correlation", "External id"):
        found = launches.get((key, arguments.get(key)))
        if found is not None:
            return found
        if arguments.get(key) is not None:
            break
    return -1, False


def _ns(us: float) -> int:
    return round(float(us) * 1000)


def times_of(start: Intervals, end: Intervals, kind: npt.NDArray[np.int8]) -> Times:
    """Return the plain sums of the intervals: computation first, then communication, then copies."""
    if not len(start):
        return Times(0, 0, 0, 0, 0, 0, 0, 0, 0)
    covered = [0]
    for upto in range(len(CLASSES)):
        rows = kind <= upto
        covered.append(_union_ns(start[rows], end[rows]))
    compute, comm, copy = np.diff(covered).tolist()
    alone = _union_ns(start[kind == 1], end[kind == 1])
    span = int(end.max() - start.min())
    kernels = int((kind != CLASSES.index("copy")).sum())
    return Times(len(start), kernels, span, compute, comm, copy, span - covered[-1], alone, alone - comm)


def _union_ns(start: Intervals, end: Intervals) -> int:
    """Return the total time covered by at least one interval."""
    if not len(start):
        return 0
    order = np.argsort(start, kind="stable")
    start, end = start[order], end[order]
    reached = np.maximum.accumulate(end)
    begin = np.maximum(start, np.concatenate(([start[0]], reached[:-1])))
    return int(np.maximum(end - begin, 0).sum())


def trimmed(trace: Mapping[str, Any], dropped: Collection[int]) -> dict[str, Any]:
    """Return *trace* without the events at the positions *dropped*."""
    kept = [event for row, event in enumerate(trace["traceEvents"]) if row not in dropped]
    return {**trace, "traceEvents": kept}
