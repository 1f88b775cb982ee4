"""Read ASTRA-sim's standard output and its log file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ....errors import BackendError

_NUMBER = r"(\d{1,20})"
_FINISHED = re.compile(
    rf"sys\[(\d{{1,9}})\] finished, {_NUMBER} cycles, exposed communication {_NUMBER} cycles"
)
_STATISTIC = re.compile(
    rf"sys\[(\d{{1,9}})\], (GPU time|Comm time|Total compute-communication overlap): "
    rf"{_NUMBER}(?!\d)"
)
_TRACE = re.compile(rf"(issue|callback),sys->id=(\d{{1,9}}), tick={_NUMBER}, node->id={_NUMBER}, node->name=")
_FAILURE = re.compile(
    r"\[(?:critical|error|C|E)\]|\[Error\]|what\(\):|terminate called|Assertion|[Uu]nable to open|"
    r"does not exist|Segmentation fault|Unsupported|std::bad_alloc|No space left"
)
_DROP = re.compile(r"\d{1,20} \d{1,9} Drop: queue:")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_MAX_LINE = 4000
_MAX_FAILURES = 5
_INT64 = 1 << 63
_FIELDS = {
    "GPU time": "compute_ns",
    "Comm time": "comm_ns",
    "Total compute-communication overlap": "overlap_ns",
}


@dataclass
class RankReport:
    """The times of one rank in ns, or None where ASTRA-sim reported none."""

    finish_ns: int
    exposed_comm_ns: int
    compute_ns: int | None = None
    comm_ns: int | None = None
    overlap_ns: int | None = None


@dataclass
class AstraSimLog:
    """The state of an ASTRA-sim run, updated line by line with `feed`.

    *ranks* are the finished ranks in order of finishing. *now_ns* is the latest time in the output.
    *failures* are the first lines that look like errors. *drops* counts the packets that ns-3's
    switches dropped.
    """

    num_ranks: int
    ranks: dict[int, RankReport] = field(default_factory=dict)
    now_ns: int = 0
    failures: list[str] = field(default_factory=list)
    drops: int = 0

    def feed(self, line: str) -> None:
        """Read one line of output; raises `BackendError` for an impossible rank or time."""
        text = line[:_MAX_LINE]
        finished = _FINISHED.search(text)
        if finished:
            rank = self._rank(finished[1])
            time = _time(finished[2], text)
            # ASTRA-sim stores the exposed time, a difference that may be negative, as an unsigned
            # 64-bit integer.
            self.ranks[rank] = RankReport(time, _signed(finished[3]))
            self.now_ns = max(self.now_ns, time)
            return
        statistic = _STATISTIC.search(text)
        if statistic:
            report = self.ranks.get(self._rank(statistic[1]))
            if report is not None:
                setattr(report, _FIELDS[statistic[2]], _time(statistic[3], text))
            return
        if _DROP.match(text):
            self.drops += 1
        elif len(self.failures) < _MAX_FAILURES and _FAILURE.search(text):
            self.failures.append(" ".join(_COLOUR.sub("", text).split())[:300])

    def _rank(self, digits: str) -> int:
        rank = int(digits)
        if rank >= self.num_ranks:
            raise BackendError(
                f"ASTRA-sim reports rank {rank}, but the experiment has {self.num_ranks}. Next: check that "
                "the program is ASTRA-sim 2."
            )
        return rank


@dataclass(frozen=True)
class Trace:
    """The times of nodes in the log, keyed by rank and node id.

    *intervals* holds the start and end (ns) of each finished node; *stuck* lists nodes that were
    issued but never finished.
    """

    intervals: dict[tuple[int, int], tuple[int, int]]
    stuck: list[tuple[int, int]]


def read_trace(lines: Iterable[str]) -> Trace:
    """Read the times of nodes from the *lines* of a log.

    Raises `BackendError` if the log is malformed or contradicts itself.
    """
    open_nodes: dict[tuple[int, int], int] = {}
    done: dict[tuple[int, int], tuple[int, int]] = {}
    try:
        for line in lines:
            match = _TRACE.search(line[:_MAX_LINE])
            if match:
                _take(match, open_nodes, done)
    except OSError as error:
        raise BackendError(f"ASTRA-sim's log {error.filename} cannot be read ({error.strerror}).") from error
    return Trace(done, list(open_nodes))


def _take(
    match: re.Match[str],
    open_nodes: dict[tuple[int, int], int],
    done: dict[tuple[int, int], tuple[int, int]],
) -> None:
    node = (int(match[2]), int(match[4]))
    tick = _time(match[3], match[0])
    if match[1] == "issue":
        open_nodes[node] = tick
        return
    # Log rotation may have removed the start of a node; such nodes are omitted.
    start = open_nodes.pop(node, None)
    if start is not None:
        if tick < start:
            raise BackendError(f"In ASTRA-sim's log, node {node[1]} of rank {node[0]} ends before it starts.")
        done[node] = (start, tick)


def log_lines(folder: Path) -> Iterator[str]:
    """Yield the lines of ASTRA-sim's log files in *folder*, oldest file first."""
    older = sorted(folder.glob("log.*.log"), key=_rotation, reverse=True)
    for path in (*older, folder / "log.log"):
        if path.is_file():
            with path.open(encoding="utf-8", errors="replace") as file:
                yield from file


def _rotation(path: Path) -> int:
    digits = path.name.split(".")[1]
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 9 else 0


def _time(digits: str, line: str) -> int:
    value = int(digits)
    if value >= _INT64:
        raise BackendError(f"ASTRA-sim reports a time beyond 2^63 ns ('{line[:120]}'); its clock overflowed.")
    return value


def _signed(digits: str) -> int:
    value = int(digits) % (1 << 64)
    return value - (1 << 64) if value >= _INT64 else value
