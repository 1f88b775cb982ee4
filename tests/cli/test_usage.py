"""What the command line says to a newcomer and to wrong usage."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
import command_line
import pytest

from chakrascope.cli import cli
from chakrascope.cli._main import _ELSEWHERE
from chakrascope.converter import Workload
from chakrascope.runner import NetworkConfig


def test_the_commands_are_a_frozen_surface() -> None:
    assert sorted(cli.list_commands(click.Context(cli))) == [
        "algorithm",
        "calibrate",
        "compare",
        "convert",
        "critical-path",
        "demo",
        "diagnose",
        "diff",
        "doctor",
        "emulate",
        "generate",
        "graph",
        "import",
        "inspect",
        "jobs",
        "network",
        "predict",
        "presets",
        "profile",
        "query",
        "report",
        "rescale",
        "run",
        "runs",
        "studies",
        "summary",
        "sweep",
        "timeline",
        "trace",
        "view",
        "what-if",
    ]


def test_help_documents_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("--help") == 0
    shown = capsys.readouterr().out
    assert "Exit codes" in shown
    assert "53: deadlock" in shown


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        (["run", "study"], 2, "--network"),
        (["run", "--network", "ring-2"], 2, "--workload-configuration"),
        (["profile", "--backend", "replay", "--", "python", "train.py"], 2, "--network"),
        (["critical-path", "no-such-study"], 60, "no-such-study"),
        (["convert", "no-such-study"], 60, "no-such-study"),
        (["view", "no-such-study"], 60, "no-such-study"),
        (["studies", "no-such-folder"], 60, "no-such-folder"),
        (["summary", "no-such-study", "--view", "layers"], 60, "no-such-study"),
        (["import", "study", "no-such-folder"], 60, "no-such-folder"),
        (["timeline", "study", "--ranks", "3-1"], 2, "write 3, or 0-7"),
        (["studies", ".", "--note", "x"], 2, "--study NAME"),
        (["jobs", "no-such-study"], 60, "no-such-study"),
        (
            ["run", "--queue", "--workload-configuration", "w", "--network", "ring-2"],
            2,
            "--queue needs a STUDY",
        ),
        (["sweep", "no-such-study", "--over", "network=ring-2"], 60, "no-such-study"),
        (["sweep", "no-such-study"], 2, "--over"),
        (["what-if", "no-such-study", "--faster", "kind:host=2"], 60, "no-such-study"),
        (["generate", "all-reduce", "-o", "w", "--ranks", "2", "--size", "-5"], 2, "not a size"),
        (["generate", "all-reduce", "-o", "w", "--ranks", "2", "--size", "5 miles"], 2, "25 MiB"),
        (
            ["generate", "all-reduce", "-o", "w", "--ranks", "2", "--compute-ns", "0.5"],
            2,
            "whole number of nanoseconds",
        ),
        (["timeline", "study", "--from", "-1"], 2, "not a duration"),
        (["presets", "dgx2"], 2, "dgx-2-16"),
        (["profil"], 2, "profil"),
        (["run", "--workload-configuration", "no/such", "--network", "rng-2"], 40, "ring-2"),
    ],
)
def test_wrong_usage_says_what_to_do_next(
    arguments: list[str], code: int, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run(*arguments) == code
    shown = capsys.readouterr().err.replace("\n", " ")
    assert hint in shown
    assert "Traceback" not in shown


@pytest.mark.parametrize(("text", "size"), [("25MB", 25_000_000), ("1 KiB", 1024), ("1e3", 1000)])
def test_sizes_have_units(tmp_path: Path, text: str, size: int) -> None:
    prefix = tmp_path / "w"
    assert command_line.run("generate", "all-reduce", "-o", str(prefix), "--ranks", "2", "--size", text) == 0
    assert Workload.load(prefix).graphs[0].nodes["comm_size_bytes"].max() == size


def test_presets_say_what_they_are_and_start_a_file_of_ones_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line.run("presets", "--format", "json") == 0
    presets = json.loads(capsys.readouterr().out)
    assert {preset["kind"] for preset in presets} == {"network", "system", "memory"}
    assert next(p for p in presets if p["name"] == "dgx-2-16x16")["ranks"] == 256
    assert command_line.run("presets", "dgx-2-16x16") == 0
    file = tmp_path / "mine.yml"
    file.write_text(capsys.readouterr().out)
    assert NetworkConfig.load(file) == NetworkConfig.preset("dgx-2-16x16")


def test_a_capture_that_left_nothing_leaves_no_study(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    study = tmp_path / "study"
    assert command_line.run("trace", "-o", str(study), "--", sys.executable, "-c", "raise SystemExit(3)") == 3
    assert "exit code 3" in capfd.readouterr().err.replace("\n", " ")
    assert not study.exists()
    assert command_line.run("trace", "-o", str(study), "--collect", str(tmp_path / "absent")) == 20
    assert not study.exists()


def test_a_command_that_there_is_not_leads_to_the_one_that_is_meant(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert command_line.run("sumary", "study") == 2
    assert "did you mean 'summary'?" in capsys.readouterr().err


@pytest.mark.parametrize(("command", "option"), _ELSEWHERE)
def test_an_option_of_another_command_leads_to_it(
    capsys: pytest.CaptureFixture[str], command: str, option: str
) -> None:
    assert command_line.run(command, option, "1") == 2
    assert capsys.readouterr().err.endswith(f"Next: {_ELSEWHERE[command, option]}\n")


def test_of_many_names_the_closest_is_named_and_what_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    job = ["--chip", "h100", "--network", "hgx-h100-2x8"]
    assert command_line.run("predict", "--model", "lama3-8b", *job) == 2
    told = " ".join(capsys.readouterr().err.split())
    assert "did you mean 'llama3-8b'? `chakrascope predict --list-models` lists all." in told
    assert command_line.run("predict", "--list-models") == 0
    assert "llama3-8b" in capsys.readouterr().out
    assert command_line.run("presets", "dgx-a10-8") == 2
    assert "did you mean 'dgx-a100-8'? `chakrascope presets` lists all." in capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line.run("trace", "-o", "/proc/study", "--", "python", "train.py") == 60
    assert "/proc/study" in capsys.readouterr().err


def test_a_graph_that_cannot_run_leads_to_the_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    graph = Path(__file__).parent.parent / "data" / "converter" / "chakra" / "public"
    arguments = ["--workload-configuration", str(graph), "--network", "ring-2"]
    assert command_line.run("run", *arguments) == 30
    assert command_line.run("doctor", str(graph)) == 1
    shown = capsys.readouterr().out.replace("\n", " ")
    assert "waits for node 0, which does not exist" in shown
    assert "convert --linked-trace LINKED.json" in shown
    assert command_line.run("inspect", str(graph.parent / "before_0.0.4.et"), "-o", "x.json") == 31
    assert "'chakrascope doctor PREFIX'" in capsys.readouterr().err


def test_a_kineto_trace_alone_becomes_graphs_and_says_what_it_lacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    traces = Path(__file__).parent.parent / "data" / "converter" / "mlp_2"
    assert (
        command_line.run(
            "convert", "--device-trace", f"{traces}/rank{{rank}}.device.json.gz", "-o", str(tmp_path / "w")
        )
        == 0
    )
    assert "Assumed: no host trace was given" in capsys.readouterr().out.replace("\n", " ")
    assert (tmp_path / "w.1.et").is_file()
    assert (
        command_line.run(
            "convert", "--host-trace", str(traces / "rank0.host.json.gz"), "-o", str(tmp_path / "v")
        )
        == 2
    )
    assert "holds no times" in capsys.readouterr().err.replace("\n", " ")
    assert command_line.run("inspect", str(traces / "rank0.device.json.gz")) == 30
    assert "convert --device-trace" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            (),
            "Assumed: the text workload does not say which ranks share a layer: all its",
        ),
        (("--model-group", "2"), "Assumed: each 2 consecutive ranks share a layer"),
    ],
)
def test_generate_tells_what_it_assumes_of_groups(tmp_path, capsys, monkeypatch, options, told):
    monkeypatch.setenv("COLUMNS", "400")
    text = tmp_path / "w.txt"
    text.write_text("HYBRID_DATA_MODEL\n1\na -1 1 ALLGATHER 8 1 NONE 0 1 ALLREDUCE 8 1\n")
    arguments = ["generate", "text", "--file", str(text), "-o", str(tmp_path / "o"), "--ranks", "4"]
    assert command_line.run(*arguments, *options) == 0
    assert told in capsys.readouterr().out
