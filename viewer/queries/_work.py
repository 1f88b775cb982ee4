"""The progress and cancellation of slow work for a page."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ...errors import Cancelled


@dataclass(kw_only=True)
class Work(ABC):
    """Slow work: the *share* that is done, the progress as text, and whether it was cancelled."""

    is_cancelled: bool = False

    @property
    @abstractmethod
    def share(self) -> float:
        """How much is done, from 0 to 1."""

    @property
    @abstractmethod
    def text(self) -> str:
        """How much is done, in words."""

    def go_on(self) -> None:
        """Raise `Cancelled` if the work was cancelled."""
        if self.is_cancelled:
            raise Cancelled("The work was cancelled.")


@dataclass(kw_only=True)
class Simulations(Work):
    """Simulations, at most *most* of them."""

    done: int = 0
    most: int = 0

    def finish(self, done: int, most: int) -> None:
        """Record how many are done; raises `Cancelled` if the work was cancelled."""
        self.done, self.most = done, most
        self.go_on()

    @property
    def share(self) -> float:
        """How much is done, from 0 to 1."""
        return self.done / max(1, self.most)

    @property
    def text(self) -> str:
        """How much is done, in words."""
        return f"{self.done} of at most {self.most} simulations done" if self.most else "The first simulation"
