"""Compare Chakrascope's figures of a trace with plain sums, HTA, TraceLens and a simulation."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpu_intervals import Times
from gpu_ours import Ours
from gpu_peers import Agreement, Edges, Expected

__all__ = ["DEMANDS", "PARTS", "Finding", "Row", "findings"]

PARTS = {
    "compute_ns": "computation",
    "exposed_comm_ns": "exposed communication",
    "exposed_copy_ns": "exposed copies",
    "idle_ns": "idle",
    "overlap_ns": "overlap",
}
OF_SPAN = 0.005
OF_PEER = 0.01
OF_STEP, OF_WHOLE_STEP = 0.01, 0.03
OF_GAIN = 0.1


@dataclass(frozen=True)
class Row:
    """A trace: the content of the file and of the converted steps, and the figures of all tools.

    *whole* are the plain sums of all device events of the file. *converted* are the plain sums of the events
    that the converted steps issued, and *plain* are those within the steps' own time, which begins when the
    device has finished earlier work. *has_capture* states whether traces of the capture of CUDA graphs are
    next to the file. *modelled* are the shares of operator time with a cost model, here and in TraceLens.
    """

    name: str
    whole: Times
    converted: Times
    plain: Times
    unlinked: int
    graph_kernels: int
    has_capture: bool
    ours: Ours
    hta: Mapping[str, Any] | None
    expected: Expected | None
    edges: Edges | None
    operators: Sequence[Agreement] = ()
    modelled: tuple[float, float] | None = None

    @property
    def is_usable(self) -> bool:
        """Whether the file links any device work with its launch."""
        return self.unlinked < self.whole.count

    @property
    def is_cut(self) -> bool:
        """Whether the file contains device work that no converted step issued."""
        return self.whole.count != self.converted.count


@dataclass(frozen=True)
class Finding:
    """A comparison of two figures: the *demand*, whether it is met, and both figures."""

    demand: str
    passed: bool
    figure: str
    ours: str
    theirs: str


def findings(row: Row) -> list[Finding]:
    """Return all findings of the checks of *row*."""
    return [finding for check in DEMANDS.values() for finding in check(row)]


def _converts(row: Row) -> Iterator[Finding]:
    if row.is_usable:
        outcome = row.ours.crashed or row.ours.refused
        yield Finding("converts", not outcome, "conversion", outcome or "converted", "kernels with launches")


def _plain(row: Row) -> Iterator[Finding]:
    if row.ours.answer is None:
        return
    for part, name in PARTS.items():
        ours, plain = getattr(row.ours.answer, part), getattr(row.plain, part)
        yield Finding("plain", _close(ours, plain, OF_SPAN * row.plain.span_ns), name, _ms(ours), _ms(plain))


def _hta(row: Row) -> Iterator[Finding]:
    """Yield findings about HTA's figures, if HTA counts as plain sums do."""
    if row.hta is None or "error" in row.hta or row.ours.answer is None:
        return
    answer, allowed = row.ours.answer, OF_SPAN * row.plain.span_ns
    other = {"ours": answer, "plain": row.plain}
    pairs = {
        "compute_ns": ("computation", *(times.compute_ns for times in other.values())),
        "idle_ns": ("idle", *(times.idle_ns for times in other.values())),
        "other_ns": (
            "exposed communication and copies",
            *(times.exposed_comm_ns + times.exposed_copy_ns for times in other.values()),
        ),
    }
    for key, (name, ours, plain) in pairs.items():
        if _close(row.hta[key], plain, allowed):
            yield Finding("HTA", _close(ours, row.hta[key], allowed), name, _ms(ours), _ms(row.hta[key]))


def _tracelens(row: Row) -> Iterator[Finding]:
    expected, answer = row.expected, row.ours.answer
    if expected is None or answer is None:
        return
    allowed = OF_PEER * expected.total_ns
    ours = {
        "busy": answer.compute_ns + answer.exposed_comm_ns + answer.exposed_copy_ns,
        "exposed communication": answer.exposed_comm_ns,
        "computation": answer.compute_ns,
        "communication": answer.comm_ns,
    }
    for name, theirs in expected.times.items():
        close = _close(ours[name], theirs, allowed)
        yield Finding("TraceLens", close, name, _ms(ours[name]), _ms(theirs))
    if expected.kernels >= 0:
        # HTA counts the kernels of the whole file.
        theirs = expected.kernels - (row.whole.kernels - row.converted.kernels)
        close = _close(answer.kernels, theirs, OF_PEER * theirs)
        yield Finding("TraceLens", close, "kernels", f"{answer.kernels:,}", f"{theirs:,}")


