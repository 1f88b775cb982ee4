"""ASTRA-sim's JSON files for systems, remote memories and process groups."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support import write_file
from ...support.documents import json_mapping, read_json
from ..engine import ALGORITHMS, COLLECTIVES, FIELDS, WHOLE_ALGORITHMS, is_algorithm
from . import _values as values
from ._presets import preset_text
from ._values import shown

INEFFECTIVE = {
    "boost-mode": "no part of ASTRA-sim 2 reads it",
    "intra-dimension-scheduling": "ASTRA-sim 2 always serves first in, first out; see "
    "'intra-dimension-policy'",
    "inter-dimension-scheduling": "ASTRA-sim 2 always visits dimensions in ascending order; see "
    "'inter-dimension-policy'",
}
# The engine's settings in system files, except file names and collective programs.
_ENGINE = {each.key: each for each in FIELDS.values() if each.origin == "system"}
_TEXTS = ("local-mem-trace-filename", "per-node-custom-implementation")
_CUSTOMS = tuple(f"{name}-implementation-custom" for name in COLLECTIVES)
_PROGRAMS = tuple(f"{name}-programs" for name in COLLECTIVES)  # keys of Chakrascope that ASTRA-sim ignores


@dataclass(frozen=True)
class SystemConfig:
    """A rank's communication library and chip; ``None`` means that the file lacks the key.

    Fields are named like the keys of the file, with ``_`` for ``-``. *endpoint_delay* is in ns,
    *local_mem_bw* in 10^9 bytes per second, and *peak_perf* in TFLOPS. Algorithm lists have one
    entry per network dimension, and paths of custom algorithms are relative to *folder*. Collective
    programs, an extension of ASTRA-sim's format, are MSCCL XML files, MSCCL++ plans or ``builtin``;
    a collective runs the first that fits. *unknown* holds comments, and keys of ASTRA-sim without
    effect. Raises `ConfigError`, naming the file *where*, for an implausible number or an unknown
    key.
    """

    scheduling_policy: str | None = None
    collective_optimization: str | None = None
    intra_dimension_policy: str | None = None
    inter_dimension_policy: str | None = None
    preferred_dataset_splits: int | None = None
    active_chunks_per_dimension: int | None = None
    endpoint_delay: int | None = None
    local_reduction_delay: int | None = None
    local_mem_bw: float | None = None
    peak_perf: float | None = None
    roofline_enabled: bool | None = None
    trace_enabled: bool | None = None
    replay_only: bool | None = None
    track_local_mem: bool | None = None
    local_mem_trace_filename: str | None = None
    model_shared_bus: int | None = None
    L: float | None = None
    o: float | None = None
    g: float | None = None
    G: float | None = None
    all_reduce_implementation: tuple[str, ...] | None = None
    reduce_scatter_implementation: tuple[str, ...] | None = None
    all_gather_implementation: tuple[str, ...] | None = None
    all_to_all_implementation: tuple[str, ...] | None = None
    all_reduce_implementation_custom: tuple[str, ...] | None = None
    reduce_scatter_implementation_custom: tuple[str, ...] | None = None
    all_gather_implementation_custom: tuple[str, ...] | None = None
    all_to_all_implementation_custom: tuple[str, ...] | None = None
    per_node_custom_implementation: str | None = None
    all_reduce_programs: tuple[str, ...] | None = None
    reduce_scatter_programs: tuple[str, ...] | None = None
    all_gather_programs: tuple[str, ...] | None = None
    all_to_all_programs: tuple[str, ...] | None = None
    unknown: Mapping[str, Any] = field(default_factory=dict)
    folder: Path = field(default=Path(), compare=False)
    name: str = field(default="system", compare=False)

    where: InitVar[str] = "The system configuration"

    def __post_init__(self, where: str) -> None:
        values.refuse_unknown(self.unknown, (*map(_key, _FIELDS), *INEFFECTIVE), where, values.COMMENTS)
        for key, engine in _ENGINE.items():
            value = getattr(self, engine.name)
            if isinstance(value, (int, float)):
                values.check_range(value, engine.limits, f"{where}: '{key}'")

    @classmethod
    def load(cls, path: str | Path) -> SystemConfig:
        """Read a system JSON; raises `ConfigError` wherever ASTRA-sim would fail."""
        file = Path(path)
        config = cls.from_mapping(read_json(file, "system configuration"), str(file))
        return replace(config, folder=file.parent, name=file.stem)

    @classmethod
    def preset(cls, name: str, dimensions: int = 1) -> SystemConfig:
        """Return the shipped system called *name*, for a network of *dimensions* dimensions."""
        data = json_mapping(preset_text("system", name), f"The preset '{name}'")
        return replace(cls.from_mapping(data, f"The preset '{name}'"), name=name).for_dimensions(dimensions)

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str) -> SystemConfig:
        """Build the configuration from a mapping; errors name its source, *where*."""
        allowed = {_key(name) for name in _FIELDS}
        loaded = {
            _attribute(key): _convert(key, data[key], f"{where}: '{key}'") for key in data if key in allowed
        }
        unknown = {key: data[key] for key in data if key not in allowed}
        return cls(**loaded, unknown=unknown, where=where)

    def for_dimensions(self, dimensions: int) -> SystemConfig:
        """Return the system with one-entry algorithm lists repeated for each of *dimensions* dimensions."""
        changes = {}
        for key in (f"{name}-implementation" for name in COLLECTIVES):
            current = getattr(self, _attribute(key))
            if current is not None and len(current) == 1 and not current[0].startswith(WHOLE_ALGORITHMS):
                changes[_attribute(key)] = current * dimensions
        return replace(self, **changes)

    def ineffective(self) -> list[str]:
        """Return a note for each key that is set but has no effect."""
        dead = [f"'{key}' has no effect: {INEFFECTIVE[key]}." for key in self.unknown if key in INEFFECTIVE]
        if self.scheduling_policy is not None:
            dead.append("'scheduling-policy' has no effect: chunks that compete always share a priority.")
        return dead

    @property
    def warnings(self) -> list[str]:
        """Warnings about absent keys whose values ASTRA-sim leaves undefined."""
        return [
            f"'{_key(name)}' is absent: ASTRA-sim would read uninitialised memory; {self.value(name)} was "
            "assumed."
            for name in ("scheduling_policy", "collective_optimization")
            if getattr(self, name) is None
        ]

    def value(self, name: str) -> Any:
        """Return the field *name*, or the engine's default if the file lacks the key."""
        given = getattr(self, name)
        return FIELDS[name].default if given is None else given

    def to_dict(self) -> dict[str, Any]:
        """Return the content for a system file, including keys without effect, and flags as 0 or 1."""
        data: dict[str, Any] = {}
        for name in _FIELDS:
            value = getattr(self, name)
            if value is not None:
                plain = int(value) if isinstance(value, bool) else value
                data[_key(name)] = list(plain) if isinstance(plain, tuple) else plain
        return data | dict(self.unknown)

    def save(self, path: str | Path) -> None:
        """Write the configuration in ASTRA-sim's format."""
        write_file(path, json.dumps(self.to_dict(), indent=2) + "\n", parents=True)


