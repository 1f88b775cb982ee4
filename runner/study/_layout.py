"""The layout of a study's folder: the only module that turns a name into a path."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from ...errors import StudyError
from ...support import remove_leftover_of
from ...tracer import MANIFEST_NAME

NAME_LENGTH = 80
_NAME = re.compile(rf"\w[\w .+-]{{0,{NAME_LENGTH - 1}}}")
ENTRY_BYTES = 200  # maximum length; with a temporary suffix, names stay below the 255 bytes of file systems
_STEM_BYTES = 160  # of a name to which callers add degrees, a number or an id
_NUMBERED_BYTES = ENTRY_BYTES - 16  # of a name to which a number and a file's extension are added


def check_name(name: str, what: str) -> None:
    """Raise `StudyError` unless *name* may name a new item *what* (such as ``a workload``).

    A valid name is never a path.
    """
    if not _NAME.fullmatch(name):
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' cannot name {what}; use up to {NAME_LENGTH} letters, digits, blanks and "
            ". _ + -, and begin with a letter or digit."
        )


def safe_name(text: str, default: str) -> str:
    """Return *text* with invalid characters replaced, or *default* if no valid character is left."""
    plain = re.sub(r"[^\w .+-]+", "-", text).lstrip(" .+-")[:NAME_LENGTH]
    return _first_bytes(plain, _STEM_BYTES).rstrip(" .+-") or default


def numbered(name: str) -> Iterator[str]:
    """Yield *name*, then *name*-2, *name*-3 and so on, so that a caller can take the first free name.

    A long *name* is cut before the number.
    """
    yield name
    stem = _first_bytes(name, _NUMBERED_BYTES)
    yield from (f"{stem}-{number}" for number in itertools.count(2))


def _first_bytes(name: str, count: int) -> str:
    """Return the characters of *name* that fit into *count* bytes in the file system."""
    encoded = os.fsencode(name)
    return name if len(encoded) <= count else encoded[:count].decode(errors="ignore")


def named_entry(folder: Path, name: str, what: str) -> Path:
    """Return the path of the item *what* called *name* in *folder*.

    Existing items may have names, such as "job (copy)", that are not allowed for new items. Raises
    `StudyError` for the name of a hidden file, and for a name that leads out of the folder.
    """
    if not 0 < len(os.fsencode(name)) <= ENTRY_BYTES or name.startswith(".") or {"/", "\0"} & {*name}:
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' is not the name of {what} in a study; give a plain name, without a path."
        )
    return folder / name


MARKS_FILE = "timeline-notes.json"  # a run's timeline notes
NOTE_FILE = "note.json"  # label, note and tags of a run or study
RUN_FILE = "run.json"  # written last, so that it marks a run as complete
_HEAD = "study.json"
_CURRENT = "current.json"
_KEPT = "kept-"  # prefix of a run's cache files
WORKLOAD = "workload"  # PREFIX of a workload's files


class StudyLayout:
    """The paths in the study's folder *path*, which need not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def is_study(folder: str | Path) -> bool:
        """Return whether *folder* is a study."""
        return (Path(folder) / _HEAD).is_file()

    @staticmethod
    def folders_in(folder: Path) -> list[Path]:
        """Return the studies directly in *folder*, sorted by name, without unreadable studies."""
        return sorted(file.parent for file in folder.glob(f"*/{_HEAD}"))

    @property
    def head_file(self) -> Path:
        """The file that makes a folder a study."""
        return self.path / _HEAD

    @property
    def current_file(self) -> Path:
        """The file with the id of the run that was last requested again."""
        return self.path / _CURRENT

    @property
    def traces_dir(self) -> Path:
        """The folder of a study's trace sets."""
        return self.path / "traces"

    @property
    def workloads_dir(self) -> Path:
        """The folder of the workloads."""
        return self.path / "workloads"

    @property
    def runs_dir(self) -> Path:
        """The folder of the runs."""
        return self.path / "runs"

    @property
    def sweeps_dir(self) -> Path:
        """The folder of the sweeps, one subfolder each."""
        return self.path / "sweeps"

    @property
    def networks_dir(self) -> Path:
        """The folder of the user's own network files."""
        return self.path / "networks"

    @property
    def operations_file(self) -> Path:
        """The table of timed operations of many steps, if the study has one."""
        return self.path / "operations"

    @property
    def jobs_dir(self) -> Path:
        """The folder of background jobs, managed by the job store."""
        return self.path / "jobs"

    def import_target(self, item: str) -> Path:
        """Return the path at which an import of *item* caches its converted ranks."""
        absolute = self.path.absolute()
        return named_entry(absolute.parent, f"{_first_bytes(absolute.name, _STEM_BYTES)}.{item}", "an import")

    def trace_dir(self, name: str) -> Path:
        """Return the folder of the trace set *name*."""
        return named_entry(self.traces_dir, name, "a trace set")

    def workload_dir(self, name: str) -> Path:
        """Return the folder of the workload *name*."""
        return named_entry(self.workloads_dir, name, "a workload")

    def prefix_in(self, folder: Path) -> Path:
        """Return the PREFIX of the graphs in a workload's *folder*."""
        return folder / WORKLOAD

    def run_dir(self, run_id: str) -> Path:
        """Return the folder of the run *run_id*."""
        return named_entry(self.runs_dir, run_id, "a run")

    def run_file(self, run_id: str) -> Path:
        """Return the file that marks a run as complete."""
        return self.run_dir(run_id) / RUN_FILE

    def cache_file(self, run_id: str, name: str) -> Path:
        """Return the cache file of a slow analysis of a run."""
        return self.run_dir(run_id) / f"{_KEPT}{name}"

    def files_of_run(self, run_id: str, workload: str) -> list[Path]:
        """Return the files of a run and of its *workload*, without notes and cache files."""
        folders = [self.run_dir(run_id), *([self.workload_dir(workload)] if workload else [])]
        others = (".", _KEPT, NOTE_FILE, MARKS_FILE)
        files = [file for folder in folders for file in sorted(folder.glob("*")) if file.is_file()]
        return [file for file in files if not file.name.startswith(others)]

    def recording_dir(self, name: str) -> Path:
        """Return the folder of the recordings of the script *name*."""
        return named_entry(self.path / "recordings", name, "a recording")

    def findings_file(self, item: str) -> Path:
        """Return the file with the findings about the importable *item*."""
        return named_entry(self.jobs_dir / "findings", f"{item}.json", "an import")

    def step_names_file(self, item: str) -> Path:
        """Return the file with the annotations that mark steps in the importable *item*."""
        return self.findings_file(item).with_suffix(".steps.json")

    def algorithms_dir(self, name: str) -> Path:
        """Return the folder of the collective algorithms saved as *name*; "" gives the parent folder."""
        folder = self.jobs_dir / "algorithms"
        return named_entry(folder, name, "a job's algorithms") if name else folder

    def workload_files(self, name: str) -> list[Path]:
        """Return the files with the properties of the nodes of the workload *name*."""
        prefix = self.prefix_in(self.workload_dir(name))
        return [prefix.parent / f"{prefix.name}.{what}" for what in ("workload.json", "nodes.parquet")]

    def network_file(self, name: str) -> Path:
        """Return the network file *name*."""
        return named_entry(self.networks_dir, name, "a network")

    def sweep_dir(self, name: str) -> Path:
        """Return the folder of the sweep *name*."""
        return named_entry(self.sweeps_dir, name, "a sweep")

    def trace_set_dirs(self) -> list[Path]:
        """Return the folders of the trace sets that have a manifest, oldest first."""
        manifests = list(self.traces_dir.glob(f"*/{MANIFEST_NAME}"))
        return [file.parent for file in sorted(manifests, key=lambda file: (file.stat().st_mtime_ns, file))]

    def unfinished_trace_dirs(self) -> list[Path]:
        """Return the folders of captures that never finished, by name."""
        folders = sorted(folder for folder in self.traces_dir.glob("*") if folder.is_dir())
        return [folder for folder in folders if not (folder / MANIFEST_NAME).exists()]

    def workload_dirs(self) -> list[Path]:
        """Return the folders of the workloads, oldest first."""
        files = list(self.workloads_dir.glob(f"*/{WORKLOAD}.workload.json"))
        return [file.parent for file in sorted(files, key=lambda file: (file.stat().st_mtime_ns, file))]

    def graph_prefixes(self) -> list[Path]:
        """Return the PREFIX of all graphs, even of incomplete workloads, sorted by name."""
        first = sorted(self.workloads_dir.glob(f"*/{WORKLOAD}.0.et"))
        return [self.prefix_in(file.parent) for file in first]

    def run_dirs(self) -> Iterator[Path]:
        """Yield the folders of the finished runs."""
        for file in self.runs_dir.glob(f"[!.]*/{RUN_FILE}"):
            yield file.parent

    def unlisted_run_dirs(self) -> list[Path]:
        """Return the folders of runs that lack the file that marks them as finished, by name."""
        folders = sorted(folder for folder in self.runs_dir.glob("[!.]*") if folder.is_dir())
        return [folder for folder in folders if not (folder / RUN_FILE).exists()]

    def taken_names(self) -> set[str]:
        """Return the names in use for workloads and trace sets."""
        return {path.name for root in (self.workloads_dir, self.traces_dir) for path in root.glob("*")}

    def last_change(self) -> float:
        """Return the time of the study's last change, in seconds since 1970."""
        parts = [
            self.path,
            self.head_file,
            self.path / NOTE_FILE,
            self.runs_dir,
            self.traces_dir,
            self.workloads_dir,
        ]
        return max(part.stat().st_mtime for part in parts if part.exists())

    def discard_empty(self, trace_dir: Path) -> None:
        """Remove the folder of an empty capture, and the study if nothing else is in it."""
        for folder in (trace_dir, self.traces_dir):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        if list(self.path.iterdir()) == [self.head_file]:
            shutil.rmtree(self.path)

    def discard_unfinished_run(self, run_id: str, pid: int) -> None:
        """Remove the unfinished run of the dead process *pid*."""
        remove_leftover_of(self.run_dir(run_id), pid)
