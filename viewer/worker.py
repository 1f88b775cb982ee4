"""The process of one job: ``python -m chakrascope.viewer.worker STUDY JOB`` simulates what the job asks for.

The request holds ``workload`` (a name in the study), ``label``, ``backends`` (names), ``network`` and
``system`` (what ASTRA-sim's files of that name hold) and ``name``, what to call the network.
"""

from __future__ import annotations

import json
import os
import sys
import time
import traceback
from pathlib import Path
from typing import Any

from ..errors import Cancelled, ChakrascopeError
from ..runner import Experiment, NetworkConfig, Study, SystemConfig, get_backend, prepare
from .jobs import Job, read_status, try_lock, write_status

__all__ = ["main", "request_experiment"]

_REPORT_S, _TURN_S = 0.3, 0.2


def request_experiment(study: Study, request: dict[str, Any], backend: str) -> Experiment:
    """Return the experiment a job's *request* describes, for one of its backends."""
    network = NetworkConfig.from_mapping(request["network"], "The network", str(request["name"]))
    system = SystemConfig.from_mapping(request["system"], "The system")
    return prepare(study.workload_prefix(request["workload"]), system, network, backend=backend)


class _Worker:
    def __init__(self, study: Study, folder: Path) -> None:
        self.study = study
        self.folder = folder
        self.job = read_status(folder)
        self._reported = 0.0

    def update(self, **changes: Any) -> None:
        self.job = Job(**(vars(self.job) | changes))
        write_status(self.folder, self.job)

    def is_cancelled(self) -> bool:
        return (self.folder / "cancel").exists()

    def progress(self, simulated_ns: int, ranks_done: int) -> bool:
        """Note how far the simulation is, and return whether it may go on."""
        now = time.monotonic()
        if now - self._reported >= _REPORT_S:
            self._reported = now
            self.update(simulated_ns=int(simulated_ns), ranks_done=int(ranks_done))
        return not self.is_cancelled()

    def work(self) -> None:
        """Wait until no other job of the study works, then simulate with each backend."""
        request = json.loads((self.folder / "request.json").read_text(encoding="utf-8"))
        self.update(pid=os.getpid())
        with (self.folder.parent / "turn").open("ab") as turn:
            while not try_lock(turn):
                if self.is_cancelled():
                    raise Cancelled("Cancelled before it began.")
                time.sleep(_TURN_S)
            self._simulate(request)

    def _simulate(self, request: dict[str, Any]) -> None:
        backends = request["backends"]
        for number, backend in enumerate(backends):
            self.update(state="running", backend=backend, backends_done=number, simulated_ns=0, ranks_done=0)
            experiment = request_experiment(self.study, request, backend)
            self.update(ranks=experiment.workload.num_ranks)
            self.update(runs=(*self.job.runs, self._run(experiment, request)))
        self.update(state="done", backends_done=len(backends), message="")

    def _run(self, experiment: Experiment, request: dict[str, Any]) -> str:
        if self.is_cancelled():
            raise Cancelled("Cancelled.")
        if self.study.has_run(experiment):
            return experiment.content_hash
        result = get_backend(experiment.backend).run(experiment, self.progress)
        label = f"{request['label']} ({experiment.backend})" if request["label"] else ""
        return self.study.add_run(experiment, result, label=label, workload=request["workload"])


def main(study_folder: str, identity: str) -> None:
    """Do the job *identity* of the study in *study_folder* and leave its outcome in its status."""
    study = Study.open(study_folder)
    worker = _Worker(study, study.path / "jobs" / identity)
    try:
        worker.work()
    except Cancelled as error:
        worker.update(state="cancelled", message=error.message)
    except ChakrascopeError as error:
        worker.update(state="failed", message=error.message)
    except Exception as error:
        traceback.print_exc()
        text = f"An error in chakrascope itself ({type(error).__name__}: {error}); its log has the details."
        worker.update(state="failed", message=text)
        raise


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
