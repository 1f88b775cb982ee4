"""How ``chakrascope diagnose`` shows a table of operations: slowdown, causes, step times, heat map."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from ..errors import UsageError
from ._output import console, print_frame, print_json, print_next

if TYPE_CHECKING:
    import pandas as pd

    from ..converter.readers import OperationTable

__all__ = ["TABLE_VIEWS", "print_stragglers"]

TABLE_VIEWS = ("causes", "types", "workers", "steps", "heat-map")
_TITLES = {
    "causes": "Causes, those that cost most first",
    "types": "Slowdown by type of operation",
    "workers": "Slowdown by worker",
    "steps": "Steps",
    "heat-map": "Slowdown by worker and step",
}
_NARROW = {
    "causes": ["rank", "replica", "stage", "evidence"],
    "workers": ["replica_slowdown", "stage_slowdown"],
}
_STEP_COLUMNS = ["step", "recorded_ns", "replayed_ns", "slowdown", "slowest_rank", "rank_slowdown"]
_MOST_ROWS = 16
_MOST_CELLS = 56
_LEVELS = {1.03: ".", 1.1: "-", 1.25: "+", 1.5: "*"}  # up to this slowdown
_HIGHEST = "#"


def print_stragglers(table: OperationTable, show: str | None, output_format: str) -> None:
    """Print what slows the steps in *table*: all of it, or the view *show*."""
    from ..runner.analysis import STRAGGLER_TABLES, find_stragglers

    if output_format == "csv" and show is None:
        raise UsageError(f"CSV holds one table. Add --view {', '.join(TABLE_VIEWS)}.")
    found = find_stragglers(table)
    if show is not None and output_format != "table":
        print_frame(STRAGGLER_TABLES[show](found), output_format)
    elif output_format == "json":
        tables = {name: of(found).to_dict("records") for name, of in STRAGGLER_TABLES.items()}
        for row, cause in zip(tables["causes"], found.causes, strict=True):
            row["steps"] = list(cause.steps)
        print_json({"kind": "operations", **found.to_json(), **tables})
    else:
        if show is None:
            for sentence in found.sentences:
                _say(sentence)
        for name, of in STRAGGLER_TABLES.items():
            if show == name or (show is None and name in ("types", "workers", "heat-map")):
                _print_table(name, of(found), show)
        for remark in found.remarks:
            console.print(f"Note: {remark}.", style="yellow", markup=False, soft_wrap=True)
        if show is None:
            print_next("diagnose", table.path, "--view", "steps")


def _print_table(name: str, rows: pd.DataFrame, show: str | None) -> None:
    if name == "heat-map":
        _print_heat_map(rows)
        return
    rows = rows[_STEP_COLUMNS] if name == "steps" else rows.drop(columns=_NARROW.get(name, []))
    print_frame(rows.round(3), "table", title=_TITLES[name], limit=_MOST_ROWS if show is None else 1000)


def _print_heat_map(rows: pd.DataFrame) -> None:
    """Print a sign for each worker and step, or the worst of steps that share a cell; the worst workers."""
    values = rows.drop(columns="rank").to_numpy()
    steps = [name.removeprefix("step ") for name in rows.columns[1:]]
    worst = sorted(values.mean(axis=1).argsort(kind="stable")[::-1][:_MOST_ROWS])
    cells = min(_MOST_CELLS, len(steps))
    bounds = [len(steps) * cell // cells for cell in range(cells + 1)]
    _say(f"{_TITLES['heat-map']}, steps {steps[0]} to {steps[-1]}")
    for row in worst:
        signs = [_sign(values[row, low:high].max()) for low, high in pairwise(bounds)]
        _say(f"{'rank ' + str(rows['rank'][row]):>10} {''.join(signs)}")
    levels = ", ".join(f"{sign} up to {level:g}" for level, sign in _LEVELS.items())
    _say(f"{levels}, {_HIGHEST} more; {len(worst)} of {len(rows)} workers; {len(steps)} steps.")


def _sign(value: float) -> str:
    return next((sign for level, sign in _LEVELS.items() if value <= level), _HIGHEST)


def _say(text: str) -> None:
    console.print(text, markup=False, soft_wrap=True)
