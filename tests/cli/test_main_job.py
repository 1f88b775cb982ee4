"""The main job and the demo, and workloads that a study did not capture."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import answer, run

from chakrascope.runner import Study

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    pytest.importorskip("torch", reason="capturing a training job needs torch")
    folder = tmp_path_factory.mktemp("main-job")
    command = [
        sys.executable, "-m", "chakrascope.cli", "profile", "-o", "study", "--network", "cpu-cluster-16",
        "--steps", "2", "--backend", "analytical-unaware", "--backend", "analytical-aware",
        "--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        ROOT / "examples/ddp_transformer/train.py", "--width", "64", "--layers", "2", "--length", "32",
    ]  # fmt: skip
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Critical path by kind" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"Next: chakrascope view study --run [0-9a-f]{16}", last), last
    return folder / "study"


def json_answer(capsys, *arguments):
    return json.loads(answer(capsys, *arguments, "--format", "json"))


@pytest.mark.torch
def test_segments_of_the_critical_path_sum_to_the_simulated_step(profiled, capsys):
    replay = json_answer(
        capsys, "run", profiled, "--network", "cpu-cluster-16", "--backend", "analytical-aware"
    )
    newest = json_answer(capsys, "runs", profiled)[0]["id"]
    path = json_answer(capsys, "critical-path", profiled, "--run", newest)
    assert sum(segment["duration_ns"] for segment in path) == replay["makespan_ns"]
    assert len(replay["ranks"]) == 16


@pytest.mark.torch
def test_a_replay_takes_as_long_as_the_measured_step(profiled, capsys):
    replay = json_answer(capsys, "run", profiled, "--backend", "replay")
    metadata = json.loads(next((profiled / "workloads").glob("*/workload.workload.json")).read_text())
    for row in replay["ranks"]:
        figures = metadata["accounting"][str(row["rank"])]
        measured_ns, profiler_ns = figures["measured_step_ns"], figures.get("profiler_ns", 0)
        assert 0.98 * measured_ns - profiler_ns < row["finish_ns"] < 1.02 * measured_ns


@pytest.mark.torch
def test_the_workload_runs_with_the_option_names_of_astra_sim(profiled, capsys):
    prefix = next((profiled / "workloads").glob("*")) / "workload"
    found = json_answer(
        capsys, "run", f"--workload-configuration={prefix}", "--system-configuration=default",
        "--network-configuration=cpu-cluster-2",
    )  # fmt: skip
    assert found["backend"] == "analytical-unaware"
    assert {"rank", "finish_ns", "exposed_comm_ns"} <= found["ranks"][0].keys()


# The demo that ships with the package, and the completion of the shell.


def test_the_demo_captures_converts_simulates_and_explains(tmp_path, capsys):
    folder = tmp_path / "demo"
    assert not run("demo", "-o", folder, "--no-view")
    printed = " ".join(capsys.readouterr().out.split())
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


def test_demo_does_not_overwrite_a_folder(tmp_path, capsys):
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


# Graphs and traces from other sources are stored in a study, so that their runs can be explained.


def generate(folder: Path, pattern: str = "all-reduce") -> Path:
    assert run("generate", pattern, "-o", folder / "work", "--ranks", "2", "--compute-ns", "5000") == 0
    return folder / "work"


def test_workload_of_a_run_is_stored(tmp_path, capsys):
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


def test_another_workload_of_the_same_name_leaves_the_runs_of_the_first_theirs(tmp_path):
    study = tmp_path / "study"
    for pattern in ("all-reduce", "all-gather", "all-gather"):
        prefix = generate(tmp_path, pattern)
        assert run("run", study, "--network", "ring-2", "--workload-configuration", prefix) == 0
    opened = Study.open(study)
    assert opened.workloads() == ["work", "work-2"]
    assert {info.workload for info in opened.runs()} == {"work", "work-2"}


def test_the_options_of_astra_sim_count_in_a_study_as_well(tmp_path):
    prefix, study = generate(tmp_path), tmp_path / "study"
    shared = ("run", study, "--network", "ring-2", "--workload-configuration", prefix)
    assert run(*shared) == 0
    assert run(*shared, "--rendezvous-protocol") == 0
    with_hand_shake, without = (info.makespan_ns for info in reversed(Study.open(study).runs()))
    assert with_hand_shake > without


def test_empty_instead_of_groups_means_none_as_to_astra_sim(tmp_path):
    prefix, study = generate(tmp_path), tmp_path / "study"
    arguments = ("run", "--network", "ring-2", "--workload-configuration", prefix)
    empty = "--comm-group-configuration=empty"
    assert run(*arguments, empty) == run(*arguments, study, empty) == 0
    assert len(Study.open(study).runs()) == 1


def test_assumptions_of_a_run_are_printed_with_its_times(tmp_path, capsys):
    prefix = tmp_path / "work"
    assert run("generate", "all-reduce", "-o", prefix, "--ranks", "4") == 0
    for study in ([], [tmp_path / "study"]):
        assert run("run", *study, "--workload", prefix, "--network", "ring-2") == 0
        told = " ".join(capsys.readouterr().out.split())
        assert told.count("Assumed: The workload has files for more ranks than the network has (2)") == 1


def test_traces_of_others_become_a_workload_of_a_study(tmp_path, data_dir):
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
def test_options_that_do_not_go_together(arguments, hint, capsys):
    assert run(*arguments) == 2
    assert hint in capsys.readouterr().err.replace("\n", " ")


# ``chakrascope rescale``: the properties that it preserves, and its errors with their remedies.


@pytest.fixture
def study(tmp_path, data_dir):
    """A study with the captured workload of a pipeline of two stages and four micro-batches."""
    made = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "rescaling" / "pipeline_4", made.path / "workloads" / "pipeline")
    return made


def test_rescaled_workload_is_stored_separately(study, capsys):
    assert run("rescale", study.path, "--micro-batches", 9, "--chip", "h100") == 0
    assert "Assumed: 9 micro-batches instead of 4" in capsys.readouterr().out
    assert study.workloads() == ["pipeline", "pipeline-micro-batches-9-chip-h100"]
    made = study.workload()
    sends = [int((graph.node_columns["type"] == 5).sum()) for graph in made.graphs]
    assert sends == [9, 9]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "No change is given"),
        (["--tp", "2"], "would change the shape of every operator"),
        (["--pp", "4"], "differs from the others"),
        (["--pp", "3"], "which cannot be divided evenly among 3 stages. Use --pp 1, 2, 4."),
        (["--chip", "h10"], "did you mean 'h100'"),
        (["--dp", "4"], "cannot be repeated as data parallelism"),
    ],
)
def test_what_is_not_known_is_refused(study, capsys, options, said):
    assert run("rescale", study.path, *options) != 0
    errors = " ".join(capsys.readouterr().err.split())
    assert said in errors
    assert study.workloads() == ["pipeline"]
