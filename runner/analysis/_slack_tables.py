"""Which nodes have slack, and how much of the work has none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

__all__ = ["longest_with_slack", "slack_shares", "slack_table"]


def slack_table(nodes: pd.DataFrame, slack_ns: pd.Series) -> pd.DataFrame:
    """Return every one of *nodes* with its slack, the most critical and longest first.

    Nothing if the slack is not known, which is then as empty.
    """
    if len(slack_ns) != len(nodes):
        nodes = nodes.head(0)
    table = _with_slack(nodes, slack_ns.to_numpy()[: len(nodes)])
    order = np.lexsort((-table["duration_ns"], table["slack_ns"]))
    ordered: pd.DataFrame = table.iloc[order].reset_index(drop=True)
    return ordered


def longest_with_slack(nodes: pd.DataFrame, slack_ns: pd.Series, count: int) -> pd.DataFrame:
    """Return the *count* longest of *nodes* that have slack, as :func:`slack_table` does, longest first."""
    slack = slack_ns.to_numpy()
    spare = np.flatnonzero(slack > 0)
    length = (nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy())[spare]
    rows = spare[np.argsort(-length, kind="stable")[:count]]
    return _with_slack(nodes.iloc[rows].reset_index(drop=True), slack[rows])


def slack_shares(nodes: pd.DataFrame, slack_ns: pd.Series, within_ns: int) -> tuple[float, float]:
    """Return which parts of the time of *nodes* have no slack at all, and at most *within_ns*."""
    slack, length = slack_ns.to_numpy(), nodes["end_ns"].to_numpy() - nodes["start_ns"].to_numpy()
    whole = max(1, int(length.sum()))
    return int(length[slack == 0].sum()) / whole, int(length[slack <= within_ns].sum()) / whole


def _with_slack(nodes: pd.DataFrame, slack_ns: Any) -> pd.DataFrame:
    facts = nodes[["rank", "node_id", "name", "kind", "module", "start_ns"]]
    table: pd.DataFrame = facts.assign(duration_ns=nodes["end_ns"] - nodes["start_ns"], slack_ns=slack_ns)
    return table
