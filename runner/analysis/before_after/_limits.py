"""Limits on differences, such as ``step > +3%``: parse them, and check differences against them."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from fractions import Fraction
from typing import Any, Literal

import pandas as pd

from ....converter.chakra import KINDS
from ....errors import UsageError, did_you_mean
from ....support import bytes_text, change_text, duration_text, parse_duration, parse_number, parse_size
from ._diff import StepDiff
from ._step import FIGURES

_COMPARE: dict[str, Callable[[Any, Any], bool]] = {
    ">=": operator.ge, "<=": operator.le, ">": operator.gt, "<": operator.lt,
}  # fmt: skip
_LIMIT = re.compile(r"\s*(?P<quantity>.+?)\s*(?P<sign>>=|<=|>|<)\s*(?P<value>[^<>=]+?)\s*")
_TABLES = {"operator": "operators", "module": "modules", "collective": "collectives"}
_OF_THE_PATH = ("kind", "phase")
_UNSURE = {
    "within noise": "within the noise",
    "undecided": "this may be noise",
}
_HELP = "write e.g. 'step > +3%', 'exposed > +2ms', 'module:layers.1 > +10%' or 'step > 120ms'"


@dataclass(frozen=True)
class Limit:
    """A limit on a difference, which fails if ``quantity sign value`` is true.

    *change* is the meaning of *value*: a ``relative`` change, a ``difference``, or a ``value`` of the
    other side. Times are in ns, sizes in bytes.
    """

    text: str
    quantity: str
    sign: str
    value: Fraction
    change: Literal["relative", "difference", "value"]


@dataclass(frozen=True)
class Judgement:
    """The outcome of checking a limit.

    *outcome* is ``kept``, ``failed``, ``within noise`` (the median exceeds the limit, possibly by chance) or
    ``undecided`` (the noise is unknown, or wider than the limit). *text* explains the outcome in a sentence.
    """

    limit: str
    outcome: Literal["kept", "failed", "within noise", "undecided"]
    text: str

    def to_dict(self) -> dict[str, str]:
        """Return plain JSON."""
        return asdict(self)


def parse_limit(text: str) -> Limit:
    """Parse a limit, ``QUANTITY SIGN VALUE``; raises `UsageError` if it is invalid.

    QUANTITY is a figure of the step (``step``, ``compute``, ``exposed`` ...), or ``operator:NAME``,
    ``module:NAME``, ``collective:NAME``, ``kind:NAME`` or ``phase:NAME``. SIGN is one of ``> >= <
    <=``. VALUE is a change in per cent (``+3%``), a change (``+5ms``), or a value (``120ms``).
    """
    match = _LIMIT.fullmatch(text)
    if match is None:
        raise UsageError(f"'{text}' is not a limit; {_HELP}.")
    quantity, sign, value = match["quantity"], match["sign"], match["value"]
    _check_name(quantity)
    signed = value[0] in "+-"
    size, factor = value[signed:], -1 if value[0] == "-" else 1
    if size.endswith("%") and not signed:
        raise UsageError(
            f"'{text}': a percentage limits a change, which needs a sign. Next: write +{value} or -{value}."
        )
    unit = "ms" if (read := _reader(quantity)) is parse_duration else "MiB" if read is parse_size else ""
    if unit and size.strip("0123456789.") == "" and size.strip("0."):
        raise UsageError(
            f"The limit '{text}' lacks a unit. Next: write {value}{unit} or +{size}%, for example."
        )
    try:
        if size.endswith("%"):
            return Limit(text, quantity, sign, factor * parse_number(size[:-1]) / 100, "relative")
        change: Literal["difference", "value"] = "difference" if signed else "value"
        return Limit(text, quantity, sign, factor * Fraction(read(size)), change)
    except ValueError as error:
        raise UsageError(f"The limit '{text}' cannot be read: {error} Next: {_HELP}.") from error


def _check_name(quantity: str) -> None:
    """Raise `UsageError` for a quantity that no step has; the names of operators, for example, vary."""
    of, colon, name = quantity.partition(":")
    if colon and of == "kind" and name not in KINDS:
        raise UsageError(f"There is no kind '{name}'{did_you_mean(name, KINDS)}")
    if not (colon and of in (*_TABLES, *_OF_THE_PATH)) and quantity not in FIGURES:
        choices = [*FIGURES, *(f"{of}:NAME" for of in (*_TABLES, *_OF_THE_PATH))]
        raise UsageError(f"There is no quantity '{quantity}'{did_you_mean(quantity, choices)}")


def _reader(quantity: str) -> Callable[[str], Fraction | int]:
    readers: dict[str, Callable[[str], Fraction | int]] = {"bytes": parse_size, "count": parse_number}
    return readers.get(FIGURES.get(quantity, ""), parse_duration)


def judge(found: StepDiff, limits: Sequence[Limit]) -> list[Judgement]:
    """Check the difference *found* against each of *limits*.

    A limit fails if the medians exceed the limit and the difference is not within the noise. If a difference
    of 0 also exceeds the limit, the limit fails only if the whole confidence interval exceeds it. If the
    noise is wider than the limit, the outcome is undecided. Raises `UsageError` for a quantity that neither
    side has.
    """
    return [_judged(found, limit) for limit in limits]


def _judged(found: StepDiff, limit: Limit) -> Judgement:
    row = _row(found, limit.quantity)
    base, other = int(row["base"]), int(row["other"])
    passes = _COMPARE[limit.sign]
    change = _change(limit.quantity, base, other)
    exceeds = passes(other if limit.change == "value" else _measure(limit, base, other - base), limit.value)
    wide = _wide_noise(limit, row, base)
    if wide and (exceeds or any(passes(end, limit.value) for end in wide)):
        reason = (
            f"the noise ({_span(limit, wide)}) is wider than the limit. Next: capture more steps and starts "
            "of the job, or set a wider limit"
        )
        return Judgement(limit.text, "undecided", f"{change}: {reason}.")
    if not exceeds:
        return Judgement(limit.text, "kept", f"{change}.")
    if limit.change == "value":
        return _by_value(found, limit, change)
    verdict = str(row["verdict"])
    if verdict == "within noise" and passes(0, limit.value):  # even a difference of 0 would exceed the limit
        ends = (_measure(limit, base, int(row[end])) for end in ("low", "high"))
        verdict = "" if all(passes(end, limit.value) for end in ends) else verdict
    if verdict in _UNSURE:
        outcome: Literal["within noise", "undecided"] = "within noise"
        if verdict == "undecided":
            outcome = "undecided"
        return Judgement(limit.text, outcome, f"{change}: exceeds the limit, but {_UNSURE[verdict]}.")
    return Judgement(limit.text, "failed", f"{change}.")


def _wide_noise(limit: Limit, row: Mapping[str, Any], base: int) -> list[Fraction | float]:
    """Return the interval of a change within the noise if it is wider than *limit*, otherwise []."""
    if limit.change == "value" or not limit.value or row["verdict"] not in _UNSURE:
        return []
    low, high = (_measure(limit, base, int(row[end])) for end in ("low", "high"))
    return [low, high] if (high - low) / 2 > abs(limit.value) else []


def _span(limit: Limit, ends: Sequence[Fraction | float]) -> str:
    """Return the *ends* of an interval as text in the unit of *limit*."""
    text = change_text if limit.change == "relative" else _text_of(limit.quantity)
    return " to ".join(text(float(end)) for end in ends)


def _measure(limit: Limit, base: int, delta: int) -> Fraction | float:
    """Return *delta* as *limit* measures it: in absolute terms, or relative to *base*."""
    if limit.change == "difference":
        return Fraction(delta)
    return Fraction(delta, base) if base else delta and math.copysign(math.inf, delta)


def _by_value(found: StepDiff, limit: Limit, change: str) -> Judgement:
    """Check the other side's value against a limit, which fails only if every step exceeds it."""
    passes = _COMPARE[limit.sign]
    values = [step.figures[limit.quantity] for step in found.other.steps if limit.quantity in step.figures]
    if all(passes(value, limit.value) for value in values):
        return Judgement(limit.text, "failed", f"{change}.")
    return Judgement(limit.text, "within noise", f"{change}: exceeds the limit, but not in every step.")


