"""The rate (bit/s) and delay (ps) of every link, from an InfraGraph file and the user's additions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ....errors import ConfigError, did_you_mean
from ....support import count_text, parse_bandwidth, parse_duration
from .._values import (
    Reader,
    boolean,
    mapping_of,
    read_keys,
    reported_at,
    shown,
    string,
    strings,
    whole,
    wrong,
)
from ._expand import Line, Node


@dataclass(frozen=True)
class Default:
    """Default figures of a link, in bit/s, ps and bits per transfer; *texts* are those of the file."""

    rate_bps: Fraction | None = None
    delay_ps: Fraction | None = None
    width: int | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """The user's options: *defaults* by link name, ``device.link`` or ``*``, and what to leave out.

    *without* names links and components to leave out. *ranks* is the choice or type of the
    components that are ranks. *forwarding* is whether ranks forward messages of other ranks;
    None derives this from the network.
    """

    defaults: Mapping[str, Default] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    ranks: str = "xpu"
    forwarding: bool | None = None


def read_options(data: Mapping[str, Any], where: str) -> Options:
    """Parse the options among the keys of *data*; raises `ConfigError`, naming *where*."""
    readers: dict[str, Reader] = {
        "link-defaults": lambda value, place: {
            str(name): _default(default, f"{place} of '{name}'")
            for name, default in mapping_of(value or {}, place).items()
        },
        "without": lambda value, place: strings(value or [], place),
        "ranks": string,
        "rank-forwarding": boolean,
    }
    given = {key: read(data[key], f"{where}: '{key}'") for key, read in readers.items() if key in data}
    return Options(
        given.get("link-defaults", {}),
        given.get("without", ()),
        given.get("ranks", "xpu"),
        given.get("rank-forwarding"),
    )


def _default(data: Any, where: str) -> Default:
    if not data:
        raise wrong(where, f"a mapping with at least one of {', '.join(_READERS)}", data)
    given = read_keys(data, _READERS, where)
    written = {key: str(value) for key, value in data.items()}
    return Default(given.get("bandwidth"), given.get("latency"), given.get("width"), written)


def _rate_bps(value: Any, where: str) -> Fraction:
    with reported_at(where):
        rate = parse_bandwidth(_with_unit(value, "100Gb/s or 32GB/s")) * 8 * 10**9
    if rate <= 0:
        raise ConfigError(f"{where} must be more than 0.")
    return rate


def _delay_ps(value: Any, where: str) -> Fraction:
    with reported_at(where):
        return parse_duration(_with_unit(value, "500ns or 5us")) * 1000


_READERS: dict[str, Reader] = {"bandwidth": _rate_bps, "latency": _delay_ps, "width": whole(1, 1024)}


def _with_unit(value: Any, examples: str) -> str:
    """Return *value*, which must have a unit: a bare number would be ambiguous."""
    if isinstance(value, str):
        try:
            float(value)
        except ValueError:
            return value
    raise ValueError(f"{shown(value)} has no unit; write it with one, such as {examples}.")


_LARGEST = 1 << 62
_SHOWN = 6


def full_name(line: Line) -> str:
    """Return the name of a line's link; inside a device, it is ``device.link``."""
    return f"{line.device}.{line.kind.name}" if line.device else line.kind.name


def named_defaults(line: Line, defaults: Mapping[str, Default]) -> list[tuple[str, Default]]:
    """Return the defaults that name the link of *line*, with their keys, most specific first."""
    return [
        (key, defaults[key]) for key in dict.fromkeys((full_name(line), line.kind.name)) if key in defaults
    ]


