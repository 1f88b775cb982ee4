"""Real processes killed at any moment: each experiment runs to its end exactly once, or is reported."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from processes import wait_for
from workloads import coll, comp, workload

from chakrascope.runner import JobStore, NetworkConfig, Result, Study, prepare, read_sweep, run_sweep

EXPERIMENTS = 3
ACTIONS = st.one_of(
    st.tuples(st.just("submit"), st.integers(0, EXPERIMENTS - 1)),
    st.tuples(st.just("cancel"), st.integers(0, EXPERIMENTS - 1)),
    st.tuples(st.just("kill"), st.integers(0, EXPERIMENTS - 1)),
    st.tuples(st.just("resume"), st.just(0)),
    st.tuples(st.just("wait"), st.integers(0, 8)),
)


def study_in(folder):
    study = Study.create(folder / "study")
    nodes = [comp(0, 5), *[coll(number, 1 << 20, (number - 1,)) for number in range(1, 300)]]
    study.add_workload(workload(nodes, nodes), "job")
    return study


@settings(max_examples=2, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(ACTIONS, min_size=4, max_size=12))
def test_jobs_whose_processes_are_killed_end_once_or_are_reported(tmp_path_factory, actions):
    study = study_in(tmp_path_factory.mktemp("kills"))
    store = JobStore(study, slots=2)
    experiments = [
        prepare(
            study.workload_prefix(),
            "default",
            NetworkConfig(("Ring",), (2,), (50.0,), (float(latency),)),
            backend="analytical-aware",
        )
        for latency in range(EXPERIMENTS)
    ]
    asked = {index for action, index in actions if action == "submit"}
    for action, number in actions:
        act(store, experiments, action, number)
    drain(store)
    for index in asked:
        experiment = experiments[index]
        jobs = [job for job in store.jobs() if job.experiment == experiment.content_hash]
        assert all(job.message or job.state == "done" for job in jobs)
        assert study.has_run(experiment) == any(job.state == "done" for job in jobs)
        if study.has_run(experiment):
            assert len(study.result(experiment.content_hash).nodes) == 600
    assert {info.id for info in study.runs()} <= {experiments[index].content_hash for index in asked}
    assert not list((study.path / "runs").glob(".*"))


def act(store, experiments, action, number):
    if action == "submit":
        store.submit(experiments[number])
    elif action == "resume":
        store.resume()
    elif action == "wait":
        time.sleep(number / 10)
    else:
        jobs = store.jobs()
        if jobs and action == "cancel":
            store.cancel(jobs[number % len(jobs)].id)
        elif jobs:
            pid = jobs[number % len(jobs)].pid
            if jobs[number % len(jobs)].state == "running" and pid > 1:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)


def drain(store):
    def over():
        store.resume()
        return not any(job.is_active for job in store.jobs())

    wait_for(over)


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


def test_a_run_that_is_being_written_when_all_dies_is_whole_or_absent(tmp_path):
    study = study_in(tmp_path)
    script = (
        "import sys; from chakrascope.runner import Study, prepare, get_backend\n"
        "study = Study.open(sys.argv[1])\n"
        "asked = prepare(study.workload_prefix(), 'default', 'ring-2')\n"
        "result = get_backend(asked.backend).run(asked)\n"
        "print('now', flush=True)\n"
        "study.add_run(asked, result)\n"
    )
    for delay_s in (0.0, 0.01, 0.03):
        with subprocess.Popen(
            [sys.executable, "-c", script, str(study.path)], stdout=subprocess.PIPE, text=True
        ) as process:
            process.stdout.readline()
            time.sleep(delay_s)
            process.kill()
        for info in Study.open(study.path).runs():
            assert isinstance(study.result(info.id), Result)
            assert study.experiment(info.id).content_hash == info.id
