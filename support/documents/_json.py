"""Read JSON strictly."""

from __future__ import annotations

import json
import math
from typing import Any

MAX_SHOWN = 100  # maximum number of characters of a key in an error


def parse_json(text: str | bytes) -> Any:
    """Return the value of the JSON *text*.

    Raises `ValueError` for duplicate keys, and for a number such as ``1e400``, which would become infinity.
    """
    return json.loads(text, object_pairs_hook=unique_keys, parse_float=_finite)


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise ValueError(f"the number {text[:MAX_SHOWN]} is too large")
    return number


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object's *pairs* as a dict; raises `ValueError` for a duplicate key."""
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [key for key, _ in pairs]
        twice = next(key for place, key in enumerate(names) if key in names[:place])
        raise ValueError(f"the key {twice[:MAX_SHOWN]!a} occurs twice")
    return made
