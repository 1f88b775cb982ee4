"""Keep what people write about a run, its label and a note, beside the result, which never changes."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

from ..errors import StudyError

__all__ = ["LABEL_LENGTH", "NOTE_LENGTH", "checked_label", "checked_note", "read_note", "write_note"]

LABEL_LENGTH = 120
NOTE_LENGTH = 4_000
_NAME = "note.json"
_lock = threading.Lock()


def checked_label(text: str) -> str:
    """Return *text* as one line without outer blanks; raises `StudyError` if it is too long or not text."""
    return _checked(" ".join(text.split()), "label", LABEL_LENGTH)


def checked_note(text: str) -> str:
    """Return *text* without outer blanks; raises `StudyError` if it is too long or not text."""
    return _checked(text.strip(), "note", NOTE_LENGTH)


def read_note(folder: Path) -> dict[str, str]:
    """Return the ``label`` and ``note`` written about the run in *folder*; either may be absent.

    A damaged file costs no more than itself: the note then says so.
    """
    try:
        data = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        texts = {"label": checked_label(data["label"]), "note": checked_note(data["note"])}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, TypeError, KeyError, AttributeError, StudyError) as error:
        return {"note": f"({_NAME} of this run is damaged: {error}; write the note again)"}
    return {key: text for key, text in texts.items() if text}


def write_note(folder: Path, label: str | None, note: str | None) -> None:
    """Replace the *label* and *note* of the run in *folder*; None leaves one as it is, "" removes it.

    A reader sees the old texts or the new ones. Raises `StudyError` if the run is gone meanwhile.
    """
    asked = {
        "label": None if label is None else checked_label(label),
        "note": None if note is None else checked_note(note),
    }
    # Beside the run, not in it: a folder that was deleted meanwhile must not come back with only a note.
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.note.tmp")
    with _lock:
        texts = {"label": "", "note": ""} | read_note(folder)
        texts |= {key: text for key, text in asked.items() if text is not None}
        try:
            temporary.write_text(json.dumps(texts, indent=2) + "\n", encoding="utf-8")
            temporary.replace(folder / _NAME)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise StudyError(
                f"The note of the run {folder.name} cannot be written ({error.strerror}); was the run "
                "deleted, and may you write to the study?"
            ) from error


def _checked(text: str, what: str, most: int) -> str:
    if len(text) > most:
        raise StudyError(f"The {what} of a run has {len(text):,} characters; write at most {most:,}.")
    try:
        text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise StudyError(f"The {what} of a run is not Unicode text ({error}); write it again.") from error
    return text
