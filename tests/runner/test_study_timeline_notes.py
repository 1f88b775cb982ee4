"""Notes on a run's timeline are kept beside the result, whole or not at all."""

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from studies import make_study

from chakrascope.errors import StudyError
from chakrascope.runner.study import add_timeline_note, remove_timeline_note, timeline_notes


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("notes") / "study")


@pytest.fixture
def study(made):
    yield made.study
    (made.study.run_dir(made.run_a) / "timeline-notes.json").unlink(missing_ok=True)


def test_notes_come_back_in_order_of_time_and_change_nothing_else(study, made):
    folder = study.run_dir(made.run_a)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    later = add_timeline_note(study, made.run_a, "  later ", (500, 900))
    first = add_timeline_note(study, made.run_a, "first\nof two", (100, 200), (1, 4))
    assert timeline_notes(study, made.run_a) == (first, later)
    assert (first.rank, first.node, later.text) == (1, 4, "later")
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert timeline_notes(study, made.run_b) == ()
    remove_timeline_note(study, made.run_a, first.id)
    assert timeline_notes(study, made.run_a) == (later,)


def test_nobody_loses_a_note_to_somebody_else(study, made):
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: add_timeline_note(study, made.run_a, f"note {i}", (i, i)), range(24)))
    assert {note.text for note in timeline_notes(study, made.run_a)} == {f"note {i}" for i in range(24)}


@pytest.mark.parametrize(
    ("text", "span", "says"),
    [
        ("", (0, 1), "empty"),
        ("x" * 4_001, (0, 1), "4,001"),
        ("x", (2, 1), "no time"),
        ("x", (0, 1 << 70), "no time"),
    ],
)
def test_what_is_no_note_is_refused(study, made, text, span, says):
    with pytest.raises(StudyError, match=says):
        add_timeline_note(study, made.run_a, text, span)


def test_unknown_runs_and_notes_are_refused(study, made):
    with pytest.raises(StudyError, match="begins with 'none'"):
        timeline_notes(study, "none")
    with pytest.raises(StudyError, match="no note 'none'"):
        remove_timeline_note(study, made.run_a, "none")


ROW = {"id": "a", "text": "b", "t0_ns": 0, "t1_ns": 1, "rank": -1, "node": -1, "created": ""}


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "{}",
        "[1]",
        "[[]]",
        "null",
        "[" * 9_000,
        json.dumps([ROW | {"t0_ns": 1.5}]),
        json.dumps([{"id": "a"}]),
    ],
)
def test_a_damaged_file_is_named(study, made, content):
    file = study.run_dir(made.run_a) / "timeline-notes.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(StudyError, match=r"timeline-notes\.json is damaged"):
        timeline_notes(study, made.run_a)
    with pytest.raises(StudyError, match="is damaged"):
        add_timeline_note(study, made.run_a, "x", (0, 1))
    assert file.read_text(encoding="utf-8") == content
