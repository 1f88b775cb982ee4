"""Format and parse quantities: one format and one parser for each kind.

Quantities have three significant digits, in the largest unit in which they are at least one after
rounding. Integers in the smallest unit have no decimals, numbers never have an exponent, and ties
are rounded up. The viewer's ``02_units.js`` uses the same operations, so that both formats agree.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

_DURATIONS = ("ns", "µs", "ms", "s")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB")
_RATES = {  # (1 byte/ns in the first unit, factor between two units, names of the units)
    "GB/s": (10**9, 1000, ("B/s", "kB/s", "MB/s", "GB/s", "TB/s")),
    "Gb/s": (8 * 10**9, 1000, ("b/s", "kb/s", "Mb/s", "Gb/s", "Tb/s")),
    "GiB/s": (10**9, 1024, ("B/s", "KiB/s", "MiB/s", "GiB/s", "TiB/s")),
}
_MAX_DECIMALS = 9


def duration_text(duration_ns: float) -> str:
    """Format a duration in ns, such as ``12.3 ms``."""
    return _text(duration_ns, 1000, _DURATIONS)


def delta_text(delta_ns: float) -> str:
    """Format a change of a duration in ns, such as ``+12.3 ms``."""
    return f"{'+' if delta_ns > 0 else ''}{duration_text(delta_ns)}"


def instant_text(time_ns: float, resolution_ns: float = 1000) -> str:
    """Format a point in time in ns, such as ``1,234.567 ms``, with enough digits for *resolution_ns*."""
    decimals = min(max(0, 6 - math.floor(math.log10(resolution_ns))), _MAX_DECIMALS)
    return f"{_sign(time_ns)}{_digits(_rounded(abs(time_ns), 10**6, decimals), decimals)} ms"


def bytes_text(size_bytes: float) -> str:
    """Format a size in bytes, such as ``12.3 MiB``."""
    return _text(size_bytes, 1024, _BYTES)


def bandwidth_text(bytes_per_ns: float, unit: Literal["GB/s", "Gb/s", "GiB/s"] = "GB/s") -> str:
    """Format a bandwidth given in bytes/ns, such as ``12.3 GB/s``; *unit* selects bits or binary prefixes."""
    scale, step, names = _RATES[unit]
    return _text(float(bytes_per_ns) * scale, step, names)


def share_text(share: float) -> str:
    """Format a fraction as a percentage, such as ``12.3 %``.

    Only exactly 0 is ``0.0 %``, and nothing below 1 is ``100.0 %``.
    """
    per_mille = _rounded(share, 1, 3)
    if per_mille == 0 and share > 0:
        return "<0.1 %"
    return ">99.9 %" if per_mille == 1000 and share < 1 else f"{_digits(per_mille, 1)} %"


def change_text(relative: float) -> str:
    """Format a relative change, such as ``+12.3 %`` or ``-0.42 %`` (two decimals below 1 %)."""
    decimals = 2 if _rounded(abs(relative), 1, 4) < 100 else 1
    digits = _rounded(abs(relative), 1, decimals + 2)
    sign = "" if digits == 0 else "+" if relative > 0 else "-"
    return f"{sign}{_digits(digits, decimals)} %"


def count_text(count: int, noun: str, plural: str = "") -> str:
    """Format a count with its *noun*, such as ``1 rank`` or ``8 ranks``; *plural* is for irregular nouns."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def ordinal_text(number: int) -> str:
    """Format an ordinal number, such as ``2nd``, ``3rd`` or ``11th``."""
    tens, ones = divmod(number % 100, 10)
    return f"{number}{'th' if tens == 1 else {1: 'st', 2: 'nd', 3: 'rd'}.get(ones, 'th')}"


