"""What ``inspect`` prints of workloads of many ranks: it fits a terminal of 80 columns."""

from __future__ import annotations

import dataclasses
import json

import command_line
from studies import make_workload


def inspected(capsys, monkeypatch, workload, path, *options):
    monkeypatch.setenv("COLUMNS", "80")
    workload.save(path)
    assert command_line.run("inspect", path, *options) == 0
    return capsys.readouterr().out


def test_ranks_with_the_same_figures_share_a_column(capsys, monkeypatch, tmp_path):
    said = inspected(capsys, monkeypatch, make_workload(16), tmp_path / "w")
    assert "ranks 0-14" in said
    assert "rank 15" in said
    facts = json.loads(inspected(capsys, monkeypatch, make_workload(16), tmp_path / "w", "--format", "json"))
    assert facts["ranks"]["0"]["ranks"] == list(range(15))


def test_of_many_different_ranks_the_extremes_are_told_in_80_columns(capsys, monkeypatch, tmp_path):
    made = make_workload(16)
    graphs = tuple(
        graph.with_columns(duration_ns=graph.node_columns["duration_ns"] + 1000 * rank)
        for rank, graph in enumerate(made.graphs)
    )
    said = inspected(capsys, monkeypatch, dataclasses.replace(made, graphs=graphs), tmp_path / "w")
    lines = said.splitlines()
    assert max(map(len, lines)) <= 80
    (replay,) = [line for line in lines if "replay_ns" in line]
    assert replay.replace("\u2502", " ").split() == ["replay_ns", "4320000", "0", "5190000", "15"]
    (nodes,) = [line for line in lines if line.split()[1:2] == ["nodes"]]
    assert nodes.replace("\u2502", " ").split() == ["nodes", "18", "all", "18", "all"]
