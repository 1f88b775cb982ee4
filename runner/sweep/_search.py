"""A search in which Optuna chooses each point by the results of the earlier ones."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...errors import BackendUnavailable, ConfigError

__all__ = ["Range", "Search", "Space"]


@dataclass(frozen=True)
class Range:
    """Every number from *low* to *high*, both included; whole numbers if both are."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low < self.high:
            raise ConfigError(f"The range {self.low}..{self.high} is empty; its first number must be less.")


Space = Mapping[str, Sequence[Any] | Range]
"""Values, or a range of numbers, of each key."""


class Search:
    """*trials* points in a *space*; the same results with the same *seed* give the same points.

    Raises `BackendUnavailable` if Optuna is not installed.
    """

    def __init__(self, space: Space, trials: int, seed: int = 0) -> None:
        optuna = _optuna()
        sampler = optuna.samplers.TPESampler(seed=seed)
        self._study = optuna.create_study(sampler=sampler)
        self._failed = optuna.trial.TrialState.FAIL
        self._space = space
        self._trials = trials
        self._open: dict[int, Any] = {}

    def __len__(self) -> int:
        return self._trials

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for number in range(self._trials):
            trial = self._study.ask()
            self._open[number] = trial
            yield {key: _suggested(trial, key, values) for key, values in self._space.items()}

    def tell(self, number: int, score: float | None) -> None:
        """Report the value of point *number* (less is better), or its failure."""
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
    # Optuna's choices cannot be lists, but indices of lists.
    return values[trial.suggest_categorical(key, list(range(len(values))))]


def _optuna() -> Any:
    try:
        import optuna  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise BackendUnavailable(
            f"A search needs Optuna ({error}); install it with 'pip install chakrascope[search]'."
        ) from error
    # It would report every trial on standard error.
    optuna.logging.set_verbosity(logging.WARNING)
    return optuna
