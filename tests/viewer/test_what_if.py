"""Questions asked on the page Critical path."""

import pytest

from chakrascope.runner.analysis import changes

from .conftest import control


@pytest.mark.browser
def test_question_is_answered_on_the_page(visit, made):
    page = visit("/critical-path", f"?run={made.run_a}")
    page.locator("#what-if-go").click()
    page.wait_for_selector("#what-if-answer:has-text('the step takes 3.42 ms instead of 4.92 ms')")
    page.locator("#what-if-all").click()
    page.wait_for_selector("#what-if-table .ag-cell:has-text('operator aten::mm')")
    page.wait_for_url("**change=operator**")
    for text in ("0", "-1", "1e9", "fast", ""):
        page.locator(control("times")).fill(text)
        page.wait_for_selector("#what-if-answer:has-text('No answer: Times as fast')")
        page.wait_for_selector("#what-if-go[disabled]")
        page.wait_for_selector(control("times") + "[aria-invalid=true]")
        assert page.locator(control("times")).input_value() == text
    page.locator(control("times")).fill("0.5")
    page.wait_for_selector("#what-if-go:not([disabled])")
    page.wait_for_url("**times=0.5*")
    page.wait_for_function("() => !document.getElementById('what-if-answer').innerText")
    page.reload()
    page.wait_for_selector(control("times") + "[value='0.5']")
    assert page.complaints == []


@pytest.mark.browser
def test_selected_node_offers_its_waits(visit, made):
    page = visit("/critical-path", f"?run={made.run_b}&rank=1&node=4&change=edge%3A1%2F3-4")
    page.locator("#what-if-go").click()
    page.wait_for_selector("#what-if-answer:has-text('node 4 of rank 1 without waiting for node 3')")
    page.wait_for_selector("#slack-table .ag-row")
    assert page.complaints == []


def test_more_than_the_five_largest_can_be_asked(run):
    names = [f"layers.{layer}" for layer in range(6)]
    assert {target.name for target in changes(run) if target.what == "module"} == set(names)
