"""Production logs of a job, read by the plug-ins in `LOG_READERS`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from ....errors import TraceError, TraceFormatError, UsageError
from ....support import load_plugin, plugin_names
from ...chakra import CollectiveType, NodeType
from .._communications import LibraryCollective
from .._file_kinds import LOG_READERS, damaged_file, kind_and_tool, kind_of, stated_rank, unpacked
from .._file_sets import NAMED_LIKE_RANK

UNKNOWN = -1
MAX_BYTES = 2**56
_MAX_NS = 2**62


class LoggedOp(msgspec.Struct, frozen=True, gc=False):
    """One collective, send or receive in the log of one rank.

    *group* is the communicator's name, which is equal on all its ranks. *series* and *sequence* identify the
    collective within the group and are equal on all ranks. *sequence* increases by one within a series.
    *peer* is the other end of a send or receive, as an index in the group. *size_bytes* is this rank's data
    as simulators count it. *agrees* describes the properties that must be equal on all ranks. Times
    (enqueued, begun, ended) are Unix ns of the rank's clock, and *duration_ns* is the library's own
    measurement. Missing values are `UNKNOWN` (-1); *completed* is None if unknown. The ranks of a *rooted*
    collective need not wait for each other.
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
        """Whether this is a collective rather than a send or receive."""
        return self.collective is not None


class Comm(msgspec.Struct, frozen=True):
    """A communicator in one rank's log: its size, the rank's index, and the global *ranks*, if known."""

    size: int = 0
    place: int = UNKNOWN
    ranks: tuple[int, ...] = ()
    label: str = ""


class RankLog(msgspec.Struct, frozen=True):
    """The operations of one rank in the order in which they were enqueued; *rank* may be `UNKNOWN`.

    *from_the_start* means that no operation is missing before the first logged operation. *notes* describe
    the omitted records and the reasons.
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
    """A plug-in in `LOG_READERS` for the production logs of one tool.

    *title* names the tool. *recognises* returns whether a file is such a log, given its first megabyte
    decompressed. *read* returns the logs of all ranks of one job, and assumptions; it raises
    `TraceFormatError` for a damaged log and `TraceError` for logs of different jobs. *keeps_newest* means
    that the tool overwrites its oldest records, and *has_late_ends* means that the tool records the end of an
    operation only when one of its threads detects the end.
    """

    title: str
    recognises: Callable[[bytes], bool]
    read: Callable[[Sequence[Path]], tuple[list[RankLog], list[str]]]
    keeps_newest: bool = False
    has_late_ends: bool = False


class Logs(msgspec.Struct, frozen=True):
    """The logs of a job: *ranks* by global rank, and the global ranks of each group, in group order.

    *kind* is the *reader*'s name. *labels* are names of groups for display.
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
        """The groups with more members than the logs list."""
        return {group for group, members in self.groups.items() if self.sizes[group] > len(members)}

    @property
    def has_times(self) -> bool:
        """Whether the logs have the enqueue time of every operation."""
        return all(op.created_ns != UNKNOWN for log in self.ranks.values() for op in log.ops)

    def label(self, group: str) -> str:
        """Return the label of *group*, or its name if it has none."""
        return self.labels.get(group, group)


class Reader:
    """A position in a log for error messages: *unit* N of file *place*."""

    def __init__(self, place: str, unit: str, rank: int = UNKNOWN) -> None:
        self.place = place
        self.unit = unit
        self.rank = rank
        self.number = 0

    def fail(self, what: str) -> NoReturn:
        """Raise `TraceFormatError` naming the current line or entry of the log."""
        of_rank = f" (rank {self.rank})" if self.rank != UNKNOWN else ""
        raise damaged(f"{self.place}{of_rank}, {self.unit} {self.number}", what)


def damaged(where: str, what: str) -> TraceFormatError:
    """Return the error for an impossible value in a log."""
    return TraceFormatError(
        f"{where}: {what}. The log is damaged, truncated, or not a log of collectives. Next: copy the log "
        "again, or leave it out."
    )


def bounded(reader: Reader, name: str, value: int, most: int = _MAX_NS, least: int = 0) -> int:
    """Return *value*; raises `TraceFormatError` if it is out of range."""
    if not least <= value <= most:
        reader.fail(f"{name} {value} is out of range")
    return value


