"""Read JSON and YAML configuration files strictly; all errors are `ConfigError`."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping
from io import BufferedReader
from itertools import accumulate
from pathlib import Path
from typing import Any

import yaml

from ...errors import ConfigError
from .._files import open_file
from ._json import MAX_SHOWN, parse_json, refuse_halves, unique_keys

_NESTING = {"[": 1, "{": 1, "]": -1, "}": -1}
_DEEPEST = 100  # maximum nesting of brackets; PyYAML's time is quadratic in it
_MAX_DIGITS = 3000
_MAX_BYTES = 1 << 28
_CONSTANTS = re.compile("NaN|Infinity")  # text in YAML, but numbers in JSON
_MAX_YAML = 1 << 24  # PyYAML reads some 50 kB per second
_MERGE = "tag:yaml.org,2002:merge"
_MAX_ALIASED = 100_000  # maximum number of values from aliases, which can exceed the memory in ten lines
# Errors other than YAMLError that PyYAML raises for a value that does not match its tag or form.
_OF_YAML = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


# Numbers with an exponent as in YAML 1.2; PyYAML requires a point and a sign, and reads ``1e30`` as text.
_EXPONENT = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)[eE][-+]?[0-9]+$")
_OCTAL = re.compile(r"[-+]?0[0-7_]*[0-7]")


class _Loader(yaml.SafeLoader):
    """A YAML loader that refuses duplicate keys and limits the expansion of aliases (``*name``)."""

    def __init__(self, content: str) -> None:
        super().__init__(content)
        self._values = self._aliased = 0
        self._of_node: dict[int, int] = {}

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next YAML node, counting the values that it expands to."""
        before = self._values
        event = self.peek_event()  # type: ignore[no-untyped-call]  # of PyYAML
        node: yaml.Node | None = super().compose_node(parent, index)
        if not isinstance(event, yaml.AliasEvent):
            self._values += 1
            self._of_node[id(node)] = self._values - before
            return node
        repeated = self._of_node.get(id(node), _MAX_ALIASED + 1)  # a recursive node expands without limit
        self._values += repeated
        self._aliased += repeated
        if self._aliased > _MAX_ALIASED:
            raise yaml.YAMLError(f"alias *{event.anchor} repeats too much {event.start_mark}")
        return node

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Return the next YAML mapping; raises an error for duplicate keys.

        The merge key ``<<`` may occur more than once.
        """
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != _MERGE:
                if key.value in seen:
                    name = ascii(key.value[:MAX_SHOWN])
                    raise yaml.YAMLError(f"the key {name} occurs twice {key.start_mark}")
                seen.add(key.value)
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        """Replace the merge keys (``<<``) of *node* by the pairs of the merged mappings.

        The last pair of a key wins: merged pairs come before the node's own, and later mappings
        before earlier ones, as in https://yaml.org/type/merge.html. PyYAML 6.0.4 behaves
        differently.
        """
        own, merged = [], []
        for key, value in node.value:
            if key.tag != _MERGE:
                own.append((key, value))
                continue
            for source in value.value if isinstance(value, yaml.SequenceNode) else [value]:
                if not isinstance(source, yaml.MappingNode):
                    raise yaml.YAMLError(f"'<<' merges mappings only {source.start_mark}")
                self.flatten_mapping(source)
                merged.append(source.value)
        node.value = [pair for pairs in reversed(merged) for pair in pairs] + own

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        """Return an integer of base 10, 16 or 2 with no more digits than Python allows."""
        if len(node.value) > _MAX_DIGITS:
            raise yaml.YAMLError(f"a number of {len(node.value)} digits {node.start_mark}")
        _refuse_old_bases(node)
        return int(super().construct_yaml_int(node))

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        """Return a floating-point number of base 10; raises an error for base 60 and for overflow."""
        _refuse_old_bases(node)
        number = float(super().construct_yaml_float(node))
        if math.isinf(number) and not node.value.lower().endswith(".inf"):
            raise yaml.YAMLError(f"the number {node.value[:MAX_SHOWN]} is too large {node.start_mark}")
        return number


def _refuse_old_bases(node: yaml.ScalarNode) -> None:
    """Raise an error for numbers such as 1:30 and 010, which YAML 1.1 and 1.2 read differently."""
    if ":" in node.value or _OCTAL.fullmatch(node.value):
        raise yaml.YAMLError(f"the number {node.value} is of base 60 or 8 in YAML 1.1 {node.start_mark}")


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)
_Loader.add_constructor("tag:yaml.org,2002:float", _Loader.construct_yaml_float)
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _EXPONENT, list("-+.0123456789"))


def read_text(path: Path, what: str) -> str:
    """Read the text file *path*, called *what* in errors."""
    try:
        with _opened(path, what) as file:
            content = file.read(_MAX_BYTES + 1)
        if len(content) > _MAX_BYTES:
            raise ConfigError(
                f"The {what} {path} is larger than {_MAX_BYTES >> 20} MiB; is it the right file?"
            )
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise ConfigError(f"The {what} {path} is not text in UTF-8; is it the right file?") from error


def refuse_unreadable(path: Path, what: str) -> None:
    """Raise `ConfigError` if *path*, called *what*, is no file that can be read to its end."""
    with _opened(path, what):
        pass


@contextlib.contextmanager
def _opened(path: Path, what: str) -> Iterator[BufferedReader]:
    try:
        with open_file(path) as file:
            yield file
    except OSError as error:
        raise ConfigError(f"The {what} {path} cannot be read ({error.strerror}); check the path.") from error


def _mapping(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        found = "empty" if value is None else type(value).__name__
        raise ConfigError(
            f"{name} must be a mapping of keys to values, but is {found}; is it the right file?"
        )
    try:
        return unique_keys([(str(key), item) for key, item in value.items()])
    except ValueError as error:
        raise ConfigError(f"{name} is ambiguous: {error}; remove one of the two.") from error


def read_json(path: Path, what: str) -> dict[str, Any]:
    """Return the JSON object in the file *path*; *what* describes the file in errors."""
    return json_mapping(read_text(path, what), f"The {what} {path}")


def json_mapping(content: str, name: str) -> dict[str, Any]:
    """Return the JSON object in *content*; errors start with *name*."""
    try:
        value = parse_json(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{name} is not valid JSON ({error}); correct it at that place.") from error
    return _mapping(value, name)


def read_yaml(path: Path, what: str) -> dict[str, Any]:
    """Return the YAML mapping in the file *path*; *what* describes the file in errors."""
    return yaml_mapping(read_text(path, what), f"The {what} {path}")


def yaml_mapping(content: str, name: str) -> dict[str, Any]:
    """Return the YAML mapping in *content*; errors start with *name*."""
    return _mapping(parse_yaml(content, name), name)


def parse_yaml(content: str, name: str) -> Any:
    """Return the value of the YAML *content*; errors start with *name*."""
    if max(accumulate(_NESTING[bracket] for bracket in re.findall(r"[][{}]", content)), default=0) > _DEEPEST:
        raise ConfigError(f"{name} is nested too deeply; is it the right file?")
    if content.lstrip().startswith(("{", "[")) and not _CONSTANTS.search(content):
        with contextlib.suppress(ValueError, RecursionError):
            return parse_json(content)  # a hundred times faster than PyYAML
    if len(content) > _MAX_YAML:
        raise ConfigError(
            f"{name} has more than {_MAX_YAML >> 20} MiB of YAML; if it is the right file, write it as JSON."
        )
    try:
        value = yaml.load(content, _Loader)
        refuse_halves(value, content)
    except (yaml.YAMLError, *_OF_YAML) as error:
        place = " ".join(str(error).split()).replace('in "<unicode string>", ', "at ")
        raise ConfigError(f"{name} is not valid YAML ({place}); correct it at that place.") from error
    return value
