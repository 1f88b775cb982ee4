"""Split the critical path's communication by the dimensions of the network that it crosses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from ...converter import Workload
from ._critical_path import CriticalPath, breakdown_of

__all__ = ["COMM_FACTS", "NO_NETWORK", "members_of", "network_breakdown"]

NO_NETWORK = "no communication"
"""What a breakdown by parts of the network calls the rest of the path."""
COMM_FACTS = ["comm_type", "group", "comm_src", "comm_dst"]
"""The columns of a node that :func:`members_of` reads."""


def network_breakdown(
    path: CriticalPath, nodes: pd.DataFrame, workload: Workload, network: Mapping[str, Any]
) -> pd.DataFrame:
    """Return the path by the dimensions of the *network* that its communication crosses, largest first.

    Columns as `CriticalPath.breakdown` has them; *nodes* are the run's. What does not communicate, and all of
    it if the network's shape is not known, counts as ``no communication``.
    """
    places = pd.MultiIndex.from_frame(path.unreasoned[["rank", "node_id"]])
    facts = nodes.set_index(["rank", "node_id"])[COMM_FACTS]
    known = facts[facts.index.isin(places)]
    crossed = {place: _crossed(row, workload, network) for place, row in known.to_dict("index").items()}
    keys = pd.Series([crossed.get(place, NO_NETWORK) for place in places], dtype="object")
    sums = path.unreasoned["duration_ns"].reset_index(drop=True).groupby(keys).sum()
    return breakdown_of(sums, path.makespan_ns)


def members_of(node: Mapping[Any, Any], workload: Workload) -> frozenset[int]:
    """Return the ranks that a communication joins; none for a *node* that is none."""
    if int(node.get("comm_type", -1)) >= 0:
        group = int(node["group"])
        return frozenset(workload.groups[group] if group else range(workload.num_ranks))
    return frozenset(rank for end in ("comm_src", "comm_dst") if (rank := int(node.get(end, -1))) >= 0)


def _crossed(node: Mapping[Any, Any], workload: Workload, network: Mapping[str, Any]) -> str:
    """Return which dimensions of the network the ranks of a communication differ in, in words."""
    sizes, shapes = network.get("npus_count", []), network.get("topology", [])
    ranks = members_of(node, workload)
    below, crossed = 1, []
    for number, (size, shape) in enumerate(zip(sizes, shapes, strict=False), start=1):
        if len({rank // below % size for rank in ranks}) > 1:
            crossed.append(f"{number} ({shape} of {size})")
        below *= size
    return f"dimension{'s' if len(crossed) > 1 else ''} {' and '.join(crossed)}" if crossed else NO_NETWORK
