"""Sweeps on Dask: a cluster of two worker processes on loopback, and jobs of a batch system."""

import gc
import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest
from workloads import coll, comp, workload

from chakrascope.errors import BackendError, BackendUnavailable, ConfigError
from chakrascope.runner import NetworkConfig, Study, run_sweep
from chakrascope.runner.chips import find_chip
from chakrascope.runner.planning import Cluster, Request, search_plans
from chakrascope.runner.prediction.models import find_model

pytestmark = pytest.mark.dask


POINTS = 24


@pytest.fixture
def study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[comp(0, 500), coll(1, 1 << 22, after=[0])]] * 4), "job")
    return study


def axes(points):
    return {"network.npus_count": [4], "network.latency": list(range(1, points + 1))}


class Killer:
    """Kills a worker of *cluster* that has worked, once *enough* points are done.

    The worker's results are known to the scheduler, but not fetched yet, and the other worker, which sleeps,
    cannot compute them at once.
    """

    def __init__(self, cluster, enough):
        self.cluster, self.enough, self.killed = cluster, enough, []

    def __call__(self, finished):
        if finished < self.enough or self.killed:
            return
        time.sleep(0.2)
        workers = list(self.cluster.workers.values())
        self.killed.append(workers[0].pid)
        os.kill(workers[1].pid, signal.SIGSTOP)
        os.kill(workers[0].pid, signal.SIGKILL)
        threading.Timer(1.5, os.kill, (workers[1].pid, signal.SIGCONT)).start()
        time.sleep(0.5)


def test_a_worker_killed_midway_loses_and_repeats_nothing(study, cluster):
    killer = Killer(cluster, enough=3)
    found = run_sweep(
        study,
        axes(POINTS),
        network="ring-2",
        cluster=cluster.scheduler_address,
        progress=lambda finished, points, failed: killer(finished),
    )
    assert killer.killed
    assert (found.simulated, found.failed, len(found.points)) == (POINTS, 0, POINTS)
    assert sorted(found.points["network.latency"]) == list(range(1, POINTS + 1))
    assert found.points["id"].is_unique
    here = run_sweep(study, axes(POINTS), network="ring-2", workers=0, name="here")
    assert found.points["makespan_ns"].tolist() == here.points["makespan_ns"].tolist()
    again = run_sweep(study, axes(POINTS), network="ring-2", cluster=cluster.scheduler_address)
    assert (again.simulated, again.reused) == (0, POINTS)


def test_a_search_for_plans_loses_nothing_with_a_worker(tmp_path, cluster):
    model = replace(find_model("llama3-8b"), layers=4, name="small")
    chips = Cluster(find_chip("h100"), NetworkConfig.preset("hgx-h100-8"))
    only = {"cp": (1,), "zero": (0, 1), "recompute": ("none",), "schedule": ("1f1b",), "micro_batch": (1,)}
    request = Request(model, (chips,), 8, only=only)
    killer = Killer(cluster, enough=1)
    address = cluster.scheduler_address
    study = Study.create(tmp_path / "plans")
    found = search_plans(
        request,
        study=study,
        cluster=address,
        progress=lambda what, finished, total: killer(finished) if what == "simulate" else None,
    )
    assert killer.killed
    here = search_plans(request)
    assert (found.simulated, found.reused) == (here.simulated, 0)
    assert found.table.equals(here.table)
    again = search_plans(request, study=study, cluster=address)
    assert again.reused == found.simulated


def test_failures_on_the_cluster_are_rows(study, cluster):
    study.add_workload(workload([coll(0, 64)], [comp(0, 1)]), "stuck")
    over = {"workload": ["job", "stuck"], "network.latency": [1, 2]}
    found = run_sweep(study, over, network="ring-2", cluster=cluster.scheduler_address)
    failed = found.points[found.points["state"] == "failed"]
    assert failed["workload"].tolist() == ["stuck", "stuck"]
    assert failed["error"].str.contains("rank 0").all()


def test_ctrl_c_gives_up_what_the_cluster_has_not_begun(study, cluster):
    def stop(finished, points, failed):
        if finished:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(study, axes(POINTS), network="ring-2", cluster=cluster.scheduler_address, progress=stop)
    found = run_sweep(study, axes(POINTS), network="ring-2", cluster=cluster.scheduler_address)
    assert found.simulated < POINTS
    assert len(found.points) == POINTS


def test_a_scheduler_file_is_an_address_too(study, cluster, tmp_path):
    file = tmp_path / "scheduler.json"
    file.write_text(json.dumps({"address": cluster.scheduler_address}))
    found = run_sweep(study, axes(2), network="ring-2", backend="fake", cluster=str(file))
    assert found.simulated == 2


def test_unreachable_cluster_has_a_next_step(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BackendUnavailable, match=r"chakrascope\[dask\]"):
        run_sweep(study, axes(1), network="ring-2", cluster="tcp://127.0.0.1:1")
    assert not [*study.sweeps_dir.iterdir()]


