"""Call commands as a shell does, and import scripts as modules."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest

from chakrascope.cli import main


def run(*arguments: Any) -> Any:
    """Return the exit code of one command."""
    with pytest.raises(SystemExit) as end:
        main([str(argument) for argument in arguments])
    return end.value.code


def run_and_read(capture: Any, *arguments: Any) -> tuple[Any, str, str]:
    """Return exit code, standard output and error of one command."""
    code = run(*arguments)
    out, err = capture.readouterr()
    return code, out, err


def answer(capture: Any, *arguments: Any) -> str:
    """Return the standard output of one command, which must succeed."""
    code, out, err = run_and_read(capture, *arguments)
    assert code == 0, err
    return out


def script(path: Path) -> Any:
    """Return the script at *path* as a module; its imports may be in the same folder."""
    spec = importlib.util.spec_from_file_location(f"{path.parent.name}_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look up their module there
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(path.parent)
        spec.loader.exec_module(module)
    return module
