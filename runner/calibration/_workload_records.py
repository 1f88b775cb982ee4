"""The transfers in the nodes of a captured workload."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pandas as pd

from ...converter import CollectiveType, Graph, NodeType, Workload, replay
from ...errors import ConfigError
from ...support import count_text
from .._captured import is_captured
from ._message_records import DEVICE_LANES, message_transfers
from ._records import MUTUAL, Call, Records, Transfer
from ._rooted_records import rooted_calls, rooted_transfers

__all__ = ["workload_records"]

_KEY = ["group", "comm_type", "turn"]


def workload_records(workload: Workload, source: str, hosts: Mapping[int, str] | None = None) -> Records:
    """Return the transfers of the captured *workload*.

    The rank with the shortest duration of a collective came last and did not wait, so no clocks are needed.
    Collectives of one lane count as one transfer if each was requested before the previous one had ended on
    some rank. Collectives with a root need clocks, which other collectives correct. Raises `ConfigError` for
    a workload that was not captured.
    """
    if not is_captured(workload.metadata):
        raise ConfigError(
            "The workload does not come from a measurement, so its collectives took no time to fit anything "
            "to; capture the job with 'chakrascope trace', or give production logs."
        )
    calls = _calls(workload)
    everyone = tuple(range(workload.num_ranks))
    rooted = rooted_calls(calls)
    transfers, left_out = rooted_transfers(calls, rooted, workload.groups, everyone)
    calls["mutual"] = calls["comm_type"].isin(MUTUAL) & ~rooted
    incomplete = 0
    for _, part in calls.groupby(["group", "stream"], sort=True):
        group, lane = (int(part.iloc[0][name]) for name in ("group", "stream"))
        members = tuple(workload.groups.get(group) or everyone)
        found, lost = _transfers(part, members, serial=lane >= DEVICE_LANES)
        transfers += found
        incomplete += lost
    messages, unclear = message_transfers(workload, _captured_ranks(workload))
    transfers += messages
    left_out += unclear
    if incomplete:
        left_out.append(f"{count_text(incomplete, 'collective')} that not all ranks have")
    return Records(tuple(transfers), workload.num_ranks, source, hosts or {}, left_out=tuple(left_out))


def _captured_ranks(workload: Workload) -> int:
    return int(workload.metadata.get("scaled_from_ranks", workload.num_ranks))


def _calls(workload: Workload) -> pd.DataFrame:
    """Return every collective of every captured rank: its request, start and end."""
    tables = []
    for rank in range(_captured_ranks(workload)):
        graph = workload.graphs[int(workload.program_of_rank[rank])]
        tables.append(_rank_calls(graph).assign(rank=rank))
    table: pd.DataFrame = pd.concat(tables, ignore_index=True)
    return table


def _rank_calls(graph: Graph) -> pd.DataFrame:
    times = replay(graph)
    nodes = graph.nodes
    chosen = (nodes["type"] == NodeType.COMM_COLL).to_numpy()
    columns = ["node_id", "operator", "comm_type", "comm_size_bytes", "group", "stream"]
    columns += ["measured_start_ns", "duration_ns"]
    calls = nodes.loc[chosen, columns].assign(
        start_ns=times.start_ns[chosen],
        end_ns=times.end_ns[chosen],
        asked_ns=_asked(graph, times.end_ns)[chosen],
    )
    calls["turn"] = calls.groupby(["group", "comm_type"]).cumcount()
    table: pd.DataFrame = calls
    return table


def _asked(graph: Graph, end_ns: np.ndarray) -> np.ndarray:
    """Return for each node the end of its last dependency, ignoring nodes ahead of it in its lane."""
    nodes, edges = graph.node_columns, graph.edge_columns
    sources, targets = (np.searchsorted(nodes["node_id"], edges[end]) for end in ("src", "dst"))
    other = nodes["stream"][sources] != nodes["stream"][targets]
    asked = np.zeros(len(end_ns), dtype=np.int64)
    np.maximum.at(asked, targets[other], end_ns[sources[other]])
    return asked


def _transfers(calls: pd.DataFrame, members: tuple[int, ...], *, serial: bool) -> tuple[list[Transfer], int]:
    """Return the transfers of one group's lane, and the number of collectives that some rank lacks.

    In a *serial* lane collectives never overlap.
    """
    calls = calls.assign(number=calls.groupby(_KEY, sort=False).ngroup())
    numbers = calls.groupby("number")
    whole = (numbers["rank"].transform("size") == len(members)) & (
        numbers["comm_size_bytes"].transform("min") == numbers["comm_size_bytes"].transform("max")
    )
    lost = int(calls.loc[~whole, "number"].nunique())
    ordered = calls[whole].sort_values(["number", "rank"])
    starts, ends, asked, sizes, kinds, mutual = (
        ordered[name].to_numpy(np.int64).reshape(-1, len(members))
        for name in ("start_ns", "end_ns", "asked_ns", "comm_size_bytes", "comm_type", "mutual")
    )
    # A collective moves no data during the previous one if some rank requested it later. One without duration
    # in the lane had ended first, so both ran at the same time.
    anew = np.ones(len(starts), dtype=bool)
    if not serial:
        anew[1:] = (asked[1:] >= ends[:-1]).any(axis=1) & (ends[1:] - starts[1:] > 1).all(axis=1)
    named = [
        Call(CollectiveType(kind).name.lower(), size)
        for kind, size in zip(kinds[:, 0].tolist(), sizes[:, 0].tolist(), strict=True)
    ]
    useful = mutual[:, 0].astype(bool)
    found = []
    firsts = np.flatnonzero(anew).tolist()
    for first, after in zip(firsts, [*firsts[1:], len(starts)], strict=True):
        if useful[first:after].all():
            took = ends[after - 1] - starts[first]
            shortest, longest = int(took.min()), int(took.max())
            found.append(Transfer(members, tuple(named[first:after]), shortest, longest - shortest))
    return found, lost
