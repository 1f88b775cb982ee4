"""Simulations for their totals alone, as sweeps run them."""

from __future__ import annotations

import pytest
from workloads import coll, comp, workload

from chakrascope.runner import get_backend, prepare
from chakrascope.runner.backends._native import NativeBackend


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "replay"])
@pytest.mark.parametrize("late_ns", [0, 700])
def test_totals_are_those_of_the_whole_result(backend, late_ns):
    job = workload(
        *[[comp(0, 500 + late_ns * rank), coll(1, 1 << 20, (0,)), comp(2, 9, (1,))] for rank in range(8)]
    )
    experiment = prepare(job, "default", "ring-8", backend=backend, semantics="trace")
    whole, totals = get_backend(backend).run(experiment), get_backend(backend).totals(experiment)
    assert totals.makespan_ns == whole.makespan_ns
    assert totals.ranks.equals(whole.ranks)
    assert totals.provenance == whole.provenance
    assert len(whole.nodes) == 24
    assert all(len(table) == 0 for table in (totals.nodes, totals.collectives, totals.links))


def test_a_backend_that_runs_in_its_own_way_is_asked_to():
    class Own(NativeBackend):
        def run(self, experiment, progress=None):
            return "its own"

    assert Own(congestion_aware=False).totals(None) == "its own"
