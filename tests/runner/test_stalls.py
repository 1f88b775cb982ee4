"""Jobs that would wait for each other in the order of the queues, and what a stall is answered with."""

from __future__ import annotations

import pytest
from workloads import coll, comp, workload

from chakrascope.errors import SimulationStalled
from chakrascope.runner import NetworkConfig, critical_path, simulate, slack

PAIR = NetworkConfig(("Switch",), (2,), (10.0,), (500.0,))
GROUPS = {1: (0, 1), 2: (0, 1)}


def crossed(*, lane=0):
    """Two collectives of two groups in flight on both ranks, begun in opposite orders."""
    one = coll(0, 1 << 20, group=1, stream=lane or 11)
    other = coll(1, 1 << 20, group=2, stream=lane or 12)
    delay = comp(2, 5000, stream=2)
    return workload(
        [one, delay, other | {"after": (2,)}], [other, delay, one | {"after": (2,)}], groups=GROUPS
    )


def opposed():
    """The same, but each rank waits for its first one before it begins the other."""
    one, other = coll(0, 1 << 20, group=1), coll(1, 1 << 20, group=2)
    return workload([one, other | {"after": (0,)}], [other, one | {"after": (1,)}], groups=GROUPS)


@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware"])
@pytest.mark.parametrize(("lane", "words"), [(0, "order of the queues the"), (3, "queues and the lanes")])
def test_the_result_says_that_operations_passed_others(backend, lane, words):
    job = crossed(lane=lane)
    result = simulate(job, "default", PAIR, backend=backend, semantics="trace")
    assert any(words in warning for warning in result.provenance["warnings"])
    assert result.provenance["overtaken"] >= 1
    assert critical_path(result, job).segments["duration_ns"].sum() == result.makespan_ns
    assert len(slack(result, job)) == 6


def test_a_result_in_the_order_of_the_queues_says_nothing():
    result = simulate(workload([coll(0, 64)], [coll(0, 64)]), "default", PAIR, semantics="trace")
    assert result.provenance["overtaking"] == 0
    assert result.provenance["warnings"] == []


def test_only_advice_that_helps_is_given():
    """One communication at a time, as in ASTRA-sim: more active chunks do not help, and lanes do."""
    with pytest.raises(SimulationStalled) as caught:
        simulate(crossed(), "default", PAIR)
    message = str(caught.value)
    assert 'The program itself can end: it does with semantics="trace".' in message
    assert "active-chunks" not in message
    assert simulate(crossed(), "default", PAIR, semantics="trace").makespan_ns > 0


def test_a_deadlock_of_the_program_is_told_as_its_cycle():
    for semantics in ("trace", "astra-sim"):
        with pytest.raises(SimulationStalled, match="No order of events completes this program") as caught:
            simulate(opposed(), "default", PAIR, semantics=semantics)
        assert "rank 0's all_reduce 'coll0' (node 0), which waits for rank 1's" in str(caught.value)
        assert {(item["rank"], item["node_id"]) for item in caught.value.deadlock} == {
            (0, 0),
            (0, 1),
            (1, 0),
            (1, 1),
        }
