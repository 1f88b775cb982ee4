"""Find the traces of all ranks by a pattern with ``{rank}``, in a folder or in a list of files."""

from __future__ import annotations

import glob
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path

import msgspec
from msgspec.structs import replace

from ...errors import UsageError
from ...support import open_file
from ...tracer import StepRange
from ._file_kinds import (
    RANK,
    common_name,
    damaged_file,
    indices_in_name,
    is_of_one_rank,
    kind_of,
    missing_rank,
    name_of_capture,
    rank_in_name,
    stated_process,
    stated_rank,
    unpacked,
)

CAPTURE_FOLDER = "capture_traces"
"""The folder's name in TraceLens's scripts for vLLM and SGLang."""

NAMED_LIKE_RANK = (
    "is named like the file of a rank, but is empty or damaged; copy it again, or remove it to leave out "
    "this rank"
)
"""The end of an error about a file that `damaged_file` finds."""

_JSON_NAMES = (".json", ".json.gz")
_MAX_FILES = 20_000
# The device that traces of jobs without an accelerator name.
HOST_DEVICES = frozenset({"", "cpu"})
# The kinds of files that each side accepts in a folder.
_KINDS = {"device": ("device",), "host": ("host", "linked"), "linked": ("linked",)}

Files = str | Sequence[str | Path]


def find_rank_traces(
    host_trace: Files | None, device_trace: Files | None, linked_trace: Files | None = None
) -> list[RankTraces]:
    """Return the traces of ranks 0, 1, ... for the file arguments of `convert_files`.

    Raises `UsageError` if a pattern matches nothing, if ranks are missing or differ between host
    and device traces, if a host trace has neither times nor a device trace, or if a file is an
    archive (open these with `with_archives_open`).
    """
    if linked_trace is not None:
        if host_trace is not None or device_trace is not None:
            raise UsageError(
                "A linked trace contains both host and device work. Next: give either linked traces, or host "
                "and device traces."
            )
        found = _by_rank(linked_trace, "linked")
        return _complete([RankTraces(rank, path, path, linked=True) for rank, path in found.items()])
    devices = _by_rank(device_trace, "device") if device_trace is not None else {}
    beside = list(devices.values())
    hosts = _by_rank(host_trace, "host", beside) if host_trace is not None else {}
    linked = {rank for rank, path in hosts.items() if kind_of(path) == "linked"}
    if device_trace is None:
        return _complete(_linked_only(hosts, linked))
    lonely = sorted(set(hosts) ^ set(devices)) if host_trace is not None else []
    if lonely:
        side = "host" if lonely[0] in hosts else "device"
        raise UsageError(
            f"Rank {lonely[0]} has only a {side} trace ({(hosts | devices)[lonely[0]]}); but every rank "
            "needs both kinds. Next: give the missing file or narrow the patterns."
        )
    return _complete(
        [RankTraces(rank, hosts.get(rank), path, linked=rank in linked) for rank, path in devices.items()]
    )


@contextmanager
def with_archives_open(*sides: Files | None) -> Iterator[tuple[Files | None, ...]]:
    """Yield *sides* with the content of each archive, in a temporary folder, in place of the archive.

    Raises the errors of `unpacked`.
    """
    with ExitStack() as stack:
        folders: dict[str, str] = {}
        for side in sides:
            if isinstance(side, str) and side not in folders and kind_of(Path(side)) == "archive":
                folders[side] = str(stack.enter_context(unpacked(Path(side))))
        yield tuple(folders.get(side, side) if isinstance(side, str) else side for side in sides)


