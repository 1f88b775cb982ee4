"""End the process at Ctrl-C without a traceback while modules are imported, and while it exits."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Iterator


def end_at_interrupt() -> None:
    """Let Ctrl-C end this process at once with exit code 130, unless it is ignored."""
    ours = threading.current_thread() is threading.main_thread()
    if ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)


@contextlib.contextmanager
def ended_by_interrupt() -> Iterator[None]:
    """Let Ctrl-C end this process at once while the block, which must write nothing, imports modules."""
    end_at_interrupt()
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGINT) is _end:
            signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(*_: object) -> None:
    os._exit(130)
