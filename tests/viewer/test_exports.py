"""Output of the viewer: exports, the report, and the figures of the summary."""

from __future__ import annotations

import http.client
import re
import threading
from dataclasses import replace
from html.parser import HTMLParser
from urllib.parse import urlsplit

import pandas as pd
import pytest
from processes import wait_for

from chakrascope.errors import StudyError
from chakrascope.viewer import StudyView, _exports, _routes, serve, write_report
from chakrascope.viewer._exports import _AT_ONCE
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _summary
from chakrascope.viewer.pages._parts import column, table_card, text_column
from chakrascope.viewer.report import _pictures as report_pictures
from chakrascope.viewer.report import report_html

PATIENCE_S = 300  # only a fault takes this long


class Slow:
    """A table that blocks until it is released; counts its calls, and its concurrent calls."""

    def __init__(self, rows: int = 3) -> None:
        self.go, self.lock = threading.Event(), threading.Lock()
        self.begun = self.now = self.most = 0
        self.rows = rows

    def __call__(self, *_: object) -> pd.DataFrame:
        with self.lock:
            self.begun += 1
            self.now += 1
            self.most = max(self.most, self.now)
        assert self.go.wait(2 * PATIENCE_S)
        with self.lock:
            self.now -= 1
        return pd.DataFrame({"number": range(self.rows), "text": ["=1+1"] * self.rows})


@pytest.fixture(scope="module")
def address(study):
    """Serve the study, until the tests end."""
    ready: list[str] = []
    threading.Thread(
        target=serve,
        args=(study,),
        kwargs={"port": 0, "with_token": False, "ready": ready.append},
        daemon=True,
    ).start()
    wait_for(lambda: bool(ready))
    return urlsplit(ready[0]).netloc


def asked(address: str, path: str = "/export/nodes.csv") -> http.client.HTTPConnection:
    """Return a connection on which *path* was requested."""
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    connection.request("GET", path)
    return connection


@pytest.fixture
def slow(monkeypatch):
    """Replace the table of all nodes by a table that waits."""
    table = Slow()
    monkeypatch.setattr(_routes, "TABLES", {**_routes.TABLES, "nodes": table})
    yield table
    table.go.set()
    wait_for(lambda: table.now == 0)


def test_a_few_are_made_at_once_and_small_requests_are_answered_meanwhile(address, slow):
    exports = [asked(address) for _ in range(40)]
    wait_for(lambda: slow.begun == _AT_ONCE)
    for path in ("/", "/_dash-layout", "/export/runs.csv"):
        assert asked(address, path).getresponse().status == 200  # it waits for none of them
    assert slow.begun == _AT_ONCE
    slow.go.set()
    answers = [export.getresponse() for export in exports]
    assert {(answer.status, answer.read()) for answer in answers} == {
        (200, b"number,text\n0,'=1+1\n1,'=1+1\n2,'=1+1\n")
    }
    assert (slow.begun, slow.most) == (40, _AT_ONCE)


def test_cancelled_export_is_not_written(address, slow, monkeypatch):
    is_gone, left = _exports._is_gone, []
    monkeypatch.setattr(_exports, "_is_gone", lambda client: is_gone(client) and not left.append(client))
    patient = [asked(address) for _ in range(_AT_ONCE)]
    wait_for(lambda: slow.begun == _AT_ONCE)
    gone = [asked(address) for _ in range(20)]
    last = asked(address)
    for export in gone:
        export.close()
    wait_for(lambda: len(left) == len(gone))
    slow.go.set()
    for export in (*patient, last):
        assert export.getresponse().status == 200
    assert slow.begun == _AT_ONCE + 1


def test_disconnected_client_frees_its_slot(address, slow):
    slow.rows = 2_000_000
    slow.go.set()
    for _ in range(3 * _AT_ONCE):
        export = asked(address)
        assert export.getresponse().read(100).startswith(b"number,text")
        export.close()
    slow.rows = 3
    assert asked(address).getresponse().status == 200


def test_client_that_reads_nothing_loses_its_slot(address, slow, monkeypatch):
    monkeypatch.setattr(_exports, "_STALL_S", 0.2)
    slow.rows = 2_000_000  # more than the buffers of a connection hold
    slow.go.set()
    stalled = [asked(address) for _ in range(_AT_ONCE)]
    wait_for(lambda: slow.begun == _AT_ONCE)
    slow.rows = 3
    assert asked(address).getresponse().status == 200
    for connection in stalled:
        connection.close()


