"""The transfers that the nodes of a captured workload hold."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

import numpy as np
import pandas as pd

from ...converter import CollectiveType, Graph, NodeType, Workload, replay
from ...errors import ConfigError
from ...support import count_text
from .._simulate import is_captured
from ._records import MUTUAL, Call, Records, Transfer

__all__ = ["workload_records"]

_KEY = ["group", "comm_type", "turn"]


def workload_records(workload: Workload, source: str, hosts: Mapping[int, str] | None = None) -> Records:
    """Return the transfers of the captured *workload*.

    The rank on which a collective took least came last and waited for nobody, which needs no clocks.
    Collectives of one lane that were asked for before the one ahead had ended on any rank are one transfer.
    Raises `ConfigError` for a workload that does not come from a measurement.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload does not come from a measurement, so its collectives took no time to fit anything "
            "to; capture the job with 'chakrascope trace', or give production logs."
        )
    calls = _calls(workload)
    rooted = int((~calls["comm_type"].isin(MUTUAL)).sum())
    left_out = []
    if rooted:
        left_out.append(
            f"{count_text(rooted, 'record')} of broadcasts and other collectives in which ranks do not wait "
            "for each other: their waiting and their transfer look alike"
        )
    transfers = []
    everyone = tuple(range(workload.num_ranks))
    incomplete = 0
    for _, part in calls.groupby(["group", "stream"], sort=True):
        group, lane = (int(part.iloc[0][name]) for name in ("group", "stream"))
        members = tuple(workload.groups.get(group) or everyone)
        found, lost = _transfers(part, members, serial=lane >= _DEVICE_LANES)
        transfers += found
        incomplete += lost
    if incomplete:
        left_out.append(f"{count_text(incomplete, 'collective')} that not all ranks have")
    return Records(tuple(transfers), workload.num_ranks, source, hosts or {}, left_out=tuple(left_out))


# Lanes from here on are streams of a device, on which each collective has the interval it was measured at.
_DEVICE_LANES = 1000


def _calls(workload: Workload) -> pd.DataFrame:
    """Return every collective of every rank that was captured: when it was asked for, began and ended."""
    tables = []
    captured = int(workload.metadata.get("scaled_from_ranks", workload.num_ranks))
    for rank in range(captured):
        graph = workload.graphs[int(workload.program_of_rank[rank])]
        tables.append(_rank_calls(graph).assign(rank=rank))
    table: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return table


def _rank_calls(graph: Graph) -> pd.DataFrame:
    times = replay(graph)
    nodes = graph.nodes
    chosen = (nodes["type"] == NodeType.COMM_COLL).to_numpy()
    columns = ["node_id", "comm_type", "comm_size_bytes", "group", "stream"]
    calls = nodes.loc[chosen, columns].assign(
        start_ns=times.start_ns[chosen],
        end_ns=times.end_ns[chosen],
        asked_ns=_asked(graph, times.end_ns)[chosen],
    )
    calls["turn"] = calls.groupby(["group", "comm_type"]).cumcount()
    table: pd.DataFrame = calls
    return table


def _asked(graph: Graph, end_ns: np.ndarray) -> np.ndarray:
    """Return for each node when all that it waits for had ended, but for what is ahead of it in its lane."""
    nodes, edges = graph.node_columns, graph.edge_columns
    sources, targets = (np.searchsorted(nodes["node_id"], edges[end]) for end in ("src", "dst"))
    other = nodes["stream"][sources] != nodes["stream"][targets]
    asked = np.zeros(len(end_ns), dtype=np.int64)
    np.maximum.at(asked, targets[other], end_ns[sources[other]])
    return asked


def _transfers(calls: pd.DataFrame, members: tuple[int, ...], *, serial: bool) -> tuple[list[Transfer], int]:
    """Return the transfers of one group's lane, and how many collectives some rank lacks.

    In a *serial* lane collectives never overlap.
    """
    found: list[Transfer] = []
    open_calls: list[pd.DataFrame] = []
    lost = 0
    for _, part in _in_order(calls):
        if len(part) != len(members) or part["comm_size_bytes"].nunique() > 1:
            lost += 1
            continue
        part = part.set_index("rank").sort_index()  # noqa: PLW2901 - the same rows
        if open_calls and (serial or _begins_anew(part, open_calls[-1])):
            found += _closed(open_calls, members)
            open_calls = []
        open_calls.append(part)
    return found + _closed(open_calls, members), lost


def _begins_anew(call: pd.DataFrame, before: pd.DataFrame) -> bool:
    """Return whether nothing of *call* was moved while the one *before* it was: a rank asked for it later.

    Where it took no time in the lane it had ended first, so that both were under way.
    """
    took = call["end_ns"] - call["start_ns"]
    return bool((call["asked_ns"] >= before["end_ns"]).any() and (took > 1).all())


def _in_order(calls: pd.DataFrame) -> list[tuple[object, pd.DataFrame]]:
    """Return the collectives in the order in which the lowest rank has them, each with its ranks' rows."""
    parts: dict[object, list[int]] = defaultdict(list)
    for place, key in enumerate(calls[_KEY].itertuples(index=False, name=None)):
        parts[key].append(place)
    return [(key, calls.iloc[places]) for key, places in parts.items()]


def _closed(calls: list[pd.DataFrame], members: tuple[int, ...]) -> list[Transfer]:
    """Return the transfer that *calls* are, by rank; none if there is none, or one is of no use."""
    if not calls or not all(int(call["comm_type"].iloc[0]) in MUTUAL for call in calls):
        return []
    took = calls[-1]["end_ns"] - calls[0]["start_ns"]
    named = tuple(
        Call(
            CollectiveType(int(call["comm_type"].iloc[0])).name.lower(), int(call["comm_size_bytes"].iloc[0])
        )
        for call in calls
    )
    return [Transfer(members, named, int(took.min()), int(took.max() - took.min()))]
