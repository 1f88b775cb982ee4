"""Add up the time of each stream of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import NodeType
from ...converter.building import DEVICE_LANE
from ...converter.chakra import KINDS
from ._lanes import is_communication, lane_table

if TYPE_CHECKING:
    from ._run import RunAnalysis

__all__ = ["stream_table"]

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_NODES = ("type", "kind", "is_cpu_op", "stream", "start_ns", "end_ns")
_KEYS = ["comm", "stream"]
_CLASSES = ("compute", "communication", "copy")
_COLUMNS = (
    "rank",
    "device",
    "stream",
    "nodes",
    "start_ns",
    "span_ns",
    "compute_ns",
    "comm_ns",
    "copy_ns",
    "idle_ns",
)


def stream_table(run: RunAnalysis) -> pd.DataFrame:
    """Return a row for each rank and stream of its device, and for each lane of its communication.

    ``compute_ns``, ``comm_ns``, ``copy_ns`` and ``idle_ns`` add up to ``span_ns``, from the start of the
    first of its *nodes* to the end of the last. Where nodes of one stream overlap, computation counts first,
    then communication. ``device`` is -1 for what is on the lane of no device.
    """
    ranks = run.result.columns("ranks")["rank"].tolist()
    rows = [row for rank in ranks for row in _streams_of(rank, run.coded_nodes_of(rank, _NODES))]
    table: pd.DataFrame = pd.DataFrame(rows, columns=[*_COLUMNS])
    return table


def _streams_of(rank: int, nodes: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of the table for one rank."""
    comm = is_communication(nodes["type"])
    kind = nodes["kind"].astype(object)
    kind = kind.where(kind.isin(KINDS), "compute").mask(comm, "communication")
    on_device = comm | ((nodes["type"] == NodeType.COMP) & ~nodes["is_cpu_op"].astype(bool))
    works = nodes.assign(comm=comm, kind=kind)[on_device & kind.isin(_CLASSES)]
    groups = list(works.groupby(_KEYS, sort=True))
    if not groups:
        return []
    keys = pd.DataFrame([key for key, _ in groups], columns=_KEYS)
    labels = lane_table(keys.assign(rank=rank, measured=False))["label"]
    devices = (keys["stream"] // DEVICE_LANE - 1).mask(keys["comm"], -1)
    return [
        {"rank": rank, "device": device, "stream": label} | _times(own)
        for device, label, (_, own) in zip(devices.tolist(), labels, groups, strict=True)
    ]


def _times(works: pd.DataFrame) -> dict[str, int]:
    """Return how the time of a stream is divided."""
    start, end = works["start_ns"].to_numpy(np.int64), works["end_ns"].to_numpy(np.int64)
    first_ns, span_ns = int(start.min()), int(end.max() - start.min())
    chosen, counted_ns, times = np.zeros(len(works), bool), 0, {}
    for kind, name in zip(_CLASSES, ("compute_ns", "comm_ns", "copy_ns"), strict=True):
        chosen |= (works["kind"] == kind).to_numpy()
        covered_ns = _covered_ns(start[chosen], end[chosen])
        times[name], counted_ns = covered_ns - counted_ns, covered_ns
    return {"nodes": len(works), "start_ns": first_ns, "span_ns": span_ns, **times,
            "idle_ns": span_ns - counted_ns}  # fmt: skip


def _covered_ns(start: Ints, end: Ints) -> int:
    """Return how long at least one of the intervals lasts."""
    order = np.argsort(start, kind="stable")
    start, until = start[order], np.maximum.accumulate(end[order])
    before = np.append(start[:1], until[:-1])
    return int(np.maximum(until - np.maximum(start, before), 0).sum())
