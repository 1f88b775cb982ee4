"""Choices whose values are imported only on use."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import click

__all__ = ["LateChoice"]


class LateChoice(click.Choice[str]):
    """A choice among the values of *known*, which is called on use or for the help.

    Completion of other words, and the help of other commands, need no import.
    """

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self._known = known
        self.case_sensitive = True

    @cached_property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]  # an attribute there
        """The possible values."""
        return tuple(self._known())
