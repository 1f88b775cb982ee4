"""Sweeps for the best point: searches, costs, results, and the command."""

import json
import sys

import command_line
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import make_study
from workloads import coll, comp, workload

from chakrascope.cli import main
from chakrascope.errors import BackendUnavailable, ConfigError
from chakrascope.runner import Study, read_sweep, run_sweep
from chakrascope.runner.sweep import (
    Goal,
    Prices,
    Range,
    answered,
    best_by,
    frontier,
    grid,
    more_is_cheaper,
    objectives,
    parse_axis,
    swept_settings,
    worth_their_cost,
)


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


def test_no_point_within_limits_is_reported(study, capfd):
    for limit, told in (("1", True), ("1e12", False)):
        command = ["sweep", str(study.path), "--network", "ring-8", "--over", "network.bandwidth=25,50"]
        command_line.run(*command, "--workers", "0", "--at-most", f"makespan_ns={limit}")
        assert ("No point is within the limits (makespan_ns=1)" in capfd.readouterr().err) == told


def test_the_command_searches(study, optuna, capsys):
    axes = ("--over", "network.bandwidth=25..400", "--trials", "4", "--least", "rank_time")
    assert command_line.run("sweep", study.path, "--network", "ring-8", "--workers", "0", *axes) == 0
    assert "rank_time" in capsys.readouterr().out
    for wrong in (("--at-most", "makespan_ns=fast"), ("--list", "points.jsonl")):
        assert command_line.run("sweep", study.path, "--network", "ring-8", *axes, *wrong) == 2


# Sweeps for the lowest cost, with given prices.

HOUR_NS = 3_600_000_000_000
OVER = {"network": ["ring-2", "ring-8"], "network.bandwidth": [10, 100]}


@pytest.fixture
def sweep_cost_study(tmp_path):
    study = Study.create(tmp_path / "study")
    ranks = [[comp(0, 500), coll(1, 1 << 22, after=[0])]] * 2
    study.add_workload(workload(*ranks, metadata={"measured_step_ns": {"0": 1}}), "job")
    return study


@given(st.floats(0, 1e6), st.integers(1, 10_000), st.integers(0, 10**15))
def test_a_step_costs_its_part_of_an_hour_of_all_ranks(price, ranks, makespan_ns):
    expected = price * ranks * makespan_ns / HOUR_NS
    assert Prices(price).step("any", ranks, makespan_ns) == pytest.approx(expected)


def test_the_cheapest_point_comes_first(sweep_cost_study):
    prices = Prices(of={"ring-2": 40.0, "ring-8": 1.0})
    found = run_sweep(sweep_cost_study, OVER, prices=prices, least="cost", workers=0)
    points = found.points
    assert points["cost"].is_monotonic_increasing
    assert points["network"].tolist()[0] == "ring-8"
    for row in points.itertuples():
        assert row.cost == pytest.approx(prices.of[row.network] * row.ranks * row.makespan_ns / HOUR_NS)
    limit = float(points["cost"].iloc[1])
    quick = run_sweep(sweep_cost_study, OVER, prices=prices, at_most={"cost": limit}, workers=0)
    assert (quick.points["cost"].iloc[:2] <= limit).all()


def test_other_prices_simulate_nothing_again(sweep_cost_study):
    first = run_sweep(sweep_cost_study, OVER, prices=Prices(2.0), least="cost", workers=0)
    again = run_sweep(sweep_cost_study, OVER, prices=Prices(4.0), least="cost", workers=0)
    assert again.simulated == 0
    assert again.points["cost"].tolist() == pytest.approx((2 * first.points["cost"]).tolist())
    assert read_sweep(sweep_cost_study, again.name).points["cost"].sum() == pytest.approx(
        again.points["cost"].sum()
    )
    assert run_sweep(sweep_cost_study, OVER, workers=0).points["cost"].notna().all()


def test_a_table_of_an_earlier_version_has_no_cost(sweep_cost_study):
    found = run_sweep(sweep_cost_study, OVER, workers=0)
    pd.read_parquet(found.path).drop(columns="cost").to_parquet(found.path)
    found.path.with_name("SHA256SUMS").unlink()
    assert read_sweep(sweep_cost_study, found.name).points["cost"].isna().all()


def test_no_price_is_assumed(sweep_cost_study):
    with pytest.raises(ConfigError, match="needs prices"):
        run_sweep(sweep_cost_study, OVER, least="cost", workers=0)
    with pytest.raises(ConfigError, match="'ring-8'"):
        run_sweep(sweep_cost_study, OVER, prices=Prices(of={"ring-2": 1.0}), workers=0)
    assert run_sweep(sweep_cost_study, OVER, workers=0).points["cost"].isna().all()


