"""A study: one folder with trace sets, workloads and runs, which can be moved and renamed."""

from __future__ import annotations

import contextlib
import filecmp
import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import StudyError, did_you_mean
from ...support import load_json, new_folder, remove_folder, write_file, writing
from .._checksums import refuse_damaged, write_checksums
from .._traits import REPLAY, about_backend
from ._layout import RUN_FILE, WORKLOAD, StudyLayout, check_name, numbered, safe_name
from ._notes import LABEL_LENGTH, NOTE_LENGTH, TAG_LENGTH, write_note
from ._runs import RunInfo, captured_facts, read_info, read_json, refuse_damaged_inputs, write_inputs

if TYPE_CHECKING:
    from ...converter import Workload
    from .._experiment import Experiment
    from .._result import Result
    from ..config import NetworkConfig, SystemConfig

_FORMAT = "chakrascope-study"


class Study(StudyLayout):
    """A study's folder. A study contains no absolute paths, and each run in a study is complete or absent."""

    LABEL_LENGTH = LABEL_LENGTH
    NOTE_LENGTH = NOTE_LENGTH
    TAG_LENGTH = TAG_LENGTH

    @classmethod
    def create(cls, path: str | Path) -> Study:
        """Create a study at *path*, in a missing or empty folder, or return the study already there.

        Raises `StudyError` if *path* is a file or a folder with other content.
        """
        folder = Path(path)
        study = cls(folder)
        cls.check_place(folder)
        if cls.is_study(folder):
            return cls.open(folder)
        head = {"format": _FORMAT, "version": 1, "created": _now()}
        is_new = not folder.exists()
        try:
            # Training data is private, so only the owner may read the study.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_file(study.head_file, json.dumps(head, indent=2) + "\n")
        except OSError as error:
            if is_new:
                with contextlib.suppress(OSError):
                    folder.rmdir()
            raise StudyError(
                f"The study {folder} cannot be created ({error.strerror}). Next: choose a folder with write "
                "permission."
            ) from error
        return study

    @classmethod
    def check_place(cls, path: str | Path) -> None:
        """Raise the error of `create` for a *path* that is a file or a folder with other content."""
        folder = Path(path)
        if folder.exists() and not cls.is_study(folder) and (not folder.is_dir() or any(folder.iterdir())):
            raise StudyError(f"{folder} exists and is not a study. Next: choose a new or empty folder.")

    @classmethod
    def open(cls, path: str | Path) -> Study:
        """Return the study at *path*; raises `StudyError` if there is none."""
        folder = Path(path)
        study = cls(folder)
        name = study.head_file.name
        try:
            head = read_json(study.head_file, f"{folder} is not a study: it has no readable {name}")
        except StudyError as error:
            if not isinstance(error.__cause__, (FileNotFoundError, NotADirectoryError)):
                raise
            if not folder.exists():
                raise StudyError(f"There is no file or folder {folder}. Next: check the path.") from error
            source = shlex.join((str(folder.parent), folder.name) if folder.is_file() else (str(folder),))
            raise StudyError(
                f"{folder} is not a study: it has no {name}. Next: check the path; if it has traces or "
                f"graphs, make a study from them with `chakrascope import STUDY {source}`."
            ) from error
        if head.get("format") != _FORMAT or head.get("version") != 1:
            raise StudyError(
                f"{study.head_file} was written by a newer version of chakrascope. Next: update chakrascope."
            )
        return study

    def trace_sets(self) -> list[str]:
        """Return the names of the trace sets that have a manifest, oldest first."""
        return [folder.name for folder in self.trace_set_dirs()]

    def latest_trace_set(self) -> Path:
        """Return the folder of the newest trace set; raises `StudyError` if there is none."""
        names = self.trace_sets()
        if not names:
            raise StudyError(
                f"The study {self.path} has no trace set yet; capture one with 'chakrascope trace'."
            )
        return self.trace_dir(names[-1])

    def new_trace_dir(self, name: str | None = None) -> Path:
        """Create a folder for a new trace set, with the name *name* or the next free number as its name."""
        if name is not None:
            check_name(name, "a trace set")
        self.traces_dir.mkdir(parents=True, exist_ok=True)
        number = 1
        while True:
            candidate = self.trace_dir(name or f"capture-{number}")
            try:
                candidate.mkdir()
            except FileExistsError as error:
                if name:
                    raise StudyError(
                        f"The study {self.path} already has a trace set '{name}'; choose another."
                    ) from error
                number += 1
            else:
                return candidate

    def workloads(self) -> list[str]:
        """Return the names of the workloads, oldest first."""
        return [folder.name for folder in self.workload_dirs()]

    def workload_prefix(self, name: str | None = None) -> Path:
        """Return the PREFIX of the workload *name* (default: the newest); raises `StudyError` if missing."""
        names = self.workloads()
        if not names:
            raise StudyError(
                f"The study {self.path} has no workload yet; make one with 'chakrascope convert'."
            )
        chosen = name or names[-1]
        if chosen not in names:
            raise StudyError(f"The study {self.path} has no workload '{chosen}'{did_you_mean(chosen, names)}")
        return self.prefix_in(self.workload_dir(chosen))

    def workload(self, name: str | None = None) -> Workload:
        """Return the workload *name*, or the newest workload; raises `StudyError` if it is damaged."""
        from ...converter import Workload  # noqa: PLC0415 - not needed to list runs

        prefix = self.workload_prefix(name)
        _refuse_damaged_files(prefix)
        return Workload.load(prefix)

    def add_workload(self, workload: Workload, name: str, *, replace_other: bool = False) -> Path:
        """Save *workload* as *name*, or ``name-2`` and so on if the name is taken; return its PREFIX.

        Equal graphs are saved only once. With *replace_other*, a workload of that name is replaced
        unless it has runs. Raises `StudyError` for an invalid name.
        """
        return self._add_workload(name, partial(workload.save, linked=True), replace_other=replace_other)

    def _add_workload(
        self, name: str, save: Callable[[Path], object], *, replace_other: bool = False
    ) -> Path:
        check_name(name, "a workload")
        folder = self.workload_dir(name)
        with (
            writing(folder, StudyError),
            new_folder(folder, existing="replace", choose=lambda _: folder) as temporary,
        ):
            save(self.prefix_in(temporary))
            write_checksums(temporary)
            folder = self._folder_for(temporary, folder, replace_other)
        return self.prefix_in(folder)

    def keep_converted(self, workload: Workload, trace_set: str) -> Path:
        """Save the workload converted from *trace_set*, replacing an earlier conversion; return its PREFIX.

        A workload from another source, or with runs, is not replaced; see `add_workload`.
        """
        name = safe_name(trace_set, "traces")
        return self.add_workload(workload, name, replace_other=self._is_of(name, trace_set))

    def _is_of(self, name: str, trace_set: str) -> bool:
        """Return whether the workload *name* comes from *trace_set* alone."""
        if not trace_set or name not in self.workloads():
            return False
        return self._description(name).get("trace_set") == trace_set

    def check_new_workload(self, name: str) -> None:
        """Raise `StudyError` if *name* is not allowed for a new workload."""
        check_name(name, "a workload")
        if self.workload_dir(name).exists():
            raise StudyError(
                f"The study {self.path} already has a workload '{name}'. Next: choose another name."
            )

    def _folder_for(self, saved: Path, wanted: Path, replace_other: bool) -> Path:
        """Return *wanted*, or the next folder name that is free for the workload in *saved*."""
        used = {info.workload for info in self._infos()}
        return next(
            folder
            for folder in map(wanted.with_name, numbered(wanted.name))
            if not folder.exists()
            or _same_programs(saved, folder)
            or (replace_other and folder.name not in used)
        )

    def import_workload(
        self, prefix: str | Path, groups: str | Path | None = None, name: str | None = None
    ) -> Path:
        """Copy the workload ``PREFIX.<rank>.et`` into the study; return its PREFIX there.

        *groups* is the file of communicator groups (default: the file next to the workload). *name* defaults
        to the name of *prefix*.
        """
        from ...converter import Workload  # noqa: PLC0415 - not needed to list runs
        from ..config import load_groups  # noqa: PLC0415 - not needed to list runs

        name = name or safe_name(Path(prefix).name, "workload")

        def save(target: Path) -> None:
            if groups is not None or not Workload.copy(prefix, target):
                workload = Workload.load(prefix)
                if groups is not None:
                    workload = replace(workload, groups=load_groups(groups))
                workload.save(target, linked=True)

        return self._add_workload(name, save)

    def runs(self) -> list[RunInfo]:
        """Return the finished runs, oldest first; requesting a run again makes it the newest."""
        repeated, when = self._last_repeated()
        return sorted(
            self._infos(),
            key=lambda info: (max(info.created, when) if info.id == repeated else info.created, info.id),
        )

    def measured_workload(self) -> str | None:
        """Return the newest workload with measured times, or None."""
        names = reversed(self.workloads())
        return next((name for name in names if captured_facts(self.workload_files(name)[0])[1]), None)

    def default_run(self) -> RunInfo | None:
        """Return the newest replay of the measured workload, otherwise the newest run; None without runs."""
        runs = self.runs()
        measured = self.measured_workload() if any(info.backend == REPLAY for info in runs) else None
        replays = [info for info in runs if info.backend == REPLAY and info.workload == measured]
        return next(iter((replays or runs)[::-1]), None)

    def _last_repeated(self) -> tuple[str, str]:
        """Return the id and time of the run that was last requested again, or ("", "")."""
        try:
            stored = load_json(self.current_file)
            return str(stored["run"]), str(stored["asked"])
        except (OSError, ValueError, TypeError, KeyError):
            return "", ""

    def run_info(self, run_id: str | None = None) -> RunInfo:
        """Return the run *run_id*, which may be abbreviated to the start of an id if only one id matches.

        The default is `default_run`. Raises `StudyError` if there is no such run.
        """
        if run_id is not None and run_id in [folder.name for folder in self.run_dirs()]:
            return self._info(self.run_dir(run_id))
        default = self.default_run()
        if default is None:
            raise StudyError(f"The study {self.path} has no run yet; make one with 'chakrascope run'.")
        if run_id is None:
            return default
        runs = self.runs()
        matches = [info for info in runs if info.id.startswith(run_id)]
        if len(matches) != 1:
            raise StudyError(
                f"The study {self.path} has {len(matches) or 'no'} runs whose id begins with '{run_id}'"
                f"{did_you_mean(run_id, [info.id for info in runs])}"
            )
        return matches[0]

    def result(self, run_id: str | None = None) -> Result:
        """Read the result of a run; see `run_info`."""
        from .._result import Result  # noqa: PLC0415 - not needed to list runs

        info = self.run_info(run_id)
        result = Result.load(self.run_dir(info.id))
        self._check_ranks(info, len(result.columns("ranks")["rank"]))
        if result.makespan_ns != info.makespan_ns:
            raise StudyError(
                f"{self.run_file(info.id)} states a makespan of {info.makespan_ns:,} ns, but its result.json "
                f"{result.makespan_ns:,}; delete the folder and run it again."
            )
        return replace(result, backend=info.backend) if about_backend(result.backend).version_1 else result

    def _check_ranks(self, info: RunInfo, ranks: int) -> None:
        """Raise `StudyError` if a result has another number of *ranks* than the run's description."""
        if ranks != info.num_ranks:
            raise StudyError(
                f"{self.run_file(info.id)} states {info.num_ranks:,} ranks, but its ranks.parquet has "
                f"{ranks:,}; delete the folder and run it again."
            )

    def run_workload(self, run_id: str | None = None) -> Workload:
        """Return the workload of a run, scaled out or cut to the ranks that ran."""
        from .._result import Result  # noqa: PLC0415 - not needed to list runs

        info = self.run_info(run_id)
        workload = self.workload(info.workload or None)
        if workload.num_ranks == info.num_ranks:
            return workload
        self._check_ranks(info, Result.num_ranks(self.run_dir(info.id)))
        if (
            info.num_ranks < workload.num_ranks
        ):  # on a network with fewer ranks, only the first ranks run, as in ASTRA-sim
            return replace(workload, program_of_rank=workload.program_of_rank[: info.num_ranks])
        return workload.scale_out(info.num_ranks)

    def experiment(self, run_id: str | None = None) -> Experiment:
        """Return a run's experiment, read from the files in its folder and ready to run again."""
        from .._experiment import Experiment, WorkloadSource  # noqa: PLC0415 - not needed to list runs
        from ..config import MemoryConfig, NetworkConfig, SystemConfig  # noqa: PLC0415 - not needed to list runs

        info = self.run_info(run_id)
        folder = self.run_dir(info.id)
        refuse_damaged_inputs(folder)
        stored = read_json(folder / "experiment.json", f"The run {info.id} has no readable experiment.json")
        inputs: dict[str, Any] = {
            "workload": WorkloadSource.of_model(self.run_workload(info.id)),
            "system": SystemConfig.load(folder / "system.json"),
            "network": NetworkConfig.load(folder / "network.yml"),
            "memory": MemoryConfig.load(folder / "memory.json"),
        }
        try:
            return Experiment.of_description(stored, **inputs, backend=info.backend)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise StudyError(
                f"{folder / 'experiment.json'} is damaged ({error!r}); delete the folder and run it again."
            ) from error

    def run_configs(self, run_id: str | None = None) -> tuple[NetworkConfig, SystemConfig]:
        """Return the network and system of a run; raises the errors of `experiment`."""
        from ..config import NetworkConfig, SystemConfig  # noqa: PLC0415 - not needed to list runs

        folder = self.run_dir(self.run_info(run_id).id)
        refuse_damaged_inputs(folder)
        return NetworkConfig.load(folder / "network.yml"), SystemConfig.load(folder / "system.json")

    def has_run(self, experiment: Experiment) -> bool:
        """Return whether the study has a result for *experiment*."""
        return self.has_run_id(experiment.content_hash)

    def has_run_id(self, run_id: str) -> bool:
        """Return whether the study has a complete run with the full id *run_id*."""
        return self.run_file(run_id).is_file()

    def add_run(
        self, experiment: Experiment, result: Result, *, label: str = "", workload: str | None = None
    ) -> str:
        """Save *result* as the run of *experiment*; return the run's id.

        The run's folder is written atomically. An existing run is left unchanged, but becomes the newest run.
        Raises `StudyError` if the existing run has another makespan, or if the result comes from another
        backend.
        """
        if result.backend != experiment.backend:
            raise StudyError(
                f"This result comes from '{result.backend}', but the experiment is for "
                f"'{experiment.backend}'. Next: store the result under its own experiment: "
                f"replace(experiment, backend={result.backend!r})."
            )
        run_id = experiment.content_hash
        folder = self.run_dir(run_id)
        if folder.exists():
            self._check_same(run_id, result)
            with contextlib.suppress(OSError):  # a read-only study already has the run
                write_file(self.current_file, json.dumps({"run": run_id, "asked": _now()}) + "\n")
            return run_id
        with writing(folder, StudyError), new_folder(folder, existing="keep") as temporary:
            result.write_into(temporary)
            write_inputs(temporary, experiment)
            info = self._new_info(experiment, result, label, workload)
            (temporary / RUN_FILE).write_text(json.dumps(info, indent=2) + "\n", encoding="utf-8")
            write_checksums(temporary)
        return run_id

    def _check_same(self, run_id: str, result: Result) -> None:
        """Raise `StudyError` if the saved run and *result* differ.

        They may differ because a backend outside of this package has changed.
        """
        if not self.has_run_id(run_id):
            return
        kept = self._info(self.run_dir(run_id))
        if kept.makespan_ns != result.makespan_ns:
            raise StudyError(
                f"The run {run_id} of {kept.created[:10]} took {kept.makespan_ns:,} ns, and the same "
                f"experiment now takes {result.makespan_ns:,} ns: '{kept.backend}' now gives a different "
                f"result. Delete the old run with 'chakrascope runs {self.path} --delete {run_id}', or use "
                "another study."
            )

    def _new_info(
        self, experiment: Experiment, result: Result, label: str, workload: str | None
    ) -> dict[str, Any]:
        name = workload or self._workload_name(experiment)
        return {
            "backend": experiment.backend,
            "network": experiment.network.title,
            "makespan_ns": result.makespan_ns,
            "created": _now(),
            "label": label or f"{experiment.backend} on {experiment.network.title}",
            "workload": name,
            "num_ranks": experiment.workload.num_ranks,
        }

    def _workload_name(self, experiment: Experiment) -> str:
        """Return the name of the experiment's workload if it is in this study, otherwise the newest."""
        prefix = experiment.workload.prefix
        if prefix is not None and prefix.parent.name in self.workloads():
            return prefix.parent.name
        names = self.workloads()
        return names[-1] if names else ""

    def annotate(
        self,
        run_id: str,
        *,
        label: str | None = None,
        note: str | None = None,
        tags: Iterable[str] | None = None,
    ) -> RunInfo:
        """Set *label*, *note* and *tags* of the run *run_id*; return its description.

        None keeps a value, and an empty label restores the original label. The result itself never changes.
        Raises `StudyError` for a missing run or a text that is too long.
        """
        folder = self._run_folder(run_id)
        write_note(folder, label, note, tags)
        return self._info(folder)

    def workload_ranks(self, name: str) -> int:
        """Return the number of ranks of the workload *name* without reading its graphs."""
        document = self._description(name)
        try:
            return int(document["num_ranks"])
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(
                f"The workload '{name}' of {self.path} does not list its ranks ({error}); convert it again."
            ) from error

    def _description(self, name: str) -> dict[str, Any]:
        prefix = self.workload_prefix(name)
        file = prefix.parent / f"{prefix.name}.workload.json"
        return read_json(file, f"The workload '{name}' of {self.path} is damaged")

    def delete_run(self, run_id: str) -> None:
        """Delete the run with the full id *run_id*, atomically; the experiment can be simulated again.

        Raises `StudyError` if there is no such run.
        """
        folder = self._run_folder(run_id)
        try:
            remove_folder(folder)
        except OSError as error:
            raise StudyError(
                f"The run {run_id} cannot be deleted ({error.strerror}); check that it still exists, and the "
                "permissions of the study."
            ) from error

    def _run_folder(self, run_id: str) -> Path:
        ids = [folder.name for folder in self.run_dirs()]
        if run_id not in ids:
            raise StudyError(f"The study {self.path} has no run '{run_id}'{did_you_mean(run_id, ids)}")
        return self.run_dir(run_id)

    def _info(self, folder: Path) -> RunInfo:
        """Return the description of the run in *folder*."""
        return read_info(folder, lambda name: self.workload_files(name)[0])

    def _infos(self) -> Iterator[RunInfo]:
        for folder in self.run_dirs():
            try:
                yield self._info(folder)
            except StudyError:  # noqa: PERF203 - a study has few runs
                if self.run_file(folder.name).exists():  # otherwise, another process has deleted the run
                    raise


