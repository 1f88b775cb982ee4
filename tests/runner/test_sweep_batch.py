"""Sweeps on the jobs of a batch system, through dask-jobqueue."""

from __future__ import annotations

import gc
import os
import sys

import pytest
from workloads import coll, comp, workload

from chakrascope.errors import BackendError, BackendUnavailable, ConfigError
from chakrascope.runner import Study, run_sweep

pytestmark = pytest.mark.dask

OVER = {"network.latency": [1, 2, 3, 4]}
SLURM = "jobqueue: {slurm: {cores: 1, memory: 1GB, interface: lo, walltime: '00:10:00', log-directory: LOGS}}"
# What SLURM's commands do, on this machine: a job is a process group, its script is copied.
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
def study(tmp_path):
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


def test_a_sweep_runs_in_jobs_that_are_cancelled_at_its_end(study, slurm):
    found = run_sweep(study, OVER, network="ring-2", cluster=str(slurm), workers=2)
    assert (found.simulated, found.failed, len(found.points)) == (4, 0, 4)
    here = run_sweep(study, OVER, network="ring-2", workers=0, name="here")
    assert found.points["makespan_ns"].tolist() == here.points["makespan_ns"].tolist()
    submitted = (slurm.parent / "bin/sbatch.submitted").read_text().split()
    assert sorted((slurm.parent / "bin/scancel.cancelled").read_text().split()) == sorted(submitted)
    assert len(submitted) == 2


def test_jobs_that_are_refused_end_the_sweep_with_the_reason(study, slurm, monkeypatch, caplog):
    monkeypatch.setenv("REFUSE", "gpu")
    with pytest.raises(BackendError, match="invalid partition specified: gpu"):
        run_sweep(study, OVER, network="ring-2", cluster=str(slurm))
    assert "Traceback" not in caplog.text
    gc.collect()  # what was left open would complain


# It leaves its processes and their pipes to the garbage collector.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_local_system_of_dask_jobqueue_works_too(study, tmp_path):
    file = tmp_path / "local.yaml"
    file.write_text("jobqueue: {local: {cores: 1, memory: 1GB, interface: lo}}")
    assert run_sweep(study, OVER, network="ring-2", cluster=str(file)).simulated == 4
    gc.collect()


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
def test_a_cluster_file_that_cannot_be_used_says_why(study, tmp_path, monkeypatch, text, expected):
    error, message = expected
    monkeypatch.setenv("PATH", str(tmp_path))
    file = tmp_path / "cluster.yml"
    file.write_text(text)
    with pytest.raises(error, match=message):
        run_sweep(study, OVER, network="ring-2", cluster=str(file))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_dask_jobqueue_misses_in_the_file_is_said(study, tmp_path):
    file = tmp_path / "local.yaml"
    file.write_text("jobqueue: {local: {memory: 1GB}}")
    with pytest.raises(ConfigError, match="cannot use 'local'"):
        run_sweep(study, OVER, network="ring-2", cluster=str(file))
    gc.collect()


def test_an_absent_cluster_file_is_named(study, tmp_path):
    with pytest.raises(ConfigError, match=r"absent\.yml"):
        run_sweep(study, OVER, network="ring-2", cluster=str(tmp_path / "absent.yml"))


def test_without_dask_jobqueue_the_error_says_what_to_install(study, slurm, monkeypatch):
    monkeypatch.setitem(sys.modules, "dask_jobqueue", None)
    with pytest.raises(BackendUnavailable, match=r"chakrascope\[dask\]"):
        run_sweep(study, OVER, network="ring-2", cluster=str(slurm))
