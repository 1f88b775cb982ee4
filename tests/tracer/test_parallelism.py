"""Every kind of parallelism, from the unmodified script in ``jobs/`` to its graph, on gloo."""

import json
from collections import Counter

import pytest

from chakrascope.converter import CollectiveType, EdgeKind, NodeType, convert
from chakrascope.errors import UsageError, WorkloadError
from chakrascope.runner.prediction.rescaling import (
    with_layers,
    with_micro_batches,
    with_stages,
)
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
    """Return the messages and collectives of each rank in order, with the peers."""
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
    """Check that without any single rank, as if killed, the job has the same communication."""
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


# the peer to which each rank sends; it receives from the same peer
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
        # four micro-batches are sent down the stages, their gradients up
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


# Captures of two ranks or stages scaled up, compared with captures of four; and errors.

WAITS = (EdgeKind.COMM_ISSUE, EdgeKind.COMM_WAIT, EdgeKind.STREAM_ORDER)


@pytest.fixture
def staged(tmp_path, run_ranks):
    """Return a function that captures the job of stages with *options*, and converts it."""

    def capture(*, replicas=1, schedule="1f1b", **options):
        stages = options["stages"]
        words = [word for name, value in options.items() for word in (f"--{name.replace('_', '-')}", value)]
        folder = "-".join(map(str, [schedule, replicas, *options.values()]))
        ranks = stages * replicas
        done = run_ranks(
            "stages.py", *words, "--schedule", schedule, ranks=ranks, folder=folder, warmup=1, steps=1
        )
        assert done.returncode == 0, done.stderr
        return convert(TraceSet.load(tmp_path / folder).path)

    return capture


def communication(workload, rank):
    """The communication of the rank, in order, with its peers."""
    nodes = workload.graph_of(rank).nodes
    nodes = nodes[nodes["comm_size_bytes"] >= 0]
    world = tuple(range(workload.num_ranks))
    columns = ("type", "comm_type", "comm_size_bytes", "comm_src", "comm_dst", "comm_tag", "stream")
    return [
        (workload.groups.get(node["group"], world), *(node[name] for name in columns))
        for node in nodes.to_dict("records")
    ]


def operators(graph):
    """The operators computed in modules, in order; in-place variants count as the same operator."""
    nodes = graph.nodes
    nodes = nodes[(nodes["module"] != "") & ((nodes["num_ops"] > 1) | (nodes["tensor_size_bytes"] > 1))]
    nodes = nodes.assign(operator=nodes["operator"].str.rstrip("_"))
    return nodes[["operator", "module", "phase", "num_ops", "tensor_size_bytes"]].values.tolist()


def waits(graph):
    """Dependencies on communication: both ends are named by the previous operator, because gaps vary.

    Calls to send and receive do not count: they are split where their wait begins, which depends on the
    clock.
    """
    names, seen, latest = {}, Counter(), ("start", 0)
    for node in graph.nodes.itertuples():
        computes = max(node.num_ops, node.tensor_size_bytes) > 1 and not node.operator.startswith("c10d::")
        if computes or node.comm_size_bytes >= 0:
            name = (node.operator.rstrip("_"), node.module, node.phase)
            latest = (name, seen[name])
            seen[name] += 1
        names[node.node_id] = latest
    ends = graph.edges.itertuples(index=False)
    return Counter((names[src], names[dst], kind) for src, dst, kind in ends if kind in WAITS)


def kinds_of_waits(graph):
    """The number of edges of each kind that wait for communication."""
    return Counter(kind for kind in graph.edge_columns["kind"].tolist() if kind in WAITS)


def reductions(workload):
    """The group and the bytes of each rank's only all-reduce."""
    found = []
    for graph in workload.graphs:
        nodes = graph.nodes[graph.nodes["comm_type"] == CollectiveType.ALL_REDUCE]
        (node,) = nodes.to_dict("records")
        found.append((workload.groups[node["group"]], node["comm_size_bytes"]))
    return found


def assert_alike(made, expected, ends=waits):
    assert made.num_ranks == expected.num_ranks
    for rank in range(made.num_ranks):
        one, other = made.graph_of(rank), expected.graph_of(rank)
        assert communication(made, rank) == communication(expected, rank)
        assert operators(one) == operators(other)
        assert ends(one) == ends(other)
        assert (one.edge_columns["src"] < one.edge_columns["dst"]).all()


def test_two_stages_become_four_with_more_layers_and_micro_batches(staged):
    two, four = (
        staged(stages=2, layers=4, micro_batches=3),
        staged(stages=4, layers=8, micro_batches=5),
    )
    assert_alike(with_stages(two, 4, 5, layers=8), four)
    assert_alike(with_stages(four, 2, 3, layers=4), two)
    assert with_layers(two, 8) == with_stages(two, layers=8)
    alone = staged(stages=1, layers=4, micro_batches=3)
    made = with_stages(alone, 2)
    for rank, (one, other) in enumerate(zip(made.graphs, two.graphs, strict=True)):
        assert communication(made, rank) == communication(two, rank)
        assert operators(one) == operators(other)
        kinds = [Counter(graph.edge_columns["kind"].tolist()) for graph in (one, other)]
        assert [kinds[0][kind] for kind in WAITS] == [kinds[1][kind] for kind in WAITS]
    with pytest.raises(
        UsageError, match=r"has 4 layers, which cannot be divided evenly among 3 stages. Use --pp 1, 2, 4"
    ):
        with_stages(two, 3)


def test_replicated_stages_reduce_the_gradients_of_their_new_weights(staged):
    two = staged(stages=2, layers=4, micro_batches=3, replicas=2)
    alone = staged(stages=1, layers=4, micro_batches=3, replicas=2)
    embedding, layer, head = 64 * 16, 2 * 16 + 16 * 64 + 64 + 64 * 16 + 16, 16 * 64 + 64
    wanted = [4 * numbers for numbers in (embedding + layer, layer, layer, layer + head)]
    assert reductions(with_stages(two, 4)) == [
        ((stage, stage + 4), wanted[stage]) for _ in range(2) for stage in range(4)
    ]
    with pytest.raises(WorkloadError, match="reduces all gradients at once"):
        with_stages(alone, 4)


def test_a_gpipe_schedule_stays_one(staged):
    few, many = (staged(stages=2, layers=2, micro_batches=count, schedule="gpipe") for count in (2, 4))
    # A call to receive is split where its wait begins, so its predecessor depends on the clock.
    assert_alike(with_micro_batches(few, 4), many, ends=kinds_of_waits)
