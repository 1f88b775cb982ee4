"""The page Stragglers: who makes which recorded step slow, and what that step looked like."""

from __future__ import annotations

import numpy as np
import pytest

from chakrascope.converter.readers import read_operation_table
from chakrascope.errors import TraceFormatError
from chakrascope.runner import Study, clear_kept_traces, kept_traces, study_of_traces
from chakrascope.runner.analysis import find_stragglers, operations_of
from chakrascope.viewer import create_app
from chakrascope.viewer.queries import slowdown_matrix, step_operations, stragglers_of, worst_step

from .conftest import serving, watched


@pytest.fixture(scope="module")
def table(data_dir):
    return data_dir / "runner" / "stragglers" / "slow-worker.parquet"


@pytest.fixture
def study(tmp_path, table, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield study_of_traces([table])
    clear_kept_traces()


def test_the_map_has_the_slowdown_of_each_worker_and_step(table):
    found = find_stragglers(read_operation_table(table))
    matrix = slowdown_matrix(found)
    assert matrix.values.shape == (16, 2)
    assert matrix.rows[matrix.values[:, 0].argmax()] == "rank 0"
    assert matrix.values.max() + 1 == pytest.approx(found.slowdowns.by_worker.max())
    assert worst_step(found, "rank 0", matrix.columns[1]) == found.layout.steps[1]
    assert worst_step(found, "rank 1000", matrix.columns[1]) == -1


def test_a_cell_of_several_has_the_largest(table, monkeypatch):
    found = find_stragglers(read_operation_table(table))
    whole = slowdown_matrix(found).values
    monkeypatch.setattr("chakrascope.viewer.queries._stragglers._MOST_ROWS", 5)
    monkeypatch.setattr("chakrascope.viewer.queries._stragglers._MOST_COLUMNS", 1)
    matrix = slowdown_matrix(found)
    assert matrix.rows[:2] == ["ranks 0 to 8", "ranks 12 to 20"]
    assert matrix.columns == [f"steps {found.layout.steps[0]} to {found.layout.steps[1]}"]
    assert matrix.values[:, 0].tolist() == [part.max() for part in np.split(whole, [3, 6, 9, 12])]
    step = worst_step(found, matrix.rows[0], matrix.columns[0])
    assert step == found.layout.steps[whole[:3].max(axis=0).argmax()]


def test_a_step_starts_at_zero_and_has_its_slowest_worker_last(table):
    found = find_stragglers(read_operation_table(table))
    operations = step_operations(found, int(found.layout.steps[0]))
    assert operations["start_ns"].min() == 0
    assert operations["rank"].nunique() == 16
    assert operations["rank"].iloc[-1] == 0
    assert step_operations(found, 10**9).empty


def test_a_table_is_a_study_without_runs(study, table):
    assert study.runs() == []
    assert study_of_traces([table]).path == study.path
    assert operations_of(study.path).columns["row"].size == read_operation_table(table).columns["row"].size
    assert stragglers_of(study) is stragglers_of(study)


def test_a_damaged_table_is_refused_before_it_is_cached(study, table, tmp_path):
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(table.read_bytes()[:300])
    with pytest.raises(TraceFormatError, match="cannot be read as a table"):
        study_of_traces([cut])
    assert [path.name for path, _ in kept_traces()] == [study.path.name]


def test_a_study_without_recorded_steps_has_none(tmp_path):
    assert stragglers_of(Study.create(tmp_path / "study")) is None


@pytest.mark.browser
def test_a_selected_cell_shows_its_step(study, context):
    with serving(create_app(study)) as address:
        page = watched(context)
        page.goto(address)
        page.click("#notice >> text=Stragglers")
        page.wait_for_selector("text=Stragglers make the job 1.975 times as slow")
        page.wait_for_selector("#straggler-map .heatmaplayer image", state="attached")
        page.wait_for_selector("#stragglers-steps-table .ag-row")
        column = slowdown_matrix(stragglers_of(study)).columns[1]
        clicked = f"{{clickData: {{points: [{{x: '{column}', y: 'rank 0'}}]}}}}"
        page.evaluate(f"window.dash_clientside.set_props('straggler-map', {clicked})")
        page.wait_for_url(f"**/stragglers?*step={column.removeprefix('step ')}*")
        page.wait_for_selector(f"#straggler-step :text-is('{column.capitalize()}')")
        assert page.complaints == []
        page.close()
