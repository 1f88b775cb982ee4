"""Labels, notes and tags of a run or a study, stored separately from the immutable result."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ...errors import StudyError
from ...support import load_json, write_file, writing
from ._layout import NOTE_FILE

LABEL_LENGTH = 120
NOTE_LENGTH = 4_000
TAG_LENGTH = 40
_MAX_TAGS = 20
_lock = threading.Lock()


@contextlib.contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    """Lock the notes of *folder* against other threads and, where file locks work, other processes."""
    with _lock, contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def checked_label(text: str) -> str:
    """Return *text* stripped, as one line; raises `StudyError` if it is too long or not Unicode."""
    return _checked(" ".join(text.split()), "label", LABEL_LENGTH)


def checked_note(text: str) -> str:
    """Return *text* stripped; raises `StudyError` if it is too long or not Unicode."""
    return _checked(text.strip(), "note", NOTE_LENGTH)


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return *tags* stripped, sorted and distinct; raises `StudyError` for too many or too long tags."""
    unique = sorted({_checked(" ".join(tag.split()), "tag", TAG_LENGTH) for tag in tags} - {""})
    if len(unique) > _MAX_TAGS:
        raise StudyError(f"There are {len(unique)} tags; give at most {_MAX_TAGS}.")
    return tuple(unique)


def read_note(folder: Path) -> dict[str, Any]:
    """Return the ``label``, ``note`` and ``tags`` of *folder* as far as they were set.

    If the file is damaged, the returned note states this.
    """
    problem = note_problem(folder)
    return {"note": f"({problem})"} if problem else _stored(folder)


def note_problem(folder: Path) -> str:
    """Describe the problem with the note of *folder* and the next step, or return ""."""
    try:
        _stored(folder)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, StudyError) as error:
        return f"{NOTE_FILE} of {folder.name} is damaged: {error!r}; write label and note again"
    return ""


def _stored(folder: Path) -> dict[str, Any]:
    try:
        data = load_json(folder / NOTE_FILE)
    except FileNotFoundError:
        return {}
    texts = {
        "label": checked_label(data["label"]),
        "note": checked_note(data["note"]),
        "tags": checked_tags(data.get("tags", ())),
    }
    return {key: text for key, text in texts.items() if text}


def write_note(folder: Path, label: str | None, note: str | None, tags: Iterable[str] | None = None) -> None:
    """Replace *label*, *note* and *tags* of *folder*; None keeps a value, an empty text removes it.

    Readers see either all old or all new values. Raises `StudyError` if the folder no longer
    exists.
    """
    asked = {
        "label": None if label is None else checked_label(label),
        "note": None if note is None else checked_note(note),
        "tags": None if tags is None else checked_tags(tags),
    }
    with only_writer(folder):
        texts = {"label": "", "note": "", "tags": ()} | ({} if note_problem(folder) else _stored(folder))
        texts |= {key: text for key, text in asked.items() if text is not None}
        with writing(
            f"The note of {folder.name}",
            StudyError,
            "check that it still exists, and the permissions of the study.",
        ):
            write_file(folder / NOTE_FILE, json.dumps(texts, indent=2) + "\n")


def _checked(text: str, what: str, most: int) -> str:
    if len(text) > most:
        raise StudyError(f"The {what} has {len(text):,} characters; write at most {most:,}.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StudyError(f"The {what} is not Unicode text ({error}); write it again.") from error
    return text
