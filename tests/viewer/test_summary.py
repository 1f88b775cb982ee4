"""What the page Summary names leads to where it happens."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from chakrascope.viewer import StudyView
from chakrascope.viewer.pages import _summary
from chakrascope.viewer.pages._parts import column, table_card, text_column


@pytest.mark.browser
def test_causes_and_bars_lead_to_the_timeline(visit, made):
    page = visit("/", f"?run={made.run_b}")
    page.wait_for_selector("#advice a")
    page.locator("#advice a").first.press("Enter")
    page.wait_for_url(re.compile(rf"/timeline\?run={made.run_b}&rank=\d+&node=\d+"))
    page = visit("/", f"?run={made.run_b}")
    page.wait_for_selector("#module-bars .point path")
    bar = page.locator("#module-bars .point path").first
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)
    page.wait_for_url(re.compile(r"/timeline\?run=.*node=\d+"))
    assert page.complaints == []


@pytest.mark.browser
def test_layers_and_breakdowns_lead_on(visit, made):
    page = visit("/", f"?run={made.run_b}")
    page.locator("#layers-table .ag-row[row-index='3'] [col-id='module']").click()
    page.wait_for_selector("#selected:has-text('Selected on every page')")
    page.locator("#selected").get_by_role("link", name="Graph").click()
    page.wait_for_selector("#graph-title:has-text('of rank')")
    page = visit("/", f"?run={made.run_b}")
    page.get_by_role("link", name="All modules on the critical path").click()
    page.wait_for_selector("#breakdown :text('layers.')")
    assert "by=module" in page.url
    assert page.complaints == []


def test_every_cause_has_a_node(simulated):
    items = simulated.advices()
    assert items
    assert all(simulated.node(item.rank, item.node_id) is not None for item in items)


def test_a_column_that_says_nothing_is_left_out():
    rows = pd.DataFrame({"name": ["a", "b"], "module": ["", ""], "n": [0, 0]})
    columns = [text_column("name", "Name"), text_column("module", "Issued in"), column("n", "N")]
    shown = str(table_card("T", "t", rows, columns, "light", query={}))
    assert "Issued in" not in shown
    assert "'N'" in shown


def test_layers_need_no_table_of_all_nodes(made, monkeypatch):
    run = StudyView(made.study).open(made.run_b)
    monkeypatch.setenv("CHAKRASCOPE_MEMORY", "1MB")
    shown = str(_summary._layers(run, "light"))
    assert "needs about" not in shown
    assert "layers" in shown
