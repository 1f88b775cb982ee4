"""What the engine records about causes is a path: contiguous, across ranks, as long as the makespan."""

from __future__ import annotations

from pathlib import Path

import pytest
import reference

from chakrascope.converter import Workload
from chakrascope.runner import BREAKDOWNS, critical_path

DATA = Path(__file__).resolve().parent.parent / "data" / "engine"
RANDOM = reference.load(DATA / "random.jsonl.gz")


def check_records(result):
    """Each node starts at time 0 or exactly when its cause ends, and ends after its origin starts."""
    nodes = result.nodes
    by_node = nodes.set_index(["rank", "node_id"])
    caused = nodes[nodes.cause_node >= 0]
    causes = by_node.loc[list(zip(caused["rank"], caused.cause_node, strict=True))]
    assert (causes.end_ns.to_numpy() == caused.start_ns.to_numpy()).all()
    assert (nodes[nodes.cause_node < 0].start_ns == 0).all()
    origins = by_node.loc[list(zip(nodes.origin_rank, nodes.origin_node, strict=True))]
    assert (origins.start_ns.to_numpy() <= nodes.end_ns.to_numpy()).all()
    itself = (nodes.origin_rank == nodes["rank"]) & (nodes.origin_node == nodes.node_id)
    assert (origins.start_ns.to_numpy() > nodes.start_ns.to_numpy())[~itself].all()


def check_path(path):
    segments = path.segments
    assert segments.start_ns.iloc[0] == 0
    assert (segments.start_ns.to_numpy()[1:] == segments.end_ns.to_numpy()[:-1]).all()
    assert segments.end_ns.iloc[-1] == path.makespan_ns
    assert segments.duration_ns.sum() == path.makespan_ns
    for by in BREAKDOWNS:
        assert path.breakdown(by).duration_ns.sum() == path.makespan_ns


@pytest.mark.parametrize("backend", ["unaware", "aware"])
@pytest.mark.parametrize("experiment", RANDOM[::8], ids=lambda experiment: experiment["id"])
def test_path_of_a_random_experiment(experiment, backend, tmp_path):
    if backend == "aware" and experiment["kind"] == "nd":
        pytest.skip("the congestion-aware network has one dimension")
    result = reference.run_random(experiment, backend, tmp_path)
    check_records(result)
    check_path(critical_path(result, Workload.load(tmp_path / "workload")))
