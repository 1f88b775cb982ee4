"""The remote-memory configuration: ASTRA-sim's remote-memory JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, field
from pathlib import Path
from typing import Any

from ...support import write_file
from ..engine import FIELDS
from . import _limits as limits
from . import _values as values
from ._presets import preset_path

__all__ = ["MemoryConfig"]

_NUMBERS = {each.key: each.limits for each in FIELDS.values() if each.origin == "memory" and not each.words}


@dataclass(frozen=True)
class MemoryConfig:
    """The location and cost of remote memory: *remote_mem_latency* in ns, *remote_mem_bw* in bytes per ns.

    Both are integers. *unknown* holds comments. An implausible number or an unrecognised key raises
    `ConfigError`, which names the file *where*.
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
            limits.check_range(getattr(self, key.replace("-", "_")), allowed, key, where)

    @classmethod
    def load(cls, path: str | Path) -> MemoryConfig:
        """Read a remote-memory JSON; raises `ConfigError` for a wrong type or number."""
        return cls.from_mapping(values.read_json(Path(path), "memory configuration"), str(path))

    @classmethod
    def preset(cls, name: str) -> MemoryConfig:
        """Return the shipped memory configuration called *name*."""
        return cls.load(preset_path("memory", name))

    @classmethod
    def from_mapping(cls, data: Mapping[str, Any], where: str) -> MemoryConfig:
        """Return the configuration of the mapping that was read from *where*."""
        kind = values.choice(
            data.get("memory-type", "NO_MEMORY_EXPANSION"), FIELDS["memory_type"].words, "memory-type", where
        )
        numbers = {key.replace("-", "_"): values.integer(data.get(key, 0), key, where) for key in _NUMBERS}
        known = {"memory-type", *_NUMBERS}
        unknown = {key: data[key] for key in data if key not in known}
        return cls(memory_type=kind, unknown=unknown, where=where, **numbers)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of the file; zeros are omitted, as absent keys mean 0."""
        numbers = {key: getattr(self, key.replace("-", "_")) for key in _NUMBERS}
        return (
            {"memory-type": self.memory_type} | {k: v for k, v in numbers.items() if v} | dict(self.unknown)
        )

    def save(self, path: str | Path) -> None:
        """Write the configuration in ASTRA-sim's format."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        write_file(path, json.dumps(self.to_dict(), indent=2) + "\n")
