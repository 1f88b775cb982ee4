import zipfile
from io import BytesIO

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import make_study

from chakrascope.runner import Job, JobStore, NetworkConfig, Sweep, read_sweep, run_sweep
from chakrascope.runner.sweep import answered, best_by, point_label, setting_title
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.charts import best_heat_map, frontier_scatter, parallel_coordinates
from chakrascope.viewer.pages import _sweep as page_sweep

from .conftest import control, serving


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    study = make_study(tmp_path_factory.mktemp("sweep") / "study").study
    over = {"network.bandwidth": [1.0, 5.0, 0.0], "network": ["cpu-cluster-2", "cpu-cluster-8"]}
    found = run_sweep(study, over, workers=0, keep=1, name="first")
    run_sweep(study, {"network.latency": [5, 50]}, network="cpu-cluster-2", workers=0, name="second")
    return study, found.points


@pytest.mark.browser
def test_sweep_is_shown_and_its_best_run_opens(page, swept):
    with serving(create_app(swept[0])) as address:
        page.goto(f"{address}/sweep?sweep=first")
        page.wait_for_selector("#sweep-best:has-text('The shortest step is')")
        page.wait_for_selector("#sweep-table .ag-row[row-index='5']")
        assert page.locator("#sweep-table").count() == 1
        page.locator(control("pareto")).click()
        page.get_by_role("option", name="bandwidth").click()
        page.wait_for_url("**pareto=network.bandwidth*")
        page.reload()
        page.wait_for_selector(control("pareto") + "[value='bandwidth (GiB/s)']")
        page.get_by_role("link", name="Open this run").click()
        page.wait_for_selector("#headline")
        assert page.complaints == []
        assert page.foreign == []


@pytest.mark.browser
def test_a_point_is_opened_as_a_run(page, tmp_path):
    study = make_study(tmp_path / "study").study
    run_sweep(study, {"network.bandwidth": [1.0, 5.0]}, network="cpu-cluster-2", workers=0, name="s")
    with serving(create_app(study)) as address:
        page.goto(f"{address}/sweep?sweep=s")
        page.locator("#sweep-table .ag-row[row-index='1'] [col-id='ranks']").click()
        page.get_by_role("button", name="Simulate it as a run").click()
        page.get_by_role("link", name="Open the result").click()
        page.wait_for_selector("#headline")
        page.wait_for_function("() => document.title.includes('bandwidth 1 GiB/s')")
        page.go_back()
        page.locator("#sweep-table .ag-row[row-index='1'] [col-id='ranks']").click()
        page.locator("#sweep-point").get_by_role("link", name="Open this run").click()
        page.wait_for_selector("#headline")
    assert page.complaints == []


def test_ties_are_not_called_the_shortest_alone(tmp_path):
    study = make_study(tmp_path / "study").study
    over = {"network.bandwidth": [1.0, 5.0], "system.peak-perf": [1, 2]}
    run_sweep(study, over, network="cpu-cluster-2", workers=0, name="s")
    drawn = str(page_sweep.layout(StudyView(study), Selection.parse("?sweep=s"), "light"))
    assert "with bandwidth 5 GiB/s, peak-perf 1 TFLOP/s; 1 other point is just as good" in drawn
    assert "just as good (differing in peak-perf)" in drawn
    assert "bandwidth (GiB/s)" in drawn


def test_settings_are_called_by_their_key():
    assert setting_title("system.all-reduce-implementation") == "all-reduce"
    assert setting_title("network.bandwidth[1]") == "bandwidth of dimension 2"
    assert setting_title("network.latency", unit=True) == "latency (ns)"
    assert point_label({"network.bandwidth": 1.5, "network": "x", "network.npus_count": 2}) == (
        "bandwidth 1.5 GiB/s, network x, size 2 ranks"
    )


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
    points = answered(swept[1]).assign(network="<b>a</b>" + "x" * 99)
    settings = ["network.bandwidth", "network"]
    lines = parallel_coordinates(points, settings, scheme)
    assert sum(np.isnan(np.array(trace.x, dtype=float)).sum() for trace in lines.data) == len(points)
    assert not any("<b>a</b>" in str(note.text) for note in lines.layout.annotations)
    marked = frontier_scatter(points.assign(best=True), settings, "network.bandwidth", scheme)
    assert "<b>a" not in str(marked.data[0].hovertext)
    matrix = best_by(answered(swept[1]), "network", "network.bandwidth")
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


@pytest.mark.parametrize(
    ("state", "total", "words"),
    [
        ("running", 59, "2 of 59 points so far: a better one may be among the others."),
        ("cancelled", 59, "been cancelled; started again, it goes on."),
        ("done", 59, "is under way on the command line; the same command goes on."),
        ("cancelled", 2, ""),
    ],
)
def test_an_answer_of_some_points_says_so(study, monkeypatch, state, total, words):
    facts = {"id": 1, "kind": "sweep", "label": "s", "state": state, "total": total}
    job = Job(**{name: facts.get(name, "") for name in Job.__dataclass_fields__})
    monkeypatch.setattr(JobStore, "jobs", lambda _store: [job])
    points = pd.DataFrame({"state": ["done", "done"]})
    told = page_sweep._unfinished(StudyView(study), Sweep("s", study.path, points, missing=total - 2))
    assert words in str(told)
    assert bool(words) == bool(told)


def test_a_sweep_in_a_notebook_names_its_settings_as_the_page_does(swept):
    found = read_sweep(swept[0], "second")
    assert "latency (ns)" in found._repr_html_()
    assert "network.latency" not in found._repr_html_()
    drawn = found.figure().svg
    assert "second: the best points by latency (ns)" in drawn
    assert drawn.count("<rect") == 2
