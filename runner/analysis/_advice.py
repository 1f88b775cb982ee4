"""Say what would help: the largest causes on the critical path, each with the most it could gain."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields

import pandas as pd

from ._critical_path import CriticalPath

__all__ = ["Advice", "advice", "advice_table"]

_LEAST_SHARE = 0.01
_HINTS = {
    "communication": "smaller messages (compression, lower precision), a faster network or another "
    "algorithm, or starting it earlier so that computation covers it",
    "skew": "a more even load: ranks arrive at different times (skew), and the first ones wait",
    "compute": "a faster kernel or chip for it, fusion, or lower precision",
    "launch": "less Python and dispatch: torch.compile, CUDA graphs, larger batches",
    "comm_call": "fewer, larger communications (buckets), issuing them earlier, or cores left free for the "
    "communication library's threads: the host thread was inside the call",
    "memory": "keeping the data local, or a faster remote memory",
    "idle": "work that fills the gap; the ranks had nothing to run",
    "wait": "a more even load: this rank waited for a straggler",
}
_WHOLE = {
    "launch": "Host work: Python, dispatch, launches",
    "idle": "Idle time",
    "wait": "Waiting for peers",
}
_NAMELESS = {"compute": "Computation without a name", "memory": "Remote memory"}


@dataclass(frozen=True)
class Advice:
    """One cause and how to shrink it; *gain_ns* is the most that can gain, *share* that of the step."""

    what: str
    how: str
    gain_ns: int
    share: float


def advice(path: CriticalPath, collectives: pd.DataFrame, count: int = 4) -> list[Advice]:
    """Return the *count* changes with the largest possible gain, largest first.

    The gain is a bound, not a promise: once a part shrinks, another chain may become the critical one.
    """
    segments, total = path.segments, max(1, path.makespan_ns)
    found = []
    for kind, part in segments.groupby("kind"):
        how = _HINTS.get(str(kind), _HINTS["compute"])
        found += [(what, how, gain) for what, gain in _largest(str(kind), part)]
    found += _skew(segments, collectives)
    ranked = sorted(found, key=lambda item: -item[2])[:count]
    return [
        Advice(what, how, gain, gain / total) for what, how, gain in ranked if gain / total >= _LEAST_SHARE
    ]


def advice_table(path: CriticalPath, collectives: pd.DataFrame) -> pd.DataFrame:
    """Return :func:`advice` as a table: ``what``, ``how``, ``gain_ns`` at most, and its ``share``."""
    rows = [asdict(item) for item in advice(path, collectives)]
    table: pd.DataFrame = pd.DataFrame(rows, columns=[field.name for field in fields(Advice)])
    return table


def _largest(kind: str, part: pd.DataFrame) -> list[tuple[str, int]]:
    """Return what time of one kind is spent on: its two largest names, or all if names say nothing."""
    if kind in ("launch", "idle", "wait"):
        return [(_WHOLE[kind], int(part["duration_ns"].sum()))]
    column = "collective" if kind == "communication" else "operator"
    sums = part.groupby(column)["duration_ns"].sum().nlargest(2)
    return [(str(name) or _NAMELESS.get(kind, kind), int(gain)) for name, gain in sums.items()]


def _skew(segments: pd.DataFrame, collectives: pd.DataFrame) -> list[tuple[str, str, int]]:
    """Return the worst wait for a last rank at a collective on the path; waits in a row do not add up."""
    crossed = collectives[(collectives["on_path_ns"] > 0) & (collectives["skew_ns"] > 0)]
    if crossed.empty or segments.empty:
        return []
    worst = crossed.loc[crossed["skew_ns"].idxmax()]
    where = f" of {worst['module']}" if worst["module"] else ""
    what = f"Rank {worst['rank']} comes last to the {worst['operation']}{where}"
    return [(what, _HINTS["skew"], int(worst["skew_ns"]))]