def refuse_damaged_workload(prefix: Path) -> None:
    """Raise `StudyError` if *prefix* is a workload of a study, and one of its files was changed."""
    if Study.is_study(prefix.absolute().parent.parent.parent):
        _refuse_damaged_files(prefix.absolute())


def _refuse_damaged_files(prefix: Path) -> None:
    from ...converter.chakra import unchanged_files  # noqa: PLC0415 - not needed to list runs

    # The tables are read in place of these files.
    unread = {f"{prefix.name}.{rank}.et" for rank in unchanged_files(prefix)}
    needed = [f"{prefix.name}.{what}" for what in ("0.et", "groups.json", "workload.json")]
    refuse_damaged(prefix.parent, lambda name: name not in unread, needed=needed)


def _same_programs(one: Path, other: Path) -> bool:
    """Return whether two workload folders have the same graphs, process groups and ranks."""
    names = sorted(file.name for file in one.glob("*.et"))
    if names != sorted(file.name for file in other.glob("*.et")) or _ranks_of(one) != _ranks_of(other):
        return False
    return all(filecmp.cmp(one / name, other / name, shallow=False) for name in names)


def _ranks_of(folder: Path) -> list[Any]:
    """Return the process groups and ranks of the workload in *folder*; files may be missing."""
    groups, description = (_object_in(folder / f"{WORKLOAD}.{what}.json") for what in ("groups", "workload"))
    return [groups, description.get("num_ranks"), description.get("representatives")]


def _object_in(file: Path) -> dict[str, Any]:
    """Read a JSON object, which is empty if *file* is missing or damaged."""
    try:
        return read_json(file, str(file))
    except StudyError:  # the error is reported when the workload is opened
        return {}


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="microseconds")
