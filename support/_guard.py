"""Run a command, and kill it and its children when the process that asked for it ends.

Started as ``python -I -S _guard.py FD COMMAND...`` in a new session. *FD* is the read end of a pipe
whose write end the asking process holds; whatever ends that process also closes the pipe, and the
guard kills the session. The exit code is the command's, or 128 + n after signal n.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading


def main(arguments: list[str]) -> int:
    """Run the command in *arguments*; return its exit code."""
    lifeline = int(arguments[0])
    threading.Thread(target=_watch, args=(lifeline,), daemon=True).start()
    try:
        status = subprocess.run(arguments[1:], check=False, close_fds=True).returncode
    except OSError as error:
        print(f"cannot start {arguments[1]}: {error.strerror}", file=sys.stderr)
        return 127
    return status if status >= 0 else 128 - status


def _watch(lifeline: int) -> None:
    """Wait until the asking process has ended, then kill the guard's whole process group."""
    os.read(lifeline, 1)
    os.killpg(os.getpgid(0), signal.SIGKILL)


if __name__ == "__main__":
    # A normal exit would wait for the watcher thread, which waits for the asking process.
    code = main(sys.argv[1:])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