def _row(found: StepDiff, quantity: str) -> dict[str, Any]:
    """Return medians, confidence interval and verdict of *quantity*."""
    of, colon, name = quantity.partition(":")
    if colon and of in _TABLES:
        table = getattr(found, _TABLES[of])
        return _summed(table, name, f"Neither side has a {of} '{name}'")
    if colon and of in _OF_THE_PATH:
        return _summed(found.waterfall(of), name, f"Neither critical path has a {of} '{name}'")
    table = found.figures
    rows = table[table["quantity"] == quantity]
    if rows.empty:
        lacking = [
            f"{side.name} ({when})"
            for side, when in ((found.base, "before"), (found.other, "after"))
            if quantity not in side.steps[0].figures
        ]
        reason = f"it is missing in {lacking[0]}" if len(lacking) == 1 else "no capture records it"
        raise UsageError(
            f"The two sides have no common quantity '{quantity}' ({reason}). Next: choose one of "
            f"{', '.join(table['quantity'])}."
        )
    return {str(key): value for key, value in rows.iloc[0].items()}


def _summed(table: pd.DataFrame, name: str, absent: str) -> dict[str, Any]:
    """Return the sums over the rows of key *name*, with the verdict of the first (largest) row."""
    rows = table[table["key"] == name]
    if rows.empty:
        raise UsageError(f"{absent}{did_you_mean(name, set(table['key']))}")
    verdict = rows["verdict"].iloc[0]
    sums = {name: rows[f"{name}_ns"].sum() for name in ("base", "other", "low", "high")}
    return sums | {"verdict": verdict}


def _change(quantity: str, base: int, other: int) -> str:
    text = _text_of(quantity)
    if base == other:
        return f"{quantity}: {text(base)} before and after"
    change = f" ({change_text((other - base) / base)})" if base else ""
    return f"{quantity}: {text(other)} after, {text(base)} before{change}"


def _text_of(quantity: str) -> Callable[[float], str]:
    texts: dict[str, Callable[[float], str]] = {"bytes": bytes_text, "count": "{:,}".format}
    return texts.get(FIGURES.get(quantity, ""), duration_text)
