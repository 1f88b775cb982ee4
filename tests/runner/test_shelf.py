"""Several studies at once: found, told apart, described and made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import comp, workload

from chakrascope.errors import StudyError
from chakrascope.runner import Shelf, Study, describe_study, get_backend, prepare


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
    infos = Shelf(folder).infos()
    assert [(info.name, info.ranks, info.runs, info.shortest_ns > 0) for info in infos] == [
        ("Alpha", 2, 1, True),
        ("beta", 2, 0, False),
    ]
    assert all(info.changed for info in infos)


def test_studies_of_one_name_are_told_apart(folder, tmp_path):
    other = Study.create(tmp_path / "other" / "beta")
    shelf = Shelf(folder, other.path, folder / "beta")
    assert list(shelf.studies()) == ["Alpha", "beta", "beta-2"]
    assert shelf.study("beta-2").path == other.path
    with pytest.raises(StudyError, match="did you mean 'beta'"):
        shelf.study("bet")


def test_one_study_is_no_folder_of_studies(folder):
    assert Shelf(folder / "beta").is_one_study
    assert not Shelf(folder).is_one_study
    assert Shelf(folder / "beta").home is None


def test_damaged_study_is_listed_with_its_problem(folder):
    (folder / "beta" / "study.json").write_text("{")
    assert "study.json" in Shelf(folder).infos()[1].problem
    assert Shelf(folder).table()["problem"].tolist()[0] == ""


def test_study_is_described_and_keeps_its_results(folder):
    study = Study.open(folder / "Alpha")
    describe_study(study, note=" for the customer ", tags=["b", " a ", "a", ""])
    info = Shelf(folder).infos()[0]
    assert (info.note, info.tags) == ("for the customer", ("a", "b"))
    assert Shelf(folder).table()["tags"].tolist() == ["a, b", ""]
    describe_study(study, tags=[])
    assert Shelf(folder).infos()[0].note == "for the customer"
    with pytest.raises(StudyError, match="at most 40"):
        describe_study(study, tags=["x" * 41])
    with pytest.raises(StudyError, match="at most 20"):
        describe_study(study, tags=map(str, range(21)))


def test_study_is_made_where_studies_are(folder):
    shelf = Shelf(folder)
    assert shelf.create("A new one").path == folder / "A new one"
    assert "A new one" in shelf.studies()
    for name in ("A new one", "something else"):
        with pytest.raises(StudyError, match="already"):
            shelf.create(name)


@given(st.text(max_size=90).filter(lambda name: name[:1] in "./ " or "/" in name or "\0" in name))
def test_name_of_a_study_is_never_a_path(name):
    with pytest.raises(StudyError, match="cannot name a study"):
        Shelf().create(name)


def test_folder_that_is_gone_is_named(tmp_path):
    with pytest.raises(StudyError, match="no folder"):
        Shelf(tmp_path / "absent")
