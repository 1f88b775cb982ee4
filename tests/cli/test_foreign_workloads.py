"""Graphs and traces that a study did not capture: kept in it, so that their runs can be explained."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import run

from chakrascope.runner import Study


def generate(folder: Path, pattern: str = "all-reduce") -> Path:
    assert run("generate", pattern, "-o", folder / "work", "--ranks", "2", "--compute-ns", "5000") == 0
    return folder / "work"


def test_a_study_keeps_the_workload_it_is_asked_to_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix, study = generate(tmp_path), tmp_path / "study"
    capsys.readouterr()
    arguments = ("run", study, "--network", "ring-2", "--format", "json")
    assert run(*arguments, "--workload-configuration", prefix) == 0
    makespan = json.loads(capsys.readouterr().out)["makespan_ns"]
    for file in tmp_path.glob("work.*"):
        file.unlink()
    assert run(*arguments, "--workload", "work") == 0
    assert json.loads(capsys.readouterr().out)["makespan_ns"] == makespan
    assert run("critical-path", study, "--format", "json") == 0
    segments = json.loads(capsys.readouterr().out)
    assert sum(segment["duration_ns"] for segment in segments) == makespan > 0
    assert len(Study.open(study).runs()) == 1  # the same experiment is the same run


def test_another_workload_of_the_same_name_leaves_the_runs_of_the_first_theirs(tmp_path: Path) -> None:
    study = tmp_path / "study"
    for pattern in ("all-reduce", "all-gather", "all-gather"):
        prefix = generate(tmp_path, pattern)
        assert run("run", study, "--network", "ring-2", "--workload-configuration", prefix) == 0
    opened = Study.open(study)
    assert opened.workloads() == ["work", "work-2"]
    assert {info.workload for info in opened.runs()} == {"work", "work-2"}


def test_the_options_of_astra_sim_count_in_a_study_as_well(tmp_path: Path) -> None:
    prefix, study = generate(tmp_path), tmp_path / "study"
    shared = ("run", study, "--network", "ring-2", "--workload-configuration", prefix)
    assert run(*shared) == 0
    assert run(*shared, "--rendezvous-protocol") == 0
    with_hand_shake, without = (info.makespan_ns for info in reversed(Study.open(study).runs()))
    assert with_hand_shake > without


def test_empty_instead_of_groups_means_none_as_to_astra_sim(tmp_path: Path) -> None:
    prefix, study = generate(tmp_path), tmp_path / "study"
    arguments = ("run", "--network", "ring-2", "--workload-configuration", prefix)
    empty = "--comm-group-configuration=empty"
    assert run(*arguments, empty) == run(*arguments, study, empty) == 0
    assert len(Study.open(study).runs()) == 1


def test_what_a_run_takes_for_granted_is_told_with_its_times(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = tmp_path / "work"
    assert run("generate", "all-reduce", "-o", prefix, "--ranks", "4") == 0
    for study in ([], [tmp_path / "study"]):
        assert run("run", *study, "--workload", prefix, "--network", "ring-2") == 0
        told = " ".join(capsys.readouterr().out.split())
        assert told.count("Assumed: There are workload files of more ranks than the 2 of the network") == 1


def test_traces_of_others_become_a_workload_of_a_study(tmp_path: Path, data_dir: Path) -> None:
    traces, study = data_dir / "converter" / "mlp_2", tmp_path / "study"
    device = traces / "rank{rank}.device.json.gz"
    host = traces / "rank{rank}.host.json.gz"
    assert run("convert", study, "--host-trace", host, "--device-trace", device) == 0
    assert Study.open(study).workloads() == ["mlp_2"]
    assert run("run", study, "--backend", "replay") == 0


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["convert"], "-o PREFIX"),
        (["convert", "study", "-o", "prefix"], "There is no file or folder study"),
        (["convert", "study", "--host-trace", "et_{rank}.json"], "No file matches"),
        (["convert", "-o", "prefix"], "--device-trace"),
        (["run", "study", "--network", "ring-2", "--comm-group-configuration", "g"], "--workload"),
    ],
)
def test_options_that_do_not_go_together(
    arguments: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*arguments) == 2
    assert hint in capsys.readouterr().err.replace("\n", " ")
