"""Find uneven collectives, whose members have different amounts, from the graphs of all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
import numpy as np

from ..chakra import CollectiveType, Graph, NodeType, with_splits
from ._rank_graph import RankGraph

_KINDS = (CollectiveType.ALL_TO_ALL, CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER)
_LEFT_EVEN = (
    "the traces list the amounts of each rank for some collectives, but some ranks are missing: amounts are "
    "assumed equal there"
)
_FOR_ASTRA_SIM = (
    "some collectives are uneven ({count} on a rank at most): each pair of ranks exchanges its own bytes "
    "here; ASTRA-sim has one size for all members, and gets that of the one that has most"
)
_SPREAD = (
    "of {count} uneven collectives the traces only have the total of each rank: it is spread evenly over "
    "the members"
)


class _Part(msgspec.Struct):
    """One member's part in a collective; *splits* are its bytes for each member, () unknown."""

    rank: int
    row: int
    node: int
    kind: int
    size: int
    splits: tuple[int, ...]


class _Calls(msgspec.Struct):
    """The collectives of a graph: their groups, and a row of four figures of each."""

    group: np.ndarray
    figures: np.ndarray

    @classmethod
    def of(cls, graph: Graph) -> _Calls:
        columns = graph.node_columns
        rows = np.flatnonzero(columns["type"] == NodeType.COMM_COLL)
        figures = (columns[name][rows] for name in ("node_id", "comm_type", "comm_size_bytes"))
        return cls(columns["group"][rows], np.column_stack([rows, *figures]))

    def of_group(self, group: int) -> list[tuple[int, int, int, int]]:
        """Return the row, id, kind and size of each collective of a *group*, in order."""
        return [tuple(call) for call in self.figures[self.group == group].tolist()]


def with_uneven_splits(
    ranks: Sequence[RankGraph], groups: Mapping[int, tuple[int, ...]], world_size: int
) -> tuple[list[Graph], list[str]]:
    """Return the graphs of all *ranks* with the members' bytes in uneven collectives, and notes.

    ASTRA-sim supports one size for all members, which is the largest.
    """
    graphs, splits_by_rank = [one.graph for one in ranks], [one.splits for one in ranks]
    if len(graphs) < max(2, world_size):
        uneven = any(len(set(sizes)) > 1 for splits in splits_by_rank for sizes in splits.values())
        return graphs, [_LEFT_EVEN] if uneven else []
    calls = [_Calls.of(graph) for graph in graphs]
    levels: list[dict[int, int]] = [{} for _ in graphs]
    written: list[dict[int, tuple[int, ...]]] = [{} for _ in graphs]
    spread = 0
    for group in (0, *groups):
        members = groups.get(group, tuple(range(world_size)))
        for parts in _collectives(calls, splits_by_rank, group, members):
            if not _is_uneven(parts):
                continue
            spread += any(not part.splits and part.kind != CollectiveType.ALL_GATHER for part in parts)
            for part in parts:
                levels[part.rank][part.row] = max(other.size for other in parts)
                written[part.rank][part.node] = part.splits or _shares(part, len(parts))
    made = [_levelled(*each) if each[1] else each[0] for each in zip(graphs, levels, written, strict=True)]
    count = max(map(len, levels))
    notes = [_FOR_ASTRA_SIM.format(count=count)] if count else []
    return made, [*notes, _SPREAD.format(count=spread)] if spread else notes


def _collectives(
    calls: Sequence[_Calls],
    splits_by_rank: Sequence[Mapping[int, tuple[int, ...]]],
    group: int,
    members: Sequence[int],
) -> Iterator[list[_Part]]:
    """Yield the parts of the members in each collective of the group that may be uneven, in order."""
    for same in zip(*(calls[rank].of_group(group) for rank in members), strict=False):
        parts = []
        for rank, (row, node, kind, size) in zip(members, same, strict=True):
            splits = splits_by_rank[rank].get(node, ())
            parts.append(_Part(rank, row, node, kind, size, splits if len(splits) == len(members) else ()))
        if parts[0].kind in _KINDS and len({part.kind for part in parts}) == 1:
            yield parts


def _is_uneven(parts: Sequence[_Part]) -> bool:
    return len({part.size for part in parts}) > 1 or any(len(set(part.splits)) > 1 for part in parts)


def _shares(part: _Part, members: int) -> tuple[int, ...]:
    """Return equal shares for each member, or the whole size if all get the same data."""
    if part.kind == CollectiveType.ALL_GATHER:
        return (part.size,) * members
    share, more = divmod(part.size, members)
    return tuple(share + (place < more) for place in range(members))


def _levelled(graph: Graph, level: Mapping[int, int], splits: Mapping[int, tuple[int, ...]]) -> Graph:
    return with_splits(graph.derived(comm_size_bytes=partial(_sizes, level)), splits)


def _sizes(level: Mapping[int, int], columns: Mapping[str, Any]) -> np.ndarray:
    sizes: np.ndarray = columns["comm_size_bytes"].copy()
    sizes[list(level)] = list(level.values())
    return sizes
