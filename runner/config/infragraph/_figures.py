"""Set bit/s and ps of every link, from the file or from the user's defaults, without assumptions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from ....errors import ConfigError, did_you_mean
from ....support import count_text
from ._expand import Line, Node
from ._options import Default

__all__ = ["check_names", "figures", "full_name", "named_defaults"]

_LARGEST = 1 << 62
_SHOWN = 6


def full_name(line: Line) -> str:
    """Return the name of the line's link, with its device if it is inside of one."""
    return f"{line.device}.{line.kind.name}" if line.device else line.kind.name


def named_defaults(line: Line, defaults: Mapping[str, Default]) -> list[tuple[str, Default]]:
    """Return the defaults for the link of *line* by its name, with their keys, the most specific first."""
    return [
        (key, defaults[key]) for key in dict.fromkeys((full_name(line), line.kind.name)) if key in defaults
    ]


def figures(
    lines: Sequence[Line], nodes: Sequence[Node], defaults: Mapping[str, Default], where: str
) -> tuple[list[tuple[int, int]], list[str]]:
    """Return bit/s and ps of each of *lines*, and sentences on the assumptions.

    Raises `ConfigError` with every kind of link that lacks a bandwidth or a latency.
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
    """Return rate and delay for the link kind of *line*, assumptions, and missing figures."""
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
            f"is taken as {width} lanes of {float(kind.transfers) / 1e9:g} Gb/s, nothing subtracted for line "
            f"coding (link-defaults, '{key}')."
        )
    assumed = []
    # Figures in transfers in the file have precedence over defaults for all links.
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
        assumptions.append(f"has from link-defaults what it lacks: {' and '.join(filter(None, assumed))}.")
    return rate, delay, assumptions, lacking


def _first(allowed: Iterable[tuple[str, Default]], figure: str) -> tuple[Fraction | None, str]:
    """Return the first value of *figure* among the defaults, its text and its key."""
    for key, default in allowed:
        value = default.rate_bps if figure == "bandwidth" else default.delay_ps
        if value is not None:
            return value, f"{figure} {default.texts[figure]} ('{key}')"
    return None, ""


def _lacking(missing: Sequence[str], where: str) -> str:
    more = f"; and {len(missing) - _SHOWN} more" if len(missing) > _SHOWN else ""
    return (
        f"{where}: links without figures: {'; '.join(missing[:_SHOWN])}{more}. Nothing is assumed here: "
        "write them into the file, or give defaults by link (or '*'), in a network YAML with 'infragraph: "
        "FILE' and 'link-defaults: {NAME: {bandwidth: 32GB/s, latency: 500ns}}', or with --link-default "
        "NAME=32GB/s,500ns; 'without: [NAME]' leaves out what the ranks do not use."
    )


def check_names(names: Iterable[str], known: Iterable[str], what: str, where: str) -> None:
    """Raise `ConfigError` for one of *names* that is not in *known*, for example a misspelt one."""
    allowed = sorted(set(known))
    for name in names:
        if name not in allowed:
            raise ConfigError(
                f"{where}: '{what}' names {name!r}, which there is not{did_you_mean(name, allowed)}"
            )
