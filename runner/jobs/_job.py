"""The state of a background job, its request, and the work of each kind of job."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ...converter.building import finished_ranks, step_choice
from ...errors import BackendError, Cancelled, StudyError
from ...support import count_text, write_file
from .._experiment import Experiment
from .._result import Result
from .._simulate import load_source
from ..backends import get_backend
from ..config import MemoryConfig, NetworkConfig, SystemConfig, with_stored_algorithms
from ..study import Study, check_item, import_item, step_names_of
from ..sweep import Prices, Range

ACTIVE = ("queued", "running")


@dataclass(frozen=True)
class Job:
    """The state of a background job.

    * *state* is queued, running, done, failed or cancelled. *kind* is simulation, sweep, check or import.
    * *experiment* is the content hash of the request; for a finished simulation, it is the run's id.
    * *attempts* is the number of processes that have run the job.
    * *done* of *total* is the progress, in points for a sweep and in ranks for other jobs.
    * *simulated_ns* is the simulated time.
    * *created*, *started* and *ended* are in seconds since 1970, and 0 before the event.
    """

    id: int
    kind: str
    experiment: str
    label: str
    workload: str
    backend: str
    network: str
    state: str
    message: str
    attempts: int
    cancel_asked: float
    pid: int
    simulated_ns: int
    done: int
    total: int
    created: float
    started: float
    ended: float

    @property
    def is_active(self) -> bool:
        """Whether it is queued or running."""
        return self.state in ACTIVE


class _Request:
    """A request for a sweep, a check or an import, stored as JSON."""

    def to_json(self) -> str:
        """Return the request as JSON; equal requests give equal text."""
        return json.dumps(vars(self), sort_keys=True)

    @property
    def content_hash(self) -> str:
        """The id of the request: 16 hexadecimal digits of its hash."""
        return hashlib.sha256(f"{type(self).__name__} {self.to_json()}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SweepRequest(_Request):
    """A sweep *over* axes (key -> values); configurations are contents of files.

    * *system* may also be the name of a preset, which adapts to the dimensions of any network.
    * The *keep* best points are saved as runs: the points with the smallest value of the figure *least*
      within *at_most*.
    * *price* is the price per rank-hour, and *prices* overrides it for single networks.
    * With *trials*, a search tries this number of points instead of all, and an axis may be a range,
      ``{"low": 1, "high": 2}``.
    * *name* is the sweep's name, or ``""`` to generate one.
    """

    over: Mapping[str, Sequence[Any] | Mapping[str, float]]
    workload: str
    system: Mapping[str, Any] | str
    network: Mapping[str, Any]
    network_name: str
    backend: str
    name: str = ""
    keep: int = 1
    least: str = "makespan_ns"
    at_most: Mapping[str, float] = field(default_factory=dict)
    price: float | None = None
    prices: Mapping[str, float] = field(default_factory=dict)
    trials: int | None = None

    @property
    def points(self) -> int:
        """The number of points: the trials of a search, or all combinations of the axes."""
        return self.trials or math.prod(len(values) for values in self.over.values())

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `sweep` other than the study."""
        return {
            "over": {
                key: Range(**values) if isinstance(values, Mapping) else values
                for key, values in self.over.items()
            },
            "workload": self.workload,
            "system": self.system
            if isinstance(self.system, str)
            else SystemConfig.from_mapping(self.system, "The system"),
            "network": NetworkConfig.from_mapping(self.network, "The network", self.network_name),
            "backend": self.backend,
            "name": self.name or None,
            "keep": self.keep,
            "least": self.least,
            "at_most": self.at_most,
            "prices": Prices(self.price, self.prices),
            "trials": self.trials,
        }


@dataclass(frozen=True)
class ImportRequest(_Request):
    """A check of the *item* in *folder* if *name* is ``""``, otherwise its import as *name*.

    *step* selects the step of traces to convert.
    """

    folder: str
    item: str
    name: str = ""
    step: str = "median"


def request_of(study: Study, experiment: Experiment, workload: str) -> str:
    """Return a request, as JSON without paths, to simulate *experiment*.

    Files of custom algorithms are copied into the study.
    """
    system, algorithms = with_stored_algorithms(study.algorithms_dir(""), experiment.system)
    request = experiment.describe() | {
        "workload": workload,
        "ranks": experiment.workload.num_ranks,
        "system": system.to_dict(),
        "algorithms": algorithms,
        "system_name": experiment.system.name,
        "network_name": experiment.network.name,
        "assumptions": list(experiment.assumptions),
    }
    return json.dumps(request)


