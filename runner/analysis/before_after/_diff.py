"""Compare the steps of two sides, and split their difference into parts that add up exactly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from ....converter.building import MATRIX_CLASSES
from ....errors import ConfigError, did_you_mean
from ....support import change_text, count_text, delta_text, duration_text, share_text
from ....support.table import Ints
from ..._notebook import Bar, Figure, bars, block, html_table
from .._choices import PARTS
from ._noise import MIN_STARTS, Differences, Layout, differences
from ._step import FIGURES, Step

_BLANKS = {"duration_ns": 0, "start_ns": -1, "rank": -1, "node_id": -1, "segments": 0}
SHORT = "short pieces"
_MIN_COMMON = 0.5  # below this fraction of operator calls in common, the programs look different
_MAX_LEGS = 800  # maximum number of legs to align, in quadratic time


def path_legs(segments: pd.DataFrame) -> pd.DataFrame:
    """Merge consecutive *segments* of the same part into legs, with ``part``, ``start_ns`` and more.

    If there are more than 800 legs, consecutive short ones are merged, too.
    """
    legs = _joined(segments.assign(segments=1), segments["part"])
    if len(legs) > _MAX_LEGS:
        longest = legs["duration_ns"].nlargest(_MAX_LEGS // 2).index
        legs = _joined(legs, legs["part"].where(legs.index.isin(longest), SHORT))
    return legs


def _joined(rows: pd.DataFrame, parts: pd.Series) -> pd.DataFrame:
    """Merge consecutive *rows* with equal *parts*."""
    leg = (parts != parts.shift()).cumsum()
    table: pd.DataFrame = (
        rows.assign(part=parts)
        .groupby(leg, sort=False)
        .agg(
            part=("part", "first"),
            rank=("rank", "first"),
            node_id=("node_id", "first"),
            start_ns=("start_ns", "min"),
            duration_ns=("duration_ns", "sum"),
            segments=("segments", "sum"),
        )
        .reset_index(drop=True)
    )
    return table


def paths_side_by_side(base: pd.DataFrame, other: pd.DataFrame) -> pd.DataFrame:
    """Return a row per leg of either path, with ``part, base_ns, other_ns, delta_ns, change`` and more.

    A leg of only one path is marked ``new`` or ``gone`` in ``change``, and has time 0 on the other path, so
    that each column of times adds up to its step.
    """
    matcher = SequenceMatcher(None, base["part"].tolist(), other["part"].tolist(), autojunk=False)
    pairs: list[tuple[int, int]] = []
    for tag, a0, a1, b0, b1 in matcher.get_opcodes():
        if tag == "equal":
            pairs += zip(range(a0, a1), range(b0, b1), strict=True)
        else:
            pairs += [(row, -1) for row in range(a0, a1)] + [(-1, row) for row in range(b0, b1)]
    places = np.array(pairs, dtype=np.int64).reshape(-1, 2)
    sides = {}
    for which, (side, legs) in enumerate((("base", base), ("other", other))):
        sides[side] = legs.reindex(places[:, which]).reset_index(drop=True)
    missing = [places[:, 0] < 0, places[:, 1] < 0]
    table = pd.DataFrame({"part": sides["base"]["part"].where(~missing[0], sides["other"]["part"])})
    for name in ("base", "other"):
        for column, blank in _BLANKS.items():
            stem, unit = column.removesuffix("_ns"), "_ns" * column.endswith("_ns")
            target = f"{name}_ns" if column == "duration_ns" else f"{stem}_{name}{unit}"
            table[target] = sides[name][column].fillna(blank).astype(np.int64)
    table["delta_ns"] = table["other_ns"] - table["base_ns"]
    table["change"] = np.select(missing, ["new", "gone"], "")
    lead = ["part", "base_ns", "other_ns", "delta_ns", "change"]
    ordered: pd.DataFrame = table[[*lead, *(name for name in table.columns if name not in lead)]]
    return ordered


VERDICTS = ("more", "less", "same", "within noise", "undecided")
"""The verdicts on a difference; ``undecided`` means that the noise is unknown."""
VERDICT_COLOURS = dict.fromkeys(VERDICTS, "#a9b1ba") | {"more": "#d55e00", "less": "#1b9e77"}
"""The colour of each verdict in figures; grey differences may be noise."""
# An operator of these classes computes a whole layer, so a new operator replaces a removed operator of the
# same class.
_LAYERS = (*MATRIX_CLASSES, "normalization", "softmax", "embedding")
_FIGURES = ("base_ns", "other_ns", "delta_ns", "low_ns", "high_ns")


@dataclass(frozen=True, eq=False)
class Side:
    """One side of a comparison and its steps; *notes* list the steps that were used or left out."""

    name: str
    steps: tuple[Step, ...]
    notes: tuple[str, ...] = ()

    @property
    def starts(self) -> tuple[tuple[int, ...], ...]:
        """The indices of the steps of each start of the job."""
        medians: dict[str, list[int]] = {}
        for place, step in enumerate(self.steps):
            medians.setdefault(step.start, []).append(place)
        return tuple(map(tuple, medians.values()))

    @property
    def median(self) -> Step:
        """The step with the lower median duration, which represents the side."""
        return sorted(self.steps, key=lambda step: step.makespan_ns)[(len(self.steps) - 1) // 2]


class StepDiff:
    """The changes from *base* to *other*; tables are computed at first use, and times are in ns.

    All tables have the medians over steps, ``base_ns`` and ``other_ns``, their ``delta_ns`` with
    the confidence interval ``low_ns`` to ``high_ns``, and a ``verdict``, one of :data:`VERDICTS`.
    ``change`` marks rows that are ``new`` or ``gone``.
    """

    def __init__(self, base: Side, other: Side, between_starts: float | None = None) -> None:
        self.base, self.other = base, other
        both = (*base.steps, *other.steps)
        exact = all(step.exact for step in both) and len(both) == 2
        self.layout = Layout(base.starts, other.starts, exact, between_starts)

    @property
    def delta_ns(self) -> int:
        """The median step time of the other side minus that of the base, in ns."""
        return self.other.median.makespan_ns - self.base.median.makespan_ns

    def table(self, name: str, by: str = "part") -> pd.DataFrame:
        """Return the table *name* in :data:`DIFF_TABLES`; *by* is for the waterfall."""
        table: pd.DataFrame = self.waterfall(by) if name == "waterfall" else getattr(self, name)
        return table

    @cached_property
    def figures(self) -> pd.DataFrame:
        """Figures of the step, such as ``compute``: ``quantity, unit, base, other, delta`` and more."""
        names = [name for name in self.base.steps[0].figures if name in self.other.steps[0].figures]
        sides = [
            np.array([[step.figures.get(name, 0) for step in side.steps] for name in names], dtype=np.int64)
            for side in (self.base, self.other)
        ]
        table = self._compared(pd.DataFrame({"quantity": names}), *sides)
        # A count or size that is the same in all steps of a side has no noise.
        sure = np.array([FIGURES[name] != "ns" for name in names])
        for side in sides:
            sure &= np.ptp(side, axis=1) == 0
        for column in ("low_ns", "high_ns"):
            table.loc[sure, column] = table.loc[sure, "delta_ns"]
        verdicts = np.select([table["delta_ns"] > 0, table["delta_ns"] < 0], ["more", "less"], "same")
        table["verdict"] = table["verdict"].where(~sure, verdicts)
        table.insert(1, "unit", [FIGURES[name] for name in names])
        named: pd.DataFrame = table.rename(columns={name: name.removesuffix("_ns") for name in _FIGURES})
        return named

    @cached_property
    def operators(self) -> pd.DataFrame:
        """The device work of the median steps, as means over ranks, by operator, and idle time.

        Overlapping time counts once, so ``delta_ns`` adds up exactly to the difference of the steps;
        ``total_*`` includes overlaps. ``kernel_*`` is the operator's longest work. An operator and its
        replacement of the same class share a row with both names. The largest absolute differences come
        first.
        """
        keys = ["key", "class"]
        rows = self._summed(keys, lambda step: step.operators.set_index(keys)["time_ns"])
        for side, step in (("base", self.base.median), ("other", self.other.median)):
            own = step.operators.assign(key=step.operators["key"].replace(self._replaced)).set_index(keys)
            own = own.reindex(pd.MultiIndex.from_frame(rows[keys]))
            for column in ("count", "total_ns", "on_path_ns"):
                stem, unit = column.removesuffix("_ns"), "_ns" * column.endswith("_ns")
                rows[f"{stem}_{side}{unit}"] = own[column].fillna(0).to_numpy(np.int64)
            rows[f"kernel_{side}"] = own["kernel"].fillna("").to_numpy()
        return rows

    @cached_property
    def classes(self) -> pd.DataFrame:
        """The device work by class of operators (see :attr:`operators`)."""
        return self._summed(["key"], lambda step: step.operators.groupby("class")["time_ns"].sum())

    @cached_property
    def modules(self) -> pd.DataFrame:
        """The time of each module and kind without submodules, as a mean over the ranks."""
        return self._table("modules", ["key", "kind"], "time_ns")

    @cached_property
    def collectives(self) -> pd.DataFrame:
        """The time of collectives by operation, size and group, including waits (``wait_*``)."""
        keys = ["key", "operation", "size_bytes", "group"]
        return self._table("collectives", keys, "wait_ns", "transfer_ns")

    def waterfall(self, by: str = "part") -> pd.DataFrame:
        """Split the difference of the median steps *by* one of :data:`PARTS`; ``delta_ns`` adds up exactly.

        A row is a part of the critical path, and ``from_ns`` to ``to_ns`` its bar between the two
        steps. The confidence interval comes from all steps.
        """
        if by not in PARTS:
            raise ConfigError(f"The difference has no breakdown by '{by}'{did_you_mean(by, PARTS)}")
        table = self._summed(["key"], lambda step: step.segments.groupby(by)["duration_ns"].sum())
        table["to_ns"] = self.base.median.makespan_ns + table["delta_ns"].cumsum()
        table["from_ns"] = table["to_ns"] - table["delta_ns"]
        lead = ["key", *_FIGURES, "from_ns", "to_ns", "verdict", "change"]
        ordered: pd.DataFrame = table[lead]
        return ordered

    @cached_property
    def paths(self) -> pd.DataFrame:
        """The aligned critical paths of the two median steps (see :func:`paths_side_by_side`)."""
        return paths_side_by_side(*(path_legs(side.median.segments) for side in (self.base, self.other)))

    @cached_property
    def _replaced(self) -> dict[str, str]:
        """Map a removed operator and the new operator that replaces it to a common name."""
        names: dict[tuple[str, bool], list[set[str]]] = {}
        for place, side in enumerate((self.base, self.other)):
            for step in side.steps:
                own = step.operators[step.operators["class"].isin(_LAYERS)]
                for name, kind in zip(own["key"], own["class"], strict=True):
                    names.setdefault((kind, "backward" in name), [set(), set()])[place].add(name)
        replacements: dict[str, str] = {}
        for before, after in names.values():
            if len(before - after) == len(after - before) == 1:
                (gone,), (new,) = before - after, after - before
                replacements |= dict.fromkeys((gone, new), f"{gone} → {new}")
        return replacements

    def _summed(self, keys: Sequence[str], times: Callable[[Step], pd.Series]) -> pd.DataFrame:
        """Compare the *times* of all steps by *keys*, and add the exact times of the median steps."""

        def renamed(step: Step) -> pd.Series:
            table = times(step).rename_axis([*keys]).rename("ns").reset_index()
            table["key"] = table["key"].replace(self._replaced)
            sums: pd.Series = table.groupby([*keys])["ns"].sum()
            return sums

        sides = [[renamed(step) for step in side.steps] for side in (self.base, self.other)]
        rows = sides[0][0].index
        for sums in (*sides[0], *sides[1]):
            rows = rows.union(sums.index)
        samples = [np.stack([sums.reindex(rows, fill_value=0) for sums in side], axis=1) for side in sides]
        table = self._compared(rows.to_frame(index=False), *samples)
        for column, side in (("base_ns", self.base), ("other_ns", self.other)):
            table[column] = renamed(side.median).reindex(rows, fill_value=0).to_numpy()
        table["delta_ns"] = table["other_ns"] - table["base_ns"]
        table["relative"] = table["delta_ns"] / table["base_ns"].where(table["base_ns"] != 0)
        return _largest_first(table)

    def _table(self, name: str, keys: list[str], *times: str) -> pd.DataFrame:
        """Compare the table *name* of all steps by the sums of its columns *times*."""
        sides = [
            [getattr(step, name).set_index(keys) for step in side.steps] for side in (self.base, self.other)
        ]
        rows = sides[0][0].index
        for table in (*sides[0], *sides[1]):
            rows = rows.union(table.index)
        sides = [[table.reindex(rows, fill_value=0) for table in side] for side in sides]

        def samples(columns: Sequence[str]) -> tuple[Ints, Ints]:
            base, other = (np.stack([t[list(columns)].sum(axis=1) for t in side], axis=1) for side in sides)
            return base, other

        counts = samples(["count"])
        compared = self._compared(rows.to_frame(index=False), *samples(times), counts=counts)
        for column in ("count", "on_path_ns", *(times if len(times) > 1 else ())):
            both = differences(*samples([column]), self.layout)
            stem, unit = column.removesuffix("_ns"), "_ns" * column.endswith("_ns")
            compared[f"{stem}_base{unit}"], compared[f"{stem}_other{unit}"] = both.base, both.other
        return _largest_first(compared)

    def _compared(self, rows: pd.DataFrame, base: Ints, other: Ints, *, counts: Any = None) -> pd.DataFrame:
        """Add differences between the samples of two sides, and the verdicts, to *rows*."""
        intervals = differences(base, other, self.layout)
        there = [(side > 0).any(axis=1) for side in (counts or (base, other))]
        change = np.select([~there[0] & there[1], there[0] & ~there[1]], ["new", "gone"], "")
        relative = intervals.delta / np.where(intervals.base == 0, np.nan, intervals.base)
        verdicts: pd.DataFrame = rows.assign(
            base_ns=intervals.base, other_ns=intervals.other, delta_ns=intervals.delta, relative=relative,
            low_ns=intervals.low, high_ns=intervals.high, verdict=self._verdicts(intervals), change=change,
        )  # fmt: skip
        return verdicts

    def _verdicts(self, found: Differences) -> Any:
        same = (found.low == 0) & (found.high == 0) & (found.delta == 0)
        if not self.layout.decides:
            return np.where(same, "same", "undecided")
        return np.select([same, found.low > 0, found.high < 0], ["same", "more", "less"], "within noise")

    @property
    def noise(self) -> str:
        """A sentence on how the noise of the differences was estimated."""
        layout = self.layout
        if layout.exact:
            return "Both are simulated: the same input always gives the same times, so there is no noise."
        if self.base.steps[0].exact != self.other.steps[0].exact:
            return (
                "One side is simulated and the other measured, so the difference includes the error of the "
                "simulation."
            )
        if layout.units == (1, 1):
            return (
                "The noise is unknown, because each side has only one step. Next: capture several steps from "
                "several starts of the job."
            )
        counts = " and ".join(
            f"{count_text(len(side.steps), 'step')} from {count_text(len(side.starts), 'start')}"
            for side in (self.base, self.other)
        )
        what = "the median step of each start" if layout.by_starts else "the steps"
        text = f"Noise: {share_text(layout.confidence)} confidence interval from {what} ({counts})"
        if not layout.by_starts and layout.between_starts is not None:
            text += f", plus {share_text(layout.between_starts)} between starts (--between-starts)"
        if layout.decides:
            return f"{text}."
        return (
            f"{text}. The variation between starts of the job is unknown, so a change cannot be "
            f"distinguished from noise: capture {MIN_STARTS} starts on each side, or give this variation "
            "with --between-starts."
        )

    @property
    def headline(self) -> str:
        """The change of the step time and its largest contribution, in one or two sentences."""
        step = self.figures.iloc[0]
        base, other = int(step["base"]), int(step["other"])
        covers = self.base.steps[0].covers
        takes = "The step takes" if covers == 1 else f"The {covers} steps take"
        if base == other:
            return f"{takes} {duration_text(other)} on both sides: no difference."
        way = "up" if other > base else "down"
        lead = f"{takes} {duration_text(other)}, {way} from {duration_text(base)}"
        change = f"{delta_text(self.delta_ns)} ({change_text(self.delta_ns / max(1, base))})"
        interval = f"{delta_text(int(step['low']))} to {delta_text(int(step['high']))}"
        limits_text = {
            "within noise": f", within the noise ({interval})",
            "undecided": "; it is unknown whether the change is more than noise",
        }.get(str(step["verdict"]), "" if self.layout.exact else f", beyond the noise ({interval})")
        return f"{lead}: {change}{limits_text}.{self._largest()}"

    def _largest(self) -> str:
        """Name the largest differences on the critical path, by part and by class."""
        part, by_class = (_largest_row(self.waterfall(by), self.delta_ns) for by in ("part", "class"))
        if part is None:
            return ""
        is_sure = part["verdict"] in ("more", "less") and not self.layout.exact
        suffix = " beyond the noise" * is_sure
        text = f" The part of the critical path that changes most{suffix} is {part['key']}"
        text += f", {delta_text(int(part['delta_ns']))}"
        if by_class is not None:
            text += f"; the class of operators that changes most is {by_class['key']}"
            text += f", {delta_text(int(by_class['delta_ns']))}"
        return f"{text}."

    def waterfall_bars(self, by: str, most: int) -> tuple[list[Bar], float]:
        """Return the bars of the :meth:`waterfall` *by* one of :data:`PARTS`, and the start of their axis.

        The bars are the median step before, the *most* largest differences, all others as one bar, and
        the median step after.
        """
        before, after = self.base.median.makespan_ns, self.other.median.makespan_ns
        table = self.waterfall(by)
        table = table[table["delta_ns"] != 0]
        rows = [
            Bar(
                str(row["key"]),
                row["from_ns"],
                row["to_ns"],
                delta_text(row["delta_ns"]),
                VERDICT_COLOURS[row["verdict"]],
            )
            for row in table.head(most).to_dict("records")
        ]
        rest = int(table["delta_ns"].iloc[most:].sum())
        if rest:
            text = delta_text(rest)
            rows.append(Bar("everything else", after - rest, after, text, VERDICT_COLOURS["undecided"]))
        between = [value for row in rows for value in (row.start, row.end)] or [0, before]
        low = max(0.0, min(between) - 0.15 * (max(between) - min(between)))
        ends = [Bar("before", 0, before, duration_text(before)), Bar("after", 0, after, duration_text(after))]
        return [ends[0], *rows, ends[1]], low

    def figure(self, by: str = "part", most: int = 12) -> Figure:
        """Return a chart of the :meth:`waterfall` *by* one of :data:`PARTS`, between the two median steps."""
        rows, low = self.waterfall_bars(by, most)
        title = f"{self.base.name} to {self.other.name}; the axis begins at {duration_text(round(low))}"
        return bars(rows, title, low=low)

    def _repr_html_(self) -> str:
        shown = ["key", "base_ns", "other_ns", "delta_ns", "verdict", "change"]
        parts = [
            html_table(
                self.waterfall()[shown], "By part of the critical path; the differences add up exactly"
            ),
            html_table(self.modules[["kind", *shown]], "Modules, mean over the ranks"),
        ]
        return block(self.headline, *parts, notes=[self.noise, *self.base.notes, *self.other.notes])

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON without the long tables."""
        return {
            "headline": self.headline,
            "noise": self.noise,
            "delta_ns": self.delta_ns,
            "sides": [
                {
                    "name": side.name,
                    "steps": [{"name": step.name, "step_ns": step.makespan_ns} for step in side.steps],
                    "starts": len(side.starts),
                    "notes": list(side.notes),
                }
                for side in (self.base, self.other)
            ],
        }


