"""Summarise a run: the bound of its step, the largest contributor, advice and qualifiers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ...converter import Workload
from ...converter.building import (
    UNMARKED,
    ProfilerOverhead,
    captured_steps,
    computed_on_host,
    profiler_overhead,
    stand_in_assumption,
    step_choice_text,
    step_times,
)
from ...converter.chakra import DELAYED
from ...converter.kernels import unsized_communication
from ...support import count_text, duration_text, share_text
from ...support.table import CodedColumns, Columns, Table, TableField, frame_of
from .._framed import rows_of
from .._result import Result
from .._traits import about_backend
from ._advised import Advice, Advised, Cause, gain_text, together_text
from ._candidate import ESPECIALLY
from ._collectives import overview_columns, store_and_forward
from ._critical_path import CriticalPath, breakdown_columns, critical_path
from ._foreign_times import foreign_compute, measured_ranks
from ._host_time import contention
from ._labels import lowered
from ._path_facts import NodeFacts

if TYPE_CHECKING:
    import pandas as pd

_EXPOSED = 0.01
_PHRASES = {
    "communication": "communication",
    "compute": "computation",
    "copy": "copies",
    "memory": "remote memory",
    "host": "host work",
    "sync": "synchronisation of the host with the device",
    "wait": "waiting for peers",
    "idle": "idle time",
}
_PHASES = {"forward": "the forward pass", "backward": "the backward pass", "optimizer": "the optimizer"}
_ON_HOST = ("host", "sync")
_ON_DEVICE = {"compute": "compute_ns", "communication": "exposed_comm_ns", "copy": "exposed_copy_ns"}
DEVIATES = 0.1  # fraction of the measured step above which a simulated step's difference is reported
_BUSY = 0.9  # minimum busy fraction of a device that bounds a step without a replay
_CONTRADICTED = 0.5  # fraction of the expected gain below which a what-if contradicts the critical path


@dataclass(frozen=True, eq=False)
class Summary:
    """The summary of a step: a *headline*, and *kinds*, the critical path by kind.

    *ranks* has a row per rank with ``compute_ns, overlap_ns, copy_ns, exposed_comm_ns,
    exposed_copy_ns, idle_ns`` and ``finish_ns``; compute, exposed communication, exposed copies and
    idle time until the last rank finishes add up to the makespan. *qualifiers* are sentences about
    the limits of the answer. *advice* lists changes that would help, and *causes* the largest
    causes of time on the critical path, each with all its pieces. *step* names the captured step
    and why it was chosen. *together* is a sentence about the gain of all advice together, "" if
    that is close to the sum.
    """

    headline: str
    makespan_ns: int
    path: CriticalPath
    kinds: TableField = TableField()
    ranks: TableField = TableField()
    qualifiers: tuple[str, ...] = ()
    advice: tuple[Advice, ...] = ()
    causes: tuple[Cause, ...] = ()
    step: str = ""
    together: str = ""

    def columns(self, name: str) -> Columns:
        """Return the columns of :attr:`kinds` or :attr:`ranks` without building a table."""
        table: Table = vars(self)[name]
        return table.columns()

    def to_json(self) -> dict[str, Any]:
        """Return plain JSON."""
        return {
            "headline": self.headline,
            "qualifiers": list(self.qualifiers),
            "step": self.step,
            "makespan_ns": self.makespan_ns,
            "critical_path_by_kind": rows_of(self.columns("kinds")),
            "causes": [
                asdict(one) | {"share": one.path_ns / max(1, self.makespan_ns)} for one in self.causes
            ],
            "advice": [asdict(one) for one in self.advice],
            "together": self.together,
            "ranks": rows_of(self.columns("ranks")),
        }


def summarize(
    result: Result, workload: Workload, path: CriticalPath | None = None, advised: Advised | None = None
) -> Summary:
    """Summarise the step of *result*, a run of *workload*.

    *path* and *advised* are its critical path and advice if they are already known. Without
    *advised*, gains are upper bounds.
    """
    path = path or critical_path(result, workload)
    if advised is None:
        from ._advice import advise  # noqa: PLC0415 - takes long to import, and most runs have cached advice

        modules = lambda ranks, ids: NodeFacts(workload, ranks, ids).texts("module")  # noqa: E731
        advised = advise(path, result, workload, overview_columns(result, path, modules))
    kinds = breakdown_columns(path, "kind")
    ranks = _rank_columns(result)
    bound = _bound(result, kinds, ranks, advised, workload) if len(kinds["key"]) else _Bound("")
    took = _duration_lead(result.makespan_ns, workload)
    measured = not about_backend(result.backend).network
    headline = _headline(path, kinds, bound, advised, took)
    if not measured and len(path.columns["rank"]):
        headline += _network_cannot_matter(path, kinds, ranks)
    times = step_times(workload.metadata, or_captured=True) if measured else None
    if times is not None and times.matters:
        headline += f" {times.text}"
    qualifiers = _qualifiers(result, workload, bound.kind)
    return Summary(
        headline, result.makespan_ns, path, kinds, ranks, qualifiers,
        advised.advice, advised.causes, step_choice_text(workload.metadata),
        together_text(advised.together_ns),
    )  # fmt: skip


@dataclass(frozen=True)
class _Bound:
    """The *kind* of work that bounds the step, and *why* if the path alone does not show it."""

    kind: str
    why: str = ""


def _bound(result: Result, kinds: Columns, ranks: Columns, advised: Advised, workload: Workload) -> _Bound:
    """Return the largest kind on the path, unless replays or a busy device contradict it.

    A replay contradicts if halving the kind gains less than half of what the critical path
    suggests.
    """
    top, path_ns = str(kinds["key"][0]), int(kinds["duration_ns"][0])
    busy = float(1 - ranks["idle_ns"].mean() / max(1, result.makespan_ns)) if len(ranks["rank"]) else 0.0
    gains = advised.half_kinds_ns
    best = max(gains, key=gains.__getitem__, default=top)
    contradicted = top in gains and gains[top] < _CONTRADICTED * path_ns / 2
    on_host = top in _ON_HOST and not computed_on_host(workload)
    if best != top and contradicted:
        return _Bound(
            best,
            f": halving it gains {duration_text(gains[best])}, but halving {_PHRASES[top]} "
            f"({share_text(kinds['share'][0])} of the critical path) only "
            f"{duration_text(max(0, gains[top]))}",
        )
    if on_host and busy >= _BUSY and (contradicted or top not in gains):
        most = max(_ON_DEVICE, key=lambda kind: int(ranks[_ON_DEVICE[kind]].sum()))
        return _Bound(most, f": the devices are busy for {share_text(busy)} of the step")
    if contradicted:
        beside = (
            f"the devices are busy for {share_text(busy)} of the step"
            if on_host
            else "other work takes nearly as long"
        )
        return _Bound(
            top,
            f": {share_text(kinds['share'][0])} of the critical path, but halving it gains only "
            f"{duration_text(max(0, gains[top]))} because {beside}",
        )
    return _Bound(top)


def _qualifiers(result: Result, workload: Workload, bound_by: str) -> tuple[str, ...]:
    """Return notes on the captured step (profiling, missing parts, machine), and then other notes."""
    texts = [str(line) for key in ("warnings", "assumptions") for line in result.provenance.get(key, [])]
    overhead = profiler_overhead(workload.metadata)
    unsized, unshaped = unsized_communication(workload), ""
    if bound_by == "compute" and not computed_on_host(workload):
        from ._operators import without_shapes  # noqa: PLC0415 - imports all chips

        unshaped = without_shapes(workload.metadata)
    first = [
        _unmarked_steps(workload.metadata),
        stand_in_assumption(workload.metadata),
        foreign_compute(result, workload),
        unsized.text if unsized else "",
        store_and_forward(result),
        contention(workload, result.makespan_ns),
        unshaped,
    ]
    if overhead is not None:
        texts = [line for line in texts if overhead.text not in line]
        first.insert(0, _of_the_profiler(overhead, bound_by))
    return tuple(line for line in dict.fromkeys([*first, *texts]) if line)


def _unmarked_steps(metadata: Mapping[str, Any]) -> str:
    """Return a note on traces without step marks, where several iterations may count as one step."""
    if UNMARKED not in metadata.get("assumptions", ()):
        return ""
    return (
        "No step is marked in the traces, so the whole recording counts as one step, even if it is several "
        "iterations. Next: call `prof.step()` after each iteration of the script."
    )


def _of_the_profiler(overhead: ProfilerOverhead, bound_by: str) -> str:
    """Describe the profiler's overhead in the captured step, as a warning if the host bounds it."""
    text = f"{overhead.text[0].upper()}{overhead.text[1:]}"
    if overhead.host_rescaled:
        return f"{text}; host times were corrected for the profiler."
    if overhead.is_scattered or (overhead.removed_ns and not overhead.matters):
        return f"{text}."
    scale = "'convert --rescale-host' corrects host times for the profiler"
    if overhead.matters and bound_by in _ON_HOST:
        return f"{text}: the profiler may be why the host bounds the captured step; {scale}."
    return f"{text}; {scale}."


