"""What a job is, and the request its process gets."""

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

__all__ = ["ACTIVE", "ENDED", "ImportRequest", "Job", "SweepRequest", "read_request", "request_of"]

ACTIVE = ("queued", "running")
ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Job:
    """How far a job is. *state* is queued, running, done, failed or cancelled.

    *kind* is simulation, sweep, check or import. *experiment* is the content hash of what it does; of a
    simulation, once *state* is done, the id of its run. *attempts* counts the processes it was given. It has
    *done* so much of its *total*: ranks of a simulation, a check or an import, points of a sweep;
    *simulated_ns* is how far a simulation is. *created*, *started* and *ended* are seconds since 1970, 0 for
    what is still to come.
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
        """Whether it waits or works."""
        return self.state in ACTIVE


class _Request:
    """What a process needs for something other than one simulation, kept as JSON."""

    def to_json(self) -> str:
        """Return the request as text, the same for the same request."""
        return json.dumps(vars(self), sort_keys=True)

    @property
    def content_hash(self) -> str:
        """What tells the request from others: 16 hexadecimal digits."""
        return hashlib.sha256(f"{type(self).__name__} {self.to_json()}".encode()).hexdigest()[:16]


@dataclass(frozen=True)
class SweepRequest(_Request):
    """A sweep *over* axes (key -> values) from configurations given as the mappings their files hold.

    *system* may be a preset's name, which fits itself to the dimensions of any network. *keep* of the best
    points become runs: those with the *least* of a figure within the limits *at_most*. *price* is that of a
    rank for an hour, *prices* those on single networks. With *trials*, so many points are searched instead
    of all, and an axis may be a range, ``{"low": 1, "high": 2}``. *name* is the sweep's, ``""`` for one of
    its own.
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
        """How many points are simulated: the trials, or all combinations of the axes."""
        return self.trials or math.prod(len(values) for values in self.over.values())

    def arguments(self) -> dict[str, Any]:
        """Return what `sweep` takes besides the study."""
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
    """The item of that id in *folder*: to be looked over if *name* is ``""``, else imported as *name*.

    *step* is the one to convert, of traces.
    """

    folder: str
    item: str
    name: str = ""
    step: str = "median"


def request_of(study: Study, experiment: Experiment, workload: str) -> str:
    """Return what a process needs to simulate *experiment*, as JSON without any path.

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
    """Return the experiment that a request describes, of a workload of the study as it is now."""
    request: Mapping[str, Any] = json.loads(text)
    options = dict(request["options"])
    if "machine" in options:
        from ..gpu import machine_of_plain  # noqa: PLC0415 - the other backends do without

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
