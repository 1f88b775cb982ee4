"""The transfers in a result of an emulated or simulated run."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ...converter import CollectiveType, Workload
from .._result import Result
from ._records import MUTUAL, Call, Records, Transfer

__all__ = ["result_records"]


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
