"""Convert values of JSON and YAML configuration files, checking types and plausible ranges.

ASTRA-sim converts silently: it truncates fractions, reads ``true`` as 1, and reads any text as a
flag that is on. A `Reader` takes a value and its place, and raises `ConfigError` for a wrong value.
`read_keys` reads a mapping with a reader per key, and `typed_fields` one with the fields of a dataclass.
"""

from __future__ import annotations

import reprlib
import sys
import types
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Union, get_args, get_origin, get_type_hints

from ...errors import ConfigError, did_you_mean
from ...support import bytes_text, duration_text, parse_duration, parse_size

_WORDS = {float: "a number", int: "a whole number", bool: "true or false", str: "a text"}


def mapping_of(value: Any, where: str) -> Mapping[Any, Any]:
    """Return *value* if it is a mapping; raises `ConfigError`, naming *where*, otherwise."""
    if not isinstance(value, Mapping):
        raise wrong(where, "a mapping of keys to values", value)
    return value


def typed_fields(kind: type[Any], value: Any, where: str, without: Collection[str] = ()) -> dict[str, Any]:
    """Convert the mapping *value* to the fields of the dataclass *kind*.

    The fields in *without* are not allowed in files. Raises `ConfigError`, naming *where*, for
    unknown or missing keys and for values of another type.
    """
    given = mapping_of(value, where)
    hints = {name: hint for name, hint in get_type_hints(kind).items() if name not in without}
    refuse_unknown(given, hints, where)
    for item in fields(kind):
        optional = item.default is not MISSING or item.default_factory is not MISSING
        if not optional and item.name in hints and item.name not in given:
            raise ConfigError(f"{where}: the key '{item.name}' is missing; add it.")
    return {key: _typed(hints[key], item, where, key) for key, item in given.items()}


def _typed(hint: Any, value: Any, outer: str, key: str) -> Any:
    """Return *value* as the type *hint*: a dataclass, mapping, list of strings, number, flag or string."""
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
            raise wrong(where, "a list of words", value)
        return tuple(value)
    is_finite = is_number(value) and abs(value) <= sys.float_info.max
    # Integers above 2^53 may be rounded when converted to a float.
    if is_finite and (hint is float or (hint is int and value == int(value))):
        return hint(value)
    if type(value) is not hint or is_number(value):
        raise wrong(where, _WORDS[hint], value)
    return value


class _Shown(reprlib.Repr):
    """A `repr` that also works for integers with more digits than Python prints."""

    def repr_int(self, x: int, level: int) -> str:
        """Return the digits of *x*, or its number of bits if it is huge."""
        return super().repr_int(x, level) if x.bit_length() < _MAX_BITS else f"2^{x.bit_length() - 1} or more"


_MAX_BITS = 4096
_SHOWN = _Shown()  # limits the output for values of any size or depth
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100
_SHOWN.maxlevel = 3

# Keys for comments, for which JSON has no syntax.
COMMENTS = ("comment", "source")


@contextmanager
def reported_at(where: str) -> Iterator[None]:
    """Raise a `ValueError` of the block, such as one of a unit's parser, as a `ConfigError` at *where*."""
    try:
        yield
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def wrong(where: str, wanted: str, value: Any) -> ConfigError:
    """Return the error for a *value* at *where* that is not what is *wanted*."""
    return ConfigError(f"{where} must be {wanted}, not {shown(value)}; correct the value.")


def shown(value: Any) -> str:
    """Return the text of *value* for an error message, shortened if necessary."""
    return _SHOWN.repr(value)


def integer(value: Any, where: str) -> int:
    """Return *value* as an integer; ``2.0`` is allowed, fractions and booleans are errors."""
    if is_number(value) and value == value // 1:
        return int(value)
    raise wrong(where, "a whole number", value)


def floating(value: Any, where: str) -> float:
    """Return *value* as a float; anything but a finite number is an error."""
    if is_number(value) and abs(value) <= sys.float_info.max:
        return float(value)
    raise wrong(where, "a number", value)


