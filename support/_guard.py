"""Run a command so that it, and whatever it starts, ends when the process that asked for it is gone.

Started as ``python -I -S _guard.py FD COMMAND...`` in a session of its own. *FD* is the reading end of a
pipe whose other end the asking process holds open: when that process ends, however it ends, the pipe closes
and the whole session is killed. Exits as the command did, 128 + n after signal n.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the command in *arguments* and return its exit status."""
    lifeline = int(arguments[0])
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    try:
        status = subprocess.run(arguments[1:], check=False, close_fds=True).returncode
    except OSError as error:
        print(f"cannot start {arguments[1]}: {error.strerror}", file=sys.stderr)
        return 127
    return status if status >= 0 else 128 - status


def _watch(lifeline: int) -> None:
    """Wait until the asking process is gone, then kill this session's processes, this one included."""
    os.read(lifeline, 1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    # A plain exit would wait for the watcher, which waits for the asking process.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
