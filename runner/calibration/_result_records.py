"""The transfers of a result whose ranks have one clock: an emulated run, or a simulated one."""

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
    """Return the transfers of *result*, each from when its last rank came to when its last rank left.

    Collectives of a group of which one begins before another has ended are one transfer.
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
    table = calls.groupby("collective").agg(
        comm_type=("comm_type", "first"),
        size_bytes=("size_bytes", "first"),
        first_ns=("start_ns", "min"),
        last_ns=("start_ns", "max"),
        end_ns=("end_ns", "max"),
    )
    found: list[Transfer] = []
    named: list[Call] = []
    first_ns = last_ns = end_ns = -1
    for row in table.sort_values(["last_ns", "end_ns"]).itertuples(index=False):
        if named and row.last_ns >= end_ns:
            found.append(Transfer(members, tuple(named), end_ns - last_ns, last_ns - first_ns))
            named = []
        if not named:
            first_ns, last_ns = int(row.first_ns), int(row.last_ns)
        named.append(Call(CollectiveType(int(row.comm_type)).name.lower(), int(row.size_bytes)))
        end_ns = max(end_ns, int(row.end_ns))
    if named:
        found.append(Transfer(members, tuple(named), end_ns - last_ns, last_ns - first_ns))
    return found
