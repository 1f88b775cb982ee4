"""Read JSON strictly."""

from __future__ import annotations

import json
import math
import re
from typing import Any

# Escaped UTF-16 surrogates, two of which form a character in JSON.
_HALF_CHARACTER = re.compile(r"\\(?:u|U0000)[dD][89a-fA-F]")
MAX_SHOWN = 100  # maximum number of characters of a key in an error


def parse_json(text: str | bytes) -> Any:
    """Return the value of the JSON *text*.

    Raises `ValueError` for duplicate keys, for a number such as ``1e400``, which would become infinity, and
    for half of a surrogate pair, which no file can hold.
    """
    value = json.loads(text, object_pairs_hook=unique_keys, parse_float=_finite)
    refuse_halves(value, text if isinstance(text, str) else text.decode("utf-8", "replace"))
    return value


def refuse_halves(value: Any, text: str) -> None:
    """Raise `ValueError` if the *value* of a *text* in JSON or YAML holds half of a surrogate pair."""
    if not _HALF_CHARACTER.search(text):
        return
    try:
        json.dumps(value, ensure_ascii=False, default=str).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"it holds {error.object[error.start]!a}, half of a surrogate pair") from error


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
