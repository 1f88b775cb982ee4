"""What the points of a sweep answer."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import make_study

from chakrascope.runner import run_sweep
from chakrascope.runner.sweep import (
    answered,
    best_by,
    more_is_cheaper,
    objectives,
    swept_settings,
    worth_their_cost,
)


@pytest.fixture(scope="module")
def points(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("sweep") / "study").study
    over = {"network.bandwidth": [1.0, 5.0, 0.0], "network": ["cpu-cluster-2", "cpu-cluster-8"]}
    return run_sweep(study, over, workers=0, name="first").points


def test_swept_settings_are_those_with_several_values(points):
    assert swept_settings(points) == ["network.bandwidth", "network"]
    assert swept_settings(points.assign(figure=range(6))) == ["network.bandwidth", "network"]


def test_failed_points_are_no_answers(points):
    done = answered(points)
    assert len(points) == 6
    assert len(done) == 4
    assert done["makespan_ns"].is_monotonic_increasing


def test_two_settings_give_the_shortest_step_of_each_pair(points):
    done = answered(points)
    matrix = best_by(done, "network", "network.bandwidth")
    assert (matrix.rows, matrix.columns) == (["cpu-cluster-2", "cpu-cluster-8"], ["1", "5"])
    assert matrix.values.min() == done["makespan_ns"].iloc[0]


def test_step_is_set_against_what_costs_something(points):
    done = answered(points)
    assert objectives(done) == ["ranks", "network.bandwidth", "rank_time_ns"]
    cheap = done[worth_their_cost(done, "network.bandwidth")]
    assert cheap["network.bandwidth"].tolist() == sorted(cheap["network.bandwidth"], reverse=True)
    assert more_is_cheaper("network.latency")
    delays = pd.DataFrame({"network.latency": [5, 50], "makespan_ns": [10, 12]})
    assert worth_their_cost(delays, "network.latency").tolist() == [True, True]


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
