"""The page Runs, on a study of its own: these tests delete."""

import json

import pandas as pd
import pytest
from studies import HOSTILE, make_study, make_workload

from chakrascope.errors import StudyError
from chakrascope.runner import Study
from chakrascope.runner.study import run_table
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._theme import run_text

from .conftest import control, serving


@pytest.fixture
def own(tmp_path):
    return make_study(tmp_path / "study")


def test_label_cannot_turn_its_neighbours_round(own):
    own.study.annotate(own.run_b, label="\u202etxet \u2069")
    assert run_text(own.study.run_info(own.run_b)).startswith("\ufffdtxet \ufffd · 68.2 ms · 8 ranks")


def test_a_time_of_several_captured_steps_says_so(own):
    prefix = own.study.workload_prefix(own.study.run_info(own.run_b).workload)
    file = prefix.with_name(f"{prefix.name}.workload.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | {"steps": [4, 5, 6]}))
    info = own.study.run_info(own.run_b)
    assert info.steps == 3
    assert run_text(info).endswith("68.2 ms (3 steps) · 8 ranks")


def test_runs_held_open_follow_what_is_done_to_them(own):
    view = StudyView(own.study)
    run = view.open(own.run_a)
    view.annotate(own.run_a, "renamed", "")
    assert view.open(own.run_a) is run
    assert run.info.label == "renamed"
    view.delete(own.run_a)
    with pytest.raises(StudyError, match=f"no run '{own.run_a}'"):
        view.open(own.run_a)
    assert view.resolve("") == own.run_b


def test_runs_are_exported_with_their_notes(own):
    own.study.annotate(own.run_a, note=HOSTILE[:60])
    client = create_app(own.study).server.test_client()
    lines = client.get("/export/runs.csv").data.decode().splitlines()
    assert lines[0] == "id,label,backend,network,ranks,makespan_ns,steps,created,workload,tags,note"
    assert len(lines) == 3


def test_other_sites_cannot_delete(own):
    client = create_app(own.study).server.test_client()
    answer = client.post("/_dash-update-component", json={}, headers={"Origin": "http://evil.example"})
    assert answer.status_code == 403


def press(output, button, rows, *more):
    """Return what a browser sends when *button* is pressed while *rows* are ticked."""
    state = [{"id": "runs-table", "property": "selectedRows", "value": rows}, *more]
    return {
        "output": output,
        "inputs": [{"id": button, "property": "n_clicks", "value": 1}],
        "changedPropIds": [f"{button}.n_clicks"],
        "state": state,
    }


@pytest.mark.parametrize(
    "rows", [None, {}, "all", [1], [{"id": "../../traces"}], [{"id": ["a"]}], [{"id": None}], [{}]]
)
def test_server_deletes_only_runs_it_lists(own, rows):
    app = create_app(own.study)
    output = next(name for name in app.callback_map if "runs-table.selectedRows" in name)
    body = press(
        output,
        "runs-sure",
        rows,
        {"id": "run", "property": "data", "value": own.run_a},
        {"id": "url", "property": "search", "value": ""},
    )
    body["outputs"] = [
        {"id": part.rpartition(".")[0], "property": part.rpartition(".")[2]}
        for part in output.strip(".").split("...")
    ]
    answer = app.server.test_client().post("/_dash-update-component", json=body)
    assert answer.status_code == 200
    assert "notifications" not in answer.get_json().get("sideUpdate", {})
    assert len(own.study.runs()) == 2


@pytest.mark.browser
def test_runs_are_found_named_compared_and_deleted(page, own):
    with serving(create_app(own.study)) as address:
        page.goto(f"{address}/runs")
        page.wait_for_selector("#runs-table .ag-row[row-index='1']")
        rename(page, own.run_a, "<b>A100</b> \u202e", "for the customer")
        page.locator(control("find")).fill("customer")
        page.wait_for_selector(f"#runs-table .ag-row[row-id='{own.run_b}']", state="detached")
        page.wait_for_url("**find=customer*")
        page.reload()
        page.wait_for_selector(f"#runs-table .ag-row[row-id='{own.run_a}'] :text('<b>A100</b>')")
        page.wait_for_selector(f"#runs-table .ag-row[row-id='{own.run_a}'] :text('<i>new</i>')")
        page.locator(control("find")).fill("")
        tick(page, own.run_a)
        tick(page, own.run_b)
        page.locator("#runs-compare:not([disabled])").click()
        page.wait_for_url(f"**/compare?run={own.run_a}&against={own.run_b}")
        page.wait_for_selector("#overview-table .ag-row[row-index='1']")
        page.get_by_role("link", name="Runs", exact=True).click()
        delete(page, own.run_a)
        page.wait_for_url(f"**run={own.run_b}*")
        page.wait_for_selector(f"#runs-table .ag-row[row-id='{own.run_a}']", state="detached")
        page.locator(f"#runs-table .ag-row[row-id='{own.run_b}'] a").click()
        page.wait_for_selector("#headline")
        page.get_by_role("link", name="Runs", exact=True).click()
        delete(page, own.run_b)
        page.wait_for_selector("#page :text('This study has no run yet')")
        page.get_by_role("link", name="Make a run").click()
        page.wait_for_selector("#new-start")
    assert own.study.runs() == []
    assert page.complaints == []
    assert page.foreign == []


def tick(page, run_id):
    page.locator(f"#runs-table .ag-row[row-id='{run_id}'] input[type=checkbox]").click()


def rename(page, run_id, label, note):
    tick(page, run_id)
    page.locator("#runs-edit:not([disabled])").click()
    page.locator("#runs-label").fill(label)
    page.locator("#runs-tags").press_sequentially("<i>new</i>,")
    page.locator("#runs-note").fill(note)
    page.locator("#runs-save").click()
    page.wait_for_selector(f"#runs-table .ag-row[row-id='{run_id}'] :text('{note}')")
    page.wait_for_selector("#runs-editor", state="detached")


def delete(page, run_id):
    tick(page, run_id)
    page.locator("#runs-delete:not([disabled])").click()
    page.wait_for_selector("#runs-doomed :text('cannot be undone')")
    page.locator("#runs-sure").click()


@pytest.mark.browser
@pytest.mark.parametrize(("workload", "hint"), [(False, "chakrascope trace"), (True, "Make a run")])
def test_empty_study_says_what_to_do_next(page, tmp_path, workload, hint):
    study = Study.create(tmp_path / "study")
    if workload:
        study.add_workload(make_workload(), "w")
    with serving(create_app(study)) as address:
        page.goto(f"{address}/runs")
        page.wait_for_selector(f"#page :text('{hint}')")
    assert page.complaints == []


def test_label_of_any_length_is_cut_on_the_page_only(own):
    own.study.annotate(own.run_a, note="x" * Study.NOTE_LENGTH)
    assert run_table(own.study.runs())["note"].str.len().max() == Study.NOTE_LENGTH
    assert isinstance(run_table(own.study.runs()), pd.DataFrame)
