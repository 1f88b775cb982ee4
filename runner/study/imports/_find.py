"""Search a folder for items to import, without following links out of it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ....converter.readers import (
    CAPTURE_FOLDER,
    NAMED_LIKE_RANK,
    common_name,
    damaged_file,
    holds_traces,
    host_ranks,
    is_of_one_rank,
    kind_and_tool,
    kind_of,
    missing_rank,
    stated_rank,
)
from ....errors import StudyError, TraceError
from ....tracer import MANIFEST_NAME, TraceSet
from .._layout import safe_name

if TYPE_CHECKING:
    import pandas as pd


_MAX_BYTES = 16 << 30
_MAX_ENTRIES = 20_000
_MAX_DEPTH = 4
_GRAPH = re.compile(r"(?P<prefix>.+)\.(?P<rank>\d{1,9})\.et")
TRACE_NAMES = (".json", ".json.gz")
_ARCHIVE_NAMES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")
# A workload's files other than graphs. Version 0.2 wrote tables.npz.
_OF_WORKLOADS = ("groups.json", "workload.json", "nodes.parquet", "edges.parquet", "tables.npz")
_NO_LOGS = (*_ARCHIVE_NAMES, ".et", ".npz", ".parquet")
_REMEMBERED = 4096
_HOSTS_ALONE = (
    "these are host traces without device traces, and only device traces have times; put the Kineto trace of "
    "each rank next to them"
)


@dataclass(frozen=True)
class ImportItem:
    """Something to import: its *kind* (trace set, traces, logs, graphs or archive) and path (*place*).

    * *ranks* is 0 for archives before unpacking, and for logs before reading.
    * *id* changes if any file of the item changes.
    * *files* are relative to the folder; graphs and traces are in the order of ranks.
    * *host_files* are the host traces that go with device traces.
    * *capture_files* are traces of the capture of CUDA or HIP graphs, in a folder next to the traces.
    * *problem* is the reason why the item cannot be imported, or "".
    """

    id: str
    kind: str
    place: str
    ranks: int
    files: tuple[str, ...]
    size_bytes: int
    host_files: tuple[str, ...] = ()
    capture_files: tuple[str, ...] = ()
    problem: str = ""


def find_items(folder: Path, only: Collection[str] | None = None) -> list[ImportItem]:
    """Return the importable items in *folder*, at most four folders deep, sorted by place.

    *only* restricts the search to the given files and the captures of graphs next to them. Links
    are not followed; an item with files outside of *folder* is listed with a problem. Raises
    `StudyError` for a missing or unreadable folder.
    """
    if not folder.is_dir():
        if folder.exists():
            raise StudyError(
                f"{folder} is a file, but `import` reads a folder. Next: `chakrascope import STUDY "
                f"{shlex.join((str(folder.parent), folder.name))}`."
            )
        raise StudyError(f"There is no folder {folder} to import from. Check its path.")
    items: list[ImportItem] = []
    places = list(_folders(folder) if only is None else _named(folder, only))
    names_at = {place: names for place, names, _ in places if MANIFEST_NAME not in names}
    for place, names, links in places:
        if MANIFEST_NAME in names:
            items.append(_trace_set(folder, place))
        else:
            items += [
                *_graphs(folder, place, names, links),
                *([] if _is_of_captures(folder, place, names_at) else _traces(folder, place, names_at)),
                *_logs(folder, place, names),
                *_archives(folder, place, names),
            ]
    return sorted(items, key=lambda item: (item.place, item.kind))


def find_item(folder: Path, identity: str) -> ImportItem:
    """Return the item *identity*; raises `StudyError` if it is missing, has changed, or has a problem."""
    item = next((item for item in find_items(folder) if item.id == identity), None)
    if item is None:
        raise StudyError("The item was removed or changed in the meantime; choose it again.")
    if item.problem:
        raise StudyError(f"{item.place} cannot be imported: {item.problem}")
    return item


def _folders(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder below *folder* with its plain files and its links, up to a limit."""
    waiting, seen = [("", 0)], 0
    while waiting:
        place, depth = waiting.pop()
        names, links = [], []
        try:
            entries = sorted(os.scandir(folder / place), key=lambda entry: entry.name)
        except OSError:  # the folder is not readable
            continue
        for entry in entries:
            seen += 1
            if seen > _MAX_ENTRIES:
                return
            inner = f"{place}/{entry.name}".lstrip("/")
            if entry.is_symlink():
                links.append(entry.name)
            elif entry.is_file():
                names.append(entry.name)
            elif entry.is_dir() and depth < _MAX_DEPTH:
                waiting.append((inner, depth + 1))
        yield place, names, links


