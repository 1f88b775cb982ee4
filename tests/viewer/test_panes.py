"""The panes of a page share the window as people set them, and rows without slices make room for others."""

import pytest

from .conftest import watched

pytestmark = pytest.mark.browser
TIMELINE = "() => ['timeline', 'timeline-panel'].map((id) => document.getElementById(id).offsetHeight)"
GRAPH = "() => [document.querySelector('.graph-holder'), document.getElementById('graph-side')]"
GRAPH += ".map((pane) => pane.offsetWidth)"
STORED = "() => JSON.parse(window.localStorage.getItem('chakrascope-panes'))"
# The rows of the canvas with their heights, and whether their batch has a slice in the window.
ROWS = """() => {
  const { rows, view, main } = document.getElementById('timeline').timeline, busy = new Set();
  for (let i = 0; i < main.batch.count; i++) {
    if (main.batch.end[i] >= view.t0 && main.batch.start[i] <= view.t1) { busy.add(main.batch.lane[i]); }
  }
  return rows.all.map((row) => [row.name, row.height, busy.has(row.lane)]);
}"""


@pytest.fixture
def window(browser):
    """A page with a storage of its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = watched(context)
    yield page
    assert page.complaints == []
    context.close()


def test_the_height_of_the_panel_is_set_by_keys_and_survives_a_reload(window, served, made):
    window.goto(f"{served}/timeline?run={made.run_a}")
    window.wait_for_selector("#timeline[data-slices]")
    before = window.evaluate(TIMELINE)
    separator = window.get_by_role("separator", name="Height of the panel")
    separator.focus()
    scroll = "document.getElementById('timeline').timeline.rows.scroll"
    for _ in range(3):
        window.keyboard.press("ArrowDown")
    after = window.evaluate(TIMELINE)
    assert after == [before[0] + 72, before[1] - 72]
    assert window.evaluate(scroll) == 0, "the keys of the timeline do not act as well"
    assert int(separator.get_attribute("aria-valuenow")) == round(100 * after[1] / sum(after))
    window.keyboard.press("End")
    lowest = window.evaluate(TIMELINE)
    assert lowest == [sum(before) - 48, 48]
    window.reload()
    window.wait_for_selector("#timeline[data-slices]")
    assert window.evaluate(TIMELINE) == lowest
    separator.focus()
    window.keyboard.press("Enter")
    assert window.evaluate(TIMELINE) == before
    assert window.evaluate(STORED) == {}


def test_the_graph_has_the_width_that_is_left(window, served, made):
    window.goto(f"{served}/graph?run={made.run_a}&rank=1&node=4")
    window.wait_for_selector("#graph canvas", state="attached")
    before = window.evaluate(GRAPH)
    box = window.get_by_role("separator").bounding_box()
    middle = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    window.mouse.move(*middle)
    window.mouse.down()
    window.mouse.move(middle[0] - 100, middle[1])
    window.mouse.up()
    window.mouse.move(middle[0] - 300, middle[1])
    after = window.evaluate(GRAPH)
    assert after == [before[0] - 100, before[1] + 100]
    assert window.evaluate("() => document.getElementById('graph')._cyreg.cy.width()") <= after[0]
    window.reload()
    window.wait_for_selector("#graph canvas", state="attached")
    assert window.evaluate(GRAPH) == after


def test_sizes_that_make_no_sense_are_ignored(window, served, made):
    window.goto(f"{served}/timeline?run={made.run_a}")
    window.wait_for_selector("#timeline[data-slices]")
    before = window.evaluate(TIMELINE)
    for text in ("{", "null", '{"timeline-panel": "x; color: red"}'):
        window.evaluate("text => window.localStorage.setItem('chakrascope-panes', text)", text)
        window.reload()
        window.wait_for_selector("#timeline[data-slices]")
        assert window.evaluate(TIMELINE) == before


def test_a_pane_larger_than_the_window_leaves_the_canvas_in_sight(window, served, made):
    window.goto(f"{served}/timeline?run={made.run_a}")
    window.evaluate("""() => window.localStorage.setItem('chakrascope-panes', '{"timeline-panel": 5000}')""")
    window.reload()
    window.wait_for_selector("#timeline[data-slices]")
    canvas, panel = window.evaluate(TIMELINE)
    assert canvas >= 220
    assert panel < 800


def test_rows_without_slices_in_the_window_are_folded(visit, made):
    address = f"?run={made.run_a}&rows=flat&t0=30000&t1=300000"
    page = visit("/timeline", address)
    page.wait_for_selector("#timeline[data-slices]")
    rows = page.evaluate(ROWS)
    assert {busy for _, _, busy in rows} == {True, False}
    assert all(height > 0 for _, height, _ in rows)
    page.locator("#timeline-empty").check()
    page.wait_for_url("**empty=folded*")
    page.wait_for_function(f"() => ({ROWS})().every(([, height, busy]) => busy === height > 0)")
    # The rows come back when something is in the window.
    page.evaluate("() => document.getElementById('timeline').timeline.view.fit()")
    page.wait_for_function(f"() => ({ROWS})().every(([, height, busy]) => busy && height > 0)")
    assert page.complaints == []
