"""Create experiments from settings, which change single fields of configuration files by key."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support.documents import parse_json, read_text
from .._experiment import Experiment, WorkloadSource
from .._simulate import choose_groups, load_memory, load_network, load_source, load_system
from .._traits import DEFAULT_BACKEND, about_backend
from ..backends import get_backend
from ..config import (
    DIMENSION_KEYS,
    EXTENSIONS,
    MemoryConfig,
    NetworkConfig,
    SystemConfig,
    with_algorithms,
)
from ..engine import COLLECTIVES, WHOLE_ALGORITHMS
from ..study import Study
from ._space import Settings

_PARTS = ("backend", "memory", "network", "system", "workload")
_OPTIONS: dict[str, type] = {
    "injection-scale": float,
    "num-queues-per-dim": int,
    "rendezvous": bool,
    "semantics": str,
}


def _keys_of(kind: type[SystemConfig | MemoryConfig]) -> list[str]:
    names = (item.name for item in fields(kind) if item.name not in ("unknown", "folder", "name"))
    return [name.replace("_", "-") for name in names]


_ALGORITHMS = tuple(f"{name}-implementation" for name in sorted(COLLECTIVES))
_CUSTOMS = tuple(f"{name}-custom" for name in _ALGORITHMS)
_KEYS = {
    "network": [*DIMENSION_KEYS, *EXTENSIONS],
    "system": _keys_of(SystemConfig),
    "memory": _keys_of(MemoryConfig),
    "algorithm": list(COLLECTIVES),
}
_KEY = re.compile(r"(?P<name>[^\[\]]+)(\[(?P<index>\d+)\])?")
_SIZES_KEPT = 16


@dataclass(frozen=True)
class Base:
    """The base of all points of a sweep: a study's workload, and configurations or their names.

    *workload* is a name in the study, or ``None`` for the newest workload. *network* may be ``None`` if every
    point names a network. *options* are ASTRA-sim's ``num-queues-per-dim``, ``injection-scale`` and
    ``rendezvous``, and the ``semantics``.
    """

    workload: str | None = None
    system: SystemConfig | str | Path = "default"
    network: NetworkConfig | str | Path | None = None
    memory: MemoryConfig | str | Path | None = None
    backend: str = DEFAULT_BACKEND
    options: Mapping[str, Any] = field(default_factory=dict)


class Builder:
    """Creates the experiments of a sweep; each workload is read once for each number of ranks."""

    def __init__(self, study: Study, base: Base) -> None:
        self.study = study
        self.base = base
        self._source = lru_cache(_SIZES_KEPT)(self._read_source)
        self._part = lru_cache(None)(self._read_part)

    def experiment(self, settings: Settings) -> Experiment:
        """Return the experiment of one point, or raise the errors of `prepare` for invalid values."""
        backend = str(settings.get("backend", self.base.backend))
        get_backend(backend)
        network, system = self.machine(settings)
        source, captured = self._source(self.workload_name(settings), network.num_ranks)
        return Experiment(
            workload=source,
            system=system,
            network=network,
            memory=self._memory(settings),
            groups=choose_groups(None, source),
            backend=backend,
            assumptions=tuple(source.metadata.get("assumptions", [])),
            **self._options(settings, captured),
        )

    def machine(self, settings: Settings) -> tuple[NetworkConfig, SystemConfig]:
        """Return the network and the system of one point."""
        network = self._network(settings, str(settings.get("backend", self.base.backend)))
        return network, self._system(settings, network.dimensions)

    def source(self, workload: str, num_ranks: int) -> WorkloadSource:
        """Return the programs of the study's *workload* for *num_ranks* ranks."""
        return self._source(workload, num_ranks)[0]

    def workload_name(self, settings: Settings) -> str:
        """Return the name of a point's workload in the study."""
        chosen = settings.get("workload", self.base.workload)
        return self.study.workload_prefix(None if chosen is None else str(chosen)).parent.name

    def _read_source(self, workload: str, num_ranks: int) -> tuple[WorkloadSource, bool]:
        return load_source(self.study.workload_prefix(workload), num_ranks)

    def _read_part(self, kind: str, reference: str, extra: Any = None) -> Any:
        """Load a configuration that is named in the settings of a point."""
        if kind == "network":
            return load_network("", reference, DEFAULT_BACKEND)
        return load_system(reference, extra) if kind == "system" else load_memory(reference)

    def _network(self, settings: Settings, backend: str) -> NetworkConfig:
        if about_backend(backend).replays:
            return load_network(self.study.workload_prefix(self.workload_name(settings)), None, backend)
        network: NetworkConfig = (
            self._part("network", str(settings["network"]))
            if "network" in settings
            else load_network("", self.base.network, backend)
        )
        changes = _changes(settings, "network")
        if not changes:
            return network
        data = copy.deepcopy(network.to_dict())
        sizes = settings.get("network.topology")
        dimensions = len(sizes) if isinstance(sizes, list) else network.dimensions
        for key, value in changes.items():
            _put(data, key, value, dimensions if key.partition("[")[0] in DIMENSION_KEYS else 0)
        return NetworkConfig.from_mapping(data, "The network of a point of the sweep", network.name)

    def _system(self, settings: Settings, dimensions: int) -> SystemConfig:
        system = self._changed_system(settings, dimensions)
        algorithms = {
            collective: [str(name) for name in (value if isinstance(value, list) else [value])]
            for collective, value in _changes(settings, "algorithm").items()
        }
        return with_algorithms(system, algorithms, dimensions) if algorithms else system

    def _changed_system(self, settings: Settings, dimensions: int) -> SystemConfig:
        reference = settings.get("system", self.base.system)
        system: SystemConfig = (
            self._part("system", reference, dimensions)
            if isinstance(reference, str)
            else load_system(reference, dimensions)
        )
        changes = _changes(settings, "system")
        if not changes:
            return system
        data = copy.deepcopy(system.for_dimensions(dimensions).to_dict())
        for key, value in changes.items():
            _put(data, key, value, _entries(key, value, dimensions))
        changed = SystemConfig.from_mapping(data, "The system of a point of the sweep")
        return replace(changed, folder=system.folder, name=system.name)

    def _memory(self, settings: Settings) -> MemoryConfig:
        reference = settings.get("memory", self.base.memory)
        memory: MemoryConfig = (
            self._part("memory", reference) if isinstance(reference, str) else load_memory(reference)
        )
        changes = _changes(settings, "memory")
        if not changes:
            return memory
        return MemoryConfig.from_mapping(memory.to_dict() | changes, "The memory of a point of the sweep")

    def _options(self, settings: Settings, captured: bool) -> dict[str, Any]:
        given = {**self.base.options, **{key: settings[key] for key in _OPTIONS if key in settings}}
        options = {key.replace("-", "_"): _converted(key, value) for key, value in given.items()}
        return {"semantics": "trace" if captured else "astra-sim"} | options


