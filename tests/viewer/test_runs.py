"""Lists of studies, runs and jobs, and actions on their entries."""

import json
import shutil
import time
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from studies import HOSTILE, make_captured_study, make_study, make_workload, run_in
from werkzeug.test import Client

from chakrascope.errors import StudyError
from chakrascope.runner import Job, JobStore, Study, Workspace, describe_study, find_items
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._access import require_token
from chakrascope.viewer._server import Site
from chakrascope.viewer._state import Selection, Surroundings
from chakrascope.viewer._theme import run_text
from chakrascope.viewer.pages import _imports as page_module
from chakrascope.viewer.pages import _jobs, _runs
from chakrascope.viewer.queries import Form, Setup, decode_form

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


def test_open_runs_follow_changes(own):
    view = StudyView(own.study)
    run = view.open(own.run_a)
    view.annotate(own.run_a, "renamed", "")
    assert view.open(own.run_a) is run
    assert run.info.label == "renamed"
    view.delete(own.run_a)
    with pytest.raises(StudyError, match=f"no run '{own.run_a}'"):
        view.open(own.run_a)
    assert view.resolve("") == own.run_b


@pytest.fixture
def unreplayed(tmp_path, data_dir):
    """Return a study of a capture that was simulated, but never replayed."""
    study, replay = make_captured_study(tmp_path, data_dir)
    study.delete_run(replay)
    run_in(study, study.workload("mlp"), "cpu-cluster-8", backend="analytical-aware", workload="mlp")
    return study


def test_a_capture_is_replayed_once_and_is_the_default(unreplayed):
    (simulated,) = unreplayed.runs()
    view = StudyView(unreplayed)
    replay = view.resolve("")
    assert unreplayed.default_run().id == replay != simulated.id
    assert unreplayed.run_info(replay).backend == "replay"
    view.delete(replay)
    assert view.resolve("") == simulated.id


def test_a_study_that_cannot_be_written_to_is_not_replayed(unreplayed, monkeypatch):
    monkeypatch.setattr("os.access", lambda *_: False)
    (simulated,) = unreplayed.runs()
    assert StudyView(unreplayed).resolve("") == simulated.id


def test_the_list_of_runs_marks_the_default(unreplayed):
    view = StudyView(unreplayed)
    view.resolve("")
    rows = _runs._rows(view)
    assert rows.loc[rows["default"], "label"].tolist() == ["measured (replay)"]


def test_step_times_are_in_sight_in_a_narrow_window():
    names = [each["field"] for each in _runs._COLUMNS]
    left = _runs._COLUMNS[: names.index("makespan_ns") + 1]
    assert sum(each["minWidth"] for each in left) < 400


def test_runs_are_exported_with_their_notes(own):
    own.study.annotate(own.run_a, note=HOSTILE[:60])
    client = create_app(own.study).server.test_client()
    lines = client.get("/export/runs.csv").data.decode().splitlines()
    assert lines[0] == "id,label,backend,network,ranks,makespan_ns,steps,created,workload,tags,note"
    assert len(lines) == 3


def test_server_deletes_only_runs_it_lists(own):
    app = create_app(own.study)
    client = app.server.test_client()
    output = next(name for name in app.callback_map if "runs-table.selectedRows" in name)
    body = {
        "output": output,
        "outputs": [
            {"id": part.rpartition(".")[0], "property": part.rpartition(".")[2]}
            for part in output.strip(".").split("...")
        ],
        "inputs": [{"id": "runs-sure", "property": "n_clicks", "value": 1}],
        "changedPropIds": ["runs-sure.n_clicks"],
    }
    others = [
        {"id": "run", "property": "data", "value": own.run_a},
        {"id": "url", "property": "search", "value": ""},
    ]
    for rows in (None, {}, "all", [1], [{"id": "../../traces"}], [{"id": ["a"]}], [{"id": None}], [{}]):
        ticked = {"id": "runs-table", "property": "selectedRows", "value": rows}
        answer = client.post("/_dash-update-component", json=body | {"state": [ticked, *others]})
        if rows in ("all", [1]):  # no rows of a table
            assert answer.status_code == 400
        else:
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
        delete(page, own.run_b)
        page.wait_for_selector("#page :text('This study has no run yet')")
        page.get_by_role("link", name="Make a run").click()
        page.wait_for_selector("#new-start")
    assert own.study.runs() == []


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
    page.wait_for_selector("#runs-to-delete :text('cannot be undone')")
    page.locator("#runs-sure").click()