def _named(folder: Path, names: Collection[str]) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield the files *names* of *folder*, then the files of its capture folder."""
    yield "", sorted(name for name in names if (folder / name).is_file()), []
    if (folder / CAPTURE_FOLDER).is_dir():
        yield CAPTURE_FOLDER, sorted(path.name for path in (folder / CAPTURE_FOLDER).iterdir()), []


def _trace_set(folder: Path, place: str) -> ImportItem:
    """Return the trace set at *place* with the files in its manifest."""
    manifest = f"{place}/{MANIFEST_NAME}".lstrip("/")
    try:
        ranks = TraceSet.load(folder / place, need_files=False).ranks
    except TraceError as error:
        problem = error.message.replace(f"{folder}/", "").rstrip(".")
        return _item(folder, "trace set", place, [manifest], problem)
    named = [name for entry in ranks for name in entry.files]
    outside = next((name for name in named if not _is_inside(folder / place, name)), None)
    if outside is not None:
        problem = f"its manifest names '{outside[:80]}', which is not a file of this folder"
        named = []
    else:
        problem = ""
    files = [manifest, *(f"{place}/{name}".lstrip("/") for name in named)]
    item = _item(folder, "trace set", place, files, problem)
    return replace(item, ranks=len(ranks))


def _is_inside(folder: Path, name: str) -> bool:
    """Return whether *name* is a plain file below *folder*, without links or ``..`` on the way."""
    path = folder / name
    try:
        plain = not Path(name).is_absolute() and path.is_file()
        return plain and path.resolve() == folder.resolve() / name
    except (OSError, ValueError):
        return False


def _graphs(folder: Path, place: str, names: list[str], links: list[str]) -> Iterator[ImportItem]:
    """Yield a workload per PREFIX of files ``PREFIX.<rank>.et``."""
    ranks_of_prefix: dict[str, dict[int, str]] = {}
    for name in names:
        match = _GRAPH.fullmatch(name)
        if match:
            ranks_of_prefix.setdefault(match["prefix"], {})[int(match["rank"])] = name
    for prefix, by_rank in ranks_of_prefix.items():
        beside = [f"{prefix}.{end}" for end in _OF_WORKLOADS]
        files = [*(by_rank[rank] for rank in sorted(by_rank)), *(name for name in beside if name in names)]
        link = next((name for name in links if name.startswith(f"{prefix}.")), None)
        problem = _gap(by_rank) if link is None else f"'{link[:80]}' is a link, and links are not followed"
        made = _item(folder, "graphs", _join(place, prefix), [_join(place, name) for name in files], problem)
        yield replace(made, ranks=len(by_rank))


def _traces(folder: Path, place: str, names_at: dict[str, list[str]]) -> Iterator[ImportItem]:
    """Yield the device traces of each naming pattern, with the host traces that match best.

    Megatron writes host and device traces into separate folders, so if *place* has no host traces,
    sibling folders with nothing else are used.
    """
    devices_at = _side(folder, place, names_at[place], "device")
    if not devices_at:
        yield from _hosts_alone(folder, place, names_at)
        return
    hosts_at = {place: _side(folder, place, names_at[place], "host")}
    if not hosts_at[place]:
        beside = [other for other in names_at if other != place and _parent(other) == _parent(place)]
        hosts_at = {
            other: _side(folder, other, names_at[other], "host")
            for other in sorted(beside)
            if not _side(folder, other, names_at[other], "device")
        }
    hosts_of = {
        (other, pattern): ranks
        for other, hosts in hosts_at.items()
        for pattern, ranks in _by_pattern(host_ranks(hosts, devices_at)).items()
    }
    inner = _join(place, CAPTURE_FOLDER)
    captured = _side(folder, inner, names_at.get(inner, []), "device")
    for pattern, devices in _by_pattern(devices_at).items():
        partners = [name for name, ranks in hosts_of.items() if ranks.keys() == devices.keys()]
        partner = max(
            partners, key=lambda name: SequenceMatcher(None, name[1], pattern).ratio(), default=None
        )
        files = _in_order(folder, devices)
        captures = tuple(path.relative_to(folder).as_posix() for path in captured)
        host_files = _in_order(folder, hosts_of[partner]) if partner else []
        problem = _trace_problem(devices, [folder / place / name for name in names_at[place]])
        made = _item(folder, "traces", _join(place, pattern), [*files, *host_files, *captures], problem)
        yield replace(
            made, ranks=len(devices), files=tuple(files), host_files=tuple(host_files), capture_files=captures
        )


def _trace_problem(devices: dict[int, Path], others: list[Path]) -> str:
    """Return why the traces *devices* cannot be imported, or ""; *others* are all files of the folder."""
    damaged = damaged_file(devices.values(), others)
    if damaged is not None:
        return f"{damaged.name} {NAMED_LIKE_RANK}"
    # A single rank represents all other ranks, regardless of its number.
    absent = missing_rank(devices) if len(devices) > 1 else None
    if absent is None:
        return ""
    return f"there is no trace of rank {absent}, and the traces do not state the size of their job"


def _hosts_alone(folder: Path, place: str, names_at: dict[str, list[str]]) -> Iterator[ImportItem]:
    """Yield host traces at *place* without device traces; the missing device traces are their problem."""
    beside = [other for other in names_at if _parent(other) == _parent(place)]
    if any(_side(folder, other, names_at[other], "device") for other in beside):
        return
    hosts = _side(folder, place, names_at[place], "host")
    for pattern, by_rank in _by_pattern(hosts).items():
        files = _in_order(folder, by_rank)
        made = _item(folder, "traces", _join(place, pattern), files, _HOSTS_ALONE)
        yield replace(made, ranks=len(by_rank), files=(), host_files=tuple(files))


def _is_of_captures(folder: Path, place: str, names_at: dict[str, list[str]]) -> bool:
    """Return whether *place* contains only captures of graphs that traces in the parent folder launch."""
    above = _parent(place)
    if place.rpartition("/")[2] != CAPTURE_FOLDER or above not in names_at:
        return False
    return bool(_side(folder, above, names_at[above], "device"))


def _parent(place: str) -> str | None:
    """Return the folder that contains *place*, or None if *place* is the searched folder."""
    return place.rpartition("/")[0] if place else None


def _in_order(folder: Path, by_rank: dict[int, Path]) -> list[str]:
    """Return the files in order of rank, relative to *folder*."""
    return [path.relative_to(folder).as_posix() for _, path in sorted(by_rank.items())]


def _side(folder: Path, place: str, names: list[str], side: str) -> dict[Path, int | None]:
    """Return the ``host`` or ``device`` traces at *place*, each with its rank."""
    paths = [folder / place / name for name in sorted(names) if name.endswith(TRACE_NAMES)]
    sides = {path: _side_and_rank(path) for path in paths if is_of_one_rank(path.name)}
    return {path: rank for path, (kind, rank) in sides.items() if kind == side}


def _by_pattern(ranks: dict[Path, int | None]) -> dict[str, dict[int, Path]]:
    """Return the files of *ranks* by naming pattern and rank.

    Several files of one rank belong to different jobs, in the order of names.
    """
    files_of_pattern: dict[str, dict[int, Path]] = {}
    recorded: dict[tuple[str, int], int] = {}
    for path, rank in ranks.items():
        pattern = path.name if rank is None else common_name(path.name)
        times = recorded[pattern, rank or 0] = recorded.get((pattern, rank or 0), 0) + 1
        if times > 1:
            pattern = f"{pattern}, recording {times}"
        files_of_pattern.setdefault(pattern, {})[rank or 0] = path
    return files_of_pattern


def _logs(folder: Path, place: str, names: list[str]) -> Iterator[ImportItem]:
    """Yield the production logs of each tool; a job has one or more files per rank in one folder."""
    logs_of_tool: dict[str, list[str]] = {}
    for name in names:
        if not name.endswith(_NO_LOGS):
            logs_of_tool.setdefault(_side_and_rank(folder / place / name)[0], []).append(name)
    for tool in sorted(logs_of_tool.keys() - {"host", "device", ""}):
        own = sorted(logs_of_tool[tool])
        patterns = {common_name(name) for name in own}
        pattern = own[0] if len(own) == 1 else patterns.pop() if len(patterns) == 1 else f"{tool} logs"
        yield _item(folder, "logs", _join(place, pattern), [_join(place, name) for name in own], "")


def _side_and_rank(path: Path) -> tuple[str, int | None]:
    """Return ``host``, ``device``, a log's tool or ``""``, and the rank in the file name, if any."""
    try:
        stat = path.stat()
    except OSError:
        return "", None
    return _classify(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=_REMEMBERED)