def collective_op(
    library: LibraryCollective, group: str, sequence: int, size: int, agrees: str, **more: Any
) -> LoggedOp:
    """Return the logged operation of the collective *library*."""
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
    """Return each of *paths* with the rank in its name; a single file needs no rank in its name.

    Raises `UsageError` for other names without a rank, and `TraceError` for two files of one rank.
    """
    first: dict[int, Path] = {}
    for path in paths:
        rank = stated_rank(path)
        if rank is None and len(paths) > 1:
            raise UsageError(f"{path} has no rank. Name each log after its rank, such as rank_3.json.")
        refuse_twice(rank or 0, path, first.setdefault(rank or 0, path))
    return [(path, rank) for rank, path in first.items()]


def refuse_twice(rank: int, path: Path, other: Path) -> None:
    """Raise `TraceError` if two different files are logs of the same *rank*."""
    if path != other:
        raise TraceError(
            f"{path} belongs to rank {rank}, like {other}. Next: give each rank's log once; if the logs were "
            "taken at different times, give only the later logs."
        )


def ranks_text(ranks: Sequence[int], most: int = 8) -> str:
    """Return the text for *ranks*, such as ``rank 3`` or ``ranks 0, 2, 5``."""
    shown = ", ".join(map(str, ranks[:most])) + (
        f" and {len(ranks) - most} more" if len(ranks) > most else ""
    )
    return f"{'rank' if len(ranks) == 1 else 'ranks'} {shown}"


def counted(left_out: Mapping[str, int]) -> str:
    """Describe the number of omitted operations by kind, such as ``split (2), coalesced (5)``."""
    return ", ".join(f"{name[:40]} ({count})" for name, count in sorted(left_out.items())[:8])


_MAX_FILES = 20_000
_MAX_RANKS = 2**24
_TRACES = {"device", "host", "linked"}


def which_logs(target: str | Path) -> str:
    """Return the name of the `LogReader` for *target*, a log or a folder of logs, or "" if there is none.

    In a folder, the first trace or log decides. Archives are not opened.
    """
    path = Path(target)
    files = _files(path) if path.is_dir() else [path] if path.is_file() else []
    kinds = (kind_and_tool(file) for file in files)
    return next((tool for kind, tool in kinds if kind not in ("other", "archive")), "")


def read_logs(targets: Sequence[str | Path]) -> Logs:
    """Read the logs of a job from files, folders, or tar or zip archives.

    Raises `UsageError` if there are no logs, or logs of several tools, `TraceFormatError` for a damaged log,
    naming file, line or entry, and rank, and `TraceError` for logs of different jobs.
    """
    archives: dict[str, str] = {}
    with ExitStack() as stack:
        kinds: set[str] = set()
        of_tool: dict[str, list[Path]] = defaultdict(list)
        found: list[Path] = []
        for target in targets:
            for path in _opened(Path(target), stack, archives):
                found.append(path)
                kind, tool = kind_and_tool(path)
                kinds.add(kind)
                if tool:
                    of_tool[tool].append(path)
        readers: dict[str, LogReader] = {
            name: load_plugin(LOG_READERS, name) for name in plugin_names(LOG_READERS)
        }
        place = str(targets[0]) if len(targets) == 1 else f"{targets[0]} and {len(targets) - 1} more"
        if not of_tool and kinds & _TRACES:
            raise UsageError(
                f"{place} contains traces, not logs. Next: give them with --device-trace {targets[0]}, and "
                "host traces with --host-trace."
            )
        if not of_tool:
            raise UsageError(
                f"{place} contains no logs of collectives. Logs can be read from: "
                f"{', '.join(reader.title for reader in readers.values())}."
            )
        if len(of_tool) > 1:
            tools = " and ".join(sorted(readers[tool].title for tool in of_tool))
            raise UsageError(
                f"{place} contains logs from {tools}. Next: give the logs of one tool at a time."
            )
        tool, paths = of_tool.popitem()
        if damaged := damaged_file(paths, found):
            raise TraceFormatError(f"{damaged} {NAMED_LIKE_RANK}.")
        logs, notes = readers[tool].read(sorted(set(paths)))
        logs = [_with_place(log, archives) for log in logs]
    return _together(tool, readers[tool], place, logs, notes)


def _opened(target: Path, stack: ExitStack, archives: dict[str, str]) -> Iterator[Path]:
    """Yield the log files of *target*, a file, a folder or an archive.

    Adds to *archives* the folder into which an archive was unpacked.
    """
    if target.is_dir():
        yield from _files(target)
    elif not target.is_file():
        raise UsageError(f"There is no file or folder {target}. Check the name.")
    elif kind_of(target) == "archive":
        folder = stack.enter_context(unpacked(target))
        archives[str(folder)] = str(target)
        yield from _files(folder)
    else:
        yield target


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in islice(folder.rglob("*"), _MAX_FILES) if not path.is_dir())


