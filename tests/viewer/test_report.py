import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from chakrascope.errors import StudyError
from chakrascope.viewer import StudyView, write_report
from chakrascope.viewer._state import Selection
from chakrascope.viewer.pages import _summary
from chakrascope.viewer.report import _pictures as report_pictures
from chakrascope.viewer.report import report_html


class Reader(HTMLParser):
    """Collects what a browser would load, run or show."""

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


def test_report_is_one_file_that_loads_and_runs_nothing(run):
    reader = Reader(report_html(run))
    assert reader.loaded == []
    assert not {"script", "img", "iframe", "link", "object"} & set(reader.tags)


def test_report_says_what_the_pages_say(run):
    text = " ".join(Reader(report_html(run)).words)
    assert run.summary.headline in text
    assert "Saves" in text
    assert text.count("all_reduce") >= len(run.collectives)
    assert "all of them add up to 4.92 ms" in text
    assert '<img src=x onerror="alert(1)">' in text


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
    both = report_pictures.timeline_picture(simulated)
    assert both.count("(measured)</text>") == both.count("communication") == 16
    assert "pale" in report_pictures.timeline_note(simulated)


def test_timeline_of_the_report_keeps_to_the_ranks_of_the_path(simulated, monkeypatch):
    monkeypatch.setattr(report_pictures, "_MOST_LANES", 5)
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
    with pytest.raises(StudyError, match="absent"):
        write_report(made.study, made.run_a, tmp_path / "absent" / "report.html")


def test_report_of_no_such_run(made, tmp_path):
    with pytest.raises(StudyError, match="nonsense"):
        write_report(made.study, "nonsense", tmp_path / "report.html")


@pytest.mark.browser
def test_report_opens_from_disk_without_complaint(page, made, tmp_path):
    path = write_report(made.study, made.run_b, tmp_path / "report.html")
    page.foreign.clear()
    page.goto(path.as_uri())
    assert page.locator("h1").inner_text().startswith("The step takes")
    assert page.complaints == []
    assert page.foreign == [path.as_uri()]
