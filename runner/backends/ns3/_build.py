"""Compile the model of TCP against ns-3, once for each source, compiler and ns-3."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from ....errors import BackendError, Cancelled, ChakrascopeError
from ....support import sync_files
from .._process import describe_exit, run_guarded, scratch_folder
from ._install import Compiler, Ns3Install, find_compiler, find_ns3

__all__ = ["SOURCES", "build_driver", "cache_folder", "start_build"]

SOURCES = Path(__file__).resolve().parent / "tcp"
_PROGRAM = "tcpnet"
_MODULES = ("flow-monitor", "point-to-point", "internet", "traffic-control", "network", "core")
# ns-3's libraries do the work: more optimisation takes twice as long to compile and is no faster.
_FLAGS = ("-std=c++20", "-O1")
_TIMEOUT_S = 600.0
_POLL_S = 0.1
_COMPILING = "Compiling the model of TCP against ns-3 (first use only)"
_FULL = os.strerror(errno.ENOSPC)


def build_driver(
    keep_going: Callable[[], bool] = lambda: True,
    environment: Mapping[str, str] | None = None,
) -> tuple[Path, Ns3Install]:
    """Return the compiled driver and its ns-3; compile on first use (seconds).

    Progress is printed on standard error. *keep_going* returning False cancels. Raises `BackendUnavailable`
    without ns-3 or a compiler, and `BackendError` with the compiler's message if it fails.
    """
    ns3 = find_ns3(environment)
    compiler = find_compiler(environment, keep_going)
    target = cache_folder(environment) / _key(ns3, compiler) / _PROGRAM
    if not target.is_file():
        with _reporting(keep_going) as going:
            _compile_once(ns3, compiler, target, going)
    return target, ns3


def start_build(environment: Mapping[str, str] | None = None) -> threading.Thread:
    """Compile the driver in the background if necessary, silently, and return the thread.

    A concurrent `build_driver` waits for it, and raises its errors.
    """

    def work() -> None:
        with contextlib.suppress(ChakrascopeError):
            ns3, compiler = find_ns3(environment), find_compiler(environment)
            target = cache_folder(environment) / _key(ns3, compiler) / _PROGRAM
            if not target.is_file():
                _compile_once(ns3, compiler, target, lambda: True)

    thread = threading.Thread(target=work, name="compile the model of TCP", daemon=True)
    thread.start()
    return thread


@contextlib.contextmanager
def _reporting(keep_going: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """Print that the model is being compiled, at doubling intervals during the block."""
    began, next_s = time.monotonic(), 2.0
    print(f"{_COMPILING} ...", file=sys.stderr)

    def going() -> bool:
        nonlocal next_s
        passed = time.monotonic() - began
        if passed >= next_s:
            print(f"{_COMPILING}: {passed:.0f} s so far", file=sys.stderr)
            next_s *= 2
        return keep_going()

    yield going
    print(f"Compiled the model of TCP in {time.monotonic() - began:.0f} s; it is kept.", file=sys.stderr)


def _compile_once(ns3: Ns3Install, compiler: Compiler, target: Path, keep_going: Callable[[], bool]) -> None:
    """Put the program at *target*, unless another process or thread is doing so."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _turn(target.parent, keep_going):
            if not target.is_file():
                _compile(ns3, compiler, target, keep_going)
    except OSError as error:
        raise BackendError(
            f"The compiled model of TCP cannot be kept in {target.parent} ({error.strerror}); free some "
            "disk space or set XDG_CACHE_HOME to another folder."
        ) from error


@contextlib.contextmanager
def _turn(folder: Path, keep_going: Callable[[], bool]) -> Iterator[None]:
    """Let only one block run at a time, of all processes and threads with the same *folder*."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not keep_going():
                    raise Cancelled("The compilation of the model of TCP was cancelled.") from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the user's folder for compiled models."""
    variables = os.environ if environment is None else environment
    base = variables.get("XDG_CACHE_HOME") or os.path.join(variables.get("HOME", "~"), ".cache")
    return Path(base).expanduser() / "chakrascope" / "ns3"


def _key(ns3: Ns3Install, compiler: Compiler) -> str:
    digest = hashlib.sha256(
        "\n".join([str(ns3), str(ns3.library.stat().st_size), str(compiler), *_FLAGS]).encode()
    )
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(ns3: Ns3Install, compiler: Compiler, target: Path, keep_going: Callable[[], bool]) -> None:
    """Compile all sources as one, to read ns-3's headers once, and put the program at *target*."""
    with scratch_folder(target.parent) as folder:
        whole = "".join(f'#include "{path}"\n' for path in sorted(SOURCES.glob("*.cc")))
        (folder / "all.cc").write_text(whole, encoding="utf-8")
        command = [
            *(compiler.path, *_FLAGS, f"-I{ns3.include}", "all.cc", "-o", _PROGRAM),
            *(f"-L{ns3.library.parent}", f"-Wl,-rpath,{ns3.library.parent}"),
            *(f"-l:{ns3.library_of(module).name}" for module in _MODULES),
        ]
        status, tail = run_guarded(
            command,
            folder,
            name="The compilation of the model of TCP",
            timeout_s=_TIMEOUT_S,
            on_line=lambda _: None,
            keep_going=keep_going,
        )
        if status != 0 and _FULL in " ".join(tail):
            raise BackendError(
                f"The model of TCP cannot be compiled: the disk is full ({target.parent}, or the folder for "
                "temporary files); free some space, or set XDG_CACHE_HOME and TMPDIR to other folders."
            )
        if status != 0:
            raise BackendError(
                f"The model of TCP does not compile against ns-3 {ns3.version} in {ns3.include} with "
                f"{compiler.version}: {describe_exit(status)}. {' | '.join(tail[-4:])}. Install the ns-3 it "
                "was made for with `pip install --no-deps ns3==3.44.post0`."
            )
        sync_files([folder / _PROGRAM])  # a truncated program would be started for ever
        (folder / _PROGRAM).replace(target)
