"""Options that change the network: figures for links of an InfraGraph that has none, and failures."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from ..errors import UsageError
from ..support import parse_bandwidth, parse_duration

__all__ = ["failed_links", "link_defaults", "network_changes"]

Command = TypeVar("Command", bound=Callable[..., Any])

_WIDTH = re.compile(r"x(\d{1,4})")


def network_changes(command: Command) -> Command:
    """Add the options, which `link_defaults` and `failed_links` read."""
    for decorate in (
        click.option(
            "--fail",
            "failed",
            multiple=True,
            metavar="A,B[=SHARE][@TIME]",
            help="The link of two devices is down, or has SHARE of its bandwidth (0.25). One device: all its "
            "links. @5ms: from then on; @5ms..8ms: and back; else from the start. May be repeated.",
        ),
        click.option(
            "--link-default",
            "link_default",
            multiple=True,
            metavar="LINK=BANDWIDTH,LATENCY",
            help="For links of an InfraGraph that lack figures: pcie=32GB/s,500ns; '*' for all. May be "
            "repeated.",
        ),
    ):
        command = decorate(command)
    return command


def failed_links(texts: Sequence[str]) -> list[dict[str, Any]]:
    """Return the failures that the options *texts* name, as a network YAML has them."""
    failures = []
    for text in texts:
        what, at, time = text.partition("@")
        ends, equals, share = what.partition("=")
        devices = [int(name) if name.isdigit() else name for name in ends.split(",")]
        if len(devices) > 2 or "" in devices:
            raise UsageError(
                f"--fail {text[:60]!r} is not A,B or A,B=SHARE, with or without a time: 64,72=0.25@5ms..8ms."
            )
        failure: dict[str, Any] = {"link": devices} if len(devices) == 2 else {"device": devices[0]}
        failure |= _lasting(text, time) if at else {}
        try:
            failures.append(failure | ({"rate": float(share)} if equals else {}))
        except ValueError:
            raise UsageError(
                f"--fail {text[:60]!r}: {share[:30]!r} is no share of the bandwidth, such as 0.25."
            ) from None
    return failures


def _lasting(text: str, time: str) -> dict[str, str]:
    """Return when the failure *text* begins, and ends if it does: ``5ms`` or ``5ms..8ms``."""
    begin, dots, end = time.partition("..")
    moments = {"at": begin} | ({"until": end} if dots else {})
    for moment in moments.values():
        if not _reads(parse_duration, moment):
            raise UsageError(
                f"--fail {text[:60]!r}: {moment[:30]!r} is no time of the simulation; write when the failure "
                "begins, or when it begins and ends, with units: @5ms or @5ms..8ms."
            )
    return moments


def link_defaults(texts: Sequence[str]) -> dict[str, Any]:
    """Return what `NetworkConfig.load` takes for the options *texts*; raises `UsageError` for a wrong one."""
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
    """Return which figure *part* is, by its unit."""
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
