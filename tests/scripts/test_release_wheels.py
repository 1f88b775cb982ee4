"""The script that builds a release finds the Pythons that are there, those of pyenv too."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"


@pytest.fixture
def release_wheels(monkeypatch):
    monkeypatch.syspath_prepend(SCRIPTS)
    spec = importlib.util.spec_from_file_location("release_wheels", SCRIPTS / "release_wheels.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def program(path, status):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\nexit {status}\n")
    path.chmod(0o755)
    return str(path)


def test_a_python_that_the_path_refuses_to_run_is_taken_from_pyenv(release_wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:/bin:/usr/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    program(tmp_path / "shims/python9.1", 127)
    kept = program(tmp_path / "pyenv/versions/9.1.4/bin/python9.1", 0)
    assert release_wheels.found("python9.1") == kept
    assert release_wheels.found("python9.2") is None


def test_a_python_of_the_path_comes_first(release_wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", f"{tmp_path}/shims:/bin:/usr/bin")
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    first = program(tmp_path / "shims/python9.1", 0)
    program(tmp_path / "pyenv/versions/9.1.4/bin/python9.1", 0)
    assert release_wheels.found("python9.1") == first
