"""The containers of the engine, each against the plainest code that does the same, in C++."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
SOURCES = HERE.parents[1] / "runner" / "engine" / "src"
PARTS = [SOURCES / "flow" / name for name in ("sharing.cc", "clusters.cc")]


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    compiler = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("there is no C++ compiler on the PATH")
    built = tmp_path_factory.mktemp("native") / "containers"
    command = [compiler, "-std=c++20", "-O1", "-I", SOURCES, HERE / "native" / "containers.cc", *PARTS]
    done = subprocess.run([*command, "-o", built], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return built


@pytest.mark.parametrize("name", ["agenda", "ends", "kept", "sharing"])
def test_a_container_does_what_plain_code_does(program, name):
    done = subprocess.run([program, name], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