def find_sides(target: str) -> dict[str, str]:
    """Return *target* for each side that it has traces of (``host``, ``device``, ``linked``).

    *target* is a trace, a pattern or a folder. Linked traces count only in a folder without device
    traces.
    """
    path = Path(target)
    if path.is_dir():
        kinds = {kind_of(file) for file in _traces_in(path)}
        sides = ["host", "device"] if "device" in kinds else ["linked"]
        return {side: target for side in sides if side in kinds} or dict.fromkeys(kinds & {"host"}, target)
    files = _matching(target, "trace").values() if RANK in target else _listed(target, "device")
    kind = next((kind_of(file) for file in files if file.is_file()), "other")
    return {kind: target} if kind in _KINDS else {}


def _linked_only(hosts: dict[int, Path], linked: set[int]) -> list[RankTraces]:
    """Return the traces of *hosts*, which must be linked, because no device trace exists."""
    unlinked = sorted(set(hosts) - linked)
    if unlinked or not hosts:
        which = f" ({hosts[unlinked[0]]})" if unlinked else ""
        raise UsageError(
            f"A host trace{which} has no times. Next: give the device traces of the same run (Kineto JSON) "
            "with --device-trace; device traces can be converted without host traces, but not vice versa."
        )
    return [RankTraces(rank, path, path, linked=True) for rank, path in hosts.items()]


def _complete(found: list[RankTraces]) -> list[RankTraces]:
    """Return the traces in order of ranks, numbered from 0.

    Raises `UsageError` for a missing rank, unless the traces state the size of their job.
    """
    by_rank = {traces.rank: traces for traces in found}
    absent = missing_rank({rank: traces.device_path for rank, traces in by_rank.items()})
    if absent is not None:
        raise UsageError(
            f"There are traces of rank {max(by_rank)} but none of rank {absent}, and they do not state the "
            "size of their job. Next: add the missing files."
        )
    return [replace(by_rank[rank], rank=number) for number, rank in enumerate(sorted(by_rank))]


def _by_rank(files: Files, side: str, devices: Sequence[Path] = ()) -> dict[int, Path]:
    """Return the files of one side by rank; for host traces, *devices* are the device traces."""
    if isinstance(files, str) and RANK in files:
        found = _matching(files, side)
    elif isinstance(files, str) and not Path(files).is_file():
        found = _by_stated_rank(_listed(files, side), side, devices)
    else:
        listed = [files] if isinstance(files, str) else list(files)
        found = {rank: Path(path) for rank, path in enumerate(listed)}
    if not found:
        raise UsageError(f"No {side} trace was given. Give a pattern such as 'et_{{rank}}.json.gz'.")
    for path in found.values():
        _refuse(path, side)
    return found


def _listed(files: str, side: str) -> list[Path]:
    """Return the traces of one side in a folder, for a pattern, or the single file."""
    if Path(files).is_dir():
        found = [path for path in _traces_in(Path(files)) if kind_of(path) in _KINDS[side]]
        if not found:
            raise UsageError(f"{files} holds no {side} trace (.json or .json.gz). Check the folder.")
        others = [path for folder in {path.parent for path in found} for path in folder.iterdir()]
        damaged = damaged_file(found, others)
        if damaged is not None:
            raise UsageError(f"{damaged} {NAMED_LIKE_RANK}.")
    else:
        found = [Path(name) for name in glob.glob(files)]
    found.sort()
    return [path for path in found if is_of_one_rank(path.name)] or found or [Path(files)]


def _traces_in(folder: Path) -> list[Path]:
    """Return the traces in *folder*, or in its subfolders if *folder* itself has no trace."""
    for files in (folder.iterdir(), islice(folder.rglob("*"), _MAX_FILES)):
        named = [path for path in files if path.name.endswith(_JSON_NAMES) and path.is_file()]
        if found := [path for path in named if kind_of(path) in _KINDS["device"] + _KINDS["host"]]:
            return found
    return []