def figures(
    lines: Sequence[Line], nodes: Sequence[Node], defaults: Mapping[str, Default], where: str
) -> tuple[list[tuple[int, int]], list[str]]:
    """Return the rate (bit/s) and delay (ps) of each of *lines*, and notes on assumptions.

    Raises `ConfigError` with all kinds of links that lack a bandwidth or a latency.
    """
    kinds: dict[str, list[Line]] = {}
    for line in lines:
        kinds.setdefault(full_name(line), []).append(line)
    values: dict[str, tuple[int, int]] = {}
    missing: list[str] = []
    remarks: list[str] = []
    for name, members in kinds.items():
        rate, delay, assumptions, lacking = _of_kind(members[0], defaults)
        remarks += [f"The link '{name}' ({count_text(len(members), 'link')}) {text}" for text in assumptions]
        if rate is None or delay is None:
            ends = " - ".join(nodes[node].name for node in (members[0].a, members[0].b))
            missing.append(f"'{name}' has no {' and no '.join(lacking)} (such as {ends})")
            continue
        if max(rate, delay) > _LARGEST or rate < 1:
            raise ConfigError(f"{where}: bandwidth or latency of the link '{name}' is out of range.")
        values[name] = round(rate), round(delay)
    if missing:
        raise ConfigError(_lacking(missing, where))
    return [values[full_name(line)] for line in lines], remarks


def _of_kind(
    line: Line, defaults: Mapping[str, Default]
) -> tuple[Fraction | None, Fraction | None, list[str], list[str]]:
    """Return the rate and delay of the link kind of *line*, with assumptions and missing figures."""
    kind = line.kind
    named = named_defaults(line, defaults)
    every = [*named, *(("*", defaults[key]) for key in ("*",) if key in defaults)]
    rate, delay = kind.rate_bps, kind.delay_ps
    assumptions: list[str] = []
    lacking: list[str] = []
    widths = [(key, default.width) for key, default in every if default.width is not None]
    if rate is None and kind.transfers is not None and widths:
        key, width = widths[0]
        rate = kind.transfers * width
        assumptions.append(
            f"counts as {width} lanes of {float(kind.transfers) / 1e9:g} Gb/s, without overhead of line "
            f"coding (link-defaults, '{key}')."
        )
    assumed = []
    # A rate in transfers per second in the file overrides the default for all links.
    allowed = every if kind.transfers is None else named
    if rate is None:
        rate, text = _first(allowed, "bandwidth")
        assumed.append(text)
        lacking += [] if text else ["width for its giga-transfers" if kind.transfers else "bandwidth"]
    if delay is None:
        delay, text = _first(every, "latency")
        assumed.append(text)
        lacking += [] if text else ["latency"]
    if any(assumed):
        assumptions.append(f"has missing values from link-defaults: {' and '.join(filter(None, assumed))}.")
    return rate, delay, assumptions, lacking


def _first(allowed: Iterable[tuple[str, Default]], figure: str) -> tuple[Fraction | None, str]:
    """Return *figure* from the first default that has it, as value and text."""
    for key, default in allowed:
        value = default.rate_bps if figure == "bandwidth" else default.delay_ps
        if value is not None:
            return value, f"{figure} {default.texts[figure]} ('{key}')"
    return None, ""


def _lacking(missing: Sequence[str], where: str) -> str:
    more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return (
        f"{where}: links without figures: {'; '.join(missing[:_SHOWN])}{more}. Next: write the values into "
        "the file, or give defaults by link (or '*'), in a network YAML with 'infragraph: FILE' and "
        "'link-defaults: {NAME: {bandwidth: 32GB/s, latency: 500ns}}', or with --link-default "
        "NAME=32GB/s,500ns; 'without: [NAME]' leaves out what the ranks do not use."
    )


def check_names(names: Iterable[str], known: Iterable[str], what: str, where: str) -> None:
    """Raise `ConfigError` if one of *names* is not in *known*, for example because it is misspelt."""
    allowed = sorted(set(known))
    for name in names:
        if name not in allowed:
            raise ConfigError(
                f"{where}: '{what}' names {name!r}, which does not exist{did_you_mean(name, allowed)}"
            )
