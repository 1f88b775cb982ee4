"""The job store: any order of submit, cancel, crash and resume, and processes that are killed."""

import contextlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from command_line import run_and_read
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from processes import wait_for
from workloads import coll, comp, workload

from chakrascope.errors import ConfigError, StudyError
from chakrascope.runner import (
    JobStore,
    NetworkConfig,
    Study,
    SystemConfig,
    backend_names,
    get_backend,
    prepare,
    read_sweep,
    run_sweep,
)
from chakrascope.runner.jobs._job import ACTIVE, keep_run, read_request, request_of
from chakrascope.runner.jobs.worker import Attempt
from chakrascope.support import new_folder

EXPERIMENTS = 3
SLOTS = 2


def small_study(folder):
    study = Study.create(folder / "study")
    study.add_workload(workload([comp(0, 5)], [comp(0, 9)]), "job")
    return study


def experiment_of(study, latency, backend="fake"):
    network = NetworkConfig(("Ring",), (2,), (50.0,), (float(latency),))
    return prepare(study.workload_prefix(), "default", network, backend=backend)


class Interleavings(RuleBasedStateMachine):
    """Processes that take one step at a time and may die between any two."""

    def __init__(self):
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.study = small_study(Path(self._folder.name))
        self.store = JobStore(self.study, SLOTS, self.launch)
        self.experiments = [experiment_of(self.study, latency) for latency in range(EXPERIMENTS)]
        self.processes = []
        self.kept = Counter()
        self.asked = set()

    def launch(self, study, job, slots, lock, log):
        process = _Process(self, job, os.fdopen(os.dup(lock.fileno()), "ab"))
        self.processes.append(process)
        return process.pid

    @rule(index=st.integers(0, EXPERIMENTS - 1))
    def submit(self, index):
        job = self.store.submit(self.experiments[index])
        self.asked.add(index)
        assert job.experiment == self.experiments[index].content_hash
        if self.study.has_run(self.experiments[index]):
            assert job.state in (*ACTIVE, "done")

    @rule(number=st.integers(0, 30))
    def cancel(self, number):
        jobs = self.store.jobs()
        if jobs:
            job = jobs[number % len(jobs)]
            after = self.store.cancel(job.id)
            assert after.state == {"queued": "cancelled"}.get(job.state, after.state)

    @rule(number=st.integers(0, 30), steps=st.integers(1, 4))
    def work(self, number, steps):
        for _ in range(steps):
            if self.processes:
                self.processes[number % len(self.processes)].step()

    @rule(number=st.integers(0, 30))
    def crash(self, number):
        if self.processes:
            self.processes[number % len(self.processes)].die()

    @rule(number=st.integers(0, 30))
    def submitter_crashes_before_it_launches(self, number):
        claimed = self.store._claim()
        if claimed is not None:
            claimed[1].close()

    @rule()
    def resume(self):
        self.store.resume()

    @invariant()
    def never_two_of_one_experiment_and_never_too_many(self):
        jobs = self.store.jobs()
        active = Counter(job.experiment for job in jobs if job.is_active)
        assert all(count == 1 for count in active.values())
        assert sum(job.state == "running" for job in jobs) <= SLOTS
        working = [process.job for process in self.processes]
        assert len(set(working)) == len(working)

    @invariant()
    def the_study_opens_and_what_is_done_is_there(self):
        runs = {info.id for info in Study.open(self.study.path).runs()}
        assert {job.experiment for job in self.store.jobs() if job.state == "done"} <= runs
        assert all(count == 1 for count in self.kept.values())

    def teardown(self):
        while self.store.resume():
            for process in list(self.processes):
                process.step()
        states = {}
        for job in self.store.jobs():
            states.setdefault(job.experiment, set()).add(job.state)
            assert not job.is_active
            assert job.message or job.state == "done"
        for index in self.asked:
            experiment = self.experiments[index]
            assert states[experiment.content_hash]
            assert self.study.has_run(experiment) == (self.kept[experiment.content_hash] == 1)
            assert self.study.has_run(experiment) == ("done" in states[experiment.content_hash])
        self._folder.cleanup()


class _Process:
    """The steps of an attempt; a process dies by releasing its lock."""

    def __init__(self, machine, job, lock):
        self.machine = machine
        self.job = job
        self.pid = 0
        self._lock = lock
        self._steps = self._work(Attempt(machine.store, job))

    def _work(self, attempt):
        attempt.begin()
        experiment = read_request(attempt.store.study, attempt.store.request(attempt.id))
        yield
        if not attempt.note({"simulated_ns": 1}):
            attempt.end("cancelled", "Cancelled.")
            return
        yield
        if not attempt.store.study.has_run(experiment):
            result = get_backend("fake").run(experiment)
            yield
            self.machine.kept[experiment.content_hash] += 1
            keep_run(attempt.store.study, experiment, result, attempt.store.job(attempt.id))
        yield
        attempt.end("done", "")

    def step(self):
        try:
            next(self._steps)
        except StopIteration:
            self.die()

    def die(self):
        self._steps.close()
        self._lock.close()
        with contextlib.suppress(ValueError):
            self.machine.processes.remove(self)


