#!/usr/bin/env python3
"""Check that a wheel works in an empty environment, without ns-3, a compiler or extras.

``python scripts/wheel_check.py [WHEEL] [--python PROGRAM] [--find-links FOLDER]`` first checks the content of
WHEEL (by default a wheel built from this tree): no other top-level name, no sources of the native parts, and
the licences. Then, the script installs the wheel with its dependencies (only from FOLDER, if given). Without
network access, it converts and simulates the capture that ships with the package, computes the critical path,
and simulates with packet, flow and auto; ns3 must name the missing requirements. The check takes minutes,
mostly for building and installing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
_MIB = 1 << 20
_RANKS = 8
# In a ring, the fluid model equals the packet model except for the start of a message.
_CLOSE = 0.02
_MAX_MIB = 8
# Only programs for ns-3 are compiled on first use.
_SOURCES = re.compile(r"^(?!chakrascope/runner/backends/ns3/).*(\.cc|\.h|\.pyc|CMakeLists\.txt)$|/tests/")
_LICENCES = {"licenses/LICENSE", "licenses/runner/backends/ns3/tcp/LICENSE"}


def main() -> None:
    """Read the command line, install the wheel and use it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "wheel", nargs="?", type=Path, help="wheel to check (default: build one from this tree)"
    )
    parser.add_argument(
        "--find-links", type=Path, help="install only from this folder, which `make wheels` has filled"
    )
    parser.add_argument("--python", default=sys.executable, help="Python to install the wheel for")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = asked.wheel or build(folder / "wheel")
        if not wheel.is_file():
            sys.exit(f"there is no wheel {wheel}; `make wheels` makes one")
        print(f"{wheel.name}: {wheel.stat().st_size / _MIB:.1f} MiB")
        check_contents(wheel)
        programs = install(wheel.resolve(), folder / "environment", asked.find_links, asked.python)
        check(programs, folder)


def build(folder: Path) -> Path:
    """Build the wheel of this source tree in *folder*, and return its path."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(folder),
        str(ROOT),
    ]
    done(command, "build the wheel")
    (wheel,) = folder.glob("*.whl")
    return wheel


def check_contents(wheel: Path) -> None:
    """Exit if *wheel* has another top-level name, contains sources, lacks a licence, or is too large."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    (information,) = {name.partition("/")[0] for name in names if ".dist-info/" in name}
    foreign = {name.partition("/")[0] for name in names} - {"chakrascope", "chakrascope.libs", information}
    faults = [f"top-level names {sorted(foreign)}"] if foreign else []
    sources = [name for name in names if _SOURCES.search(name)]
    if sources:
        faults.append(f"files that nothing installed needs: {sources[:3]}")
    missing = sorted(_LICENCES - {name.removeprefix(f"{information}/") for name in names})
    if missing:
        faults.append(f"no {', '.join(missing)}")
    if wheel.stat().st_size > _MAX_MIB * _MIB:
        faults.append(f"{wheel.stat().st_size / _MIB:.1f} MiB, over {_MAX_MIB}")
    if faults:
        sys.exit(f"{wheel.name} holds what it must not: {'; '.join(faults)}")


def install(wheel: Path, folder: Path, links: Path | None, python: str) -> Path:
    """Install *wheel* with only its dependencies into a new environment; return its programs."""
    done([python, "-m", "venv", str(folder)], f"make an environment of {python}")
    programs = folder / "bin"
    source = [] if links is None else ["--no-index", "--find-links", str(links.resolve())]
    constraints = ["--constraint", str(ROOT / "constraints.txt")]
    begun = time.monotonic()
    done(
        [str(programs / "python"), "-m", "pip", "install", "--quiet", *source, *constraints, str(wheel)],
        "install it",
    )
    print(f"installed in {time.monotonic() - begun:.0f} s")
    (site,) = folder.glob("lib/python*/site-packages")
    own = sum(file.stat().st_size for file in (site / "chakrascope").rglob("*") if file.is_file())
    print(f"installed: {own / _MIB:.1f} MiB of ours")
    for name in ("ns3", "dash", "torch", "duckdb"):
        if (site / name).exists():
            sys.exit(f"{name} was installed, and nothing in the base dependencies may need it")
    return programs


def check(programs: Path, folder: Path) -> None:
    """Simulate with the built-in backends, and check that ns3 names what it lacks."""
    # Neither a compiler nor another installation may be found.
    environment = {"PATH": str(programs), "HOME": str(folder), "LANG": os.environ.get("LANG", "C.UTF-8")}
    program = str(programs / "chakrascope")
    alone = without_network()
    done([*alone, program, "demo", "--no-view", "-o", "demo"], "show the demo", folder, environment)
    for view in (["summary"], ["critical-path"], ["runs"]):
        done([*alone, program, *view, "demo"], f"show {view[0]}", folder, environment)
    print("demo, summary, critical-path, runs: answered" + (", without a network" if alone else ""))
    done(
        [program, "generate", "all-reduce", "--ranks", str(_RANKS), "-o", "w"],
        "make a workload",
        folder,
        environment,
    )
    found = {}
    for backend in ("packet", "flow", "auto"):
        begun = time.monotonic()
        command = [
            program,
            "run",
            "--workload",
            "w",
            "--network",
            "ring-8",
            "--backend",
            backend,
            "--format",
            "json",
        ]
        result: dict[str, Any] = json.loads(done(command, f"simulate with {backend}", folder, environment))
        if len(result["ranks"]) != _RANKS:
            sys.exit(f"{backend} has an answer for {len(result['ranks'])} ranks, not {_RANKS}")
        found[backend] = int(result["makespan_ns"])
        print(f"{backend}: {found[backend]} ns, in {time.monotonic() - begun:.1f} s")
    if max(found.values()) > (1 + _CLOSE) * min(found.values()) or min(found.values()) <= 0:
        sys.exit(f"the backends disagree: {found}")
    command = [program, "run", "--workload", "w", "--network", "ring-8", "--backend", "ns3"]
    lacking = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    message = " ".join(lacking.stderr.split())
    if lacking.returncode == 0 or "pip install --no-deps ns3" not in message or "Traceback" in message:
        sys.exit(f"ns3 without ns-3 ends with {lacking.returncode} and says: {message}")
    print("ns3: says how to install ns-3")


def without_network() -> list[str]:
    """Return a command prefix that disables the network, or nothing if the system does not allow it."""
    unshare = shutil.which("unshare")
    command = [str(unshare), "--net", "--map-root-user"]
    tried = unshare and subprocess.run([*command, "true"], capture_output=True, check=False).returncode == 0
    return command if tried else []


def done(
    command: list[str], what: str, folder: Path | None = None, environment: dict[str, str] | None = None
) -> str:
    """Return the output of *command*; exit with its errors if it fails."""
    ran = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if ran.returncode != 0:
        sys.exit(f"could not {what} ({ran.returncode}): {ran.stderr[-3000:]}")
    return ran.stdout


if __name__ == "__main__":
    main()
