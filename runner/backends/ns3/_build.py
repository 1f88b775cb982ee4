"""Compile a model against ns-3, once for each source, compiler and ns-3."""

from __future__ import annotations

import errno
import hashlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ....errors import BackendError
from ....support import sync_files
from .._process import describe_exit, run_guarded
from .._scratch import scratch_folder
from ._install import Compiler, Ns3Install, find_compiler, find_ns3

__all__ = ["ROCE", "SOURCES", "TCP", "Model", "build_driver", "cache_folder"]

_HERE = Path(__file__).resolve().parent
SOURCES = _HERE / "src"
_STANDARD = "-std=c++20"
_TIMEOUT_S = 600.0
_FULL = os.strerror(errno.ENOSPC)


@dataclass(frozen=True)
class Model:
    """A program to compile: its *sources*, what it is called, and the *modules* of ns-3 that it links.

    *optimise* is how much the compiler shall: where ns-3's libraries do the work, little is as good as much
    and compiles in half the time.
    """

    sources: Path
    program: str
    name: str
    modules: tuple[str, ...]
    optimise: str


ROCE = Model(SOURCES, "packetnet", "packet model", ("core",), "-O2")
TCP = Model(
    _HERE / "tcp",
    "tcpnet",
    "model of TCP",
    ("flow-monitor", "point-to-point", "internet", "traffic-control", "network", "core"),
    "-O1",
)


def build_driver(
    keep_going: Callable[[], bool] = lambda: True,
    environment: Mapping[str, str] | None = None,
    model: Model = ROCE,
) -> tuple[Path, Ns3Install]:
    """Return the compiled driver of *model* and the ns-3 it runs on, compiling on first use (seconds).

    A line on standard error says that it compiles. *keep_going* returning False cancels. Raises
    `BackendUnavailable` without ns-3 or a compiler, and `BackendError` with its message if it fails.
    """
    ns3 = find_ns3(environment)
    compiler = find_compiler(environment, keep_going)
    target = cache_folder(environment) / _key(ns3, compiler, model) / model.program
    if not target.is_file():
        print(f"Compiling the {model.name} against ns-3 (first use only) ...", file=sys.stderr)
        try:
            _compile(ns3, compiler, model, target, keep_going)
        except OSError as error:
            raise BackendError(
                f"The compiled {model.name} cannot be kept in {target.parent} ({error.strerror}); free some "
                "disk space or set XDG_CACHE_HOME to another folder."
            ) from error
    return target, ns3


def cache_folder(environment: Mapping[str, str] | None = None) -> Path:
    """Return the user's folder for compiled models."""
    variables = os.environ if environment is None else environment
    base = variables.get("XDG_CACHE_HOME") or os.path.join(variables.get("HOME", "~"), ".cache")
    return Path(base).expanduser() / "chakrascope" / "ns3"


def _key(ns3: Ns3Install, compiler: Compiler, model: Model) -> str:
    digest = hashlib.sha256(
        "\n".join(
            [str(ns3), str(ns3.library.stat().st_size), str(compiler), _STANDARD, model.optimise]
        ).encode()
    )
    for path in sorted(model.sources.iterdir()):
        digest.update(path.name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def _compile(
    ns3: Ns3Install, compiler: Compiler, model: Model, target: Path, keep_going: Callable[[], bool]
) -> None:
    """Compile all sources as one, which reads ns-3's headers once, and put the program at *target*."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with scratch_folder(target.parent) as folder:
        whole = "".join(f'#include "{path}"\n' for path in sorted(model.sources.glob("*.cc")))
        (folder / "all.cc").write_text(whole, encoding="utf-8")
        command = [
            *(compiler.path, _STANDARD, model.optimise, f"-I{ns3.include}", "all.cc", "-o", model.program),
            *(f"-L{ns3.library.parent}", f"-Wl,-rpath,{ns3.library.parent}"),
            *(f"-l:{ns3.library_of(module).name}" for module in model.modules),
        ]
        status, tail = run_guarded(
            command,
            folder,
            name=f"The compilation of the {model.name}",
            timeout_s=_TIMEOUT_S,
            on_line=lambda _: None,
            keep_going=keep_going,
        )
        if status != 0 and _FULL in " ".join(tail):
            raise BackendError(
                f"The {model.name} cannot be compiled: the disk is full ({target.parent}, or the folder for "
                "temporary files); free some space, or set XDG_CACHE_HOME and TMPDIR to other folders."
            )
        if status != 0:
            raise BackendError(
                f"The {model.name} does not compile against ns-3 {ns3.version} in {ns3.include} with "
                f"{compiler.version}: {describe_exit(status)}. {' | '.join(tail[-4:])}. Install the ns-3 it "
                "was made for with `pip install --no-deps ns3==3.44.post0`."
            )
        sync_files([folder / model.program])  # half a program would be started for ever
        (folder / model.program).replace(target)
