"""A candidate for what bounds a step, as a sum over segments of the critical path."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...converter.chakra import HOST_BEFORE, HOST_END
from ...support.table import CodedColumns, Columns, Ints
from .._framed import Key, coded, sums_by
from ._labels import function_of
from ._what_if import Target

HALF, GONE = 2.0, math.inf
"""Speed-up factors: `HALF` for necessary work without a known best time, `GONE` for avoidable time."""
MAJORITY, NEARLY_ALL = 2 / 3, 0.9
_LEAST_PLACED = 0.1  # samples may be late, so a line with less of the backward pass does not call it
ESPECIALLY = ", especially "
"""The words before the operator or place that takes most of a candidate's time."""
CALLED_PHASES = ("backward", "optimizer")
"""Phases that a single line of the script runs for all operators."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """Something that may bound the step: *what* in words, and a what-if *target*, *times* as fast.

    *remedy* is a key of `REMEDIES`, and *how*, if given, replaces its sentence. *rows* are the
    segments of the critical path, *path_ns* their time, and *bound_ns* an upper bound of the gain.
    *is_named* distinguishes a single cause from a sum of many. Without *is_advised*, no remedy is
    known. With *is_moved*, the remedy moves the work to free processor cores.
    """

    what: str
    kind: str
    cause: str
    remedy: str
    target: Target
    times: float
    rows: Ints
    path_ns: int
    bound_ns: int
    is_named: bool = True
    how: str = ""
    is_advised: bool = True
    is_moved: bool = False


def sum_ns(segments: Columns, rows: Ints) -> int:
    return int(segments["duration_ns"][rows].sum())


def grouped(rows: Ints, labels: Key) -> Iterator[tuple[str, Ints]]:
    """Yield each distinct label with its *rows*."""
    numbers, names = coded(labels)
    order = np.argsort(numbers, kind="stable")
    ends = np.searchsorted(numbers[order], np.arange(1, len(names)))
    for name, part in zip(names, np.split(order, ends), strict=False):
        yield str(name), rows[part]


def scaled(segments: Columns, what: str, kind: str, target: Target, rows: Ints, **more: Any) -> Candidate:
    """Return a candidate for halving the time of the path segments *rows*."""
    path_ns = sum_ns(segments, rows)
    facts: dict[str, Any] = {"cause": "", "remedy": kind} | more
    bound_ns = round(path_ns * (1 - 1 / HALF))
    return Candidate(
        what, kind, facts.pop("cause"), facts.pop("remedy"), target, HALF, rows, path_ns, bound_ns, **facts
    )


def largest(segments: Columns, rows: Ints, column: str) -> tuple[str, int]:
    sums = sums_by(segments["duration_ns"][rows], segments[column][rows])
    name = max(sums, key=sums.__getitem__)
    return str(name), int(sums[name])


def training_functions(segments: CodedColumns) -> set[str]:
    """Return the script's functions that call the optimizer or the backward pass of the parameters."""
    return {function_of(place) for place in training_places(segments)} - {""}


def training_places(segments: CodedColumns) -> set[str]:
    """Return the script's lines that call the optimizer or the backward pass of the parameters.

    `torch.autograd.grad` has a range for the accumulation of each gradient, but accumulates nothing. If no
    operator accumulates gradients, the last backward pass of each rank is the backward pass of the
    parameters, and the line is the most frequent source location in this pass. An earlier backward pass may
    compute another gradient, such as the gradient of a penalty. Host work before the first operator of the
    optimizer, or after the last one, belongs to other code.
    """
    places, phases = segments["place"], segments["phase"]
    is_placed = places != ""
    accumulating = is_placed & segments["operator"].passes("torch::autograd::AccumulateGrad".__eq__)
    found = set(places[accumulating].tolist())
    starts, backward = segments["start_ns"], np.flatnonzero(phases == "backward")
    for rank, own in grouped(backward, segments["rank"][backward]) if not found else ():
        forward = starts[(phases == "forward") & (segments["rank"] == int(rank))]
        before_ns = forward[forward < starts[own].max()].max(initial=-1)
        last = own[starts[own] > before_ns]
        placed = last[is_placed[last]]
        line, line_ns = largest(segments, placed, "place") if len(placed) else ("", 0)
        if line_ns > _LEAST_PLACED * sum_ns(segments, last):
            found.add(line)
    between = segments["name"].passes(lambda name: name.startswith((HOST_BEFORE, HOST_END)))
    return found | set(places[(phases == "optimizer") & ~between].tolist())


def where(segments: Columns, rows: Ints) -> str:
    """Return the source location of most of *rows*, or else their main operator or annotation."""
    name, _ = largest(segments, rows, "operator")
    return in_place(segments, rows) or f"{ESPECIALLY}{most_for(name)}" * bool(name)


def most_for(name: str) -> str:
    """Return a phrase with the operator *name*, or with the place of host work between operators."""
    if name.startswith(HOST_BEFORE):
        return f"before {name.removeprefix(HOST_BEFORE)}"
    return "after the last operator of the step" if name == HOST_END else f"for {name}"


def in_place(segments: Columns, rows: Ints) -> str:
    """Return the function and line with most time of *rows*; "" if none has more than half."""
    times = sums_by(segments["duration_ns"][rows], segments["place"][rows])
    times.pop("", None)
    functions: Counter[str] = Counter()
    for place, ns in times.items():
        functions[function_of(str(place))] += int(ns)
    function, function_ns = functions.most_common(1)[0] if times else ("", 0)
    if 2 * function_ns <= sum_ns(segments, rows):
        return ""
    place = max((one for one in times if function_of(str(one)) == function), key=times.__getitem__)
    return f" in {place}"
