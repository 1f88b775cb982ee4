"""The sides of a comparison: offer, read and cache them, and report progress."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...errors import Cancelled, StudyError, TraceError
from ...runner import Side, StepDiff, Study, diff_steps
from ...runner.analysis import side_of, step_numbers
from ...runner.study import compared
from ...support import count_text
from .._state import OpenRun, Selection, StudyView
from .._theme import run_text


@dataclass(kw_only=True)
class Work(ABC):
    """Slow work that can be cancelled, with its finished *share* and its progress as *text*."""

    is_cancelled: bool = False

    @property
    @abstractmethod
    def share(self) -> float:
        """The finished fraction of the work."""

    @property
    @abstractmethod
    def text(self) -> str:
        """The progress as text."""

    def raise_if_cancelled(self) -> None:
        """Raise `Cancelled` if the work was cancelled."""
        if self.is_cancelled:
            raise Cancelled("The work was cancelled.")


@dataclass(kw_only=True)
class Simulations(Work):
    """Progress of simulations: *done* of at most *most* have finished."""

    done: int = 0
    most: int = 0

    def finish(self, done: int, most: int) -> None:
        """Record that *done* of *most* simulations have finished; raises `Cancelled` if cancelled."""
        self.done, self.most = done, most
        self.raise_if_cancelled()

    @property
    def share(self) -> float:
        """The finished fraction of the work."""
        return self.done / max(1, self.most)

    @property
    def text(self) -> str:
        """The number of finished simulations, for a progress bar."""
        return f"{self.done} of at most {self.most} simulations done" if self.most else "The first simulation"


_MAX_CACHED = 6
_MAX_RUNS, _MAX_STEPS = 200, 100


@dataclass(kw_only=True)
class Reading(Work):
    """Progress of reading two sides: the current side, its steps, and the next step's ranks.

    *steps* and *ranks* are pairs of the number read and the total.
    """

    side: int = 0
    steps: tuple[int, int] = (0, 0)
    ranks: tuple[int, int] = (0, 0)

    def of(self, side: int) -> Reading:
        """Begin to read a *side* (0: before, 1: after); return the progress."""
        self.side, self.steps, self.ranks = side, (0, 0), (0, 0)
        self.raise_if_cancelled()
        return self

    def step(self, done: int, total: int) -> None:
        """Record that *done* of *total* steps of this side were read."""
        self.steps, self.ranks = (done, total), (0, 0)
        self.raise_if_cancelled()

    def rank(self, done: int, total: int) -> None:
        """Record that *done* of *total* ranks of the next step were read."""
        self.ranks = (done, total)
        self.raise_if_cancelled()

    @property
    def share(self) -> float:
        """The fraction of both sides that was read."""
        step = self.ranks[0] / max(1, self.ranks[1])
        return (self.side + min(1.0, (self.steps[0] + step) / max(1, self.steps[1]))) / 2

    @property
    def text(self) -> str:
        """The progress of the current side as text."""
        side = ("Before", "After")[self.side]
        if not self.steps[1]:
            return f"{side}: looking for its steps."
        text = f"{side}: {self.steps[0]:,} of {count_text(self.steps[1], 'step')} read"
        return (
            f"{text}; the next step: {self.ranks[0]:,} of {count_text(self.ranks[1], 'rank')}"
            if self.ranks[1]
            else text
        )


class Sides:
    """Reads and caches the captures and runs that *view* can compare, each named ``STUDY@WHAT``.

    STUDY is a study of the server, or "" for this one, so that a browser cannot name paths.
    """

    def __init__(self, view: StudyView) -> None:
        self._view = view
        self._kept: OrderedDict[tuple[str, str], Side] = OrderedDict()
        self._lock = threading.Lock()

    def options(self) -> list[dict[str, Any]]:
        """Return the captures and runs to choose from, in groups, this study's first."""
        groups = []
        for name, study in self._view.studies().items():
            lead = f"{name}: " if name else ""
            captures = study.trace_sets()
            items = [{"value": f"{name}@{one}", "label": f"{lead}{one}"} for one in captures[::-1]]
            if len(captures) > 1:
                text = f"{lead}all {len(captures)} captures"
                items.insert(0, {"value": f"{name}@all", "label": text})
            groups.append({"group": f"{lead}Captures, every step", "items": items})
            groups.append({"group": f"{lead}Captures, one step", "items": _steps(study, f"{name}@", lead)})
            groups.append({"group": f"{lead}Runs", "items": _runs(study, f"{name}@", lead)})
        return [group for group in groups if group["items"]]

    def beside(self, shown: str) -> list[dict[str, Any]]:
        """Return the runs and captures to show next to the run *shown* on a timeline, in groups.

        Values are NAME in this study, or ``STUDY@NAME``, as in `open_source`.
        """
        groups = []
        for name in self._view.studies():
            view, lead, before = self._view.elsewhere(name), f"{name}: " * bool(name), f"{name}@" * bool(name)
            runs = [item for item in _runs(view.study, before, lead) if item["value"] != shown]
            measured = [{"value": f"{before}{one}", "label": f"{lead}{one}"} for one in view.captures()[::-1]]
            groups.append({"group": f"{lead}Runs", "items": runs})
            groups.append({"group": f"{lead}Captures, as measured", "items": measured})
        return [group for group in groups if group["items"]]

    def on_timeline(self, before: str, after: str) -> str:
        """Return the query string of a timeline of both sides, or "" if no such timeline is possible.

        Only runs have timelines, so a capture *before* is shown as the measured rows of its newest
        run.
        """
        (name, _, first), (other, _, second) = before.rpartition("@"), after.rpartition("@")
        if name or other not in self._view.studies():
            return ""
        runs, near = self._view.runs(), self._view.elsewhere(other)
        shown = [info.id for info in runs if first in {info.id, info.workload}]
        names = {info.id for info in near.runs()} | {*near.captures()}
        if not shown or second not in names:
            return ""
        address = Selection(shown[-1]).with_option("beside", f"{other}@{second}" if other else second)
        return address.with_option("measured", "" if first == shown[-1] else "1").search

    def defaults(self) -> tuple[str, str]:
        """Return the two newest captures, otherwise two runs of one workload, otherwise "" twice.

        The runs are the newest run and the newest earlier run of the same workload. A measured replay comes
        first, as on the Compare page.
        """
        study = self._view.study
        captures, runs = study.trace_sets(), study.runs()
        if len(captures) > 1:
            return f"@{captures[-2]}", f"@{captures[-1]}"
        # Only runs of the same workload execute the same nodes.
        alike = [one.id for one in runs[:-1] if one.workload == runs[-1].workload]
        if not alike:
            return "", ""
        before, (after,) = compared(runs, [alike[-1], runs[-1].id])
        return f"@{before}", f"@{after}"

    def diff(
        self, before: str, after: str, between_starts: float | None, reading: Reading | None = None
    ) -> StepDiff:
        """Return the difference between two sides, reporting to *reading*.

        Raises `StudyError` for a missing side, and `Cancelled`.
        """
        progress = reading or Reading()
        sides = [self._side(value, progress.of(place)) for place, value in enumerate((before, after))]
        return diff_steps(*sides, between_starts=between_starts)

    def _side(self, value: str, reading: Reading) -> Side:
        name, _, what = value.rpartition("@")
        studies = self._view.studies()
        if name not in studies or not what:
            raise StudyError(f"There is no '{value[:80]}' to compare here; choose one from the list.")
        key = (name, what)
        with self._lock:
            if key in self._kept and what != "all":
                self._kept.move_to_end(key)
                return self._kept[key]
        side = side_of(
            studies[name],
            what,
            name=f"{name}{' ' * bool(name)}{what}",
            progress=reading.step,
            ranks=reading.rank,
        )
        with self._lock:
            self._kept[key] = side
            while len(self._kept) > _MAX_CACHED:
                self._kept.popitem(last=False)
        return side


