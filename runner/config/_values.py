"""Convert JSON and YAML values the way ASTRA-sim converts them.

ASTRA-sim turns a number into the type it needs (a fraction given for an integer is cut, ``true`` is 1) and
calls a flag *on* when its value is anything but the number 0. Each function takes the value, the key and the
file it came from and raises `ConfigError` where ASTRA-sim would abort.
"""

from __future__ import annotations

import difflib
import math
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

__all__ = [
    "choice",
    "flag",
    "floating",
    "integer",
    "read_json",
    "read_yaml",
    "shown",
    "spelling_hints",
    "text",
    "texts",
]


def _wrong(where: str, key: str, wanted: str, value: Any) -> ConfigError:
    return ConfigError(f"{where}: '{key}' must be {wanted}, but is {shown(value)}; correct the value.")


def shown(value: Any) -> str:
    """Return *value* as an error message shows it, in bounded length."""
    return _SHOWN.repr(value)


def integer(value: Any, key: str, where: str) -> int:
    """Return *value* as an integer, cutting a fraction; anything but a finite number is an error."""
    if isinstance(value, (bool, int)):
        return int(value)
    if isinstance(value, float) and math.isfinite(value):
        return int(value)
    raise _wrong(where, key, "a number", value)


def floating(value: Any, key: str, where: str) -> float:
    """Return *value* as a float; anything but a finite number is an error."""
    if isinstance(value, (bool, int, float)) and abs(value) <= sys.float_info.max:
        return float(value)
    raise _wrong(where, key, "a number", value)


def flag(value: Any) -> bool:
    """Return whether ASTRA-sim takes *value* as on: everything but the number 0 is, even ``false``."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return value != 0
    return True


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


def spelling_hints(unknown: Iterable[str], known: Iterable[str]) -> list[str]:
    """Return one sentence for each *unknown* key, with the *known* key it resembles."""
    names = list(known)
    sentences = []
    for key in unknown:
        close = difflib.get_close_matches(key, names, n=1, cutoff=0.75)
        hint = f"; did you mean '{close[0]}'?" if close else "."
        sentences.append(f"'{key}' is not a key of ASTRA-sim and was ignored{hint}")
    return sentences