def is_number(value: Any) -> bool:
    """Return whether *value* is a number, and not a boolean."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def flag(value: Any, where: str) -> bool:
    """Return whether ASTRA-sim reads *value* as on: any number but 0, and any boolean, even ``false``."""
    if isinstance(value, bool):
        return True
    if isinstance(value, (int, float)):
        return value != 0
    raise wrong(where, "0 or 1", value)


def boolean(value: Any, where: str) -> bool:
    """Return *value*, which must be true or false."""
    if isinstance(value, bool):
        return value
    raise wrong(where, "true or false", value)


def string(value: Any, where: str) -> str:
    """Return *value*, which must be a string."""
    if isinstance(value, str):
        return value
    raise wrong(where, "a string", value)


def strings(value: Any, where: str) -> tuple[str, ...]:
    """Return *value*, which must be a list of strings, as a tuple."""
    if isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
        return tuple(value)
    raise wrong(where, 'a list of strings, such as ["ring"]', value)


Reader = Callable[[Any, str], Any]
"""Takes a value and its place in a file; returns the value as another type, or raises `ConfigError`."""


def whole(least: int, most: int) -> Reader:
    """Return a reader of integers from *least* to *most*."""

    def read(value: Any, where: str) -> int:
        if type(value) is not int or not least <= value <= most:
            raise wrong(where, f"a whole number from {least} to {most:,}", value)
        return value

    return read


def size(least: int, most: int) -> Reader:
    """Return a reader of sizes in bytes, such as ``64KiB``."""

    def read(value: Any, where: str) -> int:
        with reported_at(where):
            number = parse_size(value)
        if not least <= number <= most:
            raise wrong(where, f"between {bytes_text(least)} and {bytes_text(most)}", value)
        return number

    return read


def duration(least_ns: float, most_ns: float) -> Reader:
    """Return a reader of times, such as ``40ms``, as whole ns."""

    def read(value: Any, where: str) -> int:
        with reported_at(where):
            number = round(parse_duration(value))
        if not least_ns <= number <= most_ns:
            raise wrong(where, f"between {duration_text(least_ns)} and {duration_text(most_ns)}", value)
        return number

    return read


def one_of(names: Iterable[str]) -> Reader:
    """Return a reader of one of *names* (case-sensitive)."""
    known = list(names)

    def read(value: Any, where: str) -> str:
        if value not in known:
            raise ConfigError(f"{where} cannot be {shown(value)}{did_you_mean(str(value), known)}")
        return str(value)

    return read


def read_keys(value: Any, readers: Mapping[str, Reader], where: str) -> dict[str, Any]:
    """Read the values of the mapping *value* by their keys; the keys of *readers* are all that is allowed."""
    given = mapping_of(value, where)
    refuse_unknown(given, readers, where)
    return {key: readers[key](item, f"{where}: '{key}'") for key, item in given.items()}


def refuse_unknown(
    keys: Iterable[Any], known: Iterable[str], where: str, comments: Sequence[str] = ()
) -> None:
    """Raise `ConfigError` for the first of *keys* that is neither in *known* nor in *comments*."""
    names = list(known)
    for key in keys:
        if key not in names and key not in comments:
            raise ConfigError(f"{where}: there is no key {shown(key)}{did_you_mean(str(key), names)}")


INTEGER = 2**31 - 1  # ASTRA-sim reads integers into 32 bits
BANDWIDTH = (1e-6, 1e9)  # in units of 2^30 bytes per second
DELAY_NS = (0, 1e12)  # up to 1000 s, so that the sum of millions of delays stays below 2^64 ns
MAX_RANKS = 1 << 24


def check_range(number: Any, limits: tuple[float, float], where: str) -> None:
    """Raise `ConfigError`, naming the place *where*, if *number* is outside *limits*."""
    low, high = limits
    if not low <= number <= high:
        raise wrong(where, f"between {low:.15g} and {high:.15g}", number)
