"""Find the processes that tests start, wait for them, and end them with the tests."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

Value = TypeVar("Value")
VARIABLE = "CHAKRASCOPE_TESTS"
_END_S = 10.0

# This program waits until the tests end or are killed, then kills all processes that have the tests' mark in
# their environment: jobs, which outlive their parents, and their children. It does so twice, because a new
# process has no environment yet.
_WATCH = """
import os, signal, sys, time
mark = sys.argv[1].encode()
sys.stdin.buffer.read()
for pause_s in (0, 0.1):
    time.sleep(pause_s)
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/environ", "rb") as file:
                if mark in file.read().split(b"\\0"):
                    os.kill(int(process), signal.SIGKILL)
        except OSError:
            pass
"""


def wait_for(condition: Callable[[], Value], seconds: float = 300.0) -> Value:
    """Return the value of *condition* once it is true; fail after *seconds*."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"{condition} is still not true after {seconds} s"
        time.sleep(0.02)
    return found


def is_running(process: int) -> bool:
    """Return whether the process *pid* runs and is not a zombie."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def children(parent: int) -> list[int]:
    """Return the running child processes of *parent*."""
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


@contextmanager
def ended_with_us() -> Iterator[None]:
    """Mark all processes started within the block, and kill the remaining ones afterwards."""
    mark = f"{VARIABLE}={uuid4().hex}"
    before = os.environ.pop(VARIABLE, None)
    # Isolated and without packages: the program starts at once, and uses little memory.
    watch = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _WATCH, mark], stdin=subprocess.PIPE, start_new_session=True
    )
    os.environ[VARIABLE] = mark.partition("=")[2]
    try:
        yield
    finally:
        os.environ.pop(VARIABLE)
        if before is not None:
            os.environ[VARIABLE] = before
        assert watch.stdin is not None
        watch.stdin.close()
        watch.wait(_END_S)


@contextmanager
def files_up_to(size_bytes: int) -> Iterator[None]:
    """Limit the files of this process to *size_bytes*, which has the effect of a full disk."""
    before, wrote_none = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True  # Python writes the part that fits, and reads it next time
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        sys.dont_write_bytecode = wrote_none
