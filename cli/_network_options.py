"""Options that change the network: failures, and figures of InfraGraph links without any."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ..errors import ConfigError, UsageError
from ..support import parse_bandwidth, parse_duration

__all__ = ["failed_links", "link_defaults", "network_changes"]

Command = TypeVar("Command", bound=Callable[..., Any])

_WIDTH = re.compile(r"x(\d{1,4})")


def network_changes(command: Command) -> Command:
    """Add the options, whose values `link_defaults` and `failed_links` parse."""
    for decorate in (
        click.option(
            "--fail",
            "failed",
            multiple=True,
            metavar="A,B[=SHARE][@TIME]",
            help=(
                "Fail a link, or reduce it to SHARE of its bandwidth (0.25); a device stands "
                "for all its links. In effect from the start, from @5ms, or during @5ms..8ms. Repeatable."
            ),
        ),
        click.option(
            "--link-default",
            "link_default",
            multiple=True,
            metavar="LINK=BANDWIDTH,LATENCY",
            help="Figures of InfraGraph links that have none: pcie=32GB/s,500ns; '*' for all. Repeatable.",
        ),
    ):
        command = decorate(command)
    return command


def failed_links(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the failures in the options *texts*, as a network YAML has them."""
    from ..runner.config import failure_of_text

    try:
        return [failure_of_text(text) for text in texts]
    except ConfigError as error:
        raise UsageError(f"--fail {error.message}") from None


def link_defaults(texts: Sequence[str]) -> dict[str, Any]:
    """Return the options for `NetworkConfig.load` from *texts*; raises `UsageError` for an invalid one."""
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
    """Return the figure that *part* gives, by its unit."""
    width = _WIDTH.fullmatch(part)
    if width is not None:
        return "width", int(width[1])
    if not part.replace(".", "").isdigit():
        for key, parse in (("bandwidth", parse_bandwidth), ("latency", parse_duration)):
            if _reads(parse, part):
                return key, part
    raise UsageError(
        f"--link-default {text[:60]!r}: '{part[:30]}' is no bandwidth (32GB/s, 100Gb/s), no latency (500ns) "
        "and no width of giga-transfers (x16); write it with its unit."
    )


def _reads(parse: Callable[[str], object], text: str) -> bool:
    try:
        parse(text)
    except ValueError:
        return False
    return True
