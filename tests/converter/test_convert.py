"""Conversion of a real two-rank gloo capture: the graph reproduces the measured times."""

import shutil

import pytest

from chakrascope.converter import CollectiveType, EdgeKind, NodeType, Workload, convert, replay
from chakrascope.errors import TraceError, TraceFormatError, UsageError


def test_replay_reproduces_the_measured_step(captured):
    for graph in captured.graphs:
        figures = captured.metadata["accounting"][str(graph.rank)]
        assert replay(graph).makespan_ns == pytest.approx(figures["measured_step_ns"], rel=0.02)
        assert figures["unexplained_ns"] <= 0.02 * figures["measured_step_ns"]
        assert (
            figures["node_ns"] + figures["wait_ns"] + figures["unexplained_ns"] == figures["measured_step_ns"]
        )


def test_measured_step_is_the_captured_one(captured):
    assert captured.metadata["measured_step_ns"] == {"0": 51602685, "1": 39773060}
    assert captured.metadata["steps"] == [4]


def test_gradient_buckets_become_all_reduces(captured):
    for graph in captured.graphs:
        comm = graph.nodes[graph.nodes["type"] == NodeType.COMM_COLL]
        assert comm["comm_type"].tolist() == [CollectiveType.ALL_REDUCE] * 5
        assert comm["comm_size_bytes"].tolist() == [1071144, 1050624, 1050624, 1050624, 526336]
        assert (graph.edges["kind"] == EdgeKind.COMM_WAIT).sum() == 5
        assert not comm["is_cpu_op"].any()


def test_asynchronous_all_reduce_overlaps_later_work(captured):
    graph = captured.graphs[0]
    times = replay(graph)
    first = graph.nodes.index[graph.nodes["type"] == NodeType.COMM_COLL][0]
    host = (graph.nodes["stream"] == 0).to_numpy()
    during = host & (times.start_ns > times.start_ns[first]) & (times.end_ns < times.end_ns[first])
    assert during.sum() > 100


def test_graphs_meet_the_load_rules_of_simulators(captured):
    for graph in captured.graphs:
        ids = set(graph.nodes["node_id"])
        assert set(graph.edges["src"]) <= ids
        assert set(graph.edges["dst"]) <= ids
        assert (graph.edges["src"] < graph.edges["dst"]).all()
        assert ids - set(graph.edges["dst"])
        assert not (graph.nodes["type"] == NodeType.METADATA).any()


def test_steps_are_chosen_by_index_median_or_all(data_dir, captured):
    folder = data_dir / "converter" / "mlp_2"
    both = convert(folder, step="all")
    assert both.metadata["steps"] == [3, 4]
    assert both.summary()["communication_nodes"] == 2 * captured.summary()["communication_nodes"]
    with pytest.raises(UsageError, match="Captured: 3, 4"):
        convert(folder, step=9)


def test_scale_out_repeats_the_captured_ranks(captured):
    large = captured.scale_out(64)
    assert large.num_ranks == 64
    assert large.program_of_rank.tolist() == [0, 1] * 32
    assert len(large.graphs) == 2
    assert large.metadata["assumptions"]
    with pytest.raises(UsageError, match="multiple of 2"):
        captured.scale_out(7)


@pytest.mark.parametrize("name", ["rank1.device.json.gz", "rank1.host.json.gz"])
def test_bad_trace_files_are_named(data_dir, tmp_path, name):
    folder = tmp_path / "set"
    shutil.copytree(data_dir / "converter" / "mlp_2", folder)
    whole = (folder / name).read_bytes()
    for bad in (whole[: len(whole) // 2], b"", b"{}", b"[1]", b"\xff\xfe", b'{"nodes": 3, "traceEvents": 4}'):
        (folder / name).write_bytes(bad)
        with pytest.raises(TraceFormatError, match=name):
            convert(folder)
    (folder / name).unlink()
    with pytest.raises(TraceError, match=name):
        convert(folder)


@pytest.mark.parametrize(
    ("name", "world"),
    [("transformer_2", 2), ("fsdp2_2", 2), ("tp_2", 2), ("pp_2", 2), ("moe_2", 2), ("tpdp_4", 4)],
)
def test_every_parallelism_replays_its_step(shared, tmp_path, name, world):
    import json

    for path in (shared / "traces" / name).iterdir():
        (tmp_path / path.name).symlink_to(path)
    ranks = [
        {"rank": r, "host_trace": f"et_{r}.json.gz", "device_trace": f"kineto_{r}.json.gz"}
        for r in range(world)
    ]
    head = {"format": "chakrascope-trace-set", "version": 1, "partial": False, "reasons": []}
    head |= {"command": ["torchrun"], "exit_code": 0, "world_size": world}
    (tmp_path / "manifest.json").write_text(json.dumps({**head, "ranks": ranks}))
    captured = convert(tmp_path)
    for graph in captured.graphs:
        figures = captured.metadata["accounting"][str(graph.rank)]
        assert figures["unexplained_ns"] <= 0.02 * figures["measured_step_ns"]
        assert (graph.nodes["type"] >= NodeType.COMM_SEND).any()


@pytest.mark.parametrize(
    ("name", "collectives"),
    [
        # Two blocks of 1,072 parameters of 4 bytes: gathered in both passes, gradients scattered.
        ("fsdp2_2", {(CollectiveType.ALL_GATHER, 2144): 4, (CollectiveType.REDUCE_SCATTER, 4288): 2}),
        # Token counts, tokens sent and returned with their gradients; the parameters of the router.
        (
            "experts_2",
            {
                (CollectiveType.ALL_REDUCE, 8): 1,
                (CollectiveType.ALL_REDUCE, 128): 1,
                (CollectiveType.ALL_TO_ALL, 16): 1,
                (CollectiveType.ALL_TO_ALL, 2048): 2,
                (CollectiveType.ALL_TO_ALL, 4096): 1,
            },
        ),
    ],
)
def test_sharded_and_expert_parallel_captures_replay(data_dir, name, collectives):
    captured = convert(data_dir / "converter" / name)
    for graph in captured.graphs:
        figures = captured.metadata["accounting"][str(graph.rank)]
        assert figures["unexplained_ns"] <= 0.02 * figures["measured_step_ns"]
    found = captured.graphs[1].nodes.query("type == 7").groupby(["comm_type", "comm_size_bytes"]).size()
    assert found.to_dict() == collectives


def test_matrix_products_are_counted_once_and_where_their_time_is(captured):
    """The operations of a matmul are on its own node, not on operators around and inside it."""
    for graph in captured.graphs:
        nodes = graph.nodes[graph.nodes["kind"] == "compute"]
        products = nodes[nodes["operator"].isin(["aten::addmm", "aten::mm"])]
        assert (products["num_ops"] > 1000).sum() > 5
        around = nodes[nodes["operator"].isin(["aten::linear", "aten::t", "aten::resolve_conj"])]
        assert (around["num_ops"] == 1).all()
        assert products["num_ops"].sum() > nodes["num_ops"].sum() / 2


def test_a_file_that_changed_is_read_instead_of_its_table(captured, tmp_path):
    captured.save(tmp_path / "w")
    (tmp_path / "w.0.et").write_bytes((tmp_path / "w.1.et").read_bytes())
    loaded = Workload.load(tmp_path / "w")
    assert loaded.program_of_rank.tolist() == [0, 0]
    assert len(loaded.graphs[0].nodes) == len(captured.graphs[1].nodes)
