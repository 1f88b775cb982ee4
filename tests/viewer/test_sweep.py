import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner import sweep
from chakrascope.viewer import create_app
from chakrascope.viewer.queries import sweeps

from .conftest import serving
from .studies import make_study


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("sweep") / "study").study
    over = {"network.bandwidth": [1.0, 5.0, 0.0], "network": ["cpu-cluster-2", "cpu-cluster-8"]}
    found = sweep(study, over, workers=0, keep=1, name="first")
    sweep(study, {"network.latency": [5, 50]}, network="cpu-cluster-2", workers=0, name="second")
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
    assert (matrix.rows, matrix.columns) == (["cpu-cluster-2", "cpu-cluster-8"], ["1.0", "5.0"])
    assert matrix.values.min() == points["makespan_ns"].iloc[0]


@given(st.lists(st.tuples(st.integers(1, 8), st.integers(1, 50)), min_size=1, max_size=40))
def test_frontier_holds_exactly_the_points_that_none_beats(pairs):
    points = pd.DataFrame(pairs, columns=["ranks", "makespan_ns"])
    marked = set(points[sweeps.frontier(points)].itertuples(index=False, name=None))
    beaten = {
        (ranks, time)
        for ranks, time in pairs
        if any(r <= ranks and t <= time and (r, t) != (ranks, time) for r, t in pairs)
    }
    assert marked == set(pairs) - beaten
    assert not np.isnan(sweeps.frontier(points)).any()


@pytest.mark.browser
def test_sweep_is_shown_and_its_best_run_opens(page, swept):
    with serving(create_app(swept[0])) as address:
        page.goto(f"{address}/sweep?sweep=first")
        page.wait_for_selector("#sweep-best:has-text('The shortest step is')")
        page.wait_for_selector("#sweep-table .ag-row[row-index='5']")
        page.get_by_role("link", name="Open this run").click()
        page.wait_for_selector("#headline")
        assert page.complaints == []
        assert page.foreign == []


def test_points_are_exported(swept):
    client = create_app(swept[0]).server.test_client()
    assert len(client.get("/export/sweep.csv?sweep=first").data.splitlines()) == 7
    assert client.get("/export/sweep.csv?sweep=../../runs").status_code == 404
