"""What surrounds every page: the search, a link to hand on, the page's name, a server that has gone."""

from __future__ import annotations

import re
import threading
from contextlib import contextmanager

import pytest

from chakrascope.viewer import _server, create_app
from chakrascope.viewer._access import require_token

from .conftest import serving, watched

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
def test_search_keeps_every_key_and_finds_modules(visit, made):
    page = visit("/critical-path", f"?run={made.run_b}")
    page.locator("#node-search").focus()
    page.keyboard.type("layers.3", delay=KEY_MS)
    module = page.get_by_role("group", name="Modules").get_by_role("option")
    module.filter(has_text="layers.3").wait_for()
    assert page.locator("#node-search").input_value() == "layers.3"
    # 8 ranks run two programs: each of its nodes is there once for each, with how many others have it.
    nodes = page.get_by_role("group", name="Nodes").get_by_role("option").all_inner_texts()
    assert len(nodes) == len(set(nodes)) == 6
    page.keyboard.press("ArrowDown")
    assert module.get_attribute("aria-selected") == "true"
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile(rf"run={made.run_b}.*node=\d+"))
    assert page.locator("#node-search").input_value() == ""
    assert page.locator("#search-hits").is_hidden()
    assert page.complaints == []


@pytest.mark.browser
def test_search_says_when_it_finds_nothing_and_closes(visit, made):
    page = visit("/critical-path", f"?run={made.run_b}")
    page.locator("#node-search").focus()
    page.keyboard.type("nobody", delay=KEY_MS)
    page.wait_for_selector("#search-hits:has-text('Nothing is called')")
    page.keyboard.press("Escape")
    assert page.locator("#search-hits").is_hidden()
    page.locator("#node-search").fill("")


def test_a_place_is_found_by_its_numbers(study, made):
    client = create_app(study).server.test_client()
    found = client.get(f"/api/find?q=7:4&run={made.run_b}").json["hits"]
    assert [(hit["rank"], hit["node_id"]) for hit in found] == [(7, 4)]
    selected = client.get(f"/api/find?q=allreduce&rank=3&run={made.run_b}").json["hits"]
    assert {hit["rank"] for hit in selected} <= {2, 3} | {0, 1}
    assert client.get(f"/api/find?q=%00{'x' * 5000}&run={made.run_b}").json["hits"] == []


@pytest.mark.browser
def test_pages_have_a_language_and_names_of_their_own(visit, made):
    titles = set()
    for path in ("/", "/critical-path", "/runs"):
        page = visit(path, f"?run={made.run_b}")
        page.wait_for_function("() => document.title.includes('run-b')")
        titles.add(page.title())
    assert titles == {
        f"{name} · run-b · study · Chakrascope" for name in ("Summary", "Critical path", "Runs")
    }
    assert page.locator("html").get_attribute("lang") == "en"


@pytest.mark.browser
def test_a_server_that_went_away_is_told_and_taken_up_again(browser, study, made):
    page = watched(browser.new_context())
    with served_at(create_app(study), 0) as port:
        page.goto(f"http://127.0.0.1:{port}/?run={made.run_a}")
        page.wait_for_selector("#ranks-table .ag-row")
    page.get_by_role("link", name="Critical path", exact=True).click()
    page.wait_for_selector("#server-state[data-state=gone]:has-text('does not answer')")
    page.evaluate(STATES)
    with served_at(create_app(study), port):
        page.wait_for_function("() => window.states.includes('back')")
        # What was asked meanwhile is answered now, without a reload.
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
        other.get_by_role("heading", name="asks for its token").wait_for()
        other.locator("#token").focus()
        other.keyboard.type("wrong", delay=KEY_MS)
        other.keyboard.press("Enter")
        other.get_by_text("not this viewer's token").wait_for()
        other.locator("#token").fill(link)
        other.keyboard.press("Enter")
        other.wait_for_selector("#runs-table .ag-row")
        assert other.url == page.url
        assert other.complaints == [] or all("403" in text for text in other.complaints)
        for opened in (page, other):
            opened.context.close()


def test_who_has_no_token_is_not_told_it(study):
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
