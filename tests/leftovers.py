"""What tests start ends with them, also when they are aborted: a process beside them sees to it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

VARIABLE = "CHAKRASCOPE_TESTS"
_END_S = 10.0

# Reads until the tests are over, or gone, and kills what has their mark in its environment: jobs, which
# outlive whoever asks for them, and what these have started. Twice: a process that has just begun has no
# environment yet.
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


@contextmanager
def ended_with_us() -> Iterator[None]:
    """Mark all that is started within the block, and kill what is left of it afterwards, however we end."""
    mark = f"{VARIABLE}={uuid4().hex}"
    before = os.environ.pop(VARIABLE, None)
    # Isolated and without packages: it is there in an instant, and takes little memory.
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
