"""The tables of one run, of two runs and of several runs, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import pandas as pd

from ...converter.checks import step_rows
from ._attribution import difference_of_runs
from ._choices import RUN_BREAKDOWNS
from ._compare import configuration_table, explained_collectives, run_kinds, run_overview
from ._differences import error_distribution, node_differences, rank_differences
from ._host_stacks import host_stack_table
from ._links import TRAFFIC, link_dimensions, link_table, load_table, traffic_table
from ._operators import operator_table
from ._path_tables import paths_table, segment_table
from ._run import RunAnalysis
from ._settings import calibration_table, packet_table
from ._slack import slack_table
from ._streams import stream_table


def _traffic(run: RunAnalysis, of: str) -> pd.DataFrame:
    return traffic_table(run.result, of)


def _nodes(base: RunAnalysis, other: RunAnalysis) -> pd.DataFrame:
    return node_differences(base.result, other.result, base.nodes)


TABLES: Mapping[str, Callable[[RunAnalysis], pd.DataFrame]] = {
    "advice": lambda run: run.advice,
    "anomalies": lambda run: run.diagnosis.table,
    "ranks": lambda run: run.summary.ranks,
    "streams": stream_table,
    "operators": lambda run: operator_table(run.workload),
    "host": host_stack_table,
    "standings": lambda run: run.standings,
    "arrivals": lambda run: run.arrivals,
    "segments": lambda run: segment_table(run.path),
    "collectives": lambda run: run.collectives,
    "links": lambda run: link_table(run.result),
    "dimensions": lambda run: link_dimensions(link_table(run.result)),
    "layers": lambda run: run.layers,
    "steps": lambda run: pd.DataFrame(step_rows(run.workload)),
    "flows": lambda run: run.result.flows,
    "link-use": lambda run: run.result.link_use,
    "loads": lambda run: load_table(run.result),
    "packets": lambda run: packet_table(run.result.provenance),
    "calibration": lambda run: calibration_table(run.result.provenance),
    **{f"traffic-{of}": partial(_traffic, of=of) for of in TRAFFIC},
    "nodes": lambda run: run.nodes,
    "slack": lambda run: slack_table(run.nodes, run.slack_ns),
    "elasticity": lambda run: run.elasticity,
    **{f"by-{by}": partial(RunAnalysis.breakdown, by=by) for by in RUN_BREAKDOWNS},
}
"""Makes each table of a run."""
COMPARISONS: Mapping[str, Callable[[RunAnalysis, RunAnalysis], pd.DataFrame]] = {
    "causes": difference_of_runs,
    "rank-differences": lambda base, other: rank_differences(base.result, other.result),
    "collective-differences": explained_collectives,
    "node-differences": _nodes,
    "paths": lambda base, other: paths_table(base.path, other.path),
    "error-distribution": lambda base, other: error_distribution(_nodes(base, other), "kind"),
}
"""Makes each table of a run compared with a base run, which is the first argument."""
OVERVIEWS: Mapping[str, Callable[[Sequence[RunAnalysis]], pd.DataFrame]] = {
    "overview": run_overview,
    "kinds": run_kinds,
    "configurations": configuration_table,
}
"""Makes each table of several runs compared with the first."""