def test_prices_are_read_as_they_are_typed(tmp_path):
    file = tmp_path / "prices.yml"
    file.write_text("ring-2: 1.5\nmine: 2\n")
    prices = Prices.parse([str(file), "ring-8=3", "0.5"])
    assert prices == Prices(0.5, {"ring-2": 1.5, "mine": 2.0, "ring-8": 3.0})
    assert prices.per_hour("folder/mine.yml") == 2.0


@pytest.mark.parametrize("price", ["true", "[1]", "{a: 1}", "1.5, 2", ".inf", "1e400"])
def test_a_price_in_a_file_is_a_number(tmp_path, price):
    (tmp_path / "prices.yml").write_text(f"ring-2: {price}\n")
    with pytest.raises(ConfigError, match=r"prices\.yml"):
        Prices.parse([str(tmp_path / "prices.yml")])


@pytest.mark.parametrize("text", ["much", "ring-2=much", "nan", "-1", "absent.yml"])
def test_what_is_no_price_is_refused(text):
    with pytest.raises(ConfigError):
        Prices.parse([text])


def test_the_command_takes_prices(sweep_cost_study, capfd):
    options = ["--over", "network=ring-2,ring-8", "--price", "ring-2=9", "--price", "1", "--least", "cost"]
    assert (
        command_line.run("sweep", sweep_cost_study.path, *options, "--format", "json", "--workers", "0") == 0
    )
    rows = json.loads(capfd.readouterr().out)
    assert rows[0]["cost"] < rows[1]["cost"]


def test_a_sweep_is_shown_again_and_only_what_no_point_beats(sweep_cost_study, capfd):
    prices = Prices(of={"ring-2": 40.0, "ring-8": 1.0})
    found = run_sweep(sweep_cost_study, OVER, prices=prices, workers=0)
    assert not found.points["cost"].is_monotonic_increasing
    for options, expected in (([], 4), (["--least", "cost"], 4), (["--front"], None)):
        with pytest.raises(SystemExit) as stop:
            main(["sweep", str(sweep_cost_study.path), "--show", found.name, *options, "--format", "json"])
        rows = json.loads(capfd.readouterr().out)
        assert stop.value.code == 0
        assert expected is None or len(rows) == expected
        if options[:1] == ["--least"]:
            assert [row["cost"] for row in rows] == pytest.approx(sorted(found.points["cost"]))
    points = found.points.set_index("id")
    for row in points.loc[[row["id"] for row in rows]].to_dict("records"):
        beaten = (found.points["cost"] <= row["cost"]) & (found.points["makespan_ns"] <= row["makespan_ns"])
        assert beaten.sum() == 1


def test_showing_and_sweeping_at_once_is_refused(sweep_cost_study, capfd):
    code = command_line.run("sweep", sweep_cost_study.path, "--show", "one", "--over", "network=ring-2")
    assert (code, "only --show NAME" in capfd.readouterr().err) == (2, True)


# Results of the points of a sweep.


@pytest.fixture(scope="module")
def sweep_answers_points(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("sweep") / "study").study
    over = {"network.bandwidth": [1.0, 5.0, 0.0], "network": ["cpu-cluster-2", "cpu-cluster-8"]}
    return run_sweep(study, over, workers=0, name="first").points


def test_swept_settings_are_those_with_several_values(sweep_answers_points):
    assert swept_settings(sweep_answers_points) == ["network.bandwidth", "network"]
    assert swept_settings(sweep_answers_points.assign(figure=range(6))) == ["network.bandwidth", "network"]


def test_failed_points_are_no_answers(sweep_answers_points):
    done = answered(sweep_answers_points)
    assert len(sweep_answers_points) == 6
    assert len(done) == 4
    assert done["makespan_ns"].is_monotonic_increasing


def test_two_settings_give_the_shortest_step_of_each_pair(sweep_answers_points):
    done = answered(sweep_answers_points)
    matrix = best_by(done, "network", "network.bandwidth")
    assert (matrix.rows, matrix.columns) == (["cpu-cluster-2", "cpu-cluster-8"], ["1", "5"])
    assert matrix.values.min() == done["makespan_ns"].iloc[0]


