"""The layout of a study's folder, and the only module in which a name becomes part of a path."""

from __future__ import annotations

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
_ENTRY_BYTES = 200  # temporary suffixes keep the name below the 255 characters of file systems


def check_name(name: str, what: str) -> None:
    """Raise `StudyError` if *name* is invalid for a new item of a study, *what* (``a workload``).

    A valid name is never a path.
    """
    if not _NAME.fullmatch(name):
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' cannot name {what}; use up to {NAME_LENGTH} letters, digits, blanks and "
            ". _ + -, and begin with a letter or digit."
        )


def safe_name(text: str, default: str) -> str:
    """Return a valid name made of *text*, or *default* if no valid character is left."""
    plain = re.sub(r"[^\w .+-]+", "-", text).lstrip(" .+-")[:NAME_LENGTH].rstrip(" .+-")
    return plain or default


def named_entry(folder: Path, name: str, what: str) -> Path:
    """Return the path of the item *what* called *name* in *folder*.

    Existing names, such as "job (copy)", may be less strict than new names. A name of a hidden file, or a
    name that leads out of the folder, raises `StudyError`.
    """
    if not 0 < len(os.fsencode(name)) <= _ENTRY_BYTES or name.startswith(".") or {"/", "\0"} & {*name}:
        raise StudyError(
            f"'{name[:NAME_LENGTH]}' is not the name of {what} in a study; give a plain name, without a path."
        )
    return folder / name


MARKS_FILE = "timeline-notes.json"  # file in the folder of a run with its timeline notes
NOTE_FILE = "note.json"  # file in the folder of a run or study with its label, note and tags
RUN_FILE = "run.json"  # the last file of a run to be written
_HEAD = "study.json"
_CURRENT = "current.json"
_KEPT = "kept-"  # prefix of cache files in the folder of a run
WORKLOAD = "workload"  # PREFIX of the files in a workload's folder


class StudyLayout:
    """The paths of files and folders in the study's folder *path*, which may or may not exist."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @staticmethod
    def is_study(folder: str | Path) -> bool:
        """Return whether *folder* is the folder of a study."""
        return (Path(folder) / _HEAD).is_file()

    @staticmethod
    def folders_in(folder: Path) -> list[Path]:
        """Return the folders of studies in *folder*, sorted by name; unreadable folders are omitted."""
        return sorted(file.parent for file in folder.glob(f"*/{_HEAD}"))

    @property
    def head_file(self) -> Path:
        """The file that marks a folder as a study."""
        return self.path / _HEAD

    @property
    def current_file(self) -> Path:
        """The file with the id of the run that was last requested again after it existed."""
        return self.path / _CURRENT

    @property
    def traces_dir(self) -> Path:
        """The folder of a study's trace sets."""
        return self.path / "traces"

    @property
    def workloads_dir(self) -> Path:
        """The folder of a study's workloads."""
        return self.path / "workloads"

    @property
    def runs_dir(self) -> Path:
        """The folder of a study's runs."""
        return self.path / "runs"

    @property
    def sweeps_dir(self) -> Path:
        """The folder of a study's sweeps; each sweep has a subfolder."""
        return self.path / "sweeps"

    @property
    def networks_dir(self) -> Path:
        """The folder of the user's own network files."""
        return self.path / "networks"

    @property
    def operations_file(self) -> Path:
        """The file with the table of timed operations of many steps, if the study has such a table."""
        return self.path / "operations"

    @property
    def jobs_dir(self) -> Path:
        """The folder of a study's background jobs, which the job store manages."""
        return self.path / "jobs"

    def import_target(self, item: str) -> Path:
        """Return the path of the cache for the converted ranks of an import of *item*."""
        absolute = self.path.absolute()
        return named_entry(absolute.parent, f"{absolute.name}.{item}", "an import")

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

    def kept_file(self, run_id: str, name: str) -> Path:
        """Return the cache file of a slow analysis of a large run."""
        return self.run_dir(run_id) / f"{_KEPT}{name}"

    def recording_dir(self, name: str) -> Path:
        """Return the folder of the recordings of the script *name*."""
        return named_entry(self.path / "recordings", name, "a recording")

    def findings_file(self, item: str) -> Path:
        """Return the file with the findings on the importable *item*."""
        return named_entry(self.jobs_dir / "findings", f"{item}.json", "an import")

    def step_names_file(self, item: str) -> Path:
        """Return the file with the annotations that mark steps of the importable *item*."""
        return self.findings_file(item).with_suffix(".steps.json")

    def algorithms_dir(self, name: str) -> Path:
        """Return the folder of the collective algorithms saved as *name*, or the parent folder for ""."""
        folder = self.jobs_dir / "algorithms"
        return named_entry(folder, name, "a job's algorithms") if name else folder

    def workload_files(self, name: str) -> list[Path]:
        """Return the files of the workload *name* that contain properties of its nodes."""
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
        """Return the folders of captures that never finished, in order of name."""
        folders = sorted(folder for folder in self.traces_dir.glob("*") if folder.is_dir())
        return [folder for folder in folders if not (folder / MANIFEST_NAME).exists()]

    def workload_dirs(self) -> list[Path]:
        """Return the folders of the workloads, oldest first."""
        files = list(self.workloads_dir.glob(f"*/{WORKLOAD}.workload.json"))
        return [file.parent for file in sorted(files, key=lambda file: (file.stat().st_mtime_ns, file))]

    def graph_prefixes(self) -> list[Path]:
        """Return the PREFIX of all graphs, including incomplete workloads, sorted by name."""
        first = sorted(self.workloads_dir.glob(f"*/{WORKLOAD}.0.et"))
        return [self.prefix_in(file.parent) for file in first]

    def run_dirs(self) -> Iterator[Path]:
        """Yield the folders of the finished runs."""
        for file in self.runs_dir.glob(f"[!.]*/{RUN_FILE}"):
            yield file.parent

    def unlisted_run_dirs(self) -> list[Path]:
        """Return the folders of runs that lost the file which marks them as finished, in order of name."""
        folders = sorted(folder for folder in self.runs_dir.glob("[!.]*") if folder.is_dir())
        return [folder for folder in folders if not (folder / RUN_FILE).exists()]

    def taken_names(self) -> set[str]:
        """Return the names that workloads and trace sets of the study use."""
        return {path.name for root in (self.workloads_dir, self.traces_dir) for path in root.glob("*")}

    def last_change(self) -> float:
        """Return the time of the last change in the study, in seconds since 1970."""
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
        """Remove the folder *trace_dir* of an empty capture, and the study if it is otherwise empty."""
        for folder in (trace_dir, self.traces_dir):
            if folder.is_dir() and not any(folder.iterdir()):
                folder.rmdir()
        if list(self.path.iterdir()) == [self.head_file]:
            shutil.rmtree(self.path)

    def discard_unfinished_run(self, run_id: str, pid: int) -> None:
        """Remove the unfinished run that the dead process *pid* was writing."""
        remove_leftover_of(self.run_dir(run_id), pid)
