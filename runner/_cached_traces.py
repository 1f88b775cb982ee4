"""Convert traces that are given in place of a study, and cache the resulting study by content."""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ..converter.readers import is_operation_table, kind_of
from ..errors import StudyError
from ..support import cache_folder, code_version, is_temporary, new_folder, remove_folder
from ._checksums import refuse_damaged
from .study import TRACE_NAMES, ImportItem, Study, find_items, proposed_name, safe_name

if TYPE_CHECKING:
    from ..converter.building import Progress

_MAX_BYTES = 4 << 30  # limit on the total size of cached studies
_MAX_READ_BYTES = 1 << 30  # larger traces are identified by size and modification time
_FOLDER = "replays"  # within the user's cache
_NAMED = 4
_NSIGHT = (".nsys-rep", ".qdrep", ".ncu-rep", ".sqlite")
_BLOCK = 1 << 20


def study_of_traces(paths: Sequence[Path], progress: Progress = lambda _done, _of: None) -> Study:
    """Return the study of the traces at *paths*: files of one folder, one folder, or one archive.

    At the first call, the median step of the traces is converted and replayed as measured. The study is
    cached by the content of the traces. A table of operations becomes a study without a run. *progress* is
    called with the number of converted ranks and the number of all ranks. If *paths* contain no importable
    item or several items, the function raises `StudyError`. The function also raises the errors of
    `import_item`.
    """
    if len(paths) == 1 and is_operation_table(paths[0]):
        return _study_of_table(paths[0])
    folder, item = _the_item(paths)
    name = safe_name(proposed_name(item), "trace")

    def fill(study: Study) -> None:
        from ._simulate import prepare  # noqa: PLC0415 - cached studies need neither conversion nor replay
        from .backends import get_backend  # noqa: PLC0415
        from .study import import_with_defaults  # noqa: PLC0415

        import_with_defaults(study, folder, item, name, progress)
        measured = prepare(study.workload_prefix(), "default", None, backend="replay")
        study.add_run(measured, get_backend("replay").run(measured))

    return _cached_study(cache_folder(_FOLDER) / _key(folder, item) / name, fill)


def _cached_study(cached: Path, fill: Callable[[Study], object]) -> Study:
    """Return the study at *cached*, which is created and filled at the first call, or if it is damaged."""
    try:
        # A study that another process has made in the meantime is kept, unless it is damaged.
        existing: Literal["keep", "replace"]
        for existing in ("keep", "replace"):
            if _is_intact(cached):
                break
            cached.parent.parent.mkdir(parents=True, exist_ok=True)
            with new_folder(cached.parent, existing=existing) as made:
                fill(Study.create(made / cached.name))
            _remove_oldest(cached.parent)
        os.utime(cached.parent)
    except OSError as error:
        raise StudyError(
            f"The cache of converted traces, {cache_folder(_FOLDER)}, cannot be used ({error.strerror}). "
            "Next: set XDG_CACHE_HOME to another folder, or import the traces into a study with "
            "`chakrascope import`."
        ) from error
    return Study.open(cached)


def _is_intact(folder: Path) -> bool:
    """Return whether the study in *folder* has a run or a table of operations, without damage."""
    try:
        study = Study.open(folder)
        for made in (*study.run_dirs(), *study.workloads_dir.glob("*")):
            refuse_damaged(made)
    except StudyError:
        return False
    return study.operations_file.is_file() or bool(study.runs() and study.graph_prefixes())


def _study_of_table(path: Path) -> Study:
    """Return the cached study of the table of operations at *path*, after reading the table as a check."""
    from ..converter.readers import read_operation_table  # noqa: PLC0415 - imports NumPy
    from ._memory import check_operations  # noqa: PLC0415 - imports NumPy

    check_operations(path)
    read_operation_table(path)
    digest = hashlib.blake2b(f"{code_version()}{path.name}".encode(), digest_size=12)
    digest.update(path.read_bytes())
    cached = cache_folder(_FOLDER) / digest.hexdigest() / safe_name(path.stem, "table")
    return _cached_study(cached, lambda study: shutil.copyfile(path, study.operations_file))


