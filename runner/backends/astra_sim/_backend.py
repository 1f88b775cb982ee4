"""The backends that run the user's own ASTRA-sim."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from ....errors import BackendError, SimulationStalled
from ...experiment import Experiment
from ...result import Result
from .._base import Progress
from .._process import backend_timeout_s, describe_exit, run_guarded
from ._answer import build_result
from ._find import AstraSimProgram, locate
from ._inputs import TRACE_LIMIT_NODES, write_inputs
from ._log import AstraSimLog, read_trace

__all__ = ["AstraSimBackend"]

_SHOWN = 4


class AstraSimBackend:
    """Runs the ASTRA-sim program of *kind* (``analytical-unaware``, ``analytical-aware``, ns3, htsim).

    The program is *program* if given, else found by `locate` when it is run. It is stopped after *timeout_s*
    seconds: by default those of the variable ``CHAKRASCOPE_BACKEND_TIMEOUT``, else an hour.
    """

    def __init__(
        self, kind: str, program: AstraSimProgram | None = None, timeout_s: float | None = None
    ) -> None:
        self.kind = kind
        self.program = program
        self.timeout_s = timeout_s

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Run ASTRA-sim on *experiment* in a scratch folder and return what it reports.

        Raises `BackendUnavailable` without the program, `BackendError` with the end of its log if it fails,
        `SimulationStalled` if ranks never finish, `BackendTimeout` and `Cancelled`.
        """
        program = self.program or locate(self.kind)
        timeout_s = self.timeout_s if self.timeout_s is not None else backend_timeout_s()
        nodes = _count_nodes(experiment)
        trace = nodes <= TRACE_LIMIT_NODES
        log = AstraSimLog(experiment.workload.num_ranks)
        try:
            with tempfile.TemporaryDirectory(prefix="chakrascope-", ignore_cleanup_errors=True) as name:
                folder = Path(name)
                options = write_inputs(experiment, self.kind, folder, trace=trace)
                status, tail = run_guarded(
                    [str(program.path.resolve()), *options],
                    folder,
                    name=f"ASTRA-sim ({program.path.name})",
                    timeout_s=timeout_s,
                    on_line=log.feed,
                    keep_going=lambda: progress is None or progress(log.now_ns, len(log.ranks)),
                )
                return self._answer(experiment, program, log, folder, status, tail, trace=trace, nodes=nodes)
        except OSError as error:
            raise BackendError(
                f"ASTRA-sim's scratch folder cannot be used ({error}); free some disk space or set TMPDIR to "
                "another folder."
            ) from error

    def _answer(  # noqa: PLR0917 - the parts of one run
        self,
        experiment: Experiment,
        program: AstraSimProgram,
        log: AstraSimLog,
        folder: Path,
        status: int,
        tail: list[str],
        *,
        trace: bool,
        nodes: int,
    ) -> Result:
        if status != 0:
            raise _failure(program, log, status, tail)
        intervals, stuck = read_trace(folder / "log") if trace else ({}, [])
        if len(log.ranks) < log.num_ranks:
            raise _stall(program, log, experiment, stuck, tail)
        warnings = _warnings(experiment, program)
        complete = trace and len(intervals) == nodes
        if not complete:
            warnings.append(
                f"The times of single nodes are missing: ASTRA-sim's log holds {len(intervals)} of {nodes}."
                if trace
                else f"Times of single nodes were not asked for: {nodes} nodes do not fit ASTRA-sim's log."
            )
        provenance = _provenance(experiment, program, warnings, nodes, len(intervals) if trace else nodes)
        return build_result(experiment, log, intervals if complete else None, provenance)


def _count_nodes(experiment: Experiment) -> int:
    model = experiment.workload.model
    sizes = [len(graph.nodes) for graph in model.graphs]
    return sum(sizes[program] for program in model.program_of_rank)


def _failure(program: AstraSimProgram, log: AstraSimLog, status: int, tail: list[str]) -> BackendError:
    reasons = log.failures or tail[-_SHOWN:]
    said = f" It said: {' | '.join(reasons)}." if reasons else " It said nothing."
    return BackendError(
        f"ASTRA-sim failed: {describe_exit(status)} ({program.path}).{said} Check what it names, "
        "or run the same experiment with our 'analytical-unaware' backend, whose errors name the cause."
    )


def _stall(
    program: AstraSimProgram,
    log: AstraSimLog,
    experiment: Experiment,
    stuck: list[tuple[int, int]],
    tail: list[str],
) -> BackendError:
    """Return the error for a run that ended without all ranks finishing."""
    missing = [rank for rank in range(log.num_ranks) if rank not in log.ranks]
    if not log.ranks and not stuck and not log.failures:
        shown = f" It said: {' | '.join(tail[-_SHOWN:])}." if tail else " It said nothing."
        return BackendError(
            f"The program {program.path} ended without reporting a single rank, so nothing was simulated."
            f"{shown} Is it really ASTRA-sim 2?"
        )
    waits = [_wait(experiment, rank, node) for rank, node in stuck]
    named = "; ".join(
        f"rank {w['rank']} is in '{w['node_name']}' (node {w['node_id']})" for w in waits[:_SHOWN]
    )
    more = f"; and {len(waits) - _SHOWN} more" if len(waits) > _SHOWN else ""
    said = f" It said: {' | '.join(log.failures)}." if log.failures else ""
    return SimulationStalled(
        f"ASTRA-sim stalled: {len(missing)} of {log.num_ranks} ranks never finished (the first is rank "
        f"{missing[0]}) and nothing was left to happen. {named}{more}{'.' if named else ''}{said} Check that "
        "every send has a receive of the same size and tag, and that all members of a group issue its "
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


def _warnings(experiment: Experiment, program: AstraSimProgram) -> list[str]:
    warnings = list(experiment.system.warnings)
    if experiment.semantics == "trace":
        warnings.append(
            "ASTRA-sim runs one CPU operation, one computation and one communication a rank at a time and "
            "rounds durations to microseconds; lanes and nanoseconds of the captured trace are not used."
        )
    if program.debug:
        warnings.append(f"{program.path} is a debug build, which is about ten times slower.")
    return warnings


def _provenance(
    experiment: Experiment, program: AstraSimProgram, warnings: list[str], total: int, executed: int
) -> dict[str, Any]:
    if executed < total:
        warnings.append(f"{total - executed} of {total} nodes are not in ASTRA-sim's log.")
    return experiment.describe() | {
        "network_name": experiment.network.name,
        "system_name": experiment.system.name,
        "experiment_hash": experiment.content_hash,
        "workload_hash": experiment.workload.content_hash,
        "versions": {"astra-sim": program.version, "program": program.path.name},
        "ignored_keys": [
            *experiment.system.ineffective(),
            *experiment.network.warnings,
            *experiment.memory.warnings,
        ],
        "warnings": warnings,
        "assumptions": [
            *experiment.assumptions,
            "ASTRA-sim's log does not say why a node started: causes are inferred from its times.",
        ],
        "nodes_total": total,
        "nodes_executed": executed,
    }
