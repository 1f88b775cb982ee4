"""No page violates a rule of axe-core, in light and dark, and everything works without a mouse."""

import csv
import io
import re
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from studies import make_study

from chakrascope.runner import Study, Workspace, run_sweep
from chakrascope.viewer import create_app
from chakrascope.viewer._server import Site
from chakrascope.viewer._theme import run_text
from chakrascope.viewer.pages import PAGES as SHOWN

from .conftest import READY, follow, serving, settle, tab_of

pytestmark = pytest.mark.browser

TITLES = {page.PATH: page.TITLE for page in SHOWN}
AXE = Path(__file__).parent.parent / "vendor" / "axe-core" / "axe.min.js"
PAGES = READY | {
    "/operators": "#page h2:text-is('Operators')",
    "/stragglers": "#stragglers-steps-table .ag-row",
    "/sweep": "#sweep-table .ag-row",
    "/diff": "#diff-go:not([data-loading])",
    "/query": "#query-go",
    "/new-run": "#new-start:not([disabled])",
    "/import": "#page h2:text-is('Import')",  # the page before has a heading, too
    "/nonsense": "#notice",
}
# Clicks on pages that need them, and elements that exist afterwards.
ASKED = {"/diff": ("#diff-go", "#diff-paths-table .ag-row")}
if find_spec("duckdb") is not None:
    ASKED["/query"] = ("#query-go", "#query-table .ag-row")
HEADED = "() => [...document.querySelectorAll('.ag-root')].every((t) => t.querySelector('.ag-header-cell'))"
OPTIONS = "[...document.querySelectorAll('[role=option]')].filter((option) => option.checkVisibility())"
ONE_OPTION = f"() => {OPTIONS}.length === 1"
UNNAMED = """() => [...document.querySelectorAll('.js-plotly-plot')].filter(
  (chart) => !chart.closest('[role=figure][aria-label]')).length"""
KEY_MS = 40
# All rows of a table are drawn alike.
REPEATED = [".ag-row:nth-child(n + 4)"]
SETTLED_MS, LOOKS = 100, 7
# Windows wider than 1000 pixels have one layout, and colours depend only on the scheme. These are the rules
# whose result may differ from the result of all rules in the first window.
WINDOWS = (
    (1280, "light", None),
    (800, "dark", ["color-contrast", "scrollable-region-focusable"]),
)
FITS = "width => window.innerWidth === width && document.documentElement.scrollWidth <= width"


@pytest.fixture(scope="module")
def everything(tmp_path_factory, data_dir):
    """A study with a sweep and recorded steps as well, so that every page has something to show."""
    made = make_study(tmp_path_factory.mktemp("axe") / "study")
    run_sweep(made.study, {"network.bandwidth": [1.0, 5.0], "network.latency": [5, 50]},
              network="cpu-cluster-2", workers=0, keep=0, name="s")  # fmt: skip
    steps = pd.read_parquet(data_dir / "runner/stragglers/slow-worker.parquet")
    # The 32 operations of a kind in a step are drawn alike, in some 5,000 elements.
    steps[steps["seq_id"] < 2].to_parquet(made.study.operations_file)
    return made


@pytest.fixture(scope="module")
def tab(context, everything):
    with tab_of(context, create_app(everything.study)) as page:
        yield page


def violations_on(page, rules=None, within="html"):
    """Return the violations *within* a part of *page* of all or some *rules*, one line per element."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    asked = {"resultTypes": ["violations"], "preload": False} | ({"runOnly": rules} if rules else {})
    part = {"include": [within], "exclude": REPEATED}
    found = page.evaluate("([part, asked]) => axe.run(part, asked)", [part, asked])["violations"]
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary'][:200]}"
        for rule in found
        for node in rule["nodes"]
    ]


def settled_violations(page, rules=None, within="html"):
    """Return the violations *within* a part of *page* that remain once the page is drawn."""
    # Tables that are still being drawn have no headings yet.
    page.wait_for_function(HEADED)
    found = violations_on(page, rules, within)
    for look in range(LOOKS):
        # Violations during a redraw disappear; real violations stay.
        if found:
            page.wait_for_timeout(SETTLED_MS * 2**look)
            found = violations_on(page, rules, within)
    return found


def violations_of(page, name):
    """Return the violations on the page *name* in every window that has some; no window scrolls sideways."""
    violations = {}
    settle(page)
    # A page begins in the window in which the one before it ended.
    for width, scheme, rules in sorted(WINDOWS, key=lambda window: window[0] != page.viewport_size["width"]):
        page.set_viewport_size({"width": width, "height": 800})
        page.emulate_media(color_scheme=scheme)
        page.wait_for_function(FITS, arg=width)
        # The frame around the page has the same colours everywhere.
        if found := settled_violations(page, rules, "html" if rules is None or name == "/" else "#page"):
            violations[f"{name} at {width}, {scheme}"] = found
    # A chart has a text alternative.
    assert page.evaluate(UNNAMED) == 0, name
    return violations


def check_frame(page, path):
    """Check that a page has a title, escapes names, and offers its files."""
    assert page.title() == f"{TITLES[path]} · run-b · study · Chakrascope"
    assert page.locator("html").get_attribute("lang") == "en"
    assert page.locator('[data-title^="Share"]').count() == 0
    assert page.locator("img[src='x']").count() == 0
    loaded = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert not [name for name in loaded if name.endswith("/plotly.min.js")]  # three times the time of charts
    links = page.locator(".exports a").evaluate_all("links => links.map(link => link.href)")
    assert links or path == "/timeline"
    for link in links:
        answer = page.request.get(link)
        assert answer.ok, link
        assert "attachment" in answer.headers["content-disposition"], link


def test_no_page_has_a_violation(visit, everything):
    """The selected node's name is markup, 10,000 characters long and partly written right to left."""
    page = visit("/runs")
    violations = {}
    for path, ready in PAGES.items():
        follow(page, path, f"?run={everything.run_b}&rank=1&node=0")
        page.wait_for_selector(ready, state="attached")
        if path in READY:
            settle(page)
            check_frame(page, path)
        if path in ASKED:
            page.locator(ASKED[path][0]).click()
            page.wait_for_selector(ASKED[path][1], state="attached")
        violations |= violations_of(page, path)
    assert violations == {}


