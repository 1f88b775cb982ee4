"""Every link of every page leads to what it names, in a study of several workloads, with a capture.

What is downloaded is asked for in `test_pages.py`.
"""

from __future__ import annotations

import json
import re
import shutil
from urllib.parse import parse_qs, urlsplit

import pytest
from studies import make_study, make_workload

from chakrascope.runner import ImportRequest, JobStore, find_items, get_backend, prepare, run_sweep
from chakrascope.viewer import create_app
from chakrascope.viewer._theme import run_options
from chakrascope.viewer.pages import PAGES

from .conftest import follow, serving
from .test_accessibility import PAGES as SHOWN

pytestmark = pytest.mark.browser

READY = SHOWN | {"/stragglers": "#page h2:text-is('Stragglers')"}  # the study has no recorded steps
TITLES = {page.PATH: page.TITLE for page in PAGES}
LINKS = """() => [...document.querySelectorAll(
  '#page a[href]:not([download]), #selected a[href]')].map((link) => ({
  text: link.innerText.trim(), href: link.href,
  about: (link.closest('.job') || link).innerText }))"""
# The list of jobs is filled once its page stands.
LISTED = "() => !document.getElementById('job-list') || document.querySelector('.job a')"
SHOWS = """expected => Object.entries(expected).every(
  ([id, value]) => document.getElementById(id)?.value === value)"""


@pytest.fixture(scope="module")
def study(tmp_path_factory, data_dir):
    """A study with an imported capture, as measured and on a network, two other workloads, and a sweep."""
    root = tmp_path_factory.mktemp("links")
    shutil.copytree(data_dir / "converter" / "mlp_2", root / "from" / "mlp")
    study, jobs = make_study(root / "study").study, None
    jobs = JobStore(study)
    (item,) = find_items(root / "from")
    jobs.wait(jobs.submit_import(ImportRequest(str(root / "from"), item.id, "mlp"), label="mlp").id, 300)
    experiment = prepare(study.workload_prefix("mlp"), "default", None, backend="replay")
    jobs.wait(jobs.submit(experiment, workload="mlp").id, 300)
    study.add_workload(make_workload(4), "newest")
    for name in ("mlp", "newest"):
        experiment = prepare(study.workload_prefix(name), "default", "cpu-cluster-8", backend="packet")
        study.add_run(experiment, get_backend("packet").run(experiment), workload=name)
    run_sweep(study, {"network.bandwidth": [1.0, 5.0]}, network="cpu-cluster-8", workers=0, keep=1, name="s")
    return study


def visit(page, path, search):
    """Go to an address from a page that has nothing of it, and wait until its page stands."""
    follow(page, "/nonsense")
    page.wait_for_selector("#notice:has-text('No such page')")
    follow(page, path, search)
    page.wait_for_selector(READY[path], state="attached")


def wrong(page, link, labels):
    """Follow a *link* of a page, and return how what is shown then differs from what it names."""
    from playwright.sync_api import TimeoutError

    url = urlsplit(link["href"])
    path, asked = "/" + url.path.rpartition("/")[2], {k: v[0] for k, v in parse_qs(url.query).items()}
    if path not in TITLES:
        return [] if page.request.get(link["href"]).ok else ["no answer"]
    visit(page, path, f"?{url.query}")
    page.wait_for_function(
        "([path, title]) => document.querySelector('#nav .active')?.innerText === title",
        arg=[path, TITLES[path]],
    )
    if url.fragment:
        page.wait_for_selector(f"#{url.fragment}", state="attached")
    expected = {}
    if "run" in asked:
        expected["run-select"] = labels[asked["run"]]
    if "setup" in asked and path == "/new-run":
        expected["new-workload"] = json.loads(asked["setup"])["workload"]
    if made := re.search(r"workload '(\w+)'", link["about"]):
        expected["new-workload"] = made[1]
    if "node" in asked:
        page.wait_for_selector(f"#selected:has-text('rank {asked['rank']} · node {asked['node']}')")
    try:
        page.wait_for_function(SHOWS, arg=expected)
    except TimeoutError:
        return [f"not {expected}"]
    named = re.search(r"\bnode (\d+)", link["text"])
    return [f"node {asked.get('node')}"] if named and named[1] != asked.get("node") else []


def test_every_link_leads_to_what_it_names(page, study):
    labels = {option["value"]: option["label"] for option in run_options(study.runs())}
    run = next(info.id for info in study.runs() if info.workload == "mlp" and info.backend == "packet")
    seen, differing = set(), {}
    with serving(create_app(study)) as address:
        page.goto(f"{address}/runs")
        page.wait_for_selector("#runs-table .ag-row")
        for path in TITLES:
            visit(page, path, f"?run={run}&rank=1&node=1")
            page.wait_for_selector("#selected a")
            page.wait_for_function(LISTED)
            for link in page.evaluate(LINKS):
                # What only differs in numbers is the same link of another row.
                kind = re.sub(r"\d+", "#", link["text"]), re.sub(r"(node|rank|open)=\d+", "#", link["href"])
                if kind not in seen:
                    seen.add(kind)
                    if problems := wrong(page, link, labels):
                        differing[f"{path}: {link['text']} ({link['href']})"] = problems
    assert {"Simulate it", "Open the result", "Open this run", "Graph"} <= {text for text, _ in seen}
    assert differing == {}
    assert page.complaints == []
