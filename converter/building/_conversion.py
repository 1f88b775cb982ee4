"""Convert selected steps in the traces of a job's ranks to a workload."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import mean, median
from typing import Any

import msgspec
import numpy as np

from ...errors import TraceError
from ...support import duration_text, ranks_text
from ...tracer import MAX_RANKS, StepRange
from ..chakra import Workload
from ..readers import RankTraces, worded_rank
from ._operator_table import joined_operators
from ._rank import open_rank, open_ranks
from ._rank_graph import Group, OpenRank, RankGraph, Selection, lateness, with_uneven_splits
from ._repetition import OPTIMIZER_STEP
from ._stand_ins import (
    GROUP_NAMES,
    STAND_IN_OF,
    STAND_INS,
    STEP_CHOICE,
    UNMARKED,
    measured_alone,
    needs_all_ranks,
    replicas_text,
    stand_ins_text,
    with_stand_ins,
)
from ._steps import StepChoice, choose_steps, is_annotation
from ._trace_identity import as_assumptions, doubts_of_ranks, doubts_of_work
from ._workers import Workers

Progress = Callable[[int, int], None]
# The range of the step times is reported if the mean step is at least this multiple of the median step.
_UNEVEN = 1.1


@dataclass(frozen=True)
class Conversion:
    """The conversion of one *step* of *ranks* to a workload by *workers*.

    *place* names the traces in errors. *facts* become metadata of the workload, and *notes* become
    assumptions of the workload. *job_size* is the number of ranks of the job (0 if unknown). If *job_size* is
    known, replicas replace missing ranks, and *why_missing* is the reason for the missing ranks. *progress*
    is called with (ranks done, ranks).
    """

    ranks: Sequence[RankTraces]
    step: StepChoice
    place: str
    workers: Workers
    progress: Progress | None = None
    facts: Mapping[str, Any] = field(default_factory=dict)
    notes: Sequence[str] = ()
    job_size: int = 0
    why_missing: str = ""

    def workload(self) -> Workload:
        """Return the workload of all ranks; raises errors of `open_ranks`, `choose_steps`, `rank_graph`."""
        ranks = self.ranks
        if is_annotation(self.step):
            ranks = [msgspec.structs.replace(rank, annotation=str(self.step)) for rank in ranks]
        own = replace(self, ranks=ranks, progress=_Rising(self.progress))
        with _without_collector():
            self.workers.finished.begin(ranks)
            opened = own._opened()
            selection = own._selection(opened)
            return own._joined(opened, selection, own._graphs(opened, selection))

    def _report(self, done: int) -> None:
        if self.progress is not None:
            self.progress(done, len(self.ranks))

    def _opened(self) -> list[OpenRank]:
        """Find the steps of all ranks; convert them immediately if the first rank determines the selection.

        With an immediate conversion, large traces are read only once. If another rank contradicts the
        selection, the graphs converted so far are discarded.
        """
        ranks, workers = self.ranks, self.workers
        first = None
        if workers.finished.is_used and not any(rank.steps for rank in ranks):
            first = workers.finished.opened(ranks[0]) or open_rank(ranks[0], keep=False)
        which = self.step if first is None else self._which(first)
        if first is None or (which == "median" and len(first.steps) > 1):
            return open_ranks(ranks, keep=workers.keeps(ranks), threads=workers.readers(ranks))
        steps = frozenset(choose_steps([first.steps], which, self.place))
        return self._converted_at_once(Selection(steps, max(len(ranks), self.job_size, first.world_size)))

    def _converted_at_once(self, selection: Selection) -> list[OpenRank]:
        """Open and convert ranks until a rank contradicts the *selection*, and return all opened ranks."""
        ranks, workers = self.ranks, self.workers
        finished = (workers.finished.opened(rank) for rank in ranks)
        opened = {index: rank for index, rank in enumerate(finished) if rank is not None}
        if opened:
            self._report(len(opened))
        left = [index for index in range(len(ranks)) if index not in opened]
        coming = workers.begun([ranks[index] for index in left], selection)
        with closing(coming):  # type: ignore[type-var]
            for index, rank, well in coming:
                opened[left[index]] = rank
                if len(opened).bit_count() == 1:  # checking after every rank would be slow
                    identities = [opened[place].identity for place in sorted(opened)]
                    as_assumptions(doubts_of_ranks(identities, self.job_size))
                if not well:
                    break
                self._report(len(opened))
        left = [index for index in left if index not in opened]
        rest = [ranks[index] for index in left]
        opened.update(zip(left, open_ranks(rest, keep=False, threads=workers.readers(rest)), strict=True))
        return [opened[index] for index in range(len(ranks))]

    def _which(self, opened: OpenRank) -> StepChoice:
        """Return the requested steps of a rank; the rank's trace resolves an annotation to steps."""
        return opened.which if is_annotation(self.step) else self.step

    def _selection(self, opened: Sequence[OpenRank]) -> Selection:
        """Return the steps to convert and the job's size; raises `TraceError` for files of other ranks."""
        _unify_repetitions(opened)
        as_assumptions(doubts_of_ranks([rank.identity for rank in opened], self.job_size))
        steps, timed = [rank.steps for rank in opened], [rank.own or rank.steps for rank in opened]
        chosen = choose_steps(steps, self._which(opened[0]), self.place, timed)
        world_size = max(len(opened), self.job_size, *(rank.world_size for rank in opened))
        if world_size > MAX_RANKS:
            raise TraceError(
                f"{self.place}: a trace states a job size of {world_size} ranks, which is not plausible. "
                "Next: capture again."
            )
        return Selection(frozenset(chosen), world_size)

    def _graphs(self, opened: Sequence[OpenRank], selection: Selection) -> list[RankGraph]:
        """Return the graphs of all ranks; graphs that were converted before are reused."""
        finished = (self.workers.finished.find(rank, selection) for rank in opened)
        graphs = {index: graph for index, graph in enumerate(finished) if graph is not None}
        self._report(len(graphs))
        left = [index for index in range(len(opened)) if index not in graphs]
        coming = self.workers.graphs([opened[index] for index in left], selection)
        with closing(coming):  # type: ignore[type-var]
            for place, graph in coming:
                graphs[left[place]] = graph
                self._report(len(graphs))
        return [graphs[index] for index in range(len(opened))]

    def _joined(
        self, opened: Sequence[OpenRank], selection: Selection, measured: Sequence[RankGraph]
    ) -> Workload:
        """Join the graphs of *measured* ranks to a workload with the same group numbers on all ranks."""
        facts, world_size = {**self.facts, **self._derived_facts(opened, measured)}, selection.world_size
        ranks, groups, labels = _with_common_groups(measured, world_size)
        notes = [*self.notes, *self._belonging(opened, ranks, selection), *_step_notes(opened, selection)]
        notes += _renumbered(opened)
        facts |= {GROUP_NAMES: labels} if labels else {}
        if self.job_size > len(ranks):
            ranks, groups, stand_ins = with_stand_ins(ranks, groups, self.job_size, self.why_missing)
            replicas = replicas_text(stand_ins)
            facts |= {
                STAND_INS: replicas,
                STAND_IN_OF: {str(rank): other for rank, other in stand_ins.items()},
            }
            notes.insert(0, replicas)
        graphs, uneven = with_uneven_splits(ranks, groups, world_size)
        stated = [rank.stated_rank for rank in opened]
        if world_size > len(graphs) and needs_all_ranks(graphs, groups, world_size):
            graphs, groups, alone, note = measured_alone(graphs, groups, stated, world_size)
            facts, world_size = facts | alone, len(graphs)
        else:
            note = stand_ins_text(len(graphs), world_size, stated) if world_size > len(graphs) else ""
        if note:
            facts[STAND_INS] = note
            notes.append(note)
        facts |= _names(opened[0], selection)
        return Workload(
            graphs=tuple(graphs),
            program_of_rank=np.arange(world_size, dtype=np.int32) % len(graphs),
            groups=groups,
            metadata=_metadata(facts, selection, measured, [*notes, *uneven]),
        )

    def _derived_facts(self, opened: Sequence[OpenRank], measured: Sequence[RankGraph]) -> dict[str, Any]:
        """Return metadata: the reason for the choice of the step, and the lateness of ranks on one host."""
        facts: dict[str, Any] = {}
        count, is_marked = len(opened[0].steps), all(rank.marked for rank in opened)
        if self._which(opened[0]) == "median" and count > 1:
            kind = "captured steps"
            if not is_marked:
                own = opened[0].begins_with.startswith(OPTIMIZER_STEP)
                sign = "calls of the optimizer" if own else "a repeating sequence"
                kind = f"unmarked steps, detected by {sign}"
            facts[STEP_CHOICE] = (
                f"the median of {count} {kind}{_spread(opened)}, by the time of the slowest rank"
            )
        if len({rank.host for rank in self.ranks}) == 1 and self.ranks[0].host:
            facts |= lateness({one.rank: one.arrivals for one in measured})
        return facts

    def _belonging(
        self, opened: Sequence[OpenRank], ranks: Sequence[RankGraph], selection: Selection
    ) -> list[str]:
        """Return doubts about whether traces belong together; raises `TraceError` if a doubt is certain."""
        identities = [rank.identity for rank in ranks if rank.identity is not None]
        spans = {
            rank.traces.rank: next(step for step in rank.steps if step.index in selection.steps)
            for rank in opened
        }
        of_work = doubts_of_work([rank.graph for rank in ranks], spans, self.place)
        return as_assumptions([*doubts_of_ranks(identities, self.job_size), *of_work])