def test_an_error_makes_room(address, monkeypatch):
    def fail(*_: object) -> pd.DataFrame:
        raise StudyError("The table is damaged; run it again.")

    monkeypatch.setattr(_routes, "TABLES", {**_routes.TABLES, "nodes": fail})
    for _ in range(3 * _AT_ONCE):
        answer = asked(address).getresponse()
        assert (answer.status, answer.read()) == (409, b"The table is damaged; run it again.")
    head = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    for _ in range(3 * _AT_ONCE):
        head.request("HEAD", "/export/ranks.csv")
        assert head.getresponse().read() == b""


def test_many_rows_are_the_same_in_pieces(address, slow):
    slow.rows = 10_001
    slow.go.set()
    text = asked(address).getresponse().read().decode()
    lines = [f"{number},'=1+1" for number in range(10_001)]
    assert text.splitlines() == ["number,text", *lines]


class Reader(HTMLParser):
    """Collects everything that a browser would load, run or show."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.loaded, self.words = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.loaded += [value for name, value in attrs if name in ("src", "href", "action", "data")]
        assert not any(name.startswith("on") for name, _ in attrs)

    def handle_data(self, data):
        self.words.append(data)


def test_report_is_self_contained(run):
    reader = Reader(report_html(run))
    assert reader.loaded == []
    assert not {"script", "img", "iframe", "link", "object"} & set(reader.tags)


def test_report_agrees_with_the_pages(run):
    text = " ".join(Reader(report_html(run)).words)
    answer, _, rest = text.partition(run.summary.headline)
    assert "The step takes 4.92 ms, " in answer
    assert "The change that would save most: " in answer
    assert "Saves" in rest
    assert "Settings without effect" not in text
    assert text.count("all_reduce") >= len(run.collectives)
    assert "All segments add up to 4.92 ms" in text
    assert '<img src=x onerror="alert(1)">' in text


def test_report_names_the_job_its_date_and_the_cluster(captured, simulated):
    study, run = captured
    text = " ".join(Reader(report_html(StudyView(study).open(run))).words)
    assert "Job study, mlp, 2 ranks" in text
    assert re.search(r"Captured 20\d\d-\d\d-\d\d \d\d:\d\d UTC", text)
    assert "Cluster as measured (replay)" in text
    other = " ".join(Reader(report_html(simulated)).words)
    assert "Cluster cpu-cluster-8, simulated with the backend analytical-aware" in other


def test_report_notes_unnamed_work(captured):
    study, run = captured
    text = " ".join(Reader(report_html(StudyView(study).open(run))).words)
    assert "(no " not in text
    assert "of the path is not assigned to any collective." in text


@pytest.mark.parametrize("page", [report_html, lambda run: str(_summary.layout(run, Selection(), "light"))])
def test_what_qualifies_the_answer_follows_it(made, page):
    run = StudyView(made.study).open(made.run_a)
    assert "times as long as unprofiled ones" not in page(run)
    vars(run)["summary"] = replace(
        run.summary, qualifiers=("Steps take 2.0 times as long as unprofiled ones.",)
    )
    before, _, after = page(run).partition(run.summary.headline)
    assert "Steps take 2.0 times as long as unprofiled ones." in after
    assert "as unprofiled ones" not in before


def test_strip_covers_the_step_once(run):
    widths = re.findall(r'<rect x="[\d.]+" y="\d+" width="([\d.]+)"', report_html(run))
    assert sum(map(float, widths)) == pytest.approx(930, abs=5)


def test_timeline_of_the_report_shows_every_lane_and_the_path(run, simulated):
    drawn = report_pictures.timeline_picture(run)
    assert drawn.count("communication</text>") == 2
    assert drawn.count("<path") == 2 * 3 + 1 + 5
    assert report_pictures.timeline_picture(simulated).count("communication</text>") == 8


def test_timeline_of_the_report_keeps_to_the_ranks_of_the_path(simulated, monkeypatch):
    monkeypatch.setattr(report_pictures, "_MAX_LANES", 5)
    note = report_pictures.timeline_note(simulated)
    assert "2 of the 8 ranks" in note
    visited = simulated.path.segments.groupby("rank")["duration_ns"].sum().nlargest(2).index
    drawn = report_pictures.timeline_picture(simulated)
    assert all(f">rank {rank}</text>" in drawn for rank in visited)


def test_report_of_the_newest_run_is_written_whole(made, tmp_path):
    path = write_report(made.study, None, tmp_path / "report.html")
    assert "run-b" in path.read_text()
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_report_that_cannot_be_written_names_the_file(made, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StudyError, match="file"):
        write_report(made.study, made.run_a, tmp_path / "file" / "report.html")


def test_report_of_no_such_run(made, tmp_path):
    with pytest.raises(StudyError, match="nonsense"):
        write_report(made.study, "nonsense", tmp_path / "report.html")


@pytest.mark.browser
def test_report_opens_from_disk_without_complaint(page, made, tmp_path):
    path = write_report(made.study, made.run_b, tmp_path / "report.html")
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text().startswith("The step takes")
    assert page.foreign == [path.as_uri()]
    page.foreign.clear()


# Links of the Summary page lead to the cause that they name.


@pytest.mark.browser
def test_what_summary_names_leads_on(visit, made):
    page = visit("/", f"?run={made.run_a}")
    page.wait_for_selector("#ranks-table .ag-row[row-index='1']")
    page.locator("#run-select").click()
    page.get_by_role("option", name=re.compile("run-b")).click()
    page.wait_for_url(f"**run={made.run_b}*")
    page.wait_for_selector("#ranks-table .ag-row[row-index='3']")
    page.get_by_role("figure", name=re.compile("Critical path by kind: .*Communication .* %")).wait_for()
    page.get_by_role("figure", name=re.compile(r"most exposed communication: rank \d")).wait_for()
    named = page.locator("#advice a").first.get_attribute("href")
    assert re.search(rf"timeline\?run={made.run_b}&rank=\d+&node=\d+", named)
    every = page.get_by_role("link", name="All modules on the critical path").get_attribute("href")
    assert re.search("critical-path.*by=module", every)
    page.locator("#layers-table .ag-row[row-index='3'] [col-id='module']").click()
    page.wait_for_selector("#selected:has-text('Selected on every page')")
    page.locator("#selected").get_by_role("link", name="Graph").click()
    page.wait_for_selector("#graph-title:has-text('of rank')")
    page = visit("/", f"?run={made.run_b}")
    page.wait_for_selector("#module-bars .point path")
    bar = page.locator("#module-bars .point path").first
    bar.scroll_into_view_if_needed()
    box = bar.bounding_box()
    page.mouse.click(box["x"] + 5, box["y"] + box["height"] / 2)
    page.wait_for_url(re.compile(r"/timeline\?run=.*node=\d+"))


def test_every_cause_has_a_node(simulated):
    items = simulated.advices()
    assert items
    assert all(simulated.node(item.rank, item.node_id) is not None for item in items)


def test_column_of_equal_values_is_left_out():
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


# For a predicted run, the Summary page shows the interval and whether the run fits in memory.

SAID = {
    "step_ns": 2_000_000, "step_low_ns": 1_500_000, "step_high_ns": 2_500_000, "tokens_per_s": 12_345.6,
    "memory_bytes_per_rank": 90 << 30, "fits": False, "bound_by": "communication 60.0 %", "chip": "H100",
    "chip_memory_bytes": 80 << 30, "chip_usable_bytes": 76 << 30,
}  # fmt: skip


@pytest.mark.parametrize(("fits", "verdict"), [(False, "does NOT fit"), (True, "'fits: the fullest rank")])
def test_a_prediction_says_its_uncertainty_and_memory(made, fits, verdict):
    run = StudyView(made.study).open(made.run_a)
    assert _summary._prediction(run) == []
    run.result = replace(
        run.result, provenance={**run.result.provenance, "prediction": SAID | {"fits": fits}}
    )
    shown = str(_summary._prediction(run))
    assert "90 % interval: 1.50 ms to 2.50 ms" in shown
    assert verdict in shown
    assert "holds 90.0 GiB of the 76.0 GiB usable of the 80.0 GiB of H100" in shown
    assert "12,346 per second" in shown