def _with_place(log: RankLog, archives: dict[str, str]) -> RankLog:
    """Return *log* with its path inside the archive, if it came from one."""
    for folder, archive in archives.items():
        if log.place.startswith(folder):
            return msgspec.structs.replace(log, place=log.place.replace(folder, archive, 1))
    return log


def _together(
    kind: str, reader: LogReader, place: str, logs: Sequence[RankLog], notes: Sequence[str]
) -> Logs:
    """Merge the logs of all ranks, which together give the members of each group."""
    ranks: dict[int, RankLog] = {}
    for log in sorted(logs, key=lambda log: log.rank):
        if log.rank in ranks:
            refuse_twice(log.rank, Path(log.place), Path(ranks[log.rank].place))
        ranks[log.rank] = log
    stated = [max(comm.ranks) + 1 for log in logs for comm in log.comms.values() if comm.ranks]
    sizes = [comm.size for log in logs for comm in log.comms.values()]
    world = max([*stated, *sizes, *(rank + 1 for rank in ranks)])
    if world > _MAX_RANKS:
        raise TraceError(f"{place}: a log states a job size of {world} ranks, which is not plausible.")
    members, labels = _groups(ranks, place)
    stated_sizes = {
        group: max([comm.size for log in logs for name, comm in log.comms.items() if name == group])
        for group in members
    }
    notes_of_all = [*notes, *_notes(ranks)]
    absent = sorted(set(range(world)) - ranks.keys()) if world < 2 * _MAX_FILES else []
    if absent:
        notes_of_all.append(f"of {world} ranks there is no log of {ranks_text(absent)}")
    labels = _distinct(labels, members)
    sizes_of = {group: max(stated_sizes[group], len(members[group])) for group in members}
    for group, size in stated_sizes.items():
        places = {comm.place == rank for rank, log in ranks.items() if (comm := log.comms.get(group))}
        if size == world and places == {True}:  # a group of all ranks, even of those without a log
            members[group] = tuple(range(world))
        elif not size and len(ranks) == 1:  # a group has at least two ranks
            sizes_of[group] = max(2, sizes_of[group])
    return Logs(kind, reader, place, ranks, members, labels, sizes_of, world, tuple(notes_of_all))


def _distinct(labels: dict[str, str], members: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Append the ranks to labels that are empty or not unique."""
    often = Counter(labels.values())
    longer = {
        group: label
        if label and often[label] == 1
        else f"{label or 'group of'} {ranks_text(members[group], 4)}"
        for group, label in labels.items()
    }
    often = Counter(longer.values())
    return {group: label if often[label] == 1 else f"{label} ({group})" for group, label in longer.items()}


def _notes(ranks: dict[int, RankLog]) -> list[str]:
    """Return the distinct notes of all logs, each with the ranks to which it applies."""
    ranks_of: dict[str, list[int]] = defaultdict(list)
    for rank, log in ranks.items():
        for note in log.notes:
            ranks_of[note].append(rank)
    return [note if len(of) == len(ranks) else f"{note} ({ranks_text(of)})" for note, of in ranks_of.items()]


def _groups(ranks: dict[int, RankLog], place: str) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the global ranks of each group in the group's order, and the group's label."""
    members: dict[str, dict[int, int]] = defaultdict(dict)
    listed: dict[str, tuple[int, ...]] = {}
    labels: dict[str, str] = {}
    for rank, log in ranks.items():
        for group, comm in log.comms.items():
            labels[group] = comm.label
            if comm.ranks:
                if listed.setdefault(group, comm.ranks) != comm.ranks:
                    raise TraceError(
                        f"{place}: the log of rank {rank} lists the {ranks_text(comm.ranks)} in "
                        f"'{(labels[group] or group)[:80]}', another the {ranks_text(listed[group])}: the "
                        "logs are of different jobs."
                    )
                continue
            spot = comm.place if comm.place != UNKNOWN else rank
            other = members[group].setdefault(spot, rank)
            if other != rank:
                raise TraceError(
                    f"{place}: ranks {other} and {rank} both have number {spot} in "
                    f"'{(labels[group] or group)[:80]}': the logs differ in their job, or two groups have "
                    "one name."
                )
    by_place = {group: tuple(rank for _, rank in sorted(spots.items())) for group, spots in members.items()}
    return {**by_place, **listed}, labels
