"""The server: access, malformed requests, and the addresses of its links."""

import gzip
import io
import json
import random
import re
import shutil
import socket
import subprocess
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

import pandas as pd
import pytest
from studies import make_study, make_workload, run_in, study_of

from chakrascope import viewer
from chakrascope.errors import ChakrascopeError, StudyError, UsageError
from chakrascope.runner import ImportRequest, JobStore, Study, find_items, prepare, run_sweep
from chakrascope.runner.analysis import COMPARISONS, OVERVIEWS, TABLES
from chakrascope.viewer import StudyView, create_app, serve
from chakrascope.viewer._access import is_loopback, require_token, serve_only
from chakrascope.viewer._state import Selection
from chakrascope.viewer._theme import run_options
from chakrascope.viewer.pages import PAGES
from chakrascope.viewer.pages import _timeline as timeline_page

from .conftest import follow, serving
from .test_accessibility import PAGES as SHOWN


def test_port_in_use_is_an_error_with_a_next_step(study, capfd):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ChakrascopeError, match="--port"):
            serve(study, port=taken.getsockname()[1])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("depth", [2_000, 100_000])
def test_a_deeply_nested_request_is_refused(client, depth):
    body = b'{"inputs": ' + b"[" * depth + b"]" * depth + b"}"
    answer = client.post("/_dash-update-component", data=body, content_type="application/json")
    assert answer.status_code == 400


NAV = {
    "output": "nav.children",
    "outputs": {"id": "nav", "property": "children"},
    "inputs": [
        {"id": "url", "property": "pathname", "value": "/"},
        {"id": "url", "property": "search", "value": ""},
    ],
    "changedPropIds": ["url.pathname"],
}


@pytest.mark.parametrize(
    "body",
    [
        {},
        [],
        None,
        "nav.children",
        7,
        {"output": "nav.children"},
        {"output": None},
        {"output": ["nav.children"]},
        NAV | {"output": "nobody.children"},
        NAV | {"inputs": {}},
        NAV | {"inputs": []},
        NAV | {"inputs": [[], []]},
        NAV | {"inputs": [1, 2]},
        NAV | {"inputs": [{}, {}]},
        NAV | {"inputs": NAV["inputs"][::-1]},
        NAV | {"inputs": [{"id": {"a": {}}, "property": "pathname"}, NAV["inputs"][1]]},
        NAV | {"state": [{"id": "url", "property": "search"}]},
        NAV | {"outputs": None},
        NAV | {"outputs": [[], 3]},
        NAV | {"outputs": []},
        NAV | {"outputs": [{"id": "nav", "property": "children"}]},
        NAV | {"outputs": {"id": "nav", "property": "childre\0n"}},
        NAV | {"outputs": {"id": "navigation", "property": "children"}},
        NAV | {"inputs": [NAV["inputs"][0] | {"value": 7}, NAV["inputs"][1]]},
        NAV | {"inputs": [NAV["inputs"][0], NAV["inputs"][1] | {"value": ["?run=x"]}]},
        NAV | {"changedPropIds": 3},
        NAV | {"changedPropIds": [{}]},
    ],
)
def test_a_body_that_no_page_sends_is_refused(client, body):
    assert client.post("/_dash-update-component", json=NAV).status_code == 200
    answer = client.post("/_dash-update-component", data=json.dumps(body), content_type="application/json")
    assert answer.status_code == 400
    assert (
        client.post("/_dash-update-component", data=b"{", content_type="application/json").status_code == 400
    )


def test_a_callback_of_the_browser_is_not_asked_of_the_server(study):
    client = create_app(study).server.test_client()
    client.application.config["PROPAGATE_EXCEPTIONS"] = False
    own = [one for one in client.get("/_dash-dependencies").get_json() if one["clientside_function"]]
    assert own
    for one in own:
        given = {name: [each | {"value": None} for each in one[name]] for name in ("inputs", "state")}
        body = {"output": one["output"], "outputs": {"id": "nav", "property": "children"}} | given
        assert client.post("/_dash-update-component", json=body).status_code == 400


def test_chart_script_is_sent_compressed_if_accepted(client):
    address = "/charts/plotly-cartesian-4.1.1.min.js"
    packed = client.get(address, headers={"Accept-Encoding": "gzip"})
    plain = client.get(address)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert gzip.decompress(packed.data) == plain.data
    assert b"plotly.js (cartesian - minified) v4.1.1" in plain.data[:200]
    assert address.rpartition("/")[2] in (Path(viewer.__file__).parent / "assets" / "03_shell.js").read_text()


