"""The graph can be read: names keep their size, nodes have their time, and more is drawn where asked for."""

from __future__ import annotations

import re

import pytest

from chakrascope.runner.analysis import causes, edges_of, neighbourhood
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages._graph_drawing import draw
from chakrascope.viewer.queries import edge_kinds, opened_nodes

READABLE = """() => {
  const cy = document.getElementById('graph')._cyreg.cy;
  const shown = cy.nodes().filter(node => !node.hasClass('quiet'));
  return shown.every(node => parseFloat(node.style('font-size')) * cy.zoom() >= 11) && shown.length;
}"""


COVERED = """() => {
  const cy = document.getElementById('graph')._cyreg.cy;
  const box = (node, parts) => node.renderedBoundingBox({ includeOverlays: false, ...parts });
  const shared = (a, b) => Math.min(Math.min(a.x2, b.x2) - Math.max(a.x1, b.x1),
    Math.min(a.y2, b.y2) - Math.max(a.y1, b.y1));
  const boxes = cy.nodes().map(node => [node.id(), box(node, { includeLabels: false })]);
  return cy.nodes().filter(node => !node.hasClass('quiet')).map(node => {
    const name = box(node, { includeNodes: false });
    const covered = boxes.filter(([id, other]) => id !== node.id() && shared(name, other) > 3);
    return covered.map(([id, other]) => `${node.data('label')} covers ${shared(name, other)} of ${id}`);
  }).reduce((all, each) => all.concat(each), []);
}"""


def test_nodes_say_what_they_take_and_are_as_large(run):
    drawing = draw(run, Selection.parse("?rank=1&node=4&hops=2"))
    nodes = [element["data"] for element in drawing.elements if "node" in element["data"]]
    labels = {data["node"]: data["label"] for data in nodes}
    assert labels[4].endswith("\n500 µs")
    sizes = {data["weight"]: data["size"] for data in nodes}
    assert [sizes[weight] for weight in sorted(sizes)] == sorted(sizes.values())
    assert len(set(sizes.values())) > 1


def test_an_opened_node_brings_its_neighbours_and_no_others(run):
    edges = edges_of(run, 1, range(9))
    near = neighbourhood(edges, 4, 1)
    more = neighbourhood(edges, 4, 1, opened=[5, 17])
    assert set(near.nodes["node_id"]) == {3, 4, 5}
    assert set(more.nodes["node_id"]) == {3, 4, 5, 6}
    assert len(neighbourhood(edges, 4, 1, 4, [5, 6, 3]).nodes) == 4


def test_the_edges_of_the_critical_path_alone(run):
    along = causes(run, 1)
    drawn = edges_of(run, 1, edge_kinds("path"))
    assert 0 < len(drawn) <= len(edges_of(run, 1, edge_kinds("")))
    assert set(zip(drawn["src"], drawn["dst"], strict=True)) <= along
    kind = int(drawn["kind"].iloc[0])
    assert set(edges_of(run, 1, edge_kinds(f"path,{kind},x"))["kind"]) == {kind}


@pytest.mark.parametrize("text", ["", "x", "1,,2", "9" * 30, "-1", "1," * 500])
def test_an_address_opens_only_nodes(text):
    assert set(opened_nodes(text)) <= {1, 2}


@pytest.mark.browser
@pytest.mark.parametrize("address", ["hops=8", "fold=ranks", "fold=modules"])
def test_names_are_readable_at_any_zoom(visit, made, address):
    page = visit("/graph", f"?run={made.run_b}&rank=1&node=7&{address}")
    page.wait_for_selector("#graph[data-named]")
    page.wait_for_function(READABLE)
    assert page.evaluate(COVERED) == []
    page.evaluate("() => { document.getElementById('graph')._cyreg.cy.zoom(0.3); }")
    page.wait_for_function(READABLE.replace("&& shown.length", ""))
    assert page.complaints == []


@pytest.mark.browser
def test_a_node_is_expanded_in_place(visit, made):
    page = visit("/graph", f"?run={made.run_a}&rank=1&node=4&hops=1")
    page.get_by_role("link", name="expand").last.press("Enter")
    page.wait_for_url(re.compile(r"open=5"))
    page.wait_for_selector("#graph[data-nodes='4']")
    page.wait_for_selector("#graph-title:has-text('node 4 of rank 1')")
    exported = page.locator("a[download='graph-nodes.csv']").get_attribute("href")
    assert "open=5" in exported
    page.get_by_role("link", name="fold", exact=True).press("Enter")
    page.wait_for_selector("#graph[data-nodes='3']")
    where = page.evaluate(
        """() => {
          const cy = document.getElementById('graph')._cyreg.cy;
          const at = cy.getElementById('5').renderedPosition();
          const box = cy.container().getBoundingClientRect();
          return [box.left + at.x, box.top + at.y];
        }"""
    )
    page.mouse.click(*where, button="right")
    page.wait_for_url(re.compile(r"open=5"))
    for asked, drawn in (("9", "2"), ("0", "2"), ("1", "1")):
        page.get_by_label("Hops around the node").fill(asked)
        page.wait_for_url(re.compile(rf"hops={asked}\b"))
        notice = page.locator("#graph-notices")
        if asked == drawn:
            notice.get_by_role("alert").wait_for(state="detached")
        else:
            notice.get_by_text(f"1 to 8 hops, not with '{asked}'; here are {drawn}").wait_for()
    assert page.complaints == []
