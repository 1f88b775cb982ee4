"""Sweeps on a real Dask cluster of two worker processes on loopback."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from dataclasses import replace

import pytest
from workloads import coll, comp, workload

from chakrascope.errors import BackendError, BackendUnavailable
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
    """Kills a worker of *cluster* once *enough* is done: one that has worked.

    It takes answers with it that are known to be there, but not fetched yet, and the other, which sleeps,
    cannot give them at once.
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


def test_without_a_cluster_the_error_says_what_to_check(study, monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BackendUnavailable, match=r"chakrascope\[dask\]"):
        run_sweep(study, axes(1), network="ring-2", cluster="tcp://127.0.0.1:1")


def test_an_address_without_a_scheduler_is_named(study, monkeypatch):
    pytest.importorskip("distributed", reason="Dask is not installed (the extra [dask])")
    monkeypatch.setattr(sys.modules["chakrascope.support.cluster._dask"], "_CONNECT_S", 0.5)
    for address, hint in (
        ("tcp://127.0.0.1:1", "does not answer"),
        ("absent.json", "no Dask scheduler file"),
    ):
        with pytest.raises(BackendError, match=hint):
            run_sweep(study, axes(1), network="ring-2", cluster=address)
