"""The state of a background job, and the request that its process executes."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from .._experiment import Experiment
from .._simulate import load_source
from ..config import MemoryConfig, NetworkConfig, SystemConfig, kept_in
from ..study import Study
from ..sweep import Prices, Range

ACTIVE = ("queued", "running")


@dataclass(frozen=True)
class Job:
    """The state of a background job.

    * *state* is queued, running, done, failed or cancelled. *kind* is simulation, sweep, check or import.
    * *experiment* is the content hash of the job's request. For a finished simulation, *experiment* is the id
      of the run.
    * *attempts* is the number of processes that have run the job.
    * The progress is *done* of *total*, counted in points for a sweep, and in ranks for other jobs.
    * *simulated_ns* is the simulated time.
    * *created*, *started* and *ended* are in seconds since 1970. They are 0 before the event.
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
        """Whether the job is queued or running."""
        return self.state in ACTIVE


class _Request:
    """The request for a sweep, a check or an import, which is stored as JSON."""

    def to_json(self) -> str:
        """Return the request as text, with the same text for equal requests."""
        return json.dumps(vars(self), sort_keys=True)

    @property
    def content_hash(self) -> str:
        """The id of the request, as 16 hexadecimal digits of its hash."""
        return hashlib.sha256(f"{type(self).__name__} {self.to_json()}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SweepRequest(_Request):
    """A sweep *over* axes (key -> values), with configurations given as the content of their files.

    * *system* may be the name of a preset, which adapts to the dimensions of any network.
    * The *keep* best points are saved as runs. The best points have the *least* value of a figure within the
      limits *at_most*.
    * *price* is the price per rank-hour, and *prices* contains prices on single networks.
    * With *trials*, a search tries this number of points instead of all points. An axis may be a range,
      ``{"low": 1, "high": 2}``.
    * *name* is the name of the sweep, or ``""`` for a generated name.
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
        """Return the arguments of `sweep` except the study."""
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
    """A request to check the *item* in *folder* if *name* is ``""``, or to import the item as *name*.

    *step* selects the step of traces to convert.
    """

    folder: str
    item: str
    name: str = ""
    step: str = "median"


def request_of(study: Study, experiment: Experiment, workload: str) -> str:
    """Return the request to simulate *experiment* as JSON, without paths of files.

    The files of custom algorithms are copied into the study.
    """
    system, algorithms = kept_in(study.algorithms_dir(""), experiment.system)
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
    """Return the experiment of a request, with the current workload of the study."""
    request: Mapping[str, Any] = json.loads(text)
    options = dict(request["options"])
    if "machine" in options:
        from ..gpu import machine_of_plain  # noqa: PLC0415 - needed for the GPU backend only

        options["machine"] = machine_of_plain(options["machine"])
    source, _ = load_source(study.workload_prefix(request["workload"]), request["ranks"])
    system = SystemConfig.from_mapping(request["system"], f"The system '{request['system_name']}'")
    return Experiment(
        workload=source,
        system=replace(system, folder=study.algorithms_dir(request.get("algorithms", ""))),
        network=NetworkConfig.from_mapping(
            request["network"], f"The network '{request['network_name']}'", request["network_name"]
        ),
        memory=MemoryConfig.from_mapping(request["memory"], "The memory configuration"),
        groups={int(group): tuple(members) for group, members in request["groups"].items()},
        backend=request["backend"],
        assumptions=tuple(request["assumptions"]),
        **options,
    )