def measured_step_ns(workload: Workload) -> int:
    """Return the duration in ns of the captured step on its slowest rank; 0 if unknown."""
    measured = workload.metadata.get("measured_step_ns")
    values = measured.values() if isinstance(measured, Mapping) else [measured]
    return max((int(value) for value in values if isinstance(value, (int, float))), default=0)


def deviates(result: Result, workload: Workload) -> bool:
    """Return whether a simulated step differs by over 10 % from a measured one of as many ranks."""
    step_ns, ranks = measured_step_ns(workload), len(result.columns("ranks")["rank"])
    comparable = about_backend(result.backend).network and ranks == measured_ranks(workload)
    return comparable and abs(result.makespan_ns - step_ns) > DEVIATES * step_ns > 0


def _network_cannot_matter(path: CriticalPath, kinds: Columns, ranks: Columns) -> str:
    causes = breakdown_columns(path, "cause")["key"]
    if (kinds["key"] == "communication").any() or (causes == "communication_call").any():
        return ""
    if (ranks["exposed_comm_ns"] > _EXPOSED * max(1, path.makespan_ns)).any():
        return " No communication is on the critical path, but computation does not cover all communication."
    return " No communication is on the critical path: a faster network cannot shorten the step."


def _measured_text(makespan_ns: int, workload: Workload) -> str:
    """Return the measured step time, with the number of measured ranks if more are simulated."""
    measured_ns, ranks = measured_step_ns(workload), measured_ranks(workload)
    if not measured_ns:
        return ""
    which = f" on {count_text(ranks, 'rank')}" if ranks != workload.num_ranks else ""
    overhead = profiler_overhead(workload.metadata)
    profiled = " with the profiler" if overhead is not None and overhead.removed_ns else ""
    took = duration_text(measured_ns)
    if took == duration_text(makespan_ns) and not which:
        return f" (as measured{profiled})"
    return f" (measured{profiled}{which}: {took})"


