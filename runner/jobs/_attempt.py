"""What the process of a job does, step by step."""

from __future__ import annotations

import os
import time
import traceback

from ...errors import Cancelled, ChakrascopeError, StudyError
from ..backends import get_backend
from ..experiment import Experiment
from ..result import Result
from ._job import read_request
from ._store import JobStore

__all__ = ["Attempt"]

_REPORT_S = 0.3
_RUNNING = "state = 'running'"


class Attempt:
    """One process's attempt at the job *identity*, whose lock it holds."""

    def __init__(self, store: JobStore, identity: int) -> None:
        self.store = store
        self.id = identity
        self._reported = 0.0

    def run(self) -> None:
        """Simulate and leave the outcome with the job; only a crash leaves it running."""
        try:
            experiment = self.begin()
            if not self.store.study.has_run(experiment):
                self.keep(experiment, get_backend(experiment.backend).run(experiment, self.progress))
            self.end("done", "")
        except Cancelled:
            self.end("cancelled", "Cancelled.")
        except ChakrascopeError as error:
            self.end("failed", error.message)
        except Exception as error:
            traceback.print_exc()
            text = (
                f"An error in chakrascope itself ({type(error).__name__}: {error}); the log has the details."
            )
            self.end("failed", text)

    def begin(self) -> Experiment:
        """Return what is to be simulated; raises `StudyError` if the workload has changed since."""
        job = self.store.job(self.id)
        self.store.database.update(self.id, _RUNNING, pid=os.getpid())
        experiment = read_request(self.store.study, self.store.request(self.id))
        if experiment.content_hash != job.experiment:
            raise StudyError(f"The workload '{job.workload}' has changed since; submit the experiment again.")
        return experiment

    def progress(self, simulated_ns: int, ranks_done: int) -> bool:
        """Note how far the simulation is, and return whether it may go on."""
        now = time.monotonic()
        if now - self._reported < _REPORT_S:
            return True
        self._reported = now
        figures = {"simulated_ns": int(simulated_ns), "ranks_done": int(ranks_done)}
        return self.store.database.update(self.id, f"{_RUNNING} AND cancel_asked = 0", **figures)

    def keep(self, experiment: Experiment, result: Result) -> None:
        """Make the result a run of the study, whole or not at all."""
        job = self.store.job(self.id)
        try:
            self.store.study.add_run(experiment, result, label=job.label, workload=job.workload)
        except OSError:
            # Somebody may have simulated it elsewhere and kept it in this moment.
            if not self.store.study.has_run(experiment):
                raise

    def end(self, state: str, message: str) -> None:
        """Leave the outcome, and start the job that waits next."""
        self.store.database.update(self.id, _RUNNING, state=state, message=message, ended=time.time())
        self.store.start_queued()
