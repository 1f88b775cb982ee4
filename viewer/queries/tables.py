"""Name every table the pages show, so that each can be exported whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pandas as pd

from ...runner import BREAKDOWNS, error_distribution
from ..state import OpenRun
from .compare import collective_differences, node_differences, rank_differences
from .network import link_dimensions, link_table
from .path import network_breakdown, segment_table, slack_table

__all__ = ["COMPARISONS", "TABLES"]


def _breakdown_by(by: str) -> Callable[[OpenRun], pd.DataFrame]:
    return lambda run: run.path.breakdown(by)


TABLES: Mapping[str, Callable[[OpenRun], pd.DataFrame]] = {
    "ranks": lambda run: run.summary.ranks,
    "segments": lambda run: segment_table(run.path),
    "collectives": lambda run: run.collectives,
    "links": lambda run: link_table(run.result),
    "dimensions": lambda run: link_dimensions(link_table(run.result)),
    "layers": lambda run: run.layers,
    "flows": lambda run: run.result.flows,
    "link-use": lambda run: run.result.link_use,
    "nodes": lambda run: run.nodes,
    "slack": lambda run: slack_table(run.nodes, run.slack_ns),
    "elasticity": lambda run: run.elasticity,
    "by-network": lambda run: network_breakdown(
        run.path, run.nodes, run.workload, run.result.provenance.get("network", {})
    ),
    **{f"by-{by}": _breakdown_by(by) for by in BREAKDOWNS},
}
COMPARISONS: Mapping[str, Callable[[OpenRun, OpenRun], pd.DataFrame]] = {
    "rank-differences": rank_differences,
    "collective-differences": collective_differences,
    "node-differences": node_differences,
    "error-distribution": lambda base, other: error_distribution(node_differences(base, other), "kind"),
}
