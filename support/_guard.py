"""Run a command, and kill the command and its children when the requesting process ends.

The guard is started as ``python -I -S _guard.py FD COMMAND...`` in a new session. *FD* is the read end of a
pipe, and the requesting process holds the write end open. When the requesting process ends for any reason,
the pipe closes and the guard kills the whole session. The guard exits with the command's exit code, or with
128 + n after signal n.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


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
    """Wait until the requesting process has ended, then kill all processes of the guard's process group."""
    os.read(lifeline, 1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    # The guard exits immediately, because a normal exit would wait for the watcher thread, which waits for
    # the requesting process.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
