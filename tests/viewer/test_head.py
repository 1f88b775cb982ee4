"""The head of every page, the graph, units, and runs of one rank."""

import json
import random
import re
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from studies import make_workload, run_in

from chakrascope import support, viewer
from chakrascope.errors import StudyError
from chakrascope.runner import NetworkConfig, Study
from chakrascope.runner.analysis import causes, edges_of, neighbourhood
from chakrascope.viewer import StudyView, _server, create_app
from chakrascope.viewer._access import require_token
from chakrascope.viewer._shell import _headed
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import PAGES
from chakrascope.viewer.pages._graph import draw
from chakrascope.viewer.queries import edge_kinds, opened_nodes

from .conftest import READY, follow, serving, settle, watched

KEY_MS = 40


# Keeps the states of the message on the server, one of which is shown for three seconds.
STATES = """() => {
  const box = document.getElementById("server-state");
  window.states = [];
  new MutationObserver(() => window.states.push(box.dataset.state)).observe(box, { attributes: true });
}"""


@contextmanager
def served_at(app, port):
    """Serve *app* at *port*, any free one for 0; the value is the port."""
    from werkzeug.serving import make_server

    server = make_server("127.0.0.1", port, app.server, threaded=True)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.mark.browser
def test_search_keeps_every_key_finds_modules_and_says_when_it_finds_nothing(visit, made):
    page = visit("/critical-path", f"?run={made.run_b}")
    page.locator("#node-search").focus()
    page.keyboard.type("nobody", delay=KEY_MS)
    page.wait_for_selector("#search-hits:has-text('No match for')")
    page.keyboard.press("Escape")
    assert page.locator("#search-hits").is_hidden()
    page.locator("#node-search").fill("")
    page.keyboard.type("layers.3", delay=KEY_MS)
    module = page.get_by_role("group", name="Modules").get_by_role("option")
    module.filter(has_text="layers.3").wait_for()
    assert page.locator("#node-search").input_value() == "layers.3"
    # 8 ranks run two programs: each node is listed once per program, with the number of equal ranks.
    nodes = page.get_by_role("group", name="Nodes").get_by_role("option").all_inner_texts()
    assert len(nodes) == len(set(nodes)) == 6
    page.keyboard.press("ArrowDown")
    assert module.get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"run={made.run_b}.*node=\d+"))
    assert page.locator("#node-search").input_value() == ""
    assert page.locator("#search-hits").is_hidden()


def test_a_place_is_found_by_its_numbers(client, made):
    found = client.get(f"/api/find?q=7:4&run={made.run_b}").json["hits"]
    assert [(hit["rank"], hit["node_id"]) for hit in found] == [(7, 4)]
    selected = client.get(f"/api/find?q=allreduce&rank=3&run={made.run_b}").json["hits"]
    assert {hit["rank"] for hit in selected} <= {2, 3} | {0, 1}
    assert client.get(f"/api/find?q=%00{'x' * 5000}&run={made.run_b}").json["hits"] == []


@pytest.mark.browser
def test_lost_server_is_reported_and_reconnected(browser, study, made):
    page = watched(browser.new_context())
    with served_at(create_app(study), 0) as port:
        page.goto(f"http://127.0.0.1:{port}/?run={made.run_a}")
        page.wait_for_selector("#ranks-table .ag-row")
    page.get_by_role("link", name="Critical path", exact=True).click()
    page.wait_for_selector("#server-state[data-state=gone]:has-text('does not answer')")
    page.evaluate(STATES)
    with served_at(create_app(study), port):
        page.wait_for_function("() => window.states.includes('back')")
        # A request made in the meantime is answered now, without a reload.
        page.wait_for_selector("#segments-table .ag-row")
        page.wait_for_selector("#server-state", state="hidden")
    page.context.close()


@pytest.mark.browser
def test_a_link_is_handed_on_with_its_token(browser, study, made):
    app = create_app(study)
    require_token(app.server, "secret")
    with serving(app) as address:
        page = watched(browser.new_context())
        page.goto(f"{address}/runs?token=secret&run={made.run_a}")
        page.wait_for_selector("#runs-table .ag-row")
        page.get_by_role("button", name="Copy a link").click()
        page.wait_for_selector("#share-done:has-text('op')")
        link = page.locator("#share-link").input_value()
        assert "token=secret" in link
        other = watched(browser.new_context())
        other.goto(page.url)
        other.get_by_role("heading", name="requires its token").wait_for()
        other.locator("#token").focus()
        other.keyboard.type("wrong", delay=KEY_MS)
        other.keyboard.press("Enter")
        other.get_by_text("not the viewer's token").wait_for()
        other.locator("#token").fill(link)
        other.keyboard.press("Enter")
        other.wait_for_selector("#runs-table .ag-row")
        assert other.url == page.url
        assert other.complaints == [] or all("403" in text for text in other.complaints)
        for opened in (page, other):
            opened.context.close()


