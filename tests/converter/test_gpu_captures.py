"""Real captures of GPU jobs become graphs that replay what was measured."""

import sys

import numpy as np
import pytest

from chakrascope.converter import CollectiveType, EdgeKind, NodeType, convert_files, replay
from chakrascope.converter.building._costs import operator_cost
from chakrascope.converter.readers import read_host_trace


@pytest.mark.parametrize("jobs", [2, None])
def test_processes_convert_the_same_graphs(data_dir, dlrm, monkeypatch, jobs):
    monkeypatch.setattr(sys.modules["chakrascope.converter.building._workers"], "_WORTH_PROCESSES_BYTES", 1)
    folder = data_dir / "converter" / "dlrm_v100_8"
    seen = []
    workload = convert_files(
        f"{folder}/et_{{rank}}.json.gz",
        f"{folder}/kineto_{{rank}}.json.gz",
        jobs=jobs,
        progress=lambda done, total: seen.append((done, total)),
    )
    assert seen == [(1, 2), (2, 2)]
    for ours, theirs in zip(workload.graphs, dlrm.graphs, strict=True):
        assert ours.nodes.equals(theirs.nodes)
        assert ours.edges.equals(theirs.edges)
    assert workload.metadata == dlrm.metadata


@pytest.fixture(scope="module")
def dlrm(data_dir):
    folder = data_dir / "converter" / "dlrm_v100_8"
    return convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz")


def test_dlrm_ranks_replay_their_measured_steps(dlrm):
    assert dlrm.metadata["measured_step_ns"] == {"0": 14_455_000, "1": 18_567_000}
    for graph in dlrm.graphs:
        figures = dlrm.metadata["accounting"][str(graph.rank)]
        assert replay(graph).makespan_ns == pytest.approx(figures["measured_step_ns"], rel=0.003)


def test_dlrm_communication_is_told_from_the_operators(dlrm):
    comm = dlrm.graphs[0].nodes.query("type == 7")
    a2a, reduce = int(CollectiveType.ALL_TO_ALL), int(CollectiveType.ALL_REDUCE)
    assert comm["comm_type"].tolist() == [a2a, a2a, a2a, a2a, reduce, a2a, reduce, reduce]
    expected = [6144 * 4, 24 * 8, 384 * 4, 3392 * 4, 394241 * 4, 6144 * 4, 112 * 4, 226960 * 4]
    assert comm["comm_size_bytes"].tolist() == expected
    assert set(comm["group"]) == {0}


def test_missing_ranks_are_stood_in_for_and_said(dlrm):
    assert dlrm.num_ranks == 8
    assert dlrm.program_of_rank.tolist() == [0, 1] * 4
    assert "2 of 8 ranks" in dlrm.metadata["assumptions"][0]


def test_backward_runs_on_its_own_thread_and_the_main_thread_waits(dlrm):
    graph = dlrm.graphs[0]
    handed = graph.edges[graph.edges["kind"] == EdgeKind.AUTOGRAD]
    lanes = graph.nodes.set_index("node_id")["stream"]
    pairs = list(zip(handed["src"].map(lanes), handed["dst"].map(lanes), strict=True))
    assert pairs == [(0, 1), (1, 0)] * 2
    assert set(graph.nodes.loc[graph.nodes["stream"] == 1, "phase"]) == {"backward"}


def test_all_eight_dlrm_ranks(shared, tmp_path):
    import tarfile

    for name in ("dlrm_8gpu_kineto.tar.gz", "dlrm_8gpu_host_et.tar.gz"):
        with tarfile.open(shared / "traces" / name) as archive:
            archive.extractall(tmp_path, filter="data")
    workload = convert_files(
        f"{tmp_path}/dlrm_pytorch_et/dlrm_eg_{{rank}}.json", f"{tmp_path}/dlrm_kineto/worker{{rank}}_*.json"
    )
    assert workload.num_ranks == len(workload.graphs) == 8
    for graph in workload.graphs:
        figures = workload.metadata["accounting"][str(graph.rank)]
        assert figures["unexplained_ns"] <= 0.003 * figures["measured_step_ns"]
    sizes = [graph.nodes.query("type == 7")["comm_type"].tolist() for graph in workload.graphs]
    assert all(size == sizes[0] for size in sizes)


@pytest.fixture(scope="module")
def resnet(shared):
    folder = shared / "traces" / "gpu_resnet50_ddp2"
    return convert_files([folder / "et103_0.json.gz"], [folder / "kineto_0.json.gz"], step="all")


def test_resnet_replays_the_measured_span(resnet):
    # 684 ms is the span of all events, 667.2 ms that of its three steps.
    graph = resnet.graphs[0]
    assert resnet.metadata["measured_step_ns"]["0"] == 667_225_958
    assert replay(graph).makespan_ns == pytest.approx(667_225_958, rel=0.001)
    assert replay(graph).makespan_ns == pytest.approx(684_372_000, rel=0.03)
    comm = graph.nodes.query("type == 7")
    assert comm["comm_type"].value_counts().to_dict() == {0: 15, 5: 6}
    assert comm["comm_size_bytes"].tolist()[2:7] == [8196000, 31502336, 26255360, 26550272, 9724160]
    assert graph.nodes.loc[graph.nodes["name"].str.startswith("Mem"), "duration_ns"].count() == 1074


def test_resnet_depends_on_its_network(resnet):
    graph = resnet.graphs[0]
    slow = graph.nodes.copy()
    slow.loc[slow["type"] == NodeType.COMM_COLL, "duration_ns"] *= 10
    slowed = type(graph).of_tables(graph.rank, slow, graph.edges)
    assert replay(slowed).makespan_ns > 1.1 * replay(graph).makespan_ns
    comm = graph.nodes.query("type == 7 and comm_type == 0")["node_id"]
    lanes = graph.nodes.set_index("node_id")["stream"]
    onward = graph.edges[graph.edges["src"].isin(comm) & (graph.edges["dst"].map(lanes) == 1007)]
    assert set(onward["src"]) == set(comm)


def test_newer_kernel_names_and_schema_give_the_same_graph(shared, resnet):
    folder = shared / "traces" / "gpu_resnet50_ddp2"
    newer = convert_files(
        [folder / "et110_rfshift_0.json.gz"], [folder / "kineto_ncclDevKernel_0.json.gz"], step="all"
    )
    columns = ["name", "type", "duration_ns", "comm_type", "comm_size_bytes", "group", "stream", "operator"]
    ours, theirs = (
        w.graphs[0].nodes.query("not name.str.contains('nccl')", engine="python")[columns]
        for w in (resnet, newer)
    )
    assert np.array_equal(ours.to_numpy(), theirs.to_numpy())
    assert resnet.graphs[0].edges.query("kind != 0").equals(newer.graphs[0].edges.query("kind != 0"))


def test_kernels_share_the_cost_of_their_operator(dlrm, data_dir):
    graph = dlrm.graphs[0]
    host = read_host_trace(data_dir / "converter" / "dlrm_v100_8" / "et_0.json.gz")
    counted = [
        operator_cost(op)[0] for op in map(host.operator, host.records.tolist()) if op.name == "aten::addmm"
    ]
    kernels = graph.nodes.query("stream >= 1000 and type == 4")
    assert (kernels[["num_ops", "tensor_size_bytes"]] >= 1).all(axis=None)
    first = kernels.query("operator == 'aten::addmm'")
    assert counted[0] == 2 * 16 * 13 * 256
    assert first["num_ops"].sum() == pytest.approx(sum(counted), abs=len(first))