def _classify(path: Path, _size: int, _mtime_ns: int) -> tuple[str, int | None]:
    kind, tool = kind_and_tool(path)
    return (kind, stated_rank(path)) if kind in ("host", "device") else (tool, None)


def _archives(folder: Path, place: str, names: list[str]) -> Iterator[ImportItem]:
    """Yield the archives in *folder* that contain traces."""
    for name in names:
        if name.endswith(_ARCHIVE_NAMES) and _has_traces(folder / place / name):
            inner = _join(place, name)
            yield _item(folder, "archive", inner, [inner], "")


def _has_traces(path: Path) -> bool:
    try:
        stat = path.stat()
    except OSError:
        return False
    return _archive_has_traces(path, stat.st_size, stat.st_mtime_ns)


@lru_cache(maxsize=_REMEMBERED)
def _archive_has_traces(path: Path, _size: int, _mtime_ns: int) -> bool:
    return kind_of(path) == "archive" and holds_traces(path)


def _gap(by_rank: Collection[int]) -> str:
    absent = next((rank for rank in range(len(by_rank)) if rank not in by_rank), None)
    return "" if absent is None else f"there is no file of rank {absent}; ranks count from 0 without gaps"


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _item(folder: Path, kind: str, place: str, files: list[str], problem: str) -> ImportItem:
    stats = [(folder / file).lstat() for file in files]
    size = sum(stat.st_size for stat in stats)
    if not problem and size > _MAX_BYTES:
        problem = f"it has {size >> 30} GiB, and the viewer takes {_MAX_BYTES >> 30}; use the command line"
    facts = [
        kind,
        place,
        *((file, stat.st_size, stat.st_mtime_ns) for file, stat in zip(files, stats, strict=True)),
    ]
    identity = hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return ImportItem(identity, kind, place or ".", 0, tuple(files), size, problem=problem)


_COLUMNS = ["id", "place", "kind", "ranks", "files", "size_bytes", "problem"]


def item_table(items: Sequence[ImportItem]) -> pd.DataFrame:
    """Return a row per item; ``ranks`` is None if it is only known after reading."""
    import pandas as pd  # noqa: PLC0415 - the process of a job starts without pandas

    counts = [sum(map(len, (item.files, item.host_files, item.capture_files))) for item in items]
    ranks = pd.Series([item.ranks or None for item in items], dtype=object)
    table = pd.DataFrame([vars(item) for item in items], columns=_COLUMNS)
    table["ranks"], table["files"] = ranks, counts
    frame: pd.DataFrame = table
    return frame


def proposed_name(item: ImportItem) -> str:
    """Return a name for the item's workload, with the letters and digits of the item's path."""
    path = PurePosixPath(item.place)
    text = path.parent.name if item.kind in ("traces", "logs") and path.parent.name else path.name
    text = re.sub(r"(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$", "", text)
    if item.kind == "archive":
        text = re.sub(r"\.(?:zip|tgz|tar(?:\.\w+)?)$", "", text)
    return safe_name(re.sub(r"[-_.]*\{rank\}", "", text), "imported")
