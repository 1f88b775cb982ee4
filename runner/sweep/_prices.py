"""The cost of a step by the user's prices; no price is ever assumed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import ConfigError, did_you_mean
from ..config import read_yaml, shown
from ._goal import Goal

__all__ = ["Prices", "check_cost"]

_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Prices:
    """The price of one rank per hour: on *every* network, or on the network of a name."""

    every: float | None = None
    of: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for price in (self.every, *self.of.values()):
            if price is not None and not (math.isfinite(price) and price >= 0):
                raise ConfigError(f"A price must be a number of 0 or more, not {price}.")

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Prices:
        """Read prices as typed: ``2.5``, ``NETWORK=2.5``, or a YAML file that maps networks to prices.

        Raises `ConfigError`.
        """
        every, of = None, dict[str, float]()
        for text in texts:
            name, equals, number = text.rpartition("=")
            if Path(text).suffix in {".yml", ".yaml"}:
                of |= _read(Path(text))
            elif equals:
                of[name] = _price(number, text)
            else:
                every = _price(number, text)
        return cls(every, of)

    def __bool__(self) -> bool:
        return self.every is not None or bool(self.of)

    def step(self, network: str, ranks: int, makespan_ns: int) -> float:
        """Return the cost of a step of *ranks* ranks."""
        return self.per_hour(network) * ranks * makespan_ns / _HOUR_NS

    def per_hour(self, network: str) -> float:
        """Return the price of a rank per hour on *network*, a preset's name or a file.

        Raises `ConfigError` for a network without a price.
        """
        for name in (network, Path(network).stem):
            if name in self.of:
                return self.of[name]
        if self.every is None:
            raise ConfigError(
                f"No price is given for the network '{network}'{did_you_mean(network, self.of)} Add --price "
                f"{network}=NUMBER, the price of one rank for an hour."
            )
        return self.every


def check_cost(goal: Goal, prices: Prices, networks: Iterable[str | Path]) -> None:
    """Raise `ConfigError` if *goal* needs prices and there are none, or one of *networks* has none."""
    if goal.needs_prices and not prices:
        raise ConfigError(
            "The cost of a step needs prices; give what one rank costs for an hour (--price NUMBER), or that "
            "on each network (--price NETWORK=NUMBER)."
        )
    for network in networks if prices else ():
        prices.per_hour(str(network))


def _read(file: Path) -> dict[str, float]:
    """Read one price per network; raises `ConfigError`."""
    prices = read_yaml(file, "list of prices (NETWORK: PRICE-PER-RANK-AND-HOUR)")
    return {name: _price(price, f"{file}, {name}") for name, price in prices.items()}


def _price(value: Any, where: str) -> float:
    try:
        return float(value)
    except (OverflowError, TypeError, ValueError) as error:
        raise ConfigError(
            f"'{where}': {shown(value)} is not a price; write what one rank costs for an hour, such as 2.5."
        ) from error