def _spread(opened: Sequence[OpenRank]) -> str:
    """Return the range and the mean of the steps' durations as text, or "" if the mean is about the median.

    The durations are those of the slowest rank.
    """
    longest: dict[int, int] = {}
    for step in (step for rank in opened for step in rank.steps):
        longest[step.index] = max(longest.get(step.index, 0), step.end_ns - step.start_ns)
    taken = sorted(longest.values())
    if mean(taken) < _UNEVEN * median(taken):
        return ""
    least, most, usual = (duration_text(round(ns)) for ns in (taken[0], taken[-1], mean(taken)))
    return f" ({least} to {most}, mean {usual})"


class _Rising:
    """A progress callback that reports only increasing numbers of finished ranks."""

    def __init__(self, progress: Progress | None) -> None:
        self._progress, self._most = progress, 0

    def __call__(self, done: int, total: int) -> None:
        if self._progress is not None and done > self._most:
            self._most = done
            self._progress(done, total)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the cyclic garbage collector, which would traverse millions of live records repeatedly."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _unify_repetitions(opened: Sequence[OpenRank]) -> None:
    """If ranks have different numbers of repetitions, treat each trace without marked steps as one step."""
    if len({(len(rank.steps), rank.begins_with) for rank in opened}) > 1:
        for rank in opened:
            if not rank.marked:
                rank.steps, rank.own = [StepRange(0, rank.steps[0].start_ns, rank.steps[-1].end_ns)], []


