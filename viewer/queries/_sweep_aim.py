"""What a sweep is to find: the least of a figure, within limits, at prices, of all points or by a search."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ...errors import ChakrascopeError, ConfigError
from ...runner.sweep import FIGURES, Goal, Prices, Range, Search, check_cost, parse_limits

__all__ = ["LEAST", "Aim", "aim_goal", "checked_aim", "decode_aim", "encode_aim", "made_aim"]

LEAST: Mapping[str, str] = {
    "makespan_ns": "the shortest step",
    "cost": "the least cost of a step",
    "rank_time_ns": "the least time of all ranks",
    "ranks": "the fewest ranks",
    "exposed_comm_ns": "the least exposed communication",
    "comm_ns": "the least communication",
    "compute_ns": "the least computing",
    "overlap_ns": "the least overlap",
}
"""Each of the figures of a sweep -> what people call the least of it."""
_TEXT_LENGTH = 400


@dataclass(frozen=True)
class Aim:
    """What makes a point the best, as somebody typed it, in the words of ``chakrascope sweep``.

    *limits* are ``FIGURE=NUMBER`` and *prices* ``NUMBER`` or ``NETWORK=NUMBER``, with commas between; with
    *trials*, so many points are chosen instead of all.
    """

    least: str = "makespan_ns"
    limits: str = ""
    prices: str = ""
    trials: int = 0


def encode_aim(aim: Aim) -> str:
    """Return *aim* as text for an address, ``""`` for the shortest step of all points."""
    fields = {key: value for key, value in asdict(aim).items() if value != getattr(Aim, key)}
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False) if fields else ""


def decode_aim(text: str) -> Aim:
    """Return the aim that :func:`encode_aim` wrote; what makes no sense is left out."""
    try:
        fields = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        fields = {}
    return made_aim(**{key: fields.get(key) for key in asdict(Aim())}) if isinstance(fields, dict) else Aim()


def made_aim(*, least: Any, limits: Any, prices: Any, trials: Any) -> Aim:
    """Return the aim that fields of a form hold; what makes no sense is left out."""
    known = isinstance(trials, (int, float)) and not isinstance(trials, bool) and math.isfinite(trials)
    return Aim(
        least if least in FIGURES else Aim.least,
        limits[:_TEXT_LENGTH] if isinstance(limits, str) else "",
        prices[:_TEXT_LENGTH] if isinstance(prices, str) else "",
        int(trials) if known and float(trials).is_integer() else 0,
    )


def aim_goal(aim: Aim) -> Goal:
    """Return the goal of *aim*; limits that mean nothing are left out."""
    try:
        return Goal(aim.least, parse_limits(_items(aim.limits)))
    except ChakrascopeError:
        return Goal(aim.least)


def checked_aim(
    aim: Aim, over: Mapping[str, Sequence[Any] | Range], network: str, preset: str
) -> tuple[Goal, Prices]:
    """Return the goal and the prices of a sweep from *network* on, which is the preset or that, changed.

    Raises what ``chakrascope sweep`` raises for figures, limits and prices that cannot be, for a cost
    without prices, and for a search that is not possible here.
    """
    goal = Goal(aim.least, parse_limits(_items(aim.limits)))
    prices = _prices(aim.prices)
    if network != preset and preset in prices.of:
        prices = Prices(prices.every, {**prices.of, network: prices.of[preset]})
    swept = over.get("network", [network])
    check_cost(goal, prices, swept if isinstance(swept, Sequence) else [network])
    if aim.trials and over:
        Search(over, aim.trials)
    return goal, prices


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _prices(text: str) -> Prices:
    """Read prices; files of them are for the command line, as a browser names no path."""
    items = _items(text)
    file = next((item for item in items if Path(item).suffix in {".yml", ".yaml"}), None)
    if file is not None:
        raise ConfigError(
            f"'{file[:60]}' is not a price; write what one rank costs for an hour, such as 2.5, or "
            "NETWORK=2.5. Files of prices are for the command line."
        )
    return Prices.parse(items)
