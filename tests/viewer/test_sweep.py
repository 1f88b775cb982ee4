import zipfile
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import make_study

from chakrascope.runner import NetworkConfig, run_sweep
from chakrascope.viewer import create_app
from chakrascope.viewer.charts import best_heat_map, frontier_scatter, parallel_coordinates
from chakrascope.viewer.queries import _objectives as costs
from chakrascope.viewer.queries import _sweeps as sweeps

from .conftest import serving


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("sweep") / "study").study
    over = {"network.bandwidth": [1.0, 5.0, 0.0], "network": ["cpu-cluster-2", "cpu-cluster-8"]}
    found = run_sweep(study, over, workers=0, keep=1, name="first")
    run_sweep(study, {"network.latency": [5, 50]}, network="cpu-cluster-2", workers=0, name="second")
    return study, found.points


def test_swept_settings_are_those_with_several_values(swept):
    assert sweeps.swept_settings(swept[1]) == ["network.bandwidth", "network"]
    assert sweeps.swept_settings(swept[1].assign(figure=range(6))) == ["network.bandwidth", "network"]
    assert sweeps.setting_title("system.all-reduce-implementation") == "all-reduce"


def test_failed_points_are_no_answers(swept):
    points = sweeps.answered(swept[1])
    assert len(swept[1]) == 6
    assert len(points) == 4
    assert points["makespan_ns"].is_monotonic_increasing


def test_two_settings_give_the_shortest_step_of_each_pair(swept):
    points = sweeps.answered(swept[1])
    matrix = sweeps.best_by(points, "network", "network.bandwidth")
    assert (matrix.rows, matrix.columns) == (["cpu-cluster-2", "cpu-cluster-8"], ["1", "5"])
    assert matrix.values.min() == points["makespan_ns"].iloc[0]


def test_step_is_set_against_what_costs_something(swept):
    points = sweeps.answered(swept[1])
    assert costs.objectives(points) == ["ranks", "network.bandwidth", "rank_time_ns"]
    cheap = points[costs.worth_their_cost(points, "network.bandwidth")]
    assert cheap["network.bandwidth"].tolist() == sorted(cheap["network.bandwidth"], reverse=True)
    assert costs.more_is_cheaper("network.latency")
    delays = pd.DataFrame({"network.latency": [5, 50], "makespan_ns": [10, 12]})
    assert costs.worth_their_cost(delays, "network.latency").tolist() == [True, True]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 50)), min_size=1, max_size=40))
def test_frontier_holds_exactly_the_points_that_none_beats(pairs):
    points = pd.DataFrame(pairs, columns=["ranks", "makespan_ns"])
    marked = set(points[costs.worth_their_cost(points, "ranks")].itertuples(index=False, name=None))
    beaten = {
        (ranks, time)
        for ranks, time in pairs
        if any(r <= ranks and t <= time and (r, t) != (ranks, time) for r, t in pairs)
    }
    assert marked == set(pairs) - beaten
    assert not np.isnan(costs.worth_their_cost(points, "ranks")).any()


@pytest.mark.browser
def test_sweep_is_shown_and_its_best_run_opens(page, swept):
    with serving(create_app(swept[0])) as address:
        page.goto(f"{address}/sweep?sweep=first")
        page.wait_for_selector("#sweep-best:has-text('The shortest step is')")
        page.wait_for_selector("#sweep-table .ag-row[row-index='5']")
        assert page.locator("#sweep-table").count() == 1
        page.locator("#sweep-pareto").click()
        page.get_by_role("option", name="bandwidth").click()
        page.wait_for_url("**pareto=network.bandwidth*")
        page.reload()
        page.wait_for_selector("#sweep-pareto[value='bandwidth']")
        page.get_by_role("link", name="Open this run").click()
        page.wait_for_selector("#headline")
        assert page.complaints == []
        assert page.foreign == []


def test_best_point_is_given_as_files(swept, tmp_path):
    client = create_app(swept[0]).server.test_client()
    answer = client.get("/export/point.zip", query_string={"sweep": "first", "point": swept[1]["id"].iloc[0]})
    with zipfile.ZipFile(BytesIO(answer.data)) as archive:
        archive.extractall(tmp_path)
    network = NetworkConfig.load(tmp_path / "network.yml")
    assert network.bandwidth == (swept[1]["network.bandwidth"].iloc[0],)
    assert client.get("/export/point.zip?sweep=first&point=../../x").status_code == 400
    assert client.get("/export/point.zip?sweep=../../runs&point=x").status_code == 404


def test_points_are_exported(swept):
    client = create_app(swept[0]).server.test_client()
    parquet = client.get("/export/sweep.parquet?sweep=first").data
    assert len(pd.read_parquet(BytesIO(parquet))) == 6
    assert len(client.get("/export/sweep.csv?sweep=first").data.splitlines()) == 7
    assert client.get("/export/sweep.csv?sweep=../../runs").status_code == 404
    pairs = pd.read_csv(BytesIO(client.get("/export/sweep-pairs.csv?sweep=first").data))
    assert pairs["makespan_ns"].min() == swept[1]["makespan_ns"].min()
    against = "against=network.bandwidth"
    front = pd.read_csv(BytesIO(client.get(f"/export/sweep-front.csv?sweep=first&{against}").data))
    assert front["makespan_ns"].is_monotonic_decreasing
    assert client.get("/export/sweep-secrets.csv?sweep=first").status_code == 404


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_charts_show_every_point_and_names_as_text(swept, scheme):
    points = sweeps.answered(swept[1]).assign(network="<b>a</b>" + "x" * 99)
    settings = ["network.bandwidth", "network"]
    lines = parallel_coordinates(points, settings, scheme)
    assert sum(np.isnan(np.array(trace.x, dtype=float)).sum() for trace in lines.data) == len(points)
    assert not any("<b>a</b>" in str(note.text) for note in lines.layout.annotations)
    marked = frontier_scatter(points.assign(best=True), settings, "network.bandwidth", scheme)
    assert "<b>a" not in str(marked.data[0].hovertext)
    matrix = sweeps.best_by(sweeps.answered(swept[1]), "network", "network.bandwidth")
    assert best_heat_map(matrix, scheme).data[0].z.shape == (2, 2)


TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)


@given(st.lists(st.one_of(st.floats(-1e9, 1e9), st.none(), TEXTS), min_size=1, max_size=60))
def test_any_column_becomes_an_axis(values):
    numbers = all(isinstance(value, float) or value is None for value in values)
    column = pd.Series(values, dtype="Float64" if numbers else "object")
    points = pd.DataFrame({"a": column, "makespan_ns": range(len(values))})
    for trace in parallel_coordinates(points, ["a"], "light").data:
        heights = np.array(trace.y, dtype=float)
        assert ((heights >= 0) & (heights <= 1) | np.isnan(heights)).all()