def _renumbered(opened: Sequence[OpenRank]) -> list[str]:
    """Return a note if file names state ranks other than the assigned ranks, and the traces state no rank."""
    words = [worded_rank(rank.traces.device_path) for rank in opened]
    named, shown = [rank for rank in words if rank is not None], [rank.traces.rank for rank in opened]
    if len(named) < len(shown) or named == shown or any(rank.stated_rank >= 0 for rank in opened):
        return []
    return [
        f"the traces contain no rank: their file names have rank {ranks_text(named)}, but "
        f"they are numbered as rank {ranks_text(shown)} of a job of {len(opened):,}"
    ]


def _step_notes(opened: Sequence[OpenRank], selection: Selection) -> list[str]:
    """Return assumptions about traces with steps that are unmarked or have different names on ranks."""
    first = opened[0]
    notes = []
    if not all(rank.marked for rank in opened):
        notes.append(_unmarked(first))
    for rank in opened[1:]:
        for index in sorted(selection.steps):
            one, other = first.names.get(index, ""), rank.names.get(index, "")
            if one != other:
                differing = (
                    f"the ranks name their steps differently: step {index} is '{one}' on rank "
                    f"{first.traces.rank} and '{other}' on rank {rank.traces.rank}"
                )
                return [*notes, differing]
    return notes


