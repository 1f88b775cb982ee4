"""Convert JSON and YAML values the way ASTRA-sim converts them.

ASTRA-sim turns a number into the type it needs (a fraction given for an integer is cut, ``true`` is 1) and
calls a flag *on* when its value is anything but the number 0. Each function takes the value, the key and the
file it came from and raises `ConfigError` where ASTRA-sim would abort.
"""

from __future__ import annotations

import difflib
import json
import math
import re
import reprlib
import sys
from collections.abc import Iterable, Mapping
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError, did_you_mean

_NESTING = {"[": 1, "{": 1, "]": -1, "}": -1}
_DEEPEST = 100  # PyYAML takes the time of the square of it
_MOST_ALIASED = 100_000  # values that aliases repeat; ten lines of them can mean more than fit into memory
# What PyYAML raises, beside its own errors, for a value that is not of the kind it says or looks like.
_OF_YAML = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
_SHOWN = reprlib.Repr()  # bounded, however large or deep the value is
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


class _Loader(yaml.SafeLoader):
    """Reads YAML whose aliases (``*name``) stand for a bounded number of values."""

    def __init__(self, content: str) -> None:
        super().__init__(content)
        self._values = self._aliased = 0
        self._of_node: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node, counting what it stands for."""
        before = self._values
        event = self.peek_event()  # type: ignore[no-untyped-call]  # of PyYAML
        node: yaml.Node | None = super().compose_node(parent, index)
        if not isinstance(event, yaml.AliasEvent):
            self._values += 1
            self._of_node[id(node)] = self._values - before
            return node
        repeated = self._of_node.get(id(node), _MOST_ALIASED + 1)  # a node within itself has no end
        self._values += repeated
        self._aliased += repeated
        if self._aliased > _MOST_ALIASED:
            raise yaml.YAMLError(f"alias *{event.anchor} repeats too much {event.start_mark}")
        return node


def _read(path: Path, what: str) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read ({error.strerror}); check the path.") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"The {what} {path} is not text in UTF-8; is it the right file?") from error


def _mapping(value: Any, path: Path, what: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(
            f"The {what} {path} must be a mapping of keys to values, but is {type(value).__name__}."
        )
    return {str(key): item for key, item in value.items()}


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object in *path*; *what* names the file in errors."""
    content = _read(path, what)
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(
            f"The {what} {path} is not valid JSON ({error}); correct it at that place."
        ) from error
    return _mapping(value, path, what)


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return the YAML mapping in *path*; *what* names the file in errors."""
    content = _read(path, what)
    if max(accumulate(_NESTING[bracket] for bracket in re.findall(r"[][{}]", content)), default=0) > _DEEPEST:
        raise ConfigError(f"The {what} {path} is nested deeper than any; is it the right file?")
    try:
        value = yaml.load(content, _Loader)
    except (yaml.YAMLError, *_OF_YAML) as error:
        place = " ".join(str(error).split())
        raise ConfigError(
            f"The {what} {path} is not valid YAML ({place}); correct it at that place."
        ) from error
    return _mapping(value, path, what)