def ranks_text(ranks: Iterable[int], most: int = 4) -> str:
    """Format *ranks* as sorted ranges such as ``0-3, 6``; after *most* ranges, the rest are counted."""
    ranges: list[list[int]] = []
    for rank in sorted(set(ranks)):
        if ranges and rank == ranges[-1][1] + 1:
            ranges[-1][1] = rank
        else:
            ranges.append([rank, rank])
    shown = ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges[:most])
    rest = sum(last - first + 1 for first, last in ranges[most:])
    return f"{shown} and {rest:,} more" if rest else shown


def _text(value: float, step: int, units: tuple[str, ...]) -> str:
    """Format *value*, given in the first of *units*, in the best unit; *step* is the factor between units."""
    size, scale = float(abs(value)), 1
    if size == math.floor(size) and size < step:
        return f"{_sign(value)}{size:,.0f} {units[0]}"
    for unit in units:
        for decimals in (2, 1, 0):
            number = _rounded(size, scale, decimals)
            if number < 1000 or (decimals == 0 and (number < step or unit == units[-1])):
                if unit == units[0]:  # the smallest unit has decimals only if needed
                    while number < 100 and decimals < _MAX_DECIMALS:
                        decimals += 1  # noqa: PLW2901 - adds decimals up to three significant digits
                        number = _rounded(size, scale, decimals)
                return f"{_sign(value)}{_digits(number, decimals)} {unit}"
        scale *= step
    raise AssertionError("the last unit accepts any number")


def _rounded(size: float, scale: int, decimals: int) -> int:
    """Return *size* / *scale* in units of ``10**-decimals``, rounded half up."""
    return math.floor(float(size) * 10.0**decimals / scale + 0.5)


def _digits(number: int, decimals: int) -> str:
    """Format *number* with its last *decimals* digits after the point, and commas between thousands."""
    whole, rest = divmod(number, 10**decimals)
    return f"{whole:,}.{rest:0{decimals}}" if decimals else f"{whole:,}"


def _sign(value: float) -> str:
    return "-" if value < 0 else ""


# A quantity in user input; the limited number of digits makes hostile input fast to parse.
_QUANTITY = re.compile(
    r"((?:\d{1,3}(?:,\d{3}){1,8}|\d{1,30})(?:\.\d{0,30})?|\.\d{1,30})((?:[eE][+-]?\d{1,2})?)\s*([^\s\d]*)",
    re.ASCII,
)
_SHOWN_LENGTH = 40
_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PREFIXES = _DECIMAL | {f"{name}i": 1 << (10 * power) for power, name in enumerate("KMGT", start=1)}


def _shown(value: object) -> str:
    """Return the user's input in quotes, cut to 40 characters."""
    text = str(value)
    return repr(text if len(text) <= _SHOWN_LENGTH else f"{text[:_SHOWN_LENGTH]}…")


@dataclass(frozen=True)
class _Kind:
    """A kind of quantity with its parser; *units* maps each unit to its size in the result's unit."""

    name: str
    units: Mapping[str, Fraction]
    examples: str
    allows_bare_prefix: bool = False  # whether "25M", a prefix without a unit, is allowed

    def read(self, value: str | float, bare: str) -> Fraction:
        """Parse the quantity *value*; a number without a unit is in *bare*. Raises `ValueError`."""
        match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value).strip())
        if match is not None:
            number, exponent, unit = match.groups()
            scale = self.units.get(unit or bare)
            if scale is None and self.allows_bare_prefix:
                scale = self.units.get(unit + bare)
            if scale is not None:
                return Fraction(number.replace(",", "") + exponent) * scale
        raise ValueError(
            f"{_shown(value)} is not a {self.name}: write a number of 0 or more and its unit, such as "
            f"{self.examples}; a number alone is in {bare}."
        )