def _unmarked(first: OpenRank) -> str:
    """Return the assumption about the steps of traces without marked steps; *first* is the first trace."""
    count = len(first.steps)
    if count == 1:
        return UNMARKED
    if first.begins_with.startswith(OPTIMIZER_STEP):
        pieces, parts = f"intervals that end with '{first.begins_with}'", True
    else:
        pieces, parts = "repetitions in them", count > 2
    return f"no step is marked in the traces: each of the {count:,} {pieces} counts as one step" + (
        " (the first and the last may be incomplete)" if parts else ""
    )


def _with_common_groups(
    ranks: Sequence[RankGraph], world_size: int
) -> tuple[list[RankGraph], dict[int, tuple[int, ...]], dict[str, str]]:
    """Give process groups the same numbers on all ranks; also return the numbers' members and labels.

    The default group of all ranks is number 0. A second group of all ranks has a separate number if ranks use
    both groups.
    """
    everyone = tuple(range(world_size))
    used = sorted({group for one in ranks for group in one.groups})
    shared = {members for members, count in Counter(members for members, _ in used).items() if count > 1}
    ids: dict[Group, int] = {}
    for members, label in used:
        is_default = members == everyone and (label == "" or members not in shared)
        ids[members, label] = 0 if is_default else 1 + len([number for number in ids.values() if number])
    result = []
    for one in ranks:
        table = np.array([0, *(ids[group] for group in one.groups)], dtype=np.int64)
        result.append(replace(one, graph=one.graph.derived(group=partial(_numbered, table))))
    numbered = {number: group for group, number in ids.items() if number}
    labels = {str(number): label for number, (_, label) in numbered.items() if label}
    return result, {number: members for number, (members, _) in numbered.items()}, labels


def _numbered(table: np.ndarray, columns: Mapping[str, Any]) -> np.ndarray:
    numbers: np.ndarray = table[columns["group"]]
    return numbers


def _names(rank: OpenRank, selection: Selection) -> dict[str, dict[str, str]]:
    """Return metadata with the annotations of selected steps by step number; {} if there are none."""
    names = {str(index): rank.names[index] for index in sorted(selection.steps) if index in rank.names}
    return {"step_names": names} if names else {}


def _metadata(
    facts: Mapping[str, Any], selection: Selection, ranks: Sequence[RankGraph], notes: Sequence[str]
) -> dict[str, Any]:
    """Return JSON-able metadata on the origin of the workload, with the figures of the measured *ranks*."""
    noted = sorted({note for one in ranks for note in one.notes})
    return {
        "captured": True,
        **facts,
        "steps": sorted(selection.steps),
        "measured_step_ns": {str(one.rank): one.accounting["measured_step_ns"] for one in ranks},
        "accounting": {str(one.rank): one.accounting for one in ranks},
        "began_ns": {str(one.rank): one.began_ns for one in ranks},
        "step_shares": {str(one.rank): one.step_shares for one in ranks},
        "chips": {str(one.rank): one.chip for one in ranks},
        "operators": joined_operators({one.rank: one.operators for one in ranks}),
        "repeated": {str(one.rank): [*one.repeated] for one in ranks if one.repeated},
        "shared_inputs": {str(one.rank): [*one.shared_inputs] for one in ranks if len(one.shared_inputs)},
        "assumptions": [*notes, *noted],
    }
