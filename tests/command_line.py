"""Commands called as a shell calls them."""

from __future__ import annotations

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
    """Return the standard output of one command, which succeeds."""
    code, out, err = run_and_read(capture, *arguments)
    assert code == 0, err
    return out
