"""Add up the time of each stream of a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ...converter.chakra import DEVICE_LANE
from ._busy_time import BUSY_KINDS, busy_kinds, exclusive_ns
from ._lanes import is_communication, lane_table

if TYPE_CHECKING:
    from ._run import RunAnalysis

__all__ = ["stream_table"]

_NODES = ("type", "kind", "is_cpu_op", "stream", "start_ns", "end_ns")
_KEYS = ["comm", "stream"]
_TIMES = ("compute_ns", "comm_ns", "copy_ns")  # of `BUSY_KINDS`
_COLUMNS = (
    "rank",
    "device",
    "stream",
    "nodes",
    "start_ns",
    "span_ns",
    *_TIMES,
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
    kind = busy_kinds(nodes)
    works = nodes.assign(comm=is_communication(nodes["type"]), kind=kind)[kind != ""]
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
    own = exclusive_ns(start, end, works["kind"])
    times = {
        name: int(own[works["kind"] == kind].sum()) for kind, name in zip(BUSY_KINDS, _TIMES, strict=True)
    }
    return {"nodes": len(works), "start_ns": first_ns, "span_ns": span_ns, **times,
            "idle_ns": span_ns - sum(times.values())}  # fmt: skip
