"""Choices that a part of the package knows, which is imported only when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import click

__all__ = ["LateChoice"]


class LateChoice(click.Choice[str]):
    """A choice among what *known* returns, called when a value or the help is asked for.

    Completing other words, and the help of the other commands, do without that import.
    """

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self._known = known
        self.case_sensitive = True

    @cached_property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]  # an attribute there
        """What can be chosen."""
        return tuple(self._known())
