"""Commands that fail leave no study behind that they made, and every study that was there."""

from __future__ import annotations

import pytest
from command_line import run

from chakrascope.converter import microbenchmark
from chakrascope.runner import Study


@pytest.fixture
def prefix(tmp_path):
    microbenchmark("all-reduce", 2, 1 << 10).save(tmp_path / "w")
    return tmp_path / "w"


@pytest.mark.parametrize(
    "wrong",
    [
        ("--network", "rng-2"),
        ("--network", "ring-2", "--system", "defualt"),
        ("--network", "ring-2", "--backend", "fluid"),
        ("--network", "ring-8"),
    ],
)
def test_a_run_that_cannot_be_leaves_no_study(tmp_path, prefix, wrong):
    assert run("run", tmp_path / "new" / "s", "--workload", prefix, *wrong)
    assert not (tmp_path / "new" / "s").exists()
    (tmp_path / "empty").mkdir()
    assert run("run", tmp_path / "empty", "--workload", prefix, *wrong)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_workload_that_is_not_there_leaves_no_study(tmp_path):
    assert run("run", tmp_path / "s", "--workload", tmp_path / "none", "--network", "ring-2")
    assert not (tmp_path / "s").exists()


def test_what_a_study_held_stays_and_so_do_runs_before_the_error(tmp_path, prefix):
    Study.create(tmp_path / "old")
    assert run("run", tmp_path / "old", "--workload", prefix, "--network", "rng-2")
    assert Study.open(tmp_path / "old").runs() == []
    assert not run("run", tmp_path / "new", "--workload", prefix, "--network", "ring-2")
    assert run("run", tmp_path / "new", "--workload", prefix, "--network", "rng-2")
    assert len(Study.open(tmp_path / "new").runs()) == 1
