"""Keep only the measured ranks of a job whose other ranks cannot be derived from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from ...support import count_text
from ..chakra import MESSAGES, Graph, NodeType, TextColumn, have_messages

_WORLD_SIZE, _GROUP_SIZES = "measured_world_size", "measured_group_sizes"
_Groups = Mapping[int, tuple[int, ...]]


def needs_all_ranks(graphs: Sequence[Graph], groups: _Groups, world_size: int) -> bool:
    """Return whether the given *graphs* communicate in groups or pairs, so that none stands for others."""
    return any(len(ranks) < world_size for ranks in groups.values()) or have_messages(graphs)


def measured_alone(
    graphs: Sequence[Graph], groups: _Groups, stated: Sequence[int], world_size: int
) -> tuple[list[Graph], dict[int, tuple[int, ...]], dict[str, Any], str]:
    """Return the given ranks as a job of their own, with its groups, metadata and the note on it.

    *stated* are their ranks in the job, -1 if unknown. Their collectives remain, with the members that were
    measured. Messages to other ranks become communication without a peer. Only a replay can use such a
    workload.
    """
    known = list(stated) if min(stated) >= 0 else list(range(len(graphs)))
    place = {rank: number for number, rank in enumerate(known)}
    present = {
        number: tuple(place[rank] for rank in ranks if rank in place) or (0,)
        for number, ranks in groups.items()
    }
    sizes = {str(number): len(ranks) for number, ranks in groups.items()} | {"0": world_size}
    given = count_text(len(graphs), "rank")
    note = (
        f"the traces of {given} of {world_size:,} were given ({', '.join(map(str, known[:8]))}"
        f"{', ...' * (len(known) > 8)}), which communicate in groups: they are replayed alone, and their "
        "communication takes its measured time, waits for the other ranks included"
    )
    facts = {_WORLD_SIZE: world_size, _GROUP_SIZES: sizes}
    return [_without_absent_peers(graph, place) for graph in graphs], present, facts, note


def measured_world_size(metadata: Mapping[str, Any]) -> int:
    """Return the number of ranks of a job of which a workload has only the measured ones; 0 if it has all."""
    stated = metadata.get(_WORLD_SIZE)
    return stated if isinstance(stated, int) else 0


def measured_group_sizes(metadata: Mapping[str, Any]) -> dict[int, int]:
    """Return the number of ranks of each group of such a job, also of those without traces; else {}."""
    try:
        return msgspec.convert(metadata.get(_GROUP_SIZES, {}), dict[int, int], strict=False)
    except msgspec.ValidationError:
        return {}


def _without_absent_peers(graph: Graph, place: Mapping[int, int]) -> Graph:
    """Return *graph* with the numbers of *place*; a message to a rank that is not there has no peer."""
    nodes = graph.node_columns
    types, columns = np.array(nodes["type"]), {}
    is_message = np.isin(types, MESSAGES)
    if not is_message.any():
        return graph
    is_absent = np.zeros(len(types), bool)
    for name in ("comm_src", "comm_dst"):
        ranks = np.array(nodes[name])
        rows = np.flatnonzero(is_message & (ranks >= 0))
        ranks[rows] = [place.get(rank, -1) for rank in ranks[rows].tolist()]
        is_absent[rows] |= ranks[rows] < 0
        columns[name] = ranks
    types[is_absent] = NodeType.COMP
    kinds = np.array(nodes["kind"].tolist(), object)
    kinds[is_absent] = "communication"
    return graph.with_columns(type=types, kind=TextColumn.of(kinds.tolist()), **columns)