def read_request(study: Study, text: str) -> Experiment:
    """Return the experiment in a request, with the study's current workload."""
    request: Mapping[str, Any] = json.loads(text)
    source, _ = load_source(study.workload_prefix(request["workload"]), request["ranks"])
    system = SystemConfig.from_mapping(request["system"], f"The system '{request['system_name']}'")
    return Experiment.of_description(
        request,
        workload=source,
        system=replace(system, folder=study.algorithms_dir(request.get("algorithms", ""))),
        network=NetworkConfig.from_mapping(
            request["network"], f"The network '{request['network_name']}'", request["network_name"]
        ),
        memory=MemoryConfig.from_mapping(request["memory"], "The memory configuration"),
        backend=request["backend"],
        assumptions=tuple(request["assumptions"]),
    )


Note = Callable[[Mapping[str, int]], bool]
"""A callback that records the job's progress, by column, and returns whether to continue."""


def _simulate(study: Study, job: Job, request: str, note: Note) -> str:
    """Simulate an experiment and save it as a run of the study."""
    experiment = read_request(study, request)
    if experiment.content_hash != job.experiment:
        raise StudyError(f"The workload '{job.workload}' has changed since; submit the experiment again.")
    if not study.has_run(experiment):
        result = get_backend(experiment.backend).run(
            experiment,
            lambda simulated_ns, ranks: note({"simulated_ns": int(simulated_ns), "done": int(ranks)}),
        )
        keep_run(study, experiment, result, job)
    return ""


def keep_run(study: Study, experiment: Experiment, result: Result, job: Job) -> None:
    """Save the result as a run of the study, unless another process has already done so."""
    try:
        study.add_run(experiment, result, label=job.label, workload=job.workload)
    except StudyError:
        if not study.has_run(experiment):
            raise


def _sweep(study: Study, _job: Job, request: str, note: Note) -> str:
    """Simulate the points of a sweep that its table does not have yet."""
    from ..sweep import run_sweep  # noqa: PLC0415 - imports pandas, which other jobs do not need

    sweep = run_sweep(study, **SweepRequest(**json.loads(request)).arguments(), progress=_progress(note))
    if sweep.failed == len(sweep.points):
        raise BackendError(f"No point of the sweep has a result: {sweep.points['error'].iloc[0]}")
    failed = f", {sweep.failed} of them failed" if sweep.failed else ""
    return f"The sweep '{sweep.name}' has {count_text(len(sweep.points), 'point')}{failed}."


def _check(study: Study, _job: Job, request: str, note: Note) -> str:
    """Check an item to import; store the findings, and the annotations that mark steps."""
    asked = ImportRequest(**json.loads(request))
    with finished_ranks(study.import_target(asked.item)) as finished:
        findings = check_item(Path(asked.folder), asked.item, _progress(note), finished=finished)
    file = study.findings_file(asked.item)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_file(study.step_names_file(asked.item), json.dumps(step_names_of(Path(asked.folder), asked.item)))
    write_file(file, json.dumps([finding.to_dict() for finding in findings]))
    return f"{count_text(len(findings), 'finding')}." if findings else "No problems were found."


def _import(study: Study, _job: Job, request: str, note: Note) -> str:
    """Import an item as a workload of the study, entirely or not at all."""
    asked = ImportRequest(**json.loads(request))
    with finished_ranks(study.import_target(asked.item)) as finished:
        made = import_item(
            study,
            Path(asked.folder),
            asked.item,
            asked.name,
            _progress(note),
            step=step_choice(asked.step),
            finished=finished,
        )
    return f"Imported as the workload '{made}'."


def _progress(note: Note) -> Callable[..., None]:
    """Return a callback that records the progress, and raises `Cancelled` if the job must stop."""

    def progress(done: int, total: int, _failed: int = 0) -> None:
        if not note({"done": done, "total": total}):
            raise Cancelled("Cancelled.")

    return progress


WORK: Mapping[str, Callable[[Study, Job, str, Note], str]] = {
    "simulation": _simulate,
    "sweep": _sweep,
    "check": _check,
    "import": _import,
}
"""The function for each kind of job; it returns the job's final message."""
