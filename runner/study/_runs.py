"""The runs of a study: descriptions, tables, and which runs to compare with each other."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...errors import StudyError
from ...support import load_json
from .._checksums import refuse_damaged
from .._traits import about_backend
from ._layout import RUN_FILE
from ._notes import read_note

if TYPE_CHECKING:
    import pandas as pd

    from .._experiment import Experiment

# Characters that reverse the direction of text around them. No writing system needs them for readable text.
_NO_TURNS = dict.fromkeys([*range(0x202A, 0x202F), *range(0x2066, 0x206A)], "\ufffd")
_RUN_TYPES = {
    **dict.fromkeys(("backend", "network", "created", "label", "workload"), str),
    **dict.fromkeys(("makespan_ns", "num_ranks"), int),
}


@dataclass(frozen=True)
class RunInfo:
    """The description of a finished run; *id* is the content hash of its experiment.

    *created* is an ISO time (UTC). *steps* is the number of captured training steps that the makespan spans.
    The user sets *label*, *note* and *tags* with `Study.annotate`.
    """

    id: str
    backend: str
    network: str
    makespan_ns: int
    created: str
    label: str
    workload: str
    num_ranks: int
    note: str = ""
    tags: tuple[str, ...] = ()
    steps: int = 1


def read_info(folder: Path, description_of: Callable[[str], Path]) -> RunInfo:
    """Read the description of the run in *folder*; *description_of* returns the description of a workload.

    Raises `StudyError` if it is damaged.
    """
    refuse_damaged(folder, RUN_FILE.__eq__, needed=[RUN_FILE])
    data = read_json(folder / RUN_FILE, f"The run {folder.name} of the study is damaged")
    try:
        wrong = [key for key, kind in _RUN_TYPES.items() if not _is(kind, data.get(key))]
        if not wrong:
            data["backend"] = _backend_today(folder, data["backend"])
            steps = captured_facts(description_of(data["workload"]))[0] if data["workload"] else 1
            return RunInfo(id=folder.name, **data | read_note(folder) | {"steps": steps})
        problem = f"no {wrong[0]} of a run"
    except TypeError as error:
        problem = str(error)
    raise StudyError(f"{folder / RUN_FILE} is damaged ({problem}); delete the folder and run it again.")


def _is(kind: type, value: Any) -> bool:
    """Return whether *value* is of *kind*; numbers must also be at least 0 and fit into 63 bits."""
    return isinstance(value, kind) and (not isinstance(value, int) or 0 <= value < 1 << 63)


def _backend_today(folder: Path, backend: str) -> str:
    """Return the current name of the model that a run recorded as *backend*."""
    former = about_backend(backend).version_1
    if not former:
        return backend
    stored = read_json(folder / "experiment.json", f"The run {folder.name} has no readable experiment.json")
    return backend if stored.get("model_version", 1) > 1 else former


def read_json(path: Path, problem: str) -> dict[str, Any]:
    """Read a JSON object; raises `StudyError` with the text *problem* if there is none."""
    try:
        data = load_json(path)
    except (OSError, ValueError) as error:
        raise StudyError(f"{problem} ({error}); check the path.") from error
    if not isinstance(data, dict):
        raise StudyError(f"{problem}: {path} does not hold a JSON object; restore it or delete its folder.")
    return data


_INPUTS = ("experiment.json", "groups.json", "memory.json", "network.yml", "system.json")


def refuse_damaged_inputs(folder: Path) -> None:
    """Raise `StudyError` if a file of a run's experiment, such as a collective algorithm, was changed."""
    refuse_damaged(
        folder, lambda name: not name.endswith(".parquet") and name != "result.json", needed=_INPUTS
    )


def write_inputs(folder: Path, experiment: Experiment) -> None:
    """Write the configurations in ASTRA-sim's format, so that ASTRA-sim can repeat the run."""
    from ..config import copied_into  # noqa: PLC0415 - listing runs does without

    copied_into(experiment.system, folder).save(folder / "system.json")
    experiment.network.save(folder / "network.yml")
    experiment.memory.save(folder / "memory.json")
    description = experiment.describe()
    if description["groups"]:
        (folder / "groups.json").write_text(json.dumps(description["groups"]) + "\n", encoding="utf-8")
    stored = {key: description[key] for key in ("backend", "groups", "options")}
    stored["model_version"] = experiment.model_version
    stored["workload_hash"] = experiment.workload.content_hash
    stored["assumptions"] = list(experiment.assumptions)
    (folder / "experiment.json").write_text(json.dumps(stored, indent=2) + "\n", encoding="utf-8")


def captured_facts(description: Path) -> tuple[int, bool]:
    """Return a workload's number of captured steps, and whether it was measured and has no added ranks.

    *description* is a file ``PREFIX.workload.json``. A missing or damaged file counts as one unmeasured step.
    """
    try:
        return _captured_facts(description, description.stat().st_mtime_ns)
    except (OSError, StudyError):  # the workload was removed, or the error is reported when it is opened
        return 1, False


@functools.lru_cache(maxsize=256)
def _captured_facts(description: Path, _modified_ns: int) -> tuple[int, bool]:
    stored = read_json(description, f"{description} is damaged")
    steps = stored.get("steps")
    measured = bool(stored.get("accounting")) and "scaled_from_ranks" not in stored
    return max(1, len(steps)) if isinstance(steps, list) else 1, measured


def run_name(info: RunInfo) -> str:
    """Return a run's title: its label, or that it is the measurement."""
    plain = f"{info.backend} on {info.network}"
    if about_backend(info.backend).replays and info.label in ("", plain):
        return "measured (replay)"
    return (info.label or plain).translate(_NO_TURNS)


_ROW: dict[str, Callable[[RunInfo], object]] = {
    "id": lambda info: info.id,
    "label": run_name,
    "backend": lambda info: info.backend,
    "network": lambda info: info.network,
    "ranks": lambda info: info.num_ranks,
    "makespan_ns": lambda info: info.makespan_ns,
    "steps": lambda info: info.steps,
    "created": lambda info: info.created[:19].replace("T", " "),
    "workload": lambda info: info.workload,
    "tags": lambda info: ", ".join(info.tags),
    "note": lambda info: info.note,
}


def run_rows(runs: Sequence[RunInfo], find: str = "") -> list[dict[str, Any]]:
    """Return a row for each run with *find* in any of its texts, newest first; ``created`` is in UTC.

    ``steps`` is the number of captured training steps that ``makespan_ns`` spans.
    """
    rows = [
        {name: value_of(info) for name, value_of in _ROW.items()}
        for info in sorted(runs, key=lambda info: (info.created, info.id), reverse=True)
    ]
    wanted = find.casefold()
    return [row for row in rows if any(wanted in str(value).casefold() for value in row.values())]


def run_table(runs: Sequence[RunInfo], find: str = "") -> pd.DataFrame:
    """Return :func:`run_rows` as a table."""
    import pandas as pd  # noqa: PLC0415 - most of the time that a list of runs would take

    table: pd.DataFrame = pd.DataFrame(run_rows(runs, find), columns=list(_ROW))
    return table


def compared(runs: Sequence[RunInfo], chosen: Sequence[str]) -> tuple[str, list[str]]:
    """Return the *chosen* run to compare with, and the others, oldest first.

    The reference is a measured replay if there is one, otherwise the oldest run.
    """
    infos = sorted(
        (info for info in runs if info.id in chosen),
        key=lambda info: (not about_backend(info.backend).replays, info.created),
    )
    names = [info.id for info in infos]
    return names[0], names[1:]