# Several studies on one server: listed, described, created, opened, and kept separate.

STUDIES_HOSTILE = '<img src=x onerror="alert(1)"> \u202eevil %2e%2e & 日本'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("studies")
    made = make_study(root / "one")
    shutil.copytree(made.study.path, root / STUDIES_HOSTILE)
    describe_study(Study.open(root / "one"), note="<b>bold</b>" + "y" * 3_000, tags=["<i>x</i>"])
    return root


@contextmanager
def site(folder):
    with serving(SimpleNamespace(server=Site(Workspace(folder)))) as address:
        yield address


def test_each_study_answers_below_its_own_path(folder):
    client = Client(Site(Workspace(folder)))
    for name in ("one", STUDIES_HOSTILE):
        answer = client.get(f"/study/{name.replace('%', '%25')}/export/runs.csv")
        assert (answer.status_code, len(answer.text.splitlines())) == (200, 3)
    assert b"Chakrascope" in client.get("/study/absent/runs").data
    assert client.get("/study/absent/export/runs.csv").status_code == 404
    listed = client.get("/export/studies.csv").text.splitlines()
    assert listed[0].startswith("name,tags,workloads")
    assert len(listed) == 3


@pytest.mark.parametrize("path", ["/study/../one/", "/study/..%2f..%2fetc/export/runs.csv", "/study//runs"])
def test_name_of_a_study_is_no_path(folder, path):
    assert b"makespan_ns" not in Client(Site(Workspace(folder / ".."))).get(path).data


def test_every_study_asks_for_the_token(folder):
    client = Client(Site(Workspace(folder), guard=lambda server: require_token(server, "secret")))
    assert client.get("/study/one/export/runs.csv").status_code == 403
    assert client.get("/export/studies.csv").status_code == 403
    answer = client.get("/study/one/runs?token=secret&run=7")
    assert answer.headers["Location"] == "/study/one/runs?run=7"
    assert client.get("/study/one/export/runs.csv").status_code == 200
    assert client.get("/").status_code == 200


@pytest.mark.browser
def test_studies_are_found_opened_and_switched(page, folder):
    with site(folder) as address:
        page.goto(address)
        page.wait_for_selector("#studies-table .ag-row[row-index='1']")
        page.locator("#studies-find").fill("<i>x</i>")
        page.wait_for_selector("#studies-table .ag-row[row-index='1']", state="detached")
        page.wait_for_url("**find=*")
        page.get_by_role("link", name="one").click()
        page.wait_for_selector("#headline")
        page.get_by_role("link", name="Runs", exact=True).click()
        page.wait_for_selector("#runs-table .ag-row[row-index='1']")
        assert page.url.startswith(f"{address}/study/one/runs")
        page.get_by_role("link", name="Timeline").click()
        page.wait_for_selector("#timeline[data-slices]")
        page.locator("#study-select").click()
        page.get_by_role("option", name=STUDIES_HOSTILE, exact=True).click()
        page.wait_for_url("**/timeline")
        page.wait_for_selector("#timeline[data-slices]")
        assert "evil" in page.locator("#study-select").input_value()
        page.get_by_role("link", name="Studies").click()
        page.wait_for_selector("#studies-table .ag-row[row-index='1']")
        assert page.locator("img[src='x']").count() == 0


