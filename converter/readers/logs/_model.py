"""The model of production logs of any tool: the operations of each rank and their groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ....errors import TraceError, TraceFormatError, UsageError
from ...chakra import CollectiveType, NodeType
from .._communications import LibraryCollective
from .._file_kinds import stated_rank

UNKNOWN = -1
MOST_BYTES = 2**56
_MOST_NS = 2**62


class LoggedOp(msgspec.Struct, frozen=True, gc=False):
    """One collective, send or receive of one rank, as a log has it.

    *group* names the communicator as on all its ranks. *series* and *sequence* identify the collective within
    the group: they are equal on all ranks, and *sequence* increases by one within a series. *peer* is the
    index in the group of the other end of a send or receive. *size_bytes* are the bytes of this rank that
    simulators count; *agrees* is a description that must be equal on all ranks. Times are Unix nanoseconds
    of the rank's clock: enqueued, begun, ended; *duration_ns* was measured by the library. `UNKNOWN` (-1)
    stands for missing values; *completed* is None if unknown. Ranks of a *rooted* collective need not wait
    for each other.
    """

    group: str
    sequence: int
    name: str
    node_type: NodeType
    collective: CollectiveType | None
    size_bytes: int
    agrees: str = ""
    series: str = ""
    peer: int = UNKNOWN
    created_ns: int = UNKNOWN
    started_ns: int = UNKNOWN
    ended_ns: int = UNKNOWN
    duration_ns: int = UNKNOWN
    completed: bool | None = None
    timed_out: bool = False
    rooted: bool = False
    note: str = ""

    @property
    def is_collective(self) -> bool:
        """Whether it is a collective, not a send or receive."""
        return self.collective is not None


class Comm(msgspec.Struct, frozen=True):
    """A communicator in the log of one rank: its size, this rank's index, and the global *ranks* or ()."""

    size: int = 0
    place: int = UNKNOWN
    ranks: tuple[int, ...] = ()
    label: str = ""


class RankLog(msgspec.Struct, frozen=True):
    """The operations of one rank in the order it enqueued them; *rank* is `UNKNOWN` until it is set.

    *from_the_start* means that no operation before the first was lost; *notes* are omissions with reasons.
    """

    rank: int
    place: str
    ops: list[LoggedOp]
    comms: dict[str, Comm]
    host: str = ""
    from_the_start: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LogReader:
    """Recognises and reads the production logs of one tool: a plug-in in `LOG_READERS`.

    *title* names the tool. *recognises* decides from the first megabyte of a file, decompressed, whether it
    is a log of the tool. *read* returns the logs of the ranks of one job, and assumptions; it raises
    `TraceFormatError` for a damaged log, and `TraceError` for logs of different jobs. A tool that
    *keeps_newest* overwrites its oldest records; one that *sees_ends_late* records an end when a thread
    notices it.
    """

    title: str
    recognises: Callable[[bytes], bool]
    read: Callable[[Sequence[Path]], tuple[list[RankLog], list[str]]]
    keeps_newest: bool = False
    sees_ends_late: bool = False


class Logs(msgspec.Struct, frozen=True):
    """The logs of a job: *ranks* by global rank, and the global ranks of each group, in its own order.

    *kind* is the name of their *reader*. A *short* group has more members than the logs list. *labels* are
    the names of groups for display.
    """

    kind: str
    reader: LogReader
    place: str
    ranks: dict[int, RankLog]
    groups: dict[str, tuple[int, ...]]
    labels: dict[str, str]
    sizes: dict[str, int]
    world_size: int
    notes: tuple[str, ...] = ()

    @property
    def short(self) -> set[str]:
        """The groups with unknown members."""
        return {group for group, members in self.groups.items() if self.sizes[group] > len(members)}

    @property
    def has_times(self) -> bool:
        """Whether the logs have when each operation was enqueued."""
        return all(op.created_ns != UNKNOWN for log in self.ranks.values() for op in log.ops)

    def label(self, group: str) -> str:
        """Return the label of *group*."""
        return self.labels.get(group, group)


class Reader:
    """A position in a log, for errors: *unit* N of file *place*."""

    def __init__(self, place: str, unit: str, rank: int = UNKNOWN) -> None:
        self.place = place
        self.unit = unit
        self.rank = rank
        self.number = 0

    def fail(self, what: str) -> NoReturn:
        """Raise `TraceFormatError` for the current line or entry."""
        of_rank = f" (rank {self.rank})" if self.rank != UNKNOWN else ""
        raise damaged(f"{self.place}{of_rank}, {self.unit} {self.number}", what)


def damaged(where: str, what: str) -> TraceFormatError:
    """Return the error for an impossible value in a log."""
    return TraceFormatError(
        f"{where}: {what}. The log is damaged, truncated, or of another kind. Copy it again, or leave "
        "that rank's log out."
    )


def bounded(reader: Reader, name: str, value: int, most: int = _MOST_NS, least: int = 0) -> int:
    """Return *value*; raise `TraceFormatError` if it is out of range."""
    if not least <= value <= most:
        reader.fail(f"{name} {value} is out of range")
    return value


def collective_op(
    library: LibraryCollective, group: str, sequence: int, size: int, agrees: str, **more: Any
) -> LoggedOp:
    """Return the collective of a name in a log."""
    return LoggedOp(
        group,
        sequence,
        library.name,
        NodeType.COMM_COLL,
        library.kind,
        size,
        agrees,
        rooted=library.rooted,
        note=library.note,
        **more,
    )


def ranks_by_name(paths: Sequence[Path]) -> list[tuple[Path, int]]:
    """Return each of *paths* with the rank in its name; a single file may lack it.

    Raises `UsageError` for a name without a rank, and `TraceError` for two files of one rank.
    """
    first: dict[int, Path] = {}
    for path in paths:
        rank = stated_rank(path)
        if rank is None and len(paths) > 1:
            raise UsageError(f"{path} has no rank. Name each log after its rank, such as rank_3.json.")
        refuse_twice(rank or 0, path, first.setdefault(rank or 0, path))
    return [(path, rank) for rank, path in first.items()]


def refuse_twice(rank: int, path: Path, other: Path) -> None:
    """Raise `TraceError` if *path* and *other*, both logs of *rank*, are two files."""
    if path != other:
        raise TraceError(
            f"{path} belongs to rank {rank}, like {other}. Give each rank's log once; if they were taken at "
            "different times, give the later ones alone."
        )


def ranks_text(ranks: Sequence[int], most: int = 8) -> str:
    """Return ``rank 3`` or ``ranks 0, 2, 5``."""
    shown = ", ".join(map(str, ranks[:most])) + (
        f" and {len(ranks) - most} more" if len(ranks) > most else ""
    )
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"


def counted(left_out: Mapping[str, int]) -> str:
    """Return ``split (2), coalesced (5)``."""
    return ", ".join(f"{name[:40]} ({count})" for name, count in sorted(left_out.items())[:8])
