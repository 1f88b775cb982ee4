"""End this process quietly at Ctrl-C while modules are imported, and while it exits."""

from __future__ import annotations

import os

# The modules `signal` and `typing` are not imported, because Ctrl-C during the import prints a traceback.
from _signal import SIGINT, default_int_handler, getsignal, signal  # type: ignore[import-not-found]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

    Handler = Callable[[int, "FrameType | None"], object]

_INTERRUPTED = 130


def end_process(_number: int, _frame: FrameType | None) -> None:
    """End this process at once."""
    try:
        if os.isatty(2):
            os.write(2, b"\x1b[?25h")  # show the cursor, which progress displays hide
    finally:
        os._exit(_INTERRUPTED)


def raise_or_end(number: int, frame: FrameType | None) -> None:
    """Raise `KeyboardInterrupt`, or end this process at once while a module is imported.

    Modules in C may raise another error instead, or print and ignore the exception.
    """
    caller = frame
    while caller is not None:
        if caller.f_code.co_filename.startswith("<frozen importlib"):
            end_process(number, frame)
        caller = caller.f_back
    raise KeyboardInterrupt


def at_interrupt(handler: Handler = default_int_handler) -> None:
    """Call *handler* at Ctrl-C, unless Ctrl-C is ignored or another program handles it."""
    if getsignal(SIGINT) in (default_int_handler, end_process, raise_or_end):
        try:
            signal(SIGINT, handler)
        except ValueError:  # only the main thread may set handlers
            return
