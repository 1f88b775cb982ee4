"""Write a run as a Chrome trace, for Perfetto and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any

import pandas as pd

from ._critical_path import CriticalPath
from ._lanes import Lanes

_BATCH = 5_000


def chrome_trace(nodes: pd.DataFrame, lanes: Lanes, path: CriticalPath) -> Iterator[str]:
    """Yield a Chrome trace as pieces of JSON: a process per rank, a thread per lane, the critical path.

    *nodes* are the run's nodes and *lanes* their lanes. Times are in µs with three decimals, which
    is exact to the nanosecond.
    """
    yield from chrome_traces([(nodes, lanes)], path)


def chrome_traces(parts: Iterable[tuple[pd.DataFrame, Lanes]], path: CriticalPath) -> Iterator[str]:
    """Yield the JSON of `chrome_trace` for *parts*: nodes and lanes of whole ranks."""
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
    for row in path.segments.to_dict("records"):
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
