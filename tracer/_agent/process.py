"""Help the agent in its process: atomic files, launch options, signals, exit, other processes of its rank."""

from __future__ import annotations

import atexit
import contextlib
import errno
import gzip
import json
import multiprocessing
import multiprocessing.util
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

CHATTER = (
    b"execution_trace_observer.cpp",
    b"SyncActivityProfilerHandler.cpp",
    b"output_json.cpp",
    b"External init callback must run in same thread",
    b"Toggling CPU activity with GPU activity on",
)
DEFERRED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def write_atomically(path: Path, data: bytes) -> None:
    """Write *data* under a temporary name and move it to *path*."""
    with _new_file(path) as temporary:
        temporary.write_bytes(data)


@contextlib.contextmanager
def _new_file(path: Path) -> Iterator[Path]:
    """Write a new file like `support.new_file`, which may not be importable in the job's Python.

    The agent is loaded by its file path. Files are not synced to disk while the job waits, because the
    launcher syncs the files before it writes the manifest.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        yield temporary
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_or_overwrite(path: Path, data: bytes) -> None:
    """Write the JSON *data* to *path*; on a full disk, overwrite the old file, which needs no more space."""
    try:
        write_atomically(path, data)
    except OSError:
        with path.open("r+b") as file:
            file.write(data.ljust(path.stat().st_size))


def compress(raw: Path, target: Path) -> None:
    """Move the JSON file *raw* to *target*, compressed.

    Raises:
        OSError: the disk is full, or was full when *raw* was written (C++ code then truncates the file
            without an error).

    """
    _check_whole(raw)
    with (
        _new_file(target) as temporary,
        raw.open("rb") as source,
        gzip.open(temporary, "wb", compresslevel=3) as sink,
    ):
        shutil.copyfileobj(source, sink, 1 << 20)
    raw.unlink()


def _check_whole(file: Path) -> None:
    if file.exists():
        with file.open("rb") as stream:
            stream.seek(max(0, file.stat().st_size - 64))
            if stream.read().rstrip().endswith(b"}"):
                return
    raise OSError(errno.ENOSPC, "the disk is full, or a limit on file sizes was reached")


def at_process_end(function: Callable[[], None]) -> None:
    """Call *function* when this process ends normally; forked workers run no ``atexit`` functions.

    *function* is called again if an interrupt (Ctrl-C) ends the first call, so it must be safe to repeat.
    """

    def undisturbed() -> None:
        try:
            function()
        except KeyboardInterrupt:  # another Ctrl-C in a process that is already ending
            function()

    atexit.register(undisturbed)
    if multiprocessing.parent_process() is not None:
        multiprocessing.util.Finalize(None, undisturbed, exitpriority=100)


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Suppress the profiler's notices in the job's standard error, which no setting disables.

    All other output of the block is forwarded at its end.
    """
    try:
        saved_stderr = os.dup(2)
    except OSError:  # the job has closed standard error; the next opened file would get its number
        _occupy_standard_error()
        yield
        return
    with os.fdopen(os.memfd_create("stderr"), "w+b") as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(saved_stderr, 2)
            os.close(saved_stderr)
            held.seek(0)
            os.write(2, b"".join(line for line in held if not any(mark in line for mark in CHATTER)))


def _occupy_standard_error() -> None:
    null = os.open(os.devnull, os.O_WRONLY)
    if null != 2:
        os.dup2(null, 2)
        os.close(null)


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer termination signals while files are written, and then deliver the signals.

    Signal handlers are used because a signal mask covers only one thread, so signals would still reach
    torch's other threads. An interrupt (Ctrl-C) of a process that is already ending is dropped.
    """
    arrived: list[int] = []
    try:
        with signals_handled(DEFERRED_SIGNALS, lambda number, _frame: arrived.append(number)):
            yield
    finally:
        for held_back in arrived:
            if held_back != signal.SIGINT or not _is_ending():
                os.kill(os.getpid(), held_back)


@contextlib.contextmanager
def signals_handled(
    numbers: Sequence[int], handler: Callable[[int, FrameType | None], None]
) -> Iterator[None]:
    """Call *handler* for signals that arrive in the block and are not ignored, if this is the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.getsignal(number) for number in numbers}
    for number, own in before.items():
        if own is not signal.SIG_IGN:
            signal.signal(number, handler)
    try:
        yield
    finally:
        for number, own in before.items():
            signal.signal(number, own if own is not None else signal.SIG_DFL)


def _is_ending() -> bool:
    """Return whether the interpreter has finished the script and runs exit functions."""
    return not threading.main_thread().is_alive()


ENVIRONMENT_KEY = "CHAKRASCOPE_CAPTURE"
_state: dict[str, Any] = {"options": os.environ.get(ENVIRONMENT_KEY)}


def keep_launch_options(options: str | None) -> None:
    """Store the launcher's *options*, in JSON, before the script can change its environment."""
    _state["options"] = options


def launch_options() -> dict[str, Any]:
    """Return the launcher's options, or an empty mapping if there is no launcher."""
    options: dict[str, Any] = json.loads(os.environ.get(ENVIRONMENT_KEY) or _state["options"] or "{}")
    return options


# Processes that take optimizer steps, or mark their steps, have the precedence 2.
_PRECEDENCE = {"": 0, "script": 0, "forward": 1}


def entries_of_rank(out: Path, rank: int, trigger: str) -> list[dict[str, Any]]:
    """Return the entries of other processes for *rank* with this *trigger*, except helper processes."""
    entries = [
        status["rank"]
        for status in _statuses(out / "status")
        if status["pid"] != os.getpid() and status["rank"]
    ]
    own = precedence(trigger)
    return [entry for entry in entries if entry["rank"] == rank and precedence(entry["trigger"]) >= own]


def _statuses(folder: Path) -> Iterator[dict[str, Any]]:
    for file in folder.glob("[!.]*.json"):
        with contextlib.suppress(FileNotFoundError, ValueError):  # a peer merged or overwrites the file
            yield json.loads(file.read_bytes())


def any_trains_instead(others: Sequence[dict[str, Any]], trigger: str) -> bool:
    """Return whether a process with *trigger* only runs a model while one of the *others* trains."""
    return any(precedence(trigger) < precedence(entry["trigger"]) for entry in others)


def precedence(trigger: str) -> int:
    """Return the precedence of a process with *trigger* among the processes of a rank."""
    return _PRECEDENCE.get(trigger, 2)
