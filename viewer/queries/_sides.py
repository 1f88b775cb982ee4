"""The sides of a comparison that a page offers, and those read lately."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

import pandas as pd

from ...errors import StudyError
from ...runner import Side, StepDiff, Study, diff_steps
from ...runner.analysis import PARTS, side_of
from ...runner.study import run_name
from ...support import count_text, duration_text
from .._state import StudyView

__all__ = ["DIFF_TABLES", "Sides"]

DIFF_TABLES = ("waterfall", "figures", "operators", "modules", "collectives", "paths")
_MOST_KEPT = 6
_MOST_RUNS = 200


class Sides:
    """What the captures and runs around *view* are compared by; a side is called ``STUDY@WHAT``.

    STUDY is a study's name among those the viewer serves, or empty for the one shown: no path comes from the
    browser.
    """

    def __init__(self, view: StudyView) -> None:
        self._view = view
        self._kept: OrderedDict[tuple[str, str], Side] = OrderedDict()
        self._lock = threading.Lock()

    def options(self) -> list[dict[str, Any]]:
        """Return what may be chosen, in groups: the captures and runs of this study, then of the others."""
        groups = []
        for name, study in self._studies().items():
            lead = f"{name}: " if name else ""
            captures = study.trace_sets()
            items = [{"value": f"{name}@{one}", "label": one} for one in captures[::-1]]
            if len(captures) > 1:
                text = f"all {len(captures)} captures"
                items.insert(0, {"value": f"{name}@all", "label": text})
            groups.append({"group": f"{lead}Captures, every step", "items": items})
            runs = [
                {
                    "value": f"{name}@{info.id}",
                    "label": f"{run_name(info)} · {count_text(info.num_ranks, 'rank')} · "
                    f"{duration_text(info.makespan_ns)} · {info.workload}",
                }
                for info in reversed(study.runs()[-_MOST_RUNS:])
            ]
            groups.append({"group": f"{lead}Runs", "items": runs})
        return [group for group in groups if group["items"]]

    def defaults(self) -> tuple[str, str]:
        """Return the sides to propose: the two newest captures, else the two newest runs; "" without."""
        study = self._view.study
        for names in (study.trace_sets(), [info.id for info in study.runs()]):
            if len(names) > 1:
                return f"@{names[-2]}", f"@{names[-1]}"
        return "", ""

    def diff(self, before: str, after: str, between_starts: float | None) -> StepDiff:
        """Return what changed; raises `StudyError` for a side that is not there."""
        return diff_steps(self._side(before), self._side(after), between_starts=between_starts)

    def table(self, found: StepDiff, name: str, by: str) -> pd.DataFrame:
        """Return the table *name*, one of :data:`DIFF_TABLES`; the waterfall *by* one of `PARTS`."""
        if name != "waterfall":
            table: pd.DataFrame = getattr(found, name)
            return table
        return found.waterfall(by if by in PARTS else "part")

    def _studies(self) -> dict[str, Study]:
        near = self._view.near
        others = {} if near.workspace is None else near.workspace.studies()
        return {"": self._view.study} | {name: study for name, study in others.items() if name != near.name}

    def _side(self, value: str) -> Side:
        name, _, what = value.partition("@")
        studies = self._studies()
        if name not in studies or not what:
            raise StudyError(f"There is no '{value[:80]}' to compare here; choose one from the list.")
        key = (name, what)
        with self._lock:
            if key in self._kept and what != "all":
                self._kept.move_to_end(key)
                return self._kept[key]
        side = side_of(studies[name], what, name=f"{name}{' ' * bool(name)}{what}")
        with self._lock:
            self._kept[key] = side
            while len(self._kept) > _MOST_KEPT:
                self._kept.popitem(last=False)
        return side
