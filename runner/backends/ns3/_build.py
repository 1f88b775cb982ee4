"""Find ns-3 and a compiler, and compile the TCP model once per source, compiler and ns-3 version."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....errors import BackendError, BackendUnavailable, Cancelled
from ....support import cache_folder, sync_files
from .._process import describe_exit, run_guarded, scratch_folder

_LIBRARY = re.compile(r"libns(3[\w.]*?)(?:-dev)?-core(-[a-z]+)?\.so")
_HEADER = "ns3/core-module.h"
_OLDEST_GCC = 11
_VERSION_S = 30.0
_REMEDY = "`pip install --no-deps ns3==3.44.post0` and `apt-get install g++`"


@dataclass(frozen=True)
class Ns3Install:
    """An installed ns-3: its headers and core library, and the setting (*source*) that located it."""

    include: Path
    library: Path
    version: str
    source: str

    def library_of(self, module: str) -> Path:
        """Return the library of the ns-3 *module*, from the folder of the core library.

        Raises `BackendUnavailable` if ns-3 was built without the module.
        """
        path = self.library.with_name(self.library.name.replace("-core", f"-{module}", 1))
        if not path.is_file():
            raise BackendUnavailable(
                f"The ns-3 in {self.library.parent} has no module '{module}' ({path.name}); install a "
                f"complete one with {_REMEDY}."
            )
        return path


@dataclass(frozen=True)
class Compiler:
    """The path of a C++ compiler and the first line of its ``--version``."""

    path: str
    version: str


def find_ns3(environment: Mapping[str, str] = os.environ) -> Ns3Install:
    """Find ns-3: ``CHAKRASCOPE_NS3``, the package ``ns3``, or the system's ns-3, in this order.

    Raises `BackendUnavailable` with the commands that install ns-3.
    """
    named = environment.get("CHAKRASCOPE_NS3")
    if named:
        installation = _inspect(Path(named).expanduser(), "CHAKRASCOPE_NS3")
        if installation is None:
            raise BackendUnavailable(
                f"CHAKRASCOPE_NS3 names {named}, but there is no ns-3 there (include/{_HEADER} and "
                "libns3*core*.so below lib or lib64); correct it, or unset it and install ns-3 with "
                f"{_REMEDY}."
            )
        return installation
    for folder, source in _usual_places():
        installation = _inspect(folder, source)
        if installation is not None:
            return installation
    note = (
        ""
        if platform.machine() == "x86_64"
        else f" (the package exists for x86_64, not {platform.machine()})"
    )
    raise BackendUnavailable(
        f"The backend 'ns3' needs ns-3, which is not installed; install it with {_REMEDY}{note}, or set "
        "CHAKRASCOPE_NS3 to the folder of another ns-3."
    )


def find_compiler(
    environment: Mapping[str, str] = os.environ, may_continue: Callable[[], bool] = lambda: True
) -> Compiler:
    """Find a C++20 compiler: ``CXX``, or otherwise g++, clang++ or c++ on ``PATH``.

    Raises `BackendUnavailable` if there is none, and `Cancelled` if *may_continue* returns False
    before the compiler has answered.
    """
    names = [environment["CXX"]] if environment.get("CXX") else ["g++", "clang++", "c++"]
    for name in names:
        path = shutil.which(name, path=environment.get("PATH", os.defpath))
        if path:
            return _checked(path, may_continue)
    raise BackendUnavailable(
        f"The backend 'ns3' compiles its model on first use, but there is no C++ compiler "
        f"({', '.join(names)}); install it with {_REMEDY}."
    )


def _checked(path: str, may_continue: Callable[[], bool]) -> Compiler:
    try:
        answer = _ask_version(path, may_continue)
    except (OSError, subprocess.SubprocessError) as error:
        raise BackendUnavailable(
            f"The C++ compiler {path} does not run ({error}); install another with {_REMEDY}."
        ) from error
    first = answer.splitlines()[0] if answer else "unknown"
    number = re.search(r"\b(\d{1,3})\.\d+\.\d+", first)
    if number and "clang" not in first.lower() and int(number[1]) < _OLDEST_GCC:
        raise BackendUnavailable(
            f"The C++ compiler {path} is too old ({first}); the backend 'ns3' needs g++ {_OLDEST_GCC} or "
            "newer, named by CXX if it is not the first on PATH."
        )
    return Compiler(path, first)


def _ask_version(path: str, may_continue: Callable[[], bool]) -> str:
    """Return the compiler's answer to ``--version``, with a time limit because wrappers may hang."""
    command = [path, "--version"]
    deadline = time.monotonic() + _VERSION_S
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, errors="replace"
    ) as process:
        try:
            while True:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    answer, _ = process.communicate(timeout=_POLL_S)
                    break
                if not may_continue():
                    raise Cancelled("The packet-level simulation was cancelled.")
                if time.monotonic() > deadline:
                    raise subprocess.TimeoutExpired(command, _VERSION_S)
        finally:
            process.kill()
    if process.returncode != 0:
        raise subprocess.CalledProcessError(process.returncode, command)
    return answer


