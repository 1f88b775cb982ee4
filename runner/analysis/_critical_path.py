"""The critical path: the chain of segments across ranks that adds up to the makespan exactly."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter import NodeType, Workload
from ...errors import BackendError, ConfigError, did_you_mean
from ...support import count_text, duration_text, share_text
from ...support.table import CodedColumns, Columns, Table, TextColumn, frame_of
from .._framed import sums_by
from .._notebook import Bar, Figure, bars, block, html_table
from .._result import Result
from .._traits import DEFAULT_BACKEND
from ._choices import BREAKDOWNS
from ._labels import short_name
from ._path_facts import NodeFacts, describe_collectives
from ._path_walk import Steps, measured_waits, path_steps

if TYPE_CHECKING:
    import pandas as pd

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
    "cause": "object",
    "place": "object",
}


_TEXTS = ("name", "kind", "operator", "module", "collective", "phase", "cause", "place")


@dataclass(frozen=True, eq=False)
class _Walk:
    """The *steps* of a critical path, and the names of the *awaited* nodes of the steps, if known."""

    steps: Steps
    workload: Workload
    awaited: TextColumn | None

    def reasons(self, rows: npt.NDArray[np.int64] | slice) -> list[str]:
        """Return why the segments in *rows* could not begin earlier."""
        chosen = {name: column[rows] for name, column in self.steps.items()}
        awaited = _awaited(chosen, self.workload) if self.awaited is None else self.awaited[rows]
        return _reasons(chosen, awaited)


@dataclass(frozen=True, eq=False)
class CriticalPath:
    """The segments of the critical path in order of time, without gaps from 0 to *makespan_ns*.

    *table* has the columns of :attr:`segments`. The column ``reason`` takes as long to compute as all other
    columns together. If it is missing, *walk* computes it at its first use. Ranks of equal *program_of_rank*
    (int32) run the same program.
    """

    table: Table
    makespan_ns: int
    program_of_rank: npt.NDArray[np.int32]
    walk: _Walk | None = None

    @classmethod
    def of_steps(cls, steps: Steps, workload: Workload, texts: dict[str, TextColumn]) -> CriticalPath:
        """Return the path of those *steps* that take time; *texts* are the text columns of their nodes."""
        walk = _Walk(steps, workload, texts.get("awaited"))
        programs = np.asarray(workload.program_of_rank, np.int32)
        return cls(Table.of(_segments(steps, texts)), int(steps["end_ns"].max(initial=0)), programs, walk)

    @cached_property
    def segments(self) -> pd.DataFrame:
        """The segments of the path, with the ``reason`` why each segment could not begin earlier."""
        columns = self.columns
        if "reason" not in columns and self.walk is not None:
            columns = columns | {"reason": TextColumn.of(self.walk.reasons(slice(None)))}
        return frame_of({name: columns[name] for name in SEGMENT_COLUMNS})

    @property
    def steps(self) -> Steps:
        """The steps from `path_steps` that take time."""
        assert self.walk is not None
        return self.walk.steps

    @property
    def causes(self) -> npt.NDArray[np.int64]:
        """The node of the same rank whose end let each segment begin, -1 if unknown."""
        if self.walk is None:
            return np.full(self.table.num_rows, -1, np.int64)
        return np.where(_is_other(self.steps), -1, self.steps["cause"])

    @property
    def texts(self) -> dict[str, TextColumn]:
        """The text columns of :attr:`columns`, and the name of the node that each segment ``awaited``."""
        assert self.walk is not None
        awaited = _awaited(self.steps, self.walk.workload)
        return {name: self.columns[name] for name in _TEXTS} | {"awaited": awaited}

    @property
    def unreasoned(self) -> pd.DataFrame:
        """The segments; ``reason`` is included only if it has been computed."""
        return self.table.frame()

    @property
    def columns(self) -> CodedColumns:
        """The columns of the segments; ``reason`` is included only if it has been computed."""
        return self.table.columns()

    def reason(self, row: int) -> str:
        """Return why the segment in *row* could not begin earlier."""
        if self.walk is None:
            return str(self.columns["reason"][row])
        return self.walk.reasons(np.array([row]))[0]

    @property
    def places(self) -> pd.MultiIndex:
        """The (program, node id) of each segment, the same for ranks that run one program."""
        import pandas as pd  # noqa: PLC0415

        programs = self.program_of_rank[self.columns["rank"]]
        places: pd.MultiIndex = pd.MultiIndex.from_arrays([programs, self.columns["node_id"]])
        return places

    def breakdown(self, by: str) -> pd.DataFrame:
        """Split the makespan *by* one of `BREAKDOWNS` into ``key, duration_ns, share``, largest first."""
        if by not in BREAKDOWNS:
            raise ConfigError(f"The path cannot be broken down by '{by}'{did_you_mean(by, BREAKDOWNS)}")
        return frame_of(breakdown_columns(self, by))

    def figure(self, by: str = "kind", most: int = 15) -> Figure:
        """Return a bar chart of the *most* largest parts of the breakdown *by* one of `BREAKDOWNS`."""
        rows = [
            Bar(
                str(row["key"]),
                0,
                row["duration_ns"],
                f"{duration_text(row['duration_ns'])}, {share_text(row['share'])}",
            )
            for row in self.breakdown(by).head(most).to_dict("records")
        ]
        return bars(rows, f"The critical path of {duration_text(self.makespan_ns)} by {by}")

    def _repr_html_(self) -> str:
        title = (
            f"Critical path: {duration_text(self.makespan_ns)} in {count_text(len(self.segments), 'segment')}"
        )
        longest = self.segments.nlargest(5, "duration_ns")
        shown = longest[["rank", "node_id", "name", "kind", "start_ns", "duration_ns", "reason"]]
        return block(title, html_table(self.breakdown("kind")), html_table(shown, "The longest segments"))


def breakdown_columns(path: CriticalPath, by: str) -> Columns:
    """Return the columns of `CriticalPath.breakdown`."""
    column = path.columns[by]
    sums: dict[Any, int] = {}
    for key, duration_ns in sums_by(path.columns["duration_ns"], column).items():
        name = key if by == "rank" else str(key) or "(none)"
        sums[name] = sums.get(name, 0) + duration_ns
    return breakdown_of(sums, path.makespan_ns, column.dtype if by == "rank" else object)


def breakdown_of(sums: Mapping[Any, int], makespan_ns: int, dtype: npt.DTypeLike = object) -> Columns:
    """Return ``key, duration_ns, share`` of *sums* (ns), largest first; keys have the type *dtype*."""
    ordered = sorted(sums.items(), key=lambda item: (-item[1], item[0]))
    durations = np.array([duration_ns for _, duration_ns in ordered], np.int64)
    return {
        "key": np.array([key for key, _ in ordered], dtype),
        "duration_ns": durations,
        "share": durations / max(makespan_ns, 1),
    }


def critical_path(result: Result, workload: Workload) -> CriticalPath:
    """Return the critical path of *result*, a simulation or replay of *workload*.

    The function walks back from the node that ends last to time 0. It goes from the end of a node to the
    start of the node that triggered this end (in a collective, a node of the straggler), and from there to
    the end of the node that allowed this start. Raises `BackendError` if the result has no nodes or its
    records contradict each other.
    """
    if not result.num_nodes:
        raise BackendError(
            f"The result of '{result.backend}' has no node times, so the critical path is unknown. Next: use "
            f"another backend, such as '{DEFAULT_BACKEND}'."
        )
    ends_ns = result.columns("ranks")["finish_ns"]
    if result.provenance.get("waits_for_peers"):  # the makespan is the period of a repeated step
        result = dataclasses.replace(result, makespan_ns=int(ends_ns.max()))
    sync, repeats = measured_waits(result, workload)
    steps = path_steps(result, sync, repeats=repeats)
    lasting = steps["end_ns"] > steps["start_ns"]
    kept = {name: column[lasting] for name, column in steps.items()}
    return CriticalPath.of_steps(kept, workload, _path_texts(kept, workload))


def _segments(steps: Steps, texts: dict[str, TextColumn]) -> CodedColumns:
    """Return all columns of the segments except ``reason``."""
    numbers: Columns = {
        "segment": np.arange(len(steps["rank"])),
        **{name: steps[name] for name in ("rank", "node_id", "start_ns", "end_ns")},
        "duration_ns": steps["end_ns"] - steps["start_ns"],
    }
    columns = {name: column.astype(SEGMENT_COLUMNS[name], copy=False) for name, column in numbers.items()}
    return {name: (columns | texts)[name] for name in SEGMENT_COLUMNS if name != "reason"}


def _path_texts(steps: Steps, workload: Workload) -> dict[str, TextColumn]:
    """Return the text columns of the nodes of *steps* from *workload*."""
    count = len(steps["rank"])
    busy = np.flatnonzero(steps["node_id"] >= 0)
    facts = NodeFacts(workload, steps["rank"][busy], steps["node_id"][busy])
    types = facts.numbers("type")
    described = {name: facts.texts(name) for name in ("name", "module", "phase", "cause", "place")}
    described |= {
        "kind": _kinds(types, facts.texts("kind")),
        "operator": facts.texts("operator").filled(described["name"]),
        "collective": describe_collectives(
            workload.metadata,
            types,
            *(facts.numbers(name) for name in ("comm_type", "comm_size_bytes", "group")),
        ),
    }
    return {
        name: column.placed(busy, count, "idle" if name in ("name", "kind") else "")
        for name, column in described.items()
    }


def _kinds(types: npt.NDArray[np.int64], kinds: TextColumn) -> TextColumn:
    """Return each node's kind of work: by node type, and for computation by the column ``kind``."""
    texts = [*(text or "compute" for text in kinds.texts), "communication", "memory"]
    is_memory = np.isin(types, [NodeType.MEM_LOAD, NodeType.MEM_STORE])
    of_compute = np.where(is_memory, len(texts) - 1, kinds.numbers)
    numbers = np.where(types >= NodeType.COMM_SEND, len(texts) - 2, of_compute)
    return TextColumn(numbers.astype(np.int32), texts)


