"""Sweeps on the page: the started sweep, and its display."""

import json
import zipfile
from io import BytesIO
from urllib.parse import quote

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import make_study, make_workload

from chakrascope.runner import (
    Job,
    JobStore,
    NetworkConfig,
    Sweep,
    communication_of,
    list_presets,
    read_sweep,
    run_sweep,
)
from chakrascope.runner.sweep import answered, best_by, point_label, setting_title
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.charts import best_heat_map, frontier_scatter, parallel_coordinates
from chakrascope.viewer.pages import _sweep as page_sweep
from chakrascope.viewer.pages._sweep_start import start_card
from chakrascope.viewer.queries import (
    Aim,
    Form,
    Setup,
    axis_names,
    decode_aim,
    decode_axes,
    differences,
    encode_aim,
    encode_axes,
    plan_of,
    request_of,
    suggested,
)
from chakrascope.viewer.queries._sweep_form import setup_at

from .conftest import control, tab_of

MANY = ",".join(map(str, range(1, 80)))
WORKLOAD = communication_of(make_workload(2))


def form_of(network="cpu-cluster-8", backends=("analytical-unaware",)):
    return Form("w", Setup.of_presets(network, "default"), backends)


@pytest.mark.parametrize("network", list_presets("network"))
def test_every_axis_has_values_to_begin_with_and_they_can_be_swept(network):
    form = form_of(network)
    for key in axis_names(form.setup):
        plan = plan_of(form, [(key, suggested(form.setup, key))], WORKLOAD)
        assert plan.points >= 2, (key, plan)
        for value in plan.over[key]:
            setup_at(form.setup, {key: value})


def test_plan_counts_points():
    axes = [("network.bandwidth", "1, 2, 4"), ("network.npus_count", "4, 8"), ("", "")]
    plan = plan_of(form_of(), axes, WORKLOAD)
    assert (plan.points, plan.problem, plan.note) == (6, "", "")
    assert plan.over == {"network.bandwidth": [1, 2, 4], "network.npus_count": [4, 8]}
    assert "33 % of them cannot run" in plan_of(form_of(), [("network.npus_count", "4, 7, 8")], WORKLOAD).note


@pytest.mark.parametrize(
    ("axes", "words"),
    [
        ([], "Choose a setting to vary"),
        ([("network.bandwidth", "fast")], "is not a bandwidth"),
        ([("network.bandwidth", "1..9")], "a range is for a search"),
        ([("network.bandwidth", "true")], "is not a number"),
        ([("network.bandwidth", "[1,2]")], "is not a number"),
        ([("network.bandwidth", "1"), ("network.bandwidth", "2")], "chosen twice"),
        ([("network", "/etc/passwd")], "choose from"),
        ([("network", "../net.yml")], "choose from"),
        ([("system.all-reduce-implementation", "rign")], "choose from"),
        ([("system.per-node-custom-implementation", "x")], "cannot be swept over here"),
        ([("network.npus_count", "3, 5")], "No point can run"),
        ([("network.bandwidth", MANY), ("network.latency", MANY)], "6,241 points"),
    ],
)  # fmt: skip
def test_invalid_axis_is_explained(axes, words):
    assert words in plan_of(form_of(), axes, WORKLOAD).problem


@given(
    st.text(max_size=60)
    | st.recursive(st.text(), lambda x: st.lists(x, max_size=6), max_leaves=9).map(json.dumps)
)
def test_address_that_means_nothing_is_no_axis(text):
    names = axis_names(form_of().setup)
    axes = decode_axes(text, names)
    assert decode_axes(encode_axes(axes), names) == [axis for axis in axes if any(axis)]


def test_changed_setup_is_what_the_sweep_starts_from():
    form = form_of("hgx-h100-4x8")
    plan = plan_of(form, [("network.bandwidth[1]", "10, 20")], WORKLOAD)
    assert request_of(form, plan, "s", 1).system == "default"
    changed = Form("w", setup_at(form.setup, {"system.endpoint-delay": 7}), ("packet",))
    assert differences(changed.setup)
    assert "network" not in axis_names(changed.setup)
    request = request_of(changed, plan, "s", 1)
    assert request.system["endpoint-delay"] == 7
    assert request.backend == "packet"
    request.arguments()


BANDWIDTHS = [("network.bandwidth", "1, 2, 4")]


