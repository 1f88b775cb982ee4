"""The main job: a training command becomes a critical path, through the command line alone."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COMMAND = [sys.executable, "-m", "chakrascope.cli"]


def run_cli(*arguments: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "160"}
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("torch", reason="capturing a training job needs torch")
    folder = tmp_path_factory.mktemp("main-job")
    done = run_cli(
        "profile", "-o", "study", "--network", "cpu-cluster-16", "--steps", "2",
        "--backend", "analytical-unaware", "--backend", "analytical-aware",
        "--", sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2",
        ROOT / "examples/ddp_transformer/train.py", "--epochs", "1",
        cwd=folder,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Critical path by kind" in done.stdout
    last = done.stdout.splitlines()[-1]
    assert re.fullmatch(r"Next: chakrascope view study --run [0-9a-f]{16}", last), last
    return folder


@pytest.mark.torch
def test_segments_of_the_critical_path_sum_to_the_simulated_step(profiled: Path) -> None:
    path = json.loads(run_cli("critical-path", "study", "--format", "json", cwd=profiled).stdout)
    replay = json.loads(
        run_cli(
            "run", "study", "--network", "cpu-cluster-16", "--backend", "analytical-aware",
            "--format", "json",
            cwd=profiled,
        ).stdout
    )  # fmt: skip
    assert sum(segment["duration_ns"] for segment in path) == replay["makespan_ns"]
    assert len(replay["ranks"]) == 16


@pytest.mark.torch
def test_a_replay_takes_as_long_as_the_measured_step(profiled: Path) -> None:
    replay = json.loads(
        run_cli("run", "study", "--backend", "replay", "--format", "json", cwd=profiled).stdout
    )
    metadata = json.loads(next((profiled / "study/workloads").glob("*/workload.workload.json")).read_text())
    for row in replay["ranks"]:
        figures = metadata["accounting"][str(row["rank"])]
        measured_ns, profiler_ns = figures["measured_step_ns"], figures.get("profiler_ns", 0)
        assert 0.98 * measured_ns - profiler_ns < row["finish_ns"] < 1.02 * measured_ns


@pytest.mark.torch
def test_the_workload_runs_with_the_option_names_of_astra_sim(profiled: Path) -> None:
    prefix = next((profiled / "study/workloads").glob("*")) / "workload"
    done = run_cli(
        "run", f"--workload-configuration={prefix}", "--system-configuration=default",
        "--network-configuration=cpu-cluster-2", "--format=json",
        cwd=profiled,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["backend"] == "analytical-unaware"
    assert {"rank", "finish_ns", "exposed_comm_ns"} <= answer["ranks"][0].keys()