def test_a_dialogue_has_no_violation(visit):
    page = visit("/runs")
    page.locator(".ag-row input[type=checkbox]").first.check()
    page.get_by_role("button", name="Label, tags, note").click()
    page.get_by_role("dialog").get_by_role("button", name="Close").wait_for()
    violations = settled_violations(page)
    page.keyboard.press("Escape")
    page.get_by_role("dialog").wait_for(state="hidden")
    assert violations == []


# The text of some pages for a study without a workload.
NEXT_STEPS = {
    "": "chakrascope trace -o STUDY",
    "runs": "chakrascope trace",
    "import": "chakrascope view STUDY --import-from FOLDER",
}


def test_pages_with_nothing_to_show_have_a_next_step_and_no_violation(page, tmp_path):
    Study.create(tmp_path / "empty")
    violations = {}
    with serving(SimpleNamespace(server=Site(Workspace(tmp_path)))) as address:
        page.goto(address)
        page.wait_for_selector("#studies-table .ag-row")
        settle(page)
        violations["studies"] = settled_violations(page)
        page.goto(f"{address}/study/empty/nonsense")
        for path in ("", "runs", "stragglers", "sweep", "diff", "new-run", "import"):
            page.wait_for_selector("#notice:has-text('No such page')")
            follow(page, f"/study/empty/{path}")
            page.wait_for_selector("#notice:has-text('No such page')", state="detached")
            page.wait_for_selector("#page :is(h2, h3)")
            if path in NEXT_STEPS:
                page.wait_for_selector(f"#page :text('{NEXT_STEPS[path]}')")
            if not path:
                page.wait_for_selector("#notice:has-text('no workload yet')")
                assert page.locator("#notice a").get_attribute("href").endswith("/import")
            settle(page)
            violations[path] = settled_violations(page)
            follow(page, "/study/empty/nonsense")
    assert not any(violations.values()), violations


def tab_to(page, identity, most=60):
    """Press Tab until the element called *identity* has the focus."""
    for _ in range(most):
        if page.evaluate("document.activeElement.id") == identity:
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"{most} presses of Tab do not reach {identity}")


def test_two_sides_are_compared_by_keyboard_alone(everything, visit):
    before, after = everything.run_b, everything.run_a
    page = visit("/diff", f"?run={before}")
    page.wait_for_selector("#diff-go")
    assert page.locator("#diff-headline").count() == 0, "nothing is read before one asks"
    for side, run in (("diff-before", before), ("diff-after", after)):
        tab_to(page, side)
        page.keyboard.press("Control+a")
        page.keyboard.type(run_text(everything.study.run_info(run), workload=True), delay=KEY_MS)
        page.wait_for_function(ONE_OPTION)  # the list is filtered after the last key
        page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
    tab_to(page, "diff-go")
    page.keyboard.press("Enter")
    page.wait_for_selector("#diff-headline:has-text('The step takes')")
    page.wait_for_url(f"**after=%40{after}&before=%40{before}**")
    page.wait_for_selector("#diff-operators-table .ag-row", state="attached")
    with page.expect_download() as caught:
        page.locator(".exports a[href*='diff-waterfall']").first.click()
    rows = list(csv.DictReader(io.StringIO(caught.value.path().read_text())))
    steps = [everything.study.run_info(run).makespan_ns for run in (before, after)]
    assert sum(int(row["delta_ns"]) for row in rows) == steps[1] - steps[0]


def test_a_node_is_found_and_followed_by_keyboard_alone(served, made, page):
    page.goto(f"{served}/?run={made.run_b}")
    page.wait_for_selector("#ranks-table .ag-row")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "To the content"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "node-search"
    page.keyboard.type("aten::mm", delay=KEY_MS)
    page.wait_for_selector("#search-hits [role=option]")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(r"node=\d+"))
    page.locator("#selected").get_by_role("link", name="Graph").focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#graph-title:has-text('aten::mm')")
    page.locator(".graph-side .side-list a").first.focus()
    page.keyboard.press("Enter")
    page.wait_for_selector("#graph-title:not(:has-text('aten::mm'))")
