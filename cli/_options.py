"""Provide common parts of options: lazy choices, quantities, changes of a network, and subcommands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, TypeVar

import click

from ..errors import ConfigError, UsageError
from ..support import parse_bandwidth, parse_duration


class LateChoice(click.Choice[str]):
    """Choice among values from *known*, which is called when the choice or its help is first used.

    The completion of other options, and the help of other commands, therefore import no libraries for this
    choice.
    """

    def __init__(self, known: Callable[[], Iterable[str]]) -> None:
        self._known = known
        self.case_sensitive = True

    @cached_property
    def choices(self) -> tuple[str, ...]:  # type: ignore[override]  # click.Choice has an attribute
        """Values that the option allows."""
        return tuple(self._known())


_TOO_LARGE = 10**18  # limit of a value in bytes or ns, so that the sum of a few values fits into 64 bits
Read = Callable[[click.Context, click.Parameter, "str | None"], "float | None"]


def quantity(read: Callable[[str], float]) -> Read:
    """Return a callback that parses the value of an option with *read*.

    If *read* raises a `ValueError`, the command reports a usage error.
    """

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
_WIDTH = re.compile(r"x(\d{1,4})")


def network_changes(command: Command) -> Command:
    """Add the options --fail and --link-default, whose values `failed_links` and `link_defaults` parse."""
    for decorate in (
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
        click.option(
            "--link-default",
            "link_default",
            multiple=True,
            metavar="LINK=BANDWIDTH,LATENCY",
            help="Bandwidth and latency of InfraGraph links that lack them, such as pcie=32GB/s,500ns; '*' "
            "means all links. Repeatable.",
        ),
    ):
        command = decorate(command)
    return command


def failed_links(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the failures that the values of --fail describe, in the notation of a network YAML."""
    from ..runner.config import failure_of_text

    try:
        return [failure_of_text(text) for text in texts]
    except ConfigError as error:
        raise UsageError(f"--fail {error.message}") from None


def link_defaults(texts: Sequence[str]) -> dict[str, Any]:
    """Return the values of --link-default as keyword arguments for `NetworkConfig.load`.

    Raises `UsageError` if a value is invalid.
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
    """Return the name and the value of the bandwidth, latency or number of lanes that *part* sets."""
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
    """Command with options and arguments of its own that also has subcommands.

    If the first word after the command is the name of a subcommand, the subcommand runs.
    """

    def __init__(self, name: str | None = None, **settings: Any) -> None:
        super().__init__(name, no_args_is_help=False, **settings)

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Return a context for this command, or for the subcommand that *args* start with."""
        if not args or args[0] not in self.commands:
            return super().make_context(info_name, args, parent, **extra)
        # The usage text of a subcommand must not show the arguments of this command.
        bare = click.Group(self.name)
        here = click.Context(bare, parent=parent, info_name=info_name, **self.context_settings)
        return self.commands[args[0]].make_context(args[0], args[1:], parent=here, **extra)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse options and arguments in the same way as a command without subcommands."""
        return click.Command.parse_args(self, ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run this command, or the subcommand to which the context *ctx* belongs."""
        return click.Command.invoke(self, ctx) if ctx.command is self else ctx.command.invoke(ctx)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """Return the parts of this command's usage text, which mentions no subcommand."""
        return click.Command.collect_usage_pieces(self, ctx)


on_option = click.option(
    "--on",
    "machine_name",
    metavar="MACHINE",
    help="Cluster to simulate: chips with their usual network (64xh100), a network preset "
    "(hgx-h100-8x8), or a YAML file with chip, network and memory.",
)
