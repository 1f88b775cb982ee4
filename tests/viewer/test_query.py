"""The page Query in a real browser: examples, answers, errors and Cancel."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

# Looked for, not imported: only the process that answers needs it.
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(find_spec("duckdb") is None, reason="SQL is an extra"),
]

ENDLESS = "SELECT count(*) FROM range(100000000000) a, range(1000) b"


def test_an_example_is_asked_answered_exported_and_in_the_address(visit, made):
    page = visit("/query", f"?run={made.run_a}")
    page.wait_for_selector("#query-tables .ag-row", state="attached")
    page.locator("#query-go").click()
    page.wait_for_selector("#query-table .ag-row", state="attached")
    page.wait_for_url("**sql=SELECT**")
    with page.expect_download() as caught:
        page.locator("#query-answer a[href*='/export/query.csv']").click()
    assert caught.value.path().read_text().startswith("operator,kind,segments,on_path_ns")
    page.locator("#query-sql").fill("SELECT 42 AS answer")
    page.wait_for_selector("#query-answer.stale")
    page.keyboard.press("Control+Enter")
    page.wait_for_selector("#query-answer:not(.stale) .ag-header-cell[col-id='answer']", state="attached")
    assert page.complaints == []


def test_what_is_refused_is_told_and_a_long_query_is_cancelled(visit, made):
    page = visit("/query", f"?run={made.run_a}")
    page.locator("#query-sql").fill("SELECT * FROM read_text('/etc/passwd')")
    page.locator("#query-go").click()
    page.wait_for_selector("#query-error:has-text('disabled')")
    page.locator("#query-sql").fill(ENDLESS)
    page.locator("#query-go").click()
    page.locator("#query-cancel:not([disabled])").click()
    page.wait_for_selector("#query-answer:has-text('cancelled')")
    assert page.complaints == []


def test_the_page_of_an_address_with_a_query_is_quiet(visit, made):
    page = visit("/query", f"?run={made.run_a}&sql=SELECT+42+AS+answer")
    page.wait_for_selector("#query-tables .ag-row", state="attached")
    assert page.locator("#query-sql").input_value() == "SELECT 42 AS answer"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.complaints == []
    assert page.foreign == []
