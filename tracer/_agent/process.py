"""Write files whole and leave the process's signals and standard error as they were."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

__all__ = ["signals_deferred", "without_chatter", "write_atomically"]

CHATTER = (b"execution_trace_observer.cpp", b"SyncActivityProfilerHandler.cpp")
DEFERRED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def write_atomically(path: Path, data: bytes) -> None:
    """Write *data* under a temporary name and move it to *path*."""
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


@contextlib.contextmanager
def without_chatter() -> Iterator[None]:
    """Keep the profiler's own notices, which no setting silences, out of the job's standard error.

    Whatever else is written meanwhile is passed on afterwards.
    """
    try:
        kept = os.dup(2)
    except OSError:  # the job has closed it
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            os.write(2, b"".join(line for line in held if not any(mark in line for mark in CHATTER)))


@contextlib.contextmanager
def signals_deferred() -> Iterator[None]:
    """Hold back termination signals while files are written; deliver them afterwards.

    Handlers rather than a signal mask: a mask covers one thread, and torch's others would still be hit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {number: signal.getsignal(number) for number in DEFERRED_SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda received, _frame: arrived.append(received))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for held_back in arrived:
            os.kill(os.getpid(), held_back)
