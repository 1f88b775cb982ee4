"""Communication of unknown size or peers, which keeps its measured time on any network."""

from __future__ import annotations

import msgspec
import numpy as np

from ...support import count_text, duration_text
from ..chakra import Graph, NodeType, TextColumn, Workload
from ._patterns import function_name, kernel_pattern

__all__ = ["UnsizedCommunication", "unsized_communication"]

_MOST_NAMED = 3


class UnsizedCommunication(msgspec.Struct, frozen=True):
    """Communication kernels of unknown size, on the *rank* where they take longest.

    *kernels* is their number, *duration_ns* their total time, and *by_operation* the same by library and
    operation, longest first.
    """

    rank: int
    kernels: int
    duration_ns: int
    by_operation: dict[str, int]

    @property
    def text(self) -> str:
        """The consequence for a result, as a sentence."""
        named = list(self.by_operation.items())
        parts = [f"{name} {duration_text(took)}" for name, took in named[:_MOST_NAMED]]
        parts += ["others"] * (len(named) > _MOST_NAMED)
        took, kernels = duration_text(self.duration_ns), count_text(self.kernels, "kernel")
        return (
            "Communication whose size or peers the traces do not tell keeps its measured time on any "
            f"network: {took} in {kernels} on rank {self.rank} ({', '.join(parts)})."
        )


def unsized_communication(workload: Workload) -> UnsizedCommunication | None:
    """Return the communication of unknown size on the rank with most of it; None without any."""
    best: tuple[int, int, np.ndarray] | None = None
    for program, graph in enumerate(workload.graphs):
        rows = _rows(graph)
        took = int(np.asarray(graph.column_rows("duration_ns", rows)).sum()) if len(rows) else 0
        if len(rows) and (best is None or took > best[0]):
            best = took, program, rows
    if best is None:
        return None
    took, program, rows = best
    rank = int(np.flatnonzero(np.asarray(workload.program_of_rank) == program)[0])
    return UnsizedCommunication(rank, len(rows), took, _by_operation(workload.graphs[program], rows))


def _rows(graph: Graph) -> np.ndarray:
    """Return the nodes with the type of computation and the kind of communication."""
    kinds = graph.node_columns["kind"]
    if not isinstance(kinds, TextColumn) or "communication" not in kinds.texts:
        return np.empty(0, np.int64)
    own = kinds.numbers == kinds.texts.index("communication")
    return np.flatnonzero(own & (np.asarray(graph.node_columns["type"]) == NodeType.COMP))


def _by_operation(graph: Graph, rows: np.ndarray) -> dict[str, int]:
    names, durations = graph.column_rows("name", rows), graph.column_rows("duration_ns", rows)
    if not isinstance(names, TextColumn):
        raise TypeError("names are texts")
    sums = np.bincount(names.numbers, np.asarray(durations), minlength=len(names.texts))
    found: dict[str, int] = {}
    for number in np.unique(names.numbers).tolist():
        name = _operation(names.texts[number])
        found[name] = found.get(name, 0) + round(sums[number])
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


def _operation(kernel: str) -> str:
    """Return a name such as ``DeepEP dispatch``; for a kernel without a pattern, its function."""
    pattern = kernel_pattern(kernel)
    return f"{pattern.library} {pattern.operation}" if pattern else function_name(kernel)[1] or kernel
