"""The times and lanes of all nodes of a run, as columns sorted by rank and node id."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from ...converter import NodeType, Workload
from ...support.table import Columns, Ints, positions
from .._result import Result
from .._sync_points import SyncPoints
from ._path_facts import NodeFacts

_TIMES = ["start_ns", "end_ns", "cause_node", "origin_rank", "origin_node"]


class Schedule:
    """The nodes of *result*, a simulation or replay of *workload*, one per row.

    *start* and *end* are a row's interval. *cause* is the node, as an index within the rank, that let the row
    start (-1: none). *type* is the node type. *lane* runs one node at a time (-1: none). *others* are the
    rows that ended because another row started, and *origins* are these other rows. *room* is the time from a
    row's end to the end of the last row. *sync* is given for a measured result: waits come from it, and times
    are on the clock of the rank that ends last. Raises `BackendError` for a node that the workload lacks.
    """

    def __init__(self, result: Result, workload: Workload, sync: SyncPoints | None = None) -> None:
        semantics = result.provenance.get("options", {}).get("semantics", "astra-sim")
        parts: dict[str, list[npt.NDArray[np.generic]]] = {}
        self.bounds: dict[int, tuple[int, int]] = {}
        count = 0
        for rank, nodes in result.table("nodes").by_rank(_TIMES):
            for name, column in _of_rank(rank, nodes, workload, semantics).items():
                parts.setdefault(name, []).append(column)
            self.bounds[rank] = (count, count + len(nodes["node_id"]))
            count += len(nodes["node_id"])
        whole = {name: np.concatenate(parts.pop(name)) for name in [*parts]}
        self.node_id: Ints = whole["node_id"]
        self.start: Ints = whole["start"]
        self.end: Ints = whole["end"]
        self.cause: npt.NDArray[np.int32] = whole["cause"]
        self.type: npt.NDArray[np.int16] = whole["type"]
        self.lane: Ints = whole["lane"]
        self.shift_ns: Ints = np.zeros(max(self.bounds) + 1, np.int64)  # offset of each rank's clock
        self.room: Ints = self.end.max(initial=0) - self.end
        if sync is None:
            self.others, self.origins = self._origins(whole)
        else:
            self._shift(sync)
            self.others, self.origins = self._measured_origins(sync)

    def __len__(self) -> int:
        return len(self.node_id)

    def rows(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the row of each node, -1 for a missing node."""
        result = np.full(len(ranks), -1, np.int64)
        order = np.argsort(ranks, kind="stable")
        for chosen in np.split(order, np.flatnonzero(np.diff(ranks[order])) + 1) if len(order) else ():
            low, high = self.bounds.get(int(ranks[chosen[0]]), (0, 0))
            place = positions(self.node_id[low:high], node_ids[chosen])
            result[chosen] = np.where(place >= 0, place + low, -1)
        return result

    def _origins(self, whole: Columns) -> tuple[Ints, Ints]:
        """Return the rows that ended because another row started, and those other rows."""
        first = np.repeat([low for low, _ in self.bounds.values()], whole["foreign_count"])
        rows = whole["foreign"] + first
        origins = self.rows(whole["origin_rank"], whole["origin_node"])
        return rows[origins >= 0], origins[origins >= 0]

    def _shift(self, sync: SyncPoints) -> None:
        """Move each rank's times to the clock of the rank that ends last, as `path_steps` does.

        After this, no rank may end later than the reference rank, or take longer than the reference rank does
        on its own clock.
        """
        longest = int(self.end.max())
        ranks = self.ranks()
        self.shift_ns = sync.begin_ns - sync.begin_ns[ranks[np.argmax(self.end)]]
        self.start, self.end = self.start + self.shift_ns[ranks], self.end + self.shift_ns[ranks]
        self.room = np.maximum(np.minimum(self.room, longest - self.end), 0)

    def _measured_origins(self, sync: SyncPoints) -> tuple[Ints, Ints]:
        """Return the rows that waited for another rank (by *sync*), and the rows that arrived last."""
        waited = []
        for rank, (low, high) in self.bounds.items():
            places, ranks, nodes = sync.awaited_by(rank, self.node_id[low:high])
            waited.append((places + low, ranks, nodes))
        rows, ranks, nodes = (np.concatenate(column) for column in zip(*waited, strict=True))
        origins = self.rows(ranks, nodes)
        return rows[origins >= 0], origins[origins >= 0]

    def ranks(self) -> npt.NDArray[np.int32]:
        """Return the rank of each row."""
        counts = [high - low for low, high in self.bounds.values()]
        return np.repeat(np.array([*self.bounds], np.int32), counts)


def _of_rank(rank: int, nodes: Columns, workload: Workload, semantics: str) -> Columns:
    ids = nodes["node_id"]
    facts = NodeFacts(workload, np.full(len(ids), rank), ids)
    types = facts.numbers("type")
    if semantics == "trace":
        lane = facts.numbers("stream")
    else:  # ASTRA-sim's resource model has slots for CPU, accelerator and communication
        lane = np.where(facts.numbers("is_cpu_op") != 0, 0, np.where(types == NodeType.COMP, 1, 2))
    lane[types == NodeType.COMM_RECV] = -1
    foreign = np.flatnonzero((nodes["origin_rank"] != rank) | (nodes["origin_node"] != ids))
    return {
        "node_id": ids.astype(np.int64, copy=False),
        "start": nodes["start_ns"].astype(np.int64, copy=False),
        "end": nodes["end_ns"].astype(np.int64, copy=False),
        "cause": positions(ids, nodes["cause_node"]).astype(np.int32),
        "type": types.astype(np.int16),
        "lane": lane,
        "foreign": foreign,
        "foreign_count": np.array([len(foreign)]),
        "origin_rank": nodes["origin_rank"][foreign],
        "origin_node": nodes["origin_node"][foreign],
    }
