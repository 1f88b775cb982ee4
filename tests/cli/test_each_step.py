"""``run --steps all``: each captured step, and the distribution of their times."""

import json
import shutil

import numpy as np
import pytest
from command_line import run_and_read

from chakrascope.converter import convert
from chakrascope.runner import Study, simulate

from ..step_times import part, recording

NETWORK = ("--network", "cpu-cluster-2")


@pytest.fixture
def study(tmp_path, data_dir):
    made = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "loaded_2", made.new_trace_dir(), dirs_exist_ok=True)
    return made


def test_every_step_is_simulated_as_if_alone(capfd, study):
    code, out, _ = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK, "--format", "json")
    assert code == 0
    answer = json.loads(out)
    folder = study.latest_trace_set()
    alone = {
        row["step"]: simulate(convert(folder, step=row["step"]), "default", "cpu-cluster-2").makespan_ns
        for row in answer["steps"]
    }
    assert len(alone) == 3
    assert {row["step"]: row["makespan_ns"] for row in answer["steps"]} == alone
    (spread,) = answer["distribution"].values()
    assert spread["shortest"] == min(alone.values())
    assert spread["p50"] == np.median([*alone.values()])
    assert spread["longest"] == max(alone.values())
    assert study.workloads() == []
    assert study.runs() == []


def test_the_longest_step_is_next(capfd, study):
    _, out, _ = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK, "--format", "csv")
    steps = [line.split(",") for line in out.splitlines()[1:]]
    longest = max(steps, key=lambda row: int(row[2]))[0]
    _, out, _ = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK)
    assert f"convert {study.path} --step {longest}" in out


def test_a_recording_without_traces_leads_to_diagnose(capfd, study):
    shutil.rmtree(study.latest_trace_set())
    recording(study.path / "traces" / "capture-2", [part(0, [(1, 2, 3, 4, 5, 15)] * 3)])
    code, _, err = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK)
    assert code != 0
    assert "chakrascope diagnose" in err


def test_what_does_not_go_with_it(capfd, study):
    for more in (["--queue"], ["--check"], ["--workload", "x"]):
        code, _, err = run_and_read(capfd, "run", study.path, "--steps", "all", *NETWORK, *more)
        assert code != 0
        assert "--steps all goes with a STUDY" in err
    empty = Study.create(study.path.parent / "empty").path
    code, _, err = run_and_read(capfd, "run", empty, "--steps", "all", *NETWORK)
    assert code != 0
    assert "has no trace set yet" in err
