"""Captures of two ranks made larger, against captures of four."""

import pytest

from chakrascope.converter import convert
from chakrascope.runner.prediction.rescaling import with_data_parallelism
from chakrascope.tracer import TraceSet

pytestmark = pytest.mark.torch


def collectives(workload, rank):
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["comm_type"] >= 0]
    world = tuple(range(workload.num_ranks))
    return [
        (node.comm_type, node.comm_size_bytes, workload.groups.get(node.group, world), node.stream)
        for node in nodes.itertuples()
    ]


def test_two_ranks_rescaled_communicate_as_four_do(tmp_path, run_ranks):
    workloads = {}
    for ranks in (2, 4):
        done = run_ranks("fsdp2.py", ranks=ranks, folder=f"of-{ranks}", warmup=2, steps=1)
        assert done.returncode == 0, done.stderr
        workloads[ranks] = convert(TraceSet.load(tmp_path / f"of-{ranks}").path)
    made = with_data_parallelism(workloads[2], 4)
    assert made.num_ranks == 4
    for rank in range(4):
        assert collectives(made, rank) == collectives(workloads[4], rank)
