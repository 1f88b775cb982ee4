"""Find what can be imported below one folder, and nothing outside of it."""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from pathlib import Path

from ....errors import StudyError, TraceError
from ....tracer import MANIFEST_NAME, TraceSet

__all__ = ["ImportItem", "find_item", "find_items"]

_MOST_BYTES = 16 << 30
_MOST_ENTRIES = 20_000
_MOST_DEPTH = 4
_SNIFFED_BYTES = 1 << 16
_NUMBER = re.compile(r"\d{1,9}(?!.*\d)")  # the last one of a name: in node3_rank12 that is the rank
_GRAPH = re.compile(r"(?P<prefix>.+)\.(?P<rank>\d{1,9})\.et")
_TRACE_NAMES = (".json", ".json.gz")
# Words that only traces of one side have, near their beginning.
_DEVICE_WORDS = (b'"traceEvents"', b'"deviceProperties"', b'"schemaVersion"')
_HOST_WORDS = (b"-chakra", b'"nodes"')


@dataclass(frozen=True)
class ImportItem:
    """Something to import: *kind* is trace set, traces or graphs; *place* says where, below the folder.

    *id* is another one as soon as a file changes. *files* are relative to the folder, of graphs and of
    traces in the order of ranks; *host_files* are those of traces that have a host side too. *problem* says
    why it cannot be imported.
    """

    id: str
    kind: str
    place: str
    ranks: int
    files: tuple[str, ...]
    size_bytes: int
    host_files: tuple[str, ...] = ()
    problem: str = ""


def find_items(folder: Path) -> list[ImportItem]:
    """Return what lies in *folder*, at most four folders deep, sorted by place.

    Links are not followed, and what would reach outside of *folder* is listed with that as its problem.
    Raises `StudyError` if the folder cannot be read.
    """
    if not folder.is_dir():
        raise StudyError(f"The folder {folder} to import from is not there; start the viewer with another.")
    items: list[ImportItem] = []
    for place, names, links in _folders(folder):
        if MANIFEST_NAME in names:
            items.append(_trace_set(folder, place))
        else:
            items += [*_graphs(folder, place, names, links), *_traces(folder, place, names)]
    return sorted(items, key=lambda item: (item.place, item.kind))


def find_item(folder: Path, identity: str) -> ImportItem:
    """Return the item *identity*; raises `StudyError` if it is not there, has changed, or has a problem."""
    item = next((item for item in find_items(folder) if item.id == identity), None)
    if item is None:
        raise StudyError("What was to be imported is gone or has changed meanwhile; choose it again.")
    if item.problem:
        raise StudyError(f"{item.place} cannot be imported: {item.problem}")
    return item


