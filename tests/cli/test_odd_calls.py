"""Calls that a system refuses, or whose reader goes away, end with a sentence or without a word."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
from studies import make_study

from chakrascope.cli import main as cli_main
from chakrascope.runner import Workspace

PROGRAM = [sys.executable, "-m", "chakrascope.cli"]


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("odd") / "study").study.path


def ended(arguments, capsys):
    """Return the exit code of a call and what it said to standard error."""
    with pytest.raises(SystemExit) as stopped:
        cli_main([str(argument) for argument in arguments])
    return stopped.value.code, capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("timeline", "STUDY", "-o", "/"), 2, "/ cannot be written (Is a directory)"),
        (("report", "STUDY", "-o", "/"), 60, "The report / cannot be written (Is a directory)"),
        (("query", "STUDY", "select 1", "--timeout", "1e30"), 2, "1e30 is too large"),
        (("query", "STUDY", "select 1", "--timeout", "2e6"), 2, "allow a day at most"),
        (("generate", "all-reduce", "--ranks", "2", "--compute-ns", "1e30", "-o", "g"), 2, "too large"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(made, arguments, code, message, capsys):
    found = ended([made if word == "STUDY" else word for word in arguments], capsys)
    assert found[0] == code
    assert message in found[1]


def test_an_error_of_the_system_names_the_file(made, monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr("chakrascope.runner.Study.open", refuse)
    code, said = ended(["runs", made], capsys)
    assert code == 1
    assert said == (
        "error: /some/file: Permission denied; check the path, and that you may read and write there.\n"
    )


def test_a_reader_that_goes_away_ends_it_without_a_word(made):
    reading, writing = os.pipe()
    os.close(reading)
    command = [*PROGRAM, "critical-path", str(made)]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


def test_closed_standard_streams_are_no_error(made):
    script = f"exec {' '.join([*PROGRAM, 'runs', str(made)])} <&- >&- 2>&-"
    assert subprocess.run(["/bin/sh", "-c", script], check=False).returncode == 0


def test_a_study_whose_name_is_no_text_breaks_no_list(made, tmp_path):
    shutil.copytree(made, tmp_path / os.fsdecode(b"s\xff"))
    table = Workspace(tmp_path).table()
    assert table["name"].tolist() == ["s\ufffd"]
    assert table["problem"].tolist() == [""]