def test_policy_allows_only_this_server(client):
    policy = client.get("/").headers["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "http" not in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'self' 'unsafe-inline'" not in policy


def test_serve_prints_its_address_when_ready(study):
    ready, address = threading.Event(), []

    def note(url):
        address.append(url)
        ready.set()

    threading.Thread(target=serve, args=(study,), kwargs={"port": 0, "ready": note}, daemon=True).start()
    assert ready.wait(120)
    browser = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
    with browser.open(address[0], timeout=120) as reply:
        assert reply.status == 200
    another_user = address[0].partition("?")[0]
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(another_user, timeout=120)
    where = urlsplit(another_user)
    with socket.create_connection((where.hostname, where.port), timeout=120) as odd:
        odd.sendall(b"GET http://[ HTTP/1.0\r\n\r\n")
        assert b" 400 " in odd.makefile("rb").readline()


def test_only_a_loopback_address_may_do_without_its_token(study):
    with pytest.raises(UsageError, match="leave out --no-token"):
        serve(study, host="0.0.0.0", port=0, with_token=False)


def test_two_viewers_on_one_machine_keep_their_tokens_apart(study):
    servers = {token: create_app(study).server for token in ("one", "two")}
    for token, server in servers.items():
        require_token(server, token)
    cookies = [
        server.test_client().get(f"/?token={token}").headers["Set-Cookie"].split(";")[0]
        for token, server in servers.items()
    ]
    for server in servers.values():
        answer = server.test_client(use_cookies=False).get("/", headers={"Cookie": "; ".join(cookies)})
        assert answer.status_code == 200


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("localhost", True),
                        ("0.0.0.0", False), ("192.168.1.2", False), ("example.org", False)],
)  # fmt: skip
def test_loopback_addresses(host, local):
    assert is_loopback(host) is local


def test_foreign_name_that_points_here_is_refused(study):
    server = create_app(study).server
    serve_only(server, ("127.0.0.1", "localhost"))
    client = server.test_client()
    assert client.get("/", headers={"Host": "127.0.0.1:8050"}).status_code == 200
    assert client.get("/", headers={"Host": "evil.example"}).status_code == 403


def test_token_opens_the_viewer_once_and_is_not_left_in_the_address(study):
    server = create_app(study).server
    require_token(server, "secret")
    client = server.test_client()
    assert client.get("/").status_code == 403
    assert client.get("/?token=wrong").status_code == 403
    assert client.get("/api/lanes").status_code == 403
    reply = client.get("/timeline?token=secret&run=x")
    assert reply.status_code == 302
    assert reply.location == "/timeline?run=x"
    assert "HttpOnly" in reply.headers["Set-Cookie"]
    assert client.get("/").status_code == 200


def test_oversized_request_is_refused(client):
    body = b'{"a": "' + b"x" * (2 << 20) + b'"}'
    assert (
        client.post("/_dash-update-component", data=body, content_type="application/json").status_code == 413
    )


def test_a_measurement_has_no_causes_to_export(client, made):
    answer = client.get(f"/export/causes.csv?run={made.run_a}&against={made.run_b}")
    assert answer.status_code == 409
    assert "name two simulations" in answer.text


COMPARED = [name for name in COMPARISONS if name != "causes"]


@pytest.mark.parametrize("name", [*TABLES, *COMPARED, *OVERVIEWS, "graph-nodes", "graph-edges"])
def test_every_table_is_exported_whole(client, made, name):
    address = f"/export/{name}.%s?run={made.run_a}&against={made.run_b}"
    csv, parquet = client.get(address % "csv"), client.get(address % "parquet")
    assert csv.headers["Content-Type"] == "text/csv; charset=utf-8"
    assert csv.headers["Content-Disposition"].endswith(f'filename="{name}.csv"')
    table = pd.read_parquet(io.BytesIO(parquet.data))
    assert csv.data.decode().splitlines()[0] == ",".join(table.columns)


@pytest.mark.parametrize("fold", ["nodes", "modules", "phases", "streams", "ranks", "nonsense"])
def test_the_graph_drawn_is_exported(client, made, fold):
    address = f"/export/graph-%s.csv?run={made.run_a}&rank=1&node=4&fold={fold}&hops=1"
    nodes, edges = (pd.read_csv(io.BytesIO(client.get(address % part).data)) for part in ("nodes", "edges"))
    ids = "node_id" if fold in {"nodes", "nonsense"} else "group"
    assert set(edges["src"]) | set(edges["dst"]) <= set(nodes[ids])
    if ids == "node_id":
        assert nodes[ids].tolist() == [3, 4, 5]
        assert nodes["on_path_ns"].sum() > 0


