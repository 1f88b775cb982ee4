"""Print HTA's figures of traces as JSON, in a Python environment that has HTA.

``HTA_DISABLE_NS_ROUNDING=1 python hta_figures.py FILE...`` prints a line per file: the device times in ns,
the share of communication that computation covers, and the dependencies of synchronisations as (start of the
source, start of the target) in ns of the trace's clock. Dependencies are printed only for files after
``--edges``. For a file that HTA refuses, the line has an ``error``.
"""

from __future__ import annotations

import json
import logging
import sys
import warnings
from pathlib import Path
from typing import Any

from hta.analyzers.breakdown_analysis import BreakdownAnalysis
from hta.analyzers.critical_path_analysis import CPEdgeType
from hta.trace_analysis import TraceAnalysis
from hta.utils.utils import get_kernel_type, merge_kernel_intervals

EDGES = "--edges"


def main() -> None:
    """Print HTA's figures of every file on the command line; after ``--edges`` also its dependencies."""
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    edges = False
    for argument in sys.argv[1:]:
        if argument == EDGES:
            edges = True
            continue
        try:
            figures = figures_of(Path(argument).resolve(), with_edges=edges)
        except BaseException as error:  # HTA may raise any exception, which the line reports
            figures = {"error": f"{type(error).__name__}: {error}"[:200]}
        print(json.dumps({"file": argument, **figures}), flush=True)


def figures_of(path: Path, *, with_edges: bool) -> dict[str, Any]:
    """Return the figures of one file.

    The times are those of HTA's temporal breakdown. The functions behind the breakdown are called directly,
    because the breakdown itself fails if rounding makes a time negative.
    """
    analysis = TraceAnalysis(
        trace_files={0: path.name}, trace_dir=str(path.parent), include_last_profiler_step=True
    )
    frame = analysis.t.get_trace(0)
    names = analysis.t.symbol_table.get_sym_table()
    device = frame[frame["stream"].ne(-1)].copy()
    if device.empty:
        return {"error": "no device events"}
    idle_us, span_us = BreakdownAnalysis._get_idle_time_for_kernels(device)
    computing = device["name"].map(lambda name: get_kernel_type(names[name])).eq("COMPUTATION")
    merged = merge_kernel_intervals(device[computing].copy())
    compute_us = (merged["end"] - merged["ts"]).sum()
    covered = analysis.get_comm_comp_overlap(visualize=False).iloc[0]["comp_comm_overlap_pctg"]
    figures: dict[str, Any] = {
        "span_ns": _ns(span_us),
        "idle_ns": _ns(idle_us),
        "compute_ns": _ns(compute_us),
        "other_ns": _ns(span_us - idle_us - compute_us),
        "covered_percent": float(covered) if covered == covered else None,  # noqa: PLR0124 - NaN
    }
    if with_edges:
        figures["edges"] = sync_edges(analysis)
    return figures


def sync_edges(analysis: TraceAnalysis) -> list[tuple[int, int]]:
    """Return the synchronisation edges of HTA's critical path of the first step, or of the whole trace."""
    frame = analysis.t.get_trace(0)
    graph = None
    for annotation in ("ProfilerStep", ""):
        try:
            graph, _ = analysis.critical_path_analysis(rank=0, annotation=annotation, instance_id=0)
        except Exception:
            continue
        break
    if graph is None:
        return []
    starts = frame["ts"] + analysis.t.min_ts
    return sorted(
        tuple(_ns(starts.loc[graph.node_list[node].ev_idx]) for node in (source, target))
        for source, target, data in graph.edges(data=True)
        if data["object"].type is CPEdgeType.SYNC_DEPENDENCY
    )


def _ns(us: float) -> int:
    return round(float(us) * 1000)


if __name__ == "__main__":
    main()