def test_page_without_token_does_not_reveal_it(study):
    server = create_app(study).server
    require_token(server, "secret")
    client = server.test_client()
    refused = client.get('/runs?run=x"><script>&token=wrong')
    assert refused.status_code == 403
    assert b"secret" not in refused.data
    assert b"<script" not in refused.data
    assert client.get("/api/token").status_code == 403


@pytest.mark.parametrize(
    ("host", "shown"),
    [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]"), ("node7.example.org", "node7.example.org")],
)
def test_an_address_that_can_be_opened_is_printed(host, shown):
    assert _server._reachable(host) == shown


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_every_interface_is_no_address(host):
    shown = _server._reachable(host)
    assert shown.strip("[]") not in {"0.0.0.0", "::", ""}


# The graph is legible: names keep their size, nodes show their time, and more is drawn on request.

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


def test_nodes_show_and_scale_with_their_duration(run):
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


@pytest.mark.browser
def test_details_are_below_the_graph_in_a_narrow_window(visit, made):
    page = visit("/graph", f"?run={made.run_b}&rank=1&node=7&hops=5")
    page.set_viewport_size({"width": 800, "height": 800})
    page.wait_for_function(
        """() => {
          const [graph, side] = ['.graph-holder', '#graph-side'].map((selector) =>
            document.querySelector(selector).getBoundingClientRect());
          return side.top > graph.bottom && graph.width > 500 && graph.height > 350;
        }"""
    )
    page.wait_for_function(READABLE)
    assert page.evaluate(COVERED) == []


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
            notice.get_by_text(f"1 to 8 hops, not '{asked}'; it shows {drawn}").wait_for()


# The viewer's own scripts write quantities exactly as Python does.

ROOT = Path(__file__).resolve().parent.parent
TABLE = json.loads((ROOT / "support" / "texts.json").read_text(encoding="utf-8"))
SCRIPT = Path(viewer.__file__).with_name("assets") / "02_units.js"


def in_browser(browser, cases):
    """Return the script's text for each ``[function, arguments]`` of *cases*."""
    page = browser.new_page()
    page.add_script_tag(path=SCRIPT)
    texts = page.evaluate(
        "cases => cases.map(([name, values]) => window.chakrascopeUnits["
        "name.replace('_text', 'Text')](...values))",
        cases,
    )
    page.close()
    return texts


def test_the_table(browser):
    cases = [
        (function, value if isinstance(value, list) else [value], text)
        for function, rows in TABLE.items()
        for value, text in rows
    ]
    assert in_browser(browser, [case[:2] for case in cases]) == [text for *_, text in cases]


def test_any_number(browser):
    """Numbers of all sizes, and numbers just below a rounding step."""
    numbers = random.Random(1)
    values = [int(10 ** numbers.uniform(0, 15)) for _ in range(2000)]
    values += [
        int(digits * 10**power) + off
        for digits in (0.9995, 9.995, 99.95, 1.005, 1.125)
        for power in range(3, 14)
        for off in (-1, 0, 1)
    ]
    cases = [[name, [value]] for name in ("duration_text", "instant_text", "bytes_text") for value in values]
    cases += [["bandwidth_text", [10 ** numbers.uniform(-8, 5)]] for _ in range(1000)]
    cases += [["share_text", [numbers.random()]] for _ in range(1000)]
    cases += [["change_text", [numbers.uniform(-1, 1) ** 5]] for _ in range(1000)]
    assert in_browser(browser, cases) == [getattr(support, name)(*arguments) for name, arguments in cases]


# A job of one process, such as one GPU: every page opens, and shows one rank.


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """Return a study with the replay of one rank, and its simulation."""
    study = Study.create(tmp_path_factory.mktemp("alone") / "study")
    network = NetworkConfig(("Switch",), (1,), (50.0,), (500.0,))
    for backend in ("replay", "analytical-unaware"):
        run_in(study, make_workload(1), network, backend=backend)
    return study


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.TITLE)
def test_every_page_of_one_rank_shows_one_rank(alone, page):
    view = StudyView(alone)
    shown = view.open(view.resolve("")) if getattr(page, "NEEDS_RUN", True) else view
    text = str(page.layout(shown, Selection(), "light")).lower()
    assert "2 ranks" not in text
    assert "rank 1" not in text


@pytest.mark.browser
def test_timeline_and_graph_of_one_rank_open_quietly(page, alone):
    with serving(create_app(alone)) as address:
        page.goto(f"{address}/timeline")
        page.wait_for_selector(READY["/timeline"], state="attached")
        settle(page)
        follow(page, "/graph")
        page.wait_for_selector(READY["/graph"], state="attached")
        settle(page)


@pytest.mark.parametrize(
    ("message", "title", "text"),
    [
        ("a.yml cannot be read. Next: check it.", "a.yml cannot be read", "Next: check it."),
        ("There is no run 'x'", "A study folder is missing, damaged, or lacks a requested item", None),
    ],
)
def test_the_title_of_an_error_names_the_problem(message, title, text):
    assert _headed(StudyError(message)) == (title, text or message)
