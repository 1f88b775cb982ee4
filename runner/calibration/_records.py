"""The input of a calibration: durations of collectives after the arrival of their last rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import pandas as pd

from ...converter import CollectiveType, Workload
from .._result import Result

__all__ = ["EXCHANGE", "MESSAGE", "MUTUAL", "ROOTED", "Call", "Records", "Transfer", "result_records"]

# Collectives that end on no rank before all have arrived: the shortest duration has no waiting.
MUTUAL = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
)
# In these, one rank may leave before another has arrived, so a common clock, or a common end, is needed.
ROOTED = tuple(kind for kind in CollectiveType if kind.is_rooted)
MESSAGE = "message"
"""The operation of a message from one rank to another."""
EXCHANGE = "exchange"
"""The operation of two messages, one in each direction: each rank sends, and then receives."""


class Call(NamedTuple):
    """A collective or message: its operation, such as ``all_reduce``, and the bytes of each rank."""

    operation: str
    size_bytes: int


class Transfer(NamedTuple):
    """Collectives of the global ranks *members* that moved their data without a pause, and the duration.

    It is one collective, or several if each was requested before the previous one had ended. *transfer_ns*
    begins at the arrival of the last rank; *wait_ns* is the additional time of the first rank.
    """

    members: tuple[int, ...]
    calls: tuple[Call, ...]
    transfer_ns: int
    wait_ns: int


@dataclass(frozen=True)
class Records:
    """The measurements of one job; *source* describes their origin in a few words.

    *hosts* and *leaves* give the host of a rank, and the switch above it; the location of missing ranks is
    unknown. *left_out* are sentences on unusable measurements. *message_costs_ns* are measurements of how
    long a message keeps its sender from sending the next. *sends_first* has the operations whose ranks send
    before the request, with the number of concurrent pieces; their transfers are those of a rank that arrived
    long after all others. *substitutes* maps operations to those that the library runs in their place.
    """

    transfers: tuple[Transfer, ...]
    num_ranks: int
    source: str
    hosts: Mapping[int, str] = field(default_factory=dict)
    leaves: Mapping[int, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    message_costs_ns: tuple[float, ...] = ()
    sends_first: Mapping[str, int] = field(default_factory=dict)
    substitutes: Mapping[str, str] = field(default_factory=dict)


def result_records(
    result: Result, workload: Workload, source: str, hosts: Mapping[int, str] | None = None
) -> Records:
    """Return the transfers of *result*: the duration of each collective on the last rank to arrive.

    That rank has the shortest duration, so no common clock is needed. Collectives of a group count as one
    transfer if, on each rank, each begins before the previous one has ended.
    """
    calls = result.collectives[result.collectives["comm_type"].isin(MUTUAL)]
    everyone = tuple(range(workload.num_ranks))
    transfers: list[Transfer] = []
    for group, part in calls.groupby("group", sort=True):
        members = tuple(workload.groups.get(int(str(group))) or everyone)
        ranks = part.groupby("collective")["rank"].transform("size")
        transfers += _transfers(part[ranks == len(members)], members)
    return Records(tuple(transfers), workload.num_ranks, source, hosts or {})


def _transfers(calls: pd.DataFrame, members: tuple[int, ...]) -> list[Transfer]:
    found: list[Transfer] = []
    under_way: list[pd.DataFrame] = []
    columns = ["collective", "comm_type", "size_bytes", "start_ns", "end_ns"]
    for _, call in calls.set_index("rank")[columns].groupby("collective", sort=True):
        ordered = call.sort_index()
        if under_way and (ordered["start_ns"] >= under_way[-1]["end_ns"]).any():
            found.append(_transfer(under_way, members))
            under_way = []
        under_way.append(ordered)
    return [*found, _transfer(under_way, members)] if under_way else found


def _transfer(calls: list[pd.DataFrame], members: tuple[int, ...]) -> Transfer:
    ends = pd.concat([call["end_ns"] for call in calls], axis=1).max(axis=1)
    took = ends - calls[0]["start_ns"]
    named = tuple(
        Call(CollectiveType(int(call["comm_type"].iloc[0])).name.lower(), int(call["size_bytes"].iloc[0]))
        for call in calls
    )
    return Transfer(members, named, int(took.min()), int(took.max() - took.min()))