def _usual_places() -> Iterator[tuple[Path, str]]:
    try:
        module = importlib.util.find_spec("ns3")
    except (ImportError, ValueError):
        module = None
    for folder in (module.submodule_search_locations or ()) if module else ():
        yield Path(folder), "the Python package ns3"
    yield Path("/usr/local"), "the system"
    yield Path("/usr"), "the system"


def _inspect(prefix: Path, source: str) -> Ns3Install | None:
    """Return the ns-3 installation below *prefix*, or None if there is none."""
    include = next((path for path in _includes(prefix) if (path / _HEADER).is_file()), None)
    if include is None:
        return None
    for folder in ("lib64", "lib", f"lib/{platform.machine()}-linux-gnu"):
        for library in sorted((prefix / folder).glob("libns3*core*.so"), reverse=True):
            match = _LIBRARY.fullmatch(library.name)
            if match:
                version = _packaged_version(library.parent) if match[1] == "3" else match[1]
                return Ns3Install(include.resolve(), library.resolve(), version, source)
    return None


def _packaged_version(folder: Path) -> str:
    """Return the version of ns-3's libraries in *folder* where file names lack it, as on Debian."""
    try:
        lines = (
            (folder / "pkgconfig" / "ns3-core.pc").read_text(encoding="utf-8", errors="replace").split("\n")
        )
    except OSError:
        return "3"
    return next((line.removeprefix("Version:").strip() for line in lines if line.startswith("Version:")), "3")


def _includes(prefix: Path) -> Iterator[Path]:
    yield prefix / "include"
    yield from sorted((prefix / "include").glob("ns3*"), reverse=True)


SOURCES = Path(__file__).resolve().parent / "tcp"
_PROGRAM = "tcpnet"
_MODULES = ("flow-monitor", "point-to-point", "internet", "traffic-control", "network", "core")
# ns-3's own libraries take most of the run time, so -O2 would only double the compile time.
_FLAGS = ("-std=c++20", "-O1")
_TIMEOUT_S = 600.0
_POLL_S = 0.1
_COMPILING = "Compiling the model of TCP against ns-3 (first use only)"
_FULL = os.strerror(errno.ENOSPC)


def build_driver(
    may_continue: Callable[[], bool] = lambda: True,
    environment: Mapping[str, str] = os.environ,
) -> tuple[Path, Ns3Install]:
    """Return the driver program and its ns-3; the first call compiles the driver, which takes seconds.

    Prints progress to standard error. Raises `Cancelled` once *may_continue* returns False,
    `BackendUnavailable` without ns-3 or a compiler, and `BackendError` with the compiler's message
    if compilation fails.
    """
    ns3 = find_ns3(environment)
    compiler = find_compiler(environment, may_continue)
    target = cache_folder("ns3", environment) / _key(ns3, compiler) / _PROGRAM
    if not target.is_file():
        with _reporting(may_continue) as going:
            _compile_once(ns3, compiler, target, going)
    return target, ns3


@contextlib.contextmanager
def _reporting(may_continue: Callable[[], bool]) -> Iterator[Callable[[], bool]]:
    """Print at doubling intervals, during the block, that the TCP model is being compiled."""
    began, next_s = time.monotonic(), 2.0
    print(f"{_COMPILING} ...", file=sys.stderr)

    def going() -> bool:
        nonlocal next_s
        passed = time.monotonic() - began
        if passed >= next_s:
            print(f"{_COMPILING}: {passed:.0f} s so far", file=sys.stderr)
            next_s *= 2
        return may_continue()

    yield going
    print(
        f"Compiled the model of TCP in {time.monotonic() - began:.0f} s; it is stored for later runs.",
        file=sys.stderr,
    )


def _compile_once(
    ns3: Ns3Install, compiler: Compiler, target: Path, may_continue: Callable[[], bool]
) -> None:
    """Compile the program at *target*, or wait for the process or thread that is already compiling it."""
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _turn(target.parent, may_continue):
            if not target.is_file():
                _compile(ns3, compiler, target, may_continue)
    except OSError as error:
        raise BackendError(
            f"The compiled model of TCP cannot be kept in {target.parent} ({error.strerror}); free some "
            "disk space or set XDG_CACHE_HOME to another folder."
        ) from error


@contextlib.contextmanager
def _turn(folder: Path, may_continue: Callable[[], bool]) -> Iterator[None]:
    """Lock *folder* against other processes and threads during the block."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not may_continue():
                    raise Cancelled("The compilation of the model of TCP was cancelled.") from None
                time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _key(ns3: Ns3Install, compiler: Compiler) -> str:
    digest = hashlib.sha256(
        "\n".join([str(ns3), str(ns3.library.stat().st_size), str(compiler), *_FLAGS]).encode()
    )
    for path in sorted(SOURCES.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(ns3: Ns3Install, compiler: Compiler, target: Path, may_continue: Callable[[], bool]) -> None:
    """Compile all sources as one unit, to parse ns-3's headers once, and write the program to *target*."""
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
            may_continue=may_continue,
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
        sync_files([folder / _PROGRAM])  # a crash could otherwise leave a truncated program in the cache
        (folder / _PROGRAM).replace(target)
