"""Pages that compare: runs, steps before and after, changes, operators and stragglers."""

import dataclasses
import re
import threading

import numpy as np
import pandas as pd
import pytest
from studies import make_workload, run_in, study_of

from chakrascope.converter import Graph, NodeType, Workload, convert_files
from chakrascope.converter.readers import read_operation_table
from chakrascope.errors import Cancelled, ConfigError, TraceFormatError
from chakrascope.runner import Study, cached_traces, clear_cached_traces, study_of_traces
from chakrascope.runner.analysis import (
    TABLES,
    analyse_run,
    find_stragglers,
    joined_operators,
    longest_call,
    operations_of,
    rank_differences,
    roofline_points,
    rooflines,
)
from chakrascope.support import duration_text, share_text
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.charts import roofline_scatter, step_bars
from chakrascope.viewer.pages import _compare as page_compare
from chakrascope.viewer.pages import _diff as page_diff
from chakrascope.viewer.pages import _parts, _summary
from chakrascope.viewer.queries import (
    Reading,
    Sides,
    _sides,
    slowdown_matrix,
    step_operations,
    stragglers_of,
    worst_step,
)

from .conftest import control, serving

BACKENDS = ("analytical-unaware", "analytical-aware")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A study of one workload on one network, by both analytical backends."""
    study = Study.create(tmp_path_factory.mktemp("pair") / "study")
    return study, [run_in(study, make_workload(8), "cpu-cluster-8", backend=each) for each in BACKENDS]


def test_the_page_stands_before_any_other_run_is_read(pair, monkeypatch):
    study, (base, other) = pair
    view = StudyView(study)
    run = view.open(base)
    opened = []
    monkeypatch.setattr(StudyView, "open", lambda _view, run_id: opened.append(run_id))
    laid_out = str(page_compare.layout(run, Selection.parse(f"?against={other}"), "light"))
    assert "Reading the other runs" in laid_out
    assert opened == []


@pytest.mark.browser
def test_both_analytical_backends_differ_by_hops_and_the_page_says_so(pair, page, monkeypatch):
    study, (base, other) = pair
    going_on, real = threading.Event(), page_compare.difference_of_runs

    def slow(*runs_and_progress):
        runs_and_progress[2](1, 2)
        going_on.wait()
        return real(*runs_and_progress)

    def check_settings_and_reasons():
        differing = page.locator("#configurations tbody tr")
        differing.first.wait_for()
        assert differing.all_inner_texts() == ["backend\tanalytical-unaware\tanalytical-aware"]
        page.get_by_text("settings alike").click()
        page.get_by_role("cell", name="dimension 1: bandwidth").wait_for()
        answer = page.locator("#compare-answer").inner_text()
        assert re.fullmatch(r"analytical-unaware on .+: .+; analytical-aware on .+: .+ \(\+.+ %\)\.", answer)
        page.wait_for_selector("#backend-reasons:has-text('stores and forwards whole messages')")
        page.wait_for_selector(
            "#collective-differences-table [col-id=why]:has-text('both hops of the switch')"
        )

    page.emulate_media(color_scheme="light")
    with serving(create_app(study)) as address:
        page.goto(f"{address}/compare?run={base}&against={other}")
        check_settings_and_reasons()
        # The contribution of each setting is simulated with progress, and can be cancelled.
        with monkeypatch.context() as patch:
            patch.setattr(page_compare, "difference_of_runs", slow)
            page.locator("#causes-go").click()
            page.wait_for_selector("#causes-text:has-text('1 of at most 2 simulations done')")
            page.locator("#causes-cancel").click()
            page.wait_for_selector("#causes-cancel[data-asked]", state="attached")
            going_on.set()
            page.wait_for_selector("#causes-answer:has-text('cancelled')")
            assert page.locator("#causes-text").is_hidden()
        # Here the backend is the only setting that differs.
        page.locator("#causes-go").click()
        added = page.locator("#causes-table .ag-center-cols-container .ag-row")
        added.first.wait_for()
        delta = duration_text(_makespan(study, other) - _makespan(study, base))
        answer = ["\n".join(["backend", *BACKENDS, f"+{delta}", f"+{delta}"])]
        assert added.all_inner_texts() == answer
        # The address contains the result, and dark pages show the same text.
        page.wait_for_url(f"**why={other}*")
        page.emulate_media(color_scheme="dark")
        page.reload()
        page.wait_for_selector("html[data-mantine-color-scheme='dark']")
        added.first.wait_for()
        assert added.all_inner_texts() == answer
        check_settings_and_reasons()
        # The charts above the table move it down while they load, so a click may miss it.
        row = page.locator("#node-differences-table .ag-row[row-index='0'] [col-id='name']")
        while not re.search(r"rank=\d&node=\d+&against=", page.url):
            row.click()
            page.wait_for_timeout(500)


def test_the_page_begins_with_a_run_of_the_same_workload(pair):
    study, (base, other) = pair
    run_in(study, make_workload(2), workload="newer")
    view = StudyView(study)
    assert page_compare._against(view, view.open(base), Selection()) == [other]


def _makespan(study, run_id):
    return study.run_info(run_id).makespan_ns


def test_slow_runs_are_simulated_at_a_click_but_not_by_an_address(pair, monkeypatch):
    study, (base, other) = pair
    run, against = (StudyView(study).open(each) for each in (base, other))
    asks = Selection.parse(f"?why={other}")
    (quick,) = page_compare._causes_card(run, against, asks)
    traits = dataclasses.replace(page_compare.about_backend(BACKENDS[0]), quick=False)
    monkeypatch.setattr(page_compare, "about_backend", lambda _name: traits)
    (slow,) = page_compare._causes_card(run, against, asks)
    assert "n_clicks=1" in str(quick)
    assert "n_clicks=0" in str(slow)
    assert f"--why --run {base} --run {other}" in str(slow)


def test_inaccurate_simulation_names_the_difference(tmp_path):
    study = study_of(tmp_path, make_workload(2))
    (measured,) = (info.id for info in study.runs())
    simulated = run_in(study, make_workload(2), "cpu-cluster-2")
    ranks = rank_differences(study.result(measured), study.result(simulated))
    excess_ns = ranks["exposed_comm_ns_other"] - ranks["exposed_comm_ns_base"]
    delta = (_makespan(study, simulated) - _makespan(study, measured)) / _makespan(study, measured)
    view = StudyView(study)
    text = str(_summary._deviation(view.open(simulated), "light"))
    assert f"{share_text(delta)} longer than the measured step" in text
    worst = f"{duration_text(int(excess_ns.max()))} more on rank {ranks['rank'][excess_ns.idxmax()]}"
    assert f"most in exposed communication: {worst}" in text
    # The largest of the six messages.
    assert "all_reduce 5 differs most" in text
    assert f"/compare?run={simulated}&against={measured}" in text
    assert _summary._deviation(view.open(measured), "light") is None


# The Diff page in a real browser: the address contains the selection, and no request leaves the machine.


@pytest.mark.browser
def test_missing_side_is_an_error(visit):
    page = visit("/diff", "?before=%40nonsense&after=elsewhere%40all")
    page.wait_for_selector("#diff-error:has-text('nonsense')")


@pytest.mark.browser
@pytest.mark.parametrize("is_open", [True, False])
def test_ctrl_enter_in_a_select_leaves_its_list_closed(visit, is_open):
    page = visit("/diff", "?before=%40nonsense&after=elsewhere%40all")
    page.wait_for_selector("#diff-error")
    page.locator("#diff-before").focus()
    page.wait_for_selector("[role=option] >> visible=true")
    if not is_open:
        page.keyboard.press("Escape")
        page.wait_for_selector("[role=option]", state="hidden")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#diff-result:has-text('Choose two sides')")
    assert page.locator("[role=option] >> visible=true").count() == 0


def test_reading_shows_progress_and_can_be_cancelled():
    reading = Reading()
    assert (reading.of(0).share, reading.text) == (0.0, "Before: looking for its steps.")
    reading.step(1, 4)
    reading.rank(1, 2)
    assert (reading.share, reading.text) == (
        0.1875,
        "Before: 1 of 4 steps read; the next step: 1 of 2 ranks",
    )
    reading.of(1).step(1, 1)
    assert (reading.share, reading.text) == (1.0, "After: 1 of 1 step read")
    reading.is_cancelled = True
    with pytest.raises(Cancelled):
        reading.rank(1, 2)


@pytest.mark.browser
def test_reading_is_shown_while_it_lasts_and_cancelled(page, made, monkeypatch):
    going_on, real = threading.Event(), _sides.side_of

    def slow(*arguments, progress, ranks, **more):
        progress(1, 4)
        going_on.wait()
        progress(2, 4)
        return real(*arguments, progress=progress, ranks=ranks, **more)

    monkeypatch.setattr(_sides, "side_of", slow)
    # A new server, so that nothing of the sides is cached.
    with serving(create_app(made.study)) as address:
        page.goto(f"{address}/diff?before=%40{made.run_b}&after=%40{made.run_a}&by=phase")
        page.wait_for_selector("#diff-text:has-text('Before: 1 of 4 steps read')")
        assert page.locator(control("by")).input_value() == "phase"
        page.locator("#diff-cancel").click()
        page.wait_for_selector("#diff-cancel[data-asked]", state="attached")
        going_on.set()
        page.wait_for_selector("#diff-result:has-text('cancelled')")
        assert page.locator("#diff-text").is_hidden()
        page.locator("#diff-go").click()
        page.wait_for_selector("#diff-headline:has-text('The step takes')")


# What-ifs of the Critical path page.


@pytest.mark.browser
def test_question_is_answered_on_the_page(visit, made):
    page = visit("/critical-path", f"?run={made.run_a}")
    page.locator("#what-if-go").click()
    page.wait_for_selector("#what-if-answer:has-text('the step takes 3.52 ms instead of 4.92 ms')")
    page.locator("#what-if-all").click()
    page.wait_for_selector("#what-if-table .ag-cell:has-text('operator aten::mm')")
    page.wait_for_url("**change=operator**")
    for text in ("0", "fast"):
        page.locator(control("times")).fill(text)
        page.wait_for_selector("#what-if-answer:has-text('No answer: Times as fast')")
        page.wait_for_selector("#what-if-go[disabled]")
        page.wait_for_selector(control("times") + "[aria-invalid=true]")
        assert page.locator(control("times")).input_value() == text
    page.locator(control("times")).fill("0.5")
    page.wait_for_selector("#what-if-go:not([disabled])")
    page.wait_for_url("**times=0.5*")
    page.wait_for_function("() => !document.getElementById('what-if-answer').innerText")


@pytest.mark.browser
def test_selected_node_offers_its_waits(visit, made):
    page = visit("/critical-path", f"?run={made.run_b}&rank=1&node=4&change=edge%3A1%2F3-4")
    page.locator("#what-if-go").click()
    page.wait_for_selector("#what-if-answer:has-text('node 4 of rank 1 without waiting for node 3')")
    page.wait_for_selector("#slack-table .ag-row")


def test_more_than_the_five_largest_can_be_asked(run):
    names = [f"layers.{layer}" for layer in range(6)]
    assert {target.name for target in run.changes() if target.what == "module"} == set(names)


# The Operators page: a roofline with a point per operator, which leads to the timeline.


@pytest.fixture(scope="module")
def bert(tmp_path_factory, data_dir):
    program = convert_files(None, str(data_dir / "converter/kineto/bert_small_h100.json.gz"), None)
    return study_of(tmp_path_factory.mktemp("operators"), program)


def test_roofline_points_are_below_the_roof_with_area_by_time(bert):
    run = analyse_run(bert)
    points = roofline_points(joined_operators(TABLES["operators"](run)))
    (roof,) = rooflines(points)
    assert roof.peaks == {"bf16": pytest.approx(989.4), "fp32": pytest.approx(67)}
    roofs = points["intensity"] * roof.tb_per_s
    assert (points["tflops_per_s"] <= roofs.clip(upper=roof.peaks["bf16"])).all()
    assert points["tflops_per_s"].tolist() == pytest.approx(
        (points["intensity"] * points["tb_per_s"]).tolist()
    )
    for scheme in ("light", "dark"):
        figure = roofline_scatter(points, [roof], scheme)
        drawn = figure.data[0]
        end = np.log10(max(max(trace.x) for trace in figure.data))
        assert all(label.x < end for label in figure.layout.annotations)
        assert len(drawn.x) == len(points)
        assert max(drawn.marker.size) / sorted(drawn.marker.size)[-2] == pytest.approx(
            (points["time_ns"].max() / points["time_ns"].nlargest(2).iloc[1]) ** 0.5
        )


def test_the_longest_call_has_the_size_of_its_point(bert):
    run = analyse_run(bert)
    points = roofline_points(joined_operators(TABLES["operators"](run)))
    large = points[points["operator"] == "aten::addmm"].nlargest(1, "size_bytes").iloc[0]
    rank, node = longest_call(run.workload, "aten::addmm", int(large["size_bytes"]))
    found = run.workload.graph_of(rank).nodes.set_index("node_id").loc[node]
    assert found["tensor_size_bytes"] == large["size_bytes"]
    assert longest_call(run.workload, "aten::none", 1) == (-1, -1)


@pytest.mark.browser
def test_a_selected_point_opens_the_timeline(bert, page):
    with serving(create_app(bert)) as address:
        page.goto(f"{address}/operators")
        page.wait_for_selector("#roofline .js-plotly-plot .scatterlayer .point", state="attached")
        page.wait_for_selector("#operators-table .ag-row")
        page.evaluate(
            "window.dash_clientside.set_props('roofline', {clickData: {points: [{customdata: 0}]}})"
        )
        page.wait_for_url("**/timeline?*node=*")
        page.wait_for_selector("#timeline[data-slices]")


# The Stragglers page: the straggler of each recorded step, and the operations of this step.


@pytest.fixture(scope="module")
def table(data_dir):
    return data_dir / "runner" / "stragglers" / "slow-worker.parquet"


@pytest.fixture
def table_study(tmp_path, table, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    yield study_of_traces([table])
    clear_cached_traces()


def test_the_map_has_the_slowdown_of_each_worker_and_step(table):
    found = find_stragglers(read_operation_table(table))
    matrix = slowdown_matrix(found)
    assert matrix.values.shape == (16, 2)
    assert matrix.rows[matrix.values[:, 0].argmax()] == "rank 0"
    assert matrix.values.max() + 1 == round(found.slowdowns.by_worker.max(), 2)
    assert worst_step(found, "rank 0", matrix.columns[1]) == found.layout.steps[1]
    assert worst_step(found, "rank 1000", matrix.columns[1]) == -1


def test_a_cell_of_several_has_the_largest(table, monkeypatch):
    found = find_stragglers(read_operation_table(table))
    whole = slowdown_matrix(found).values
    monkeypatch.setattr("chakrascope.viewer.queries._stragglers._MAX_ROWS", 5)
    monkeypatch.setattr("chakrascope.viewer.queries._stragglers._MAX_COLUMNS", 1)
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


def test_a_table_is_a_study_without_runs(table_study, table):
    assert table_study.runs() == []
    assert study_of_traces([table]).path == table_study.path
    assert (
        operations_of(table_study.path).columns["row"].size == read_operation_table(table).columns["row"].size
    )
    assert stragglers_of(table_study) is stragglers_of(table_study)


def test_a_damaged_table_is_refused_before_it_is_cached(table_study, table, tmp_path):
    cut = tmp_path / "cut.parquet"
    cut.write_bytes(table.read_bytes()[:300])
    with pytest.raises(TraceFormatError, match="cannot be read as a table"):
        study_of_traces([cut])
    assert [path.name for path, _ in cached_traces()] == [table_study.path.name]


def test_a_study_without_recorded_steps_has_none(tmp_path):
    assert stragglers_of(Study.create(tmp_path / "study")) is None


@pytest.mark.browser
def test_a_selected_cell_shows_its_step(table_study, page):
    with serving(create_app(table_study)) as address:
        page.goto(address)
        page.click("#notice >> text=Stragglers")
        page.wait_for_selector("text=Stragglers make the job 1.975 times as slow")
        page.wait_for_selector("#straggler-map .heatmaplayer image", state="attached")
        page.wait_for_selector("#stragglers-steps-table .ag-row")
        column = slowdown_matrix(stragglers_of(table_study)).columns[1]
        clicked = f"{{clickData: {{points: [{{x: '{column}', y: 'rank 0'}}]}}}}"
        page.evaluate(f"window.dash_clientside.set_props('straggler-map', {clicked})")
        page.wait_for_url(f"**/stragglers?*step={column.removeprefix('step ')}*")
        page.wait_for_selector(f"#straggler-step :text-is('{column.capitalize()}')")


def test_chart_without_values_is_left_out(run, simulated):
    nodes = page_compare.node_differences(run.result, simulated.result, run.nodes).assign(delta_ns=9)
    both, alone = (
        page_compare._nodes_card(run, simulated, nodes.assign(relative=relative), "light")
        for relative in (0.1, float("nan"))
    )
    assert [str(card).count("Graph(") for card in (both, alone)] == [2, 1]
    assert "The bars count" not in str(alone)


def test_column_without_values_is_left_out():
    rows = pd.DataFrame({"name": ["a", ""], "share": [float("nan")] * 2, "note": [""] * 2})
    columns = [{"field": name} for name in (*rows, "drawn")]
    assert [one["field"] for one in _parts._filled(columns, rows)] == ["name", "drawn"]


def test_longest_call_is_on_a_rank_with_calls_of_that_size():
    node = {
        "node_id": 0,
        "name": "aten::mm",
        "type": NodeType.COMP,
        "kind": "compute",
        "operator": "aten::mm",
    }
    graphs = tuple(
        Graph.build(rank, [node | {"duration_ns": 1_000 + rank, "tensor_size_bytes": size}], [])
        for rank, size in enumerate((64, 4_096))
    )
    kinds = [["aten::mm", "gemm", "fp32", f"[{size}]", 100, size, 0] for size in (64, 4_096)]
    operators = {"kinds": kinds, "ranks": {"0": [[0, 1, 1, 1_000]], "1": [[1, 1, 1, 1_001]]}}
    program = Workload(graphs, np.arange(2, dtype=np.int32), metadata={"operators": operators})
    assert longest_call(program, "aten::mm", 64) == (0, 0)
    assert longest_call(program, "aten::mm", 4_096) == (1, 0)


def test_workers_of_a_step_keep_their_order_if_some_read_no_input():
    rows = [(0, "input"), (0, "forward-compute"), (1, "forward-compute"), (2, "input")]
    operations = pd.DataFrame(rows, columns=["rank", "type"]).assign(start_ns=0, duration_ns=5)
    axis = step_bars(operations, "light").layout.yaxis
    assert list(axis.categoryarray) == ["rank 0", "rank 1", "rank 2"]


def test_a_run_is_not_compared_with_itself(pair):
    study, (base, other) = pair
    view = StudyView(study)
    assert page_compare._against(view, view.open(base), Selection.parse(f"?against={base}")) == [other]


def test_variation_of_starts_must_be_a_number():
    assert page_diff._share(" 5 %") == pytest.approx(0.05)
    assert page_diff._share("") is None
    with pytest.raises(ConfigError, match="Variation of starts: 'much' is not a number"):
        page_diff._share("much")


def test_a_diff_begins_with_the_measured_run(tmp_path):
    study = Study.create(tmp_path / "study")
    simulated = run_in(study, make_workload(2), "cpu-cluster-8", backend="analytical-aware")
    measured = run_in(study, make_workload(2))
    assert Sides(StudyView(study)).defaults() == (f"@{measured}", f"@{simulated}")
