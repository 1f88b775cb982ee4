"""What a script communicates with fake tensors is what it communicates for real."""

from collections import Counter

import pytest

from chakrascope.converter import convert, script_workload
from chakrascope.tracer import TraceSet, record_script

from .conftest import JOBS

pytestmark = pytest.mark.torch


def communications(workload, rank):
    """Return what a rank sends, receives and takes part in: kind, bytes, members or peers, and how often."""
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["comm_size_bytes"] >= 0]
    world = tuple(range(workload.num_ranks))
    return Counter(
        (
            node.type,
            node.comm_type,
            node.comm_size_bytes,
            workload.groups.get(node.group, world) if node.comm_type >= 0 else (node.comm_src, node.comm_dst),
        )
        for node in nodes.itertuples()
    )


@pytest.mark.parametrize("job", ["many_collectives.py", "fsdp2.py"])
def test_no_communication_is_lost_and_none_made_up(tmp_path, run_ranks, job):
    done = run_ranks(job, ranks=2, folder="captured", warmup=2, steps=1)
    assert done.returncode == 0, done.stderr
    captured = convert(TraceSet.load(tmp_path / "captured").path)
    recorded = script_workload(record_script([str(JOBS / job)], tmp_path / "recorded", world=2))
    for rank in range(2):
        assert communications(recorded, rank) == communications(captured, rank)
        assert communications(captured, rank)
