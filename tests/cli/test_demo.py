"""The demo that ships with the package, and the completion of the shell."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys

import pytest
from command_line import run

from chakrascope.runner import Study


def test_the_demo_captures_converts_simulates_and_explains(tmp_path, capsys):
    folder = tmp_path / "demo"
    assert not run("demo", "-o", folder, "--no-view")
    printed = capsys.readouterr().out
    assert "is bound by computation" in printed
    assert "Next: chakrascope view" in printed
    study = Study.open(folder)
    assert [info.backend for info in study.runs()] == ["analytical-unaware", "analytical-aware"]
    assert {info.num_ranks for info in study.runs()} == {16}


def test_the_capture_that_ships_names_no_machine():
    from chakrascope.cli import _demo

    manifest = json.loads((_demo._CAPTURE / "manifest.json").read_text("utf-8"))
    assert manifest["command"][-1] == "train.py"
    assert {rank["hostname"] for rank in manifest["ranks"]} == {"node-0"}


def test_the_demo_leaves_what_is_there_alone(tmp_path, capsys):
    assert run("demo", "-o", tmp_path, "--no-view") == 2
    assert "exists already" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_completion_is_a_script_of_the_shell(shell, capsys):
    assert not run("completion", shell)
    assert f"_CHAKRASCOPE_COMPLETE={shell}_complete" in capsys.readouterr().out


def test_completion_knows_commands_and_their_options():
    def completed(words, at):
        environment = {
            **os.environ,
            "COMP_WORDS": words,
            "COMP_CWORD": str(at),
            "_CHAKRASCOPE_COMPLETE": "bash_complete",
        }
        code = "from chakrascope.cli import main; main([])"
        shown = subprocess.run(
            [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
        )
        return set(re.findall(r"(?m)^plain,(\S+)", shown.stdout))

    assert completed("chakrascope crit", 1) == {"critical-path"}
    assert {"--by", "--format"} <= completed("chakrascope critical-path --", 2)
