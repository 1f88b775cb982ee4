"""Check and convert JSON and YAML values of configurations.

ASTRA-sim turns a value into the type it needs (it cuts a fraction given for an integer, takes ``true`` as 1
and a flag of any text as on); here such a value is an error. Each function takes the value, the key and the
file it came from and raises `ConfigError` for a value of another type.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterable
from typing import Any

from ...errors import ConfigError, did_you_mean
from ...support.documents import read_json, read_yaml


class _Shown(reprlib.Repr):
    """Shows what Python has too many digits for, too: a product of numbers may be of any length."""

    def repr_int(self, x: int, level: int) -> str:
        """Return the digits of *x*, or how many bits it has."""
        return (
            super().repr_int(x, level) if x.bit_length() < _MOST_BITS else f"2^{x.bit_length() - 1} or more"
        )


_MOST_BITS = 4096
_SHOWN = _Shown()  # bounded, however large or deep the value is
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100
_SHOWN.maxlevel = 3

# Neither format needs comments as keys, but JSON has no others.
COMMENTS = ("comment", "source")

__all__ = [
    "COMMENTS",
    "choice",
    "flag",
    "floating",
    "integer",
    "read_json",
    "read_yaml",
    "refuse_unknown",
    "shown",
    "text",
    "texts",
]


def _wrong(where: str, key: str, wanted: str, value: Any) -> ConfigError:
    return ConfigError(f"{where}: '{key}' must be {wanted}, but is {shown(value)}; correct the value.")


def shown(value: Any) -> str:
    """Return *value* as an error message shows it, in bounded length."""
    return _SHOWN.repr(value)


def integer(value: Any, key: str, where: str) -> int:
    """Return *value* as an integer; ``2.0`` is one, while fractions and truth values are errors."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise _wrong(where, key, "a whole number", value)


def floating(value: Any, key: str, where: str) -> float:
    """Return *value* as a float; anything but a finite number is an error."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and abs(value) <= sys.float_info.max:
        return float(value)
    raise _wrong(where, key, "a number", value)


def flag(value: Any, key: str, where: str) -> bool:
    """Return whether ASTRA-sim takes a number or truth value as on: all but 0 are, even ``false``."""
    if isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return value != 0
    raise _wrong(where, key, "0 or 1", value)


def text(value: Any, key: str, where: str) -> str:
    """Return *value* if it is a string."""
    if isinstance(value, str):
        return value
    raise _wrong(where, key, "a string", value)


def texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    """Return *value* as a tuple if it is a list of strings."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise _wrong(where, key, 'a list of strings, such as ["ring"]', value)


def choice(value: Any, allowed: Iterable[str], key: str, where: str) -> str:
    """Return *value* if it is one of the *allowed* names (case matters)."""
    name = text(value, key, where)
    names = list(allowed)
    if name not in names:
        raise ConfigError(f"{where}: '{key}' cannot be {shown(name)}{did_you_mean(name, names)}")
    return name


def refuse_unknown(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise `ConfigError` for the first of *keys* that is neither a comment nor one of the *known*."""
    names = list(known)
    for key in keys:
        if key not in names and key not in COMMENTS:
            raise ConfigError(f"{where}: there is no key {shown(key)}{did_you_mean(key, names)}")
