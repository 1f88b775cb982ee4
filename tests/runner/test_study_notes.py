"""Labels, notes and networks in a study, and the workspace of several studies."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from studies import make_study, run_in
from workloads import coll, comp, workload

from chakrascope.errors import ConfigError, StudyError
from chakrascope.runner import Study, Workspace, describe_study
from chakrascope.runner.study import (
    add_network,
    add_timeline_note,
    network_names,
    read_network_file,
    remove_timeline_note,
    timeline_notes,
)


def kept(study, network="ring-2"):
    model = workload(*([comp(0, 500), coll(1, 1 << 20, after=[0])] for _ in range(2)))
    run = run_in(study, model, network, label="as made", backend="fake")
    return run, study.experiment(run), study.result(run)


@pytest.fixture
def study(tmp_path):
    return Study.create(tmp_path / "study")


def test_new_study_is_private_unless_its_folder_existed(tmp_path):
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


@pytest.mark.parametrize("texts", [{"label": "x" * 121}, {"note": "x" * 4_001}, {"note": "\ud800"}])
def test_invalid_text_changes_nothing(study, texts):
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


def test_note_of_a_deleted_run_is_dropped(study, monkeypatch):
    run_id, experiment, _ = kept(study)
    folder = study.path / "runs" / run_id
    monkeypatch.setattr(study, "_run_folder", lambda _: folder)
    study.delete_run(run_id)
    with pytest.raises(StudyError, match="check that it still exists"):
        study.annotate(run_id, note="too late")
    with pytest.raises(StudyError, match="check that it still exists"):
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


# Notes on a run's timeline are stored with the result, completely or not at all.


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return make_study(tmp_path_factory.mktemp("notes") / "study")


@pytest.fixture
def noted(made):
    yield made.study
    (made.study.run_dir(made.run_a) / "timeline-notes.json").unlink(missing_ok=True)


def test_notes_are_sorted_by_time(noted, made):
    folder = noted.run_dir(made.run_a)
    before = {file.name: file.read_bytes() for file in folder.iterdir() if file.is_file()}
    later = add_timeline_note(noted, made.run_a, "  later ", (500, 900))
    first = add_timeline_note(noted, made.run_a, "first\nof two", (100, 200), (1, 4))
    assert timeline_notes(noted, made.run_a) == (first, later)
    assert (first.rank, first.node, later.text) == (1, 4, "later")
    assert {name: (folder / name).read_bytes() for name in before} == before
    assert timeline_notes(noted, made.run_b) == ()
    remove_timeline_note(noted, made.run_a, first.id)
    assert timeline_notes(noted, made.run_a) == (later,)


def test_one_process_at_a_time_changes_notes(noted, made, monkeypatch):
    """Each writer reads and rewrites the notes, so a concurrent note would be lost without a lock."""
    written = []

    def write(file, _text):
        with pytest.raises(BlockingIOError):
            lock(file.parent)
        written.append(file.name)

    monkeypatch.setattr("chakrascope.runner.study._marks.write_file", write)
    monkeypatch.setattr("chakrascope.runner.study._notes.write_file", write)
    add_timeline_note(noted, made.run_a, "one", (0, 1))
    noted.annotate(made.run_a, note="two")
    assert written == ["timeline-notes.json", "note.json"]
    lock(noted.run_dir(made.run_a))


def lock(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("text", "span", "says"),
    [
        ("", (0, 1), "empty"),
        ("x" * 4_001, (0, 1), "4,001"),
        ("x", (2, 1), "no time"),
        ("x", (0, 1 << 70), "no time"),
    ],
)
def test_what_is_no_note_is_refused(noted, made, text, span, says):
    with pytest.raises(StudyError, match=says):
        add_timeline_note(noted, made.run_a, text, span)


def test_unknown_runs_and_notes_are_refused(noted, made):
    with pytest.raises(StudyError, match="begins with 'none'"):
        timeline_notes(noted, "none")
    with pytest.raises(StudyError, match="no note 'none'"):
        remove_timeline_note(noted, made.run_a, "none")


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
def test_a_damaged_file_is_named(noted, made, content):
    file = noted.run_dir(made.run_a) / "timeline-notes.json"
    file.write_text(content, encoding="utf-8")
    with pytest.raises(StudyError, match=r"timeline-notes\.json is damaged"):
        timeline_notes(noted, made.run_a)
    with pytest.raises(StudyError, match="is damaged"):
        add_timeline_note(noted, made.run_a, "x", (0, 1))
    assert file.read_text(encoding="utf-8") == content


# Network files in a study: accepted files, their results, and refused files.

SAMPLES = Path(__file__).parents[1] / "data" / "runner" / "infragraph"
PLAIN = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [10.0], "latency": [500.0]}


def content(**more):
    return yaml.safe_dump(PLAIN | more).encode()


def test_a_network_yaml_is_kept_and_read_as_it_is(study):
    failures = [{"link": [0, 4], "at": "5ms"}]
    assert network_names(study) == []
    assert add_network(study, "mine.yaml", content(failures=failures)) == "mine.yml"
    assert network_names(study) == ["mine.yml"]
    kept = read_network_file(study, "mine.yml")
    assert (kept.name, kept.to_dict()) == ("mine", PLAIN | {"failures": failures})
    assert add_network(study, "mine.yaml", content(failures=failures)) == "mine.yml"
    assert add_network(study, "mine.yml", content(npus_count=[8])) == "mine-2.yml"
    assert read_network_file(study, "mine-2.yml").num_ranks == 8


def test_json_is_one_too_and_an_infragraph_is_written_out(study):
    assert add_network(study, "a.json", json.dumps(PLAIN).encode()) == "a.yml"
    data = json.loads((SAMPLES / "mi300x.json").read_text(encoding="utf-8"))
    with pytest.raises(ConfigError, match=r"^pod\.json: links without figures"):
        add_network(study, "pod.json", json.dumps(data).encode())
    for link in data["links"]:
        link["physical"] = {"bandwidth": {"gigabits_per_second": 400}, "latency": {"ns": 100}}
    assert add_network(study, "pod.json", json.dumps(data).encode()) == "pod.yml"
    pod = read_network_file(study, "pod.yml")
    assert pod.num_ranks == 8
    assert len(pod.links) == 41


@pytest.mark.parametrize(
    ("name", "more", "words"),
    [
        ("../mine.yml", {}, "must have a plain name"),
        ("/etc/mine.yml", {}, "must have a plain name"),
        (".yml", {}, "must have a plain name"),
        ("config.txt", {}, "use the command line"),
        ("mine.yml", {"infragraph": "/etc/passwd"}, "refers to another file .'infragraph'"),
        ("mine.yml", {"tcp": {"pcap": "/etc/packets"}}, "'tcp': 'pcap' must be true or false"),
        ("mine.yml", {"bandwidth": [0]}, "'bandwidth' must be more than 0"),
    ],
)
def test_refused_note_leaves_no_file(study, name, more, words):
    with pytest.raises(ConfigError, match=words) as caught:
        add_network(study, name, content(**more))
    assert "/tmp/" not in caught.value.message
    assert not study.networks_dir.exists()


@pytest.mark.parametrize("broken", [b"topology: [", b"\xff\xfe\x00", b"[1, 2]", b"", b"a: " + b"[" * 5000])
def test_what_is_no_network_is_refused(study, broken):
    with pytest.raises(ConfigError):
        add_network(study, "mine.yml", broken)


def test_only_files_of_the_study_are_read(study, tmp_path):
    add_network(study, "mine.yml", content())
    (tmp_path / "other.yml").write_bytes(content())
    for name in ("../../other.yml", str(tmp_path / "other.yml")):
        with pytest.raises(ConfigError, match="has no network file"):
            read_network_file(study, name)
    with pytest.raises(ConfigError, match=r"did you mean 'mine\.yml'"):
        read_network_file(study, "mien.yml")


# Several studies at once: found, distinguished, described and created.


@pytest.fixture
def folder(tmp_path):
    model = workload([comp(0, 5)], [comp(0, 9)])
    Study.create(tmp_path / "all" / "beta").add_workload(model, "job")
    run_in(Study.create(tmp_path / "all" / "Alpha"), model, "ring-2", backend="fake")
    (tmp_path / "all" / "something else").mkdir()
    return tmp_path / "all"


def test_studies_of_a_folder_are_listed_by_name(folder):
    infos = Workspace(folder).infos()
    assert [(info.name, info.ranks, info.runs, info.shortest_ns > 0) for info in infos] == [
        ("Alpha", 2, 1, True),
        ("beta", 2, 0, False),
    ]
    assert all(info.changed for info in infos)
    two_steps = workload([comp(0, 5)], [comp(0, 9)], metadata={"steps": [{}, {}]})
    run_in(Study.create(folder / "gamma"), two_steps, "ring-2", backend="fake")
    assert Workspace(folder).infos()[-1].shortest_ns == infos[0].shortest_ns // 2


def test_studies_of_equal_name_are_distinguished(folder, tmp_path):
    other = Study.create(tmp_path / "other" / "beta")
    workspace = Workspace(folder, other.path, folder / "beta")
    assert list(workspace.studies()) == ["Alpha", "beta", "beta-2"]
    assert workspace.study("beta-2").path == other.path
    with pytest.raises(StudyError, match="did you mean 'beta'"):
        workspace.study("bet")


def test_one_study_is_no_folder_of_studies(folder):
    assert Workspace(folder / "beta").is_one_study
    assert not Workspace(folder).is_one_study
    assert Workspace(folder / "beta").home is None


def test_damaged_study_is_listed_with_its_problem(folder):
    (folder / "beta" / "study.json").write_text("{")
    assert "study.json" in Workspace(folder).infos()[1].problem
    assert Workspace(folder).table()["problem"].tolist()[0] == ""


def test_study_is_described_and_keeps_its_results(folder):
    study = Study.open(folder / "Alpha")
    describe_study(study, note=" for the customer ", tags=["b", " a ", "a", ""])
    info = Workspace(folder).infos()[0]
    assert (info.note, info.tags) == ("for the customer", ("a", "b"))
    assert Workspace(folder).table()["tags"].tolist() == ["a, b", ""]
    describe_study(study, tags=[])
    assert Workspace(folder).infos()[0].note == "for the customer"
    with pytest.raises(StudyError, match="at most 40"):
        describe_study(study, tags=["x" * 41])
    with pytest.raises(StudyError, match="at most 20"):
        describe_study(study, tags=map(str, range(21)))


def test_study_is_made_where_studies_are(folder):
    workspace = Workspace(folder)
    assert workspace.create("A new one").path == folder / "A new one"
    assert "A new one" in workspace.studies()
    for name in ("A new one", "something else"):
        with pytest.raises(StudyError, match="already"):
            workspace.create(name)


def test_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(StudyError, match="not a folder"):
        Workspace(tmp_path / "absent")
