"""The critical path: the chain of segments across ranks that decides the makespan, and sums to it exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import CollectiveType, NodeType, Workload
from ...errors import BackendError, ConfigError, did_you_mean
from ...support import bytes_text, duration_text
from .._result import Result
from ._choices import BREAKDOWNS

__all__ = [
    "SEGMENT_COLUMNS",
    "CriticalPath",
    "breakdown_of",
    "critical_path",
]

SEGMENT_COLUMNS = {
    "segment": "int64",
    "rank": "int32",
    "node_id": "int64",
    "name": "object",
    "kind": "object",
    "start_ns": "int64",
    "end_ns": "int64",
    "duration_ns": "int64",
    "reason": "object",
    "operator": "object",
    "module": "object",
    "collective": "object",
    "phase": "object",
}
_FACT_COLUMNS = (
    "node_id", "name", "type", "kind", "operator", "module", "phase", "comm_type", "comm_size_bytes", "group",
)  # fmt: skip


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The segments of the path, contiguous from 0 to *makespan_ns*, in time order.

    *program_of_rank* (int32) says which ranks do the same: those with the same number.
    """

    segments: pd.DataFrame
    makespan_ns: int
    program_of_rank: npt.NDArray[np.int32]

    @property
    def places(self) -> pd.MultiIndex:
        """The node of each segment, as (program, node id): it is the same on ranks that do the same."""
        programs = self.program_of_rank[self.segments["rank"].to_numpy()]
        places: pd.MultiIndex = pd.MultiIndex.from_arrays([programs, self.segments["node_id"]])
        return places

    def breakdown(self, by: str) -> pd.DataFrame:
        """Return ``key, duration_ns, share`` by one of `BREAKDOWNS`, largest first; sums to the makespan."""
        if by not in BREAKDOWNS:
            raise ConfigError(f"The path cannot be broken down by '{by}'{did_you_mean(by, BREAKDOWNS)}")
        keys = self.segments[by].astype(str) if by != "rank" else self.segments[by]
        sums = self.segments.groupby(keys.replace("", "(none)"))["duration_ns"].sum()
        return breakdown_of(sums, self.makespan_ns)


def breakdown_of(sums: pd.Series, makespan_ns: int) -> pd.DataFrame:
    """Return ``key, duration_ns, share`` of *sums* (ns) by key, the largest first."""
    table = pd.DataFrame({"key": sums.index, "duration_ns": sums.to_numpy(dtype="int64")})
    table["share"] = table["duration_ns"] / max(makespan_ns, 1)
    ordered: pd.DataFrame = table.sort_values(
        ["duration_ns", "key"], ascending=[False, True], ignore_index=True
    )
    return ordered


def critical_path(result: Result, workload: Workload) -> CriticalPath:
    """Return the critical path of *result*, whose programs are *workload*'s.

    Walks back from the node that ends last: to the node whose start began its end (for a collective, the
    straggler's), then to the node whose end let that one start, until time 0. Raises `BackendError` if the
    result has no nodes or its records contradict each other.
    """
    if result.nodes.empty:
        raise BackendError(
            f"The result of '{result.backend}' has no node times, so there is no critical path to walk; "
            "use another backend, such as 'analytical-unaware'."
        )
    steps = _walk(_Records(result.nodes), result.makespan_ns)
    facts = _Facts(workload)
    rows = [facts.describe(step) for step in steps if step.end_ns > step.start_ns]
    segments = pd.DataFrame(rows, columns=list(SEGMENT_COLUMNS)[1:])
    segments.insert(0, "segment", np.arange(len(segments)))
    programs = np.asarray(workload.program_of_rank, dtype=np.int32)
    return CriticalPath(segments.astype(SEGMENT_COLUMNS), result.makespan_ns, programs)


@dataclass(frozen=True)
class _Step:
    """One piece of the path: *node* of *rank* from *start_ns* to *end_ns*; node -1 is idle time."""

    rank: int
    node: int
    start_ns: int
    end_ns: int
    origin_rank: int
    origin_node: int
    own_start_ns: int
    cause: int
    cause_is_dependency: bool


class _Records:
    """The columns of a result's nodes, found by rank and node id."""

    def __init__(self, nodes: pd.DataFrame) -> None:
        order = np.lexsort((nodes["node_id"].to_numpy(), nodes["rank"].to_numpy()))
        self._columns = {name: nodes[name].to_numpy()[order] for name in nodes.columns}
        ranks = self._columns["rank"]
        last = int(ranks.max()) + 2
        self._bounds = np.searchsorted(ranks, np.arange(last))

    def __len__(self) -> int:
        return len(self._columns["rank"])

    def get(self, row: int, name: str) -> int:
        """Return one value of a row."""
        return int(self._columns[name][row])

    def last(self) -> int:
        """Return the row of the node that ends last: of several the first rank's that starts last."""
        ends = self._columns["end_ns"]
        tied = np.flatnonzero(ends == ends.max())
        order = np.lexsort((-self._columns["start_ns"][tied], self._columns["rank"][tied]))
        return int(tied[order[0]])

    def find(self, rank: int, node: int) -> int:
        """Return the row of *node* on *rank*; raises `BackendError` if there is none."""
        if 0 <= rank < len(self._bounds) - 1:
            low, high = int(self._bounds[rank]), int(self._bounds[rank + 1])
            row = low + int(np.searchsorted(self._columns["node_id"][low:high], node))
            if row < high and self.get(row, "node_id") == node:
                return row
        raise BackendError(
            f"The result refers to node {node} of rank {rank}, which it does not hold; run it again."
        )