def _folders(folder: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each folder's place below *folder*, with its plain files and its links; not endlessly many."""
    waiting, seen = [("", 0)], 0
    while waiting:
        place, depth = waiting.pop()
        names, links = [], []
        try:
            entries = sorted(os.scandir(folder / place), key=lambda entry: entry.name)
        except OSError:  # not ours to read
            continue
        for entry in entries:
            seen += 1
            if seen > _MOST_ENTRIES:
                return
            inner = f"{place}/{entry.name}".lstrip("/")
            if entry.is_symlink():
                links.append(entry.name)
            elif entry.is_file():
                names.append(entry.name)
            elif entry.is_dir() and depth < _MOST_DEPTH:
                waiting.append((inner, depth + 1))
        yield place, names, links


def _trace_set(folder: Path, place: str) -> ImportItem:
    """Return the trace set at *place*, with those files that its manifest names."""
    manifest = f"{place}/{MANIFEST_NAME}".lstrip("/")
    try:
        ranks = TraceSet.load(folder / place, need_files=False).ranks
    except TraceError as error:
        problem = error.message.replace(f"{folder}/", "").rstrip(".")
        return _item(folder, "trace set", place, [manifest], problem)
    named = [name for entry in ranks for name in entry.files]
    outside = next((name for name in named if not _is_inside(folder / place, name)), None)
    if outside is not None:
        problem = f"its manifest names '{outside[:80]}', which is no file of this folder"
        named = []
    else:
        problem = ""
    files = [manifest, *(f"{place}/{name}".lstrip("/") for name in named)]
    found = _item(folder, "trace set", place, files, problem)
    return replace(found, ranks=len(ranks))


def _is_inside(folder: Path, name: str) -> bool:
    """Return whether *name* is a plain file below *folder*, reached without links and without ``..``."""
    path = folder / name
    try:
        plain = not Path(name).is_absolute() and path.is_file()
        return plain and path.resolve() == folder.resolve() / name
    except (OSError, ValueError):
        return False


def _graphs(folder: Path, place: str, names: list[str], links: list[str]) -> Iterator[ImportItem]:
    """Yield a workload for each prefix of ``PREFIX.<rank>.et``."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        match = _GRAPH.fullmatch(name)
        if match:
            found.setdefault(match["prefix"], {})[int(match["rank"])] = name
    for prefix, by_rank in found.items():
        beside = [f"{prefix}.{end}" for end in ("groups.json", "workload.json", "tables.npz")]
        files = [*(by_rank[rank] for rank in sorted(by_rank)), *(name for name in beside if name in names)]
        link = next((name for name in links if name.startswith(f"{prefix}.")), None)
        problem = _gap(by_rank) if link is None else f"'{link[:80]}' is a link, and links are not followed"
        made = _item(folder, "graphs", _join(place, prefix), [_join(place, name) for name in files], problem)
        yield replace(made, ranks=len(by_rank))


def _traces(folder: Path, place: str, names: list[str]) -> Iterator[ImportItem]:
    """Yield the device traces of each naming pattern, with the host traces that go with them best."""
    sides: dict[str, dict[str, dict[int, str]]] = {"host": {}, "device": {}}
    for pattern, by_rank in _patterns(names).items():
        side = _side(folder / place / by_rank[min(by_rank)])
        if side:
            sides[side][pattern] = by_rank
    for pattern, devices in sides["device"].items():
        partners = [name for name, ranks in sides["host"].items() if ranks.keys() == devices.keys()]
        partner = max(partners, key=lambda name: SequenceMatcher(None, name, pattern).ratio(), default=None)
        hosts = sides["host"][partner] if partner else {}
        files = [_join(place, devices[rank]) for rank in sorted(devices)]
        host_files = [_join(place, hosts[rank]) for rank in sorted(hosts)]
        made = _item(folder, "traces", _join(place, pattern), [*files, *host_files], _gap(devices))
        yield replace(made, ranks=len(devices), files=tuple(files), host_files=tuple(host_files))


def _patterns(names: list[str]) -> dict[str, dict[int, str]]:
    """Return the trace files by their name with ``{rank}`` for its last number, then by rank."""
    found: dict[str, dict[int, str]] = {}
    for name in names:
        end = next((end for end in reversed(_TRACE_NAMES) if name.endswith(end)), "")
        match = _NUMBER.search(name.removesuffix(end)) if end else None
        if match:
            pattern = f"{name[: match.start()]}{{rank}}{name[match.end() :]}"
            found.setdefault(pattern, {})[int(match[0])] = name
    return found


def _side(path: Path) -> str:
    """Return whether a file begins like a host or a device trace, or ``""``."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(_SNIFFED_BYTES)
    except (OSError, EOFError, zlib.error):
        return ""
    if any(word in head for word in _DEVICE_WORDS):
        return "device"
    return "host" if any(word in head for word in _HOST_WORDS) else ""


def _gap(by_rank: dict[int, str]) -> str:
    absent = next((rank for rank in range(len(by_rank)) if rank not in by_rank), None)
    return "" if absent is None else f"there is no file of rank {absent}; ranks count from 0 without gaps"


def _join(place: str, name: str) -> str:
    return f"{place}/{name}" if place else name


def _item(folder: Path, kind: str, place: str, files: list[str], problem: str) -> ImportItem:
    stats = [(folder / file).lstat() for file in files]
    size = sum(stat.st_size for stat in stats)
    if not problem and size > _MOST_BYTES:
        problem = f"it has {size >> 30} GiB, and the viewer takes {_MOST_BYTES >> 30}; use the command line"
    facts = [
        kind,
        place,
        *((file, stat.st_size, stat.st_mtime_ns) for file, stat in zip(files, stats, strict=True)),
    ]
    identity = hashlib.sha256(json.dumps(facts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    return ImportItem(identity, kind, place or ".", 0, tuple(files), size, problem=problem)
