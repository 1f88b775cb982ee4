"""Compile the model of TCP against ns-3, once for each source, compiler and ns-3."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from ....errors import BackendError
from ....support import sync_files
from .._process import describe_exit, run_guarded
from .._scratch import scratch_folder
from ._install import Compiler, Ns3Install, find_compiler, find_ns3

__all__ = ["SOURCES", "build_driver", "cache_folder"]

SOURCES = Path(__file__).resolve().parent / "tcp"
_PROGRAM = "tcpnet"
_MODULES = ("flow-monitor", "point-to-point", "internet", "traffic-control", "network", "core")
# ns-3's libraries do the work: more optimisation takes twice as long to compile and is no faster.
_FLAGS = ("-std=c++20", "-O1")
_TIMEOUT_S = 600.0
_FULL = os.strerror(errno.ENOSPC)


def build_driver(
    keep_going: Callable[[], bool] = lambda: True,
    environment: Mapping[str, str] | None = None,
) -> tuple[Path, Ns3Install]:
    """Return the compiled driver and the ns-3 it runs on, compiling on first use (seconds).

    A line on standard error says that it compiles. *keep_going* returning False cancels. Raises
    `BackendUnavailable` without ns-3 or a compiler, and `BackendError` with its message if it fails.
    """
    ns3 = find_ns3(environment)
    compiler = find_compiler(environment, keep_going)
    target = cache_folder(environment) / _key(ns3, compiler) / _PROGRAM
    if not target.is_file():
        print("Compiling the model of TCP against ns-3 (first use only) ...", file=sys.stderr)
        try:
            _compile(ns3, compiler, target, keep_going)
        except OSError as error:
            raise BackendError(
                f"The compiled model of TCP cannot be kept in {target.parent} ({error.strerror}); free some "
                "disk space or set XDG_CACHE_HOME to another folder."
            ) from error
    return target, ns3


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
    """Compile all sources as one, which reads ns-3's headers once, and put the program at *target*."""
    target.parent.mkdir(parents=True, exist_ok=True)
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
        sync_files([folder / _PROGRAM])  # half a program would be started for ever
        (folder / _PROGRAM).replace(target)