def _walk(records: _Records, makespan_ns: int) -> list[_Step]:
    """Return the steps of the path in time order, from 0 to *makespan_ns* without a gap."""
    steps: list[_Step] = []
    row = records.last()
    until = makespan_ns
    for _ in range(2 * len(records) + 2):
        end = records.get(row, "end_ns")
        rank = records.get(row, "rank")
        if end < until:
            steps.append(_idle(rank, end, until))
        origin = records.find(records.get(row, "origin_rank"), records.get(row, "origin_node"))
        start = min(records.get(origin, "start_ns"), end)
        cause = records.get(origin, "cause_node")
        steps.append(_step(records, row, origin, start))
        until = start
        if cause < 0:
            if start > 0:
                steps.append(_idle(records.get(origin, "rank"), 0, start))
            return steps[::-1]
        row = records.find(records.get(origin, "rank"), cause)
    raise BackendError(
        "The recorded waits of the result form a cycle, so no critical path exists; run it again."
    )


def _step(records: _Records, row: int, origin: int, start: int) -> _Step:
    return _Step(
        rank=records.get(row, "rank"),
        node=records.get(row, "node_id"),
        start_ns=start,
        end_ns=records.get(row, "end_ns"),
        origin_rank=records.get(origin, "rank"),
        origin_node=records.get(origin, "node_id"),
        own_start_ns=records.get(row, "start_ns"),
        cause=records.get(origin, "cause_node"),
        cause_is_dependency=bool(records.get(origin, "cause_is_dependency")),
    )


def _idle(rank: int, start: int, end: int) -> _Step:
    return _Step(rank, -1, start, end, rank, -1, start, -1, False)


class _Facts:
    """What the workload knows about the nodes on the path."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._tables: dict[int, tuple[dict[int, int], dict[str, list[Any]]]] = {}

    def node(self, rank: int, node: int) -> dict[str, Any]:
        """Return the row of *node* on *rank*; raises `BackendError` if the workload is another one."""
        program = (
            int(self._workload.program_of_rank[rank]) if rank < len(self._workload.program_of_rank) else -1
        )
        if program >= 0:
            rows, columns = self._table(program)
            if node in rows:
                return {name: column[rows[node]] for name, column in columns.items()}
        raise BackendError(
            f"The result holds node {node} of rank {rank}, but the workload does not: they do not belong "
            "together; pass the workload that was simulated."
        )

    def _table(self, program: int) -> tuple[dict[int, int], dict[str, list[Any]]]:
        """Return the row of each node id, and the columns; made once, as a path may have a million nodes."""
        if program not in self._tables:
            table = self._workload.graphs[program].nodes
            columns = {name: table[name].tolist() for name in _FACT_COLUMNS}
            self._tables[program] = ({node: row for row, node in enumerate(columns["node_id"])}, columns)
        return self._tables[program]

    def describe(self, step: _Step) -> dict[str, Any]:
        """Return the segment of *step* as a row of `SEGMENT_COLUMNS`."""
        times = {"start_ns": step.start_ns, "end_ns": step.end_ns, "duration_ns": step.end_ns - step.start_ns}
        if step.node < 0:
            blank = dict.fromkeys(("operator", "module", "collective", "phase"), "")
            reason = f"Rank {step.rank} had nothing to run."
            return (
                {"rank": step.rank, "node_id": -1, "name": "idle", "kind": "idle", "reason": reason}
                | times
                | blank
            )
        facts = self.node(step.rank, step.node)
        return {
            "rank": step.rank,
            "node_id": step.node,
            "name": facts["name"],
            "kind": _kind(facts),
            "reason": self._reason(step, facts),
            "operator": facts["operator"] or facts["name"],
            "module": facts["module"],
            "collective": describe_collective(facts),
            "phase": facts["phase"],
        } | times

    def _reason(self, step: _Step, facts: dict[str, Any]) -> str:
        """Return why this piece of time could not begin earlier, as a sentence."""
        other = (step.origin_rank, step.origin_node) != (step.rank, step.node)
        if other:
            name = self.node(step.origin_rank, step.origin_node)["name"]
            waited = step.start_ns - step.own_start_ns
            lead = f"Waited {duration_text(waited)} for" if waited > 0 else "Was set off by"
            return f"{lead} rank {step.origin_rank} to reach '{name}' (node {step.origin_node})."
        if step.cause < 0:
            return "Could start at once, at time 0."
        cause = self.node(step.rank, step.cause)["name"]
        if step.cause_is_dependency:
            return f"Depends on '{cause}' (node {step.cause}) of the same rank."
        return f"Had to wait for its lane, which '{cause}' (node {step.cause}) held."


def _kind(facts: dict[str, Any]) -> str:
    if facts["type"] >= NodeType.COMM_SEND:
        return "communication"
    if facts["type"] in (NodeType.MEM_LOAD, NodeType.MEM_STORE):
        return "memory"
    return str(facts["kind"]) or "compute"


def describe_collective(facts: dict[str, Any]) -> str:
    """Return e.g. ``all_reduce of 12.3 MiB, all ranks`` for a node's facts, or "" without communication."""
    if facts["type"] < NodeType.COMM_SEND:
        return ""
    if facts["type"] == NodeType.COMM_COLL:
        kind = CollectiveType(int(facts["comm_type"])).name.lower()
        return collective_label(kind, int(facts["comm_size_bytes"]), facts["group"])
    size = bytes_text(max(int(facts["comm_size_bytes"]), 0))
    return f"{'send' if facts['type'] == NodeType.COMM_SEND else 'recv'} of {size}"


def collective_label(operation: str, size_bytes: int, group: int) -> str:
    """Return e.g. ``all_reduce of 12.3 MiB, all ranks``, as the path names a collective."""
    where = "all ranks" if group == 0 else f"group {group}"
    return f"{operation} of {bytes_text(max(size_bytes, 0))}, {where}"
