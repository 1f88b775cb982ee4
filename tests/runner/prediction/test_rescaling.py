"""Captured workloads scaled up, compared with captures of the larger jobs; and errors."""

from pathlib import Path

import numpy as np
import pytest

from chakrascope.converter import EdgeKind, Graph, NodeType, Workload, microbenchmark
from chakrascope.errors import UsageError, WorkloadError
from chakrascope.runner import script_workload
from chakrascope.runner.prediction.rescaling import (
    with_chip,
    with_data_parallelism,
    with_layers,
    with_micro_batches,
)
from chakrascope.tracer import Recording

DATA = Path(__file__).parents[2] / "data" / "converter" / "rescaling"
COMMUNICATION = [
    "type",
    "comm_type",
    "comm_size_bytes",
    "group",
    "comm_src",
    "comm_dst",
    "comm_tag",
    "stream",
]


def pipeline(micro_batches):
    """A gloo job of two stages, captured with this number of micro-batches."""
    return Workload.load(DATA / f"pipeline_{micro_batches}" / "workload")


def deep(layers):
    """A Llama with this number of layers on dp 2 x tp 2, recorded from its script."""
    return script_workload([Recording.load(path) for path in sorted((DATA / f"layers_{layers}").iterdir())])


def communication(graph):
    nodes = graph.nodes
    return nodes[nodes["comm_size_bytes"] >= 0][COMMUNICATION].values.tolist()


def operators(graph, *, in_modules=False):
    """The computed operators, in order: each once, however the clock split it."""
    nodes = graph.nodes
    if in_modules:
        nodes = nodes[nodes["module"] != ""]
    costs = nodes[(nodes["num_ops"] > 1) | (nodes["tensor_size_bytes"] > 1)]
    return costs[["operator", "phase", "num_ops", "tensor_size_bytes"]].values.tolist()


def kinds(graph, *wanted):
    return [int((graph.edge_columns["kind"] == kind).sum()) for kind in wanted]


def is_ordered(graph):
    rows = {number: row for row, number in enumerate(graph.node_columns["node_id"].tolist())}
    ends = zip(graph.edge_columns["src"].tolist(), graph.edge_columns["dst"].tolist(), strict=True)
    return all(rows[src] < rows[dst] for src, dst in ends)


def test_a_pipeline_with_more_micro_batches_is_that_of_a_capture_with_as_many():
    made, captured = with_micro_batches(pipeline(4), 6), pipeline(6)
    assert made.groups == captured.groups
    for one, other in zip(made.graphs, captured.graphs, strict=True):
        assert communication(one) == communication(other)
        assert operators(one, in_modules=True) == operators(
            other, in_modules=True
        )  # not the preparation of a batch
        waits = (EdgeKind.COMM_ISSUE, EdgeKind.COMM_WAIT, EdgeKind.STREAM_ORDER)
        assert kinds(one, *waits) == kinds(other, *waits)
        assert is_ordered(one)
    assert "6 micro-batches instead of 4" in made.metadata["assumptions"][-1]


def test_as_many_micro_batches_change_nothing():
    captured = pipeline(4)
    assert with_micro_batches(captured, 4) is captured


def test_a_pipeline_with_fewer_micro_batches_is_that_of_a_capture_with_as_few():
    made, captured = with_micro_batches(pipeline(6), 4), pipeline(4)
    for one, other in zip(made.graphs, captured.graphs, strict=True):
        assert communication(one) == communication(other)
        assert operators(one, in_modules=True) == operators(other, in_modules=True)
        waits = (EdgeKind.COMM_ISSUE, EdgeKind.COMM_WAIT, EdgeKind.STREAM_ORDER)
        assert kinds(one, *waits) == kinds(other, *waits)
        assert is_ordered(one)


def test_a_job_without_messages_is_no_pipeline():
    with pytest.raises(WorkloadError, match="so it is not a pipeline"):
        with_micro_batches(microbenchmark("all-reduce", 4, 1024), 8)


def test_messages_without_a_steady_part_are_no_schedule_to_extend():
    with pytest.raises(WorkloadError, match=r"do not repeat one forward and one backward pass in the middle"):
        with_micro_batches(microbenchmark("ring-shift", 4, 1024), 8)


