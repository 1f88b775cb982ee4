"""The nodes that the engine recorded of a simulation, made to columns a few ranks at a time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_ROWS", "Columns", "RecordedNodes"]

Columns = dict[str, npt.NDArray[Any]]
# Ranks share a piece up to so many rows: pieces of a few rows would cost more than they spare.
LEAST_ROWS = 1 << 16


class RecordedNodes:
    """The nodes of the engine's *output*, of the ranks that were simulated; it keeps the output."""

    def __init__(self, output: Any) -> None:
        self._output = output
        self._counts: list[int] = output.node_counts.tolist()
        self.num_rows = sum(self._counts)

    def pieces(self) -> Iterator[Columns]:
        """Yield the columns of whole ranks, in ascending order of rank and node."""
        first = rows = 0
        for last, count in enumerate(self._counts, 1):
            rows += count
            if rows >= LEAST_ROWS or last == len(self._counts):
                yield self._read(first, last)
                first, rows = last, 0

    def whole(self) -> Columns:
        """Return the columns of all ranks."""
        return self._read(0, len(self._counts))

    def _read(self, first: int, last: int) -> Columns:
        columns: Columns = self._output.nodes(first, last)
        return columns | {"cause_is_dependency": columns["cause_is_dependency"].view(np.bool_)}
