"""The points of a sweep: a grid over axes, a list in a file, the product of both, or Optuna's choice."""

from __future__ import annotations

import itertools
import json
import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from ...errors import BackendUnavailable, ConfigError
from ...support import parse_bandwidth, parse_duration, parse_flops
from ...support.documents import parse_json


@dataclass(frozen=True)
class Range:
    """A range of numbers from *low* to *high* inclusive; only integers if both bounds are integers."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"The range {self.low}..{self.high} is empty; its first number must be less.")


Space = Mapping[str, Sequence[Any] | Range]
"""The values of each key, as a list or as a range of numbers."""


class Search:
    """A search of *trials* points in a *space*; the same *seed* and results give the same points.

    The constructor raises `BackendUnavailable` without Optuna.
    """

    def __init__(self, space: Space, trials: int, seed: int = 0) -> None:
        optuna = _optuna()
        sampler = optuna.samplers.TPESampler(seed=seed)
        self._study = optuna.create_study(sampler=sampler)
        self._failed = optuna.trial.TrialState.FAIL
        self.space = space
        self._trials = trials
        self._open: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._trials

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(self._trials):
            trial = self._study.ask()
            self._open[number] = trial
            yield {key: _suggested(trial, key, values) for key, values in self.space.items()}

    def tell(self, number: int, score: float | None) -> None:
        """Report the value of point *number* to Optuna, which minimises it, or the failure of the point."""
        trial = self._open.pop(number)
        if score is None:
            self._study.tell(trial, state=self._failed)
        else:
            self._study.tell(trial, score)


def _suggested(trial: Any, key: str, values: Sequence[Any] | Range) -> Any:
    if isinstance(values, Range):
        whole = isinstance(values.low, int) and isinstance(values.high, int)
        suggest = trial.suggest_int if whole else trial.suggest_float
        return suggest(key, values.low, values.high)
    # Optuna's choices cannot be lists, so Optuna chooses an index.
    return values[trial.suggest_categorical(key, list(range(len(values))))]


def _optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415 - an optional dependency
    except ImportError as error:
        raise BackendUnavailable(
            f"A search needs Optuna ({error}); install it with 'pip install chakrascope[search]'."
        ) from error
    # Without this setting, Optuna reports every trial on standard error.
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna


Settings = Mapping[str, Any]
"""The changes of one point, as keys such as ``network.bandwidth`` with JSON values."""

# Conversions from values with a unit to the units of configuration files.
_GIB_PER_S = Fraction(2**30, 10**9)  # one GiB/s in bytes/ns
_QUANTITIES: Mapping[str, Callable[[str], Fraction]] = {
    "network.bandwidth": lambda text: parse_bandwidth(text, bare="GiB/s") / _GIB_PER_S,
    "network.latency": parse_duration,
    "system.endpoint-delay": parse_duration,
    "system.local-mem-bw": parse_bandwidth,
    "system.peak-perf": lambda text: parse_flops(text) / 10**12,
}
_RANGE = re.compile(r"(?P<low>-?[\d.]*\d)\.\.(?P<high>-?\.?\d[\d.]*)")


def parse_axis(text: str) -> tuple[str, list[Any] | Range]:
    """Parse an axis ``KEY=VALUE,VALUE,...``, in which brackets mark a list.

    A value is a number, ``true``, ``false``, a list such as ``[25,50]``, or text. ``KEY=25..400`` is a range
    for a search. Bandwidths, latencies and delays may have a unit, such as ``10GB/s`` or ``1.5us``. The
    returned values have the unit of the key's configuration file. Invalid text raises `ConfigError`.
    """
    key, equals, values = text.partition("=")
    items = [item for item in _split(values, text) if item]
    if not key.strip() or not equals or not items:
        raise ConfigError(
            f"'{text}' is not an axis of a sweep; write KEY=VALUE,VALUE, such as network.bandwidth=25,50,100."
        )
    between = _RANGE.fullmatch(items[0]) if len(items) == 1 else None
    if between is not None:
        return key.strip(), _range(between, text)
    return key.strip(), [_in_unit(key.strip(), _value(item, text), text) for item in items]


def _in_unit(key: str, value: Any, text: str) -> Any:
    """Return a quantity with a unit as a number in the unit of *key*; return other values unchanged."""
    read = _QUANTITIES.get(key.partition("[")[0])
    if isinstance(value, list):
        return [_in_unit(key, part, text) for part in value]
    if read is None or not isinstance(value, str):
        return value
    try:
        exact = read(value)
    except ValueError as error:
        raise ConfigError(f"'{text[:60]}': {error}") from error
    return int(exact) if exact.denominator == 1 else float(exact)


def grid(axes: Mapping[str, Sequence[Any] | Range]) -> list[dict[str, Any]]:
    """Return every combination of the values of *axes*, with the last axis changing fastest.

    The function raises `ConfigError` for an axis without values, and for a range.
    """
    lists = {key: _listed(key, values) for key, values in axes.items()}
    return [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]


def values_of(points: Sequence[Settings]) -> dict[str, list[Any]]:
    """Return the value of each setting at every point, or None at points without the setting."""
    keys = dict.fromkeys(key for point in points for key in point)
    return {key: [point.get(key) for point in points] for key in keys}


def _listed(key: str, values: Sequence[Any] | Range) -> Sequence[Any]:
    if isinstance(values, Range):
        raise ConfigError(
            f"The axis '{key}' is a range, which a grid sweep cannot enumerate; list values, or search it "
            "with --trials 60."
        )
    if not len(values):
        raise ConfigError(f"The axis '{key}' of the sweep has no value; give at least one.")
    return values


def multiply(first: Sequence[Settings], second: Sequence[Settings]) -> list[dict[str, Any]]:
    """Return all pairs of points from *first* and *second*, merged with precedence of *second*."""
    return [{**one, **other} for one in first for other in second]


def point_key(settings: Settings) -> str:
    """Return a key of a point, which is the same for equal settings in any order."""
    return json.dumps(settings, sort_keys=True, default=str)


def _split(values: str, text: str) -> list[str]:
    """Split *values* at the commas outside of brackets."""
    items, depth = [""], 0
    for character in values:
        depth += (character == "[") - (character == "]")
        if depth < 0:
            break
        if character == "," and depth == 0:
            items.append("")
        else:
            items[-1] += character
    if depth:
        raise ConfigError(f"'{text}': the brackets do not match; a list is written [25,50].")
    return [item.strip() for item in items]


def _range(between: re.Match[str], text: str) -> Range:
    try:
        return Range(parse_json(between["low"]), parse_json(between["high"]))
    except ValueError as error:
        raise ConfigError(f"'{text}': this is not a range of numbers; write it 25..400.") from error


def _value(item: str, text: str) -> Any:
    if item.startswith("[") and item.endswith("]"):
        return [_value(part, text) for part in _split(item[1:-1], text) if part]
    try:
        value = parse_json(item)
    except json.JSONDecodeError:
        return item
    except ValueError as error:
        raise ConfigError(f"'{text[:60]}': {error}; correct the value.") from error
    return item if value is None else value
