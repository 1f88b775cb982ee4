"""What a job is, and the request its process gets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ...errors import ConfigError
from ..config import MemoryConfig, NetworkConfig, SystemConfig
from ..experiment import Experiment
from ..simulate import load_source
from ..study import Study

__all__ = ["ACTIVE", "ENDED", "Job", "read_request", "request_of"]

ACTIVE = ("queued", "running")
ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Job:
    """How far a job is. *state* is queued, running, done, failed or cancelled.

    *experiment* is the content hash of what it simulates and, once *state* is done, the id of the run.
    *attempts* counts the processes it was given, *simulated_ns* and *ranks_done* of *ranks* say how far the
    simulation is; *created*, *started* and *ended* are seconds since 1970, 0 for what is still to come.
    """

    id: int
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
    ranks_done: int
    ranks: int
    created: float
    started: float
    ended: float

    @property
    def is_active(self) -> bool:
        """Whether it waits or works."""
        return self.state in ACTIVE


def request_of(experiment: Experiment, workload: str) -> str:
    """Return what a process needs to simulate *experiment*, as JSON without any path.

    Raises `ConfigError` if it needs files from outside of the study.
    """
    own_files = [
        key for key, value in vars(experiment.system).items() if key.endswith("custom") and value is not None
    ]
    if experiment.system.per_node_custom_implementation is not None or own_files:
        raise ConfigError(
            "A job cannot simulate a system with custom algorithms, whose files are not part of the study; "
            "simulate it with 'chakrascope run'."
        )
    request = experiment.describe() | {
        "workload": workload,
        "ranks": experiment.workload.num_ranks,
        "system_name": experiment.system.name,
        "network_name": experiment.network.name,
        "assumptions": list(experiment.assumptions),
    }
    return json.dumps(request)


def read_request(study: Study, text: str) -> Experiment:
    """Return the experiment that a request describes, of a workload of the study as it is now."""
    request: Mapping[str, Any] = json.loads(text)
    source, _ = load_source(study.workload_prefix(request["workload"]), request["ranks"])
    return Experiment(
        workload=source,
        system=SystemConfig.from_mapping(request["system"], f"The system '{request['system_name']}'"),
        network=NetworkConfig.from_mapping(
            request["network"], f"The network '{request['network_name']}'", request["network_name"]
        ),
        memory=MemoryConfig.from_mapping(request["memory"], "The memory configuration"),
        groups={int(group): tuple(members) for group, members in request["groups"].items()},
        backend=request["backend"],
        assumptions=tuple(request["assumptions"]),
        **request["options"],
    )