Interleavings.TestCase.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
TestInterleavings = Interleavings.TestCase


@pytest.fixture
def study(tmp_path):
    return small_study(tmp_path)


class TestProcesses:
    def test_a_job_survives_its_submitter_and_starts_the_next(self, study):
        script = (
            "import sys; from chakrascope.runner import Study, prepare\n"
            "from chakrascope.runner.jobs import JobStore\n"
            "study = Study.open(sys.argv[1]); prefix = study.workload_prefix()\n"
            "for backend in ('fake', 'analytical-unaware'):\n"
            "    JobStore(study).submit(prepare(prefix, 'default', 'ring-2', backend=backend))\n"
        )
        subprocess.run([sys.executable, "-c", script, str(study.path)], check=True, timeout=600)
        store = JobStore(Study.open(study.path))
        done = _looked_at(store, lambda jobs: all(not job.is_active for job in jobs))
        assert [(job.state, job.attempts, job.message) for job in done] == [("done", 1, "")] * 2
        assert {job.experiment for job in done} == {info.id for info in study.runs()}
        again = store.submit(experiment_like(study))
        assert (again.state, again.attempts) == ("done", 0)

    def test_killed_job_resumes_and_its_study_opens(self, study):
        store = JobStore(study)
        job = store.submit(experiment_of(study, 1))
        running = _looked_at(store, lambda jobs: jobs[0].pid > 1)[0]
        os.killpg(running.pid, signal.SIGKILL)
        assert Study.open(study.path).runs() == []
        assert store.wait(job.id, 600).state == "done"
        assert [(job.state, job.attempts) for job in store.jobs()] == [("done", 2)]
        assert len(study.runs()) == 1

    def test_a_running_job_is_cancelled(self, study):
        store = JobStore(study)
        job = store.submit(long_experiment(study))
        _looked_at(store, lambda jobs: jobs[0].simulated_ns > 0)
        store.cancel(job.id)
        ended = store.wait(job.id, 600)
        assert (ended.state, ended.message) == ("cancelled", "Cancelled.")
        assert study.runs() == []

    def test_a_job_that_fails_says_why(self, study):
        study.add_workload(workload([coll(0, 64)], [comp(0, 1)]), "stuck")
        store = JobStore(study)
        job = store.submit(experiment_like(study, "stuck"))
        ended = store.wait(job.id, 600)
        assert ended.state == "failed"
        assert "rank 0" in ended.message
        assert store.log(job.id) == ""


def experiment_like(study, name="job"):
    return prepare(study.workload_prefix(name), "default", "ring-2", backend="analytical-unaware")


def long_experiment(study):
    calls = [coll(number, 1 << 24, after=[number - 1] if number else []) for number in range(2000)]
    study.add_workload(workload(calls, [comp(9999, 3), *calls]), "long")
    system = replace(SystemConfig.preset("default"), preferred_dataset_splits=4096)
    return prepare(study.workload_prefix("long"), system, "ring-2", backend="analytical-unaware")


def _looked_at(store, wanted):
    """Return the jobs once they are as *wanted*."""

    def looked():
        jobs = store.jobs()
        if wanted(jobs):
            return jobs
        assert any(job.is_active for job in jobs), jobs
        return None

    return wait_for(looked)


def test_unresponsive_process_is_killed(study, monkeypatch):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
    locks = []

    def launch(study, job, slots, lock, log):
        locks.append(os.fdopen(os.dup(lock.fileno()), "ab"))
        return child.pid

    store = JobStore(study, launch=launch)
    job = store.submit(experiment_of(study, 1))
    assert store.cancel(job.id).state == "running"
    assert child.poll() is None
    monkeypatch.setattr("chakrascope.runner.jobs._store._GRACE_S", 0.0)
    store.resume()
    assert child.wait(600) == -signal.SIGKILL
    locks[0].close()
    assert store.resume() == []
    assert store.job(job.id).state == "cancelled"


def test_a_job_that_keeps_dying_is_reported(study):
    store = JobStore(study, launch=lambda *_: 0)
    job = store.submit(experiment_of(study, 1))
    for _ in range(3):
        store.resume()
    assert store.job(job.id).state == "failed"
    assert "died 3 times" in store.job(job.id).message


def test_a_process_that_dies_when_all_is_done_has_done_it(study, monkeypatch):
    store = JobStore(study, launch=lambda *_: 0)
    job = store.submit(experiment_of(study, 1))
    with monkeypatch.context() as patched:
        patched.setattr(Attempt, "end", lambda *_: None)
        Attempt(store, job.id).run()
    assert (store.job(job.id).state, len(study.runs())) == ("running", 1)
    assert store.resume() == []
    assert (store.job(job.id).state, store.job(job.id).attempts) == ("done", 1)


