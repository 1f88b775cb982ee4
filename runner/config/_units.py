"""Read rates and delays the way ns-3 writes them: ``400Gbps``, ``100Mb/s``, ``0.0005ms``."""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

from ...errors import ConfigError
from ._values import shown

__all__ = ["parse_delay_ps", "parse_rate_bps"]

_VALUE = re.compile(r"(\d{1,18}(?:\.\d{0,18})?(?:[eE][+-]?\d{1,2})?)([A-Za-z/]*)")
_PREFIX = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12} | {
    f"{name}i": 1 << (10 * power) for power, name in enumerate("KMGT", start=1)
}
_DELAYS = {
    "fs": Fraction(1, 1000),
    "ps": Fraction(1),
    "ns": Fraction(10**3),
    "us": Fraction(10**6),
    "ms": Fraction(10**9),
    "s": Fraction(10**12),
    "": Fraction(10**12),
}
_LARGEST = 1 << 62


def parse_rate_bps(value: Any, where: str) -> int:
    """Return a rate in bit/s; a bare number is one already. Raises `ConfigError`, naming *where*."""
    number, unit = _split(value, where, "a rate such as 400Gbps")
    for end, scale in (("bps", 1), ("b/s", 1), ("Bps", 8), ("B/s", 8), ("", 1)):
        if unit.endswith(end) and unit[: len(unit) - len(end)] in _PREFIX:
            return _whole(number * scale * _PREFIX[unit[: len(unit) - len(end)]], where)
    raise ConfigError(f"{where} must have a rate such as 400Gbps or 100Mb/s, not {shown(value)}.")


def parse_delay_ps(value: Any, where: str) -> int:
    """Return a delay in ps; a bare number is in seconds, as in ns-3. Raises `ConfigError`, naming *where*."""
    number, unit = _split(value, where, "a delay such as 500ns")
    if unit not in _DELAYS:
        raise ConfigError(f"{where} must have a delay such as 500ns or 0.0005ms, not {shown(value)}.")
    return _whole(number * _DELAYS[unit], where)


def _split(value: Any, where: str, wanted: str) -> tuple[Fraction, str]:
    match = _VALUE.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool):
        raise ConfigError(f"{where} must have {wanted}, not {shown(value)}.")
    return Fraction(match[1]), match[2]


def _whole(number: Fraction, where: str) -> int:
    if number > _LARGEST:
        raise ConfigError(f"{where} is too large.")
    return round(number)
