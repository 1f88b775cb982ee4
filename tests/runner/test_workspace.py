"""Several studies at once: found, told apart, described and made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import comp, workload

from chakrascope.errors import StudyError
from chakrascope.runner import Study, Workspace, describe_study, get_backend, prepare


@pytest.fixture
def folder(tmp_path):
    for name in ("beta", "Alpha"):
        study = Study.create(tmp_path / "all" / name)
        study.add_workload(workload([comp(0, 5)], [comp(0, 9)]), "job")
    experiment = prepare(study.workload_prefix(), "default", "ring-2", backend="fake")
    study.add_run(experiment, get_backend("fake").run(experiment))
    (tmp_path / "all" / "something else").mkdir()
    return tmp_path / "all"


def test_studies_of_a_folder_are_listed_by_name(folder):
    infos = Workspace(folder).infos()
    assert [(info.name, info.ranks, info.runs, info.shortest_ns > 0) for info in infos] == [
        ("Alpha", 2, 1, True),
        ("beta", 2, 0, False),
    ]
    assert all(info.changed for info in infos)


def test_studies_of_one_name_are_told_apart(folder, tmp_path):
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


@given(st.text(max_size=90).filter(lambda name: name[:1] in "./ " or "/" in name or "\0" in name))
def test_name_of_a_study_is_never_a_path(name):
    with pytest.raises(StudyError, match="cannot name a study"):
        Workspace().create(name)


def test_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(StudyError, match="not a folder"):
        Workspace(tmp_path / "absent")
