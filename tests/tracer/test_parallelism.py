"""Every kind of parallelism, from the unmodified script in ``jobs/`` to its graph, on gloo."""

import json

import pytest

from chakrascope.converter import CollectiveType, NodeType, convert
from chakrascope.tracer import TraceSet

pytestmark = pytest.mark.torch
REDUCE, GATHER = CollectiveType.ALL_REDUCE, CollectiveType.ALL_GATHER
EXCHANGE, SCATTER = CollectiveType.ALL_TO_ALL, CollectiveType.REDUCE_SCATTER

# what rank 0 does: (collective, bytes as ASTRA-sim counts them, ranks of the group; none is all)
# FSDP2 block: 16*32 + 32 + 32*16 + 16 = 1072 parameters of 4 bytes
# tensor parallel: activations 4 x 16; half the matrices, half a bias, a bias, the norm: 576 parameters
# experts: 32 tokens of 16 numbers, two counts of 8 bytes; the router's matrix and bias
JOBS = {
    ("late_groups.py", 2): {(REDUCE, 16, ())},
    ("fsdp2.py --hybrid", 4): {(GATHER, 2144, (0, 1)), (SCATTER, 4288, (0, 1)), (REDUCE, 2144, (0, 2))},
    ("tensor_parallel.py", 4): {(REDUCE, 256, (0, 1)), (GATHER, 1152, (0, 2)), (SCATTER, 2304, (0, 2))},
    ("expert_parallel.py", 2): {(EXCHANGE, 16, ()), (EXCHANGE, 2048, ()), (REDUCE, 128, ()), (REDUCE, 8, ())},
}


def captured(folder, done):
    assert done.returncode == 0, done.stderr
    trace_set = TraceSet.load(folder / "out")
    assert (trace_set.partial, trace_set.reasons) == (False, [])
    return trace_set


@pytest.mark.parametrize(("job", "ranks"), JOBS, ids=str)
def test_the_collectives_of_a_parallel_job_arrive_in_its_graph(tmp_path, run_ranks, job, ranks):
    trace_set = captured(tmp_path, run_ranks(*job.split(), ranks=ranks, warmup=2, steps=2))
    assert len(trace_set.ranks) == trace_set.world_size == ranks
    workload = convert(trace_set.path)
    nodes = workload.graphs[0].nodes
    collectives = nodes[nodes["type"] == NodeType.COMM_COLL]
    columns = collectives[["comm_type", "comm_size_bytes", "group"]].drop_duplicates()
    found = {
        (kind, size, workload.groups.get(group, ())) for kind, size, group in columns.itertuples(index=False)
    }
    assert found >= JOBS[job, ranks]
    if "expert" not in job:  # its router decides how much travels
        assert found == JOBS[job, ranks]
    if ranks == 4:
        check_stand_ins(trace_set, workload)
    if "late" in job:
        groups = [(group.description, group.ranks) for group in trace_set.ranks[1].process_groups]
        assert groups == [("default_pg", [0, 1]), ("late", [0, 1])]


def traffic(workload):
    """Return what each rank exchanges, in order, with whom."""
    columns = ["type", "comm_type", "comm_size_bytes", "comm_src", "comm_dst", "comm_tag"]
    found = []
    for graph in workload.graphs:
        nodes = graph.nodes[graph.nodes["type"] != NodeType.COMP]
        groups = [workload.groups.get(group, ()) for group in nodes["group"]]
        found.append(
            [(*row, group) for row, group in zip(nodes[columns].itertuples(index=False), groups, strict=True)]
        )
    return found


def check_stand_ins(trace_set, whole):
    """Check that without any one of the ranks, as if killed, the job exchanges what it did."""
    manifest = trace_set.path / "manifest.json"
    kept = manifest.read_bytes()
    for lost in range(trace_set.world_size):
        document = json.loads(kept) | {
            "partial": True,
            "reasons": [f"rank {lost} died while it was recorded"],
        }
        document["ranks"][lost]["device_trace"] = None
        manifest.write_text(json.dumps(document))
        workload = convert(trace_set.path)
        assert traffic(workload) == traffic(whole)
        assert list(workload.metadata["stand_in_of"]) == [str(lost)]
    manifest.write_bytes(kept)


# whom each rank sends to; it receives from the same
PEERS = {
    ("pipeline.py", 3): [{1}, {0, 2}, {1}],
    ("pipeline.py --replicated", 4): [{1}, {0}, {3}, {2}],
}


@pytest.mark.parametrize(("job", "ranks"), PEERS, ids=str)
def test_a_pipeline_s_messages_arrive_in_its_graphs(tmp_path, run_ranks, job, ranks):
    trace_set = captured(tmp_path, run_ranks(*job.split(), ranks=ranks, warmup=2, steps=2))
    workload = convert(trace_set.path)
    for graph, peers in zip(workload.graphs, PEERS[job, ranks], strict=True):
        nodes = graph.nodes
        sends, receives = (nodes[nodes["type"] == kind] for kind in (NodeType.COMM_SEND, NodeType.COMM_RECV))
        # four micro-batches travel down the stages, their gradients up
        assert sorted(sends["comm_dst"]) == sorted(receives["comm_src"]) == sorted([*peers] * 4)
        assert set(sends["comm_size_bytes"]) | set(receives["comm_size_bytes"]) == {2 * 16 * 4}
    if ranks == 4:
        check_stand_ins(trace_set, workload)


def test_compiled_model_is_not_recompiled_or_hooked(tmp_path, run_ranks):
    done = run_ranks("compiled.py", ranks=2, warmup=2, steps=2)
    trace_set = captured(tmp_path, done)
    assert done.stdout.count("recompilations 0") == 2
    assert trace_set.notes == [
        "operators are not assigned to modules: the script uses torch.compile, which module hooks would "
        "disturb"
    ]
