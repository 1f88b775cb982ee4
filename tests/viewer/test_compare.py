"""The page Compare: what the runs were configured with, and why their answers differ."""

from __future__ import annotations

import dataclasses
import threading

import pytest
from studies import make_workload

from chakrascope.runner import Study, get_backend, prepare
from chakrascope.support import duration_text
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _compare as page_compare

from .conftest import serving

BACKENDS = ("analytical-unaware", "analytical-aware")


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A study of one workload on one network, by both analytical backends."""
    study = Study.create(tmp_path_factory.mktemp("pair") / "study")
    prefix = study.add_workload(make_workload(8), "job")
    ids = []
    for backend in BACKENDS:
        experiment = prepare(prefix, "default", "cpu-cluster-8", backend=backend)
        ids.append(study.add_run(experiment, get_backend(backend).run(experiment), workload="job"))
    return study, ids


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
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_both_analytical_backends_differ_by_hops_and_the_page_says_so(context, pair, page, scheme):
    study, (base, other) = pair
    page.emulate_media(color_scheme=scheme)
    with serving(create_app(study)) as address:
        page.goto(f"{address}/compare?run={base}&against={other}")
        differing = page.locator("#configurations tbody tr")
        differing.first.wait_for()
        assert differing.all_inner_texts() == ["backend\tanalytical-unaware\tanalytical-aware"]
        page.get_by_text("settings alike").click()
        page.get_by_role("cell", name="dimension 1: bandwidth").wait_for()
        page.wait_for_selector("#backend-reasons:has-text('whole over one hop after the other')")
        page.wait_for_selector(
            "#collective-differences-table [col-id=why]:has-text('both hops of the switch')"
        )
        # What each setting adds: here the backend is the only one that differs.
        page.locator("#causes-go").click()
        added = page.locator("#causes-table .ag-center-cols-container .ag-row")
        added.first.wait_for()
        delta = duration_text(_makespan(study, other) - _makespan(study, base))
        answer = ["\n".join(["backend", *BACKENDS, f"+{delta}", f"+{delta}"])]
        assert added.all_inner_texts() == answer
        # The address has the answer.
        page.wait_for_url(f"**why={other}*")
        page.reload()
        added.first.wait_for()
        assert added.all_inner_texts() == answer
    assert page.complaints == []


def test_the_page_begins_with_a_run_of_the_same_workload(pair):
    study, (base, other) = pair
    prefix = study.add_workload(make_workload(2), "newer")
    experiment = prepare(prefix, "default", None, backend="replay")
    study.add_run(experiment, get_backend("replay").run(experiment), workload="newer")
    view = StudyView(study)
    assert page_compare._against(view, view.open(base), Selection()) == [other]


def _makespan(study, run_id):
    return study.run_info(run_id).makespan_ns


@pytest.mark.browser
def test_simulating_each_change_says_how_far_it_is_and_ends_when_asked(pair, page, monkeypatch):
    study, (base, other) = pair
    going_on, real = threading.Event(), page_compare.difference_of_runs

    def slow(*runs_and_progress):
        runs_and_progress[2](1, 2)
        going_on.wait()
        return real(*runs_and_progress)

    monkeypatch.setattr(page_compare, "difference_of_runs", slow)
    with serving(create_app(study)) as address:
        page.goto(f"{address}/compare?run={base}&against={other}")
        page.locator("#causes-go").click()
        page.wait_for_selector("#causes-text:has-text('1 of at most 2 simulations done')")
        page.locator("#causes-cancel").click()
        page.wait_for_selector("#causes-cancel[data-asked]", state="attached")
        going_on.set()
        page.wait_for_selector("#causes-answer:has-text('cancelled')")
        assert page.locator("#causes-text").is_hidden()
        page.locator("#causes-go").click()
        page.wait_for_selector("#causes-table .ag-row")
    assert page.complaints == []


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
