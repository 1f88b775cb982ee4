"""Notes on slices and intervals of a run's timeline, stored separately from the immutable result."""

from __future__ import annotations

import json
import secrets
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from ...errors import StudyError
from ...support import count_text, load_json, write_file, writing
from ._layout import MARKS_FILE
from ._notes import checked_note, only_writer
from ._study import Study

_MAX_NOTES = 1_000
_LARGEST = 1 << 62


@dataclass(frozen=True)
class TimelineNote:
    """A note on a slice (*node* of *rank*) of a timeline, or on an interval (both are -1).

    Times are in ns, *measured* or simulated (None: unknown, as in notes of earlier versions).
    *created* is an ISO time (UTC). *id* is unique within the run.
    """

    id: str
    text: str
    t0_ns: int
    t1_ns: int
    rank: int = -1
    node: int = -1
    created: str = ""
    measured: bool | None = None


def timeline_notes(study: Study, run_id: str) -> tuple[TimelineNote, ...]:
    """Return the timeline notes of the run *run_id*, sorted by time.

    Raises `StudyError` for a missing run or damaged notes.
    """
    return _read(_folder(study, run_id))


def add_timeline_note(
    study: Study,
    run_id: str,
    text: str,
    span_ns: tuple[int, int],
    node: tuple[int, int] = (-1, -1),
    *,
    measured: bool | None = None,
) -> TimelineNote:
    """Attach *text* to the interval *span_ns* of a timeline, or to a *node* (rank, node id); return the note.

    *measured* states whether the interval is in measured or simulated times. Raises `StudyError` for a
    missing run, an empty or too long text, and more than 1,000 notes.
    """
    checked = checked_note(text)
    if not checked:
        raise StudyError("The note is empty; write a text.")
    t0, t1 = span_ns
    if not -_LARGEST < t0 <= t1 < _LARGEST:
        raise StudyError(f"A note on {t0} to {t1} ns covers no time; its start must be before its end.")
    now = datetime.now(timezone.utc).isoformat(timespec="seconds")
    note = TimelineNote(
        secrets.token_hex(6), checked, int(t0), int(t1), int(node[0]), int(node[1]), now, measured
    )
    folder = _folder(study, run_id)
    with only_writer(folder):
        kept = _read(folder)
        if len(kept) >= _MAX_NOTES:
            raise StudyError(f"The run has {count_text(len(kept), 'note')} on its timeline; remove some.")
        _write(folder, (*kept, note))
    return note


def remove_timeline_note(study: Study, run_id: str, note_id: str) -> None:
    """Remove a note from a run's timeline; raises `StudyError` if the run or the note is missing."""
    folder = _folder(study, run_id)
    with only_writer(folder):
        kept = _read(folder)
        left = tuple(note for note in kept if note.id != note_id)
        if len(left) == len(kept):
            raise StudyError(f"The run has no note '{note_id[:40]}' on its timeline; reload the page.")
        _write(folder, left)


def _folder(study: Study, run_id: str) -> Path:
    return study.run_dir(study.run_info(run_id).id)


def _read(folder: Path) -> tuple[TimelineNote, ...]:
    try:
        rows = load_json(folder / MARKS_FILE)
        notes = [_note(row) for row in _listed(rows)]
    except FileNotFoundError:
        return ()
    except (OSError, ValueError, TypeError, KeyError, StudyError) as error:
        raise StudyError(
            f"{folder / MARKS_FILE} is damaged ({error}); restore it, or delete it and write the notes again."
        ) from error
    return tuple(sorted(notes, key=lambda note: (note.t0_ns, note.created, note.id)))


def _listed(rows: Any) -> list[Any]:
    if not isinstance(rows, list):
        raise TypeError("it does not contain a list")
    return rows


def _note(row: dict[str, Any]) -> TimelineNote:
    numbers = {name: row[name] for name in ("t0_ns", "t1_ns", "rank", "node")}
    for name, number in numbers.items():
        if type(number) is not int or not -_LARGEST < number < _LARGEST:
            raise ValueError(f"{name} is {number!r}, which is not a whole number")
    measured = row.get("measured")
    if not isinstance(measured, bool | None):
        raise TypeError(f"measured is {measured!r}, which is neither true nor false")
    text = checked_note(str(row["text"]))
    return TimelineNote(
        id=str(row["id"]), text=text, created=str(row["created"]), measured=measured, **numbers
    )


def _write(folder: Path, notes: tuple[TimelineNote, ...]) -> None:
    rows = [asdict(note) for note in notes]
    with writing(
        f"A note on the timeline of {folder.name}", StudyError, "check the permissions of the study."
    ):
        write_file(folder / MARKS_FILE, json.dumps(rows, indent=1) + "\n")
