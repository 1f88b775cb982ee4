"""Untrusted text, such as names in traces, made safe for terminals and spreadsheets."""

from __future__ import annotations

import re

__all__ = ["spreadsheet_text", "visible"]

# Characters that move the cursor, colour or rename a terminal, or reverse the text direction.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?(?: ?%| [a-zµ/]+)?|inf|nan)", re.IGNORECASE
)


def visible(text: str, keep: str = "") -> str:
    """Return *text* with control characters as escape sequences, except those in *keep*."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def spreadsheet_text(text: str) -> str:
    """Return *text* as a spreadsheet cell that is never computed: a quote precedes a formula."""
    is_formula = _FORMULA.match(text) and len(text) > 1 and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + visible(text, keep="\n\t")
