"""Store the base of a sweep with its points, so that any point can be repeated."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...errors import ConfigError, StudyError
from ...support import load_json, write_file, writing
from .._checksums import refuse_damaged
from .._experiment import Experiment
from .._simulate import load_memory
from ..config import MemoryConfig, NetworkConfig, SystemConfig, list_presets
from ..study import Study
from ._settings import Base, Builder
from ._table import points_file, read_table

_NAME = "start.json"
_UNFINISHED = "unfinished"


def write_start(folder: Path, base: Base, points: int) -> None:
    """Write the base of the sweep to *folder*: presets by name, and other files with their content.

    Until :func:`finish_start`, the file records the expected number of *points*. If the folder has points of
    another base, which would share the table, the function raises `StudyError`.
    """
    system, network = base.system, base.network
    if not isinstance(system, SystemConfig) and system not in list_presets("system"):
        system = SystemConfig.load(system)
    start = {
        "workload": base.workload,
        "system": system.to_dict() if isinstance(system, SystemConfig) else system,
        "network": network.to_dict() if isinstance(network, NetworkConfig) else None,
        "network_name": network.name if isinstance(network, NetworkConfig) else "",
        "memory": load_memory(base.memory).to_dict(),
        "backend": base.backend,
        "options": dict(base.options),
        _UNFINISHED: points,
    }
    _refuse_other_base(folder, json.loads(json.dumps(start)))
    with writing(f"The sweep {folder}", StudyError):
        folder.mkdir(parents=True, exist_ok=True)
        write_file(folder / _NAME, json.dumps(start, indent=2) + "\n")


def _refuse_other_base(folder: Path, start: dict[str, Any]) -> None:
    """Raise `StudyError` if the sweep in *folder* started from another base than *start*."""
    try:
        before = load_json(folder / _NAME)
        differing = [key for key in start if key != _UNFINISHED and before[key] != start[key]]
    except (OSError, ValueError, KeyError, TypeError):  # the damage is reported later
        return
    if differing:
        raise StudyError(
            f"The sweep '{folder.name}' has points of another {differing[0].replace('_', ' ')}, and a table "
            f"holds points of one base. Next: choose another --name, or delete the folder {folder}."
        )


def finish_start(folder: Path) -> None:
    """Record that all points of the sweep in *folder* have a result."""
    with writing(f"The sweep {folder}", StudyError):
        start = load_json(folder / _NAME)
        start.pop(_UNFINISHED, None)
        write_file(folder / _NAME, json.dumps(start, indent=2) + "\n")


def planned_points(folder: Path) -> int:
    """Return the expected number of points of an interrupted sweep, or 0 if the sweep is complete.

    A sweep that is still running also counts as interrupted.
    """
    planned = _stored(folder, _UNFINISHED)
    return planned if isinstance(planned, int) else 0


def base_workload(study: Study, name: str) -> str | None:
    """Return the workload of the sweep *name*, or None for a search for plans and for a damaged sweep."""
    workload = _stored(study.sweep_dir(name), "workload")
    return workload if isinstance(workload, str) else None


def _stored(folder: Path, key: str) -> Any:
    """Return the value of *key* in the base of the sweep in *folder*, or None."""
    try:
        return load_json(folder / _NAME).get(key)
    except (OSError, ValueError, AttributeError):  # damage is reported when a point is repeated
        return None


def sweep_experiment(study: Study, name: str, identity: str) -> Experiment:
    """Return the experiment of the point *identity* of a sweep, so that it can be repeated.

    The function raises `StudyError` for a missing point, and for a sweep with another base.
    """
    if study.has_run_id(identity):
        return study.experiment(identity)
    settings = _settings_of(study, name, identity)
    experiment = Builder(study, read_start(study.sweep_dir(name))).experiment(settings)
    if experiment.content_hash != identity:
        raise StudyError(
            f"The sweep '{name}' or its workload has changed since the point {identity} was simulated; "
            "run the sweep again."
        )
    return experiment


def sweep_workload(study: Study, name: str, identity: str) -> str:
    """Return the name of the workload of a sweep's point, or raise the errors of `sweep_experiment`."""
    if study.has_run_id(identity):
        return study.run_info(identity).workload
    settings = _settings_of(study, name, identity)
    return Builder(study, read_start(study.sweep_dir(name))).workload_name(settings)


def _settings_of(study: Study, name: str, identity: str) -> dict[str, Any]:
    points = read_table(points_file(study, name))
    matches = points.loc[points["id"] == identity, "settings"]
    if not len(matches):
        raise StudyError(f"The sweep '{name}' has no point '{identity}'; choose one of its table.")
    settings: dict[str, Any] = json.loads(matches.iloc[0])
    return settings


def read_start(folder: Path) -> Base:
    """Return the base of the sweep in *folder*, or raise `StudyError` for damage and searches for plans."""
    refuse_damaged(folder, {_NAME}.__contains__)
    try:
        start: dict[str, Any] = load_json(folder / _NAME)
        if "model" in start:
            raise StudyError(
                f"The points of '{folder.name}' are plans that `predict search` simulated, without a "
                "workload in the study. Next: run the search again with a larger --keep, "
                "or the point's own command."
            )
        system, network, name = start["system"], start["network"], str(start["network_name"])
        return Base(
            start["workload"],
            system if isinstance(system, str) else SystemConfig.from_mapping(system, "The system"),
            None if network is None else NetworkConfig.from_mapping(network, "The network", name),
            MemoryConfig.from_mapping(start["memory"], "The memory configuration"),
            start["backend"],
            start["options"],
        )
    except (OSError, ValueError, KeyError, TypeError, ConfigError) as error:
        raise StudyError(
            f"The settings of the sweep '{folder.name}' cannot be read ({error}); run the sweep again."
        ) from error
