"""Sweeps for least cost, by prices that are given."""

from __future__ import annotations

import json

import command_line
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.cli import main
from chakrascope.errors import ConfigError
from chakrascope.runner import Study, read_sweep, run_sweep
from chakrascope.runner.sweep import Prices

HOUR_NS = 3_600_000_000_000
OVER = {"network": ["ring-2", "ring-8"], "network.bandwidth": [10, 100]}


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path / "study")
    ranks = [[comp(0, 500), coll(1, 1 << 22, after=[0])]] * 2
    study.add_workload(workload(*ranks, metadata={"measured_step_ns": {"0": 1}}), "job")
    return study


@given(st.floats(0, 1e6), st.integers(1, 10_000), st.integers(0, 10**15))
def test_a_step_costs_its_part_of_an_hour_of_all_ranks(price, ranks, makespan_ns):
    expected = price * ranks * makespan_ns / HOUR_NS
    assert Prices(price).step("any", ranks, makespan_ns) == pytest.approx(expected)


def test_the_cheapest_point_comes_first(study):
    prices = Prices(of={"ring-2": 40.0, "ring-8": 1.0})
    found = run_sweep(study, OVER, prices=prices, least="cost", workers=0)
    points = found.points
    assert points["cost"].is_monotonic_increasing
    assert points["network"].tolist()[0] == "ring-8"
    for row in points.itertuples():
        assert row.cost == pytest.approx(prices.of[row.network] * row.ranks * row.makespan_ns / HOUR_NS)
    limit = float(points["cost"].iloc[1])
    quick = run_sweep(study, OVER, prices=prices, at_most={"cost": limit}, workers=0)
    assert (quick.points["cost"].iloc[:2] <= limit).all()


def test_other_prices_simulate_nothing_again(study):
    first = run_sweep(study, OVER, prices=Prices(2.0), least="cost", workers=0)
    again = run_sweep(study, OVER, prices=Prices(4.0), least="cost", workers=0)
    assert again.simulated == 0
    assert again.points["cost"].tolist() == pytest.approx((2 * first.points["cost"]).tolist())
    assert read_sweep(study, again.name).points["cost"].sum() == pytest.approx(again.points["cost"].sum())
    assert run_sweep(study, OVER, workers=0).points["cost"].notna().all()


def test_a_search_finds_the_least_cost_within_a_limit(study):
    pytest.importorskip("optuna", reason="Optuna is not installed (the extra [search])")
    every = run_sweep(study, OVER, prices=Prices(1.0), least="cost", workers=0, name="grid")
    found = run_sweep(study, OVER, prices=Prices(1.0), least="cost", trials=12, workers=0, name="search")
    assert found.points["cost"].iloc[0] == every.points["cost"].iloc[0]


def test_a_table_of_an_earlier_version_has_no_cost(study):
    found = run_sweep(study, OVER, workers=0)
    pd.read_parquet(found.path).drop(columns="cost").to_parquet(found.path)
    assert read_sweep(study, found.name).points["cost"].isna().all()


def test_no_price_is_assumed(study):
    with pytest.raises(ConfigError, match="needs prices"):
        run_sweep(study, OVER, least="cost", workers=0)
    with pytest.raises(ConfigError, match="'ring-8'"):
        run_sweep(study, OVER, prices=Prices(of={"ring-2": 1.0}), workers=0)
    assert run_sweep(study, OVER, workers=0).points["cost"].isna().all()


def test_prices_are_read_as_they_are_typed(tmp_path):
    file = tmp_path / "prices.yml"
    file.write_text("ring-2: 1.5\nmine: 2\n")
    prices = Prices.parse([str(file), "ring-8=3", "0.5"])
    assert prices == Prices(0.5, {"ring-2": 1.5, "mine": 2.0, "ring-8": 3.0})
    assert prices.per_hour("folder/mine.yml") == 2.0


@pytest.mark.parametrize("text", ["much", "ring-2=much", "nan", "-1", "absent.yml"])
def test_what_is_no_price_is_refused(text):
    with pytest.raises(ConfigError):
        Prices.parse([text])


def test_the_command_takes_prices(study, capfd):
    options = ["--over", "network=ring-2,ring-8", "--price", "ring-2=9", "--price", "1", "--least", "cost"]
    assert command_line.run("sweep", study.path, *options, "--format", "json", "--workers", "0") == 0
    rows = json.loads(capfd.readouterr().out)
    assert rows[0]["cost"] < rows[1]["cost"]


def test_a_sweep_is_shown_again_and_only_what_no_point_beats(study, capfd):
    prices = Prices(of={"ring-2": 1.0, "ring-8": 1.0})
    found = run_sweep(study, OVER, prices=prices, workers=0)
    for options, expected in (([], 4), (["--front"], None)):
        with pytest.raises(SystemExit) as stop:
            main(["sweep", str(study.path), "--show", found.name, *options, "--format", "json"])
        rows = json.loads(capfd.readouterr().out)
        assert stop.value.code == 0
        assert expected is None or len(rows) == expected
    points = found.points.set_index("id")
    for row in points.loc[[row["id"] for row in rows]].to_dict("records"):
        beaten = (found.points["cost"] <= row["cost"]) & (found.points["makespan_ns"] <= row["makespan_ns"])
        assert beaten.sum() == 1


def test_showing_and_sweeping_at_once_is_refused(study, capfd):
    code = command_line.run("sweep", study.path, "--show", "one", "--over", "network=ring-2")
    assert (code, "with neither" in capfd.readouterr().err) == (2, True)