def _by_stated_rank(paths: Sequence[Path], side: str, beside: Sequence[Path]) -> dict[int, Path]:
    """Return *paths* by rank, which the trace files or their names state; a single file is rank 0."""
    if len(paths) == 1:
        return {0: paths[0]}
    stated: dict[int, Path] = {}
    ranks, devices = ({path: stated_rank(path) for path in some} for some in (paths, beside))
    for path, rank in host_ranks(ranks, devices).items():
        if rank is None or rank in stated:
            raise UsageError(f"The {side} trace {path} {_why_not(rank, stated, path)}")
        stated[rank] = path
    return stated


def _why_not(rank: int | None, stated: dict[int, Path], path: Path) -> str:
    """Explain why *path* cannot be the trace of *rank*, given the ranks already *stated*."""
    give = f"Give one file of each rank, or a pattern with {RANK} where the names have it"
    if rank is None and (indices := indices_in_name(path.name)):
        return (
            f"does not contain its rank, and its name only has indices in groups ({indices}), whose order in "
            f"the job is unknown. {give}."
        )
    if rank is None:
        return f"has no rank in its content or its name. {give}."
    same_rank = f"belongs to rank {rank}, like {stated[rank]}"
    if common_name(path.name) == common_name(stated[rank].name):
        return (
            f"{same_rank}: it was recorded more than once. {give}; 'chakrascope import' distinguishes "
            "recordings."
        )
    return f"{same_rank}. {give}."


def _matching(pattern: str, side: str) -> dict[int, Path]:
    """Return the files that *pattern* matches, by the number in place of ``{rank}``."""
    if pattern.count(RANK) > 1:
        raise UsageError(f"The pattern '{pattern}' has {RANK} more than once. Use it once, and * elsewhere.")
    before, after = pattern.split(RANK)
    expression = re.compile(glob_expression(before) + r"(\d{1,9})" + glob_expression(after))
    found: dict[int, Path] = {}
    before, after = (part.replace("[", "[[]") for part in (before, after))  # escape "[" for glob
    for name in sorted(glob.glob(f"{before}[0-9]*{after}")):
        match = expression.fullmatch(name)
        if match is None:
            continue
        rank = int(match[1])
        if rank in found:
            raise UsageError(
                f"The pattern '{pattern}' matches two {side} traces of rank {rank}: {found[rank]} and "
                f"{name}. Next: narrow the pattern."
            )
        found[rank] = Path(name)
    if not found:
        raise UsageError(
            f"No file matches '{pattern}'. {RANK} stands for the rank's number and * for any text. Next: "
            "check the folder and quote the pattern."
        )
    return found


def glob_expression(pattern: str) -> str:
    """Return a regular expression for the wildcards ``*`` and ``?``, which do not match ``/``."""
    parts = {"*": "[^/]*", "?": "[^/]"}
    return "".join(parts.get(character, re.escape(character)) for character in pattern)


def _refuse(path: Path, side: str) -> None:
    """Raise `UsageError` if a file cannot be opened or is an archive."""
    try:
        open_file(path).close()
    except OSError as error:
        raise UsageError(
            f"The {side} trace {path} cannot be opened ({error.strerror}). Next: check the name."
        ) from None
    if kind_of(path) == "archive":
        raise UsageError(
            f"{path} is an archive, not a trace. Next: give only the archive, without other files or a "
            "pattern."
        )


class RankTraces(msgspec.Struct, frozen=True):
    """The trace files of one rank, and known facts about them.

    *groups* maps group names to global ranks (() means all ranks), and *group_labels* maps group names to
    labels. *steps* is empty if the steps are known only from the trace. A host trace covers all steps, or
    only *structure*. *evidence_path* is the file with the tracer's evidence (see `read_evidence`). *device*
    is the rank's device, such as ``cuda:0``. *linked* means that mlc-chakra's linker wrote the host trace,
    which may then also serve as device trace. *process* is the process number (0: unknown), and *host* is the
    name of its machine ("": unknown). *capture_paths* are traces of the capture of graphs that this trace
    launches. Unreadable capture traces are skipped unless *captures_given* is true. If *annotation* is not
    "", its occurrences within the time of *steps* are the steps.
    """

    rank: int
    host_path: Path | None
    device_path: Path
    flight_path: Path | None = None
    evidence_path: Path | None = None
    groups: dict[str, tuple[int, ...]] = msgspec.field(default_factory=dict)
    group_labels: dict[str, str] = msgspec.field(default_factory=dict)
    steps: tuple[StepRange, ...] = ()
    structure: StepRange | None = None
    device: str = ""
    linked: bool = False
    process: int = 0
    host: str = ""
    annotation: str = ""
    capture_paths: tuple[Path, ...] = ()
    captures_given: bool = False


