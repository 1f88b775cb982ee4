"""Find rows of a table of nodes by rank and node id, without an index of it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pandas as pd

__all__ = ["NodeRows"]

Ints = npt.NDArray[np.int64]


class NodeRows:
    """Where the nodes of a table (``rank``, ``node_id``) are; what is not in order by them costs a sort."""

    def __init__(self, nodes: pd.DataFrame) -> None:
        ids = nodes["node_id"].to_numpy(np.int64)
        self._least = int(ids.min()) if len(ids) else 0
        self._span = int(ids.max()) - self._least + 1 if len(ids) else 1
        ranks = nodes["rank"].to_numpy(np.int64)
        if len(ids) and int(ranks.max()) + 1 >= (1 << 62) // self._span:
            # Ids so far apart that no key holds them: count them instead.
            self._ids: Ints | None = np.unique(ids)
            self._span = len(self._ids)
        else:
            self._ids = None
        keys = self._keys(ranks, ids)
        ordered = bool((keys[1:] >= keys[:-1]).all())
        self._order = None if ordered else np.argsort(keys, kind="stable")
        self._sorted = keys if self._order is None else keys[self._order]

    def find(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the row of each node, -1 for those that are not there."""
        if not len(self._sorted):
            return np.full(len(ranks), -1, np.int64)
        keys = self._keys(ranks.astype(np.int64), node_ids.astype(np.int64))
        place = np.minimum(np.searchsorted(self._sorted, keys), len(self._sorted) - 1)
        rows = place if self._order is None else self._order[place]
        found: Ints = np.where(self._sorted[place] == keys, rows, -1)
        return found

    def _keys(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return one number for each node; -1 for ids that no node of the table has."""
        if self._ids is None:
            place = node_ids - self._least
            known = (node_ids >= self._least) & (place < self._span) & (place >= 0)
        else:
            place = np.minimum(np.searchsorted(self._ids, node_ids), len(self._ids) - 1)
            known = self._ids[place] == node_ids
        keys: Ints = np.where(known & (ranks >= 0), ranks * self._span + place, -1)
        return keys
