"""The list of jobs: progress in the unit that moves, and buttons that stay where they are."""

from __future__ import annotations

import time

import pytest
from studies import make_study

from chakrascope.runner import Job, JobStore
from chakrascope.viewer import create_app
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _jobs
from chakrascope.viewer.queries import Form, Setup, decode_form

from .conftest import serving


def job(**changes):
    facts = {"id": 1, "kind": "simulation", "experiment": "abc", "label": "", "workload": "w",
             "backend": "flow", "network": "n", "state": "running", "total": 8192,
             "created": 1.0, "started": 1.0, "message": ""}  # fmt: skip
    known = Job.__dataclass_fields__
    return Job(**{name: (facts | changes).get(name, 0) for name in known})


@pytest.mark.parametrize(
    ("changes", "length_ns", "share", "words"),
    [
        ({"simulated_ns": 400}, 1000, 0.4, "so far (the workload's newest run takes 1.00 µs)"),
        ({"simulated_ns": 9000}, 1000, 0.98, "9.00 µs simulated so far"),
        ({"simulated_ns": 400}, 0, 0.0, "400 ns simulated so far, 0 of 8,192 ranks finished"),
        ({"simulated_ns": 400, "done": 8192}, 1000, 1.0, "8,192 of 8,192"),
        ({"kind": "sweep", "total": 4, "done": 1}, 1000, 0.25, "1 of 4 points done"),
        ({"total": 0}, 1000, 0.0, "Starting."),
        ({"state": "queued"}, 1000, 0.0, "Waiting for its turn"),
    ],
)  # fmt: skip
def test_progress_is_in_the_unit_that_moves(changes, length_ns, share, words):
    found, told = _jobs._progress(job(**changes), length_ns)
    assert found == pytest.approx(share)
    assert told.startswith(words) or words in told


def test_a_job_whose_figures_stand_still_says_how_long_it_works(monkeypatch):
    monkeypatch.setattr(_jobs.time, "time", lambda: 75.5)
    assert _jobs._lasted(job(kind="sweep")) == "74 s so far"
    assert _jobs._lasted(job(kind="sweep", ended=3.5)) == "2.50 s"
    assert _jobs._lasted(job(started=0)) == ""


def test_an_import_leads_to_a_form_of_what_it_made():
    message = "It is now the workload 'imported-2'."
    (link,) = _jobs._result(job(kind="import", state="done", message=message, workload="imported"), set())
    text = Selection.parse(link.href.partition("?")[2]).option("setup")
    begun = Form("job", Setup.of_presets("hgx-h100-2x8", "direct"))
    form = decode_form(text, ["imported-2", "job"], begun=begun)
    assert form.workload == "imported-2"
    assert form.setup.network_preset != "hgx-h100-2x8"


@pytest.mark.browser
def test_a_button_keeps_the_focus_while_its_job_goes_on(page, tmp_path, monkeypatch):
    study = make_study(tmp_path / "study").study
    listed = [job(), job(id=2, state="queued")]
    monkeypatch.setattr(JobStore, "resume", lambda _store: None)
    monkeypatch.setattr(JobStore, "jobs", lambda _store: list(listed))
    with serving(create_app(study)) as address:
        page.goto(f"{address}/new-run")
        page.get_by_role("button", name="Cancel of job 1").focus()
        page.evaluate("document.activeElement.dataset.mark = 'same'")
        for step in (1_000, 2_000_000):
            listed[0] = job(simulated_ns=step)
            page.wait_for_selector(
                f"#job-list:has-text('{'1.00 µs' if step == 1_000 else '2.00 ms'} simulated')"
            )
        # The very same element, not one drawn anew.
        assert page.evaluate("document.activeElement.dataset.mark") == "same"
        listed.append(job(id=3, state="queued"))
        page.get_by_role("button", name="Cancel of job 3").wait_for()
        time.sleep(0.2)
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Cancel of job 1"
    assert page.complaints == []
