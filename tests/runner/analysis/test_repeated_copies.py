"""Advice on casts and copies that a step repeats, and its replay."""

from __future__ import annotations

import math

import pytest
from workloads import comp, workload

from chakrascope.cli import main
from chakrascope.errors import UsageError
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import Target, analyse_run, what_if

REPEATED = Target("repeated", "copies")


def program(*operators, repeated):
    nodes = [
        comp(number, 1_500_000, [number - 1] if number else [], operator=name)
        for number, name in enumerate(operators)
    ]
    return workload(nodes, metadata={"repeated": repeated})


def test_the_advice_promises_what_its_replay_gains(tmp_path, capsys):
    study = Study.create(tmp_path / "study")
    made = program("aten::mm", "aten::copy_", "aten::mm", "aten::copy_", repeated={"0": [3]})
    experiment = prepare(study.add_workload(made, "job"), "default", None, backend="replay")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="job")
    run = analyse_run(study)
    advice = next(item for item in run.advices() if item.key == "repeated:copies=inf")
    assert advice.what == "Repeated casts and copies of unchanged data, most for aten::copy_"
    once = what_if(run.experiment(), [(REPEATED, math.inf)])
    assert advice.gain_ns == run.result.makespan_ns - once.makespan_ns == pytest.approx(1_500_000, abs=10)
    with pytest.raises(SystemExit):
        main(["what-if", str(study.path), "--faster", "repeated:casts=inf"])
    assert "has no repeated 'casts'" in capsys.readouterr().err


@pytest.mark.parametrize("repeated", [{}, {"1": [0]}, {"0": [99]}, {"0": "all"}, ["0"], None])
def test_a_workload_without_repeated_copies_has_no_such_advice(repeated):
    run = prepare(program("aten::copy_", "aten::copy_", repeated=repeated), "default", None, backend="replay")
    with pytest.raises(UsageError, match="no casts or copies that repeat"):
        what_if(run, [(REPEATED, math.inf)])
