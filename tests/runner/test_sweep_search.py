"""What is best, and searches with Optuna."""

from __future__ import annotations

import sys

import command_line
import pandas as pd
import pytest
from workloads import coll, comp, workload

from chakrascope.errors import BackendUnavailable, ConfigError
from chakrascope.runner import Study, run_sweep
from chakrascope.runner.sweep import Goal, Range, grid, parse_axis


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[comp(0, 500), coll(1, 1 << 22, after=[0])]] * 8), "job")
    return study


def points():
    rows = [("a", "done", 10, 8), ("b", "done", 20, 2), ("c", "failed", None, 4), ("d", "done", 12, 3)]
    table = pd.DataFrame(rows, columns=["settings", "state", "makespan_ns", "ranks"])
    table = table.astype({"makespan_ns": "Int64", "ranks": "Int64"})
    return table.assign(rank_time_ns=table["makespan_ns"] * table["ranks"])


@pytest.mark.parametrize(
    ("goal", "order"),
    [
        (Goal(), "adbc"),
        (Goal("rank_time_ns"), "dbac"),
        (Goal("ranks"), "bdac"),
        (Goal("rank_time_ns", {"makespan_ns": 11}), "adbc"),
        (Goal("makespan_ns", {"ranks": 3}), "dbac"),
    ],
)
def test_the_best_has_the_least_within_the_limits(goal, order):
    assert "".join(goal.best_first(points())["settings"]) == order


def test_a_goal_must_be_a_figure(study):
    with pytest.raises(ConfigError, match="makespan_ns"):
        run_sweep(study, {"network": ["ring-2"]}, least="makespan", workers=0)
    with pytest.raises(ConfigError, match="rank_time_ns"):
        run_sweep(study, {"network": ["ring-2"]}, at_most={"rank_time": 1}, workers=0)


def test_ranges_are_read_as_typed():
    assert parse_axis("network.bandwidth=25..400") == ("network.bandwidth", Range(25, 400))
    assert parse_axis("network.latency=0.5..1.5") == ("network.latency", Range(0.5, 1.5))
    assert parse_axis("network=a..b") == ("network", ["a..b"])
    for text, hint in (("x=5..5", "empty"), ("x=9..1", "empty"), ("x=1.2.3..4", "range of numbers")):
        with pytest.raises(ConfigError, match=hint):
            parse_axis(text)
    with pytest.raises(ConfigError, match="--trials"):
        grid({"network.bandwidth": Range(1, 2)})


@pytest.fixture
def optuna():
    return pytest.importorskip("optuna", reason="Optuna is not installed (the extra [search])")


def space():
    return {
        "network.bandwidth": Range(10.0, 400.0),
        "network.topology": [["Ring"], ["Switch"]],
        "system.all-reduce-implementation": ["ring", "direct"],
    }


def search(study, trials, **changes):
    return run_sweep(study, space(), trials=trials, network="ring-8", **{"workers": 0, **changes})


def test_a_search_finds_what_a_grid_would(study, optuna):
    found = search(study, 30)
    assert (found.simulated + found.reused, found.failed) == (30, 0)
    best = found.points.iloc[0]
    assert best["network.bandwidth"] > 250
    assert best["system.all-reduce-implementation"] == "direct"
    assert found.points["network.bandwidth"].between(10, 400).all()


def test_a_search_repeats_itself_and_goes_on(study, optuna):
    first = search(study, 12)
    again = search(study, 12)
    assert (again.name, again.simulated) == (first.name, 0)
    pd.testing.assert_frame_equal(first.points, again.points)
    longer = search(study, 15)
    assert (longer.simulated, longer.reused) == (3, 12)


def test_a_search_keeps_to_limits_and_survives_failures(study, optuna):
    axes = {"network": ["ring-8", "ring-2"], "network.bandwidth": Range(1, 400), "network.latency": [-1, 500]}
    limit = {"makespan_ns": 150_000}
    found = run_sweep(study, axes, trials=20, least="rank_time_ns", at_most=limit, workers=1)
    assert 0 < found.failed < 20
    assert found.points["makespan_ns"][0] <= limit["makespan_ns"]
    assert found.points["rank_time_ns"][0] == found.points["makespan_ns"][0] * found.points["ranks"][0]


def test_a_search_needs_optuna_and_axes(study, monkeypatch):
    for over, trials in (([{"network": "ring-8"}], 3), ({"network": []}, 3), ({"network": ["ring-8"]}, 0)):
        with pytest.raises(ConfigError, match="search"):
            run_sweep(study, over, trials=trials, workers=0)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(BackendUnavailable, match=r"chakrascope\[search\]"):
        search(study, 3)


def test_that_no_point_keeps_to_the_limits_is_said(study, capfd):
    for limit, told in (("1", True), ("1e12", False)):
        command = ["sweep", str(study.path), "--network", "ring-8", "--over", "network.bandwidth=25,50"]
        command_line.run(*command, "--workers", "0", "--at-most", f"makespan_ns={limit}")
        assert ("No point keeps to the limits (makespan_ns=1)" in capfd.readouterr().err) == told


def test_the_command_searches(study, optuna, capsys):
    axes = ("--over", "network.bandwidth=25..400", "--trials", "4", "--least", "rank_time_ns")
    assert command_line.run("sweep", study.path, "--network", "ring-8", "--workers", "0", *axes) == 0
    assert "rank_time" in capsys.readouterr().out
    for wrong in (("--at-most", "makespan_ns=fast"), ("--list", "points.jsonl")):
        assert command_line.run("sweep", study.path, "--network", "ring-8", *axes, *wrong) == 2
