"""A study that is moved, renamed or copied goes on as if nothing had happened, whatever is in it."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import command_line
import pytest
from processes import wait_for
from workloads import coll, comp, workload

from chakrascope.runner import (
    JobStore,
    NetworkConfig,
    Study,
    compare,
    critical_path,
    get_backend,
    prepare,
    read_sweep,
    run_sweep,
    sweep_names,
)

OVER = {"network.latency": [1, 2, 3]}


def experiment(study, latency, system="default"):
    network = NetworkConfig(("Ring",), (2,), (50.0,), (float(latency),))
    return prepare(study.workload_prefix(), system, network)


def until(store, done, resume=False):
    def look():
        # A process whose study went away under it may be noticed only after a while.
        if resume:
            store.resume()
        return done(store.jobs())

    wait_for(look)
    return store.jobs()


@pytest.fixture(scope="module")
def used(tmp_path_factory):
    """A study that was worked with: runs, notes, a sweep, jobs that are done, waiting, and cut off."""
    home = tmp_path_factory.mktemp("home-of-the-study")
    study = Study.create(home / "study")
    ranks = [[comp(0, 500), coll(1, 1 << 20, (0,)), comp(2, 20, (1,))]] * 2
    study.add_workload(workload(*ranks, metadata={"measured_step_ns": {"0": 1}}), "job")
    (home / "mine.yml").write_text("topology: [Ring]\nnpus_count: [2]\nbandwidth: [5]\nlatency: [9]\n")
    for network in (str(home / "mine.yml"), "ring-2"):
        asked = prepare(study.workload_prefix(), "default", network)
        run = study.add_run(asked, get_backend(asked.backend).run(asked))
        study.annotate(run, label="mine", note="kept", tags=["a"])
    run_sweep(study, OVER, network=str(home / "mine.yml"), workers=1, keep=1)
    store = JobStore(study)
    store.submit(experiment(study, 100))
    until(store, lambda jobs: jobs[0].state == "done")
    cut_off = JobStore(study, slots=1, launch=lambda *_: 0)
    cut_off.submit(experiment(study, 101))
    cut_off.submit(experiment(study, 102))
    return study


def texts_with(folder: Path, words: bytes) -> list[str]:
    return [
        str(file.relative_to(folder))
        for file in folder.rglob("*")
        if file.is_file() and words in file.read_bytes()
    ]


def test_no_file_of_a_study_knows_where_the_study_is(used):
    assert texts_with(used.path, str(used.path.parent).encode()) == []


@pytest.mark.parametrize("way", ["copied", "renamed"])
def test_everything_goes_on_at_another_place(used, tmp_path, way):
    copy = tmp_path / "copy"
    shutil.copytree(used.path, copy)
    if way == "renamed":
        copy = copy.rename(tmp_path / "a name with blanks, ünïcode")
    study = Study.open(copy)
    check_runs(study, used)
    assert sweep_names(study) == sweep_names(used)
    assert read_sweep(study, sweep_names(study)[0]).points["state"].tolist() == ["done"] * 3
    store = JobStore(study)
    assert [job.state for job in store.jobs()] == ["done", "running", "queued"]
    store.resume()
    jobs = until(store, lambda jobs: all(not job.is_active for job in jobs))
    assert [job.state for job in jobs] == ["done"] * 3
    assert {job.experiment for job in jobs} <= {info.id for info in study.runs()}
    assert not (used.path / "runs" / jobs[-1].experiment).exists()


def check_runs(study, original):
    assert [info.id for info in study.runs()] == [info.id for info in original.runs()]
    for info in study.runs():
        again = study.experiment(info.id)
        assert again.content_hash == info.id
        assert get_backend(again.backend).run(again).makespan_ns == info.makespan_ns
        assert (
            critical_path(study.result(info.id), study.run_workload(info.id)).makespan_ns == info.makespan_ns
        )
    results = [study.result(info.id) for info in study.runs()]
    assert len(compare(results, study.workload()).overview) == len(results)


def test_a_job_whose_study_moves_while_it_works_leaves_no_damage(used, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(used.path, copy)
    slow = workload(*[[comp(0, 5), *[coll(n, 1 << 20, (n - 1,)) for n in range(1, 800)]]] * 2)
    study = Study.open(copy)
    study.add_workload(slow, "slow")
    store = JobStore(study, slots=4)
    asked = prepare(study.workload_prefix("slow"), "default", "ring-2", backend="analytical-aware")
    job = store.submit(asked, workload="slow")
    until(store, lambda jobs: jobs[-1].pid > 1 or not jobs[-1].is_active)
    moved = Study.open(copy.rename(tmp_path / "moved"))
    store = JobStore(moved, slots=4)
    pid = store.job(job.id).pid
    if store.job(job.id).is_active and pid > 1:
        os.killpg(pid, signal.SIGKILL)
    until(store, lambda jobs: all(not job.is_active for job in jobs), resume=True)
    assert store.job(job.id).state == "done"
    assert moved.result(asked.content_hash).makespan_ns > 0
    assert not list((moved.path / "runs").glob(".*"))


def test_the_command_line_works_on_a_moved_study(used, tmp_path, capfd):
    copy = tmp_path / "elsewhere"
    shutil.copytree(used.path, copy)
    for command in (["runs"], ["summary"], ["compare"], ["jobs"], ["what-if", "--faster", "bandwidth:0=2"]):
        code = command_line.run(command[0], copy, *command[1:])
        assert code == 0, capfd.readouterr().err
