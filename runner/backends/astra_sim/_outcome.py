"""The outcome of an ASTRA-sim run: its result, or the ranks that never finished."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....errors import BackendError, SimulationStalled
from ..._experiment import Experiment
from ..._result import Result
from .._outcome import ignored_keys
from ._answer import build_result
from ._log import AstraSimLog, Trace

__all__ = ["SHOWN_LINES", "conclude", "count_nodes"]

SHOWN_LINES = 4


def count_nodes(experiment: Experiment) -> int:
    """Return the total number of nodes of all ranks."""
    model = experiment.workload.model
    sizes = [len(graph.nodes) for graph in model.graphs]
    return sum(sizes[program] for program in model.program_of_rank)


def conclude(
    experiment: Experiment,
    log: AstraSimLog,
    trace: Trace | None,
    tail: list[str],
    *,
    who: str,
    versions: Mapping[str, str],
    warnings: list[str],
) -> Result:
    """Return the result of a successful run from its *log*; *trace* None means no node times.

    *tail* is the end of its output, and *who* the program or service that reported it, for errors. Raises
    `SimulationStalled` if ranks never finished, `BackendError` if the output is not ASTRA-sim's.
    """
    if len(log.ranks) < log.num_ranks:
        raise _stalled(experiment, log, trace.stuck if trace else [], tail, who)
    total = count_nodes(experiment)
    executed = len(trace.intervals) if trace else total
    complete = trace is not None and executed == total
    warnings = [*experiment.system.warnings, *_lost(experiment), *warnings]
    if not complete:
        warnings.append(
            f"The times of single nodes are missing: ASTRA-sim's log holds {executed} of {total}."
            if trace
            else f"Times of single nodes were not asked for: {total} nodes do not fit ASTRA-sim's log."
        )
    return build_result(
        experiment,
        log,
        trace.intervals if trace and complete else None,
        _provenance(experiment, versions, warnings, total, executed),
    )


def _stalled(
    experiment: Experiment, log: AstraSimLog, stuck: list[tuple[int, int]], tail: list[str], who: str
) -> BackendError:
    """Return the error for a run that ended without all ranks finishing."""
    missing = [rank for rank in range(log.num_ranks) if rank not in log.ranks]
    if not log.ranks and not stuck and not log.failures:
        shown = f" It said: {' | '.join(tail[-SHOWN_LINES:])}." if tail else " It said nothing."
        return BackendError(
            f"{who} ended without reporting a single rank, so nothing was simulated."
            f"{shown} Is it really ASTRA-sim 2?"
        )
    waits = [_wait(experiment, rank, node) for rank, node in stuck]
    named = "; ".join(
        f"rank {w['rank']} is in '{w['node_name']}' (node {w['node_id']})" for w in waits[:SHOWN_LINES]
    )
    more = f"; and {len(waits) - SHOWN_LINES} more" if len(waits) > SHOWN_LINES else ""
    quote = f" It said: {' | '.join(log.failures)}." if log.failures else ""
    return SimulationStalled(
        f"ASTRA-sim stalled: {len(missing)} of {log.num_ranks} ranks never finished (the first is rank "
        f"{missing[0]}) and nothing was left to happen. {named}{more}{'.' if named else ''}{quote} Check "
        "that every send has a receive of the same size and tag, and that all members of a group issue its "
        "collectives in the same order; our 'analytical-unaware' backend names who waits for whom.",
        waits,
    )


def _wait(experiment: Experiment, rank: int, node: int) -> dict[str, Any]:
    model = experiment.workload.model
    name = ""
    if rank < len(model.program_of_rank):
        table = model.graphs[int(model.program_of_rank[rank])].nodes
        names = table.loc[table["node_id"] == node, "name"]
        name = str(names.iloc[0]) if len(names) else ""
    return {"rank": rank, "node_id": node, "node_name": name, "operation": "", "waits_for": ""}


def _lost(experiment: Experiment) -> list[str]:
    """Return sentences on the parts of the experiment that ASTRA-sim ignores."""
    system = experiment.system
    policies = (
        ("intra-dimension-policy", system.intra_dimension_policy, "FIFO"),
        ("inter-dimension-policy", system.inter_dimension_policy, "ascending"),
    )
    lost = [
        f"'{key}' has no effect: ASTRA-sim knows only '{only}'."
        for key, value, only in policies
        if value not in (None, only)
    ]
    if experiment.semantics == "trace":
        lost.append(
            "ASTRA-sim runs one CPU operation, one computation and one communication per rank at a time and "
            "rounds durations to microseconds; lanes and nanoseconds of the captured trace are not used."
        )
    return lost


def _provenance(
    experiment: Experiment, versions: Mapping[str, str], warnings: list[str], total: int, executed: int
) -> dict[str, Any]:
    if executed < total:
        warnings.append(f"{total - executed} of {total} nodes are not in ASTRA-sim's log.")
    return experiment.describe() | {
        "network_name": experiment.network.name,
        "system_name": experiment.system.name,
        "experiment_hash": experiment.content_hash,
        "workload_hash": experiment.workload.content_hash,
        "versions": dict(versions),
        "ignored_keys": ignored_keys(experiment),
        "warnings": warnings,
        "assumptions": [
            *experiment.network.remarks,
            *experiment.assumptions,
            "ASTRA-sim's log does not say why a node started: causes are inferred from its times.",
        ],
        "nodes_total": total,
        "nodes_executed": executed,
    }
