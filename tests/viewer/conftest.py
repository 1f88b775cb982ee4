"""One study, one server and one browser, shared by all tests, which do not change its runs."""

import logging
import threading
from contextlib import contextmanager

import pytest
from studies import make_captured_study, make_study
from werkzeug.exceptions import NotFound

from chakrascope.viewer import StudyView
from chakrascope.viewer.timeline import TimelineIndex

# The element that shows that a page of a run is complete, by the page's address.
READY = {
    "/": "#ranks-table .ag-row",
    "/critical-path": "#segments-table .ag-row",
    "/timeline": "#timeline[data-slices]",
    "/graph": "#graph canvas",
    "/network": "#collectives-table .ag-row",
    "/compare": "#node-differences-table .ag-row",
    "/runs": "#runs-table .ag-row",
}


def control(option):
    """Return the CSS selector of the control that the address contains as *option*."""
    return f"""[id$='"option":"{option}"}}']"""


def whole(nodes):
    """Return a timeline index of *nodes* as one part of all ranks."""
    return TimelineIndex(lambda *_: nodes, lambda *_: None, [nodes["rank"].unique().tolist()], 0)


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("viewer") / "study")


@pytest.fixture(scope="session")
def study(made):
    return made.study


@pytest.fixture(scope="session")
def run(made):
    """Return the first run, which stays open."""
    return StudyView(made.study).open(made.run_a)


@pytest.fixture(scope="session")
def simulated(made):
    """Return the second run, which stays open."""
    return StudyView(made.study).open(made.run_b)


@pytest.fixture(scope="session")
def captured(tmp_path_factory, data_dir):
    """Return a study of a small capture with its traces, as measured, and the run's id."""
    return make_captured_study(tmp_path_factory.mktemp("captured"), data_dir)


@pytest.fixture(scope="session")
def client(study):
    """Return a client of the viewer of the shared study, without a browser."""
    from chakrascope.viewer import create_app

    return create_app(study).server.test_client()


_idle = []


def _server():
    """Start a server on a free loopback port, for as long as the tests run."""
    from werkzeug.serving import make_server

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = make_server("127.0.0.1", 0, NotFound(), threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


@contextmanager
def serving(app):
    """Serve *app* on a loopback port; yield its address without the final slash.

    The next app uses the same port, because browsers cache compiled scripts by address.
    """
    server = _idle.pop() if _idle else _server()
    server.app = app.server
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.app = NotFound()
        _idle.append(server)


@pytest.fixture(scope="session")
def served(study):
    from chakrascope.viewer import create_app

    with serving(create_app(study)) as address:
        yield address


@pytest.fixture(scope="session")
def context(browser):
    """One browser profile, so that the scripts are fetched once."""
    context = browser.new_context(viewport={"width": 1280, "height": 800}, accept_downloads=True)
    yield context
    context.close()


@pytest.fixture
def page(context):
    """A fresh page without console errors or requests to other machines."""
    page = watched(context)
    yield page
    heard = page.complaints, page.foreign
    assert heard == ([], [])
    if page.url.startswith("http:"):
        page.evaluate("window.localStorage.clear()")  # the next app has the same address
    page.close()


@contextmanager
def tab_of(context, app):
    """Serve *app*; yield a page of it for :func:`visit`, which loads the scripts only once."""
    with serving(app) as address:
        page = _nowhere(context, address)
        yield page
        page.close()


def _nowhere(context, address):
    page = watched(context)
    page.goto(f"{address}/nonsense")
    page.wait_for_selector("#notice")
    return page


@pytest.fixture(scope="session")
def tab(context, served):
    """The page of :func:`visit`; a file with a different study has a separate tab."""
    return _nowhere(context, served)


@pytest.fixture
def visit(tab):
    """Open an address as a link on a page does, without reloading the scripts, and return the page.

    The page must have no console errors, and send no requests to other machines.
    """
    size = tab.viewport_size

    def go(path, search=""):
        tab.complaints.clear()
        for target, query in (("/nonsense", ""), (path, search)):
            follow(tab, target, query)
            tab.wait_for_selector("#notice", state="attached" if target == "/nonsense" else "detached")
        return tab

    yield go
    heard = tab.complaints, tab.foreign
    assert heard == ([], [])
    tab.emulate_media(color_scheme="light")
    if tab.viewport_size != size:
        tab.set_viewport_size(size)


def follow(page, path, search=""):
    """Open an address as a link on *page* does, which is much faster than loading it."""
    where = {"pathname": path, "search": search}
    page.evaluate("where => window.dash_clientside.set_props('url', where)", where)


# Without a GPU, each frame of a spinner costs CPU time, which concurrent tests need.
STILL = """(() => {
  const sheet = new CSSStyleSheet();
  sheet.replaceSync("* { animation: none !important; }");
  document.adoptedStyleSheets = [sheet];
})()"""
# Counts pending requests; waits until none is left and all charts have been drawn for a few frames.
COUNTS = """(() => {
  const ask = window.fetch;
  window.unanswered = 0;
  window.fetch = (...what) => {
    window.unanswered += 1;
    return ask(...what).finally(() => { window.unanswered -= 1; });
  };
})()"""
SETTLED = """() => new Promise((resolve) => {
  const isDrawn = (chart) => !chart.checkVisibility() || chart.querySelector(".main-svg");
  let quiet = 0;
  const look = () => {
    const charts = [...document.querySelectorAll(".dash-graph")];
    quiet = window.unanswered || !charts.every(isDrawn) ? 0 : quiet + 1;
    if (quiet > 5) { resolve(); } else { setTimeout(() => requestAnimationFrame(look), 15); }
  };
  look();
})"""


def settle(page):
    """Wait until all requests of *page* are answered and drawn."""
    page.evaluate(SETTLED)


def watched(context):
    page = context.new_page()
    page.add_init_script(COUNTS)
    page.add_init_script(STILL)
    page.set_default_timeout(120_000)
    page.complaints, page.foreign = [], []
    page.on("console", lambda m: page.complaints.append(m.text) if m.type == "error" else None)
    page.on("pageerror", lambda e: page.complaints.append(str(e)))
    page.on(
        "request",
        lambda r: (
            page.foreign.append(r.url)
            if not r.url.startswith(("http://127.0.0.1:", "data:", "blob:"))
            else None
        ),
    )
    return page
