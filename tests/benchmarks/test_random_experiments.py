"""The random experiments that are compared with the reference simulator by hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import astra_sim_fuzz
import astra_sim_run
import random_experiments


@pytest.mark.parametrize("seed", range(30))
def test_the_engine_has_an_answer_to_whatever_is_drawn(seed, tmp_path):
    experiment = random_experiments.draw(seed)
    random_experiments.write(experiment, tmp_path)
    answer = astra_sim_fuzz.ours(tmp_path, "unaware", experiment["options"])
    assert answer["status"] in {"finishes", "stalls", "refuses"}, answer["message"]


def test_a_seed_gives_the_same_experiment_that_json_can_hold():
    first, second = random_experiments.draw(7), random_experiments.draw(7)
    assert json.loads(json.dumps(first)) == json.loads(json.dumps(second)) == first
    assert random_experiments.features(first)


def test_shrinking_keeps_what_differs():
    experiment = random_experiments.draw(1)
    kept = experiment["workload"][0][0]["id"]

    def differs(candidate):
        return any(node["id"] == kept for node in candidate["workload"][0])

    small = astra_sim_fuzz.shrink(experiment, differs, tries=500)
    assert [node["id"] for node in small["workload"][0]] == [kept]


def test_what_the_reference_prints_is_read(tmp_path):
    lines = [
        "[workload] [info] sys[1] finished, 100 cycles, exposed communication 40 cycles.",
        "[statistics] [info] sys[1], GPU time: 60",
        "[workload] [info] sys[0] finished, 120 cycles, exposed communication 60 cycles.",
        "[statistics] [info] sys[0], Compute bound percentage: 12.500%",
    ]
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    program.chmod(0o755)
    answer = astra_sim_run.run(program, tmp_path)
    assert answer.status(2) == "finishes"
    assert answer.order == [1, 0]
    assert answer.ranks[1] == {"cycles": 100, "exposed": 40, "gpu_time": 60}
    assert answer.ranks[0]["compute_bound_pct"] == 12.5


def test_a_program_that_never_ends_is_killed(tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    assert astra_sim_run.run(program, tmp_path, limit_s=0.2).status(1) == "loops"