def read_points(path: str | Path) -> list[dict[str, Any]]:
    """Read a point, which is a JSON object of settings, from each non-empty line of *path*.

    A line that cannot be read raises `ConfigError` with the line number.
    """
    lines = read_text(Path(path), "list of points").splitlines()
    points = [_point(line, f"{path}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    if not points:
        raise ConfigError(f"The list of points {path} is empty; write one JSON object per line.")
    return points


def _point(line: str, where: str) -> dict[str, Any]:
    try:
        settings = parse_json(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: this is not valid JSON ({error}); correct the line.") from error
    if not isinstance(settings, dict) or not settings:
        raise ConfigError(
            f'{where}: a point is a JSON object of settings, such as {{"network.bandwidth": 50}}.'
        )
    try:
        check_keys(settings)
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from error
    return settings


def check_keys(settings: Settings) -> None:
    """Raise `ConfigError` for a key that is not a field, before any point is simulated."""
    for key in settings:
        part, dot, rest = key.partition(".")
        if not dot and key in (*_PARTS, *_OPTIONS):
            continue
        if not dot or part not in _KEYS:
            keys = [*_PARTS, *_OPTIONS, *(f"{part}.{name}" for part in _KEYS for name in _KEYS[part])]
            raise ConfigError(f"A sweep cannot change '{key}'{did_you_mean(key, keys)}")
        match = _KEY.fullmatch(rest)
        name = _spelled(part, match["name"]) if match else rest
        if part != "network" or name.partition(".")[0] not in EXTENSIONS:
            _check_field(key, part, name, indexed=match is None or match["index"] is not None)


def _check_field(key: str, part: str, name: str, *, indexed: bool) -> None:
    if name not in _KEYS[part]:
        allowed = [f"{part}.{known}" for known in _KEYS[part]]
        raise ConfigError(f"A sweep cannot change '{key}'{did_you_mean(key, allowed)}")
    if indexed and name not in (*DIMENSION_KEYS, *_ALGORITHMS):
        raise ConfigError(f"'{key}' is not one value per dimension; write it without an index.")


def _changes(settings: Settings, part: str) -> dict[str, Any]:
    """Return the fields of *part* that *settings* change; whole lists precede single entries."""
    changes = {
        _spelled(part, key.partition(".")[2]): value
        for key, value in settings.items()
        if key.startswith(f"{part}.")
    }
    return dict(sorted(changes.items(), key=lambda item: item[0].endswith("]")))


def _spelled(part: str, name: str) -> str:
    """Return *name* as the file spells it: with dashes in system keys, and underscores in network keys."""
    if part == "network":
        return name if name.partition(".")[0] in EXTENSIONS else name.replace("-", "_")
    return name.replace("_", "-")


def _entries(key: str, value: Any, dimensions: int) -> int:
    """Return the number of entries in the system's list *key* for a scalar, or 0 for a scalar key."""
    name = key.partition("[")[0]
    # An algorithm name with the prefix "one" spans all dimensions.
    if name in _CUSTOMS or (name in _ALGORITHMS and str(value).startswith(WHOLE_ALGORITHMS)):
        return 1
    return dimensions if name in _ALGORITHMS else 0


def _put(data: dict[str, Any], key: str, value: Any, dimensions: int) -> None:
    """Set *key* in *data*; a scalar applies to all entries of a per-dimension key."""
    match = _KEY.fullmatch(key)
    if match and match["index"] is not None:
        _put_entry(data, match["name"], int(match["index"]), value)
        return
    *path, last = key.split(".")
    for step in path:
        inner = data.setdefault(step, {})
        if not isinstance(inner, dict):
            raise ConfigError(f"'{key}': '{step}' has no sub-keys in this network.")
        data = inner
    data[last] = [value] * dimensions if dimensions and not isinstance(value, list) else value


def _put_entry(data: dict[str, Any], name: str, index: int, value: Any) -> None:
    entries = list(data.get(name) or ())
    if index >= len(entries):
        raise ConfigError(
            f"'{name}[{index}]' does not exist: '{name}' has {len(entries)} entries, counted from 0."
        )
    entries[index] = value
    data[name] = entries


def _converted(key: str, value: Any) -> Any:
    kind = _OPTIONS[key]
    right = isinstance(value, (int, float)) if kind is float else isinstance(value, kind)
    if not right or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(f"'{key}' cannot be {value!r}; give a value of type {kind.__name__}.")
    return kind(value)