def test_step_is_set_against_what_costs_something(sweep_answers_points):
    done = answered(sweep_answers_points)
    assert objectives(done) == ["ranks", "network.bandwidth", "rank_time_ns"]
    cheap = done[worth_their_cost(done, "network.bandwidth")]
    assert cheap["network.bandwidth"].tolist() == sorted(cheap["network.bandwidth"], reverse=True)
    assert more_is_cheaper("network.latency")
    delays = pd.DataFrame({"network.latency": [5, 50], "makespan_ns": [10, 12]})
    assert worth_their_cost(delays, "network.latency").tolist() == [True, True]


def test_a_front_compares_clusters_per_captured_step():
    # A step on more ranks does more work: the small cluster has the shortest step, but the highest cost.
    sizes = {"ranks": [8, 16, 32, 4], "captured_steps": [4.0, 8.0, 16.0, pd.NA]}
    points = pd.DataFrame({**sizes, "makespan_ns": [100, 101, 150, 90], "cost": [8.0, 12.0, 48.0, 1.0]})
    points = points.astype({"captured_steps": "Float64", "cost": "Float64"})
    assert frontier(points, "cost").tolist() == [False, True, True, False]
    assert frontier(points).tolist() == [True, True, True, False]
    equal = points.assign(captured_steps=1.0)
    assert frontier(equal, "cost").tolist() == [False, False, False, True]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 50)), min_size=1, max_size=40))
def test_frontier_holds_exactly_the_points_that_none_beats(pairs):
    points = pd.DataFrame(pairs, columns=["ranks", "makespan_ns"])
    marked = set(points[worth_their_cost(points, "ranks")].itertuples(index=False, name=None))
    beaten = {
        (ranks, time)
        for ranks, time in pairs
        if any(r <= ranks and t <= time and (r, t) != (ranks, time) for r, t in pairs)
    }
    assert marked == set(pairs) - beaten
    assert not np.isnan(worth_their_cost(points, "ranks")).any()


# The command ``chakrascope sweep``.


@pytest.fixture
def sweep_study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[comp(0, 500), coll(1, 1 << 22, after=[0])]] * 2), "job")
    return study


def run(sweep_study, *arguments):
    return command_line.run("sweep", sweep_study.path, "--workers", "0", *arguments)


def test_a_grid_is_printed_best_first_and_the_best_kept(sweep_study, capsys):
    axes = ("--over", "network.bandwidth=25,50", "--over", "network.npus_count=2,3")
    assert run(sweep_study, "--network", "ring-2", *axes) == 0
    shown = capsys.readouterr()
    lines = [line for line in shown.out.splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["50", "25"]
    assert "2 failed" in shown.err
    assert len(sweep_study.runs()) == 1
    assert run(sweep_study, "--network", "ring-2", *axes) == 0
    assert "0 simulated, 2 from the cache" in capsys.readouterr().out


def test_lists_and_backends_multiply(sweep_study, tmp_path, capsys):
    file = tmp_path / "points.jsonl"
    file.write_text('{"network": "ring-2"}\n{"network": "cpu-cluster-2", "network.latency": 3}\n')
    backends = ("--backend", "fake", "--backend", "analytical-unaware")
    assert run(sweep_study, "--list", str(file), *backends, "--format", "json", "--keep", "0") == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted((row["network"], row["backend"]) for row in rows) == [
        ("cpu-cluster-2", "analytical-unaware"),
        ("cpu-cluster-2", "fake"),
        ("ring-2", "analytical-unaware"),
        ("ring-2", "fake"),
    ]
    assert sweep_study.runs() == []


def test_csv_has_every_row_and_nothing_else(sweep_study, capsys):
    assert run(sweep_study, "--over", "network=ring-2,ring-8", "--format", "csv") == 0
    head, *rows = capsys.readouterr().out.splitlines()
    assert head.startswith("network,id,state,error,ranks,makespan_ns")
    assert [row.split(",")[2] for row in rows] == ["done", "failed"]


@pytest.mark.parametrize(
    ("arguments", "code", "hint"),
    [
        ((), 2, "--over"),
        (("--over", "network.bandwidth=1", "--over", "network.bandwidth=2"), 2, "twice"),
        (("--over", "network.bandwith=1", "--network", "ring-2"), 40, "network.bandwidth"),
        (("--over", "network=rng-2"), 50, "ring-2"),
    ],
)
def test_wrong_usage_has_a_next_step(sweep_study, arguments, code, hint, capsys):
    assert run(sweep_study, *arguments) == code
    shown = capsys.readouterr().err.replace("\n", " ")
    assert hint in shown
    assert "Traceback" not in shown