def _headline(path: CriticalPath, kinds: Columns, bound: _Bound, advised: Advised, took: str) -> str:
    if not len(path.columns["rank"]):
        return "The step takes no time: every node has a duration of 0."
    late = [one for one in advised.advice[:1] if one.key.startswith("skew:") and not one.is_bound]
    if late and late[0].gain_ns > max(advised.half_kinds_ns.values(), default=0):
        rank, excess = late[0].what.split(" is late", 1)
        text, gain = f"{lowered(rank)}, which is late{excess}", gain_text(late[0])
        return f"{took} bound by {text}; an even load would gain {gain}; {_contributor(path, advised)}."
    cause = _PHRASES.get(bound.kind, bound.kind)
    share = f": {share_text(float(kinds['share'][0]))} of the critical path"
    parts = [_contributor(path, advised), *(lowered(one.what) for one in late)]
    return f"{took} bound by {cause}{bound.why or share}; {'; '.join(parts)}."


def _duration_lead(makespan_ns: int, workload: Workload) -> str:
    """Begin a sentence with the simulated and the measured duration of the step."""
    measured, steps = _measured_text(makespan_ns, workload), captured_steps(workload.metadata)
    on_ranks = f" on {count_text(workload.num_ranks, 'rank')}" * (" on " in measured)
    took = f"{duration_text(makespan_ns)}{on_ranks}{measured}"
    if steps > 1:
        return f"The {steps} steps take {took}, {duration_text(round(makespan_ns / steps))} each, and are"
    return f"The step takes {took} and is"