@pytest.mark.browser
def test_study_is_begun_and_described(page, tmp_path):
    with site(tmp_path) as address:
        page.goto(address)
        page.wait_for_selector("#page :text('There is no study here yet')")
        page.locator("#studies-new").click()
        page.locator("#studies-name").fill("../escape")
        page.locator("#studies-begin").click()
        page.wait_for_selector("text=cannot name a study")
        page.locator("#studies-name").fill("new one")
        page.locator("#studies-begin").click()
        page.wait_for_selector("#studies-table .ag-row[row-id='new one']")
        page.locator("#studies-table .ag-row input[type=checkbox]").click()
        page.locator("#study-edit:not([disabled])").click()
        page.locator("#study-tags").press_sequentially("demo,cpu,")
        page.locator("#study-note").fill("for the customer")
        page.locator("#study-save").click()
        page.wait_for_selector("#studies-table :text('cpu, demo')")
        page.get_by_role("link", name="new one").click()
        page.wait_for_selector("#notice:has-text('no workload yet')")
        page.goto(f"{address}/study/gone/")
        page.wait_for_selector("#notice:has-text('No such study is here')")
    assert Workspace(tmp_path).infos()[0].note == "for the customer"


# The list of jobs: progress in a unit that changes, and buttons that keep their position.


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
        ({"state": "queued"}, 1000, 0.0, "Waiting for other jobs"),
    ],
)  # fmt: skip
def test_progress_is_in_the_unit_that_moves(changes, length_ns, share, words):
    found, told = _jobs._progress(job(**changes), length_ns)
    assert found == pytest.approx(share)
    assert told.startswith(words) or words in told


def test_job_without_progress_shows_its_elapsed_time(monkeypatch):
    monkeypatch.setattr(_jobs.time, "time", lambda: 75.5)
    assert _jobs._lasted(job(kind="sweep")) == "74 s so far"
    assert _jobs._lasted(job(kind="sweep", ended=3.5)) == "2.50 s"
    assert _jobs._lasted(job(started=0)) == ""


def test_import_links_to_its_form():
    message = "Imported as the workload 'imported-2'."
    (link,) = _jobs._result(job(kind="import", state="done", message=message, workload="imported"), set())
    text = Selection.parse(link.href.partition("?")[2]).option("setup")
    begun = Form("job", Setup.of_presets("hgx-h100-2x8", "direct"))
    form = decode_form(text, ["imported-2", "job"], begun=begun)
    assert form.workload == "imported-2"
    assert form.setup.network_preset != "hgx-h100-2x8"


@pytest.mark.browser
def test_button_keeps_focus_while_its_job_runs(page, tmp_path, monkeypatch):
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
        # The same element, not a new one.
        assert page.evaluate("document.activeElement.dataset.mark") == "same"
        listed.append(job(id=3, state="queued"))
        page.get_by_role("button", name="Cancel of job 3").wait_for()
        time.sleep(0.2)
        assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "Cancel of job 1"


HOSTILE_FOLDER = '<img src=x onerror="alert(1)"> \u202eevil'


# The Import page: only the content of one folder, checked before it is imported.


@pytest.fixture
def source(tmp_path, data_dir):
    root = tmp_path / "from"
    shutil.copytree(data_dir / "converter" / "mlp_2", root / "mlp")
    (root / HOSTILE_FOLDER).mkdir(parents=True)
    make_workload().save(root / HOSTILE_FOLDER / "job")
    shutil.copytree(data_dir / "converter" / "mlp_2", root / "broken")
    (root / "broken" / "rank1.device.json.gz").write_bytes(b"no gzip")
    return root


@pytest.fixture
def empty_study(tmp_path):
    return Study.create(tmp_path / "empty_study")


