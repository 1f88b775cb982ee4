"""Simulations for their totals alone, as sweeps ask for them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from workloads import coll, comp, workload

from chakrascope.runner import Detail, NetworkConfig, Study, get_backend, prepare, run_sweep
from chakrascope.runner.backends import EngineBackend, FakeBackend, Ns3Backend, register
from chakrascope.runner.backends._base import _BACKENDS

TABLES = ("nodes", "collectives", "links")


def job(late_ns=0):
    return workload(
        *[[comp(0, 500 + late_ns * rank), coll(1, 1 << 20, (0,)), comp(2, 9, (1,))] for rank in range(8)]
    )


def both(backend, late_ns=0):
    experiment = prepare(job(late_ns), "default", "ring-8", backend=backend, semantics="trace")
    asked = replace(experiment, detail=Detail.TOTALS)
    assert asked.content_hash == experiment.content_hash
    return get_backend(backend).run(experiment), get_backend(backend).run(asked)


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "replay"])
@pytest.mark.parametrize("late_ns", [0, 700])
def test_totals_are_those_of_the_whole_result(backend, late_ns):
    whole, totals = both(backend, late_ns)
    assert totals.makespan_ns == whole.makespan_ns
    assert totals.ranks.equals(whole.ranks)
    assert totals.provenance == whole.provenance
    assert len(whole.nodes) == 24
    assert all(len(getattr(totals, name)) == 0 for name in TABLES)


def test_packets_have_totals_too():
    whole, totals = both("packet")
    assert (totals.makespan_ns, len(totals.nodes)) == (whole.makespan_ns, 0)
    assert totals.ranks.equals(whole.ranks)


class Own:
    """A backend of others: one method, and nothing known of details."""

    def __init__(self):
        self.asked = []

    def run(self, experiment, progress=None):
        self.asked.append(experiment.detail)
        return FakeBackend(communication_ns=1000).run(experiment, progress)


def test_a_backend_is_one_method(tmp_path, monkeypatch):
    monkeypatch.setattr("chakrascope.runner.backends._base._BACKENDS", dict(_BACKENDS))
    own = Own()
    register("own", own)
    study = Study.create(tmp_path / "study")
    study.add_workload(job(), "job")
    network = NetworkConfig.preset("ring-8")
    found = run_sweep(study, {"network.latency": [1, 2]}, network=network, backend="own", workers=0, keep=1)
    assert found.points["makespan_ns"].tolist() == [1509, 1509]
    assert own.asked.count(Detail.TOTALS) == 2
    # What the study keeps of them is whole.
    assert own.asked.count(Detail.EVERYTHING) == len(found.kept) > 0
    assert len(study.result(found.kept[0]).nodes) == 24


@pytest.mark.parametrize("kind", [FakeBackend, EngineBackend, Ns3Backend, *map(type, _BACKENDS.values())])
def test_backends_have_no_second_way_to_simulate(kind):
    assert not hasattr(kind, "totals")
    assert callable(kind.run)
