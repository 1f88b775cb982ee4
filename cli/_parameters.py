"""Choices that are imported only on use, and options that take a quantity."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property

import click

__all__ = ["LateChoice", "quantity"]


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


_TOO_LARGE = 10**18  # bytes or ns: sums of a few still fit into 64 bits
Read = Callable[[click.Context, click.Parameter, "str | None"], "float | None"]


def quantity(read: Callable[[str], float]) -> Read:
    """Return an option's callback that parses with *read*; its refusals become usage errors."""

    def number(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
        try:
            found = None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if found is not None and found >= _TOO_LARGE:
            raise click.BadParameter(f"{str(value)[:40]} is too large; give less than {_TOO_LARGE:.0e}.")
        return found

    return number
