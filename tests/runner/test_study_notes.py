"""Labels, notes and the deletion of runs: what people do to a study that must never touch a result."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.errors import StudyError
from chakrascope.runner import Study, get_backend, prepare

HOSTILE = '<img src=x onerror="alert(1)"> \u202eevil & \x00 "; DROP TABLE runs'


def kept(study, network="ring-2"):
    model = workload(*([comp(0, 500), coll(1, 1 << 20, after=[0])] for _ in range(2)))
    if not study.workloads():
        study.add_workload(model, "w")
    experiment = prepare(study.workload_prefix("w"), "default", network, backend="fake")
    result = get_backend("fake").run(experiment)
    return study.add_run(experiment, result, label="as made"), experiment, result


@pytest.fixture
def study(tmp_path):
    return Study.create(tmp_path / "study")


def test_a_study_is_its_owners_alone_unless_the_folder_was_there(tmp_path):
    made = Study.create(tmp_path / "deep" / "study")
    assert made.path.stat().st_mode & 0o777 == 0o700
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o770)
    assert Study.create(shared).path.stat().st_mode & 0o777 == 0o770


def contents(study):
    return {
        file.relative_to(study.path): file.read_bytes()
        for file in study.path.rglob("*")
        if file.is_file() and file.name != "note.json"
    }


def test_label_and_note_are_kept_beside_the_result(study):
    run_id, _, _ = kept(study)
    before = contents(study)
    assert study.annotate(run_id, label="  A100 \n cluster ").label == "A100 cluster"
    info = study.annotate(run_id, note="as the customer asked")
    assert (info.label, info.note) == ("A100 cluster", "as the customer asked")
    assert [info] == Study.open(study.path).runs()
    assert contents(study) == before


def test_tags_are_kept_each_once_and_removed_alone(study):
    run_id, _, _ = kept(study)
    study.annotate(run_id, label="mine", tags=[" two\nwords ", "a", "a", ""])
    assert study.runs()[0].tags == ("a", "two words")
    assert study.annotate(run_id, note="text").tags == ("a", "two words")
    info = study.annotate(run_id, tags=())
    assert (info.label, info.note, info.tags) == ("mine", "text", ())


def test_empty_texts_bring_the_first_label_back(study):
    run_id, _, _ = kept(study)
    study.annotate(run_id, label="other", note="text")
    info = study.annotate(run_id, label="", note=" ")
    assert (info.label, info.note) == ("as made", "")


@settings(max_examples=20)
@given(st.text(max_size=60))
def test_every_text_is_read_back_or_refused(tmp_path_factory, text):
    study = Study.create(tmp_path_factory.mktemp("text") / "study")
    folder = study.path / "runs" / "0123456789abcdef"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(
        json.dumps(
            {"backend": "fake", "network": "n", "makespan_ns": 1, "created": "", "label": "first"}
            | {"workload": "w", "num_ranks": 1}
        )
    )
    info = study.annotate(folder.name, label=text, note=text)
    assert info.label == (" ".join(text.split()) or "first")
    assert info.note == text.strip()
    assert study.runs() == [info]


def test_hostile_text_stays_text(study):
    run_id, _, _ = kept(study)
    assert study.annotate(run_id, label=HOSTILE, note=HOSTILE).note == HOSTILE
    assert study.runs()[0].label == HOSTILE


@pytest.mark.parametrize("texts", [{"label": "x" * 121}, {"note": "x" * 4_001}, {"note": "\ud800"}])
def test_text_that_is_too_long_or_no_text_changes_nothing(study, texts):
    run_id, _, _ = kept(study)
    before = study.annotate(run_id, label="good", note="good")
    with pytest.raises(StudyError, match="write"):
        study.annotate(run_id, **texts)
    assert study.runs() == [before]


@pytest.mark.parametrize("asked", ["", "absent", "../runs", "..", "/", "\x00", ".hidden"])
def test_unknown_run_is_refused(study, asked):
    run_id, _, _ = kept(study)
    for act in (study.delete_run, study.annotate):
        with pytest.raises(StudyError, match="has no run"):
            act(asked)
        with pytest.raises(StudyError, match=f"did you mean '{run_id}'"):
            act(run_id[:-1])
    assert [info.id for info in study.runs()] == [run_id]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"label": 1, "note": ""}', '{"label": "a"}', "\xff"])
def test_damaged_note_costs_only_itself(study, content):
    run_id, _, result = kept(study)
    (study.path / "runs" / run_id / "note.json").write_bytes(content.encode("latin-1"))
    info = study.runs()[0]
    assert info.label == "as made"
    assert "damaged" in info.note
    assert study.result(run_id).makespan_ns == result.makespan_ns
    assert study.annotate(run_id, note="again").note == "again"


def test_interrupted_writing_leaves_the_old_note(study, monkeypatch):
    run_id, _, _ = kept(study)
    before = study.annotate(run_id, label="old", note="old")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(StudyError, match="No space left"):
        study.annotate(run_id, label="new", note="new")
    assert study.runs() == [before]
    assert not list((study.path / "runs").rglob(".*"))


def test_writers_at_once_leave_one_whole_note(study):
    run_id, _, _ = kept(study)
    texts = [f"{number} " * 100 for number in range(8)]
    threads = [threading.Thread(target=study.annotate, args=(run_id,), kwargs={"note": t}) for t in texts]
    for thread in threads:
        thread.start()
    seen = {study.runs()[0].note for _ in range(50)}
    for thread in threads:
        thread.join()
    whole = {text.strip() for text in texts}
    assert seen <= whole | {""}
    assert study.runs()[0].note in whole


def test_deleted_run_stays_deleted_until_it_is_simulated_again(study):
    run_id, experiment, result = kept(study)
    other, _, _ = kept(study, "cpu-cluster-2")
    study.annotate(run_id, note="gone with it")
    study.delete_run(run_id)
    again = Study.open(study.path)
    assert [info.id for info in again.runs()] == [other]
    assert not again.has_run(experiment)
    assert [item.name for item in (study.path / "runs").iterdir()] == [other]
    for act in (again.delete_run, again.annotate):
        with pytest.raises(StudyError, match="has no run"):
            act(run_id)
    assert again.add_run(experiment, result) == run_id
    assert {info.id: info.note for info in again.runs()} == {run_id: "", other: ""}


def test_note_of_a_run_deleted_meanwhile_brings_nothing_back(study, monkeypatch):
    run_id, experiment, _ = kept(study)
    folder = study.path / "runs" / run_id
    monkeypatch.setattr(study, "_run_folder", lambda _: folder)
    study.delete_run(run_id)
    with pytest.raises(StudyError, match="was it deleted"):
        study.annotate(run_id, note="too late")
    with pytest.raises(StudyError, match="was it deleted meanwhile"):
        study.delete_run(run_id)
    assert not list((study.path / "runs").iterdir())
    assert not study.has_run(experiment)


def test_leftover_of_a_deletion_that_died_is_no_run(study):
    run_id, _, _ = kept(study)
    folder = study.path / "runs" / run_id
    dies = "import os, shutil, sys; shutil.rmtree = lambda *_, **__: os._exit(3); "
    dies += "from pathlib import Path; from chakrascope.support import remove_folder; "
    dies += "remove_folder(Path(sys.argv[1]))"
    assert subprocess.run([sys.executable, "-c", dies, str(folder)], check=False).returncode == 3
    assert study.runs() == []
    assert len(list((study.path / "runs").iterdir())) == 1
    kept(study)
    study.delete_run(run_id)
    assert not list((study.path / "runs").iterdir())


def test_notes_move_with_the_study(study, tmp_path):
    run_id, _, _ = kept(study)
    study.annotate(run_id, label="here", note="and there")
    study.path.rename(tmp_path / "moved")
    moved = Study.open(tmp_path / "moved")
    assert moved.annotate(run_id, label="there").note == "and there"
    assert str(tmp_path) not in (moved.path / "runs" / run_id / "note.json").read_text()