def test_a_deeper_model_is_that_of_a_deeper_script():
    made, recorded = with_layers(deep(4), 7), deep(7)
    for one, other in zip(made.graphs, recorded.graphs, strict=True):
        behind = [
            max(
                np.flatnonzero(
                    graph.nodes["module"].str.startswith("layers.0") & (graph.nodes["phase"] == "backward")
                )
            )
            for graph in (one, other)
        ]
        assert behind[0] == behind[1]
        for column in ("operator", "phase", "num_ops", "tensor_size_bytes", *COMMUNICATION):
            assert one.nodes[column][: behind[0]].tolist() == other.nodes[column][: behind[1]].tolist(), (
                column
            )
        assert is_ordered(one)
        ends = [
            {(src, dst) for src, dst, _ in graph.edges.itertuples(index=False) if dst < behind[0]}
            for graph in (one, other)
        ]
        assert ends[0] == ends[1]
        optimizers = [
            graph.nodes["num_ops"][graph.nodes["phase"] == "optimizer"].sum() for graph in (one, other)
        ]
        assert optimizers[0] == pytest.approx(optimizers[1], rel=0.03)


def test_layers_need_numbers_equals_and_gradients_of_their_own():
    with pytest.raises(UsageError, match="has 4 layers, and --layers 2 is less"):
        with_layers(deep(4), 2)
    with pytest.raises(WorkloadError, match="No module of rank 0 has a number"):
        with_layers(microbenchmark("overlap", 2, 1024), 4)
    with pytest.raises(WorkloadError, match="differs from the others"):
        with_layers(pipeline(4), 8)
    graph = deep(4).graphs[0]
    nodes = graph.nodes
    bucket = (
        (nodes["comm_type"] == 7) & (nodes["phase"] == "communication") & (nodes["comm_size_bytes"] > 20_000)
    )
    lost = Graph.of_tables(
        0,
        nodes[~bucket],
        graph.edges[
            ~graph.edges["src"].isin(nodes["node_id"][bucket])
            & ~graph.edges["dst"].isin(nodes["node_id"][bucket])
        ],
    )
    whole = deep(4)
    with pytest.raises(WorkloadError, match=r"are reduced together|No two consecutive layers"):
        with_layers(Workload((lost, *whole.graphs[1:]), whole.program_of_rank, whole.groups, {}), 6)


def test_more_replicas_have_larger_groups_and_the_same_computation():
    captured = deep(4)
    made = with_data_parallelism(captured, 4)
    assert made.num_ranks == 8
    data, tensor = (0, 2, 4, 6), (0, 1)
    used = {made.groups[group] for group in made.graph_of(0).nodes["group"] if group}
    assert used == {data, tensor}
    assert operators(made.graph_of(0)) == operators(captured.graph_of(0))
    with pytest.raises(UsageError, match=r"has 2 data-parallel replicas, and --dp 3 is not a multiple"):
        with_data_parallelism(captured, 3)


def test_other_chip_takes_roofline_times():
    made = with_chip(deep(4), 1e6, 3e3, "fast")
    nodes = made.graphs[0].nodes
    computes = nodes[nodes["type"] == NodeType.COMP]
    longest = np.maximum(computes["num_ops"] / 1e6, computes["tensor_size_bytes"] / 3e3)
    assert (computes["duration_ns"] == np.maximum(1, np.rint(longest))).all()
    with pytest.raises(WorkloadError, match="has FLOPs or bytes"):
        with_chip(microbenchmark("all-reduce", 2, 1024), 1.0, 1.0, "none")


def test_more_replicas_than_can_be_made_are_refused_with_their_number():
    job = microbenchmark("all-reduce", 2, 4096)
    with pytest.raises(UsageError, match=r"1,000,000,000 ranks.*--dp 65536 or less"):
        with_data_parallelism(job, 1_000_000_000)


def test_excessive_repeats_are_refused_with_their_size():
    with pytest.raises(UsageError, match=r"about [\d,]+ nodes, which need about [\d,]+ GB"):
        microbenchmark("all-reduce", 2, 4096, repeats=1_000_000_000)
    assert len(microbenchmark("all-reduce", 2, 4096, repeats=3).graphs[0].nodes) == 3
