"""``chakrascope rescale``: what it keeps, and what it refuses with what to do instead."""

import shutil

import pytest
from command_line import run

from chakrascope.runner import Study


@pytest.fixture
def study(tmp_path, data_dir):
    """A study with the captured workload of a pipeline of two stages and four micro-batches."""
    made = Study.create(tmp_path / "study")
    shutil.copytree(data_dir / "converter" / "rescaling" / "pipeline_4", made.path / "workloads" / "pipeline")
    return made


def test_a_rescaled_workload_is_kept_beside_the_captured_one(study, capsys):
    assert run("rescale", study.path, "--micro-batches", 9, "--chip", "h100") == 0
    assert "Assumed: 9 micro-batches instead of 4" in capsys.readouterr().out
    assert study.workloads() == ["pipeline", "pipeline-micro-batches-9-chip-h100"]
    made = study.workload()
    sends = [int((graph.node_columns["type"] == 5).sum()) for graph in made.graphs]
    assert sends == [9, 9]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "Say what to change"),
        (["--tp", "2"], "changes the shape of every operator"),
        (["--pp", "4"], "does not do what the others do"),
        (["--pp", "3"], "which 3 stages do not share evenly. Ask for --pp 1, 2, 4."),
        (["--chip", "h10"], "did you mean 'h100'"),
        (["--dp", "4"], "cannot be repeated as data parallelism"),
    ],
)
def test_what_is_not_known_is_refused(study, capsys, options, said):
    assert run("rescale", study.path, *options) != 0
    errors = " ".join(capsys.readouterr().err.split())
    assert said in errors
    assert study.workloads() == ["pipeline"]
