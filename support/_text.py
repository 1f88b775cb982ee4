"""Texts of others, such as names in traces, where they reach a terminal or a spreadsheet."""

from __future__ import annotations

import re

__all__ = ["spreadsheet_text", "visible"]

# What moves the cursor, colours or renames a terminal, and what reverses the order of the text after it.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?(?: ?%| [a-zµ/]+)?|inf|nan)", re.IGNORECASE
)


def visible(text: str, keep: str = "") -> str:
    """Return *text* with control characters shown as escapes, except for those in *keep*."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def spreadsheet_text(text: str) -> str:
    """Return *text* as a cell that no spreadsheet computes: a formula has a quote before it."""
    is_formula = _FORMULA.match(text) and len(text) > 1 and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + visible(text, keep="\n\t")
