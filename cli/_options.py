"""Options that several commands share: lazy choices, quantities, changes of a network, subcommands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import click

from ..errors import ConfigError, UsageError, did_you_mean
from ..support import parse_bandwidth, parse_duration


class Choice(click.Choice[str]):
    """A choice that suggests the closest value for an unknown one."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Return the error for the unknown *value*."""
        return f"'{value}' is not available{did_you_mean(str(value), self.choices)}"


class LateChoice(Choice):
    """A choice whose values come from *known*, called when they are first needed.

    Completing other options and printing other help thus imports nothing for it.
    """

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self._known = known
        self.case_sensitive = True

    @cached_property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]  # click.Choice has an attribute
        """The allowed values."""
        return tuple(self._known())


_TOO_LARGE = 10**18  # maximum number of bytes or ns; the sum of a few values fits into 64 bits
Read = Callable[[click.Context, click.Parameter, "str | None"], "float | None"]


def quantity(read: Callable[[str], float]) -> Read:
    """Return a callback that parses an option with *read*, and reports its `ValueError` as a usage error."""

    def number(_ctx: click.Context, _param: click.Parameter, value: str | None) -> float | None:
        try:
            found = None if value is None else read(value)
        except ValueError as error:
            raise click.BadParameter(str(error)) from error
        if found is not None and found >= _TOO_LARGE:
            raise click.BadParameter(f"{str(value)[:40]} is too large; give less than {_TOO_LARGE:.0e}.")
        return found

    return number


Command = TypeVar("Command", bound=Callable[..., Any])


def joined(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Return a decorator that adds *options* in this order."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


network_changes = joined(
    click.option(
        "--link-default",
        "link_default",
        multiple=True,
        metavar="LINK=BANDWIDTH,LATENCY",
        help="Bandwidth and latency of InfraGraph links that lack them, such as pcie=32GB/s,500ns; '*' "
        "means all links. Repeatable.",
    ),
    click.option(
        "--fail",
        "failed",
        multiple=True,
        metavar="A,B[=SHARE][@TIME]",
        help=(
            "Fail the link A,B or all links of device A, or reduce their bandwidth to SHARE (0.25). "
            "The failure lasts from the start, from @5ms, or during @5ms..8ms. Repeatable."
        ),
    ),
)
_WIDTH = re.compile(r"x(\d{1,4})")


def failed_links(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Parse the values of --fail to failures as in a network YAML."""
    from ..runner.config import failure_of_text

    try:
        return [failure_of_text(text) for text in texts]
    except ConfigError as error:
        raise UsageError(f"--fail {error.message}") from None


def link_defaults(texts: Sequence[str]) -> dict[str, Any]:
    """Parse the values of --link-default to keyword arguments of `NetworkConfig.load`.

    Raises `UsageError` for an invalid one.
    """
    defaults: dict[str, dict[str, Any]] = {}
    for text in texts:
        name, equals, figures = text.partition("=")
        if not equals or not name or not figures:
            raise UsageError(
                f"--link-default {text[:60]!r} is not LINK=BANDWIDTH,LATENCY, such as pcie=32GB/s,500ns."
            )
        defaults[name] = dict(_figure(part.strip(), text) for part in figures.split(","))
    return {"link-defaults": defaults} if defaults else {}


def _figure(part: str, text: str) -> tuple[str, Any]:
    """Parse the bandwidth, latency or number of lanes that *part* sets."""
    width = _WIDTH.fullmatch(part)
    if width is not None:
        return "width", int(width[1])
    if not part.replace(".", "").isdigit():
        for key, parse in (("bandwidth", parse_bandwidth), ("latency", parse_duration)):
            if _reads(parse, part):
                return key, part
    raise UsageError(
        f"--link-default {text[:60]!r}: '{part[:30]}' is not a bandwidth (32GB/s, 100Gb/s), a latency "
        "(500ns) or a number of lanes (x16). Next: write the value with its unit."
    )


def _reads(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True


class CommandWithMore(click.Group):
    """A command with its own options and arguments that also has subcommands.

    A subcommand runs if its name is the first word.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, no_args_is_help=False, **settings)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return a context for this command, or for the subcommand at the start of *args*."""
        if not args or args[0] not in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        # The usage of a subcommand must not show this command's arguments.
        bare = click.Group(self.name)
        here = click.Context(bare, parent=parent, info_name=info_name, **self.context_settings)
        return self.commands[args[0]].make_context(args[0], args[1:], parent=here, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options and arguments as a command without subcommands does."""
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run this command, or the subcommand that *ctx* belongs to."""
        return click.Command.invoke(self, ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of this command's usage, without subcommands."""
        return click.Command.collect_usage_pieces(self, ctx)


on_option = click.option(
    "--on",
    "machine_name",
    metavar="MACHINE",
    help="Cluster to simulate: chips with their usual network (64xh100), a network preset "
    "(hgx-h100-8x8), or a YAML file with chip, network and memory.",
)
