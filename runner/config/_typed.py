"""Convert mappings from files to dataclass fields, checked against the types of the fields."""

from __future__ import annotations

import sys
import types
from collections.abc import Collection, Mapping
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from ...errors import ConfigError, did_you_mean
from ._values import shown

_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}


def mapping_of(value: Any, where: str) -> Mapping[Any, Any]:
    """Return *value* if *value* is a mapping; raises `ConfigError` with the place *where*."""
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"{where} must be a mapping of keys to values, not {shown(value)}; correct the value."
        )
    return value


def typed_fields(kind: type[Any], value: Any, where: str, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of the dataclass *kind* in the mapping *value*, converted to the fields' types.

    The fields in *without* do not occur in files. Raises `ConfigError` with the place *where* for unknown or
    missing keys, and for values of another type.
    """
    given = mapping_of(value, where)
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in without}
    for key in given:
        if key not in hints:
            raise ConfigError(f"{where}: unknown key {shown(key)}{did_you_mean(str(key), hints)}")
    for item in fields(kind):
        optional = item.default is not MISSING or item.default_factory is not MISSING
        if not optional and item.name in hints and item.name not in given:
            raise ConfigError(f"{where}: the key '{item.name}' is missing; add it.")
    return {key: _typed(hints[key], item, where, key) for key, item in given.items()}


def _typed(hint: Any, value: Any, outer: str, key: str) -> Any:
    """Return *value* as an instance of the type *hint*: a dataclass, mapping, texts, number, flag or text."""
    if get_origin(hint) in {Union, types.UnionType}:
        if value is None:
            return None
        hint = next(part for part in get_args(hint) if part is not types.NoneType)
    if isinstance(hint, type) and is_dataclass(hint):
        return hint(**typed_fields(hint, value, f"{outer}: {key}"))
    where = f"{outer}: '{key}'"
    if get_origin(hint) is Mapping:
        inner = get_args(hint)[1]
        given = mapping_of(value, where).items()
        return {str(name): _typed(inner, item, where, str(name)) for name, item in given}
    if get_origin(hint) is tuple:
        if not isinstance(value, list) or not all(isinstance(text, str) for text in value):
            raise ConfigError(f"{where} must be a list of words, not {shown(value)}.")
        return tuple(value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    is_finite = is_number and abs(value) <= sys.float_info.max
    # A whole number above 2^53 may be rounded when it is converted to a float.
    if is_finite and (hint is float or (hint is int and value == int(value))):
        return hint(value)
    if type(value) is not hint or is_number:
        raise ConfigError(f"{where} must be {_WORDS[hint]}, not {shown(value)}; correct the value.")
    return value
