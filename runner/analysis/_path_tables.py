"""Tables of a critical path: segments, contributors, network dimensions, links, and two paths compared."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from ...converter import Workload
from ...support import duration_text, share_text
from ...support.table import frame_of
from .._result import Result
from ._critical_path import CriticalPath, breakdown_of
from ._links import end_names
from ._path_facts import facts_of_nodes

# Keys for time that has no name in a breakdown, such as time outside modules.
_NAMELESS = ("", "(none)")
_MIN_SHARE = 0.0005
_LARGEST = 10


def segment_table(path: CriticalPath) -> pd.DataFrame:
    """Return the segments of *path*, each with its share of the total."""
    segments = path.segments
    total = max(1, int(segments["duration_ns"].sum()))
    table: pd.DataFrame = segments.assign(share=segments["duration_ns"] / total)
    return table


def longest_segment(path: CriticalPath) -> tuple[int, int]:
    """Return (rank, node_id) of the longest segment with a node, (-1, -1) if all are idle."""
    segments = path.unreasoned
    real = segments[segments["node_id"] >= 0]
    if real.empty:
        return -1, -1
    row = real.loc[real["duration_ns"].idxmax()]
    return int(row["rank"]), int(row["node_id"])


def nameless_text(table: pd.DataFrame, by: str) -> str:
    """Return a sentence about the unnamed time in a breakdown *by*; "" if there is none."""
    share = float(table.loc[table["key"].astype(str).isin(_NAMELESS), "share"].sum())
    return f"{share_text(share)} of the path is not assigned to any {by}." if share >= _MIN_SHARE else ""


def contributors(path: CriticalPath, by: str) -> pd.DataFrame:
    """Return the ten largest keys of the path's breakdown *by*, leaving out unnamed time.

    ``kind`` is the kind of work that takes most of a key's time.
    """
    table = path.breakdown(by)
    sums = path.unreasoned.groupby([by, "kind"])["duration_ns"].sum().reset_index()
    most = sums.loc[sums.groupby(by)["duration_ns"].idxmax()].set_index(by)["kind"]
    table = table.assign(kind=table["key"].map(most))
    named = table[~table["key"].astype(str).isin(_NAMELESS) & (table["share"] >= _MIN_SHARE)]
    largest: pd.DataFrame = named.sort_values("duration_ns", ascending=False, ignore_index=True).head(
        _LARGEST
    )
    return largest


_PLACE_LENGTH = 120


@dataclass(frozen=True)
class Divergence:
    """The common start of two critical paths: *segments* segments until *at_ns*, or to the end.

    ``*_goes_to`` names the next node of each path. *on_both* is the share of the base's path that is also on
    the other path. *same* means that the paths never diverge.
    """

    segments: int
    at_ns: int
    base_goes_to: str
    other_goes_to: str
    on_both: float
    same: bool


def divergence(base: CriticalPath, other: CriticalPath) -> Divergence:
    """Return the first segment in which two critical paths are on different nodes.

    Ranks of one program count as equal, because the path could run through any of them.
    """
    paths, steps = [base.segments, other.segments], [base.places, other.places]
    common = next((i for i, (a, b) in enumerate(zip(*steps, strict=False)) if a != b), min(map(len, steps)))
    on_both = paths[0]["duration_ns"][steps[0].isin(steps[1])].sum()
    return Divergence(
        segments=common,
        at_ns=int(paths[0]["end_ns"].iloc[common - 1]) if common else 0,
        base_goes_to=_place(paths[0], common),
        other_goes_to=_place(paths[1], common),
        on_both=float(on_both) / max(base.makespan_ns, 1),
        same=common == max(map(len, steps)),
    )


def divergence_text(base: CriticalPath, other: CriticalPath) -> str:
    """Describe the point where two critical paths diverge, and the next node of each."""
    point = divergence(base, other)
    if point.same:
        return f"Both critical paths go through the same {point.segments:,} segments."
    together = f"share their first {point.segments:,} segments, until {duration_text(point.at_ns)}. Then"
    start = f"The critical paths {together if point.segments else 'diverge at once:'}"
    places = f"this run continues with {_cut(point.base_goes_to)}, the other with {_cut(point.other_goes_to)}"
    return (
        f"{start} {places}. {share_text(point.on_both)} of this run's path is also on the path of the other "
        "run."
    )


def paths_table(base: CriticalPath, other: CriticalPath) -> pd.DataFrame:
    """Return the segments of two paths, with ``path`` (0: *base*, 1: *other*) and ``apart``.

    ``apart`` marks the segments on only one of the paths.
    """
    parts = [
        path.segments.assign(apart=~path.places.isin(its.places), path=number)
        for number, (path, its) in enumerate([(base, other), (other, base)])
    ]
    both: pd.DataFrame = pd.concat(parts, ignore_index=True)
    return both


def _place(segments: pd.DataFrame, number: int) -> str:
    if number >= len(segments):
        return "the end"
    segment = segments.iloc[number]
    return f"{segment['name']} (node {segment['node_id']} of rank {segment['rank']})"


def _cut(place: str) -> str:
    """Shorten a long name in the middle, because its end identifies the node."""
    return place if len(place) <= _PLACE_LENGTH else f"{place[:60]} … {place[-40:]}"


NO_NETWORK = "no communication"
"""The key of time without communication in a breakdown by dimension or link."""
_COMM_FACTS = ("comm_type", "group", "comm_src", "comm_dst")
"""The node columns that :func:`members_of` reads."""


def network_breakdown(path: CriticalPath, workload: Workload, network: Mapping[str, Any]) -> pd.DataFrame:
    """Split the critical path's time by the dimensions of *network* that communication crosses.

    The columns are those of `CriticalPath.breakdown`. Other work counts as ``no communication``, as
    does everything on a network of unknown shape.
    """
    crossed = {place: _crossed(row, workload, network) for place, row in _facts(path, workload).items()}
    sums: dict[str, int] = defaultdict(int)
    columns = (path.unreasoned[name] for name in ("rank", "node_id", "duration_ns"))
    for rank, node, length in zip(*columns, strict=True):
        sums[crossed.get((rank, node), NO_NETWORK)] += length
    return frame_of(breakdown_of(sums, path.makespan_ns))


def _facts(path: CriticalPath, workload: Workload) -> dict[tuple[int, int], dict[str, int]]:
    """Return the columns `_COMM_FACTS` of the nodes on *path*, by rank and node id."""
    places = path.unreasoned[["rank", "node_id"]].drop_duplicates()
    facts = facts_of_nodes(workload, places[places["node_id"] >= 0], *_COMM_FACTS)
    by_place: dict[tuple[int, int], dict[str, int]] = facts.set_index(["rank", "node_id"]).to_dict("index")
    return by_place


def members_of(node: Mapping[Any, Any], workload: Workload) -> frozenset[int]:
    """Return the ranks of a communication; empty if *node* does not communicate."""
    if int(node.get("comm_type", -1)) >= 0:
        group = int(node["group"])
        return frozenset(workload.groups[group] if group else range(workload.num_ranks))
    return frozenset(rank for end in ("comm_src", "comm_dst") if (rank := int(node.get(end, -1))) >= 0)


def _crossed(node: Mapping[Any, Any], workload: Workload, network: Mapping[str, Any]) -> str:
    """Name the network dimensions along which the ranks of a communication differ."""
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
    """Explain why the path cannot be split by link, and what to do; ``""`` if it can."""
    if len(result.flows):
        return ""
    recorded = "no individual messages" if result.links.empty else "only totals for each link"
    return (
        f"The backend '{result.backend}' records {recorded}, so the time of the path cannot be assigned to "
        "links. Next: run the study on 'packet', which records every message, or use the breakdown by "
        "network dimension."
    )


def link_breakdown(result: Result, path: CriticalPath, workload: Workload) -> pd.DataFrame:
    """Split the time of *path* by the link that each piece of communication waited for, largest first.

    The columns are those of `CriticalPath.breakdown`, and durations add up to the makespan exactly. A
    communication is traced back from its end: to the last message that reached the rank, to the start of this
    message, to the last message that had reached the sender, and so on. Only messages among the ranks of the
    communication count. Concurrent communications among the same ranks are not distinguished. Without
    messages, there are no rows.
    """
    if why_no_links(result):
        return frame_of(breakdown_of({}, path.makespan_ns))
    messages, ways = _Messages(result.flows), _PathNames(result)
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
    return frame_of(breakdown_of(sums, path.makespan_ns))


class _Messages:
    """The messages of a result by destination, in order of arrival."""

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
        """Return start and source of the last message to reach *rank* between *start* and *end*."""
        if rank not in self._to:
            return None
        ends, starts, sources = self._to[rank]
        row = int(np.searchsorted(ends, end, side="right")) - 1
        while row >= 0 and ends[row] > start:
            if int(sources[row]) in members and starts[row] < end:
                return int(starts[row]), int(sources[row])
            row -= 1
        return None


class _PathNames:
    """Names for the path between two ranks: a direct link, or the switch in between."""

    def __init__(self, result: Result) -> None:
        self._name = end_names(result)
        self._near: dict[int, set[int]] = defaultdict(set)
        for source, target in zip(result.links["src"], result.links["dst"], strict=True):
            self._near[int(source)].add(int(target))

    def name(self, source: int, target: int) -> str:
        """Return the ends of the link from *source* to *target*, and the single switch on it, if any."""
        ends = f"{self._name(source)} to {self._name(target)}"
        if target in self._near[source]:
            return ends
        between = [end for end in self._near[source] if target in self._near[end]]
        return f"{ends} through {self._name(between[0])}" if len(between) == 1 else ends