def _operators(row: Row) -> Iterator[Finding]:
    for one in row.operators:
        close = one.alike >= (1 - OF_PEER) * one.rows
        yield Finding("TraceLens's operators", close, one.figure, f"{one.alike:,} rows", f"{one.rows:,} rows")


def _modelled(row: Row) -> Iterator[Finding]:
    if row.modelled is not None:
        ours, theirs = row.modelled
        name = "share of the time of operators with a model"
        yield Finding("TraceLens's operators", ours >= theirs, name, f"{ours:.1%}", f"{theirs:.1%}")


def _complete(row: Row) -> Iterator[Finding]:
    if row.ours.answer is not None:
        count, every = row.ours.answer.count, row.converted.count
        of_graphs = f", {row.graph_kernels:,} of graphs" if row.graph_kernels else ""
        yield Finding("complete", count == every, "work of the device", f"{count:,}", f"{every:,}{of_graphs}")


def _attributed(row: Row) -> Iterator[Finding]:
    if row.graph_kernels and row.has_capture and row.ours.answer is not None:
        theirs, named = row.ours.answer.count, row.ours.operators
        close = _close(named, theirs, OF_PEER * theirs)
        yield Finding("attributed", close, "work with an operator", f"{named:,}", f"{theirs:,}")


def _edges(row: Row) -> Iterator[Finding]:
    if row.edges is not None:
        found = row.edges.theirs - len(row.edges.missing)
        missing = "; ".join(row.edges.missing[:3])
        yield Finding(
            "edges",
            not row.edges.missing,
            f"synchronisation edges{': without ' + missing if missing else ''}",
            f"{found}, and {row.edges.ours} in all",
            str(row.edges.theirs),
        )


def _replay(row: Row) -> Iterator[Finding]:
    for replay in row.ours.replays:
        name = f"replay of {replay.step}"
        ours, measured = _ms(replay.replayed_ns), _ms(replay.measured_ns)
        error = abs(replay.error)
        yield Finding("replay", error <= OF_STEP, name, ours, measured)
        if not row.is_cut:
            yield Finding("replay of whole traces", error <= OF_WHOLE_STEP, name, ours, measured)


def _advice(row: Row) -> Iterator[Finding]:
    for gain in row.ours.gains:
        close = gain.simulated_ns >= 0 and _close(
            gain.promised_ns, gain.simulated_ns, OF_GAIN * gain.promised_ns
        )
        given = _ms(gain.simulated_ns) if gain.simulated_ns >= 0 else "no what-if"
        yield Finding("advice", close, f"gain of {gain.what[:60]}", _ms(gain.promised_ns), given)


DEMANDS: Mapping[str, Callable[[Row], Iterator[Finding]]] = {
    "Every trace with kernels and links to launches can be converted, simulated and explained": _converts,
    "Computation, communication, copy, idle and overlap times equal plain sums "
    "(within 0.5 % of the trace)": _plain,
    "Computation, idle and exposed times equal HTA's times, if HTA's times equal the plain sums": _hta,
    "Busy time, exposed communication and kernels equal TraceLens's tables within 1 %": _tracelens,
    "Time, FLOPs and bytes of operators equal TraceLens's within 1 % on 99 % of the rows": _operators,
    "Cost models cover at least the share of the time that TraceLens's models cover": _modelled,
    "All work of the device is converted, including CUDA and HIP graphs": _complete,
    "At least 99 % of the kernels of CUDA graphs have operators if traces of the graphs' capture "
    "exist": _attributed,
    "All synchronisation edges of HTA are in the graph": _edges,
    "The time of a replayed step equals the measured time within 1 % (3 % for complete traces)": _replay,
    "The gain after following advice equals the promised gain within 10 %": _advice,
}
"""The demands, each with the check that yields its findings."""


def passed_counts(
    rows: Sequence[Row], check: Callable[[Row], Iterator[Finding]]
) -> tuple[int, int, int, int]:
    """Return the numbers of passed and all traces, and of passed and all findings of *check*."""
    found = [passed for row in rows if (passed := [finding.passed for finding in check(row)])]
    each = [passed for row in found for passed in row]
    return sum(map(all, found)), len(found), sum(each), len(each)


def _close(ours: float, theirs: float, allowed: float) -> bool:
    return abs(ours - theirs) <= allowed


def _ms(time_ns: float) -> str:
    return f"{time_ns / 1e6:,.3f} ms"