def cached_traces() -> list[tuple[Path, int]]:
    """Return the cached studies with their size in bytes, most recently used first."""
    folder = cache_folder(_FOLDER)
    keys = [path for path in folder.glob("*") if path.is_dir() and not is_temporary(path.name)]
    keys.sort(key=lambda key: key.stat().st_mtime_ns, reverse=True)
    return [
        (study, sum(file.stat().st_size for file in study.rglob("*") if file.is_file()))
        for key in keys
        for study in Study.folders_in(key)
    ]


def clear_cached_traces() -> int:
    """Delete all cached studies, and return their total size in bytes."""
    cached = cached_traces()
    for study, _ in cached:
        shutil.rmtree(study.parent, ignore_errors=True)
    return sum(size for _, size in cached)


def _the_item(paths: Sequence[Path]) -> tuple[Path, ImportItem]:
    """Return the folder of *paths* and its only importable item, or raise `StudyError`."""
    if len(paths) == 1 and paths[0].is_dir():
        folder, items, named = paths[0], find_items(paths[0]), str(paths[0])
    else:
        folders = {path.parent for path in paths}
        if len(folders) > 1:
            raise StudyError(
                "The traces of one job must be in one folder; these traces are in "
                f"{', '.join(map(str, sorted(folders)[:_NAMED]))}. Next: name the folder above them."
            )
        folder = folders.pop()
        items, named = find_items(folder, [path.name for path in paths]), ", ".join(map(str, paths[:_NAMED]))
    usable = [item for item in items if not item.problem]
    if len(usable) == 1:
        return folder, usable[0]
    if usable:
        places = ", ".join(item.place for item in usable[:_NAMED])
        more = f" and {len(usable) - _NAMED} more" if len(usable) > _NAMED else ""
        raise StudyError(
            f"{named} contain{'s' * (len(paths) == 1)} {len(usable)} sets of traces or graphs: {places}{more}"
            ". Next: name the files of one set; compare two with `chakrascope diff`; or, if each is a rank "
            "of one job, put its rank into its name, such as rank0.json.gz. `chakrascope import STUDY "
            f"{folder}` lists all sets."
        )
    if items:
        raise StudyError(f"{folder / items[0].place} cannot be read: {items[0].problem}.")
    misnamed = [path for path in paths if kind_of(path) == "device" and not path.name.endswith(TRACE_NAMES)]
    if misnamed:
        raise StudyError(
            f"{misnamed[0]} is a trace, but its name does not end with {' or '.join(TRACE_NAMES)}. Next: "
            "rename the file."
        )
    nsight = any(path.suffix in _NSIGHT for path in paths)
    raise StudyError(
        f"{named} is neither a study nor a trace, log or graph that can be read"
        f"{', as files of Nsight are not' if nsight else ''}. Next: name a Kineto trace (.json, .json.gz), "
        "which torch.profiler writes, production logs, or a folder or archive of them."
    )


def _key(folder: Path, item: ImportItem) -> str:
    """Return the cache key of *item*, which changes with its content and with Chakrascope's code."""
    digest = hashlib.blake2b(code_version().encode(), digest_size=12)
    for name in (*item.files, *item.host_files, *item.capture_files):
        file = folder / name
        stat = file.stat()
        digest.update(f"{file.name}\0{stat.st_size}\0".encode("utf-8", "surrogatepass"))
        if item.size_bytes > _MAX_READ_BYTES:
            digest.update(str(stat.st_mtime_ns).encode())
            continue
        with file.open("rb") as content:
            while block := content.read(_BLOCK):
                digest.update(block)
    return digest.hexdigest()


def _remove_oldest(latest: Path) -> None:
    """Delete the least recently used studies beyond the size limit, but never *latest*."""
    total = 0
    for study, size_bytes in cached_traces():
        total += size_bytes
        if total > _MAX_BYTES and study.parent != latest:
            remove_folder(study.parent)
