"""The command ``chakrascope sweep``."""

from __future__ import annotations

import json

import command_line
import pytest
from workloads import coll, comp, workload

from chakrascope.runner import Study


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[comp(0, 500), coll(1, 1 << 22, after=[0])]] * 2), "job")
    return study


def run(study, *arguments):
    return command_line.run("sweep", study.path, "--workers", "0", *arguments)


def test_a_grid_is_printed_best_first_and_the_best_kept(study, capsys):
    axes = ("--over", "network.bandwidth=25,50", "--over", "network.npus_count=2,3")
    assert run(study, "--network", "ring-2", *axes) == 0
    shown = capsys.readouterr()
    lines = [line for line in shown.out.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["50", "25"]
    assert "2 failed" in shown.err
    assert len(study.runs()) == 1
    assert run(study, "--network", "ring-2", *axes) == 0
    assert "0 simulated, 2 from the cache" in capsys.readouterr().out


def test_lists_and_backends_multiply(study, tmp_path, capsys):
    file = tmp_path / "points.jsonl"
    file.write_text('{"network": "ring-2"}\n{"network": "cpu-cluster-2", "network.latency": 3}\n')
    backends = ("--backend", "fake", "--backend", "analytical-unaware")
    assert run(study, "--list", str(file), *backends, "--format", "json", "--keep", "0") == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted((row["network"], row["backend"]) for row in rows) == [
        ("cpu-cluster-2", "analytical-unaware"),
        ("cpu-cluster-2", "fake"),
        ("ring-2", "analytical-unaware"),
        ("ring-2", "fake"),
    ]
    assert study.runs() == []


def test_csv_has_every_row_and_nothing_else(study, capsys):
    assert run(study, "--over", "network=ring-2,ring-8", "--format", "csv") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("network,id,state,error,ranks,makespan_ns")
    assert [row.split(",")[2] for row in rows] == ["done", "failed"]


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        ((), 2, "--over"),
        (("--over", "network.bandwidth=1", "--over", "network.bandwidth=2"), 2, "twice"),
        (("--over", "network.bandwith=1", "--network", "ring-2"), 40, "network.bandwidth"),
        (("--over", "network=rng-2"), 50, "ring-2"),
    ],
)
def test_wrong_usage_says_what_to_do_next(study, arguments, code, hint, capsys):
    assert run(study, *arguments) == code
    shown = capsys.readouterr().err.replace("\n", " ")
    assert hint in shown
    assert "Traceback" not in shown
