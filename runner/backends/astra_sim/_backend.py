"""The backends that run the user's installation of ASTRA-sim."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from ....errors import BackendError, BackendTimeout, Cancelled
from ..._experiment import Experiment
from ..._result import Result
from ...config import Fabric
from .._base import Progress
from .._process import backend_timeout_s, describe_exit, require_space, run_guarded, scratch_folder
from ._find import AstraSimProgram, locate
from ._inputs import TRACE_LIMIT_NODES, lasting_fabric, write_inputs
from ._log import AstraSimLog, log_lines, read_trace
from ._outcome import SHOWN_LINES, conclude, count_nodes, refuse_endless, with_packets

_LINES_BETWEEN_QUESTIONS = 10_000


def astra_sim_backend(name: str) -> AstraSimBackend:
    """Return the backend ``astra-sim:KIND``."""
    return AstraSimBackend(name.partition(":")[2])


class AstraSimBackend:
    """Runs the ASTRA-sim program of *kind* (``analytical-unaware``, ``analytical-aware``, ns3).

    By default, *program* is located by `locate` when a simulation starts. The program is stopped after
    *timeout_s* seconds. The default limit is the variable ``CHAKRASCOPE_BACKEND_TIMEOUT``, or an hour.
    """

    def __init__(
        self, kind: str, program: AstraSimProgram | None = None, timeout_s: float | None = None
    ) -> None:
        self.kind = kind
        self.program = program
        self.timeout_s = timeout_s

    def run(self, experiment: Experiment, progress: Progress | None = None) -> Result:
        """Run ASTRA-sim on *experiment* in a scratch folder and return its results.

        Raises `BackendUnavailable` if the program is missing, `BackendError` with the end of the log if the
        program fails, `SimulationStalled` if ranks never finish, `BackendTimeout` and `Cancelled`.
        """
        fabric = lasting_fabric(experiment.network) if self.kind == "ns3" else None
        if fabric is not None:
            refuse_endless(experiment, progress)
        try:
            return self._run(experiment, fabric, progress)
        except BackendTimeout as error:
            if fabric is None or not fabric.lossy:
                raise
            raise BackendTimeout(
                f"{error} This network loses packets, and ASTRA-sim's ns-3 never completes a "
                "message that lost its last packet or acknowledgement; the backend 'packet' sends the packet "
                "again."
            ) from error

    def _run(self, experiment: Experiment, fabric: Fabric | None, progress: Progress | None) -> Result:
        program = self.program or locate(self.kind)
        timeout_s = self.timeout_s if self.timeout_s is not None else backend_timeout_s()
        trace = count_nodes(experiment) <= TRACE_LIMIT_NODES
        log = AstraSimLog(experiment.workload.num_ranks)

        def keep_going() -> bool:
            return progress is None or progress(log.now_ns, len(log.ranks))

        try:
            with scratch_folder() as folder:
                options = write_inputs(experiment, self.kind, folder, trace=trace)
                status, tail = run_guarded(
                    [str(program.path.resolve()), *options],
                    folder,
                    name=f"ASTRA-sim ({program.path.name})",
                    timeout_s=timeout_s,
                    on_line=log.feed,
                    keep_going=keep_going,
                )
                require_space(folder)
                if status != 0:
                    raise _failure(program, log, status, tail)
                lines = _while_wanted(log_lines(folder / "log"), keep_going) if trace else None
                result = self._answer(experiment, program, log, lines, tail)
                return result if fabric is None else with_packets(result, fabric, log, folder)
        except OSError as error:
            raise BackendError(
                f"ASTRA-sim's scratch folder cannot be used ({error}); free some disk space or set TMPDIR to "
                "another folder."
            ) from error

    def _answer(
        self,
        experiment: Experiment,
        program: AstraSimProgram,
        log: AstraSimLog,
        lines: Iterable[str] | None,
        tail: list[str],
    ) -> Result:
        return conclude(
            experiment,
            log,
            None if lines is None else read_trace(lines),
            tail,
            who=f"The program {program.path}",
            versions={"astra-sim": program.version, "program": program.path.name},
            warnings=_warnings(program),
        )


def _while_wanted(lines: Iterable[str], keep_going: Callable[[], bool]) -> Iterator[str]:
    """Yield *lines* and call *keep_going* regularly, because reading a long log takes seconds."""
    for number, line in enumerate(lines):
        if number % _LINES_BETWEEN_QUESTIONS == 0 and not keep_going():
            raise Cancelled("ASTRA-sim had ended when the run was cancelled; its results are discarded.")
        yield line


def _failure(program: AstraSimProgram, log: AstraSimLog, status: int, tail: list[str]) -> BackendError:
    reasons = log.failures or tail[-SHOWN_LINES:]
    reported = f" Its last output: {' | '.join(reasons)}." if reasons else " It printed nothing."
    return BackendError(
        f"ASTRA-sim failed: {describe_exit(status)} ({program.path}).{reported} Check what it names, "
        "or run the same experiment with our 'analytical-unaware' backend, whose errors name the cause."
    )


def _warnings(program: AstraSimProgram) -> list[str]:
    return [f"{program.path} is a debug build, which is about ten times slower."] if program.debug else []