def test_an_address_without_a_scheduler_is_named(study, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed (the extra [dask])")
    monkeypatch.setattr(sys.modules["chakrascope.support.cluster"], "_CONNECT_S", 0.5)
    for address, hint in (
        ("tcp://127.0.0.1:1", "does not answer"),
        ("absent.json", "no Dask scheduler file"),
    ):
        with pytest.raises(BackendError, match=hint):
            run_sweep(study, axes(1), network="ring-2", cluster=address)


# Sweeps on the jobs of a batch system, through dask-jobqueue.

OVER = {"network.latency": [1, 2, 3, 4]}
SLURM = "jobqueue: {slurm: {cores: 1, memory: 1GB, interface: lo, walltime: '00:10:00', log-directory: LOGS}}"


# SLURM's commands on this machine: a job is a process group, and its script is copied.
SBATCH = """#!/bin/sh
[ -n "$REFUSE" ] && { echo "sbatch: error: invalid partition specified: $REFUSE" >&2; exit 1; }
cp "$1" "$0.$$.job"
setsid sh "$0.$$.job" >/dev/null 2>&1 &
echo "$!" >> "$0.submitted"
echo "Submitted batch job $!"
"""
SCANCEL = """#!/bin/sh
echo "$1" >> "$0.cancelled"
kill -9 -- "-$1"
"""
pytest.importorskip("dask_jobqueue", reason="dask-jobqueue is not installed (the extra [dask])")


@pytest.fixture
def sweep_batch_study(tmp_path):
    study = Study.create(tmp_path / "study")
    study.add_workload(workload(*[[comp(0, 500), coll(1, 1 << 22, after=[0])]] * 2), "job")
    return study


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A cluster file, and the commands of a SLURM that runs jobs on this machine."""
    commands = tmp_path / "bin"
    commands.mkdir()
    for name, script in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (commands / name).write_text(script)
        (commands / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{commands}{os.pathsep}{os.environ['PATH']}")
    file = tmp_path / "slurm.yml"
    file.write_text(SLURM.replace("LOGS", str(tmp_path)))
    return file


def test_a_sweep_runs_in_jobs_that_are_cancelled_at_its_end(sweep_batch_study, slurm):
    found = run_sweep(sweep_batch_study, OVER, network="ring-2", cluster=str(slurm), workers=2)
    assert (found.simulated, found.failed, len(found.points)) == (4, 0, 4)
    here = run_sweep(sweep_batch_study, OVER, network="ring-2", workers=0, name="here")
    assert found.points["makespan_ns"].tolist() == here.points["makespan_ns"].tolist()
    submitted = (slurm.parent / "bin/sbatch.submitted").read_text().split()
    assert sorted((slurm.parent / "bin/scancel.cancelled").read_text().split()) == sorted(submitted)
    assert len(submitted) == 2


def test_jobs_that_are_refused_end_the_sweep_with_the_reason(sweep_batch_study, slurm, monkeypatch, caplog):
    monkeypatch.setenv("REFUSE", "gpu")
    with pytest.raises(BackendError, match="invalid partition specified: gpu"):
        run_sweep(sweep_batch_study, OVER, network="ring-2", cluster=str(slurm))
    assert "Traceback" not in caplog.text
    gc.collect()  # unclosed files would cause warnings


# It leaves its processes and their pipes to the garbage collector.


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("jobqueue: {slrm: {cores: 1}}", (ConfigError, "slurm")),
        ("jobqueue: {slurm: {}, pbs: {}}", (ConfigError, "2 batch systems")),
        ("slurm: {cores: 1}", (ConfigError, "its key must be one of: 'jobqueue'")),
        ("[1, 2", (ConfigError, "not valid YAML")),
        ("just text", (ConfigError, "must be a mapping")),
        ("jobqueue: {slurm: {cores: 1, memory: 1GB}}", (BackendUnavailable, "sbatch")),
    ],
)
def test_a_cluster_file_that_cannot_be_used_says_why(
    sweep_batch_study, tmp_path, monkeypatch, text, expected
):
    error, message = expected
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "cluster.yml"
    file.write_text(text)
    with pytest.raises(error, match=message):
        run_sweep(sweep_batch_study, OVER, network="ring-2", cluster=str(file))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_missing_keys_for_dask_jobqueue_are_named(sweep_batch_study, tmp_path):
    file = tmp_path / "local.yaml"
    file.write_text("jobqueue: {local: {memory: 1GB}}")
    with pytest.raises(ConfigError, match="cannot use 'local'"):
        run_sweep(sweep_batch_study, OVER, network="ring-2", cluster=str(file))
    gc.collect()


def test_an_absent_cluster_file_is_named(sweep_batch_study, tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yml"):
        run_sweep(sweep_batch_study, OVER, network="ring-2", cluster=str(tmp_path / "absent.yml"))


def test_missing_dask_jobqueue_names_the_package(sweep_batch_study, slurm, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(BackendUnavailable, match=r"chakrascope\[dask\]"):
        run_sweep(sweep_batch_study, OVER, network="ring-2", cluster=str(slurm))