@pytest.mark.parametrize(
    "path", ["segments.pickle", "secrets.csv", "__class__.csv", "graph-x.csv", "graph-nodes.exe"]
)
def test_nothing_else_is_exported(client, path):
    assert client.get(f"/export/{path}").status_code == 404


@pytest.mark.parametrize(
    "address",
    [
        "export/nodes.csv?run=none",
        "export/timeline.json?run=none",
        "export/area.csv?run=none",
        "export/graph-nodes.csv?run=run-a&rank=0&node=999",
        "export/node-differences.csv?run=run-a&against=none",
        "export/overview.csv?run=run-a&against=run-b,none",
        "export/sweep.csv?sweep=none",
        "api/lanes?run=none",
    ],
)
def test_missing_items_have_no_substitute(client, made, address):
    named = address.replace("run-a", made.run_a).replace("run-b", made.run_b)
    assert client.get(f"/{named}").status_code == 404


def test_without_an_id_the_newest_run_is_exported(client, made):
    newest = client.get(f"/export/ranks.csv?run={made.run_b}").data
    assert client.get("/export/ranks.csv").data == newest


ASSETS = sorted((Path(viewer.__file__).parent / "assets").glob("*.js"))


def test_only_one_door_makes_charts():
    """Any other chart would offer to upload the figure, which is the library's default."""
    makers = [
        file.name
        for file in Path(viewer.__file__).parent.rglob("*.py")
        if "dcc.Graph(" in file.read_text(encoding="utf-8")
    ]
    assert makers == ["_charts.py"]


@pytest.mark.parametrize("script", ASSETS, ids=lambda path: path.name)
def test_script_is_strict_parses_and_names_no_host(script):
    text = script.read_text(encoding="utf-8")
    assert text.startswith('"use strict";')
    assert "http" not in text
    node = shutil.which("node")
    if node is None:
        pytest.skip("no node to parse it with")
    assert subprocess.run([node, "--check", script], capture_output=True, check=False).returncode == 0


def test_lanes_mark_ranks_with_stand_ins(tmp_path):
    workload = make_workload(8)
    program = replace(workload, metadata=dict(workload.metadata) | {"stand_in_of": {"3": 1}})
    study = study_of(tmp_path, program, "cpu-cluster-8", backend="analytical-unaware")
    client = create_app(study).server.test_client()
    ranks = client.get("/api/lanes").json["ranks"]
    assert {rank["rank"] for rank in ranks if rank["replaced"]} == {3}
    run = StudyView(study).open(study.runs()[0].id)
    page = str(timeline_page.layout(run, Selection(), "light"))
    assert "another rank stands in: rank 1 for rank 3." in page


# No request makes the server fail, and requests without the token are refused first.

TOKEN = "secret"
WORDS = ("..", "http://[", "http://[::1?token=x", "%0d%0a", "a" * 300, "\u00e9", "%ff", "{}", "[", "null", "")
PATHS = (
    "/",
    "/_dash-component-suites/../x",
    "/_dash-component-suites/dash/x.js",
    "/_dash-layout",
    "/export/nodes.csv",
    "/export/x.csv",
    "/api/token",
    "/_dash-update-component",
    "/assets/../x",
    "/timeline",
    "/api/notes",
    "/_favicon.ico",
)
BODIES = (b"", b"{", b"[]", b"null", b'{"output": 1}', b"[" * 3000, b"\xff")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    made = make_study(tmp_path_factory.mktemp("odd") / "study")
    flask = create_app(Study.open(made.study.path)).server
    require_token(flask, TOKEN)
    flask.config["PROPAGATE_EXCEPTIONS"] = False
    return flask


def odd_request(client, chance):
    """Send a request made of unusual parts, and return the answer."""
    path = chance.choice(PATHS) + chance.choice(["", "/", "%2e%2e/x", *(f"/{word}" for word in WORDS)])
    names = ("token", "run", "t", "")
    query = "&".join(f"{chance.choice(names)}={chance.choice(WORDS)}" for _ in range(chance.randrange(3)))
    origin = chance.choice(WORDS).encode("ascii", "replace").decode()
    answer = client.open(
        "/",
        environ_overrides={"PATH_INFO": unquote(path, "latin-1"), "QUERY_STRING": query},
        method=chance.choice(["GET", "POST", "PUT", "HEAD"]),
        headers={"Origin": origin} if chance.random() < 0.4 else {},
        data=chance.choice(BODIES),
        content_type=chance.choice(["application/json", "text/plain"]),
    )
    return answer, (path, query, origin)


