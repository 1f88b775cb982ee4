"""Answer the first question, what bounds the step."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter import Workload
from ...converter.building import (
    ProfilerOverhead,
    captured_steps,
    computed_on_host,
    profiler_overhead,
    stood_in,
)
from ...converter.kernels import unsized_communication
from ...support import count_text, duration_text, share_text
from .._captured import is_captured
from .._framed import columns_of, frame_of, framed, later, rows_of, sums_by
from .._recorded_nodes import Columns
from .._result import Result
from ._critical_path import CriticalPath, breakdown_columns, critical_path
from ._foreign_times import cpu_times, measured_ranks

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["TIME_FORMULA", "Summary", "rank_times", "summarize"]

TIME_FORMULA = (
    "compute + exposed communication + exposed copies + idle = the step; exposed communication is what no "
    "computation covers (communication - overlap), exposed copies what neither covers"
)

_ALMOST_ALL = 0.995
_HALF = 0.5
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
_NAMED_AS_WHOLE = ("host", "wait", "idle")  # their names are those of what comes after
_WITHOUT_NETWORK = ("replay", "fake")


@framed("kinds", "ranks")
@dataclass(frozen=True, eq=False)
class Summary:
    """What bounds a step. *headline* is one sentence; *kinds* is the critical path by kind.

    *ranks* has a row per rank: ``compute_ns, overlap_ns, copy_ns, exposed_comm_ns, exposed_copy_ns, idle_ns``
    and ``finish_ns``, where compute, exposed communication, exposed copies and idle time (here: until the
    last rank finishes) add up to the makespan.
    *qualifiers* are sentences on what makes the answer less than it seems, to be read before it.
    """

    headline: str
    makespan_ns: int
    kinds: pd.DataFrame
    ranks: pd.DataFrame
    path: CriticalPath
    qualifiers: tuple[str, ...] = ()

    def columns(self, name: str) -> Columns:
        """Return the columns of :attr:`kinds` or :attr:`ranks`, without a table being made."""
        return columns_of(vars(self)[name])

    def to_json(self) -> dict[str, Any]:
        """Return the summary as plain JSON."""
        return {
            "headline": self.headline,
            "qualifiers": list(self.qualifiers),
            "makespan_ns": self.makespan_ns,
            "critical_path_by_kind": rows_of(self.columns("kinds")),
            "ranks": rows_of(self.columns("ranks")),
        }


def summarize(result: Result, workload: Workload, path: CriticalPath | None = None) -> Summary:
    """Return what bounds the step of *result*, whose programs are *workload*'s.

    *path* is its critical path, if that is known.
    """
    path = path or critical_path(result, workload)
    kinds = breakdown_columns(path, "kind")
    headline = _headline(path, kinds, _measured_text(workload), captured_steps(workload.metadata))
    if result.backend not in _WITHOUT_NETWORK and len(path.columns["rank"]):
        headline += _network_cannot_matter(path, kinds)
    qualifiers = _qualifiers(result, workload, kinds)
    ranks = later(_rank_columns(result))
    return Summary(headline, result.makespan_ns, later(kinds), ranks, path, qualifiers)


def _qualifiers(result: Result, workload: Workload, kinds: Columns) -> tuple[str, ...]:
    """Return what the captured step is not: unprofiled, whole, of this machine; then what else was said."""
    said = [str(line) for key in ("warnings", "assumptions") for line in result.provenance.get(key, [])]
    overhead = profiler_overhead(workload.metadata)
    unsized = unsized_communication(workload)
    first = [stood_in(workload.metadata), _of_the_chip(result, workload), unsized.text if unsized else ""]
    if overhead is not None:
        said = [line for line in said if overhead.text not in line]
        first.insert(0, _of_the_profiler(overhead, workload, kinds))
    return tuple(line for line in dict.fromkeys([*first, *said]) if line)


def _of_the_chip(result: Result, workload: Workload) -> str:
    """Return that CPUs computed what is simulated on a machine of accelerators, or nothing."""
    if result.backend in _WITHOUT_NETWORK or not is_captured(workload.metadata):
        return ""
    if not computed_on_host(workload):
        return ""
    found = cpu_times(result.provenance.get("network", {}), result.provenance.get("system", {}))
    return "" if found is None else found.text


def _of_the_profiler(overhead: ProfilerOverhead, workload: Workload, kinds: Columns) -> str:
    """Return how far the captured step is from an unprofiled one; more of it where the host bounds it."""
    said = f"{overhead.text[0].upper()}{overhead.text[1:]}"
    if overhead.host_rescaled:
        return f"{said}; host time was scaled by it."
    if overhead.is_scattered:
        return f"{said}."
    on_host = ["host", "sync", *(["compute"] if computed_on_host(workload) else [])]
    scale = "'convert --rescale-host' scales host time by it"
    if overhead.matters and kinds["share"][np.isin(kinds["key"], on_host)].sum() > _HALF:
        return f"{said}: the profiler may be why the host bounds this one; {scale}."
    return f"{said}; {scale}."


def _measured_ns(workload: Workload) -> int:
    """Return how long the step took when it was captured, on the rank where it took longest; 0 if unknown."""
    measured = workload.metadata.get("measured_step_ns")
    values = measured.values() if isinstance(measured, Mapping) else [measured]
    return max((int(value) for value in values if isinstance(value, (int, float))), default=0)


def _network_cannot_matter(path: CriticalPath, kinds: Columns) -> str:
    causes = breakdown_columns(path, "cause")["key"]
    if (kinds["key"] == "communication").any() or (causes == "communication_call").any():
        return ""
    return " No communication is on the critical path: a faster network cannot shorten the step."


def _measured_text(workload: Workload) -> str:
    """Return the measured step in words; of how many ranks, where more are simulated."""
    measured_ns, ranks = _measured_ns(workload), measured_ranks(workload)
    if not measured_ns:
        return ""
    which = f" on {count_text(ranks, 'rank')}" if ranks != workload.num_ranks else ""
    return f" (measured{which}: {duration_text(measured_ns)})"


def _headline(path: CriticalPath, kinds: Columns, measured: str, steps: int = 1) -> str:
    if not len(path.columns["rank"]):
        return "The step takes no time: every node has a duration of 0."
    top = str(kinds["key"][0])
    share = share_text(float(kinds["share"][0]))
    cause = _PHRASES.get(top, top)
    took = f"The step takes {duration_text(path.makespan_ns)}{measured} and is"
    if steps > 1:
        each = duration_text(round(path.makespan_ns / steps))
        took = f"The {steps} steps take {duration_text(path.makespan_ns)}{measured}, {each} each, and are"
    lead = f"{took} bound by {cause}: {share}"
    return f"{lead} of the critical path; {_contributor(path)}."


def _contributor(path: CriticalPath) -> str:
    """Return what holds the largest share of the path, of any kind: what it is and where it was issued.

    A name counts once for all of its segments; kinds whose names say nothing count as they are.
    """
    columns = path.columns
    kinds, durations = columns["kind"], columns["duration_ns"]
    names = np.where(kinds == "communication", columns["collective"], columns["operator"])
    names = np.where(np.isin(kinds, _NAMED_AS_WHOLE) & (columns["cause"] == ""), "", names)
    totals = sums_by(durations, kinds, names)
    kind, name = max(totals, key=totals.__getitem__)
    own = np.flatnonzero((kinds == kind) & (names == name))
    largest = int(own[np.argmax(durations[own])])
    called = name or _PHRASES.get(kind, str(columns["name"][largest]))
    pieces = f" in {len(own):,} segments" if len(own) > 1 else ""
    total_ns = totals[kind, name]
    share = share_text(total_ns / max(1, path.makespan_ns))
    text = f"the largest contributor is {called} ({duration_text(total_ns)}{pieces}, {share})"
    text += _place(columns, own)
    return text + (f"; its largest piece: {_lower(path.reason(largest))}" if kind == "communication" else "")


def _place(segments: Columns, rows: npt.NDArray[np.int64]) -> str:
    """Return where most of the *rows* come from: a phase of a module, with its share unless that is all."""
    totals = sums_by(segments["duration_ns"][rows], segments["phase"][rows], segments["module"][rows])
    key = max(totals, key=totals.__getitem__)
    phase, module = _PHASES.get(str(key[0]), ""), str(key[1])
    place = " of ".join(word for word in (phase, module) if word)
    share = totals[key] / max(sum(totals.values()), 1)
    if not place:
        return ""
    return f" in {place}" if share > _ALMOST_ALL else f", {share_text(share)} of it in {place}"


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:].rstrip(".")


def rank_times(result: Result) -> pd.DataFrame:
    """Return the time of each rank: compute, exposed communication and copies, and idle are the makespan."""
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
