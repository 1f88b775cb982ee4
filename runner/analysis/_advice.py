"""Say what would help: the largest causes on the critical path, each with the most it could gain."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np

from ...converter.building import GAP
from ...converter.chakra import HOST_CAUSES
from .._framed import columns_of, sums_by
from .._recorded_nodes import Columns
from ._critical_path import CriticalPath
from ._path_facts import collective_label

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Advice", "advice", "advice_table", "advices", "cause_place", "link_bytes_per_ns"]

_LEAST_SHARE = 0.01
_HINTS = {
    "communication": "smaller messages (compression, lower precision), a faster network or another "
    "algorithm, or starting it earlier so that computation covers it",
    "latency": "fewer and larger messages (fusing, larger buckets), less latency, or peers that arrive "
    "together: its bytes are too few for its time, so neither bandwidth nor compression would help",
    "skew": "a more even load: ranks arrive at different times (skew), and the first ones wait",
    "compute": "a faster kernel or chip for it, fusion, or lower precision",
    "host": "less Python and dispatch: torch.compile, CUDA graphs, larger batches",
    "communication_call": "fewer, larger communications (buckets), issuing them earlier, or cores left free "
    "for the communication library's threads: the host thread was inside the call",
    "copy": "fewer or smaller copies, pinned memory, or copies beside computation",
    "sync": "fewer synchronisations: .item(), .cpu(), printing of device values",
    "memory": "keeping the data local, or a faster remote memory",
    "idle": "work that fills the gap; the ranks had nothing to run",
    "wait": "a more even load: this rank waited for a straggler",
    "unknown": "a capture of some steps ('chakrascope trace'), which tells what it is: the log does not",
}
_UNKNOWN = "doing less of it, or covering it by other work"
# Operators that only wait for others, whatever a trace takes them for.
_WAITING = re.compile(r"^(c10d|gloo|nccl)(::|:)|synchronize|\bwait\b", re.IGNORECASE)
_SLOW = 0.1  # of what the network carries: below, something else than its bandwidth takes the time
_LEAST_RATE = 0.125  # bytes/ns: an Ethernet of 1 Gb/s, where nothing else is known of the network
_WHOLE = {
    "host": "Host work: Python, dispatch, launches",
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


def advice(
    path: CriticalPath,
    collectives: pd.DataFrame,
    count: int = 4,
    *,
    link_bytes_per_ns: float = 0.0,
    messages: pd.DataFrame | None = None,
) -> list[Advice]:
    """Return the *count* changes with the largest possible gain, largest first.

    *link_bytes_per_ns* is what a link of the slowest dimension carries, 0 if unknown: a collective, or one of
    *messages* (as `messages_on_path` has them), that is far below is not helped by smaller messages. The gain
    is a bound, not a promise: once a part shrinks, another chain may become the critical one.
    """
    told = None if messages is None else columns_of(messages)
    return advices(path, columns_of(collectives), count, link_bytes_per_ns=link_bytes_per_ns, messages=told)


def advices(
    path: CriticalPath,
    collectives: Columns,
    count: int = 4,
    *,
    link_bytes_per_ns: float = 0.0,
    messages: Columns | None = None,
) -> list[Advice]:
    """Return what `advice` returns, of the columns of its tables."""
    segments, total = path.columns, max(1, path.makespan_ns)
    found = []
    slow = _slow(collectives, messages, link_bytes_per_ns)
    kinds = segments["kind"]
    for kind in sorted(set(kinds.tolist())):
        rows = np.flatnonzero(kinds == kind)
        part = {name: segments[name][rows] for name in ("cause", "collective", "duration_ns", "operator")}
        found += [(what, _hint(kind, what, slow), gain) for what, gain in _largest(kind, part)]
    found += _skew(collectives) if len(kinds) else []
    ranked = sorted(found, key=lambda item: -item[2])[:count]
    return [
        Advice(what, how, gain, gain / total) for what, how, gain in ranked if gain / total >= _LEAST_SHARE
    ]


def _hint(kind: str, what: str, slow: set[str]) -> str:
    """Return what shrinks *what*, by its figures where they say more than its *kind*."""
    if kind == "communication" and what in slow:
        return _HINTS["latency"]
    if what == GAP:
        return _HINTS["unknown"]
    if kind == "compute" and _WAITING.search(what):
        return _HINTS["wait"]
    if what == HOST_CAUSES["communication_call"]:
        return _HINTS["communication_call"]
    return _HINTS.get(kind, _UNKNOWN)


def _slow(collectives: Columns, messages: Columns | None, link_bytes_per_ns: float) -> set[str]:
    """Return the communications, as the path names them, that are far from using the network's bandwidth.

    Where nothing is known of the network, it carries at least what the fastest of them reached.
    """
    rates = [(collective_label(*row), rate) for row, rate in _labelled(collectives)]
    if messages is not None:
        rates += zip(messages["name"].tolist(), messages["bytes_per_ns"].tolist(), strict=True)
    fastest: dict[str, float] = {}
    for name, rate in rates:
        fastest[name] = max(rate, fastest.get(name, 0.0))
    carried = link_bytes_per_ns or max([_LEAST_RATE, *fastest.values()])
    return {name for name, rate in fastest.items() if rate < _SLOW * carried}


def _labelled(collectives: Columns) -> Iterator[tuple[tuple[str, int, int], float]]:
    """Yield what tells collectives apart on the path, with the bus bandwidth of each."""
    columns = (collectives[name].tolist() for name in ("operation", "size_bytes", "group"))
    yield from zip(zip(*columns, strict=True), collectives["bus_bytes_per_ns"].tolist(), strict=True)


def advice_table(
    path: CriticalPath,
    collectives: pd.DataFrame,
    network: Mapping[str, Any] | None = None,
    messages: pd.DataFrame | None = None,
) -> pd.DataFrame:
    """Return :func:`advice` as a table: ``what``, ``how``, ``gain_ns`` at most, and its ``share``.

    *network* is the one that was simulated, as the result's provenance has it; *messages* are those of
    `messages_on_path`.
    """
    import pandas as pd  # noqa: PLC0415

    link = link_bytes_per_ns(network)
    rows = [asdict(item) for item in advice(path, collectives, link_bytes_per_ns=link, messages=messages)]
    table: pd.DataFrame = pd.DataFrame(rows, columns=[field.name for field in fields(Advice)])
    return table


def link_bytes_per_ns(network: Mapping[str, Any] | None) -> float:
    """Return what a link of the slowest dimension of *network* carries, 0 if that is unknown."""
    rates = (network or {}).get("bandwidth") or [0.0]
    return float(min(rates)) * 2**30 / 10**9


def cause_place(path: CriticalPath, collectives: pd.DataFrame, what: str) -> tuple[int, int]:
    """Return (rank, node) to look at for a cause of :func:`advice`, called *what*: its longest piece.

    (-1, -1) if no node stands for it.
    """
    segments = path.unreasoned[path.unreasoned["node_id"] >= 0]
    kinds = {name: kind for kind, name in (_WHOLE | _NAMELESS).items()}
    causes = {label: cause for cause, label in HOST_CAUSES.items()}
    chosen = (segments["operator"] == what) | (segments["collective"] == what)
    if what in kinds:
        chosen = segments["kind"] == kinds[what]
    if what in causes:
        chosen = segments["cause"] == causes[what]
    longest = segments[chosen].nlargest(1, "duration_ns")
    if longest.empty and what.startswith("Rank "):
        longest = collectives[collectives["on_path_ns"] > 0].nlargest(1, "skew_ns")
    return (-1, -1) if longest.empty else (int(longest["rank"].iloc[0]), int(longest["node_id"].iloc[0]))


def _largest(kind: str, part: Columns) -> list[tuple[str, int]]:
    """Return what time of one kind is spent on: its two largest names, or all if names say nothing."""
    if kind == "host":
        causes = [HOST_CAUSES.get(str(cause), _WHOLE[kind]) for cause in part["cause"]]
        return [*sums_by(part["duration_ns"], np.array(causes, object)).items()]
    if kind in ("idle", "wait"):
        return [(_WHOLE[kind], int(part["duration_ns"].sum()))]
    column = "collective" if kind == "communication" else "operator"
    sums = sums_by(part["duration_ns"], part[column])
    largest = sorted(sums.items(), key=lambda item: -item[1])[:2]
    return [(str(name) or _NAMELESS.get(kind, kind), gain) for name, gain in largest]


def _skew(collectives: Columns) -> list[tuple[str, str, int]]:
    """Return the worst wait for a last rank at a collective on the path; waits in a row do not add up."""
    crossed = np.flatnonzero((collectives["on_path_ns"] > 0) & (collectives["skew_ns"] > 0))
    if not len(crossed):
        return []
    row = crossed[np.argmax(collectives["skew_ns"][crossed])]
    rank, operation, module = (collectives[name][row] for name in ("rank", "operation", "module"))
    where = f" of {module}" if module else ""
    what = f"Rank {rank} comes last to the {operation}{where}"
    return [(what, _HINTS["skew"], int(collectives["skew_ns"][row]))]
