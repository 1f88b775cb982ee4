"""The remote-memory configuration and the process groups, read from ASTRA-sim's JSON files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ...support import write_file
from ...support.documents import read_json
from ..engine import FIELDS
from . import _values as values
from ._presets import preset_path
from ._values import shown

_NUMBERS = {each.key: each.limits for each in FIELDS.values() if each.origin == "memory" and not each.words}


@dataclass(frozen=True)
class MemoryConfig:
    """The location and cost of remote memory: *remote_mem_latency* in ns, *remote_mem_bw* in bytes per ns.

    Latency and bandwidth are integers. *unknown* contains comments. An implausible number or an unrecognised
    key raises `ConfigError`, which names the file *where*.
    """

    memory_type: str = "NO_MEMORY_EXPANSION"
    remote_mem_latency: int = 0
    remote_mem_bw: int = 0
    num_nodes: int = 0
    num_npus_per_node: int = 0
    unknown: Mapping[str, Any] = field(default_factory=dict)
    where: InitVar[str] = "The memory configuration"

    def __post_init__(self, where: str) -> None:
        values.refuse_unknown(self.unknown, ("memory-type", *_NUMBERS), where)
        for key, allowed in _NUMBERS.items():
            values.check_range(getattr(self, key.replace("-", "_")), allowed, key, where)

    @classmethod
    def load(cls, path: str | Path) -> MemoryConfig:
        """Read a remote-memory JSON; raises `ConfigError` for a wrong type or number."""
        return cls.from_mapping(read_json(Path(path), "memory configuration"), str(path))

    @classmethod
    def preset(cls, name: str) -> MemoryConfig:
        """Return the remote-memory configuration called *name* that ships with the package."""
        return cls.load(preset_path("memory", name))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str) -> MemoryConfig:
        """Return the memory configuration in the mapping that was read from *where*."""
        kind = values.choice(
            data.get("memory-type", "NO_MEMORY_EXPANSION"), FIELDS["memory_type"].words, "memory-type", where
        )
        numbers = {key.replace("-", "_"): values.integer(data.get(key, 0), key, where) for key in _NUMBERS}
        allowed = {"memory-type", *_NUMBERS}
        unknown = {key: data[key] for key in data if key not in allowed}
        return cls(memory_type=kind, unknown=unknown, where=where, **numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the remote-memory file without zeros, because an absent key means 0."""
        numbers = {key: getattr(self, key.replace("-", "_")) for key in _NUMBERS}
        return (
            {"memory-type": self.memory_type} | {k: v for k, v in numbers.items() if v} | dict(self.unknown)
        )

    def save(self, path: str | Path) -> None:
        """Write the memory configuration in ASTRA-sim's format."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(self.to_dict(), indent=2) + "\n")


_MOST_DIGITS = 18  # numbers with more digits may not fit into 64 bits


def load_groups(path: str | Path) -> dict[int, tuple[int, ...]]:
    """Read the process groups in *path*: a map from id (above 0) to ranks in the order of the group's ring.

    The text ``empty`` instead of a path means no groups, as in ASTRA-sim. Raises `ConfigError` for an id that
    is not a number above 0 or occurs twice, and for members that are not distinct ranks.
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
    if not key.isascii() or not key.isdigit() or len(key) > _MOST_DIGITS or int(key) <= 0:
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
