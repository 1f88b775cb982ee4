"""The page Diff in a real browser: what is chosen is in the address, and nothing leaves this machine."""

from __future__ import annotations

import csv
import io
import threading

import pytest

from chakrascope.errors import Cancelled
from chakrascope.viewer import create_app
from chakrascope.viewer.queries import Reading, _sides

from .conftest import control, serving, watched

pytestmark = pytest.mark.browser


def test_two_runs_are_explained_to_the_nanosecond(visit, made):
    page = visit("/diff", "")
    page.wait_for_selector("#diff-go")
    assert page.locator("#diff-headline").count() == 0, "nothing is read before one asks"
    page.locator("#diff-go").click()
    page.wait_for_selector("#diff-headline:has-text('The step takes')")
    page.wait_for_url("**after=%40**before=%40**")
    page.wait_for_selector("#diff-operators-table .ag-row", state="attached")
    with page.expect_download() as caught:
        page.locator(".exports a[href*='diff-waterfall']").first.click()
    rows = list(csv.DictReader(io.StringIO(caught.value.path().read_text())))
    steps = [made.study.run_info(run).makespan_ns for run in (made.run_a, made.run_b)]
    assert sum(int(row["delta_ns"]) for row in rows) == steps[1] - steps[0]
    assert page.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_page_is_quiet_in_both_schemes_and_follows_its_address(browser, served, made, scheme):
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 720})
    page = watched(context)
    page.goto(f"{served}/diff?before=%40{made.run_b}&after=%40{made.run_b}&by=module")
    page.wait_for_selector("#diff-headline:has-text('no difference')")
    assert page.locator(control("by")).input_value() == "module"
    wide = page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert wide, "the page is wider than the window"
    assert page.complaints == []
    assert page.foreign == []
    context.close()


def test_a_side_that_is_not_there_is_told(visit):
    page = visit("/diff", "?before=%40nonsense&after=elsewhere%40all")
    page.wait_for_selector("#diff-error:has-text('nonsense')")
    assert page.complaints == []


def test_reading_tells_how_far_it_is_and_ends_when_asked():
    reading = Reading()
    assert (reading.of(0).share, reading.text) == (0.0, "Before: looking for its steps.")
    reading.step(1, 4)
    reading.rank(1, 2)
    assert (reading.share, reading.text) == (
        0.1875,
        "Before: 1 of 4 steps read, of the next one 1 of 2 ranks",
    )
    reading.of(1).step(1, 1)
    assert (reading.share, reading.text) == (1.0, "After: 1 of 1 step read")
    reading.is_cancelled = True
    with pytest.raises(Cancelled):
        reading.rank(1, 2)


def test_reading_is_shown_while_it_lasts_and_cancelled(page, made, monkeypatch):
    going_on, real = threading.Event(), _sides.side_of

    def slow(*arguments, progress, ranks, **more):
        progress(1, 4)
        going_on.wait()
        progress(2, 4)
        return real(*arguments, progress=progress, ranks=ranks, **more)

    monkeypatch.setattr(_sides, "side_of", slow)
    # Served anew, so that nothing is known of the sides from before.
    with serving(create_app(made.study)) as address:
        page.goto(f"{address}/diff?before=%40{made.run_b}&after=%40{made.run_a}&by=phase")
        page.wait_for_selector("#diff-text:has-text('Before: 1 of 4 steps read')")
        page.locator("#diff-cancel").click()
        page.wait_for_selector("#diff-cancel[data-asked]", state="attached")
        going_on.set()
        page.wait_for_selector("#diff-result:has-text('cancelled')")
        assert page.locator("#diff-text").is_hidden()
        page.locator("#diff-go").click()
        page.wait_for_selector("#diff-headline:has-text('The step takes')")
        assert page.complaints == []