def _largest_row(rows: pd.DataFrame, delta_ns: int) -> pd.Series | None:
    """Return the first row beyond the noise, otherwise the first row with the sign of *delta_ns*."""
    sure = rows[rows["verdict"].isin(["more", "less"])]
    alike = rows[np.sign(rows["delta_ns"]) == np.sign(delta_ns)]
    chosen = alike if sure.empty else sure
    return None if chosen.empty else chosen.iloc[0]


def diff_steps(base: Side, other: Side, *, between_starts: float | None = None) -> StepDiff:
    """Return the changes from *base* to *other*.

    *between_starts* is the known relative variation between starts of the job, which is required for sides
    with fewer than four starts. Raises `ConfigError` for a side without steps, or sides whose steps hold
    different numbers of training steps.
    """
    for side in (base, other):
        if not side.steps:
            raise ConfigError(
                f"{side.name} has no step to compare. Next: capture a step, or simulate a workload."
            )
    covered = {step.covers: step.name for side in (base, other) for step in side.steps}
    if len(covered) > 1:
        counts = " and ".join(f"{count_text(number, 'step')} ({name})" for number, name in covered.items())
        raise ConfigError(
            f"The two sides cover different numbers of training steps: {counts}. Next: compare runs that "
            "cover the same number of steps, or captures, which are compared step by step."
        )
    note = _program_note(base.median, other.median)
    return StepDiff(base, replace(other, notes=(*other.notes, note)) if note else other, between_starts)


def _program_note(base: Step, other: Step) -> str:
    """Return a sentence if the operator calls of two steps differ so much that the programs must differ."""
    calls = [
        step.operators[step.operators["key"] != "idle"].groupby("key")["count"].sum()
        for step in (base, other)
    ]
    both = pd.concat(calls, axis=1).fillna(0)
    all_calls, common = both.max(axis=1).sum(), both.min(axis=1).sum()
    if not all_calls or common >= _MIN_COMMON * all_calls:
        return ""
    return (
        f"{base.name} and {other.name} look like different programs: {share_text(common / all_calls)} of the "
        f"operator calls of a rank occur in both ({int(calls[0].sum()):,} and {int(calls[1].sum()):,} calls)."
    )


def _largest_first(table: pd.DataFrame) -> pd.DataFrame:
    order = (-table["delta_ns"].abs()).argsort(kind="stable")
    ordered: pd.DataFrame = table.iloc[order].reset_index(drop=True)
    return ordered
