"""The timeline in a browser: its keys, typed as people type them, its rows, search, areas and ranks."""

import re

import pytest

pytestmark = pytest.mark.browser
TYPED_MS = 40


def test_click_on_the_timeline_selects_the_node(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&rows=flat")
    page.wait_for_selector("#timeline[data-slices]")
    box = page.locator("#timeline-canvas").bounding_box()
    page.mouse.click(box["x"] + 204 + (box["width"] - 204) / 2, box["y"] + 48 + 11)
    page.wait_for_url(re.compile(r"rank=0&node=\d+"))
    page.wait_for_selector("#timeline-details dt")


def test_timeline_window_is_in_the_address(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&t0=1000000&t1=2000000")
    page.wait_for_selector("#timeline[data-slices]")
    page.keyboard.press("w")
    page.wait_for_url(re.compile(r"t0=1150000&t1=1850000"))


def test_timeline_measures_an_area_and_walks_to_the_cause(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&rank=1&node=4&rows=flat")
    page.wait_for_selector("#timeline[data-selected='1:4']")
    for key, node in (("[", 3), ("[", 2), ("]", 3)):
        page.keyboard.press(key)
        page.wait_for_selector(f"#timeline[data-selected='1:{node}']")
    box = page.locator("#timeline-canvas").bounding_box()
    page.keyboard.down("Shift")
    page.mouse.move(box["x"] + 336, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 536, box["y"] + 80)
    page.mouse.up()
    page.keyboard.up("Shift")
    page.wait_for_selector("#timeline-details .area-table td:has-text('aten::mm')")
    with page.expect_download() as caught:
        page.locator("#timeline-details a").first.click()
    assert caught.value.path().read_text().startswith("operator,kind,slices,total_ns")
    assert page.complaints == []


def test_timeline_is_walked_by_keyboard(visit, made):
    page = visit("/timeline", f"?run={made.run_a}&rank=0&node=1")
    page.wait_for_selector("#timeline[data-selected='0:1'][data-slices]")
    for key, node in ((".", 3), (".", 4), (",", 3)):
        page.keyboard.press(key)
        page.wait_for_selector(f"#timeline[data-selected='0:{node}']")


def test_measured_lanes_are_in_the_address(visit, made):
    page = visit("/timeline", f"?run={made.run_a}")
    page.wait_for_selector("#timeline[data-slices]")
    alone = int(page.locator("#timeline").get_attribute("data-slices"))
    page.locator("#timeline-measured").set_checked(True, force=True)
    page.wait_for_url("**measured=1*")
    page.wait_for_selector(f"#timeline[data-slices='{2 * alone}']")
    assert page.complaints == []


