"""Several studies together, listed by path or found in folders."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

import pandas as pd

from ...errors import ChakrascopeError, StudyError, did_you_mean
from .._traits import about_backend
from ._layout import check_name, numbered
from ._notes import read_note, write_note
from ._study import Study

_COLUMNS = ["name", "tags", "workloads", "ranks", "runs", "shortest_ns", "changed", "note", "problem"]


@dataclass(frozen=True)
class StudyInfo:
    """One line about a study.

    * *note* and *tags* are set by the user.
    * *ranks* is the number of ranks of the newest workload (0: none).
    * *shortest_ns* is the shortest simulated step in ns (-1: none).
    * *changed* is the ISO time (UTC) of the last change.
    * *problem* is the reason why the study cannot be read, or "".
    """

    name: str
    workloads: int = 0
    ranks: int = 0
    runs: int = 0
    shortest_ns: int = -1
    changed: str = ""
    note: str = ""
    tags: tuple[str, ...] = ()
    problem: str = ""


class Workspace:
    """The studies at *folders*, each of which is a study or contains studies.

    Folders are searched again on every call. Raises `StudyError` for a missing folder.
    """

    def __init__(self, *folders: str | Path) -> None:
        self._folders = [Path(folder) for folder in folders]
        for folder in self._folders:
            if not folder.is_dir():
                raise StudyError(f"{folder} is not a folder; give a study, or a folder that holds studies.")

    @property
    def is_one_study(self) -> bool:
        """Whether there is exactly one study, and no folder in which other studies could appear."""
        return len(self._folders) == 1 and Study.is_study(self._folders[0])

    def studies(self) -> dict[str, Study]:
        """Return the studies by name, sorted; a second study with the same name is called *name*-2."""
        result: dict[str, Study] = {}
        for path in self._paths():
            plain = os.fsencode(path.name).decode("utf-8", "replace")  # file systems accept any bytes
            result[next(name for name in numbered(plain) if name not in result)] = Study(path)
        return dict(sorted(result.items(), key=lambda item: (item[0].casefold(), item[0])))

    def _paths(self) -> list[Path]:
        paths: list[Path] = []
        for folder in self._folders:
            inner = [folder] if Study.is_study(folder) else Study.folders_in(folder)
            paths += [path.resolve() for path in inner if not path.name.startswith(".")]
        return list(dict.fromkeys(paths))

    def study(self, name: str) -> Study:
        """Return the study *name*; raises `StudyError` if there is none."""
        studies = self.studies()
        if name not in studies:
            raise StudyError(f"There is no study '{name[:80]}' here{did_you_mean(name, studies)}")
        return studies[name]

    def infos(self) -> list[StudyInfo]:
        """Return a line about each study, sorted by name; the line of a damaged study states the problem."""
        return [_info(name, study) for name, study in self.studies().items()]

    def table(self, find: str = "") -> pd.DataFrame:
        """Return a row per study that has *find* in any of its texts.

        ``changed`` is a time in UTC to the second. ``shortest_ns`` is -1 without a simulation.
        """
        rows = [
            vars(info) | {"tags": ", ".join(info.tags), "changed": info.changed[:19].replace("T", " ")}
            for info in self.infos()
        ]
        wanted = find.casefold()
        matching = [row for row in rows if any(wanted in str(row[name]).casefold() for name in _COLUMNS)]
        table: pd.DataFrame = pd.DataFrame(matching, columns=_COLUMNS)
        return table

    @property
    def home(self) -> Path | None:
        """The folder for new studies: the first folder that contains studies, or None."""
        return next((folder for folder in self._folders if not Study.is_study(folder)), None)

    def create(self, name: str) -> Study:
        """Create a study *name* in :attr:`home`; raises `StudyError` if the name is taken or invalid."""
        check_name(name, "a study")
        if self.home is None:
            raise StudyError(
                "There is no folder for new studies; start the viewer with a folder that contains studies."
            )
        if (self.home / name).exists():
            raise StudyError(f"There is a '{name}' already; choose another name.")
        return Study.create(self.home / name)


def describe_study(study: Study, *, note: str | None = None, tags: Iterable[str] | None = None) -> None:
    """Set the *note* and *tags* of *study*; None keeps a value.

    Raises `StudyError` for a text that is too long.
    """
    write_note(study.path.resolve(), None, note, tags)


def study_info(study: Study) -> StudyInfo:
    """Summarise *study*; raises `StudyError` if it is damaged."""
    folder = study.path.resolve()
    runs, names = study.runs(), study.workloads()
    simulated = [round(run.makespan_ns / run.steps) for run in runs if not about_backend(run.backend).replays]
    about = read_note(folder)
    return StudyInfo(
        name=folder.name,
        workloads=len(names),
        ranks=study.workload_ranks(names[-1]) if names else 0,
        runs=len(runs),
        shortest_ns=min(simulated, default=-1),
        changed=datetime.fromtimestamp(study.last_change(), timezone.utc).isoformat(timespec="seconds"),
        note=about.get("note", ""),
        tags=about.get("tags", ()),
    )


def _info(name: str, study: Study) -> StudyInfo:
    try:
        info = study_info(Study.open(study.path))
    except (ChakrascopeError, OSError) as error:
        return StudyInfo(name, problem=str(error))
    return StudyInfo(**vars(info) | {"name": name})
