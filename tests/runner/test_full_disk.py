"""A study on a full disk: an error that says so, and nothing half written."""

from __future__ import annotations

import pytest
from full_disk import files_up_to
from workloads import coll, comp, workload

from chakrascope.errors import StudyError
from chakrascope.runner import Study, get_backend, prepare

ROOM_BYTES = 1000


def job():
    return workload(*[[comp(0, 5), *[coll(number, 4096, (number - 1,)) for number in range(1, 200)]]] * 2)


def test_a_run_that_does_not_fit_is_no_run(tmp_path):
    study = Study.create(tmp_path / "study")
    experiment = prepare(study.add_workload(job(), "job"), "default", "ring-2")
    result = get_backend(experiment.backend).run(experiment)
    with files_up_to(ROOM_BYTES), pytest.raises(StudyError, match=r"cannot be written.*free some disk space"):
        study.add_run(experiment, result)
    with files_up_to(ROOM_BYTES), pytest.raises(StudyError, match=r"cannot be written.*free some disk space"):
        result.save(tmp_path / "result")
    assert study.runs() == []
    assert list((study.path / "runs").glob(".*")) == []
    assert not (tmp_path / "result").exists()


def test_a_workload_that_does_not_fit_is_no_workload(tmp_path):
    study = Study.create(tmp_path / "study")
    with files_up_to(ROOM_BYTES), pytest.raises(StudyError, match=r"cannot be written.*free some disk space"):
        study.add_workload(job(), "job")
    assert study.workloads() == []
    assert list((study.path / "workloads").iterdir()) == []
