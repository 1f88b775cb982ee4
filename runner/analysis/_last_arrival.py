"""The one rule for who came last to a collective: of ranks that do the same at the same time, the lowest."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from ...converter import Workload
from .._result import Result

__all__ = ["with_replicas_folded"]


def with_replicas_folded(result: Result, workload: Workload) -> Result:
    """Return *result* with one name for each last arrival, whichever replica the engine recorded.

    Replicas run the same program and arrive together, so that any of them came last. A node that arrived with
    them waited for nobody; for others it is the lowest rank. No time changes.
    """
    calls, programs = result.collectives, np.asarray(workload.program_of_rank)
    if calls.empty or len(programs) <= int(calls["rank"].max()) or len(np.unique(programs)) == len(programs):
        return result
    nodes = result.nodes
    if nodes.empty or "origin_rank" not in nodes:
        return result
    named = calls[["rank", "node_id", "collective", "start_ns"]].astype(np.int64)
    named = named.assign(program=programs[named["rank"].to_numpy()])
    named["tie"] = named.groupby(["collective", "program", "node_id", "start_ns"]).ngroup()
    named["lowest"] = named.groupby("tie")["rank"].transform("min")
    tie = named.set_index(["rank", "node_id"])["tie"]
    lowest = named.set_index(["rank", "node_id"])["lowest"]
    own = _at(tie, nodes["rank"], nodes["node_id"])
    origin = _at(tie, nodes["origin_rank"], nodes["origin_node"])
    first = _at(lowest, nodes["origin_rank"], nodes["origin_node"])
    ranks = nodes["origin_rank"].to_numpy()
    folded = np.where(origin < 0, ranks, np.where(own == origin, nodes["rank"].to_numpy(), first))
    return dataclasses.replace(result, nodes=nodes.assign(origin_rank=folded.astype(ranks.dtype)))


def _at(
    values: pd.Series, ranks: pd.Series, node_ids: pd.Series
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Return the value at each place, -1 where there is none."""
    places = pd.MultiIndex.from_arrays([ranks.astype(np.int64), node_ids.astype(np.int64)])
    found: np.ndarray[tuple[int], np.dtype[np.int64]] = (
        values[~values.index.duplicated()].reindex(places, fill_value=-1).to_numpy(np.int64)
    )
    return found
