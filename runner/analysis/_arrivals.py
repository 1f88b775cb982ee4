"""Say when every rank came to every collective, and how much later than the first."""

from __future__ import annotations

import numpy as np
import pandas as pd

from .._result import Result
from ._collective_overview import operation_name
from ._replay_clocks import arrivals_on_one_clock

__all__ = ["collective_arrivals"]


def collective_arrivals(result: Result, nodes: pd.DataFrame) -> pd.DataFrame:
    """Return a row per collective and rank in order: who came when to it.

    Columns ``collective, operation, module, rank, node_id, start_ns, late_ns`` and ``end_ns``; ``late_ns`` is
    the time from the first rank's arrival (see `arrivals_on_one_clock`), *nodes* has the modules. Collectives
    of one rank are left out.
    """
    calls = result.collectives[
        ["collective", "comm_type", "rank", "node_id", "start_ns", "end_ns"]
    ].reset_index(drop=True)
    arrivals = pd.Series(arrivals_on_one_clock(result, result.columns("collectives")))
    of_one = arrivals.groupby(calls["collective"])
    calls = calls.assign(late_ns=arrivals - of_one.transform("min"), ranks=of_one.transform("size"))
    calls = calls[calls["ranks"] > 1].assign(operation=calls["comm_type"].map(operation_name))
    table = calls.merge(nodes[["rank", "node_id", "module"]], on=["rank", "node_id"], how="left")
    table["module"] = table["module"].fillna("").astype(str)
    names = ["collective", "operation", "module", "rank", "node_id", "start_ns", "late_ns", "end_ns"]
    ordered: pd.DataFrame = table[names].sort_values(["collective", "rank"], ignore_index=True)
    numbers = ["collective", "rank", "node_id", "start_ns", "late_ns", "end_ns"]
    typed: pd.DataFrame = ordered.astype(dict.fromkeys(numbers, np.int64))
    return typed
