"""Find the node of another run, or step, that does what a node of this one does."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["counterpart"]

Ints = npt.NDArray[np.int64]
_SAME = ("name", "module", "phase", "kind")


def counterpart(nodes: pd.DataFrame, row: int, others: pd.DataFrame, step: int | None = None) -> int:
    """Return the row of *others* that does what *row* of *nodes* does, -1 if there is none.

    That is the node of the same rank, name, module, phase and kind that comes as late among its like: the
    fifth of one run for the fifth of the other. With *step* only nodes of that step of *others* count; those
    of *nodes* are then of the step of *row*.
    """
    rank, own = nodes["rank"].iloc[row], nodes["step"].iloc[row]
    mine = _alike(nodes, nodes, row, rank)
    theirs = _alike(others, nodes, row, rank)
    if step is not None:
        mine = mine[nodes["step"].to_numpy()[mine] == own]
        theirs = theirs[others["step"].to_numpy()[theirs] == step]
    place = int(np.flatnonzero(mine == row)[0])
    return int(theirs[place]) if place < len(theirs) else -1


def _alike(nodes: pd.DataFrame, of: pd.DataFrame, row: int, rank: int) -> Ints:
    """Return the rows of *nodes* that are like *row* of *of*, in order of their start."""
    rows = np.flatnonzero(nodes["rank"].to_numpy() == rank)
    part = nodes.iloc[rows]
    alike = np.ones(len(rows), bool)
    for column in _SAME:
        alike &= (part[column] == of[column].iloc[row]).to_numpy(bool)
    rows = rows[alike]
    found: Ints = rows[np.lexsort((nodes["node_id"].to_numpy()[rows], nodes["start_ns"].to_numpy()[rows]))]
    return found
