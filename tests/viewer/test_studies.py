"""Several studies in one server: listed, described, begun, opened, and never mixed up."""

import shutil
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from studies import make_study
from werkzeug.test import Client

from chakrascope.runner import Study, Workspace, describe_study
from chakrascope.viewer._access import require_token
from chakrascope.viewer._site import Site

from .conftest import serving, watched

HOSTILE = '<img src=x onerror="alert(1)"> \u202eevil %2e%2e & 日本'


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("studies")
    made = make_study(root / "one")
    shutil.copytree(made.study.path, root / HOSTILE)
    describe_study(Study.open(root / "one"), note="<b>bold</b>" + "y" * 3_000, tags=["<i>x</i>"])
    return root


@contextmanager
def site(folder):
    with serving(SimpleNamespace(server=Site(Workspace(folder)))) as address:
        yield address


def test_each_study_answers_below_its_own_path(folder):
    client = Client(Site(Workspace(folder)))
    for name in ("one", HOSTILE):
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
        page.locator("#runs-table .ag-row a").first.click()
        page.wait_for_selector("#headline")
        page.get_by_role("link", name="Timeline").click()
        page.wait_for_selector("#timeline[data-slices]")
        page.locator("#study-select").click()
        page.get_by_role("option", name=HOSTILE, exact=True).click()
        page.wait_for_url("**/timeline")
        page.wait_for_selector("#timeline[data-slices]")
        assert "evil" in page.locator("#study-select").input_value()
        page.get_by_role("link", name="Studies").click()
        page.wait_for_selector("#studies-table .ag-row[row-index='1']")
        assert page.locator("img[src='x']").count() == 0
    assert page.complaints == []
    assert page.foreign == []


@pytest.mark.browser
def test_two_users_of_two_studies_do_not_see_each_other(page, browser, folder):
    other = watched(browser.new_context())
    with site(folder) as address:
        page.goto(f"{address}/study/one/graph?rank=1&node=4")
        other.goto(f"{address}/study/{HOSTILE.replace('%', '%25')}/graph?rank=0&node=7")
        page.wait_for_selector("#graph-title:has-text('node 4 of rank 1')")
        other.wait_for_selector("#graph-title:has-text('node 7 of rank 0')")
        page.reload()
        page.wait_for_selector("#graph-title:has-text('node 4 of rank 1')")
    assert page.complaints == other.complaints == []
    other.context.close()


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
    assert page.complaints == []
