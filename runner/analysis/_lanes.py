"""The nodes of a run in lanes, one per stream of a rank; summaries of areas of lanes; Chrome traces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from ...converter import NodeType, Workload
from ...converter.chakra import DEVICE_LANE
from ...converter.readers import HostCalls
from ...support import count_text, duration_text
from ...support.table import Ints, positions
from .._framed import changed_rows
from ._labels import KIND_LABELS
from ._lane_rows import CALLS, SLICES, Groups, nested_groups, tracks
from ._path_facts import NodeFacts

_DEEPEST = 2**10


def is_communication(types: pd.Series) -> pd.Series:
    """Return a mask of the node types that are communication."""
    return types >= int(NodeType.COMM_SEND)


def lane_table(keys: pd.DataFrame) -> pd.DataFrame:
    """Return ``rank`` and ``label`` of each lane; *keys* has a row per lane, in order.

    The columns of *keys* are ``rank``, ``comm`` and ``stream``.
    """
    table = keys.reset_index(drop=True)
    on_device = (table["stream"] >= DEVICE_LANE) & ~table["comm"]
    has_device = on_device.groupby(table["rank"]).transform("any")
    plain = np.where(has_device, "host thread", "compute")
    name = np.where(table["comm"], "communication", np.where(on_device, "stream", plain))
    number = np.where(on_device, table["stream"] % DEVICE_LANE, table["stream"])
    same = table.assign(name=name).groupby(["rank", "name"])["stream"]
    number = np.where(table["comm"], same.rank().astype(int), number)
    numbered = (same.transform("size") > 1) | on_device
    labels = [
        f"{text} {which}" if shown else text
        for text, which, shown in zip(name, number, numbered, strict=True)
    ]
    lanes: pd.DataFrame = pd.DataFrame({"rank": table["rank"], "label": labels})
    return lanes


def at_measured_times(nodes: pd.DataFrame) -> pd.DataFrame:
    """Return the *nodes* that were measured, with the times of the captured step.

    Time 0 is the start of the captured step on each rank. Latencies of the device, in which it may run
    other work, are left out. Host work ends when the next work of its thread begins: the duration
    of a node may include latency.
    """
    start_ns, lasted_ns = (nodes[name].to_numpy(np.int64) for name in ("measured_start_ns", "duration_ns"))
    timed = nodes.assign(start_ns=start_ns, end_ns=start_ns + lasted_ns)
    timed = timed[(start_ns >= 0) & (nodes["kind"] != "idle").to_numpy()].reset_index(drop=True)
    on_host = np.flatnonzero((timed["stream"] < DEVICE_LANE) & (timed["type"] == NodeType.COMP))
    rank, stream, start, end = (
        timed[name].to_numpy(np.int64)[on_host] for name in ("rank", "stream", "start_ns", "end_ns")
    )
    order = np.lexsort((start, stream, rank))
    before, after = order[:-1], order[1:]
    cut = (rank[before] == rank[after]) & (stream[before] == stream[after]) & (end[before] > start[after])
    end[before[cut]] = start[after[cut]]
    ends = timed["end_ns"].to_numpy(np.int64).copy()
    ends[on_host] = end
    whole: pd.DataFrame = timed.assign(end_ns=ends)
    return whole


def path_at_measured_times(workload: Workload, path: pd.DataFrame) -> pd.DataFrame:
    """Return the segments in *path* whose nodes were measured, at the times of the captured step.

    Times are on the clock of each segment's rank. A segment ends with its node, and begins no
    earlier. Latencies of the device are left out, as in `at_measured_times`.
    """
    path = path[(path["node_id"] >= 0) & (path["kind"] != "idle")]
    ranks, node_ids = (path[name].to_numpy(np.int64) for name in ("rank", "node_id"))
    facts = NodeFacts(workload, ranks, node_ids)
    began, lasted = facts.numbers("measured_start_ns"), facts.numbers("duration_ns")
    ends = began + lasted
    starts = np.maximum(began, ends - path["duration_ns"].to_numpy(np.int64))
    timed: pd.DataFrame = path.assign(start_ns=starts, end_ns=ends)[began >= 0]
    return timed


class Lanes:
    """The nodes of a run as slices, sorted by lane and time; *table* describes each lane.

    Every slice has an element in *row* (of the table of nodes), *lane*, *start_ns*, *end_ns* and
    *node_id*. Overlapping slices of a stream are in adjacent lanes.

    With *nested*, a lane's phase, modules and operators have separate lanes above it, with a
    ``level`` in *table*. *label* is the index of such a slice's name in *labels* (-1 for nodes),
    and its row and node are the row and the id of its longest node.

    *calls* are the host calls of each rank in the captured step, for *nodes* at measured times (see
    `at_measured_times`). They follow the rank's lanes in a lane per thread and depth, of level
    :data:`CALLS`. The row and node of a call are those of the last node that began before it. A lane
    is ``outer`` in *table* if a single call fills 99 % of it.
    """

    def __init__(
        self,
        nodes: pd.DataFrame,
        *,
        nested: bool = False,
        calls: Mapping[int, HostCalls] | None = None,
    ) -> None:
        is_comm = is_communication(nodes["type"]).to_numpy()
        rank, stream, start, end = (
            nodes[name].to_numpy(np.int64) for name in ("rank", "stream", "start_ns", "end_ns")
        )
        order = np.lexsort((start, stream, is_comm, rank))
        columns = {"rank": rank[order], "comm": is_comm[order], "stream": stream[order]}
        changed = changed_rows([*columns.values()])
        keys = pd.DataFrame({name: column[changed] for name, column in columns.items()})
        streams = np.cumsum(changed) - 1
        track = tracks(streams, start[order], end[order])
        if track.any():
            again = np.lexsort((start[order], track, streams))
            order, track = order[again], track[again]
        lane = np.append(True, (np.diff(streams) != 0) | (np.diff(track) != 0))[: len(streams)]
        self.row: Ints = order
        self.lane: Ints = np.cumsum(lane) - 1
        self.start_ns, self.end_ns = start[order], end[order]
        self.label, self.labels = np.full(len(self.row), -1, np.int64), list[str]()
        lanes = lane_table(keys)
        self.table = _with_tracks(lanes.iloc[streams[lane]], track[lane])
        if nested:
            alone = keys["comm"].to_numpy(bool)[streams[lane]] | (track[lane] > 0)
            self._nest(nested_groups(nodes, self, alone))
        for rank_, of_rank in (calls or {}).items():
            self._add_calls(nodes, rank_, of_rank)
        self.node_id: Ints = nodes["node_id"].to_numpy(np.int64)[self.row]
        self.makespan_ns = int(self.end_ns.max()) if len(self.end_ns) else 0
        self._first = np.searchsorted(self.lane, np.arange(len(self.table) + 1))
        self._reach = self._running_end()

    @property
    def is_node(self) -> npt.NDArray[np.bool_]:
        """Whether each slice is a node rather than a phase, module, operator or call."""
        return self.label < 0

    def _nest(self, groups: Groups) -> None:
        """Insert the slices of *groups* above the lanes of their nodes."""
        lane = np.append(self.lane * 2**8 + 2**8 - 1, groups.lane * 2**8 + groups.depth)
        start = np.append(self.start_ns, groups.start_ns)
        order = np.lexsort((start, lane))
        kept, self.lane = np.unique(lane[order], return_inverse=True)
        self.row = np.append(self.row, groups.row)[order]
        self.start_ns, self.end_ns = start[order], np.append(self.end_ns, groups.end_ns)[order]
        self.label = np.append(self.label, groups.label)[order]
        self.labels = groups.labels
        base, depth = kept // 2**8, kept % 2**8
        level = [SLICES if place == 2**8 - 1 else groups.levels[place] for place in depth.tolist()]
        self.table = self.table.iloc[base].reset_index(drop=True).assign(level=level)

    def _add_calls(self, nodes: pd.DataFrame, rank: int, calls: HostCalls) -> None:
        """Insert the host *calls* of *rank* below its other lanes."""
        began = nodes["start_ns"].to_numpy(np.int64)
        rows = np.flatnonzero(nodes["rank"].to_numpy(np.int64) == rank)
        above = np.flatnonzero(self.table["rank"] == rank)
        if not len(rows) or not len(calls.name):
            return
        rows = rows[np.argsort(began[rows], kind="stable")]
        node = rows[np.maximum(0, np.searchsorted(began[rows], calls.start_ns, side="right") - 1)]
        place = 1 + calls.thread * _DEEPEST + calls.depth
        lane = np.append(self.lane * 2**32, above[-1] * 2**32 + place)
        start = np.append(self.start_ns, calls.start_ns)
        order = np.lexsort((start, lane))
        keys, self.lane = np.unique(lane[order], return_inverse=True)
        self.row = np.append(self.row, node)[order]
        self.start_ns, self.end_ns = start[order], np.append(self.end_ns, calls.end_ns)[order]
        self.label = np.append(self.label, calls.name + len(self.labels))[order]
        self.labels = [*self.labels, *calls.names]
        base, place = np.divmod(keys, 2**32)
        table = self.table.iloc[base].reset_index(drop=True)
        is_call = place > 0
        threads = [calls.threads[thread] for thread in ((place[is_call] - 1) // _DEEPEST).tolist()]
        table.loc[is_call, "label"] = threads
        table.loc[is_call, "level"] = CALLS
        first, count = np.searchsorted(self.lane, np.arange(len(keys))), np.bincount(self.lane)
        lasted, whole_ns = (
            self.end_ns[first] - self.start_ns[first],
            calls.end_ns.max() - calls.start_ns.min(),
        )
        table["outer"] |= is_call & (count == 1) & (100 * lasted >= 99 * whole_ns)
        self.table = table

    def _running_end(self) -> Ints:
        """Return the running maximum of ends along each lane, because slices may overlap."""
        reach: Ints = self.end_ns.copy()
        for low, high in zip(self._first[:-1], self._first[1:], strict=True):
            np.maximum.accumulate(reach[low:high], out=reach[low:high])
        return reach

    def inside(self, t0_ns: int, t1_ns: int, lanes: Iterable[int]) -> Ints:
        """Return the slices that touch [*t0_ns*, *t1_ns*) in *lanes*; missing lanes are ignored."""
        wanted = (lane for lane in lanes if 0 <= lane < len(self.table))
        parts = [self._touching(lane, t0_ns, t1_ns) for lane in wanted]
        return np.concatenate(parts) if parts else np.zeros(0, np.int64)

    def _touching(self, lane: int, t0_ns: int, t1_ns: int) -> Ints:
        low, high = self._first[lane], self._first[lane + 1]
        begin = low + np.searchsorted(self._reach[low:high], t0_ns, side="right")
        end = low + np.searchsorted(self.start_ns[low:high], t1_ns, side="left")
        return np.arange(begin, max(begin, end))

    def area(self, t0_ns: int, t1_ns: int, lanes: Iterable[int]) -> pd.DataFrame:
        """Return the slices that touch an area of lanes and time: ``row`` and ``inside_ns``.

        ``level`` and ``label`` identify a slice; for a node, they are :data:`SLICES` and "".
        """
        index = self.inside(t0_ns, t1_ns, lanes)
        inside = np.minimum(self.end_ns[index], t1_ns) - np.maximum(self.start_ns[index], t0_ns)
        index, inside = index[inside > 0], inside[inside > 0]
        named = np.array([*self.labels, ""], dtype=object)[self.label[index]]
        table: pd.DataFrame = pd.DataFrame(
            {
                "row": self.row[index],
                "inside_ns": inside,
                "level": self.table["level"].to_numpy()[self.lane[index]],
                "label": named,
            }
        )
        return table

    def lane_of(self, rank: int, node_id: int) -> tuple[int, int, int]:
        """Return (lane, start_ns, end_ns) of a node, or (-1, 0, 0) if it has no slice."""
        low, high = self._slices_of(rank)
        rows = np.flatnonzero((self.node_id[low:high] == node_id) & self.is_node[low:high])
        if len(rows) == 0:
            return -1, 0, 0
        at = int(low + rows[0])
        return int(self.lane[at]), int(self.start_ns[at]), int(self.end_ns[at])

    def lanes_of(self, ranks: Ints, node_ids: Ints) -> Ints:
        """Return the lane of each (rank, node), -1 where the node has no slice."""
        lanes = np.full(len(ranks), -1, np.int64)
        by_rank = np.argsort(ranks, kind="stable")
        asked, first = np.unique(ranks[by_rank], return_index=True)
        # Rank by rank, because indexing all slices takes longer than drawing millions of them.
        for rank, pairs in zip(asked.tolist(), np.split(by_rank, first)[1:], strict=True):
            low, high = self._slices_of(rank)
            slices = low + np.flatnonzero(self.label[low:high] < 0)
            slices = slices[np.argsort(self.node_id[slices], kind="stable")]
            ids = self.node_id[slices]
            place = positions(ids, node_ids[pairs])
            if len(ids):
                lanes[pairs] = np.where(place >= 0, self.lane[slices[place]], -1)
        return lanes

    def _slices_of(self, rank: int) -> tuple[int, int]:
        """Return the range of the slices of *rank*, which are contiguous."""
        of_rank = self.table["rank"].to_numpy(np.int64)
        low, high = np.searchsorted(of_rank, rank), np.searchsorted(of_rank, rank, side="right")
        return int(self._first[low]), int(self._first[high])


def _with_tracks(lanes: pd.DataFrame, track: Ints) -> pd.DataFrame:
    """Append the *track* number to the labels of parallel lanes of one stream."""
    beside = [f" · {number + 1}" if number else "" for number in track.tolist()]
    table: pd.DataFrame = lanes.reset_index(drop=True).assign(level=SLICES, outer=False)
    table["label"] = table["label"].astype(str) + np.array(beside, dtype=object)
    return table


def area_overview(nodes: pd.DataFrame, inside: pd.DataFrame, span_ns: int) -> list[tuple[str, str]]:
    """Summarise an area of lanes as (label, text) pairs: its length, content, and time by kind.

    *inside* comes from `Lanes.area`, and *nodes* are the nodes of the lanes.
    """
    shown = inside[inside["level"] == SLICES]
    facts = nodes[["kind", "rank"]].iloc[shown["row"]].assign(inside_ns=shown["inside_ns"].to_numpy())
    pairs = [("Width", duration_text(span_ns))]
    if len(shown) or not len(inside):
        pairs.append(("Slices", f"{len(facts):,} of {count_text(facts['rank'].nunique(), 'rank')}"))
    for kind, part in facts.groupby("kind", sort=False):
        total = duration_text(int(part["inside_ns"].sum()))
        pairs.append((KIND_LABELS.get(str(kind), str(kind)), f"{total} in {count_text(len(part), 'slice')}"))
    return pairs


def area_table(nodes: pd.DataFrame, inside: pd.DataFrame) -> pd.DataFrame:
    """Return a row per operator in an area of lanes, most time first.

    The columns are ``operator``, ``kind``, ``slices``, ``total_ns``, ``mean_ns`` and ``longest_ns``.
    Only time inside the area counts.
    """
    inside = inside[inside["level"] == SLICES]
    facts = nodes[["operator", "name", "kind"]].iloc[inside["row"]].reset_index(drop=True)
    named = facts["operator"].where(facts["operator"] != "", facts["name"])
    return _summed(
        inside.reset_index(drop=True).assign(operator=named, kind=facts["kind"]), ["operator", "kind"]
    )


def area_names(nodes: pd.DataFrame, inside: pd.DataFrame) -> pd.DataFrame:
    """Return a row per name and level in an area: :func:`area_table` with nested slices.

    The columns are ``name``, ``row`` (phase, module, operator or slice), and the columns of
    :func:`area_table` starting with ``slices``.
    """
    names = nodes["name"].iloc[inside["row"]].reset_index(drop=True)
    table = inside.reset_index(drop=True)
    named = names.where(table["level"] == SLICES, table["label"])
    return _summed(table.assign(name=named, row=table["level"]), ["name", "row"])


def _summed(table: pd.DataFrame, keys: list[str]) -> pd.DataFrame:
    sums = table.groupby(keys)["inside_ns"].agg(
        slices="size", total_ns="sum", mean_ns="mean", longest_ns="max"
    )  # fmt: skip
    whole = sums.round().astype("int64").reset_index()
    ordered: pd.DataFrame = whole.sort_values("total_ns", ascending=False, kind="stable", ignore_index=True)
    return ordered


_BATCH = 5_000


def chrome_trace(parts: Iterable[tuple[pd.DataFrame, Lanes]], path: pd.DataFrame) -> Iterator[str]:
    """Yield a Chrome trace as pieces of JSON: a process per rank, a thread per lane, the critical path.

    *parts* are the nodes of whole ranks with their lanes, and *path* are the segments. Times are
    in µs with three decimals, which is exact to the nanosecond.
    """
    yield '{"displayTimeUnit": "ns", "traceEvents": [\n'
    before, number, first_lane = "", 0, 0
    for nodes, lanes in parts:
        for event in _names(lanes.table, first_lane):
            yield before + json.dumps(event)
            before = ",\n"
        lane_of_node = lanes.lanes_of(nodes["rank"].to_numpy("int64"), nodes["node_id"].to_numpy("int64"))
        lane = (lane_of_node + first_lane).tolist()
        for first in range(0, len(nodes), _BATCH):
            rows = nodes.iloc[first : first + _BATCH].to_dict("records")
            events = (_slice(row, its) for row, its in zip(rows, lane[first:], strict=False))
            yield "".join(",\n" + json.dumps(event) for event in events)
        number = max(number, int(lanes.table["rank"].max()) + 1 if len(lanes.table) else 0)
        first_lane += len(lanes.table)
    for event in _process(number, "Critical path"):
        yield before + json.dumps(event)
        before = ",\n"
    for row in path.to_dict("records"):
        yield ",\n" + json.dumps(_segment(row, number))
    yield "\n]}\n"


def _names(lanes: pd.DataFrame, first_lane: int) -> list[dict[str, Any]]:
    events = [event for rank in lanes["rank"].unique() for event in _process(int(rank), f"rank {rank}")]
    events += [
        {
            "ph": "M",
            "name": "thread_name",
            "pid": int(row["rank"]),
            "tid": first_lane + lane,
            "args": {"name": row["label"]},
        }
        for lane, row in enumerate(lanes.to_dict("records"))
    ]
    return events


def _process(number: int, name: str) -> list[dict[str, Any]]:
    return [
        {"ph": "M", "name": "process_name", "pid": number, "args": {"name": name}},
        {"ph": "M", "name": "process_sort_index", "pid": number, "args": {"sort_index": number}},
    ]


def _times(row: dict[Any, Any]) -> dict[str, Any]:
    start, end = int(row["start_ns"]), int(row["end_ns"])
    return {"ph": "X", "ts": start / 1000, "dur": (end - start) / 1000}


def _slice(row: dict[Any, Any], lane: int) -> dict[str, Any]:
    facts = {
        key: row[key] for key in ("module", "operator", "phase") if isinstance(row[key], str) and row[key]
    }
    about = {"name": str(row["name"]), "cat": str(row["kind"]), "pid": int(row["rank"]), "tid": lane}
    return {**about, **_times(row), "args": {"node": int(row["node_id"]), **facts}}


def _segment(row: dict[Any, Any], number: int) -> dict[str, Any]:
    about = {"name": str(row["name"]), "cat": str(row["kind"]), "pid": number, "tid": 0}
    facts = {"rank": int(row["rank"]), "node": int(row["node_id"]), "reason": str(row["reason"])}
    return {**about, **_times(row), "args": facts}