@pytest.mark.parametrize("known", [False, True])
def test_no_request_makes_it_fail(server, known):
    chance = random.Random(30)
    client = server.test_client()
    if known:
        client.get(f"/?token={TOKEN}")
    for _ in range(400):
        answer, asked = odd_request(client, chance)
        assert answer.status_code < 500, asked
        answer.close()


def a_name(wanted):
    """Return the id *wanted*; for a pattern, return an id that matches."""
    if isinstance(wanted, str):
        return wanted
    return {key: part if isinstance(part, str) else "0" for key, part in wanted.items()}


def a_property(wanted, value):
    """Return a property for a callback, as in *wanted*, with *value*."""
    name = json.loads(wanted["id"]) if wanted["id"].startswith("{") else wanted["id"]
    one = {"id": a_name(name), "property": wanted["property"], "value": value}
    return [one] if '["ALL"]' in wanted["id"] else one


def ask_every_callback(study, value_of):
    """Send every callback a request, each property with a value of *value_of*; return its status."""
    app = create_app(study)
    app.server.config["PROPAGATE_EXCEPTIONS"] = False
    client = app.server.test_client()
    client.get("/_dash-dependencies")
    answers = {}
    for output, wanted in app.callback_map.items():
        if "callback" not in wanted:
            continue
        outputs = wanted["output"] if isinstance(wanted["output"], list) else [wanted["output"]]
        written = [{"id": a_name(each.component_id), "property": each.component_property} for each in outputs]
        body = {
            "output": output,
            "outputs": written if isinstance(wanted["output"], list) else written[0],
            "inputs": [a_property(each, value_of()) for each in wanted["inputs"]],
            "state": [a_property(each, value_of()) for each in wanted["state"]],
            "changedPropIds": [],
        }
        answers[output] = client.post("/_dash-update-component", json=body).status_code
    assert len(answers) > 50
    return answers


@pytest.mark.parametrize(
    "value",
    [7, "\0", [None], {"points": []}, {"run": [], "rank": "x"}, {"a": 1}, [[]], [{}], "x", "\ud800"],
    ids=repr,
)
def test_no_value_makes_a_callback_fail(study, value, caplog):
    answers = ask_every_callback(study, lambda: value)
    assert {output for output, status in answers.items() if status >= 500} == set()
    assert not caplog.records


@pytest.mark.parametrize("seed", range(3))
def test_no_mixture_of_values_makes_a_callback_fail(study, seed, caplog):
    """Many of these requests are valid for their callbacks, which then run."""
    chance = random.Random(seed)
    run = study.runs()[0].id
    values = (
        None,
        None,
        run,
        run,
        "x",
        "",
        "0",
        0,
        1,
        -1,
        2**63,
        1.5,
        True,
        [],
        ["x"],
        {},
        {"rank": 0},
        "?run=",
    )
    answers = ask_every_callback(study, lambda: chance.choice(values))
    assert {output for output, status in answers.items() if status >= 500} == set()
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == []


def test_a_run_that_is_not_a_name_is_unknown(study):
    for run in (None, [], {}, 7):
        with pytest.raises(StudyError, match="no run"):
            StudyView(study).open(run)


def test_the_token_is_asked_for_before_anything_is_read(server):
    answer = server.test_client().post("/_dash-update-component", data=b"{", content_type="application/json")
    assert answer.status_code == 403


# Every link of every page leads to its named target, in a study of several workloads with a capture.

READY = SHOWN | {"/stragglers": "#page h2:text-is('Stragglers')"}  # the study has no recorded steps
TITLES = {page.PATH: page.TITLE for page in PAGES}
LINKS = """() => [...document.querySelectorAll(
  '#page a[href]:not([download]), #selected a[href]')].map((link) => ({
  text: link.innerText.trim(), href: link.href,
  about: (link.closest('.job') || link).innerText }))"""


# The list of jobs is filled once its page is complete.
LISTED = "() => !document.getElementById('job-list') || document.querySelector('.job a')"
SHOWS = """expected => Object.entries(expected).every(
  ([id, value]) => document.getElementById(id)?.value === value)"""