def test_a_process_that_cannot_start_is_reported(study):
    def launch(*_):
        raise OSError(12, "Cannot allocate memory")

    job = JobStore(study, launch=launch).submit(experiment_of(study, 1))
    assert (job.state, "Cannot allocate memory" in job.message) == ("failed", True)


@pytest.mark.parametrize("backend", [name for name in backend_names() if ":" not in name])
def test_a_request_of_any_backend_is_the_experiment_again(study, backend):
    asked = prepare(study.workload_prefix(), "default", "ring-2", backend=backend)
    again = read_request(study, request_of(study, asked, "job"))
    assert (again.backend, again.content_hash) == (backend, asked.content_hash)


def test_only_simulations_are_listed_with_a_run(tmp_path, capfd, monkeypatch):
    store = JobStore(small_study(tmp_path), slots=0)
    job = replace(store.submit(experiment_of(store.study, 500)), state="done")
    monkeypatch.setattr(JobStore, "jobs", lambda _store: [job, replace(job, kind="sweep")])
    _, out, _ = run_and_read(capfd, "runs", store.study.path, "--jobs", "--format", "json")
    assert [row["run"] for row in json.loads(out)] == [job.experiment, ""]


def test_a_changed_workload_is_not_simulated_in_its_place(study):
    store = JobStore(study, launch=lambda *_: 0)
    job = store.submit(experiment_of(study, 1))
    study.add_workload(workload([comp(0, 6)], [comp(0, 9)]), "job", replace_other=True)
    store.database.update(job.id, state="running")
    Attempt(store, job.id).run()
    assert "changed" in store.job(job.id).message
    assert study.runs() == []


def test_a_half_written_run_of_a_dead_process_is_removed(study):
    store = JobStore(study, launch=lambda *_: 4242)
    job = store.submit(experiment_of(study, 1))
    with new_folder(study.path / "runs" / job.experiment) as making:
        leftover = making.with_name(making.name.replace(f"-{os.getpid()}-", "-4242-"))
    leftover.mkdir(parents=True)
    store.resume()
    assert not leftover.exists()


def test_job_with_external_files_is_refused(study):
    store = JobStore(study, launch=lambda *_: 0)
    other = workload([comp(0, 77)], [comp(0, 9)])
    with pytest.raises(ConfigError, match="add the workload"):
        store.submit(prepare(other, "default", "ring-2", backend="fake"))
    custom = SystemConfig(all_reduce_implementation_custom=("mine",))
    with pytest.raises(ConfigError, match="'mine' has no files"):
        store.submit(replace(experiment_of(study, 1), system=custom))
    assert store.jobs() == []


def test_a_store_that_is_damaged_or_unknown_is_named(study, monkeypatch):
    store = JobStore(study, launch=lambda *_: 0)
    with pytest.raises(StudyError, match="no job 7"):
        store.job(7)
    job = store.submit(experiment_of(study, 1))
    with pytest.raises(StudyError, match="wait longer"):
        JobStore(study, slots=0).wait(job.id, 0)
    monkeypatch.setattr("chakrascope.runner.jobs._store._WAIT_S", 0.0)
    with closing(sqlite3.connect(store.database.path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        store.database.check()
    store.database.path.write_bytes(b"no database" * 100)
    with pytest.raises(StudyError, match="delete it"):
        store.jobs()


# Real processes killed at any moment: each experiment runs to its end exactly once, or is reported.


def study_in(folder):
    study = Study.create(folder / "study")
    nodes = [comp(0, 5), *[coll(number, 1 << 20, (number - 1,)) for number in range(1, 300)]]
    study.add_workload(workload(nodes, nodes), "job")
    return study


def test_a_sweep_killed_with_its_processes_is_resumed(tmp_path):
    study = study_in(tmp_path)
    latencies = list(range(60))
    script = (
        "import sys; from chakrascope.runner import Study, sweep\n"
        "study = Study.open(sys.argv[1])\n"
        "def progress(done, *_):\n"
        "    if done >= 20: print('now', flush=True)\n"
        "sweep(study, {'network.latency': list(range(60))}, network='ring-2', workers=2, name='long',\n"
        "      backend='analytical-aware', progress=progress)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(study.path)], stdout=subprocess.PIPE, text=True
    ) as process:
        process.stdout.readline()
        process.kill()
    Study.open(study.path)
    table = study.path / "sweeps/long/points.parquet"
    known = len(read_sweep(study, "long").points) if table.exists() else 0
    found = run_sweep(
        study,
        {"network.latency": latencies},
        network="ring-2",
        workers=2,
        name="long",
        backend="analytical-aware",
    )
    assert found.reused == known
    assert found.simulated == len(latencies) - known
    assert sorted(found.points["network.latency"]) == latencies
    assert found.points["id"].is_unique
    assert (found.points["state"] == "done").all()