_DURATION = _Kind(
    "duration",
    {
        "fs": Fraction(1, 10**6),
        "ps": Fraction(1, 1000),
        "ns": Fraction(1),
        **dict.fromkeys(("us", "µs", "μs"), Fraction(1000)),  # the micro sign and the Greek mu
        "ms": Fraction(10**6),
        "s": Fraction(10**9),
    },
    "500ns, 1.5 us, 0.2 ms or 2s",
)
_SIZE = _Kind(
    "size",
    {f"{prefix}B": Fraction(factor) for prefix, factor in _PREFIXES.items()},
    "25MB, 25 MiB or 4096 B",
    allows_bare_prefix=True,
)
_FLOPS = _Kind(
    "speed of computing",
    {
        f"{prefix}{end}": Fraction(factor)
        for prefix, factor in {**_DECIMAL, "P": 10**15}.items()
        for end in ("FLOP/s", "FLOPS")
    },
    "312 TFLOP/s or 1.2 PFLOP/s",
    allows_bare_prefix=True,
)
_BANDWIDTH = _Kind(
    "bandwidth",
    {
        f"{prefix}{end}": Fraction(factor, 10**9 * bits)
        for prefix, factor in _PREFIXES.items()
        for end, bits in {"B/s": 1, "Bps": 1, "b/s": 8, "bps": 8, "bit/s": 8}.items()
    },
    "10GB/s, 9.3 GiB/s, 80 Gb/s or 80Gbps",
    allows_bare_prefix=True,
)


def parse_duration(value: str | float, *, bare: str = "ns") -> Fraction:
    """Parse a duration to the exact value in ns; a bare number is in *bare*.

    Raises `ValueError`, whose text explains valid values; negative ones are invalid.
    """
    return _DURATION.read(value, bare)


def parse_size(value: str | float, *, bare: str = "B") -> int:
    """Parse a size to bytes, rounded to an integer; a bare number is in *bare*.

    Raises `ValueError`, whose text explains valid values; negative ones are invalid.
    """
    return round(_SIZE.read(value, bare))


def parse_bandwidth(value: str | float, *, bare: str = "GB/s") -> Fraction:
    """Parse a bandwidth to the exact value in bytes/ns; a bare number is in *bare*.

    Raises `ValueError`, whose text explains valid values; negative ones are invalid.
    """
    return _BANDWIDTH.read(value, bare)


def parse_flops(value: str | float) -> Fraction:
    """Parse a compute speed to the exact value in FLOP/s; a bare number is in TFLOP/s.

    Raises `ValueError`, whose text explains valid values; negative ones are invalid.
    """
    return _FLOPS.read(value, "TFLOP/s")


def parse_number(value: str | float, *, noun: str = "") -> Fraction:
    """Parse a non-negative number such as ``8``, ``1,024`` or ``1e9``; *noun* ("ranks") may follow.

    Raises `ValueError`, whose text explains valid values.
    """
    match = None if isinstance(value, bool) else _QUANTITY.fullmatch(str(value).strip())
    if match is None or match[3] not in ("", noun, noun.removesuffix("s")):
        raise ValueError(f"{_shown(value)} is not a number of 0 or more, such as 8, 1,024, 0.5 or 1e9.")
    return Fraction(match[1].replace(",", "") + match[2])


# Characters that move the cursor, colour or rename a terminal, or reverse the direction of text.
_UNSEEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
_FORMULA = re.compile(r"[=+\-@\t\r]")
_NUMBER = re.compile(
    r"[+-]?(?:(?:\d[\d,]*\.?\d*|\.\d+)(?:e[+-]?\d+)?(?: ?%| [a-zµ/]+)?|inf|nan)", re.IGNORECASE
)


def visible(text: str, keep: str = "") -> str:
    """Return *text* with control characters escaped, except for those in *keep*."""
    return _UNSEEN.sub(lambda found: found[0] if found[0] in keep else _escaped(found[0]), text)


def _escaped(sign: str) -> str:
    return sign.encode("unicode_escape", "surrogatepass").decode("ascii")


def spreadsheet_text(text: str) -> str:
    """Return *text* for a spreadsheet cell, with a quote before what would be evaluated as a formula."""
    is_formula = _FORMULA.match(text) and len(text) > 1 and not _NUMBER.fullmatch(text)
    return ("'" if is_formula else "") + visible(text, keep="\n\t")