def test_the_list_is_exported(empty_study, source):
    client = create_app(empty_study, near=Surroundings(import_from=source)).server.test_client()
    lines = client.get("/export/imports.csv").text.splitlines()
    assert lines[0].startswith("id,place,kind")
    assert len(lines) == 1 + len(find_items(source))
    assert len(create_app(empty_study).server.test_client().get("/export/imports.csv").text.splitlines()) == 1


def test_page_without_a_folder_gets_a_next_step(empty_study):
    shown = str(page_module.layout(StudyView(empty_study), Selection(), "light"))
    assert "--import-from FOLDER" in shown


def test_empty_folder_lists_accepted_files(empty_study, tmp_path):
    view = StudyView(empty_study, Surroundings(import_from=tmp_path))
    shown = str(page_module.layout(view, Selection(), "light"))
    assert "has nothing to import" in shown
    assert "manifest.json" in shown


@pytest.mark.browser
def test_trace_set_is_looked_over_imported_and_simulated(page, empty_study, source):
    with serving(create_app(empty_study, near=Surroundings(import_from=source))) as address:
        page.goto(f"{address}/import")
        page.wait_for_selector("#imports-table .ag-row[row-index='2']")
        assert page.locator("img[src='x']").count() == 0
        page.locator("#imports-table .ag-row :text-is('mlp')").click()
        page.wait_for_url("**item=*")
        page.wait_for_selector("#import-findings :text('Not checked yet')")
        assert page.locator("#import-go").is_disabled()
        page.locator("#import-look").click()
        page.wait_for_selector("#import-findings :text('No problems found')")
        page.reload()
        page.wait_for_selector("#import-go:not([disabled])")
        page.locator("#import-step").click()
        page.wait_for_selector("[role=option]:has-text('ProfilerStep#*')")
        page.wait_for_selector("[role=option]:has-text('Optimizer.step')")
        page.keyboard.press("Escape")
        page.locator("#import-name").fill("../mine")
        page.locator("#import-go").click()
        page.wait_for_selector("text=cannot name a workload")
        page.locator("#import-name").fill("mine")
        page.locator("#import-go").click()
        page.wait_for_selector(".job:has-text('Import of mlp'):has-text(\"workload 'mine'\")")
        page.locator(".job:has-text('Import of mlp')").get_by_role("link").click()
        page.wait_for_selector("#new-start:not([disabled])")
        assert page.locator("#new-workload").input_value() == "mine"
    assert (empty_study.workloads(), empty_study.trace_sets()) == (["mine"], ["mine"])


def test_invalid_items_are_explained_and_not_importable(empty_study, source):
    (source / "hosts").mkdir()
    shutil.copy(source / "mlp" / "rank0.host.json.gz", source / "hosts")
    (hosts,) = (item for item in find_items(source) if item.place.startswith("hosts"))
    view = StudyView(empty_study, Surroundings(import_from=source))

    def shown(item):
        return str(page_module.layout(view, Selection().with_option("item", item), "light"))

    assert "only device traces have times" in shown(hosts.id)
    assert "import-look" not in shown("../../etc/passwd")


def test_browser_cannot_name_a_folder(empty_study, source, tmp_path):
    """Only listed items are passed to a job, whatever item a browser requests."""
    app = create_app(empty_study, near=Surroundings(import_from=source))
    body = {
        "output": "import-told.children",
        "outputs": {"id": "import-told", "property": "children"},
        "inputs": [
            {"id": "import-look", "property": "n_clicks", "value": 1},
            {"id": "import-go", "property": "n_clicks"},
        ],
        "changedPropIds": ["import-look.n_clicks"],
        "state": [
            {"id": "import-name", "property": "value", "value": "mine"},
            {"id": "import-step", "property": "value", "value": "all"},
            {"id": "url", "property": "search", "value": f"?item={tmp_path}"},
        ],
    }
    answer = app.server.test_client().post("/_dash-update-component", json=body)
    assert answer.get_json()["response"] == {}
    assert not (empty_study.path / "jobs").exists()
