"""The goal of a sweep (the smallest value of a figure within limits), and costs by the user's prices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import ConfigError, UsageError, did_you_mean
from ...support import parse_number
from ...support.documents import read_yaml
from ..config import shown

if TYPE_CHECKING:
    import pandas as pd

FIGURES = (
    "makespan_ns", "exposed_comm_ns", "compute_ns", "comm_ns", "overlap_ns", "rank_time_ns", "ranks", "cost",
)  # fmt: skip
"""The figures of a sweep that can be compared.

``rank_time_ns`` is the makespan times the number of ranks, which is the accelerator time of a step. ``cost``
is the price of a step, if prices are given.
"""


@dataclass(frozen=True)
class Goal:
    """The goal of a sweep: the smallest value of the figure *least* within the limits *at_most*."""

    least: str = "makespan_ns"
    at_most: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (self.least, *self.at_most):
            if name not in FIGURES:
                raise ConfigError(f"'{name}' is not a column of a sweep{did_you_mean(name, FIGURES)}")

    @property
    def needs_prices(self) -> bool:
        """Whether points can be compared only if their prices are known."""
        return "cost" in (self.least, *self.at_most)

    def excess(self, table: pd.DataFrame) -> pd.Series:
        """Return, for each point, the sum of the fractions by which it exceeds the limits (0: within all)."""
        import pandas as pd  # noqa: PLC0415 - a slow import, and the command line lists FIGURES

        over: pd.Series = pd.Series(0.0, index=table.index)
        for name, limit in self.at_most.items():
            part = table[name].astype("Float64") / max(limit, 1e-9) - 1
            over += part.clip(lower=0).fillna(0).astype(float)
        return over

    def score(self, table: pd.DataFrame) -> pd.Series:
        """Return the value that a search minimises: the figure, with a penalty for exceeded limits."""
        return table[self.least].astype("Float64") * (1 + 10 * self.excess(table))

    def best_first(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return points within the limits by the figure, then points beyond them, then failed points."""
        ranked = table.assign(_failed=table["state"] != "done", _excess=self.excess(table))
        keys = ["_failed", "_excess", self.least, "settings"]
        ordered: pd.DataFrame = ranked.sort_values(keys, na_position="last", ignore_index=True)
        del ordered["_failed"], ordered["_excess"]
        return ordered


def figure_of(name: str) -> str:
    """Return the figure that *name* means, with or without its unit: ``makespan`` is ``makespan_ns``."""
    return f"{name}_ns" if f"{name}_ns" in FIGURES else name


def parse_limits(texts: Sequence[str]) -> dict[str, float]:
    """Parse limits such as ``makespan_ns=5000000``, or raise `UsageError`.

    The constructor of `Goal` checks that the figure exists.
    """
    limits = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            limits[figure_of(name.strip())] = float(number)
        except ValueError:
            number = "nan"
        if not math.isfinite(float(number)):
            raise UsageError(f"'{text}' is not a limit. Next: write it makespan_ns=5000000.")
    return limits


_HOUR_NS = 3600 * 10**9


@dataclass(frozen=True)
class Prices:
    """The price of one rank per hour: a price for *every* network, or prices by network name.

    *asked* are the networks priced by ``NETWORK=PRICE``, which the sweep must contain. Networks in a file of
    prices may be absent from the sweep.
    """

    every: float | None = None
    of: Mapping[str, float] = field(default_factory=dict)
    asked: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        for price in (self.every, *self.of.values()):
            if price is not None and not (math.isfinite(price) and price >= 0):
                raise ConfigError(f"A price must be a number of 0 or more, not {price}.")

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Prices:
        """Parse prices: ``2.5``, ``NETWORK=2.5``, or a YAML file that maps networks to prices.

        An invalid price or file raises `ConfigError`.
        """
        every, of, asked = None, dict[str, float](), []
        for text in texts:
            name, equals, number = text.rpartition("=")
            if Path(text).suffix in {".yml", ".yaml"}:
                of |= _read(Path(text))
            elif equals:
                of[name] = _price(number, text)
                asked.append(name)
            else:
                every = _price(number, text)
        return cls(every, of, tuple(asked))

    def __bool__(self) -> bool:
        return self.every is not None or bool(self.of)

    def step(self, network: str, ranks: int, makespan_ns: int) -> float:
        """Return the cost of a step of *makespan_ns* on *ranks* ranks of *network*."""
        return self.per_hour(network) * ranks * makespan_ns / _HOUR_NS

    def per_hour(self, network: str) -> float:
        """Return the price of a rank per hour on *network* (a preset's name or a file).

        A network without a price raises `ConfigError`.
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
    """Raise `ConfigError` for prices that *goal* or one of *networks* lacks, and for prices of no network."""
    if goal.needs_prices and not prices:
        raise ConfigError(
            "The cost of a step needs prices. Next: give the price of one rank for an hour (--price NUMBER), "
            "or the price on each network (--price NETWORK=NUMBER)."
        )
    names = [str(network) for network in networks]
    for network in names if prices else ():
        prices.per_hour(network)
    for name in prices.asked:
        if name not in names and name not in {Path(network).stem for network in names}:
            raise ConfigError(
                f"--price {name}: no network of this name is compared{did_you_mean(name, names)}"
            )


def _read(file: Path) -> dict[str, float]:
    """Read one price per network from a YAML file, or raise `ConfigError`."""
    prices = read_yaml(file, "list of prices (NETWORK: PRICE-PER-RANK-AND-HOUR)")
    return {name: _price(price, f"{file}, {name}") for name, price in prices.items()}


def _price(value: Any, where: str) -> float:
    try:
        return float(parse_number(value))
    except ValueError as error:
        raise ConfigError(
            f"'{where}': {shown(value)} is not a price of 0 or more; write the price of one rank for an "
            "hour, such as 2.5."
        ) from error
