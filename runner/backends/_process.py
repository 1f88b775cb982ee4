"""External simulators: the user's ``backends.yml``, scratch folders, and supervised processes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import selectors
import shutil
import signal
import subprocess
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from ...errors import BackendError, BackendTimeout, BackendUnavailable, Cancelled, ConfigError
from ...support import Lifeline, plugin_names
from ...support.documents import read_yaml
from .._traits import DEFAULT_BACKEND
from ..config import refuse_unknown

ASTRA_SIM = "astra-sim"  # the key in backends.yml; a plug-in's key is its own name


def read_user_file(part: str, variables: Mapping[str, str]) -> tuple[Path, Any]:
    """Return the path of the user's ``backends.yml`` and its content under the key *part*, or None.

    The file is in ``$XDG_CONFIG_HOME/chakrascope``. Raises `ConfigError` if it is not a YAML
    mapping, or has a key that belongs to no backend.
    """
    base = variables.get("XDG_CONFIG_HOME") or os.path.join(variables.get("HOME", "~"), ".config")
    path = Path(base).expanduser() / "chakrascope" / "backends.yml"
    given = read_yaml(path, "backend configuration") if path.is_file() else {}
    keys = (ASTRA_SIM, *plugin_names("backends"))
    refuse_unknown(given, keys, str(path))
    return path, given.get(part)


_PREFIX = "chakrascope-"
_LOCK = ".in-use"
_SPACE_BYTES = 1 << 16


@contextlib.contextmanager
def scratch_folder(base: Path | None = None) -> Iterator[Path]:
    """Create and lock a folder in *base* (default: the temporary folder), and remove it after the block.

    Folders that killed processes left behind are removed first. Raises `OSError` if no folder can
    be created.
    """
    place = Path(tempfile.gettempdir()) if base is None else base
    _clear(place)
    with tempfile.TemporaryDirectory(prefix=_PREFIX, dir=place, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        fresh = folder / f"{_LOCK}.new"
        with fresh.open("wb") as lock:
            # Rename the lock file only once it is locked: another process removes folders without a
            # lock.
            fcntl.flock(lock, fcntl.LOCK_EX)
            fresh.rename(folder / _LOCK)
            yield folder


def require_space(folder: Path) -> None:
    """Raise `OSError` if the disk of *folder* is full, in which case outputs may be truncated."""
    with tempfile.TemporaryFile(dir=folder) as probe:
        os.posix_fallocate(probe.fileno(), 0, _SPACE_BYTES)


def _clear(place: Path) -> None:
    """Remove the scratch folders in *place* whose process has ended."""
    for lock in place.glob(f"{_PREFIX}*/{_LOCK}"):
        with contextlib.suppress(OSError), lock.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)


_CHUNK_BYTES = 1 << 16
_LINE_BYTES = 1 << 16
_POLL_S = 0.1
_TAIL_LINES = 12
_TAIL_CHARACTERS = 300
_TIMEOUT_VARIABLE = "CHAKRASCOPE_BACKEND_TIMEOUT"
_TIMEOUT_S = 3600.0


class Guarded:
    """A context manager for a program in its own session, which cannot outlive this process.

    Leaving the context kills the program and its descendants. The first word of *command* is the path of the
    program. Standard output and error are merged. Raises `BackendUnavailable` if the program cannot
    be started.
    """

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self.tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._lifeline = Lifeline()
        try:
            self._process = self._lifeline.start(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except OSError as error:
            self._lifeline.close()
            raise BackendUnavailable(
                f"The program {command[0]} cannot be started ({error.strerror}); check that it is executable."
            ) from error

    def __enter__(self) -> Guarded:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lifeline.close()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()

    def follow(self, on_line: Callable[[str], None], on_tick: Callable[[], None]) -> int:
        """Pass each output line to *on_line*, call *on_tick* ten times a second; return the exit status."""
        stream = self._process.stdout
        if stream is None:
            return self._process.wait()
        rest = b""
        next_tick = time.monotonic() + _POLL_S
        with selectors.DefaultSelector() as selector:
            selector.register(stream, selectors.EVENT_READ)
            while True:
                if selector.select(max(next_tick - time.monotonic(), 0)):
                    chunk = os.read(stream.fileno(), _CHUNK_BYTES)
                    if not chunk:
                        break
                    rest = self._lines(rest + chunk, on_line)
                elif self._process.poll() is not None and not selector.select(0):
                    break  # a child process may hold the pipe open after all output was read
                if time.monotonic() >= next_tick:
                    on_tick()
                    next_tick = time.monotonic() + _POLL_S
        self._lines(rest + b"\n", on_line)
        return self._wait(on_tick)

    def _lines(self, data: bytes, on_line: Callable[[str], None]) -> bytes:
        """Pass the complete lines in *data* to *on_line*; return the unfinished last line, possibly cut."""
        *lines, rest = data.split(b"\n")
        for raw in lines:
            line = raw.decode("utf-8", "replace").rstrip("\r")
            if line.strip():
                self.tail.append(line[:_TAIL_CHARACTERS])
            on_line(line)
        return rest[:_LINE_BYTES]

    def _wait(self, on_tick: Callable[[], None]) -> int:
        """Wait for the exit of a program that has closed its output."""
        while self._process.poll() is None:
            time.sleep(_POLL_S / 10)
            on_tick()
        return self._process.wait()


def backend_timeout_s() -> float:
    """Return the time limit of a program in seconds: ``CHAKRASCOPE_BACKEND_TIMEOUT``, or an hour."""
    text = os.environ.get(_TIMEOUT_VARIABLE, "")
    try:
        seconds = float(text) if text else _TIMEOUT_S
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise ConfigError(f"{_TIMEOUT_VARIABLE} must be a number of seconds above 0, not '{text}'.")
    return seconds


def run_guarded(
    command: Sequence[str],
    folder: Path,
    *,
    name: str,
    timeout_s: float,
    on_line: Callable[[str], None],
    may_continue: Callable[[], bool],
) -> tuple[int, list[str]]:
    """Run *command* in *folder* to its end; return the exit status and the last lines of output.

    *may_continue* is called ten times a second; if it returns False, the program is killed and
    `Cancelled` raised. After *timeout_s* seconds, the program is killed and `BackendTimeout`
    raised. Error messages call the program *name*.
    """
    deadline = time.monotonic() + timeout_s

    def tick() -> None:
        if not may_continue():
            raise Cancelled(f"{name} was cancelled and has been stopped.")
        if time.monotonic() > deadline:
            raise BackendTimeout(
                f"{name} did not finish within {timeout_s:g} s and was stopped. Next: allow more time, or "
                f"simulate fewer ranks, smaller messages, or on a faster backend such as '{DEFAULT_BACKEND}'."
            )

    try:
        with Guarded(command, folder) as program:
            tick()
            return program.follow(on_line, tick), list(program.tail)
    except OSError as error:
        raise BackendError(f"{name} could not be run ({error}); check the disk and memory.") from error


def describe_exit(status: int) -> str:
    """Describe an exit status, for example ``exit status 1`` or ``killed by SIGKILL ...``."""
    number = -status if status < 0 else status - 128
    try:
        name = signal.Signals(number).name
    except ValueError:
        return f"it ended with exit status {status}"
    hint = " (often: out of memory)" if name == "SIGKILL" else ""
    return f"it was ended by {name}{hint}"
