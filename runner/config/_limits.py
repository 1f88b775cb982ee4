"""Plausible ranges of the numbers in a configuration; values outside are errors."""

from __future__ import annotations

from typing import Any

from ...errors import ConfigError
from ._values import shown

__all__ = ["BANDWIDTH", "DELAY_NS", "INTEGER", "MOST_RANKS", "check_range"]

INTEGER = 2**31 - 1  # ASTRA-sim reads integers into 32 bits
BANDWIDTH = (1e-6, 1e9)  # units of 2^30 bytes per second: from a modem to beyond any machine
DELAY_NS = (0, 1e12)  # a thousand seconds: sums of some millions of them stay below 2^64 ns
MOST_RANKS = 1 << 24


def check_range(number: Any, limits: tuple[float, float], key: str, where: str) -> None:
    """Raise `ConfigError` for a *number* outside *limits*, naming *key* and its file *where*."""
    low, high = limits
    if not low <= number <= high:
        raise ConfigError(
            f"{where}: '{key}' must be between {low:.15g} and {high:.15g}, but is {shown(number)}; correct "
            "the value."
        )
