"""What somebody typed into a field: read by the parsers of `support`, and never taken for something else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

from ...errors import ConfigError
from ...runner.config import BANDWIDTH, DELAY_NS, INTEGER
from ...runner.engine import FIELDS
from ...support import (
    bandwidth_text,
    count_text,
    duration_text,
    parse_bandwidth,
    parse_duration,
    parse_flops,
    parse_number,
)

__all__ = [
    "DIMENSION_FIELDS",
    "KEPT",
    "MOST_TRIALS",
    "NUMBER_FIELDS",
    "TIMES",
    "TRIALS",
    "NumberField",
    "Reading",
    "typed_text",
]

MOST_TRIALS = 5_000

_MOST_RANKS = 65_536  # that a browser may ask for, see `check`
_GIB_PER_S = Fraction(2**30, 10**9)  # in bytes/ns


@dataclass(frozen=True)
class Reading:
    """What a field says: its *value* in the field's unit, or None, and that in words; or its *problem*.

    *short* is the problem in a few words, for the space that a field has.
    """

    value: int | float | None = None
    understood: str = ""
    problem: str = ""
    short: str = ""


@dataclass(frozen=True)
class NumberField:
    """A number to type, from *least* to *most* in the field's unit, which a number alone is in.

    *parse* reads it and *tell* says what was understood, both in that unit. *may_be_empty* says that
    nothing typed means nothing given.
    """

    title: str
    parse: Callable[[Any], Fraction]
    tell: Callable[[float], str]
    example: str
    whole: bool = False
    least: float = 0
    most: float = INTEGER
    may_be_empty: bool = False

    def read(self, typed: Any) -> Reading:
        """Return what *typed* means; what is not a number of this field is a problem, and no other value."""
        if typed is None or not str(typed).strip():
            return Reading() if self.may_be_empty else self._wrong("it is empty", f"Write {self.example}.")
        try:
            exact = self.parse(typed)
        except ValueError as error:
            return self._wrong(str(error).rstrip("."), f"Not understood: write {self.example}.")
        if exact < self.least or exact > self.most:
            problem = f"{str(typed).strip()[:40]!r} is out of range; it must be {self._range}"
            return self._wrong(problem, f"Must be {self._range}.")
        if self.whole and exact.denominator != 1:
            return self._wrong(f"{str(typed).strip()[:40]!r} is not a whole number", "Must be whole.")
        value = int(exact) if exact.denominator == 1 and (self.whole or abs(exact) < 2**53) else float(exact)
        return Reading(value, self.tell(value))

    def value(self, typed: Any) -> int | float | None:
        """Return the value of *typed*; raises `ConfigError` with its problem."""
        reading = self.read(typed)
        if reading.problem:
            raise ConfigError(reading.problem)
        return reading.value

    @property
    def _range(self) -> str:
        return f"a number from {Decimal(str(self.least)):f} to {self.most:,.10g}"

    def _wrong(self, why: str, short: str) -> Reading:
        return Reading(problem=f"{self.title}: {why}.", short=short)


def typed_text(value: Any) -> str:
    """Return the number *value* as a field shows it, exactly; nothing for None."""
    if value is None:
        return ""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    return str(value)


def _link_rate(gib_per_s: float) -> str:
    per_ns = gib_per_s * float(_GIB_PER_S)
    return f"{bandwidth_text(per_ns, 'GiB/s')} = {bandwidth_text(per_ns)}"


def _count(title: str, noun: str, least: float, most: float, *, may_be_empty: bool = False) -> NumberField:
    return NumberField(
        title, lambda typed: parse_number(typed, noun=noun), lambda value: count_text(int(value), noun[:-1]),
        "a whole number", whole=True, least=least, most=most, may_be_empty=may_be_empty,
    )  # fmt: skip


DIMENSION_FIELDS: Mapping[str, NumberField] = {
    "size": _count("Size", "ranks", 2, _MOST_RANKS),
    "bandwidth": NumberField(
        "Bandwidth", lambda typed: parse_bandwidth(typed, bare="GiB/s") / _GIB_PER_S, _link_rate,
        "9.3, 10 GB/s or 80 Gb/s", least=BANDWIDTH[0], most=BANDWIDTH[1],
    ),
    "latency": NumberField(
        "Latency", parse_duration, duration_text, "500, 500 ns or 1.5 us", most=DELAY_NS[1]
    ),
}  # fmt: skip
"""The numbers of a dimension of a network: in ranks, GiB/s and ns."""
NUMBER_FIELDS: Mapping[str, NumberField] = {
    "preferred-dataset-splits": _count(
        "Chunks", "chunks", *FIELDS["preferred_dataset_splits"].limits, may_be_empty=True
    ),
    "active-chunks-per-dimension": _count(
        "Active chunks", "chunks", *FIELDS["active_chunks_per_dimension"].limits, may_be_empty=True
    ),
    "endpoint-delay": NumberField(
        "Endpoint delay", parse_duration, duration_text, "10, 10 ns or 1.5 us", whole=True,
        most=FIELDS["endpoint_delay"].largest, may_be_empty=True,
    ),
    "local-mem-bw": NumberField(
        "Memory bandwidth", parse_bandwidth, bandwidth_text, "1600, 1.6 TB/s or 1500 GiB/s",
        most=FIELDS["local_mem_bw"].largest, may_be_empty=True,
    ),
    "peak-perf": NumberField(
        "Peak performance", lambda typed: parse_flops(typed) / 10**12, lambda value: f"{value:,.6g} TFLOP/s",
        "312 or 1.2 PFLOP/s", most=FIELDS["peak_perf"].largest, may_be_empty=True,
    ),
}  # fmt: skip
"""The numbers among the keys of a system file: in chunks, ns, GB/s and TFLOP/s."""
TIMES = NumberField(
    "Times as fast", lambda typed: parse_number(typed, noun="times"), lambda value: f"{value:g} times",
    "2 or 0.5", least=0.01, most=1000,
)  # fmt: skip
"""How many times as fast something is to be."""
TRIALS = _count("Points to try", "points", 1, MOST_TRIALS, may_be_empty=True)
"""How many points a search tries."""
KEPT = _count("Best points to keep", "points", 0, 20)
"""How many points of a sweep are kept as runs."""
