"""Locate ns-3 and a C++ compiler on this machine."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....errors import BackendUnavailable, Cancelled

__all__ = ["Compiler", "Ns3Install", "find_compiler", "find_ns3"]

_LIBRARY = re.compile(r"libns(3[\w.]*?)(?:-dev)?-core(-[a-z]+)?\.so")
_HEADER = "ns3/core-module.h"
_OLDEST_GCC = 11
_POLL_S = 0.1
_VERSION_S = 30.0
_REMEDY = "`pip install --no-deps ns3==3.44.post0` and `apt-get install g++`"


@dataclass(frozen=True)
class Ns3Install:
    """An installed ns-3: its headers and its core library. *source* says how it was located."""

    include: Path
    library: Path
    version: str
    source: str

    def library_of(self, module: str) -> Path:
        """Return the library of *module*, which lies next to the core library with a matching name.

        Raises `BackendUnavailable` if this ns-3 was built without it.
        """
        path = self.library.with_name(self.library.name.replace("-core", f"-{module}", 1))
        if not path.is_file():
            raise BackendUnavailable(
                f"The ns-3 in {self.library.parent} has no module '{module}' ({path.name}); install a whole "
                f"one with {_REMEDY}."
            )
        return path


@dataclass(frozen=True)
class Compiler:
    """A C++ compiler and its version line."""

    path: str
    version: str


def find_ns3(environment: Mapping[str, str] | None = None) -> Ns3Install:
    """Return ns-3: the install named by ``CHAKRASCOPE_NS3``, the package ``ns3``, or the system's.

    Raises `BackendUnavailable` with the lines that install it.
    """
    variables = os.environ if environment is None else environment
    named = variables.get("CHAKRASCOPE_NS3")
    if named:
        found = _inspect(Path(named).expanduser(), "CHAKRASCOPE_NS3")
        if found is None:
            raise BackendUnavailable(
                f"CHAKRASCOPE_NS3 names {named}, but there is no ns-3 there (include/{_HEADER} and "
                "libns3*core*.so below lib or lib64); correct it, or unset it and install ns-3 with "
                f"{_REMEDY}."
            )
        return found
    for folder, source in _usual_places():
        found = _inspect(folder, source)
        if found is not None:
            return found
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
    environment: Mapping[str, str] | None = None, keep_going: Callable[[], bool] = lambda: True
) -> Compiler:
    """Return the C++ compiler: ``CXX``, else g++, clang++ or c++ on ``PATH``.

    Raises `BackendUnavailable` if there is none, or only one without C++20, and `Cancelled` if *keep_going*
    returns False before it has said its version.
    """
    variables = os.environ if environment is None else environment
    names = [variables["CXX"]] if variables.get("CXX") else ["g++", "clang++", "c++"]
    for name in names:
        path = shutil.which(name, path=variables.get("PATH", os.defpath))
        if path:
            return _checked(path, keep_going)
    raise BackendUnavailable(
        f"The backend 'ns3' compiles its model on first use, but there is no C++ compiler "
        f"({', '.join(names)}); what it needs comes with {_REMEDY}."
    )


def _checked(path: str, keep_going: Callable[[], bool]) -> Compiler:
    try:
        answer = _ask_version(path, keep_going)
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


def _ask_version(path: str, keep_going: Callable[[], bool]) -> str:
    """Return the compiler's answer to ``--version``, which may never come."""
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
                if not keep_going():
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
        found = importlib.util.find_spec("ns3")
    except (ImportError, ValueError):
        found = None
    for folder in (found.submodule_search_locations or ()) if found else ():
        yield Path(folder), "the Python package ns3"
    yield Path("/usr/local"), "the system"
    yield Path("/usr"), "the system"


def _inspect(prefix: Path, source: str) -> Ns3Install | None:
    """Return the ns-3 below *prefix*, if there is one."""
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
    """Return the version of libraries in *folder* whose names lack it, as Debian's."""
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
