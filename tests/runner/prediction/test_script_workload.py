"""Workloads from recorded ranks of a script: roles, groups, costs, errors."""

import pytest

from chakrascope.converter import CollectiveType, EdgeKind, NodeType
from chakrascope.errors import TraceError, UsageError
from chakrascope.runner import script_workload
from chakrascope.tracer import RecordedEntry, Recording
from chakrascope.tracer._recordings import Memory, Mesh


def tensor(elements, width=4):
    return [0, 0, 0, elements, width, "cuda:0"]


def compute(stream=0, waits=(), **more):
    """A matmul of 8 x 4 by 4 x 2."""
    return RecordedEntry(
        "aten::mm",
        [tensor(32), tensor(8)],
        [[8, 4], [4, 2]],
        [tensor(16)],
        [[8, 2]],
        False,
        stream,
        [*waits],
        0,
        "forward",
        **more,
    )


def communicate(name, inputs, group, waits=(), stream=5, **more):
    return RecordedEntry(
        name, inputs, [], [tensor(1)], [[1]], False, stream, [*waits], 0, "forward", group, **more
    )


def all_reduce(group, **more):
    return communicate("c10d::allreduce_", [[tensor(100)], "<Object>"], group, **more)


def recording(rank, entries, groups, made=(), *, world=4, meshes=()):
    return Recording(
        rank=rank,
        world=world,
        groups={"0": list(range(world)), **groups},
        made_groups=[list(group) for group in made],
        meshes=[Mesh(list(names), list(sizes)) for names, sizes in meshes],
        notes=[],
        memory_bytes=Memory(10, 20 + rank),
        torch_version="2",
        entries=entries,
        modules=["layers.0"],
    )


TENSOR = ((0, 1), (2, 3))
DATA = ((0, 2), (1, 3))


def test_operators_have_local_cost_and_stream_order():
    entries = [compute(), all_reduce("0", waits=[0]), compute(stream=1), compute(waits=[1])]
    workload = script_workload([recording(0, entries, {}), recording(3, entries, {})])
    assert (workload.num_ranks, len(workload.graphs)) == (4, 1)
    graph = workload.graphs[0]
    nodes = graph.nodes
    assert nodes["num_ops"].tolist()[0] == 2 * 8 * 4 * 2
    assert nodes["tensor_size_bytes"].tolist()[0] == (32 + 8 + 16) * 4
    assert nodes["module"].tolist() == ["layers.0"] * 4
    assert nodes["comm_size_bytes"].tolist()[1] == 400
    assert set(graph.edges.itertuples(index=False, name=None)) == {
        (0, 1, EdgeKind.COMM_ISSUE),
        (0, 3, EdgeKind.STREAM_ORDER),
        (1, 3, EdgeKind.COMM_WAIT),
    }
    assert workload.metadata["memory_bytes"] == {"0": 20, "3": 23}


def test_each_rank_gets_its_own_groups():
    def of(rank, tensor_ranks, data_ranks):
        entries = [all_reduce("a"), all_reduce("b")]
        return recording(rank, entries, {"a": tensor_ranks, "b": data_ranks}, (*DATA, *TENSOR))

    workload = script_workload([of(0, [0, 1], [0, 2]), of(3, [2, 3], [1, 3])])
    for rank in range(4):
        used = [workload.groups[group] for group in workload.graph_of(rank).nodes["group"]]
        assert used == [TENSOR[rank // 2], DATA[rank % 2]]


def stage(rank, pipe, entries, world=4, made=((0, 2), (1, 3))):
    return recording(rank, entries, {"pipe": list(pipe)}, made, world=world)


def sends(rank, pipe, size=7):
    return stage(
        rank, pipe, [communicate("c10d::send", [[tensor(size)], "<Object>", 1, 3], "pipe", peer=1, tag=3)]
    )


def receives(rank, pipe, size=7):
    return stage(
        rank, pipe, [communicate("c10d::recv_", [[tensor(size)], "<Object>", 0, 3], "pipe", peer=0, tag=3)]
    )


def test_pipeline_stages_represent_other_pipelines():
    first, last = sends(0, (0, 2)), receives(2, (0, 2))
    workload = script_workload([first, last, receives(3, (1, 3))])
    ends = []
    for rank in range(4):
        (node,) = workload.graph_of(rank).nodes.itertuples()
        ends.append((NodeType(node.type), node.comm_src, node.comm_dst, node.comm_tag))
    send, receive = NodeType.COMM_SEND, NodeType.COMM_RECV
    assert ends == [(send, -1, 2, 3), (send, -1, 3, 3), (receive, 0, -1, 3), (receive, 1, -1, 3)]


def test_rank_unlike_its_representative_is_refused():
    with pytest.raises(TraceError, match=r"Rank 3 .* communicates differently"):
        script_workload([sends(0, (0, 2)), receives(2, (0, 2)), receives(3, (1, 3), size=8)])


def test_a_stage_that_was_not_recorded_is_refused():
    with pytest.raises(TraceError, match="Rank 2 of the script was not recorded"):
        script_workload([sends(0, (0, 2)), receives(3, (1, 3))])


def test_an_unknown_communication_is_an_error_and_no_loss():
    entries = [communicate("_c10d_functional::all_swap", [tensor(3)], "0")]
    with pytest.raises(TraceError, match=r"Rank 0 communicates by _c10d_functional::all_swap"):
        script_workload([recording(0, entries, {}), recording(3, entries, {})])


def test_functional_collectives_have_their_local_size():
    entries = [communicate("_c10d_functional::reduce_scatter_tensor", [tensor(64, 2), "sum", 4, "0"], "0")]
    workload = script_workload([recording(0, entries, {}), recording(3, entries, {})])
    (node,) = workload.graphs[0].nodes.itertuples()
    assert (node.comm_type, node.comm_size_bytes) == (CollectiveType.REDUCE_SCATTER, 128)


@pytest.mark.parametrize(
    ("mesh", "said"),
    [
        ({"dp": 2, "tp": 4}, "has 8 ranks, and --world is 4"),
        ({"tp": 4}, r"The script creates a mesh with tp=2, but --mesh has tp=4"),
        ({"tp": 2, "ep": 2}, None),
        ({"dp": 4}, None),
        ({"tp": 1, "cp": 4}, r"creates a mesh with tp=2, but --mesh has tp=1"),
    ],
)
def test_the_mesh_has_to_be_the_scripts(mesh, said):
    entries = [all_reduce("a")]
    recordings = [
        recording(rank, entries, {"a": ranks}, TENSOR, meshes=[(("tp",), (2,))])
        for rank, ranks in ((0, [0, 1]), (3, [2, 3]))
    ]
    if said is None:
        assert script_workload(recordings, mesh).metadata["mesh"] == mesh
    else:
        with pytest.raises(UsageError, match=said):
            script_workload(recordings, mesh)