@pytest.mark.parametrize(
    ("aim", "words"),
    [
        (Aim(limits="makespan_ns"), "'makespan_ns' is not a limit. Next: write it makespan_ns=5000000."),
        (Aim(limits="makespan_ns=nan"), "is not a limit"),
        (Aim(limits="makespn=5"), "'makespn' is not a column of a sweep"),
        (Aim(least="cost"), "The cost of a step needs prices"),
        (Aim(limits="cost=1"), "The cost of a step needs prices"),
        (Aim(prices="dear"), "'dear' is not a price"),
        (Aim(prices="-1"), "0 or more"),
        (Aim(prices="hgx-h100-8=3"), "No price is given for the network 'cpu-cluster-8'"),
        (Aim(prices="/etc/prices.yml"), "Price files can only be used on the command line"),
        (Aim(prices="x=../prices.yaml"), "Price files can only be used on the command line"),
    ],
)  # fmt: skip
def test_invalid_objective_has_the_error_of_the_command(aim, words):
    assert words in plan_of(form_of(), BANDWIDTHS, WORKLOAD, aim).problem


def test_aim_is_what_the_job_gets():
    aim = Aim("cost", "makespan_ns=5e6, ranks=8", "2.5, cpu-cluster-8=3")
    plan = plan_of(form_of(), BANDWIDTHS, WORKLOAD, aim)
    assert plan.problem == ""
    found = request_of(form_of(), plan, "s", 1).arguments()
    assert (found["least"], found["at_most"]) == ("cost", {"makespan_ns": 5e6, "ranks": 8})
    assert (found["prices"].every, found["prices"].of, found["trials"]) == (2.5, {"cpu-cluster-8": 3}, None)


def test_price_of_a_preset_is_that_of_a_changed_one():
    setup = setup_at(form_of().setup, {"network.latency": 7})
    plan = plan_of(Form("w", setup), BANDWIDTHS, WORKLOAD, Aim("cost", prices="cpu-cluster-8=3"))
    assert plan.problem == ""
    assert plan.prices.per_hour("cpu-cluster-8 (changed)") == 3
    every = [("network", "cpu-cluster-8, hgx-h100-8")]
    assert "'hgx-h100-8'" in plan_of(form_of(), every, WORKLOAD, Aim(prices="cpu-cluster-8=3")).problem


def test_search_takes_ranges():
    pytest.importorskip("optuna")
    axes = [("network.bandwidth", "1..40.5"), ("network.npus_count", "8, 16, 32, 64")]
    plan = plan_of(form_of(), axes, WORKLOAD, Aim(trials=30))
    assert (plan.points, plan.problem, plan.trials) == (30, "", 30)
    request = request_of(form_of(), plan, "s", 1)
    assert request.points == 30
    assert json.loads(request.to_json())["over"]["network.bandwidth"] == {"low": 1, "high": 40.5}
    assert request.arguments()["over"] == plan.over
    wrong = [("system.all-reduce-implementation", "1..2")]
    assert "choose from" in plan_of(form_of(), wrong, WORKLOAD, Aim(trials=3)).problem


@given(st.text(max_size=60) | st.recursive(st.text(), lambda x: st.lists(x, max_size=6)).map(json.dumps))
def test_address_that_means_nothing_is_no_aim(text):
    assert decode_aim(encode_aim(decode_aim(text))) == decode_aim(text)


@given(st.builds(Aim, st.sampled_from(["cost", "ranks"]), st.text(max_size=400), st.text(max_size=400),
                 st.integers(0, 5_000)))  # fmt: skip
def test_aim_comes_back_from_the_address(aim):
    assert decode_aim(encode_aim(aim)) == aim


@pytest.mark.parametrize(
    ("axes", "aim", "is_open"),
    [
        ((), Aim(), False),
        (BANDWIDTHS, Aim(), False),
        (BANDWIDTHS, Aim("cost", prices="2.5"), True),
        ([*BANDWIDTHS, ("network.npus_count", "4, 8")], Aim(), True),
    ],
)
def test_form_shows_one_setting_until_more_is_asked_for(study, axes, aim, is_open):
    setup = json.dumps({"network": "cpu-cluster-8"})
    asked = Selection().with_option("setup", setup).with_option("over", encode_axes(axes))
    drawn = start_card(StudyView(study), asked.with_option("aim", encode_aim(aim)))
    assert drawn["sweep-more"].open is is_open
    assert drawn["sweep-prices"].value == aim.prices
    assert "sweep-trials" in drawn["sweep-more"]
    assert "sweep-go" not in drawn["sweep-more"]


