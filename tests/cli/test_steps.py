"""Captured steps side by side: ``summary --view steps``, its JSON, and the cards of the page Summary."""

from __future__ import annotations

import json

import numpy as np
import pytest
from command_line import run

from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.runner import Study
from chakrascope.viewer import StudyView
from chakrascope.viewer.pages import _summary

NAMES = {"0": "step[EXTEND bs=2 toks=64]", "1": "step[DECODE bs=2]", "2": "step[DECODE bs=2]"}
SHARES = [[0, 0, 5_000_000], [1, 5_000_000, 6_000_000], [2, 6_500_000, 8_000_000]]


def served() -> Workload:
    """Return a captured prefill and two decodes of one rank."""
    nodes = [
        {"node_id": step, "type": NodeType.COMP, "name": "gemm", "kind": "compute", "stream": 1007,
         "step": step, "measured_start_ns": start, "duration_ns": 900_000}
        for step, start, _ in SHARES
    ]  # fmt: skip
    told = {"measured_step_ns": {"0": 8_000_000}, "steps": [0, 1, 2]}
    told |= {"step_names": NAMES, "step_shares": {"0": SHARES}}
    edges = [(0, 1, 0), (1, 2, 0)]
    return Workload((Graph.build(0, nodes, edges),), np.zeros(1, dtype=np.int32), {}, told)


@pytest.fixture
def study(tmp_path, capsys):
    made = Study.create(tmp_path / "study")
    made.add_workload(served(), "job")
    assert run("run", str(made.path), "--backend", "replay") == 0
    capsys.readouterr()
    return made


def test_steps_are_shown_by_kind_and_each(study, capsys):
    assert run("summary", str(study.path), "--view", "steps") == 0
    out = capsys.readouterr().out
    assert "Captured steps by kind" in out
    assert "Each captured step" in out
    assert run("summary", str(study.path), "--view", "steps", "--format", "csv") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("step,name,kind,requests,tokens,rank,duration_ns,gap_before_ns,compute_ns")
    assert lines[3].startswith("2,step[DECODE bs=2],decode,2,2,0,1500000,500000,900000")


def test_the_summary_s_json_has_steps_and_their_spread(study, capsys):
    assert run("summary", str(study.path), "--format", "json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [row["duration_ns"] for row in told["steps"]] == [5_000_000, 1_000_000, 1_500_000]
    decode = told["steps_by_kind"][1]
    assert (decode["kind"], decode["min_ns"], decode["max_ns"]) == ("decode", 1_000_000, 1_500_000)
    assert told["steps_by_kind"][0]["bound_by"] == "host"


def test_the_page_has_the_same_steps(study):
    run = StudyView(study).open(study.run_info().id)
    kinds, each = _summary._steps(run, "light")
    assert "prefill" in str(kinds)
    assert "Captured steps" in str(each)


def test_a_workload_without_captured_steps_says_so(tmp_path, capsys):
    made = Study.create(tmp_path / "study")
    plain = served()
    plain.metadata.pop("step_shares")
    made.add_workload(plain, "job")
    assert run("run", str(made.path), "--backend", "replay") == 0
    assert run("summary", str(made.path), "--view", "steps") != 0
    assert "no captured steps" in capsys.readouterr().err
