"""Read machine files (YAML), and find shipped machine files.

A machine file has the keys of `Machine`, with the same nesting. *chip* names a chip file, which provides
common values; *sources* contains the origin of figures, by dotted key (``memory.latency_ns``) or part.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support.documents import read_yaml
from ..chips import find_chip
from ..config import Shipped, mapping_of, typed_fields
from ._machine import PARTS, Machine

_MACHINES = Shipped("machine", Path(__file__).parent / "machines")
_PLAIN = ("title", "arbitration", "compute_waves", "compute_memory_share")
_PROTOCOLS = ("Simple", "LL", "LL128")


def list_machines() -> list[str]:
    """Return the names of the machines that ship with the package, sorted."""
    return _MACHINES.names()


def find_machine(name: str | Path) -> Machine:
    """Return the shipped machine called *name*, or the machine in the file *name*.

    For an unknown name, raises `ConfigError` with the closest name.
    """
    return load_machine(_MACHINES.find(name))


def load_machine(path: str | Path) -> Machine:
    """Read a machine file; raises `ConfigError` for unknown or missing keys, and for wrong values."""
    file = Path(path)
    given = {**{name: {} for name in PARTS}, **read_yaml(file, "machine file")}
    sources = _sources(given.pop("sources", {}), str(file))
    if "chip" in given:
        memory = dict(mapping_of(given["memory"], f"{file}: memory"))
        _take_from_chip(str(given.pop("chip")), memory, sources)
        given["memory"] = memory
    if "protocols" in given:
        _check_protocols(mapping_of(given["protocols"], f"{file}: protocols"), str(file))
    values = typed_fields(Machine, given, str(file), without=("name", "sources"))
    return Machine(name=file.stem, **values, sources=sources)


def _take_from_chip(name: str, memory: dict[str, Any], sources: dict[str, str]) -> None:
    """Set the memory bandwidth from a chip file, unless the machine file gives the memory bandwidth."""
    chip = find_chip(name)
    if "bytes_per_ns" not in memory:
        memory["bytes_per_ns"] = chip.memory_bytes_per_s / 1e9
        sources.setdefault("memory.bytes_per_ns", f"the chip {chip.name}: {chip.source}")


def _sources(given: Any, file: str) -> dict[str, str]:
    """Return the sources of figures by dotted key; raises `ConfigError` for unknown figures."""
    sources = {str(key): str(words) for key, words in mapping_of(given, f"{file}: sources").items()}
    paths = {f"{name}.{item.name}" for name, kind in PARTS.items() for item in fields(kind)}
    paths |= {"protocols", *(f"protocols.{name}" for name in _PROTOCOLS), *_PLAIN}
    for key in sources:
        if key not in paths:
            raise ConfigError(f"{file}: sources: there is no figure '{key}'{did_you_mean(key, paths)}")
    return sources


def _check_protocols(given: Mapping[Any, Any], file: str) -> None:
    for name in given:
        if name not in _PROTOCOLS:
            raise ConfigError(f"{file}: unknown protocol '{name}'{did_you_mean(str(name), _PROTOCOLS)}")
    for name in _PROTOCOLS:
        if name not in given:
            raise ConfigError(f"{file}: the protocol '{name}' is missing; add it.")


DEFAULT_MACHINE = "h100"


def machine_of_backend(name: str) -> Machine:
    """Return the machine in the backend's *name*; raises `ConfigError` for an unknown machine."""
    return find_machine(name.partition(":")[2] or DEFAULT_MACHINE)
