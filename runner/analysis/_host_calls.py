"""Host calls in the captured step, and the host work that a node waited for."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ...converter import NodeType, Workload
from ...converter.chakra import DEVICE_LANE
from ...converter.readers import HostCalls, read_host_calls
from ...errors import TraceError
from ...tracer import TraceSet
from ..study import Study

if TYPE_CHECKING:
    import pandas as pd

_KEPT_RANKS = 6


class CapturedCalls:
    """The host calls of each rank in the captured step, as long as its traces exist."""

    def __init__(self, study: Study, workload: Workload) -> None:
        self._facts = workload.metadata
        self._files = _files(study, workload)
        self._kept: OrderedDict[int, HostCalls | None] = OrderedDict()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._files)

    @property
    def size_bytes(self) -> int:
        """The size of all ranks' device traces on disk, in bytes."""
        return sum(trace.stat().st_size for trace, _ in self._files.values() if trace.is_file())

    def of_rank(self, rank: int) -> HostCalls | None:
        """Return the host calls of *rank*, cached for recent ranks; None if no trace has them.

        Raises `TraceError` or `TraceFormatError` for unreadable traces.
        """
        with self._lock:
            if rank not in self._kept:
                self._kept[rank] = self._read(rank)
                while len(self._kept) > _KEPT_RANKS:
                    self._kept.popitem(last=False)
            return self._kept[rank]

    def around(self, node: Mapping[str, Any]) -> list[str]:
        """Return the host calls around a host *node* (see `HostCalls.around`)."""
        began = int(node["measured_start_ns"])
        on_host = int(node["stream"]) < DEVICE_LANE and int(node["type"]) == NodeType.COMP
        calls = self.of_rank(int(node["rank"])) if on_host and began >= 0 else None
        return [] if calls is None else calls.around(began, began + int(node["duration_ns"]))

    def _read(self, rank: int) -> HostCalls | None:
        _, end_ns = captured_interval(self._facts, rank)
        began = self._facts.get("began_ns")
        began_ns = began.get(str(rank)) if isinstance(began, Mapping) else None
        if rank not in self._files or not isinstance(began_ns, int) or not end_ns:
            return None
        return read_host_calls(*self._files[rank], began_ns, began_ns + end_ns)


def captured_interval(metadata: Mapping[str, Any], rank: int) -> tuple[int, int]:
    """Return the start and end of the captured steps in the measured times of *rank*; (0, 0) if unknown.

    A device may begin a step after the host. In this case, the step also ends later on the device.
    """
    shares, lasted = (metadata.get(name) for name in ("step_shares", "measured_step_ns"))
    own = shares.get(str(rank)) if isinstance(shares, Mapping) else None
    if own:
        return min(int(start) for _, start, _ in own), max(int(end) for _, _, end in own)
    return 0, int(lasted.get(str(rank), 0)) if isinstance(lasted, Mapping) else 0


def _files(study: Study, workload: Workload) -> dict[int, tuple[Path, Path | None]]:
    """Return the existing device trace and evidence file of each captured rank of *workload*."""
    facts = workload.metadata
    name, elsewhere = facts.get("trace_set"), facts.get("device_traces")
    if isinstance(elsewhere, Mapping):
        files = {int(rank): Path(str(path)) for rank, path in elsewhere.items() if str(rank).isdecimal()}
        return {rank: (path, None) for rank, path in files.items() if path.is_file()}
    if "began_ns" not in facts or name not in study.trace_sets():
        return {}
    with suppress(TraceError):
        traces = TraceSet.load(study.trace_dir(str(name)))
        return {
            entry.rank: (
                traces.path / entry.device_trace,
                traces.path / entry.evidence if entry.evidence else None,
            )
            for entry in traces.ranks
            if entry.device_trace
        }
    return {}


def host_cause(nodes: pd.DataFrame, node_id: int) -> int:
    """Follow the causes of a node's start back to the first host work; -1 if there is none.

    *nodes* are the nodes of the same rank.
    """
    ids, causes = (nodes[name].to_numpy(np.int64) for name in ("node_id", "cause_node"))
    on_host = (nodes["kind"] == "host").to_numpy()
    order = np.argsort(ids, kind="stable")

    def row_of(node: int) -> int:
        place = int(np.searchsorted(ids, node, sorter=order))
        return int(order[place]) if place < len(ids) and ids[order[place]] == node else -1

    row = row_of(node_id)
    while row >= 0:
        row = row_of(int(causes[row]))
        if row >= 0 and on_host[row]:
            return int(ids[row])
    return -1
