"""Durations of nodes in two results: columns, read rank by rank; names on request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.chakra import TextColumn
from ...support.table import Columns
from .._result import Result
from ._path_facts import coded_facts
from ._schedule import Ints, NodePlaces

if TYPE_CHECKING:
    import pandas as pd

_TIMES = ["start_ns", "end_ns"]


class NodeDifferences:
    """Every common node of two results, in order of rank and node id; *order* is worst first."""

    def __init__(self, columns: Columns, workload: Workload) -> None:
        self.columns = columns
        self.order = worst_first(columns["delta_ns"])
        self._workload = workload

    def __len__(self) -> int:
        return len(self.order)

    def texts(self, rows: Ints, names: Sequence[str]) -> dict[str, TextColumn]:
        """Return the names of *rows* from the workload."""
        kept, place = (np.unique(rows, return_inverse=True)) if len(rows) < len(self) else (slice(None), rows)
        facts = coded_facts(self._workload, self.columns["rank"][kept], self.columns["node_id"][kept], names)
        return {name: column[place] for name, column in facts.items()}

    def errors(self) -> pd.DataFrame:
        """Return ``kind, base_ns, relative`` of all, worst first, for the distribution of errors."""
        import pandas as pd  # noqa: PLC0415 - which the other answers do without

        kinds = self.texts(self.order, ["kind"])["kind"]
        names = sorted(kinds.texts)
        place = np.array([names.index(text) for text in kinds.texts], np.int64)
        codes: Ints = place[kinds.numbers] if len(place) else kinds.numbers
        numbers = {name: self.columns[name][self.order] for name in ("base_ns", "relative")}
        table: pd.DataFrame = pd.DataFrame(
            {"kind": pd.Categorical.from_codes(codes, pd.Index(names)), **numbers}
        )
        return table


def difference_columns(
    base: Result, other: Result, *, relative_to_other: bool, unlike: tuple[Ints, Ints]
) -> Columns:
    """Return ``rank, node_id, base_ns, other_ns, delta_ns, relative`` of the common nodes.

    *relative* is the difference over the base's or the other's time; nodes in *unlike* (ranks and ids) have
    none.
    """
    parts: list[Columns] = [dict.fromkeys(("node_id", "base_ns", "other_ns"), np.empty(0, np.int64))]
    ranks, counts = [], []
    for rank, first, second in _common_ranks(base, other):
        ids, here, there = _common(first["node_id"], second["node_id"])
        base_ns, other_ns = (
            (nodes["end_ns"] - nodes["start_ns"])[rows] for nodes, rows in ((first, here), (second, there))
        )
        parts.append({"node_id": ids, "base_ns": base_ns, "other_ns": other_ns})
        ranks.append(rank)
        counts.append(len(ids))
    columns = {name: np.concatenate([part.pop(name) for part in parts]) for name in [*parts[0]]}
    columns = {"rank": np.repeat(np.array(ranks, np.int32), counts), **columns}
    columns["delta_ns"] = columns["other_ns"] - columns["base_ns"]
    reference = columns["other_ns" if relative_to_other else "base_ns"]
    columns["relative"] = columns["delta_ns"] / np.maximum(reference, 1)
    places = NodePlaces.of(columns["node_id"], dict(zip(ranks, counts, strict=True)))
    rows = places.rows(*unlike)
    columns["relative"][rows[rows >= 0]] = np.nan
    return columns


def worst_first(delta_ns: Ints) -> Ints:
    """Return the rows, the largest difference first."""
    return np.argsort(-np.abs(delta_ns), kind="stable")


def _common_ranks(base: Result, other: Result) -> Iterator[tuple[int, Columns, Columns]]:
    """Yield each common rank with its nodes in both results."""
    others = other.table("nodes").by_rank(_TIMES)
    reached, theirs = next(others, (None, {}))
    for rank, nodes in base.table("nodes").by_rank(_TIMES):
        while reached is not None and reached < rank:
            reached, theirs = next(others, (None, {}))
        if reached is None:
            return
        if reached == rank:
            yield rank, nodes, theirs


def _common(
    first: Ints, second: Ints
) -> tuple[Ints, npt.NDArray[np.intp] | slice, npt.NDArray[np.intp] | slice]:
    """Return the common ids in ascending order, and their rows in each."""
    if np.array_equal(first, second):
        return first, slice(None), slice(None)
    return np.intersect1d(first, second, assume_unique=True, return_indices=True)
