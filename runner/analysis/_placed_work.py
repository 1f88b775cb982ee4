"""The work of a step by source location in the script: lines, functions, and functions with their callees."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from ...converter.chakra import COLLECTING, DELAYED, HOST_BEFORE
from ...support.table import CodedColumns, Columns, Ints, TextColumn
from .._framed import sums_by
from ._call_tree import call_trees
from ._candidate import (
    MAJORITY,
    NEARLY_ALL,
    grouped,
    in_place,
    sum_ns,
    training_functions,
    training_places,
)
from ._labels import at_place, function_of, is_forward, line_of
from ._what_if import Target

_LOADING, _MOVING = ("input_pipeline", "worker_wait", "sampler"), ("communication", "copy", "memory")
_NEAR_LINES = 5
# Ratio of collection time to the time of Python code above which the heap is the cause, not the code.
_MOST_COLLECTING = 9


def in_target(target: Target, segments: Columns, rows: Ints) -> str:
    """Return a phrase for the place *target*; of functions, it names the line with most of *rows*."""
    if target.what == "function":
        mostly = in_place(segments, rows)
        return f" in {target.name} and its callees" + f", mostly{mostly}" * bool(mostly)
    return in_place(segments, rows) if target.name == function_of(target.name) else f" in {target.name}"


def everything_in(target: Target) -> str:
    """Return a phrase for all work of a place *target*."""
    return f"Everything in {target.name}" + " and its callees" * (target.what == "function")


class PlacedWork:
    """The work of a path's *segments* by source location.

    The *metadata* of the workload state which functions call each other.
    """

    def __init__(self, segments: CodedColumns, metadata: Mapping[str, Any]) -> None:
        self._segments, self._of_model = segments, _is_of_model(segments)
        self._functions: TextColumn = segments["place"].mapped(function_of)
        self._training_lines, self._training = training_places(segments), training_functions(segments)
        self._trees = call_trees(metadata, {*self._functions.compact().texts}, self._training)
        smallest_first = sorted(self._trees, key=lambda name: len(self._trees[name]))
        roots = {callee: name for name in smallest_first for callee in self._trees[name]}
        self._roots = self._functions.mapped(lambda function: roots.get(function, function))

    def by_place(self, rows: Ints) -> Iterator[tuple[Target, Ints, Ints | None]]:
        """Yield functions or lines: the target, its part of *rows*, and the work that disappears with them.

        A function is joined with those that only it calls, unless nearly all *rows* are in one of them. The
        work is None if the place does much other work. In a training function, lines that are not adjacent
        have different work.
        """
        for _, own in grouped(rows, self._roots[rows]):
            target = Target("function", self._calling(own))
            called = own[self._inside(target)[own]]
            every = self._work(target, called)
            if every is not None:
                yield target, called, every
            others = own if every is None else np.setdiff1d(own, called)
            for function, part in grouped(others, self._functions[others]):
                yield from self._of_function(function, part)

    def _calling(self, rows: Ints) -> str:
        """Return the innermost function that calls nearly all of *rows*, or "" if one function has them.

        The result is also "" if several functions that do not call each other have much of *rows*.
        """
        durations = self._segments["duration_ns"][rows]
        times = sums_by(durations, self._functions[rows])
        most, least_ns = max(times, key=times.__getitem__), NEARLY_ALL * sum(times.values())
        if times[most] >= least_ns:
            return ""
        totals = {
            name: sum(times.get(callee, 0) for callee in callees) for name, callees in self._trees.items()
        }
        around = [name for name, ns in totals.items() if ns >= least_ns]
        calling = min(around, key=lambda name: len(self._trees[name]), default="")
        callees = self._trees.get(most, {most})
        chain = (ns for name, ns in times.items() if name in callees or most in self._trees.get(name, ()))
        return calling if sum(chain) >= NEARLY_ALL * totals.get(calling, 0) else ""

    def _of_function(self, function: str, rows: Ints) -> Iterator[tuple[Target, Ints, Ints | None]]:
        labels = self.joined(rows) if function in self._training else self._functions
        for place, part in grouped(rows, labels[rows]):
            every = self._work(Target("place", place), part)
            if every is not None:
                yield Target("place", place), part, every
                continue
            for line, single in grouped(part, self._segments["place"][part]):
                target = Target("place", line)
                yield target, single, self._work(target, single)

    def joined(self, rows: Ints) -> TextColumn:
        """Return the place of each segment; adjacent lines of *rows* in a training function are joined."""
        names: dict[str, str] = {}
        for function, own in grouped(rows, self._functions[rows]):
            if function in self._training:
                names |= self._adjacent(function, own)
        places: TextColumn = self._segments["place"].mapped(lambda place: names.get(place, place))
        return places

    def _adjacent(self, function: str, own: Ints) -> dict[str, str]:
        """Map the lines of a training *function* to the names of several adjacent lines with most of *own*.

        Adjacent lines are near each other, and no other line or time between them is necessary work. A line
        with nearly all of the adjacent lines' time stays on its own.
        """
        places = self._segments["place"]
        times = sums_by(self._segments["duration_ns"][own], places[own])
        least_ns = (1 - NEARLY_ALL) * sum(times.values())
        lines = {line_of(place): place for place, ns in times.items() if ns >= least_ns}
        rows_of = {place: own[places[own] == place] for place in lines.values()}
        necessary, ordered = self._necessary_lines(function), sorted(lines.keys() - {-1})
        block_ends = (
            end
            for end, (one, other) in enumerate(pairwise(ordered), 1)
            if other - one > _NEAR_LINES
            or necessary.intersection(range(one, other + 1))
            or self._works_between(rows_of[lines[one]], rows_of[lines[other]])
        )
        joined: dict[str, str] = {}
        for start, end in pairwise([0, *block_ends, len(ordered)]):
            own_ns = [times[lines[number]] for number in ordered[start:end]]
            if own_ns and max(own_ns) < NEARLY_ALL * sum(own_ns):
                name = f"{function[:-1]}:{ordered[start]}-{ordered[end - 1]})"
                inside = filter(at_place(name), places.compact().texts)
                joined |= dict.fromkeys(inside, name)
        return joined

    def _necessary_lines(self, function: str) -> set[int]:
        """Return the lines of a *function* that train the model, or that mostly do necessary work."""
        segments, rows = self._segments, np.flatnonzero(self._functions == function)
        durations, places = segments["duration_ns"][rows], segments["place"][rows]
        is_necessary = segments["kind"][rows].passes(("compute", *_MOVING).__contains__)
        is_necessary |= segments["cause"][rows].passes(_LOADING.__contains__)
        own, everything = sums_by(durations[is_necessary], places[is_necessary]), sums_by(durations, places)
        mostly = {line for line, ns in own.items() if 2 * ns >= everything[line]}
        return {line_of(line) for line in mostly | (self._training_lines & everything.keys())}

    def _works_between(self, one: Ints, other: Ints) -> bool:
        """Return whether the path does work of the model or moves data between *one* and *other* rows."""
        first, second = sorted((one, other), key=lambda rows: int(rows[0]))
        between = slice(int(first[-1]) + 1, int(second[0]))
        is_moving = self._segments["kind"][between].passes(_MOVING.__contains__)
        return bool((self._of_model[between] | is_moving).any())

    def of_cause(self, rows: Ints) -> list[tuple[str, Target, Ints]]:
        """Return the places that have nearly all *rows* of a cause, each with its target and all its work.

        The list is empty if no place has other work. It is also empty if much of the cause is in places with
        much other work or with few of the rows, because the target of the whole cause is then better.
        """
        segments, cause_ns = self._segments, sum_ns(self._segments, rows)
        parts = [
            (target, part, every)
            for target, part, every in self.by_place(rows)
            if every is not None and sum_ns(segments, part) >= (1 - NEARLY_ALL) * cause_ns
        ]
        listed_ns = sum(sum_ns(segments, part) for _, part, _ in parts)
        if listed_ns < NEARLY_ALL * cause_ns or all(len(every) == len(part) for _, part, every in parts):
            return []
        return [(in_target(target, segments, part), target, every) for target, part, every in parts]

    def whole(self, target: Target, rows: Ints) -> tuple[Target, Ints]:
        """Return the function that mostly does the work *rows*, with all its work, or else the arguments."""
        (found, _, every), *others = self.by_place(rows)
        is_function = not others and found.name == function_of(found.name) != ""
        return (target, rows) if every is None or not is_function else (found, every)

    def _inside(self, target: Target) -> npt.NDArray[np.bool_]:
        """Return a mask of the segments in a place *target*."""
        name, places = target.name, self._segments["place"]
        if target.what == "function":
            return self._functions.passes(self._trees.get(name, set()).__contains__)
        is_line = name != function_of(name)
        inside: npt.NDArray[np.bool_] = places == name if is_line else self._functions == name
        return inside if inside.any() else places.passes(at_place(name))

    def _work(self, target: Target, own: Ints) -> Ints | None:
        """Return the work that disappears with rows *own* of a place *target*, or None if these are too few.

        All work of a function or line disappears with its main cause. This does not apply to parts of a model
        and to the lines that train it, whose other work is necessary. Without a known training function, any
        function may run the whole step. In these cases, only run delays and triggered garbage collections
        disappear.
        """
        place = target.name
        if not place:
            return None
        is_there = self._inside(target)
        everything = np.flatnonzero(is_there)
        script_ns = sum_ns(self._segments, everything[~self._of_model[everything]])
        is_model = is_forward(function_of(place)) or place in self._training_lines
        is_model |= script_ns < NEARLY_ALL * sum_ns(self._segments, everything)
        is_whole = bool(self._training) and not is_model
        least = MAJORITY if is_whole else NEARLY_ALL
        return _with_delays(self._segments, own, is_there, least, is_whole=is_whole)


def _is_of_model(segments: CodedColumns) -> npt.NDArray[np.bool_]:
    """Return a mask of the operators in modules or backward passes.

    Host work between operators has the module of the next operator, although the script may run it before
    the module. Python, run delays and garbage collections are not work of operators.
    """
    found: npt.NDArray[np.bool_] = (segments["module"] != "") | (segments["phase"] == "backward")
    found &= ~segments["name"].passes(lambda name: name.startswith(HOST_BEFORE))
    found &= ~segments["cause"].passes(("python", DELAYED, COLLECTING).__contains__)
    return found


def _with_delays(
    segments: Columns, own: Ints, at_place: npt.NDArray[np.bool_], least: float, *, is_whole: bool = False
) -> Ints | None:
    """Return rows *own* with the run delays and garbage collections of the same place, or all its rows.

    The result is None if the rows *own* take less than the fraction *least* of the place's work. Collections
    that take longer than the place's Python code count as other work, because the script may request them.
    Python code triggers collections on its own lines, however, unless it takes so little time that the heap
    is the cause.
    """
    following = segments["cause"] == DELAYED
    collected = np.flatnonzero(at_place & (segments["cause"] == COLLECTING))
    triggered = collected[np.isin(segments["place"][collected], segments["place"][own])]
    for rows, most in ((collected, 1), (triggered, _MOST_COLLECTING)):
        if sum_ns(segments, rows) < most * sum_ns(segments, own):
            following[rows] = True
    if sum_ns(segments, own) < least * sum_ns(segments, np.flatnonzero(at_place & ~following)):
        return None
    return np.union1d(own, np.flatnonzero(at_place & (following | is_whole)))