_FIELDS = tuple(item.name for item in fields(SystemConfig) if item.name not in ("unknown", "folder", "name"))


def _key(name: str) -> str:
    return name.replace("_", "-")


def _attribute(key: str) -> str:
    return key.replace("-", "_")


def _convert(key: str, value: Any, where: str) -> Any:
    """Return *value* as the type of ASTRA-sim's *key*; *where* names both the file and the key."""
    if key in _TEXTS:
        return values.string(value, where)
    if key in _PROGRAMS:
        return values.strings(value, where)
    if key in _CUSTOMS:
        names = values.strings(value, where)
        if len(names) != 1:
            raise ConfigError(f"{where} must name exactly one custom algorithm, not {len(names)}.")
        return names
    default = _ENGINE[key].default if key in _ENGINE else False
    if isinstance(default, bool):
        return values.flag(value, where)
    if isinstance(default, int):
        return values.integer(value, where)
    if isinstance(default, float):
        return values.floating(value, where)
    if isinstance(default, str):
        return values.one_of(_ENGINE[key].words)(value, where)
    return tuple(_algorithm(item, where) for item in values.strings(value, where))


def _algorithm(name: str, where: str) -> str:
    if not is_algorithm(name):
        choices = (*ALGORITHMS, *WHOLE_ALGORITHMS)
        raise ConfigError(f"{where} cannot be '{name}'{did_you_mean(name, choices)}")
    return name


