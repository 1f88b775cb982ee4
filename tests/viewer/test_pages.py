import re

import pytest

pytestmark = pytest.mark.browser

READY = {
    "/": "#rank-table .ag-row",
    "/critical-path": "#segments .ag-row",
    "/timeline": "#timeline[data-slices]",
    "/graph": "#graph canvas",
}


@pytest.mark.parametrize("path", READY)
def test_page_opens_quietly_and_stays_on_this_machine(page, served, path):
    page.goto(served + path)
    page.wait_for_selector(READY[path], state="attached")
    page.wait_for_timeout(500)
    assert page.complaints == []
    assert page.foreign == []
    assert page.locator('[data-title^="Share"]').count() == 0


def test_selected_segment_is_shown_by_timeline_and_graph(page, served):
    page.goto(served + "/critical-path?run=run-a")
    page.locator("#segments .ag-row[row-index='4'] [col-id='name']").click()
    page.wait_for_url("**rank=1&node=4")
    page.get_by_role("link", name="Timeline").click()
    page.wait_for_selector("#timeline[data-selected='1:4']")
    page.get_by_role("link", name="Graph").click()
    page.wait_for_selector("#graph-title")
    assert "node 4 of rank 1" in page.locator("#graph-title").inner_text()
    assert page.complaints == []


def test_click_on_the_timeline_selects_the_node(page, served):
    page.goto(served + "/timeline?run=run-a")
    page.wait_for_selector("#timeline[data-slices]")
    box = page.locator("#timeline-canvas").bounding_box()
    page.mouse.click(box["x"] + 150 + (box["width"] - 150) / 2, box["y"] + 26 + 11)
    page.wait_for_url(re.compile(r"rank=0&node=\d+"))
    page.wait_for_selector("#timeline-details dt")


def test_run_selector_switches_every_page(page, served):
    page.goto(served + "/?run=run-a")
    page.wait_for_selector("#rank-table .ag-row[row-index='1']")
    page.locator("#run-select").click()
    page.get_by_role("option", name=re.compile("run-b")).click()
    page.wait_for_url("**run=run-b")
    page.wait_for_selector("#rank-table .ag-row[row-index='3']")


def test_hostile_name_is_text(page, served):
    page.goto(served + "/critical-path?run=run-a&rank=1&node=0")
    page.wait_for_selector("#segments .ag-row")
    assert page.locator("img[src='x']").count() == 0