@pytest.fixture(scope="module")
def mine(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("start") / "study").study


@pytest.fixture(scope="module")
def swept(mine):
    """Sweep *mine* twice; return it and the points of the first sweep."""
    over = {"network.bandwidth": [1.0, 5.0, 0.0], "network": ["cpu-cluster-2", "cpu-cluster-8"]}
    found = run_sweep(mine, over, workers=0, keep=1, name="first")
    run_sweep(mine, {"network.latency": [5, 50]}, network="cpu-cluster-2", workers=0, name="second")
    return mine, found.points


@pytest.fixture(scope="module")
def tab(context, mine):
    with tab_of(context, create_app(mine)) as page:
        yield page


@pytest.mark.browser
def test_sweep_is_begun_followed_and_kept_in_the_address(visit):
    page = visit("/new-run", "?setup=" + quote(json.dumps({"network": "cpu-cluster-8"})))
    page.wait_for_selector("#new-start:not([disabled])")
    page.get_by_role("link", name="Sweep over its settings").click()
    page.wait_for_selector("#sweep-new :text('cpu-cluster-8')")
    choose_axis(page, 0, "Bandwidth (GiB/s)")
    page.wait_for_selector("#sweep-plan :text('4 points')")
    page.locator("#sweep-more > summary").click()
    choose_axis(page, 1, "Algorithm of all-reduce")
    page.wait_for_selector("#sweep-plan :text('16 points')")
    page.reload()
    page.wait_for_selector("#sweep-plan :text('16 points')")
    page.locator("#sweep-title").fill("../x")
    page.locator("#sweep-go").click()
    page.wait_for_selector("text=cannot name a sweep")
    page.locator("#sweep-title").fill("by hand")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector(".job:has-text('Sweep by hand')")
    visit("/sweep")
    page.wait_for_selector(".job:has-text('Sweep by hand'):has-text('has 16 points')")
    page.wait_for_selector("#sweep-best:has-text('The shortest step is')")
    page.wait_for_selector("#sweep-table .ag-row[row-index='7']")


@pytest.mark.browser
def test_search_for_the_least_cost_within_limits(visit, mine):
    pytest.importorskip("optuna")
    over = quote(json.dumps([["network.npus_count", "4, 8"], ["network.bandwidth", "1..64"]]))
    setup = quote(json.dumps({"network": "cpu-cluster-8"}))
    aim = quote(json.dumps({"trials": 5}))
    page = visit("/sweep", f"?setup={setup}&over={over}&aim={aim}")
    page.wait_for_selector("#sweep-plan :text('5 points of a search')")
    page.locator("#sweep-least").click()
    page.get_by_role("option", name="the least cost of a step", exact=True).click()
    page.wait_for_selector("#sweep-plan :text('needs prices')")
    assert page.locator("#sweep-go").is_disabled()
    page.locator("#sweep-prices").fill("2.5")
    page.locator("#sweep-limits").fill("ranks=4")
    page.locator("#sweep-limits").press("Enter")
    page.wait_for_selector("#sweep-plan :text('5 points of a search')")
    page.wait_for_url("**aim=*ranks*")
    page.locator("#sweep-title").fill("by cost")
    page.locator("#sweep-go").click()
    page.wait_for_selector(".job:has-text('Sweep by cost'):has-text('has 5 points')")
    page.wait_for_selector("#sweep-best:has-text('The least cost of a step within the limits')")
    page.wait_for_selector("#sweep-table .ag-header-cell[col-id='cost']")
    table = read_sweep(mine, "by cost").points
    assert table["cost"].notna().all()
    assert table["network.bandwidth"].between(1, 64).all()


@pytest.mark.browser
def test_points_added_while_others_were_drawn_are_drawn_too(visit, mine):
    """Responses arrive in any order: one that shows fewer points than are complete is not the last."""

    def swept(*bandwidths):
        run_sweep(mine, {"network.bandwidth": bandwidths}, network="cpu-cluster-8", name="grown", workers=0)

    swept(1, 2)
    page = visit("/sweep", "?sweep=grown")
    page.wait_for_selector("text=All 2 points")
    swept(1, 2, 3)
    page.evaluate("window.dash_clientside.set_props('sweep-stamp', {data: 'of fewer points'})")
    page.wait_for_selector("text=All 3 points")