def open_source(view: StudyView, value: str) -> OpenRun:
    """Return the run or capture *value*: NAME in *view*'s study, or ``STUDY@NAME``.

    Raises `StudyError` if it does not exist.
    """
    name, _, what = value.rpartition("@")
    near = view.elsewhere(name)
    try:
        return near.open(near.resolve(what))
    except StudyError:
        if what not in near.captures():
            raise
    return near.open_capture(what)


def _steps(study: Study, before: str, lead: str) -> list[dict[str, str]]:
    """Return the steps of captures with several steps as options, the newest capture first.

    Values begin with *before*, and labels with *lead*.
    """
    items = []
    for capture in study.trace_sets()[::-1]:
        with suppress(TraceError):  # the error is shown when the user selects the run
            numbers = step_numbers(study.trace_dir(capture))
            items += [(capture, number) for number in numbers if len(numbers) > 1]
    return [
        {"value": f"{before}{capture}/{number}", "label": f"{lead}{capture}, step {number}"}
        for capture, number in items[:_MAX_STEPS]
    ]


def _runs(study: Study, before: str, lead: str) -> list[dict[str, str]]:
    """Return the newest runs of *study* as options, the newest first.

    Values begin with *before*, and labels with *lead*.
    """
    return [
        {"value": f"{before}{info.id}", "label": f"{lead}{run_text(info, workload=True)}"}
        for info in reversed(study.runs()[-_MAX_RUNS:])
    ]
