"""What a script does with fake tensors is what it does for real: what it communicates, and its products."""

from collections import Counter

import pytest

from chakrascope.converter import convert
from chakrascope.runner import script_workload
from chakrascope.tracer import TraceSet, record_script

from .conftest import JOBS

pytestmark = pytest.mark.torch
PRODUCTS = ("mm", "convolution", "attention")


def communications(workload, rank):
    """Return what a rank sends, receives and takes part in, in order: kind, bytes, members or peers."""
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["comm_size_bytes"] >= 0]
    world = tuple(range(workload.num_ranks))
    return [
        (
            node.type,
            node.comm_type,
            node.comm_size_bytes,
            workload.groups.get(node.group, world) if node.comm_type >= 0 else (node.comm_src, node.comm_dst),
        )
        for node in nodes.itertuples()
    ]


def products(workload, rank):
    """Return the matrix products of a rank: pass, operations and bytes, and how often."""
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["operator"].str.contains("|".join(PRODUCTS)) & (nodes["num_ops"] > 1)]
    return Counter(nodes[["operator", "phase", "num_ops", "tensor_size_bytes"]].itertuples(index=False))


@pytest.mark.parametrize(
    "job",
    [
        "many_collectives.py",
        "fsdp2.py",
        "tensor_parallel.py",
        "ddp_buckets.py",
        "interleaved.py",
        "interleaved.py zero-bubble",
    ],
)
def test_no_communication_is_lost_and_none_made_up(tmp_path, run_ranks, job):
    path, *words = job.split()
    done = run_ranks(path, *words, ranks=2, folder="captured", warmup=3, steps=1)
    assert done.returncode == 0, done.stderr
    captured = convert(TraceSet.load(tmp_path / "captured").path)
    recorded = script_workload(record_script([str(JOBS / path), *words], tmp_path / "recorded", world=2))
    for rank in range(2):
        assert communications(recorded, rank) == communications(captured, rank)
        assert communications(captured, rank)
        assert products(recorded, rank) == products(captured, rank)
        assert products(captured, rank)
