"""The exchange of messages between the engine and a driver program, with a log."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TypeVar

import pandas as pd

from ....errors import BackendError, SimulationStalled
from ..._experiment import Experiment
from ..._result import COLUMNS
from .._base import Progress
from .._engine import MOST_OVERTAKING
from ._driver import Arrival, Message, PacketDriver

__all__ = ["Flows", "Watch", "eased"]

_Attempt = TypeVar("_Attempt")


def eased(experiment: Experiment, attempt: Callable[[int], _Attempt]) -> _Attempt:
    """Return the first *attempt* that does not stall, with increasing overtaking for a captured job."""
    for overtaking in range(MOST_OVERTAKING if experiment.semantics == "trace" else 0):
        with contextlib.suppress(SimulationStalled):
            return attempt(overtaking)
    return attempt(MOST_OVERTAKING if experiment.semantics == "trace" else 0)


class Watch:
    """Tracks the progress of both halves of the simulation."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress = progress
        self.now_ns = 0
        self.finished = 0

    def keep_going(self) -> bool:
        """Return whether the simulation may continue."""
        return self._progress is None or self._progress(self.now_ns, self.finished)

    def engine_progress(self, now_ns: int, finished: int) -> bool:
        """Record the engine's own report."""
        self.now_ns = max(self.now_ns, now_ns)
        self.finished = finished
        return self.keep_going()


class Flows:
    """Connects engine and driver, and records the send time and duration of each message.

    *never* is the reason, for the error, if messages never arrive.
    """

    def __init__(self, driver: PacketDriver, watch: Watch, never: str) -> None:
        self._driver = driver
        self._never = never
        self._watch = watch
        self._sent: dict[int, Message] = {}
        self._done: list[tuple[int, int, int, int, int]] = []
        self.ids: list[int] = []

    def advance(self, messages: list[Message], limit_ns: int) -> list[Arrival]:
        """Pass *messages* to the driver and return the next arrivals."""
        for message in messages:
            self._sent[message[0]] = message
        arrivals = self._driver.advance(messages, limit_ns)
        if not arrivals and limit_ns < 0 and self._sent:
            raise BackendError(f"{len(self._sent)} messages never arrive: {self._never}")
        for message_id, time_ns in arrivals:
            _, source, destination, size, start_ns = self._sent.pop(message_id)
            self.ids.append(message_id)
            self._done.append((source, destination, size, start_ns, time_ns))
            self._watch.now_ns = max(self._watch.now_ns, time_ns)
        return arrivals

    def table(self) -> pd.DataFrame:
        """Return the table ``flows``: every message, in the order in which they arrived."""
        columns = list(COLUMNS["flows"])
        table: pd.DataFrame = pd.DataFrame(self._done, columns=columns).astype(COLUMNS["flows"])
        return table
