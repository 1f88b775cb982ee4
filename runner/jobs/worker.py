"""The process of one job: ``python -m chakrascope.runner.jobs.worker STUDY JOB SLOTS``."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Mapping

from ...errors import Cancelled, ChakrascopeError
from ..study import Study
from ._job import WORK
from ._store import JobStore

_REPORT_S = 0.3
_RUNNING = "state = 'running'"


class Attempt:
    """One process's attempt to run the job *identity*, whose lock it holds."""

    def __init__(self, store: JobStore, identity: int) -> None:
        self.store = store
        self.id = identity
        self._reported = 0.0

    def run(self) -> None:
        """Run the job and record its outcome, so that only a crash leaves it marked as running."""
        try:
            self.begin()
            self.end("done", self.work())
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

    def begin(self) -> None:
        """Record this process's id in the job."""
        self.store.database.update(self.id, _RUNNING, pid=os.getpid())

    def work(self) -> str:
        """Do the work of the job; return the final message."""
        job = self.store.job(self.id)
        return WORK[job.kind](self.store.study, job, self.store.request(self.id), self.note)

    def note(self, figures: Mapping[str, int]) -> bool:
        """Record the progress, at a limited rate; return whether to continue."""
        now = time.monotonic()
        if now - self._reported < _REPORT_S:
            return True
        self._reported = now
        return self.store.database.update(self.id, f"{_RUNNING} AND cancel_asked = 0", **figures)

    def end(self, state: str, message: str) -> None:
        """Record the outcome, and start the next queued job."""
        self.store.database.update(self.id, _RUNNING, state=state, message=message, ended=time.time())
        self.store.start_queued()


def main(study: str, identity: int, slots: int) -> None:
    """Run the job *identity* of *study*, whose lock this process inherits."""
    Attempt(JobStore(Study.open(study), slots), identity).run()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
