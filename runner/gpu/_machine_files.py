"""Read machine files (YAML), and find shipped ones.

A file has the keys of `Machine`, with the same nesting. *chip* names a chip file, which provides common
values; *sources* has the origin of figures, by dotted key (``memory.latency_ns``) or part.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

from ...errors import ConfigError, did_you_mean
from ...support.documents import read_yaml
from ..chips import find_chip
from ..config import Shipped
from ._machine import PARTS, Machine, Protocol

_MACHINES = Shipped("machine", Path(__file__).parent / "machines")
_PLAIN = ("title", "arbitration", "compute_waves", "compute_memory_share")
_PROTOCOLS = ("Simple", "LL", "LL128")


def list_machines() -> list[str]:
    """Return the names of the machines that ship with the package, sorted."""
    return _MACHINES.names()


def find_machine(name: str | Path) -> Machine:
    """Return the shipped machine called *name*, or that of a file.

    Raises `ConfigError` naming the closest.
    """
    return load_machine(_MACHINES.find(name))


def load_machine(path: str | Path) -> Machine:
    """Read a machine file; raises `ConfigError` for keys unknown or missing, and for wrong values."""
    file = Path(path)
    whole = read_yaml(file, "machine file")
    allowed = {*_PLAIN, *PARTS, "protocols", "chip", "sources"}
    for key in whole:
        if key not in allowed:
            raise ConfigError(f"{file}: unknown key '{key}'{did_you_mean(str(key), allowed)}")
    sources = _sources(whole, str(file))
    plain = {name: dict(_mapping(whole.get(name, {}), f"{file}: {name}")) for name in PARTS}
    if "chip" in whole:
        _take_from_chip(str(whole["chip"]), plain["memory"], sources)
    parts = {name: _part(kind, plain[name], f"{file}: {name}") for name, kind in PARTS.items()}
    hints = get_type_hints(Machine)
    more = {key: _value(whole[key], hints[key], f"{file}: '{key}'") for key in _PLAIN if key in whole}
    if "protocols" in whole:
        more["protocols"] = _protocols(_mapping(whole["protocols"], f"{file}: protocols"), str(file))
    return Machine(name=file.stem, **parts, **more, sources=sources)


def _mapping(data: Any, where: str) -> Mapping[Any, Any]:
    if not isinstance(data, Mapping):
        raise ConfigError(
            f"{where} must be a mapping of keys to values. Compare with a shipped machine file."
        )
    return data


def _take_from_chip(name: str, memory: dict[str, Any], sources: dict[str, str]) -> None:
    """Set the memory bandwidth from a chip file, unless it is given."""
    chip = find_chip(name)
    if "bytes_per_ns" not in memory:
        memory["bytes_per_ns"] = chip.memory_bytes_per_s / 1e9
        sources.setdefault("memory.bytes_per_ns", f"the chip {chip.name}: {chip.source}")


def _sources(whole: Mapping[Any, Any], file: str) -> dict[str, str]:
    """Return the sources by key; raises `ConfigError` for unknown figures."""
    sources = {
        str(key): str(words) for key, words in _mapping(whole.get("sources", {}), f"{file}: sources").items()
    }
    paths = {f"{name}.{item.name}" for name, kind in PARTS.items() for item in fields(kind)}
    paths |= {"protocols", *(f"protocols.{name}" for name in _PROTOCOLS), *_PLAIN}
    for key in sources:
        if key not in paths:
            raise ConfigError(f"{file}: sources: there is no figure '{key}'{did_you_mean(key, paths)}")
    return sources


def _protocols(given: Mapping[Any, Any], file: str) -> dict[str, Protocol]:
    protocols = {}
    for name in given:
        if name not in _PROTOCOLS:
            raise ConfigError(f"{file}: unknown protocol '{name}'{did_you_mean(str(name), _PROTOCOLS)}")
        where = f"{file}: protocols.{name}"
        protocols[str(name)] = _part(Protocol, _mapping(given[name], where), where)
    for name in _PROTOCOLS:
        if name not in protocols:
            raise ConfigError(f"{file}: the protocol '{name}' is missing; add it.")
    return protocols


def _part(kind: type[Any], given: Mapping[Any, Any], where: str) -> Any:
    """Return a *kind* with the values *given*; raises `ConfigError` for unknown or missing keys."""
    hints = get_type_hints(kind)
    for key in given:
        if key not in hints:
            raise ConfigError(f"{where}: unknown key '{key}'{did_you_mean(str(key), hints)}")
    for item in fields(kind):
        if item.default is MISSING and item.default_factory is MISSING and item.name not in given:
            raise ConfigError(f"{where}: the key '{item.name}' is missing; add it.")
    return kind(**{key: _value(value, hints[key], f"{where}: '{key}'") for key, value in given.items()})


def _value(value: Any, hint: Any, where: str) -> Any:
    """Return *value* as an instance of *hint*; raises `ConfigError` for another type."""
    if get_origin(hint) in {Union, types.UnionType}:
        if value is None:
            return None
        hint = next(part for part in get_args(hint) if part is not type(None))
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        if abs(value) > sys.float_info.max:
            raise ConfigError(f"{where} is larger than any number can be; correct it.")
        return float(value)
    if type(value) is not hint:
        words = {float: "a number", int: "a whole number", bool: "true or false", str: "text"}[hint]
        hint_of_yaml = " Write 1.5e+9, not 1.5e9: YAML needs the sign." if hint is float else ""
        raise ConfigError(f"{where} must be {words}, not {value!r}.{hint_of_yaml}")
    return value


DEFAULT_MACHINE = "h100"


def machine_of_backend(name: str) -> Machine:
    """Return the machine in the backend's *name*; raises `ConfigError` for an unknown one."""
    return find_machine(name.partition(":")[2] or DEFAULT_MACHINE)
