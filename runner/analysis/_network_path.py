"""Split the communication on the critical path by network dimension and by link."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from ...converter import Workload
from .._result import Result
from ._critical_path import CriticalPath, breakdown_of
from ._links import end_names
from ._path_facts import said_of

NO_NETWORK = "no communication"
"""The key of time without communication in a breakdown by network dimension or link."""
_COMM_FACTS = ("comm_type", "group", "comm_src", "comm_dst")
"""The columns of a node that :func:`members_of` reads."""


def network_breakdown(path: CriticalPath, workload: Workload, network: Mapping[str, Any]) -> pd.DataFrame:
    """Split the critical path's time by the dimensions of the *network* that communication crosses.

    The columns are the same as in `CriticalPath.breakdown`. All other work on the path counts as ``no
    communication``. If the network's shape is unknown, all work counts as ``no communication``.
    """
    places = zip(path.unreasoned["rank"], path.unreasoned["node_id"], strict=True)
    crossed = {place: _crossed(row, workload, network) for place, row in _facts(path, workload).items()}
    keys = pd.Series([crossed.get(place, NO_NETWORK) for place in places], dtype="object")
    sums = path.unreasoned["duration_ns"].reset_index(drop=True).groupby(keys).sum()
    return breakdown_of(sums, path.makespan_ns)


def _facts(path: CriticalPath, workload: Workload) -> dict[tuple[int, int], dict[str, int]]:
    """Return the columns `_COMM_FACTS` of the nodes on *path*, by rank and node id."""
    places = path.unreasoned[["rank", "node_id"]].drop_duplicates()
    facts = said_of(workload, places[places["node_id"] >= 0], *_COMM_FACTS)
    by_place: dict[tuple[int, int], dict[str, int]] = facts.set_index(["rank", "node_id"]).to_dict("index")
    return by_place


def members_of(node: Mapping[Any, Any], workload: Workload) -> frozenset[int]:
    """Return the ranks of a communication, or the empty set if *node* does not communicate."""
    if int(node.get("comm_type", -1)) >= 0:
        group = int(node["group"])
        return frozenset(workload.groups[group] if group else range(workload.num_ranks))
    return frozenset(rank for end in ("comm_src", "comm_dst") if (rank := int(node.get(end, -1))) >= 0)


def _crossed(node: Mapping[Any, Any], workload: Workload, network: Mapping[str, Any]) -> str:
    """Return the network dimensions in which the ranks of a communication differ, as text."""
    sizes, shapes = network.get("npus_count", []), network.get("topology", [])
    ranks = members_of(node, workload)
    below, crossed = 1, []
    for number, (size, shape) in enumerate(zip(sizes, shapes, strict=False), start=1):
        if len({rank // below % size for rank in ranks}) > 1:
            crossed.append(f"{number} ({shape} of {size})")
        below *= size
    return f"dimension{'s' if len(crossed) > 1 else ''} {' and '.join(crossed)}" if crossed else NO_NETWORK


_BEFORE = "before its first message"


def why_no_links(result: Result) -> str:
    """Return the reason why the path cannot be split by links, and the remedy; ``""`` without a reason."""
    if len(result.flows):
        return ""
    recorded = "no individual messages" if result.links.empty else "only totals for each link"
    return (
        f"The backend '{result.backend}' records {recorded}, so the time of the path cannot be assigned to "
        "links. Next: run the study on 'packet', which records every message, or use the breakdown by "
        "network dimension."
    )


def link_breakdown(result: Result, path: CriticalPath, workload: Workload) -> pd.DataFrame:
    """Split the time of *path* by the link for which each piece of communication waited, largest first.

    The columns are the same as in `CriticalPath.breakdown`, and the durations sum to the makespan exactly.
    The walk through a communication begins at its end. The walk goes to the last message that reached the
    rank, to this message's start, to the last message that had reached the sender before, and so on. Only
    messages among the ranks of the communication count. Concurrent communications among the same ranks are
    not distinguished. The table is empty without messages.
    """
    if why_no_links(result):
        return _breakdown({}, path)
    messages, ways = _Messages(result.flows), _Ways(result)
    segments, described = path.unreasoned, _facts(path, workload)
    sums: dict[str, int] = defaultdict(int)
    for rank, node, start, end in zip(
        segments["rank"], segments["node_id"], segments["start_ns"], segments["end_ns"], strict=True
    ):
        members = members_of(described.get((rank, node), {}), workload)
        if not members:
            sums[NO_NETWORK] += end - start
            continue
        for link, length in messages.walk_back(int(rank), int(start), int(end), members).items():
            sums[ways.name(*link) if link else _BEFORE] += length
    return _breakdown(sums, path)


def _breakdown(sums: Mapping[str, int], path: CriticalPath) -> pd.DataFrame:
    keys = pd.Index([*sums], dtype="object")
    return breakdown_of(pd.Series([*sums.values()], index=keys, dtype="int64"), path.makespan_ns)


class _Messages:
    """The messages of a result by destination rank, in order of arrival."""

    def __init__(self, flows: pd.DataFrame) -> None:
        ordered = flows.sort_values("end_ns", kind="stable")
        self._to = {
            int(str(rank)): (own["end_ns"].to_numpy(), own["start_ns"].to_numpy(), own["src"].to_numpy())
            for rank, own in ordered.groupby("dst")
        }

    def walk_back(
        self, rank: int, start: int, end: int, members: frozenset[int]
    ) -> Mapping[tuple[int, int] | None, int]:
        """Split the ns from *start* to *end* by the (source, target) of messages (None: no message)."""
        durations: dict[tuple[int, int] | None, int] = defaultdict(int)
        while end > start:
            last = self._last(rank, start, end, members)
            if last is None:
                durations[None] += end - start
                break
            began, source = last
            durations[source, rank] += end - max(began, start)
            rank, end = source, began
        return durations

    def _last(self, rank: int, start: int, end: int, members: frozenset[int]) -> tuple[int, int] | None:
        """Return start and source of the last message that reached *rank* between *start* and *end*."""
        if rank not in self._to:
            return None
        ends, starts, sources = self._to[rank]
        row = int(np.searchsorted(ends, end, side="right")) - 1
        while row >= 0 and ends[row] > start:
            if int(sources[row]) in members and starts[row] < end:
                return int(starts[row]), int(sources[row])
            row -= 1
        return None


class _Ways:
    """The names of network paths between two ranks: a direct link, or the switch between the ranks."""

    def __init__(self, result: Result) -> None:
        self._name = end_names(result)
        self._near: dict[int, set[int]] = defaultdict(set)
        for source, target in zip(result.links["src"], result.links["dst"], strict=True):
            self._near[int(source)].add(int(target))

    def name(self, source: int, target: int) -> str:
        """Return the ends of the link from *source* to *target*, and the single switch in between, if any."""
        ends = f"{self._name(source)} to {self._name(target)}"
        if target in self._near[source]:
            return ends
        between = [end for end in self._near[source] if target in self._near[end]]
        return f"{ends} through {self._name(between[0])}" if len(between) == 1 else ends
