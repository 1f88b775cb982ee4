"""What commands say to go on with: a command to copy, about what they did and nothing newer."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import command_line
import pytest
from studies import make_study

import chakrascope.cli
from chakrascope.cli import main


def answer(capsys, *arguments):
    with pytest.raises(SystemExit) as stop:
        main([str(argument) for argument in arguments])
    shown = capsys.readouterr()
    assert stop.value.code == 0, shown.err
    return shown.out


def next_step(said):
    (line,) = [line for line in said.splitlines() if line.startswith("Next: ")]
    program, *arguments = shlex.split(line.removeprefix("Next: "))
    assert program == "chakrascope"
    return arguments


def test_the_next_step_of_a_run_answers_about_it_after_others(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("COLUMNS", "40")
    study = make_study(tmp_path / "a study $HOME").study
    said = answer(capsys, "run", study.path, "--network", "ring-2")
    first = {run.id for run in study.runs()}
    again = next_step(said)
    assert answer(capsys, "run", study.path, "--network", "cpu-cluster-2")
    (made,) = [run for run in study.runs() if run.id == again[-1]]
    assert made.id in first
    told = json.loads(answer(capsys, *again, "--format", "json"))
    assert told["makespan_ns"] == made.makespan_ns


def test_the_next_step_of_a_conversion_names_the_workload(capsys, tmp_path, data_dir):
    traces = data_dir / "converter" / "dlrm_v100_8" / "kineto_{rank}.json.gz"
    said = answer(capsys, "convert", tmp_path / "s", "--device-trace", traces)
    assert next_step(said) == [
        "run", str(tmp_path / "s"), "--workload", "dlrm_v100_8", "--network", "PRESET"
    ]  # fmt: skip
    said = answer(capsys, "convert", "-o", tmp_path / "w", "--device-trace", traces)
    assert next_step(said)[:3] == ["run", "--workload-configuration", str(tmp_path / "w")]


def test_a_sweep_names_the_run_that_it_kept(capsys, tmp_path):
    study = make_study(tmp_path / "s").study
    axes = ("--network", "ring-2", "--over", "network.bandwidth=25,50", "--workers", "0")
    said = answer(capsys, "sweep", study.path, *axes)
    assert next_step(said) == ["view", str(study.path), "--run", study.runs()[-1].id]


def test_the_viewer_opens_at_the_run_it_is_given(capsys, monkeypatch, tmp_path):
    made = make_study(tmp_path / "s")
    opened = []

    def serve(_what, *, ready, **_options):
        ready("http://127.0.0.1:1/?token=secret")
        opened.append(True)

    monkeypatch.setattr("chakrascope.viewer.serve", serve)
    said = answer(capsys, "view", made.study.path, "--run", made.run_a[:6])
    assert f"http://127.0.0.1:1/?token=secret&run={made.run_a}\n" in said
    code = command_line.run("view", made.study.path, "--run", "none")
    assert code != 0
    assert opened == [True]


def test_commands_to_copy_are_printed_by_one_function():
    """It quotes them, keeps them on one line, and takes what they are about as words of their own."""
    for file in Path(chakrascope.cli.__file__).parent.glob("*.py"):
        found = re.findall(r'print\(\s*f"(?:Next|Open it): .*chakrascope', file.read_text())
        assert not found, file.name