def _awaited(steps: Steps, workload: Workload) -> TextColumn:
    """Return the name of the node that delayed the start of each step, "" if there is none."""
    asked = np.flatnonzero((steps["node_id"] >= 0) & (_is_other(steps) | (steps["cause"] >= 0)))
    own = {name: column[asked] for name, column in steps.items()}
    other = _is_other(own)
    nodes = np.where(other, own["origin_node"], own["cause"])
    ranks = np.where(other, own["origin_rank"], own["rank"])
    return NodeFacts(workload, ranks, nodes).texts("name").placed(asked, len(steps["rank"]))


def _is_other(steps: Steps) -> npt.NDArray[np.bool_]:
    """Return a mask of the steps that another node ended."""
    other: npt.NDArray[np.bool_] = (steps["origin_rank"] != steps["rank"]) | (
        steps["origin_node"] != steps["node_id"]
    )
    return other


def _reasons(steps: Steps, awaited: TextColumn) -> list[str]:
    """Return a sentence per step: why it could not begin earlier."""
    other = _is_other(steps)
    columns = zip(
        other.tolist(),
        awaited.tolist(),
        np.where(other, steps["origin_node"], steps["cause"]).tolist(),
        np.where(other, steps["origin_rank"], steps["rank"]).tolist(),
        (steps["start_ns"] - steps["own_start_ns"]).tolist(),
        steps["cause_is_dependency"].tolist(),
        strict=True,
    )
    return [
        _reason(*row) if node >= 0 else f"Rank {rank} {'had nothing to run' if start_ns else 'began later'}."
        for rank, node, start_ns, row in zip(
            *(steps[name].tolist() for name in ("rank", "node_id", "start_ns")), columns, strict=True
        )
    ]


def _reason(other: bool, name: str, node: int, rank: int, waited_ns: int, is_dependency: bool) -> str:  # noqa: PLR0917
    """Return a phrase that the step waited for *node* of *rank*, called *name*."""
    name = short_name(name)
    if other:
        lead = f"Waited {duration_text(waited_ns)} for" if waited_ns > 0 else "Was triggered by"
        return f"{lead} rank {rank} to reach '{name}' (node {node})."
    if node < 0:
        return "Could start immediately, at time 0."
    if is_dependency:
        return f"Depends on '{name}' (node {node}) of the same rank."
    return f"Waited for its lane, which '{name}' (node {node}) occupied."
