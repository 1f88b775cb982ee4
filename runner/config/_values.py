"""Check and convert JSON and YAML values of configurations, and their plausible ranges.

ASTRA-sim converts a value of another type: it truncates fractions, reads ``true`` as 1, and reads any text as
a flag that is on. Each function of this module takes the value, the key and its file, and raises
`ConfigError` for a value of another type.
"""

from __future__ import annotations

import reprlib
import sys
from collections.abc import Iterable
from typing import Any

from ...errors import ConfigError, did_you_mean


class _Shown(reprlib.Repr):
    """A `repr` for integers with any number of digits, which Python may refuse to print."""

    def repr_int(self, x: int, level: int) -> str:
        """Return the digits of *x* or, for a huge *x*, its number of bits."""
        return (
            super().repr_int(x, level) if x.bit_length() < _MOST_BITS else f"2^{x.bit_length() - 1} or more"
        )


_MOST_BITS = 4096
_SHOWN = _Shown()  # its output has bounded length for values of any size or depth
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100
_SHOWN.maxlevel = 3

# The keys of comments in files, because JSON has no syntax for comments.
COMMENTS = ("comment", "source")


def _wrong(where: str, key: str, wanted: str, value: Any) -> ConfigError:
    return ConfigError(f"{where}: '{key}' must be {wanted}, but is {shown(value)}; correct the value.")


def shown(value: Any) -> str:
    """Return the text of *value* for an error message, in bounded length."""
    return _SHOWN.repr(value)


def integer(value: Any, key: str, where: str) -> int:
    """Return *value* as an integer; ``2.0`` is allowed, but fractions and booleans are errors."""
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == value // 1:
        return int(value)
    raise _wrong(where, key, "a whole number", value)


def floating(value: Any, key: str, where: str) -> float:
    """Return *value* as a float; any value except a finite number is an error."""
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if is_number and abs(value) <= sys.float_info.max:
        return float(value)
    raise _wrong(where, key, "a number", value)


def flag(value: Any, key: str, where: str) -> bool:
    """Return whether ASTRA-sim reads a flag as on: any number or boolean except 0, even ``false``."""
    if isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return value != 0
    raise _wrong(where, key, "0 or 1", value)


def text(value: Any, key: str, where: str) -> str:
    """Return *value* if *value* is a string; raises `ConfigError` for other types."""
    if isinstance(value, str):
        return value
    raise _wrong(where, key, "a string", value)


def texts(value: Any, key: str, where: str) -> tuple[str, ...]:
    """Return *value* as a tuple if it is a list of strings."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise _wrong(where, key, 'a list of strings, such as ["ring"]', value)


def choice(value: Any, allowed: Iterable[str], key: str, where: str) -> str:
    """Return *value* if it is one of the *allowed* names (case-sensitive)."""
    name = text(value, key, where)
    names = list(allowed)
    if name not in names:
        raise ConfigError(f"{where}: '{key}' cannot be {shown(name)}{did_you_mean(name, names)}")
    return name


def refuse_unknown(keys: Iterable[str], known: Iterable[str], where: str) -> None:
    """Raise `ConfigError` for the first of *keys* that is neither a comment nor in *known*."""
    names = list(known)
    for key in keys:
        if key not in names and key not in COMMENTS:
            raise ConfigError(f"{where}: there is no key {shown(key)}{did_you_mean(key, names)}")


INTEGER = 2**31 - 1  # ASTRA-sim reads integers into 32 bits
BANDWIDTH = (1e-6, 1e9)  # plausible bandwidths in units of 2^30 bytes per second
DELAY_NS = (0, 1e12)  # up to 1000 s; the sum of millions of delays stays below 2^64 ns
MOST_RANKS = 1 << 24


def check_range(number: Any, limits: tuple[float, float], key: str, where: str) -> None:
    """Raise `ConfigError`, which names *key* and its file *where*, for a *number* outside *limits*."""
    low, high = limits
    if not low <= number <= high:
        raise ConfigError(
            f"{where}: '{key}' must be between {low:.15g} and {high:.15g}, but is {shown(number)}; correct "
            "the value."
        )
