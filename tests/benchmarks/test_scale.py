"""The workloads that the scale benchmark measures are what it says: large, and no two ranks alike."""

from __future__ import annotations

import sys
from pathlib import Path

import command_line
import numpy as np
import pytest

from chakrascope.cli import _run as run_command
from chakrascope.converter import NodeType
from chakrascope.runner import Study

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))

import scale


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    return scale.made(tmp_path_factory.mktemp("scale"), nodes=200, ranks=16, collectives=10)


def test_every_rank_has_a_program_of_its_own_with_the_collectives_of_all(study):
    workload = Study.open(study).workload()
    assert len(workload.graphs) == workload.num_ranks == 16
    for graph in workload.graphs:
        assert graph.num_nodes == 200
        assert (graph.node_columns["type"] == NodeType.COMM_COLL).sum() == 10
        # Whatever a rank waits for comes before it, so that no rank stalls.
        assert (graph.edge_columns["src"] < graph.edge_columns["dst"]).all()
    first, second = (workload.graphs[rank].node_columns["duration_ns"] for rank in (0, 1))
    assert not np.array_equal(first, second)


def test_a_run_of_many_different_ranks_says_why_it_takes_long(study, capsys, monkeypatch):
    monkeypatch.setattr(run_command, "_MANY_PROGRAMS", 16)
    assert command_line.run("run", study, "--network", study / "network.yml") == 0
    said = " ".join(capsys.readouterr().err.split())
    assert "16 of 16 ranks have a program of their own, so each is simulated by itself" in said
    assert "about" in said


def test_a_command_that_fails_is_no_measurement():
    with pytest.raises(RuntimeError, match="no such thing"):
        scale.cost_of([sys.executable, "-c", "raise SystemExit('no such thing')"])
