"""Processes that tests start: whether they run, what they started, and waiting for what they do."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

Value = TypeVar("Value")


def wait_for(condition: Callable[[], Value], seconds: float = 300.0) -> Value:
    """Return what *condition* says once that is true; fails after *seconds*, which only a fault reaches."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{condition} is still not true after {seconds} s"
        time.sleep(0.02)
    return found


def is_running(process: int) -> bool:
    """Return whether the process of that id runs and is no zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(parent: int) -> list[int]:
    """Return the processes that *parent* started and that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                state, above = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
            except OSError:
                continue
            if state != "Z" and int(above) == parent:
                found.append(int(entry.name))
    return found


def descendants(parent: int) -> list[int]:
    """Return all processes below *parent*."""
    found: list[int] = []
    fresh = [parent]
    while fresh:
        fresh = [child for each in fresh for child in children(each)]
        found += fresh
    return found