def _contributor(path: CriticalPath, advised: Advised) -> str:
    """Describe the largest contributor to the path: its name, time and share.

    Unless the contributor is a sum of short segments, the place of its longest segment is also named.
    """
    top = advised.contributor
    if top is None:
        return "nothing on it can be changed"
    segments = path.columns
    # Late ranks are not parts of the path, and usual steps may wait less for a processor.
    causes = [
        one
        for one in advised.causes
        if not one.key.startswith("skew:") and (one.cause != DELAYED or top.cause == DELAYED)
    ]
    largest = max(causes, key=lambda one: one.path_ns, default=top)
    if largest.path_ns > top.path_ns or top.node_id < 0:
        return f"the largest contributor is {_part_text(largest, path)}"
    row = int(np.flatnonzero((segments["rank"] == top.rank) & (segments["node_id"] == top.node_id))[0])
    place = _place(segments, row)
    if top.kind == "communication":
        place = f"{place or '; its longest segment'}: {lowered(path.reason(row))}"
    return f"the largest contributor is {_part_text(top, path)}{place}"


def _part_text(one: Cause, path: CriticalPath) -> str:
    """Describe a cause of time on the path: its name without examples, its time and share."""
    what = one.what.partition(ESPECIALLY)[0]
    is_name = one.kind == "compute" and not one.cause and not one.key.startswith("place:")
    share = share_text(one.path_ns / max(1, path.makespan_ns))
    return f"{what if is_name else lowered(what)} ({duration_text(one.path_ns)}, {share})"


def _place(segments: CodedColumns, row: int) -> str:
    """Return the phase and module that issued the longest segment of a contributor, as text.

    The forward pass is named only with a module, because all work before the backward pass has this phase,
    such as the input pipeline.
    """
    phase, module = str(segments["phase"][row]), str(segments["module"][row])
    phase = _PHASES.get(phase, "") if module or phase != "forward" else ""
    place = " of ".join(word for word in (phase, module) if word)
    return f"; its longest segment is in {place}" if place else ""


def rank_times(result: Result) -> pd.DataFrame:
    """Split each rank's makespan into compute, exposed communication, exposed copies and idle time."""
    return frame_of(_rank_columns(result))


def _rank_columns(result: Result) -> Columns:
    ranks = result.columns("ranks")
    exposed_comm_ns, exposed_copy_ns = ranks["comm_ns"] - ranks["overlap_ns"], ranks["exposed_copy_ns"]
    busy = np.maximum(ranks["compute_ns"] + exposed_comm_ns + exposed_copy_ns, 0)
    return {
        **{name: ranks[name] for name in ("rank", "finish_ns", "compute_ns", "overlap_ns", "copy_ns")},
        "exposed_comm_ns": exposed_comm_ns,
        "exposed_copy_ns": exposed_copy_ns,
        "idle_ns": result.makespan_ns - busy,
    }
