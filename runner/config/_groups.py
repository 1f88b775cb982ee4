"""Process groups: ASTRA-sim's comm-group JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ...errors import ConfigError
from ._values import read_json, shown

__all__ = ["load_groups"]

_MOST_DIGITS = 18  # an integer of 64 bits


def load_groups(path: str | Path) -> dict[int, tuple[int, ...]]:
    """Read the groups in *path*: id (> 0) to member ranks, in the order of the group's ring.

    ``empty`` instead of a path means no groups, as in ASTRA-sim. Raises `ConfigError` for an id that is not a
    number above 0 or occurs twice, and for members that are not distinct ranks.
    """
    if str(path) == "empty":
        return {}
    data = read_json(Path(path), "communicator-group file")
    groups: dict[int, tuple[int, ...]] = {}
    for key, value in data.items():
        number = _group_id(key, path)
        if number in groups:
            raise ConfigError(f"{path}: group {number} occurs twice; give each group an id of its own.")
        groups[number] = _members(key, value, path)
    return groups


def _group_id(key: str, path: str | Path) -> int:
    if not key.isascii() or not key.isdigit() or len(key) > _MOST_DIGITS or int(key) <= 0:
        raise ConfigError(
            f"{path}: the group {shown(key)} must be named by a whole number above 0; rename it."
        )
    return int(key)


def _members(key: str, value: Any, path: str | Path) -> tuple[int, ...]:
    if not isinstance(value, list) or not value or any(type(item) is not int or item < 0 for item in value):
        raise ConfigError(
            f"{path}: group {key} must be a list of ranks (numbers of 0 or more), not {shown(value)}."
        )
    if len(set(value)) != len(value):
        raise ConfigError(f"{path}: group {key} names a rank twice: {shown(value)}; name each once.")
    return tuple(value)