_NUMBERS = {each.key: each.limits for each in FIELDS.values() if each.origin == "memory" and not each.words}


@dataclass(frozen=True)
class MemoryConfig:
    """Location and cost of remote memory: *remote_mem_latency* in ns, *remote_mem_bw* in bytes per ns.

    Latency and bandwidth are integers. *unknown* holds comments. Raises `ConfigError`, naming the file
    *where*, for an implausible number or an unknown key.
    """

    memory_type: str = "NO_MEMORY_EXPANSION"
    remote_mem_latency: int = 0
    remote_mem_bw: int = 0
    num_nodes: int = 0
    num_npus_per_node: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict)
    where: InitVar[str] = "The memory configuration"

    def __post_init__(self, where: str) -> None:
        values.refuse_unknown(self.unknown, ("memory-type", *_NUMBERS), where, values.COMMENTS)
        for key, allowed in _NUMBERS.items():
            values.check_range(getattr(self, _attribute(key)), allowed, f"{where}: '{key}'")

    @classmethod
    def load(cls, path: str | Path) -> MemoryConfig:
        """Read a remote-memory JSON; raises `ConfigError` for a wrong type or number."""
        return cls.from_mapping(read_json(Path(path), "memory configuration"), str(path))

    @classmethod
    def preset(cls, name: str) -> MemoryConfig:
        """Return the shipped remote memory called *name*."""
        data = json_mapping(preset_text("memory", name), f"The preset '{name}'")
        return cls.from_mapping(data, f"The preset '{name}'")

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str) -> MemoryConfig:
        """Build the configuration from a mapping; errors name its source, *where*."""
        readers = {"memory-type": values.one_of(FIELDS["memory_type"].words)}
        readers |= dict.fromkeys(_NUMBERS, values.integer)
        known = {key: readers[key](data[key], f"{where}: '{key}'") for key in data if key in readers}
        unknown = {key: data[key] for key in data if key not in readers}
        read = cls(**{_attribute(key): value for key, value in known.items()}, unknown=unknown, where=where)
        unused = next((key for key in _NUMBERS if key in data), None)
        if unused and "memory-type" not in data:
            raise ConfigError(
                f"{where}: the key 'memory-type' is missing, without which '{unused}' has no effect; add it."
            )
        return read

    def to_dict(self) -> dict[str, Any]:
        """Return the content for a remote-memory file, without zeros because an absent key means 0."""
        numbers = {key: getattr(self, key.replace("-", "_")) for key in _NUMBERS}
        return (
            {"memory-type": self.memory_type} | {k: v for k, v in numbers.items() if v} | dict(self.unknown)
        )

    def save(self, path: str | Path) -> None:
        """Write the configuration in ASTRA-sim's format."""
        write_file(path, json.dumps(self.to_dict(), indent=2) + "\n", parents=True)


_MAX_DIGITS = 18  # longer numbers may not fit into 64 bits


def load_groups(path: str | Path) -> dict[int, tuple[int, ...]]:
    """Read process groups: ids above 0, each with its ranks in the order of the group's ring.

    The text ``empty`` instead of a path means no groups, as in ASTRA-sim. Raises `ConfigError` for
    an id that is not a number above 0 or occurs twice, and for members that are not distinct ranks.
    """
    if str(path) == "empty":
        return {}
    data = read_json(Path(path), "communicator-group file")
    groups: dict[int, tuple[int, ...]] = {}
    for key, value in data.items():
        number = _group_id(key, path)
        if number in groups:
            raise ConfigError(f"{path}: group {number} occurs twice; give each group a separate id.")
        groups[number] = _members(key, value, path)
    return groups


def _group_id(key: str, path: str | Path) -> int:
    if not key.isascii() or not key.isdigit() or len(key) > _MAX_DIGITS or int(key) <= 0:
        raise ConfigError(
            f"{path}: the group {shown(key)} must be named by a whole number above 0; rename it."
        )
    return int(key)


def _members(key: str, value: Any, path: str | Path) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or any(type(item) is not int or item < 0 for item in value):
        raise ConfigError(
            f"{path}: group {key} must be a list of ranks (numbers of 0 or more), not {shown(value)}."
        )
    if len(set(value)) != len(value):
        raise ConfigError(f"{path}: group {key} names a rank twice: {shown(value)}; name each once.")
    return tuple(value)
