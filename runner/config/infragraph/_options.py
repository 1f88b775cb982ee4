"""The user's additions to an InfraGraph file: missing figures, exclusions, and the choice of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from ....errors import ConfigError, did_you_mean
from ....support import parse_bandwidth, parse_duration
from .._values import shown
from ._schema import CHOICES

__all__ = ["Default", "Options", "read_options"]

_FIGURES = ("bandwidth", "latency", "width")


@dataclass(frozen=True)
class Default:
    """Default figures of a link: bit/s, ps, and bits per transfer; *texts* as given."""

    rate_bps: Fraction | None = None
    delay_ps: Fraction | None = None
    width: int | None = None
    texts: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Options:
    """*defaults* by link, ``device.link`` or ``*``; *without* names excluded links and components.

    *ranks* is the choice or type of the components that are ranks; *forwarding*: whether they forward
    messages of others, None to determine it.
    """

    defaults: Mapping[str, Default] = field(default_factory=dict)
    without: tuple[str, ...] = ()
    ranks: str = "xpu"
    forwarding: bool | None = None


def read_options(data: Mapping[str, Any], where: str) -> Options:
    """Return the options among the keys of *data*; raises `ConfigError` naming *where*."""
    defaults = data.get("link-defaults") or {}
    if not isinstance(defaults, Mapping):
        raise ConfigError(
            f"{where}: 'link-defaults' must map links to figures, such as "
            f"{{pcie: {{bandwidth: 32GB/s, latency: 500ns}}}}, not {shown(defaults)}."
        )
    without = data.get("without") or []
    if not isinstance(without, (list, tuple)) or not all(isinstance(name, str) for name in without):
        raise ConfigError(f"{where}: 'without' must be a list of names, not {shown(without)}.")
    ranks = data.get("ranks", "xpu")
    if not isinstance(ranks, str):
        raise ConfigError(
            f"{where}: 'ranks' must be a type of component ({', '.join(CHOICES)}), not {shown(ranks)}."
        )
    forwarding = data.get("rank-forwarding")
    if forwarding is not None and not isinstance(forwarding, bool):
        raise ConfigError(f"{where}: 'rank-forwarding' must be true or false, not {shown(forwarding)}.")
    found = {
        str(name): _default(value, f"{where}: 'link-defaults' of '{name}'")
        for name, value in defaults.items()
    }
    return Options(found, tuple(without), ranks, forwarding)


def _default(data: Any, where: str) -> Default:
    if not isinstance(data, Mapping) or not data:
        raise ConfigError(f"{where} must have {', '.join(_FIGURES)}, or some of them, not {shown(data)}.")
    for key in data:
        if key not in _FIGURES:
            raise ConfigError(f"{where}: there is no figure {shown(key)}{did_you_mean(str(key), _FIGURES)}")
    rate = delay = None
    try:
        if "bandwidth" in data:
            rate = parse_bandwidth(_with_unit(data["bandwidth"], "100Gb/s or 32GB/s")) * 8 * 10**9
        if "latency" in data:
            delay = parse_duration(_with_unit(data["latency"], "500ns or 5us")) * 1000
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None
    if rate is not None and rate <= 0:
        raise ConfigError(f"{where}: the bandwidth must be more than 0.")
    width = data.get("width")
    if width is not None and (type(width) is not int or not 1 <= width <= 1024):
        raise ConfigError(f"{where}: 'width' is the lanes of the link, from 1 to 1024, not {shown(width)}.")
    return Default(rate, delay, width, {key: str(value) for key, value in data.items()})


def _with_unit(value: Any, examples: str) -> str:
    """Return *value* if it has a unit, as bits and bytes, or ns and ms, are easily confused."""
    if isinstance(value, str) and not value.strip().replace(".", "").isdigit():
        return value
    raise ValueError(f"{shown(value)} has no unit; write it with one, such as {examples}.")