@pytest.fixture(scope="module")
def linked(tmp_path_factory, data_dir):
    """A study with an imported capture, as measured and on a network, two other workloads, and a sweep."""
    root = tmp_path_factory.mktemp("links")
    shutil.copytree(data_dir / "converter" / "mlp_2", root / "from" / "mlp")
    study, jobs = make_study(root / "study").study, None
    jobs = JobStore(study)
    (item,) = find_items(root / "from")
    jobs.wait(jobs.submit_import(ImportRequest(str(root / "from"), item.id, "mlp"), label="mlp").id, 300)
    experiment = prepare(study.workload_prefix("mlp"), "default", None, backend="replay")
    jobs.wait(jobs.submit(experiment, workload="mlp").id, 300)
    study.add_workload(make_workload(4), "newest")
    for name in ("mlp", "newest"):
        run_in(study, study.workload(name), "cpu-cluster-8", backend="packet", workload=name)
    run_sweep(study, {"network.bandwidth": [1.0, 5.0]}, network="cpu-cluster-8", workers=0, keep=1, name="s")
    return study


def visit(page, path, search):
    """Open an address from an unrelated page, and wait until the page is complete."""
    if urlsplit(page.url).path == path:
        follow(page, "/nonsense")
        page.wait_for_selector("#notice:has-text('No such page')")
    follow(page, path, search)
    page.wait_for_selector(READY[path], state="attached")


def parts_of(link):
    """Return the page that a *link* leads to, and the settings in its address."""
    url = urlsplit(link["href"])
    return "/" + url.path.rpartition("/")[2], {key: values[0] for key, values in parse_qs(url.query).items()}


def differing(link, labels):
    """Return how the address of a *link* differs from the link's text."""
    _, asked = parts_of(link)
    found = [] if asked.get("run") in {None, *labels} else [f"no run {asked['run']}"]
    named = re.search(r"\bnode (\d+)", link["text"])
    found += [f"node {asked.get('node')}"] if named and named[1] != asked.get("node") else []
    made = re.search(r"workload '(\w+)'", link["about"])
    if made and json.loads(asked.get("setup", "{}")).get("workload") != made[1]:
        found.append(f"not the workload {made[1]}")
    return found


def wrong(page, link, labels):
    """Follow a *link* of a page, and return how the shown page differs from its address."""
    from playwright.sync_api import TimeoutError

    path, asked = parts_of(link)
    url = urlsplit(link["href"])
    if path not in TITLES:
        return [] if page.request.get(link["href"]).ok else ["no answer"]
    visit(page, path, f"?{url.query}")
    page.wait_for_function(
        "([path, title]) => document.querySelector('#nav .active')?.innerText === title",
        arg=[path, TITLES[path]],
    )
    if url.fragment:
        page.wait_for_selector(f"#{url.fragment}", state="attached")
    expected = {}
    if "run" in asked:
        expected["run-select"] = labels[asked["run"]]
    if "setup" in asked and path == "/new-run":
        expected["new-workload"] = json.loads(asked["setup"])["workload"]
    if "node" in asked:
        page.wait_for_selector(f"#selected:has-text('rank {asked['rank']} · node {asked['node']}')")
    try:
        page.wait_for_function(SHOWS, arg=expected)
    except TimeoutError:
        return [f"not {expected}"]
    return []


@pytest.mark.browser
def test_every_link_has_its_target(page, linked):
    labels = {option["value"]: option["label"] for option in run_options(linked.runs())}
    run = next(info.id for info in linked.runs() if info.workload == "mlp" and info.backend == "packet")
    followed, texts, mistakes = set(), set(), {}
    with serving(create_app(linked)) as address:
        page.goto(f"{address}/runs")
        page.wait_for_selector("#runs-table .ag-row")
        for path in TITLES:
            visit(page, path, f"?run={run}&rank=1&node=1")
            page.wait_for_selector("#selected a")
            page.wait_for_function(LISTED)
            for link in page.evaluate(LINKS):
                texts.add(link["text"])
                problems = differing(link, labels)
                # Links to the same part of a page with the same settings open it alike.
                target, asked = parts_of(link)
                kind = target, urlsplit(link["href"]).fragment, *sorted(asked)
                if kind not in followed:
                    followed.add(kind)
                    problems += wrong(page, link, labels)
                if problems:
                    mistakes[f"{path}: {link['text']} ({link['href']})"] = problems
    assert {"Simulate it", "Open the result", "Open this run", "Graph"} <= texts
    assert mistakes == {}
