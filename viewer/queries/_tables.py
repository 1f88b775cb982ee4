"""Name every table the pages show, so that each can be exported whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pandas as pd

from ...runner import BREAKDOWNS, error_distribution
from ...runner.analysis import RunAnalysis, paths_table
from ._advice import advice_table
from ._compare import collective_differences, node_differences, rank_differences, run_kinds, run_overview
from ._link_path import link_breakdown
from ._network import TRAFFIC, link_dimensions, link_table, load_table, packet_table, traffic_table
from ._path import network_breakdown, segment_table, slack_table

__all__ = ["COMPARISONS", "OVERVIEWS", "TABLES"]


def _breakdown_by(by: str) -> Callable[[RunAnalysis], pd.DataFrame]:
    return lambda run: run.path.breakdown(by)


def _traffic_of(of: str) -> Callable[[RunAnalysis], pd.DataFrame]:
    return lambda run: traffic_table(run.result, of)


TABLES: Mapping[str, Callable[[RunAnalysis], pd.DataFrame]] = {
    "advice": lambda run: advice_table(run.path, run.collectives),
    "ranks": lambda run: run.summary.ranks,
    "segments": lambda run: segment_table(run.path),
    "collectives": lambda run: run.collectives,
    "links": lambda run: link_table(run.result),
    "dimensions": lambda run: link_dimensions(link_table(run.result)),
    "layers": lambda run: run.layers,
    "flows": lambda run: run.result.flows,
    "link-use": lambda run: run.result.link_use,
    "loads": lambda run: load_table(run.result),
    "packets": lambda run: packet_table(run.result.provenance),
    **{f"traffic-{of}": _traffic_of(of) for of in TRAFFIC},
    "nodes": lambda run: run.nodes,
    "slack": lambda run: slack_table(run.nodes, run.slack_ns),
    "elasticity": lambda run: run.elasticity,
    "by-network": lambda run: network_breakdown(
        run.path, run.nodes, run.workload, run.result.provenance.get("network", {})
    ),
    "by-link": link_breakdown,
    **{f"by-{by}": _breakdown_by(by) for by in BREAKDOWNS},
}
COMPARISONS: Mapping[str, Callable[[RunAnalysis, RunAnalysis], pd.DataFrame]] = {
    "rank-differences": rank_differences,
    "collective-differences": collective_differences,
    "node-differences": node_differences,
    "paths": lambda base, other: paths_table(base.path, other.path),
    "error-distribution": lambda base, other: error_distribution(node_differences(base, other), "kind"),
}
OVERVIEWS: Mapping[str, Callable[[Sequence[RunAnalysis]], pd.DataFrame]] = {
    "overview": run_overview,
    "kinds": run_kinds,
}
