"""Cache JSON in files of a run. Like `_answer`, this module imports neither NumPy nor PyArrow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from ...support import code_version, load_json, size_and_time, write_file

# Errors of reading a cache file that is missing, truncated or of another version.
DAMAGES = (OSError, ValueError, KeyError, EOFError, IndexError, TypeError)
_MAX_CACHED = 10_000_000  # characters of JSON; summaries of many thousand ranks are computed again


def cached_json(file: Path, inputs: Sequence[Path], make: Callable[[], Any]) -> Any:
    """Return the JSON from *make*, cached in *file* until one of *inputs* changes."""
    stamp = stamp_of(inputs)
    try:
        stored = load_json(file)
        if stored["stamp"] == [*stamp, _digest(json.dumps(stored["content"]))]:
            return stored["content"]
    except DAMAGES:
        pass
    text = json.dumps(make())
    if len(text) <= _MAX_CACHED:
        stamp_text = json.dumps([*stamp, _digest(text)])
        with suppress(OSError):
            write_file(file, f'{{"stamp": {stamp_text}, "content": {text}}}\n', sync=False)
    return json.loads(text)


def stamp_of(files: Sequence[Path]) -> list[Any]:
    """Return the version of the code, and size and time of each of *files*, to detect changes."""
    return [code_version(), *([file.name, *size_and_time(file)] for file in files)]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
