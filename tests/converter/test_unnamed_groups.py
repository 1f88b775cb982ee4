"""Process groups that gloo traces do not name: the sizes of the collectives tell how many ranks they have."""

import pytest
from gloo_thread import Thread, write_trace_set

from chakrascope.converter import NodeType, convert, convert_files
from chakrascope.runner import NetworkConfig, SystemConfig, simulate


class Sharded(Thread):
    """A rank that gathers and sums over groups which only the data's sizes tell."""

    def gather(self, start, output_bytes, input_bytes):
        self.collective("c10d::_allgather_base_", start, output_bytes, input_bytes)

    def scatter(self, start, output_bytes, input_bytes):
        self.collective("c10d::_reduce_scatter_base_", start, output_bytes, input_bytes)

    def collective(self, name, start, *sizes):
        self.op(name, start, start + 10, 5)
        tensors = [[number, 100 + number, 0, size, 1, "cpu"] for number, size in enumerate(sizes)]
        self.nodes[-1]["inputs"]["values"] = tensors


def converted(folder, groups_of, program):
    """Return the workload of four ranks that run *program*; *groups_of* lists the groups of each."""
    ranks = []
    for rank in range(4):
        thread = Sharded(rank)
        thread.op("aten::empty", 1010 + rank, 1020 + 2 * rank, 5)  # no two ranks of a job measure the same
        program(thread)
        entry = thread.write(folder, [(1000, 2000)])
        entry["process_groups"] = [
            {"name": str(number), "ranks": list(ranks)} for number, ranks in enumerate(groups_of(rank))
        ]
        ranks.append({key: value for key, value in entry.items() if key != "flight_record"})
    write_trace_set(folder, ranks)
    return convert(folder)


def members(workload):
    """Return the ranks of each collective of rank 0, as the graph has them."""
    nodes = workload.graphs[0].nodes
    used = nodes.loc[nodes["type"] == NodeType.COMM_COLL, "group"]
    return [workload.groups.get(group, "all") for group in used]


def halves(thread):
    thread.gather(1100, 4096, 2048)
    thread.scatter(1200, 2048, 4096)
    thread.gather(1300, 4096, 1024)


def test_the_listed_group_of_the_right_size_is_taken_and_said(tmp_path):
    workload = converted(tmp_path, lambda rank: [(0, 1, 2, 3), (rank % 2, rank % 2 + 2)], halves)
    assert members(workload) == [(0, 2), (0, 2), "all"]
    (said,) = workload.metadata["assumptions"]
    assert "it is the listed one that has as many ranks as their sizes say" in said
    assert "where several have" not in said


def test_of_several_groups_of_that_size_every_rank_takes_the_same(tmp_path):
    def of_mesh(rank):
        return [(rank % 2, rank % 2 + 2), (rank // 2 * 2, rank // 2 * 2 + 1)]

    workload = converted(tmp_path, of_mesh, halves)
    assert members(workload) == [(0, 1), (0, 1), "all"]
    assert set(workload.groups.values()) == {(0, 1), (2, 3)}
    assert "where several have" in workload.metadata["assumptions"][0]


@pytest.mark.parametrize("listed", [[], [(0, 1, 2, 3)]])
def test_sizes_that_no_listed_group_has_are_said(tmp_path, listed):
    workload = converted(tmp_path, lambda rank: listed, halves)
    assert members(workload) == [(0, 1), (0, 1), "all"]
    (said,) = [note for note in workload.metadata["assumptions"] if "2 of 4 ranks take part" in note]
    assert "ranks in a row are assumed" in said


def test_sizes_that_tell_nothing_leave_all_ranks_and_say_so(tmp_path):
    workload = converted(tmp_path, lambda rank: [], lambda thread: thread.gather(1100, 4096, 3000))
    assert members(workload) == ["all"]
    assert workload.metadata["assumptions"] == [
        "the traces list no process groups: all ranks are assumed where sizes do not refute it"
    ]


def test_a_captured_mesh_gets_the_groups_it_had(shared):
    """Tensor parallelism in (0, 1) and (2, 3), which is named, and sharding in (0, 2) and (1, 3)."""
    folder = f"{shared}/traces/tpdp_4"
    workload = convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz")
    assert set(workload.groups.values()) == {(0, 1), (2, 3), (0, 2), (1, 3)}
    assert members(workload).count((0, 2)) == 6 + 3
    ring = {"topology": ["Ring"], "npus_count": [4], "bandwidth": [50.0], "latency": [500.0]}
    network = NetworkConfig.from_mapping(ring, "test")
    result = simulate(workload, SystemConfig.preset("default"), network)
    assert len(result.nodes) == sum(len(graph.nodes) for graph in workload.graphs)
