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
        (("predict", "search", "--model", "m", "--dp", "9" * 5000), 2, "not a list of whole numbers"),
        (("run", "STUDY", "--network", "ring-2", "--fail", "²@1us"), 40, "²"),
        (("timeline", "STUDY", "--ranks", "9" * 5000), 2, "are no ranks; write 3, or 0-7"),
        (("what-if", "STUDY", "--faster", "bandwidth:²=2"), 2, "has no dimension '²'"),
        (("sweep", "STUDY", "--trials", "100001"), 2, "100001 is not in the range"),
        (("sweep", "STUDY", "--over", "network=ring-2", "--cluster", "SCHEDULER"), 50, "does not answer"),
        (("inspect", "."), 30, "No workload at ."),
        (("demo", "--port", "65536"), 2, "65536 is not in the range"),
    ],
)
def test_what_cannot_be_is_told_in_a_sentence(made, arguments, code, message, capsys):
    scheduler = made.parent / "scheduler.json"
    scheduler.write_text("[" * 5000)
    files = {"STUDY": made, "SCHEDULER": scheduler}
    found = ended([files.get(word, word) for word in arguments], capsys)
    assert found[0] == code
    assert message in found[1]


@pytest.mark.parametrize(
    "name", ["ring", "direct", "nccl-ring:Simple:2", "nccl", "all-pairs-put", "nccl-tree"]
)
@pytest.mark.parametrize("command", ["inspect", "prove", "export"])
def test_a_program_without_an_end_is_refused_with_its_size(name, command, tmp_path, capsys):
    collective = "all-gather" if name == "all-pairs-put" else "all-reduce"
    asked = ["algorithm", command, name, "--collective", collective, "--ranks", "99999999999999"]
    code, message = ended([*asked, *(["-o", tmp_path / "set"] if command == "export" else [])], capsys)
    assert code == 40
    assert "among 99,999,999,999,999 ranks has about" in message
    assert "GB" in message


def test_a_text_workload_without_an_end_is_refused_with_its_size(tmp_path, capsys):
    text = tmp_path / "job.txt"
    text.write_text("DATA\n1\nlayer -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 1024 5\n")
    asked = ["generate", "text", "--file", text, "-o", tmp_path / "job"]
    code, message = ended([*asked, "--ranks", "2", "--repeats", "1000000000"], capsys)
    assert code == 2
    assert "make about 6,000,000,000 nodes a rank, which need about 6,000 GB" in message
    code, message = ended([*asked, "--ranks", "999999999999"], capsys)
    assert code == 2
    assert "999,999,999,999 ranks are too many" in message


def test_packets_without_an_end_are_refused(tmp_path, capsys):
    prefix = tmp_path / "huge"
    code, message = ended(
        ["generate", "all-reduce", "--ranks", "2", "--size", "900000000000000000", "-o", prefix], capsys
    )
    assert code == 0, message
    asked = ["run", "--workload-configuration", prefix, "--network-configuration", "ring-2"]
    code, message = ended([*asked, "--backend", "packet"], capsys)
    assert code == 50
    assert "takes days" in message


def test_a_full_disk_names_the_file_and_leaves_no_part_of_a_set(tmp_path):
    code = (
        "import resource, sys\n"
        "from chakrascope.cli import main\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (900, 900))\n"
        "main(sys.argv[1:])\n"
    )
    prefix = tmp_path / "set"
    asked = ["algorithm", "export", "ring", "--collective", "all-reduce", "--ranks", "8", "-o", str(prefix)]
    done = subprocess.run(
        [sys.executable, "-c", code, *asked], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 1
    assert str(prefix) in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_error_of_the_system_names_the_file(made, monkeypatch, capsys):
    def refuse(*_):
        raise PermissionError(13, "Permission denied", "/some/file")

    monkeypatch.setattr("chakrascope.runner.Study.open", refuse)
    code, message = ended(["runs", made], capsys)
    assert code == 1
    assert message == (
        "error: /some/file: Permission denied; check the path, and that you may read and write there.\n"
    )


@pytest.mark.parametrize("words", [["critical-path"], ["runs", "--format", "json"]])
def test_a_reader_that_goes_away_ends_it_without_a_word(made, words):
    reading, writing = os.pipe()
    os.close(reading)
    command = [*PROGRAM, *words, str(made)]
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
