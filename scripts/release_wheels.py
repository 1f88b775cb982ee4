#!/usr/bin/env python3
"""Build a release: the source archive, and wheels for each installed Python on x86-64 and arm64.

``python scripts/release_wheels.py [-o FOLDER] [--python PROGRAM ...] [--processor NAME ...] [--twice]`` is
called by ``make release``. One wheel works with all Python versions since 3.12 (stable ABI). Wheels for this
machine's processor are built by its compiler, and other wheels by zig's compiler. The same commit always
gives the same bytes: ``--twice`` builds each wheel again in another folder, and compares both. Wheels that
auditwheel rejects, or with forbidden content, are deleted.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from wheel_check import check_contents, done

ROOT = Path(__file__).resolve().parent.parent
PYTHONS = ("python3.10", "python3.11", "python3.12")
PROCESSORS = ("x86_64", "aarch64")
# The oldest C library that wheels built by zig run with: that of RHEL 8, Debian 10 and Ubuntu 20.04.
GLIBC = "2.28"
FABRIC = Path("/usr/include/rdma")
_MIB = 1 << 20


def main() -> None:
    """Read the command line and build."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, default=ROOT / "dist", help="folder for the wheels")
    parser.add_argument(
        "--python",
        action="append",
        dest="pythons",
        metavar="PROGRAM",
        help=f"Python to build with; may be repeated [default: {', '.join(PYTHONS)}]",
    )
    parser.add_argument(
        "--processor", action="append", dest="processors", choices=PROCESSORS, help="[default: both]"
    )
    parser.add_argument("--twice", action="store_true", help="build each wheel twice and compare both")
    asked = parser.parse_args()
    asked.output.mkdir(parents=True, exist_ok=True)
    sources = archive(asked.output)
    print(f"{sources.name}: {sources.stat().st_size / _MIB:.1f} MiB, sha256 {_digest(sources)}", flush=True)
    for python in asked.pythons or PYTHONS:
        program = found(python)
        if program is None:
            print(f"{python}: not found, so no wheel for it")
            continue
        for processor in asked.processors or PROCESSORS:
            wheel = release(program, processor, sources, asked.output)
            digest = _digest(wheel)
            print(f"{wheel.name}: {wheel.stat().st_size / _MIB:.1f} MiB, sha256 {digest}", flush=True)
            if asked.twice:
                with tempfile.TemporaryDirectory() as folder:
                    second = release(program, processor, sources, Path(folder))
                    if _digest(second) != digest:
                        sys.exit(f"{wheel.name} is not reproducible: a second build differs")
                print(f"{wheel.name}: a second build is the same to the byte", flush=True)


def found(python: str) -> str | None:
    """Return the program *python* from the path or from pyenv, or None if no program runs and has pip.

    Some programs of pyenv are not enabled.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    kept = pyenv.glob(f"{python.removeprefix('python')}.*/bin/{python}") if pyenv.is_dir() else ()
    for program in (shutil.which(python), *sorted(map(str, kept), reverse=True)):
        if program and _runs([program, "-m", "pip", "--version"]):
            return program
    return None


def _runs(command: list[str]) -> bool:
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


def archive(output: Path) -> Path:
    """Write the source archive of this commit into *output*, and return its path."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        copy = folder / "commit"
        done(["git", "worktree", "add", "--quiet", "--detach", str(copy), "HEAD"], "copy the sources", ROOT)
        try:
            done(
                [sys.executable, "-m", "build", "--sdist", "--outdir", str(folder / "built"), str(copy)],
                "build the source archive",
                environment=_dated(),
            )
        finally:
            done(["git", "worktree", "remove", "--force", str(copy)], "remove the copy", ROOT)
        (built,) = (folder / "built").glob("*.tar.gz")
        return Path(shutil.move(built, output / built.name))


def release(python: str, processor: str, sources: Path, output: Path) -> Path:
    """Build the wheel of the archive *sources* for *python* and *processor* in *output*."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with tarfile.open(sources) as tar:
            tar.extractall(folder / "sources", filter="data")
        (unpacked,) = (folder / "sources").iterdir()
        built = _built(python, processor, unpacked, folder, _dated())
        done(
            [_tool("auditwheel"), "repair", "--wheel-dir", str(folder / "repaired"), str(built)],
            f"repair {built.name}",
            environment=_dated(),
        )
        (wheel,) = (folder / "repaired").glob("*.whl")
        check_contents(wheel)
        return Path(shutil.move(wheel, output / wheel.name))


@functools.cache  # commits during the build have no effect
def _dated() -> dict[str, str]:
    """Return the environment variables that give all archived files the commit's date."""
    epoch = done(["git", "log", "-1", "--format=%ct"], "read the commit's date", ROOT).strip()
    return {**os.environ, "SOURCE_DATE_EPOCH": epoch}


def _built(python: str, processor: str, sources: Path, folder: Path, environment: Mapping[str, str]) -> Path:
    """Return the wheel that pip makes of *sources*."""
    flags = f"-ffile-prefix-map={sources}=. {environment.get('CXXFLAGS', '')}".strip()
    # The wheel must not contain the path of the build folder.
    environment = {**environment, "CXXFLAGS": flags}
    if processor != platform.machine():
        environment |= _cross(python, processor, folder)
    done(
        [python, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(sources)],
        f"build for {python} on {processor}",
        environment=environment,
    )
    (wheel,) = folder.glob("*.whl")
    return wheel


def _cross(python: str, processor: str, folder: Path) -> dict[str, str]:
    """Return the environment in which *python* builds for *processor* with zig's compiler.

    The headers of *python* can be used, because CPython's headers differ between processors only if sizes
    differ, and both processors have the same sizes.
    """
    for tool, name in (("cxx", "c++"), ("ar", "ar"), ("ranlib", "ranlib")):
        # The process is isolated, because pip hides the packages of the target Python by PYTHONPATH. nanobind
        # uses stderr, which only libstdc++ declares implicitly.
        target = f" -target {processor}-linux-gnu.{GLIBC} -include stdio.h" if tool == "cxx" else ""
        wrapper = folder / tool
        wrapper.write_text(f'#!/bin/sh\nexec {sys.executable} -I -m ziglang {name}{target} "$@"\n')
        wrapper.chmod(0o755)
    suffix = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
    own = done([python, "-c", suffix], "ask for the suffix of extensions").strip()
    settings = {
        "CMAKE_SYSTEM_NAME": "Linux",
        "CMAKE_SYSTEM_PROCESSOR": processor,
        "CMAKE_CXX_COMPILER": folder / "cxx",
        "CMAKE_AR": folder / "ar",
        "CMAKE_RANLIB": folder / "ranlib",
        "CHAKRASCOPE_LIBFABRIC_HEADERS": folder / "include",
    }
    # Only libfabric's headers come from this machine; the headers of the C library come from zig.
    (folder / "include").mkdir()
    if FABRIC.exists():
        (folder / "include" / FABRIC.name).symlink_to(FABRIC)
    return {
        "CMAKE_ARGS": " ".join(f"-D{name}={value}" for name, value in settings.items()),
        "SETUPTOOLS_EXT_SUFFIX": own.replace(platform.machine(), processor),
        "_PYTHON_HOST_PLATFORM": f"linux-{processor}",
    }


def _tool(name: str) -> str:
    """Return the program of this Python's environment called *name*."""
    return str(Path(sysconfig.get_path("scripts")) / name)


def _digest(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


if __name__ == "__main__":
    main()
