"""Read the engine's node records as columns, a few ranks at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from ..support.table import Columns, Memory

__all__ = ["LEAST_ROWS", "RecordedNodes"]

# Ranks share a piece up to so many rows: pieces of a few rows would cost more than they spare.
LEAST_ROWS = 1 << 16


class RecordedNodes:
    """The nodes of the simulated ranks in the engine's *output*, as a source of a `Table`.

    Its pieces are whole ranks, in ascending order of rank and node. It owns the output.
    """

    def __init__(self, output: Any) -> None:
        self._output = output
        self._ends, pieces = [0], []
        rows = 0
        counts: list[int] = output.node_counts.tolist()
        for end, count in enumerate(counts, 1):
            rows += count
            if rows >= LEAST_ROWS or end == len(counts):
                self._ends.append(end)
                pieces.append(rows)
                rows = 0
        self.rows: Sequence[int] = tuple(pieces)

    def bounds(self, name: str) -> list[tuple[int, int]] | None:
        """Return None: the engine records no bounds."""
        return None

    def read(self, names: Sequence[str] | None = None, groups: Sequence[int] | None = None) -> Columns:
        """Return columns of some pieces, or of all."""
        spans = [*pairwise(self._ends)]
        parts = [self._read(0, self._ends[-1])] if groups is None else [self._read(*spans[i]) for i in groups]
        if len(parts) > 1:
            parts = [{name: np.concatenate([part[name] for part in parts]) for name in parts[0]}]
        return {name: column for name, column in parts[0].items() if names is None or name in names}

    def _read(self, first: int, last: int) -> Columns:
        columns: Columns = self._output.nodes(first, last)
        return columns | {"cause_is_dependency": columns["cause_is_dependency"].view(np.bool_)}

    def __reduce__(self) -> tuple[type[Memory], tuple[Columns]]:
        """Pickle and copy the columns instead of the engine's records."""
        return Memory, (self.read(),)
