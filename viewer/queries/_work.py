"""How far slow work for a page is, and whether it is to end."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from ...errors import Cancelled

__all__ = ["Simulations", "Work"]


@dataclass(kw_only=True)
class Work(ABC):
    """Slow work: *share* of it that is done, the same in words, and whether it was cancelled."""

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
        """Raise `Cancelled` if the work is to end."""
        if self.is_cancelled:
            raise Cancelled("The work was cancelled.")


@dataclass(kw_only=True)
class Simulations(Work):
    """Simulations of which *most* are to be done at most."""

    done: int = 0
    most: int = 0

    def finish(self, done: int, most: int) -> None:
        """Take note of how many are done; raises `Cancelled` once they are to end."""
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
