"""Host time inside the communication library's calls: named as such, with advice that fits."""

import pytest
from workloads import coll, comp, workload

from chakrascope.runner import (
    NetworkConfig,
    SystemConfig,
    advice,
    collective_overview,
    simulate,
    summarize,
)
from chakrascope.runner.analysis import KIND_LABELS, targets


@pytest.fixture(scope="module")
def blocked():
    """Ranks that spend 8 ms inside a call, then compute for 1 ms; simulated."""
    call = {"name": "c10d::recv_", "operator": "c10d::recv_", "kind": "host", "cause": "communication_call"}
    rank = [comp(0, 8_000_000, **call), comp(1, 1_000_000, after=(0,)), coll(2, 1024, after=(1,))]
    program = workload(rank, rank)
    return program, simulate(program, SystemConfig.preset("default"), NetworkConfig.preset("ring-2"))


def test_the_summary_names_the_calls(blocked):
    program, result = blocked
    summary = summarize(result, program)
    assert "is bound by host work: 8" in summary.headline
    assert "the largest contributor is inside communication calls: c10d::recv_ (8.00 ms, 88.8 %)" in (
        summary.headline
    )
    assert KIND_LABELS[summary.kinds["key"].iloc[0]] == "Host work"


def test_no_faster_kernel_is_advised_for_them(blocked):
    program, result = blocked
    path = summarize(result, program).path
    first = advice(path, result, program, collective_overview(result, program.node_table(), path))[0]
    assert (first.what, first.gain_ns) == ("Inside communication calls: c10d::recv_", 8_000_000)
    assert first.is_bound
    assert "kernel" not in first.how
    assert "inside the call" in first.how


def test_what_if_can_ask_for_less_of_them(blocked):
    program, result = blocked
    labels = {
        target.key: target.label
        for target in targets(summarize(result, program).path, "analytical-unaware", 1)
    }
    assert labels["cause:communication_call"] == "host work: inside communication calls"
    assert labels["operator:c10d::recv_"] == "operator c10d::recv_"
