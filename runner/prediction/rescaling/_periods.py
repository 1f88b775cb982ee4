"""Repeat a part of a graph: a micro-batch, or a layer that is numbered in its module path."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....converter.chakra import Column, Graph, NodeType, Workload
from ....errors import WorkloadError

Label = tuple[object, ...]
# Idle gaps, and the time of an operator between its callees, become nodes if they are long enough. Periods
# that are equal in all other nodes may differ in these nodes.
_BETWEEN = "between"


@dataclass(frozen=True)
class Period:
    """A period: rows ``[begin, end)`` of a graph, with *labels* that correspond between periods."""

    begin: int
    end: int
    labels: tuple[Label, ...]

    def place_of(self, label: Label) -> int:
        """Return the first row with *label*."""
        return self.begin + self.labels.index(label)


@dataclass(frozen=True)
class Periods:
    """Consecutive equal periods of a graph; the last period will be repeated."""

    found: tuple[Period, ...]

    @property
    def begin(self) -> int:
        """The first row of the first period."""
        return self.found[0].begin

    @property
    def end(self) -> int:
        """The row after the last period."""
        return self.found[-1].end


def alike(graph: Graph, cuts: Sequence[int], name_of: Callable[[int], object]) -> Periods | None:
    """Return the longest run of equal periods between *cuts* (rows), or None if no two periods are equal.

    *name_of* returns the operation of a row. Nodes that neither compute nor communicate are not compared.
    """
    does = does_something(graph)
    periods = [period_of(begin, end, does, name_of) for begin, end in itertools.pairwise(cuts)]
    runs: list[list[Period]] = []
    for period in periods:
        if runs and parts_of(runs[-1][-1]) == parts_of(period):
            runs[-1].append(period)
        else:
            runs.append([period])
    longest = max(runs, key=len, default=[])
    return Periods(tuple(longest)) if len(longest) > 1 else None


def operation_of(graph: Graph, modules: Sequence[str]) -> Callable[[int], object]:
    """Return a function from a row to a key of its operation, with *modules* in place of the module texts."""
    nodes = graph.node_columns
    operator, phase, module = nodes["operator"], nodes["phase"], nodes["module"]
    numbers = ("type", "stream", "comm_type", "comm_size_bytes", "group", "num_ops", "tensor_size_bytes")

    def key(row: int) -> object:
        words = (operator.texts[operator.numbers[row]], phase.texts[phase.numbers[row]])
        return (*words, modules[module.numbers[row]], *(int(nodes[name][row]) for name in numbers))

    return key


def messages_of(graph: Graph) -> dict[tuple[int, int], np.ndarray]:
    """Return the rows of messages by direction (type of node) and peer."""
    nodes = graph.node_columns
    messages = {}
    for kind, end in ((NodeType.COMM_SEND, "comm_dst"), (NodeType.COMM_RECV, "comm_src")):
        rows = np.flatnonzero(nodes["type"] == kind)
        for peer in np.unique(nodes[end][rows]).tolist():
            messages[int(kind), int(peer)] = rows[nodes[end][rows] == peer]
    return messages


def metadata_with(
    workload: Workload, *assumptions: str, stale: Sequence[str] = ("accounting",)
) -> dict[str, Any]:
    """Return the metadata of *workload* with *assumptions* added, and without the facts *stale*."""
    metadata = {key: value for key, value in workload.metadata.items() if key not in stale}
    return {**metadata, "assumptions": [*metadata.get("assumptions", []), *assumptions]}


def does_something(graph: Graph) -> np.ndarray:
    """Return a mask of rows that communicate or have a cost, with one row for a divided operator."""
    nodes = graph.node_columns
    costs = (nodes["num_ops"] > 1) | (nodes["tensor_size_bytes"] > 1)
    does: np.ndarray = costs | (nodes["type"] != NodeType.COMP)
    return does


def period_of(begin: int, end: int, does: np.ndarray, name_of: Callable[[int], object]) -> Period:
    """Label each row in *does* by its operation and occurrence, and each other row by the label before it."""
    seen: Counter[object] = Counter()
    labels: list[Label] = []
    latest: Label = ("begin",)
    for row in range(begin, end):
        if does[row]:
            name = name_of(row)
            latest = (name, seen[name])
            seen[name] += 1
        labels.append(latest if does[row] else (*latest, _BETWEEN))
    return Period(begin, end, tuple(labels))


def parts_of(period: Period) -> list[Label]:
    """Return the labels of the rows that compute or communicate."""
    return [label for label in period.labels if label[-1] != _BETWEEN]


def repeated(graph: Graph, periods: Periods, times: int) -> Graph:
    """Return *graph* with the last of *periods* repeated *times* additional times, in sequence.

    A copy depends on earlier periods in the same way as the original period. Later rows depend on the last
    copies instead of the last periods. Rows that depend on every period also depend on every copy.
    """
    last = periods.found[-1]
    size = last.end - last.begin
    count = graph.num_nodes
    behind = periods.end
    order = np.concatenate(
        [np.arange(behind), np.tile(np.arange(last.begin, last.end), times), np.arange(behind, count)]
    )
    is_copy = np.zeros(len(order), dtype=bool)
    is_copy[behind : behind + times * size] = True
    ids = graph.node_columns["node_id"]
    row_of = {number: row for row, number in enumerate(ids.tolist())}
    columns: dict[str, Column] = {name: column[order] for name, column in graph.node_columns.items()}
    columns["node_id"] = np.arange(len(order), dtype=np.int64)
    columns["measured_start_ns"] = np.where(is_copy, -1, graph.node_columns["measured_start_ns"][order])
    edges = [
        (row_of[src], row_of[dst], kind)
        for src, dst, kind in zip(
            *(graph.edge_columns[name].tolist() for name in ("src", "dst", "kind")), strict=True
        )
    ]
    made = list(_edges(edges, periods, times))
    extra: dict[int, bytes] = {}
    for new, row in enumerate(order.tolist()):
        kept = graph.extra.get(int(ids[row]))
        if kept is not None:
            extra[new] = kept
    return Graph.of_columns(graph.rank, columns, made, extra)


def _edges(
    edges: Sequence[tuple[int, int, int]], periods: Periods, times: int
) -> Iterator[tuple[int, int, int]]:
    """Yield the edges between the rows of the graph with the repetitions."""
    last = periods.found[-1]
    size = last.end - last.begin
    shift = times * size
    pairs = {(src, dst) for src, dst, _ in edges}
    for src, dst, kind in edges:
        if dst < last.begin:
            yield src, dst, kind
        elif dst < last.end:
            yield src, dst, kind
            for copy in range(1, times + 1):
                yield _source(src, periods, copy), dst + copy * size, kind
        elif src >= last.end:
            yield src + shift, dst + shift, kind
        elif src < periods.begin:
            yield src, dst + shift, kind
        else:
            yield _source(src, periods, times), dst + shift, kind
            if _in_all(src, dst, periods, pairs):
                yield src, dst + shift, kind
                for copy in range(1, times):
                    yield _source(src, periods, copy), dst + shift, kind


def _source(row: int, periods: Periods, copy: int) -> int:
    """Return the row that corresponds to *row* in copy number *copy* of the last period."""
    last = periods.found[-1]
    size = last.end - last.begin
    if row >= last.begin:
        return row + copy * size
    if row < periods.begin:
        return row
    at = next(place for place, one in enumerate(periods.found) if row < one.end)
    wanted = at + copy
    label = periods.found[at].labels[row - periods.found[at].begin]
    newest = len(periods.found) - 1
    if wanted <= newest:
        return _row(periods.found[wanted], label)
    return _row(last, label) + (wanted - newest) * size


def _row(period: Period, label: Label) -> int:
    """Return the row of *period* with *label*; for a gap, return the row before the gap."""
    for wanted in (label, label[:-1] if label[-1] == _BETWEEN else label):
        if wanted in period.labels:
            return period.place_of(wanted)
    return period.begin


def _in_all(src: int, dst: int, periods: Periods, known: set[tuple[int, int]]) -> bool:
    """Return whether *dst* waits for the row that corresponds to *src* in every period."""
    at = next(place for place, one in enumerate(periods.found) if src < one.end)
    label = periods.found[at].labels[src - periods.found[at].begin]
    return all((_row(one, label), dst) in known for one in periods.found)


_NUMBERED = re.compile(r"(?:^|(?<=\.))(\d+)(?=\.|$)")


@dataclass(frozen=True)
class Layers:
    """The layers of *graph*: *of_row* is each row's layer (-1: none), and *prefix* is the module path."""

    graph: Graph
    of_row: np.ndarray
    prefix: str

    @classmethod
    def of(cls, graph: Graph) -> Layers:
        """Find the numbered modules of *graph*, from the module list with the most rows."""
        module = graph.node_columns["module"]
        parts = [_split(text) for text in module.texts]
        rows = np.bincount(module.numbers, minlength=len(parts))
        weight: dict[str, int] = {}
        for (prefix, number), times in zip(parts, rows.tolist(), strict=True):
            if number >= 0:
                weight[prefix] = weight.get(prefix, 0) + times
        if not weight:
            raise WorkloadError(
                f"No module of rank {graph.rank} has a number in its path, so its layers are unknown. "
                "Capture without torch.compile, which removes the names of modules."
            )
        chosen = max(weight, key=lambda prefix: weight[prefix])
        numbers = np.array([number if prefix == chosen else -1 for prefix, number in parts])
        return cls(graph, numbers[module.numbers], chosen)

    @property
    def count(self) -> int:
        """The number of layers."""
        return len(np.unique(self.of_row[self.of_row >= 0]))

    def cuts(self, phase: str) -> list[int]:
        """Return the first row of each layer in *phase*, and the row after the last layer."""
        texts = self.graph.node_columns["phase"]
        alike = texts == phase
        rows = np.flatnonzero(alike & (self.of_row >= 0))
        firsts = [int(rows[self.of_row[rows] == number][0]) for number in np.unique(self.of_row[rows])]
        return [*sorted(firsts), int(rows[-1]) + 1] if len(rows) else []

    def passes(self) -> int:
        """Return the number of times that the forward pass enters the first layer from another layer."""
        phase = self.graph.node_columns["phase"]
        is_forward = phase == "forward"
        visited = self.of_row[is_forward & (self.of_row >= 0)]
        if not len(visited):
            return 0
        starts = visited == visited.min()
        return int((starts[1:] & ~starts[:-1]).sum()) + int(starts[0])

    def name_of(self) -> Callable[[int], object]:
        """Return a function from a row to a key of its operation, independent of the layer."""
        texts = self.graph.node_columns["module"].texts
        return operation_of(self.graph, [text.removeprefix(self.prefix).partition(".")[2] for text in texts])


def _split(module: str) -> tuple[str, int]:
    """Return the path before the first number in *module*, and the number, or -1 if there is no number."""
    match = _NUMBERED.search(module)
    return (module[: match.start()], int(match[1])) if match else ("", -1)