@pytest.mark.browser
def test_running_sweep_is_cancelled(visit, mine):
    setup = {"backends": ["analytical-aware"], "dimensions": [["Ring", 256, 1.0, 500.0, *["ring"] * 4]]}
    over = [["network.bandwidth", ", ".join(map(str, range(1, 60)))]]
    query = f"setup={quote(json.dumps(setup))}&over={quote(json.dumps(over))}"
    page = visit("/sweep", f"?{query}")
    page.wait_for_selector("#sweep-go:not([disabled])")
    page.locator("#sweep-title").fill("too long")
    page.locator("#sweep-go").click()
    job = page.locator(".job:has-text('Sweep too long')")
    job.get_by_role("button", name="Cancel").click()
    page.wait_for_selector(".job:has-text('Sweep too long'):has-text('Cancelled')")
    assert not [job for job in JobStore(mine).jobs() if job.is_active]


def choose_axis(page, number, title):
    field = f'[id*=\'"field":"key"\'][id*=\'"number":{number}\']'
    page.locator(field).first.click()
    page.get_by_role("option", name=title, exact=True).click()


@pytest.mark.browser
def test_what_is_typed_into_the_sweep_is_never_changed(visit):
    over = quote(json.dumps([["network.bandwidth", "1,2"]]))
    page = visit("/sweep", f"?over={over}")
    page.wait_for_selector("#sweep-go:not([disabled])")
    page.locator("#sweep-more > summary").click()
    for field, text in (("keep", "-1"), ("trials", "2.5")):
        box = page.locator(f"#sweep-{field}")
        before = box.input_value()
        box.fill(text)
        page.keyboard.press("Tab")
        page.wait_for_selector("#sweep-go[disabled]")
        page.wait_for_selector(f"#sweep-{field}[aria-invalid=true]")
        assert box.input_value() == text
        box.fill(before)
        page.keyboard.press("Tab")
        page.wait_for_selector("#sweep-go:not([disabled])")
    values = page.get_by_label("Values, separated by commas").first
    values.fill("10 GB/s, 20 GB/s")
    page.keyboard.press("Tab")
    page.wait_for_selector(".understood:has-text('Understood as 9.31')")
    values.fill("10 GX/s")
    page.keyboard.press("Tab")
    page.wait_for_selector("#sweep-go[disabled]")


@pytest.mark.browser
@pytest.mark.usefixtures("swept")
def test_sweep_is_shown_and_its_best_run_opens(visit):
    page = visit("/sweep", "?sweep=first")
    page.wait_for_selector("#sweep-best:has-text('The shortest step is')")
    page.wait_for_selector("#sweep-table .ag-row[row-index='5']")
    assert page.locator("#sweep-table").count() == 1
    page.locator(control("pareto")).click()
    page.get_by_role("option", name="bandwidth").click()
    page.wait_for_url("**pareto=network.bandwidth*")
    page.get_by_role("link", name="Open this run").click()
    page.wait_for_selector("#headline")


@pytest.mark.browser
@pytest.mark.usefixtures("swept")
def test_a_point_is_opened_as_a_run(visit):
    page = visit("/sweep", "?sweep=second")
    page.locator("#sweep-table .ag-row[row-index='1'] [col-id='ranks']").click()
    page.get_by_role("button", name="Simulate it as a run").click()
    page.get_by_role("link", name="Open the result").click()
    page.wait_for_selector("#headline")
    page.wait_for_function("() => document.title.includes('latency 50 ns')")
    page.go_back()
    page.locator("#sweep-table .ag-row[row-index='1'] [col-id='ranks']").click()
    page.locator("#sweep-point").get_by_role("link", name="Open this run").click()
    page.wait_for_selector("#headline")


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
        ("running", 59, "2 of 59 points so far; a better point may be among the others."),
        ("cancelled", 59, "been cancelled; start it again to resume."),
        ("done", 59, "is running on the command line; the same command resumes it."),
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


def test_notebook_and_page_name_settings_equally(swept):
    found = read_sweep(swept[0], "second")
    assert "latency (ns)" in found._repr_html_()
    assert "network.latency" not in found._repr_html_()
    drawn = found.figure().svg
    assert "second: the best points by latency (ns)" in drawn
    assert drawn.count("<rect") == 2
