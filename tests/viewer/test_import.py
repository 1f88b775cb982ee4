"""The Import page: only what lies in one folder, checked before it is imported."""

import shutil

import pytest
from studies import make_workload

from chakrascope.runner import Study, find_items
from chakrascope.viewer import StudyView, create_app
from chakrascope.viewer._state import Selection, Surroundings
from chakrascope.viewer.pages import _imports as page_module

from .conftest import serving

HOSTILE = '<img src=x onerror="alert(1)"> \u202eevil'


@pytest.fixture
def folder(tmp_path, data_dir):
    root = tmp_path / "from"
    shutil.copytree(data_dir / "converter" / "mlp_2", root / "mlp")
    (root / HOSTILE).mkdir(parents=True)
    make_workload().save(root / HOSTILE / "job")
    shutil.copytree(data_dir / "converter" / "mlp_2", root / "broken")
    (root / "broken" / "rank1.device.json.gz").write_bytes(b"no gzip")
    return root


@pytest.fixture
def study(tmp_path):
    return Study.create(tmp_path / "study")


def test_the_list_is_exported(study, folder):
    client = create_app(study, near=Surroundings(import_from=folder)).server.test_client()
    lines = client.get("/export/imports.csv").text.splitlines()
    assert lines[0].startswith("id,place,kind")
    assert len(lines) == 1 + len(find_items(folder))
    assert len(create_app(study).server.test_client().get("/export/imports.csv").text.splitlines()) == 1


def test_page_without_a_folder_gets_a_next_step(study):
    shown = str(page_module.layout(StudyView(study), Selection(), "light"))
    assert "--import-from FOLDER" in shown


def test_empty_folder_lists_accepted_files(study, tmp_path):
    view = StudyView(study, Surroundings(import_from=tmp_path))
    shown = str(page_module.layout(view, Selection(), "light"))
    assert "has nothing to import" in shown
    assert "manifest.json" in shown


@pytest.mark.browser
def test_trace_set_is_looked_over_imported_and_simulated(page, study, folder):
    with serving(create_app(study, near=Surroundings(import_from=folder))) as address:
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
    assert (study.workloads(), study.trace_sets()) == (["mine"], ["mine"])


def test_invalid_items_are_explained_and_not_importable(study, folder):
    (folder / "hosts").mkdir()
    shutil.copy(folder / "mlp" / "rank0.host.json.gz", folder / "hosts")
    (hosts,) = (item for item in find_items(folder) if item.place.startswith("hosts"))
    view = StudyView(study, Surroundings(import_from=folder))

    def shown(item):
        return str(page_module.layout(view, Selection().with_option("item", item), "light"))

    assert "only device traces have times" in shown(hosts.id)
    assert "import-look" not in shown("../../etc/passwd")


def test_browser_cannot_name_a_folder(study, folder, tmp_path):
    """Whatever item a browser asks for, only those listed are handed to a job."""
    app = create_app(study, near=Surroundings(import_from=folder))
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
    assert not (study.path / "jobs").exists()
