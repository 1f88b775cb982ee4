"""Find other processes of the same rank: an earlier run of the script, or a helper process."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

# Processes that take optimizer steps, or mark their steps, have the precedence 2.
_PRECEDENCE = {"": 0, "script": 0, "forward": 1}


def of_rank(out: Path, rank: int, trigger: str) -> list[dict[str, Any]]:
    """Return the entries of other processes for *rank* with this *trigger*, except helper processes."""
    entries = [
        status["rank"]
        for status in _statuses(out / "status")
        if status["pid"] != os.getpid() and status["rank"]
    ]
    own = _precedence(trigger)
    return [entry for entry in entries if entry["rank"] == rank and _precedence(entry["trigger"]) >= own]


def _statuses(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.glob("[!.]*.json"):
        with contextlib.suppress(FileNotFoundError, ValueError):  # a peer has merged or is overwriting it
            yield json.loads(file.read_bytes())


def any_trains_rather(others: Sequence[dict[str, Any]], trigger: str) -> bool:
    """Return whether a process with *trigger* only runs a model while one of the *others* trains."""
    return any(_precedence(trigger) < _precedence(entry["trigger"]) for entry in others)


def _precedence(trigger: str) -> int:
    return _PRECEDENCE.get(trigger, 2)
