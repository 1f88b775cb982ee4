"""Options that take a quantity with its unit."""

from __future__ import annotations

from collections.abc import Callable

import click

__all__ = ["quantity"]

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