def host_ranks(
    hosts: Mapping[Path, int | None], devices: Mapping[Path, int | None]
) -> dict[Path, int | None]:
    """Return the rank of each host trace (None: unknown), given the ranks stated by all files.

    The rank comes from the device trace with the same name, otherwise from the file's own name, otherwise
    from the only device trace of the same process. In containers, all processes may have the same number,
    which is then ignored.
    """
    named = _alone([(name_of_capture(device.name), device) for device in devices])
    ranks: dict[Path, int | None] = {}
    for host, own_word in hosts.items():
        twin = named.get(name_of_capture(host.name))
        rank = devices[twin] if twin is not None else None
        ranks[host] = own_word if rank is None else rank
    lost = [host for host, rank in ranks.items() if rank is None]
    if lost:
        device_of = _alone([(stated_process(device), device) for device in devices])
        for process, host in _alone([(stated_process(host), host) for host in lost]).items():
            ranks[host] = devices[device_of[process]] if process in device_of else None
    return ranks


def _alone(pairs: Sequence[tuple[str | int | None, Path]]) -> dict[str | int | None, Path]:
    """Return *pairs* by key, without keys that occur more than once."""
    times = Counter(key for key, _ in pairs)
    return {key: path for key, path in pairs if times[key] == 1 and key is not None}


def with_capture_traces(
    ranks: Sequence[RankTraces], given: str | Path | Sequence[Path] | None
) -> list[RankTraces]:
    """Return *ranks*, each with its graph-capture traces among *given*, a file or folder.

    The default is the folder ``capture_traces`` next to a device trace. A rank gets the files whose names
    contain its number or no rank. If there are no such files, it gets the files of the lowest rank, which
    captured the same graphs. Raises `UsageError` if *given* has no trace.
    """
    if isinstance(given, (str, Path)):
        files = _traces_at(Path(given))
        if not files:
            raise UsageError(
                f"{given} holds no trace of a capture (Kineto JSON, plain or gzip). Next: give the trace "
                "that was recorded while the graphs were captured, or the folder of such traces."
            )
        return [replace(rank, capture_paths=_of_rank(rank, files), captures_given=True) for rank in ranks]
    folders = {rank.device_path.parent for rank in ranks}
    beside = {
        folder: _traces_at(folder / CAPTURE_FOLDER) if given is None else list(given) for folder in folders
    }
    return [replace(rank, capture_paths=_of_rank(rank, beside[rank.device_path.parent])) for rank in ranks]


def _traces_at(path: Path) -> list[Path]:
    """Return the device trace at *path*, or the device traces in the folder *path* sorted by name."""
    if not path.is_dir():
        return [path] if path.is_file() and kind_of(path) == "device" else []
    return sorted(file for file in path.iterdir() if file.is_file() and kind_of(file) == "device")


def _of_rank(rank: RankTraces, files: Sequence[Path]) -> tuple[Path, ...]:
    """Return the capture traces among *files* that belong to *rank*."""
    named = {file: rank_in_name(file) for file in files}
    in_name = rank_in_name(rank.device_path)
    own = rank.rank if in_name is None else in_name
    lowest = min((number for number in named.values() if number is not None), default=None)
    found = [file for file, number in named.items() if number in (None, own)]
    return tuple(found or [file for file, number in named.items() if number == lowest])
