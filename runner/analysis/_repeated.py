"""Casts and copies of data that the step has already cast or copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from ...converter import Graph, Workload

Flags = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

REPEATED = "copies"
"""The name of all of them as a `Target` of ``repeated``."""


def repeated_copies(graph: Graph, metadata: Mapping[str, Any]) -> Flags:
    """Return the nodes of *graph* that repeat a cast or copy, by its workload's *metadata*."""
    repeated: Flags = np.isin(np.asarray(graph.node_columns["node_id"]), _recorded(metadata, graph.rank))
    return repeated


def copies_of_nodes(workload: Workload, programs: Ints, node_ids: Ints) -> Flags:
    """Return which of some nodes, each of a program of *workload*, repeat a cast or copy."""
    repeated: Flags = np.zeros(len(node_ids), bool)
    for program in np.unique(programs).tolist():
        own = programs == program
        recorded = _recorded(workload.metadata, workload.graphs[program].rank)
        repeated[own] = np.isin(node_ids[own], recorded)
    return repeated


def _recorded(metadata: Mapping[str, Any], rank: int) -> Ints:
    """Return the nodes that *metadata* lists for a *rank*; anything odd counts as absent."""
    listed = metadata.get("repeated")
    try:
        nodes = msgspec.convert(listed.get(str(rank), []) if isinstance(listed, dict) else [], list[int])
    except msgspec.ValidationError:
        nodes = []
    return np.array(nodes, dtype=np.int64)
