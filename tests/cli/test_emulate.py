"""``chakrascope emulate`` as users meet it."""

from __future__ import annotations

import json

import command_line
import pytest

from chakrascope.cli import main
from chakrascope.errors import ConfigError, UsageError
from chakrascope.runner import Study


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    place = tmp_path_factory.mktemp("workload") / "PREFIX"
    command = [
        "generate",
        "all-reduce",
        "--ranks",
        "2",
        "--size",
        "100KB",
        "--repeats",
        "3",
        "-o",
        str(place),
    ]
    command_line.run(*command)
    return str(place)


def said(capsys, *arguments):
    """Run the command; return its exit status and all it printed, in one line."""
    with pytest.raises(SystemExit) as end:
        main(["emulate", *map(str, arguments)])
    captured = capsys.readouterr()
    return end.value.code or 0, " ".join((captured.out + captured.err).split())


def test_a_study_keeps_the_workload_and_each_measurement(prefix, tmp_path, capsys):
    status, told = said(
        capsys, "--workload", prefix, "-o", tmp_path / "study", "--repeat", 2, "--label", "first"
    )
    assert status == 0
    assert "Measured step" in told
    assert "Over loopback" in told
    assert "2 repetitions: median" in told
    status, told = said(capsys, tmp_path / "study", "--format", "json")
    assert status == 0
    study = Study.open(tmp_path / "study")
    assert {run.label for run in study.runs()} == {"emulation:loopback on real", "first"}
    assert study.workloads() == ["PREFIX"]


def test_a_program_runs_the_collectives(prefix, tmp_path, capsys):
    chosen = ("--algorithm", "all-reduce=nccl-ring:LL:1")
    status, told = said(capsys, "--workload", prefix, "-o", tmp_path / "study", *chosen)
    assert (status, "Measured step" in told) == (0, True)
    study = Study.open(tmp_path / "study")
    (run,) = study.runs()
    assert study.experiment(run.id).system.all_reduce_programs == ("nccl-ring:LL:1",)
    sent = study.result(run.id).flows["bytes"].sum()
    assert sent == 2 * 2 * 3 * 100_000  # by each of two ranks in three collectives, twice over with LL
    status, told = said(capsys, "--workload", prefix, "--algorithm", "ring")
    assert (status, "say which collective" in told) == (UsageError.exit_code, True)


def test_without_a_study_nothing_is_kept(prefix, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code = command_line.run("emulate", "--workload", prefix, "--format", "json")
    assert not code
    found = json.loads(capsys.readouterr().out)
    assert found["backend"] == "emulation:loopback"
    assert [rank["rank"] for rank in found["ranks"]] == [0, 1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "give a STUDY folder"),
        (["study", "-o", "other"], "STUDY and --output both name a study"),
        (["--workload", "x", "--hosts", "h.yml", "--namespaces", "2"], "--hosts is a real network"),
        (["--workload", "x", "--link", "1Mbit"], "shape --namespaces N"),
        (["--workload", "x", "--namespaces", "2", "--slow", "1"], "--slow must be HOST=RATE"),
    ],
)
def test_options_that_contradict_each_other_are_told(arguments, sentence, capsys):
    status, told = said(capsys, *arguments)
    assert status == UsageError.exit_code
    assert sentence in told


def test_a_missing_hosts_file_is_told(prefix, capsys):
    status, told = said(capsys, "--workload", prefix, "--hosts", "nowhere")
    assert status == ConfigError.exit_code
    assert "There is no hosts file 'nowhere'" in told
