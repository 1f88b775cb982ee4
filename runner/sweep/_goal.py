"""The objective of a sweep: the smallest value of a figure, among the points within limits."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ...errors import ConfigError, UsageError, did_you_mean

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["FIGURES", "Goal", "parse_limits"]

FIGURES = (
    "makespan_ns", "exposed_comm_ns", "compute_ns", "comm_ns", "overlap_ns", "rank_time_ns", "ranks", "cost",
)  # fmt: skip
"""What can be compared; ``rank_time_ns`` is the makespan times the ranks, the accelerator time of a step, and
``cost`` its price, where prices are given."""


@dataclass(frozen=True)
class Goal:
    """Points with a smaller figure *least* are better; *at_most* gives limits of figures."""

    least: str = "makespan_ns"
    at_most: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (self.least, *self.at_most):
            if name not in FIGURES:
                raise ConfigError(f"'{name}' is no figure of a sweep{did_you_mean(name, FIGURES)}")

    @property
    def needs_prices(self) -> bool:
        """Whether points can be compared only if their prices are known."""
        return "cost" in (self.least, *self.at_most)

    def excess(self, table: pd.DataFrame) -> pd.Series:
        """Return by which fraction each point exceeds its limits; 0 if it is within all of them."""
        import pandas as pd  # noqa: PLC0415 - slow, and the CLI lists FIGURES

        over: pd.Series = pd.Series(0.0, index=table.index)
        for name, limit in self.at_most.items():
            part = table[name].astype("Float64") / max(limit, 1e-9) - 1
            over += part.clip(lower=0).fillna(0).astype(float)
        return over

    def score(self, table: pd.DataFrame) -> pd.Series:
        """Return the value that a search minimises: the figure, with a penalty for exceeded limits."""
        score: pd.Series = table[self.least].astype("Float64") * (1 + 10 * self.excess(table))
        return score

    def best_first(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return the points within the limits by the figure, then those beyond, then failed ones."""
        ranked = table.assign(_failed=table["state"] != "done", _excess=self.excess(table))
        keys = ["_failed", "_excess", self.least, "settings"]
        ordered: pd.DataFrame = ranked.sort_values(keys, na_position="last", ignore_index=True)
        del ordered["_failed"], ordered["_excess"]
        return ordered


def parse_limits(texts: Sequence[str]) -> dict[str, float]:
    """Read limits as they are typed, such as ``makespan_ns=5000000``; raises `UsageError`.

    `Goal` checks that the figure exists.
    """
    limits = {}
    for text in texts:
        name, _, number = text.partition("=")
        try:
            limits[name.strip()] = float(number)
        except ValueError:
            number = "nan"
        if not math.isfinite(float(number)):
            raise UsageError(f"'{text}' is not a limit. Next: write it makespan_ns=5000000.")
    return limits
