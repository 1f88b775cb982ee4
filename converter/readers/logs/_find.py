"""Find the logs of a job in files, folders and archives, and merge those of its ranks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

import msgspec

from ....errors import TraceError, UsageError
from ....support import load_plugin, plugin_names
from .._archives import unpacked
from .._file_kinds import LOG_READERS, kind_and_tool, kind_of
from ._model import UNKNOWN, LogReader, Logs, RankLog, ranks_text, refuse_twice

_MOST_FILES = 20_000
_MOST_RANKS = 2**24
_TRACES = {"device", "host", "linked"}


def which_logs(target: str | Path) -> str:
    """Return the name of the `LogReader` for *target*, a log or a folder of logs; "" if none.

    In a folder, the first trace or log decides. Archives are not opened.
    """
    path = Path(target)
    files = _files(path) if path.is_dir() else [path] if path.is_file() else []
    kinds = (kind_and_tool(file) for file in files)
    return next((tool for kind, tool in kinds if kind not in ("other", "archive")), "")


def read_logs(targets: Sequence[str | Path]) -> Logs:
    """Read the logs of a job: files, folders, or tar or zip archives of them.

    Raises `UsageError` without logs and for logs of several tools; `TraceFormatError` for a damaged one,
    naming file, line or entry, and rank; `TraceError` for logs of different jobs.
    """
    archives: dict[str, str] = {}
    with ExitStack() as stack:
        kinds: set[str] = set()
        of_tool: dict[str, list[Path]] = defaultdict(list)
        for target in targets:
            for path in _opened(Path(target), stack, archives):
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
                f"{place} holds traces, not logs. Give them with --device-trace {targets[0]}, and the host "
                "traces among them with --host-trace."
            )
        if not of_tool:
            raise UsageError(
                f"{place} holds no logs of collectives. Logs can be read of: "
                f"{', '.join(reader.title for reader in readers.values())}."
            )
        if len(of_tool) > 1:
            tools = " and ".join(sorted(readers[tool].title for tool in of_tool))
            raise UsageError(f"{place} holds logs of {tools}. Give those of one tool at a time.")
        tool, paths = of_tool.popitem()
        logs, notes = readers[tool].read(sorted(set(paths)))
        logs = [_with_place(log, archives) for log in logs]
    return _together(tool, readers[tool], place, logs, notes)


def _opened(target: Path, stack: ExitStack, archives: dict[str, str]) -> Iterator[Path]:
    """Yield the files of *target*: itself, those in the folder, or those in the archive.

    *archives* receives the folder into which an archive was unpacked.
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
    return sorted(path for path in islice(folder.rglob("*"), _MOST_FILES) if path.is_file())


def _with_place(log: RankLog, archives: dict[str, str]) -> RankLog:
    """Return *log* with its path in its archive, if any."""
    for folder, archive in archives.items():
        if log.place.startswith(folder):
            return msgspec.structs.replace(log, place=log.place.replace(folder, archive, 1))
    return log


def _together(
    kind: str, reader: LogReader, place: str, logs: Sequence[RankLog], notes: Sequence[str]
) -> Logs:
    """Merge the logs of the ranks, which together determine the members of each group."""
    ranks: dict[int, RankLog] = {}
    for log in sorted(logs, key=lambda log: log.rank):
        if log.rank in ranks:
            refuse_twice(log.rank, Path(log.place), Path(ranks[log.rank].place))
        ranks[log.rank] = log
    stated = [max(comm.ranks) + 1 for log in logs for comm in log.comms.values() if comm.ranks]
    sizes = [comm.size for log in logs for comm in log.comms.values()]
    world = max([*stated, *sizes, *(rank + 1 for rank in ranks)])
    if world > _MOST_RANKS:
        raise TraceError(f"{place}: a log claims {world} ranks, too many for a job.")
    members, labels = _groups(ranks, place)
    known = {
        group: max([comm.size for log in logs for name, comm in log.comms.items() if name == group])
        for group in members
    }
    notes_of_all = [*notes, *_notes(ranks)]
    absent = sorted(set(range(world)) - ranks.keys()) if world < 2 * _MOST_FILES else []
    if absent:
        notes_of_all.append(f"of {world} ranks there is no log of {ranks_text(absent)}")
    labels = _distinct(labels, members)
    sizes_of = {group: max(known[group], len(members[group])) for group in members}
    for group, size in known.items():
        places = {comm.place == rank for rank, log in ranks.items() if (comm := log.comms.get(group))}
        if size == world and places == {True}:  # all ranks, whichever log is there
            members[group] = tuple(range(world))
        elif not size and len(ranks) == 1:  # nobody communicates alone
            sizes_of[group] = max(2, sizes_of[group])
    return Logs(kind, reader, place, ranks, members, labels, sizes_of, world, tuple(notes_of_all))


def _distinct(labels: dict[str, str], members: dict[str, tuple[int, ...]]) -> dict[str, str]:
    """Return *labels* with the ranks added to labels that are empty or not unique."""
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
    """Return the notes of all logs, each once with its ranks."""
    saying: dict[str, list[int]] = defaultdict(list)
    for rank, log in ranks.items():
        for note in log.notes:
            saying[note].append(rank)
    return [note if len(of) == len(ranks) else f"{note} ({ranks_text(of)})" for note, of in saying.items()]


def _groups(ranks: dict[int, RankLog], place: str) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
    """Return the global ranks of each group in its order, and its label."""
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
