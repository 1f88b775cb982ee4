"""The transfers of sends and receives in a captured workload."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas as pd

from ...converter import NodeType, Workload
from ...support import count_text
from ._records import MESSAGE, Call, Transfer

__all__ = ["DEVICE_LANES", "message_transfers"]

DEVICE_LANES = 1000
"""Lanes from here on are device streams, on which each operation has its measured interval."""
_LEAST = 3  # messages per direction, of which the fastest did not wait
_COLUMNS = [
    "comm_src",
    "comm_dst",
    "comm_tag",
    "comm_size_bytes",
    "group",
    "stream",
    "measured_start_ns",
    "duration_ns",
]
_KEY = ["source", "target", "comm_tag", "comm_size_bytes", "group"]


def message_transfers(workload: Workload, captured_ranks: int) -> tuple[list[Transfer], list[str]]:
    """Return the transfers of messages between the first *captured_ranks*, and sentences on omitted ones.

    On a device, the end of a message with the shorter duration came last and did not wait. On hosts, a
    receive lasts from its request: of messages of one size in both directions between two ranks, the fastest
    in each direction have not waited, and in the average of both directions clock offsets cancel.
    """
    messages = _messages(workload, captured_ranks)
    on_device = (messages["stream_sent"] >= DEVICE_LANES) & (messages["stream_received"] >= DEVICE_LANES)
    transfers = [
        _transfer(
            int(row.source), int(row.target), int(row.comm_size_bytes), min(took), abs(took[0] - took[1])
        )
        for row in messages[on_device].itertuples()
        if min(took := (int(row.duration_ns_sent), int(row.duration_ns_received))) > 1
    ]
    known = messages["measured_start_ns_sent"].ge(0) & messages["measured_start_ns_received"].ge(0)
    hosts = messages[~on_device & known]
    there_and_back = list(_there_and_back(hosts))
    used = sum(count for _, count in there_and_back)
    lost = len(messages) - len(transfers) - used
    left_out = [
        f"{count_text(lost, 'message')} whose transfer no clock tells: less than {_LEAST} of a size each way"
    ]
    return [*transfers, *(one for one, _ in there_and_back)], left_out if lost else []


def _messages(workload: Workload, ranks: int) -> pd.DataFrame:
    """Return every message with both ends: the k-th send of a kind matches the k-th receive."""
    tables: dict[NodeType, list[pd.DataFrame]] = {NodeType.COMM_SEND: [], NodeType.COMM_RECV: []}
    for rank in range(ranks):
        nodes = workload.graphs[int(workload.program_of_rank[rank])].nodes
        for kind, own, peer in (
            (NodeType.COMM_SEND, "source", "comm_dst"),
            (NodeType.COMM_RECV, "target", "comm_src"),
        ):
            part = nodes.loc[nodes["type"] == kind, _COLUMNS]
            other = "target" if own == "source" else "source"
            ends = part.assign(**{own: rank, other: part[peer]})
            tables[kind].append(ends.assign(turn=ends.groupby(_KEY).cumcount()))
    sends, receives = (pd.concat(tables[kind], ignore_index=True) for kind in tables)
    both: pd.DataFrame = sends.merge(receives, on=[*_KEY, "turn"], suffixes=("_sent", "_received"))
    return both


def _there_and_back(messages: pd.DataFrame) -> Iterator[tuple[Transfer, int]]:
    """Yield a transfer for each pair of ranks and size, with its number of messages."""
    apart = messages.assign(
        took=messages["measured_start_ns_received"]
        + messages["duration_ns_received"]
        - messages["measured_start_ns_sent"],
        low=messages[["source", "target"]].min(axis=1),
        high=messages[["source", "target"]].max(axis=1),
    )
    for key, part in apart.groupby(["low", "high", "comm_size_bytes"], sort=True):
        low, high, size = (int(value) for value in np.asarray(key))
        ways = [np.sort(part.loc[part["source"] == rank, "took"].to_numpy(np.int64)) for rank in (low, high)]
        if min(map(len, ways)) < _LEAST:
            continue
        fastest, median = (sum(int(way[place * len(way) // 4]) for way in ways) // 2 for place in (0, 2))
        if fastest > 0:
            yield _transfer(low, high, size, fastest, median - fastest), len(part)


def _transfer(source: int, target: int, size: int, took: int, wait: int) -> Transfer:
    return Transfer((source, target), (Call(MESSAGE, size),), took, wait)
