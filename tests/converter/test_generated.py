"""Text workloads and microbenchmarks: nodes, sizes, order, and errors that name the line."""

import contextlib

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from chakrascope.converter import (
    MICROBENCHMARKS,
    CollectiveType,
    NodeType,
    Workload,
    doctor,
    microbenchmark,
    read_text_workload,
    replay,
)
from chakrascope.errors import ChakrascopeError, UsageError, WorkloadError, WorkloadFormatError

DATA = """DATA
2
first -1 10 NONE 0 20 NONE 0 30 ALLREDUCE 400 5
last  -1 11 NONE 0 21 NONE 0 31 ALLREDUCE 500 5
"""
HYBRID = """HYBRID_TRANSFORMER_FWD_IN_BCKWD \
model_parallel_NPU_group: 2 checkpoints: 1 0 checkpoint_initiates: 1 1
2
first -1 10 ALLREDUCE 100 20 ALLREDUCE 200 30 ALLREDUCE 400 5
last  -1 11 NONE 0 21 ALLGATHER 60 31 ALLREDUCE 500 5
"""


def _read(tmp_path, text, num_ranks=4, **options):
    path = tmp_path / "workload.txt"
    path.write_text(text)
    return read_text_workload(path, num_ranks, **options)


def _names(graph):
    return graph.nodes["name"].tolist()


def test_data_parallel_layers_in_order(tmp_path):
    workload = _read(tmp_path, DATA, passes=2)
    (graph,) = workload.graphs
    assert workload.num_ranks == 4
    assert _names(graph)[:7] == [
        "first forward",
        "last forward",
        "last weight gradient",
        "last weight gradient all_reduce",
        "last input gradient",
        "first weight gradient",
        "first weight gradient all_reduce",
    ]
    edges = set(zip(graph.edges["src"], graph.edges["dst"], strict=True))
    assert {(0, 1), (1, 2), (2, 3), (2, 4), (4, 5), (5, 6), (6, 7), (3, 8)} <= edges
    assert graph.nodes["duration_ns"].tolist()[:3] == [10, 11, 31]
    assert _read(tmp_path, DATA, ns_per_unit=1000).graphs[0].nodes["duration_ns"].max() == 31_000


def test_hybrid_groups_and_recomputation(tmp_path):
    workload = _read(tmp_path, HYBRID)
    assert workload.groups == {1: (0, 1), 2: (0, 2), 3: (1, 3), 4: (2, 3)}
    assert len(workload.graphs) == 4
    nodes = workload.graphs[workload.program_of_rank[3]].nodes.query("type == 7")
    by_name = dict(zip(nodes["name"], nodes["group"], strict=True))
    assert by_name["last input gradient all_gather"] == 4
    assert by_name["last weight gradient all_reduce"] == 3
    names = _names(workload.graphs[0])
    assert names.index("last forward again") == names.index("first forward again") + 2
    assert names.index("last forward again") < names.index("last input gradient")
    workload.save(tmp_path / "w")
    assert doctor(tmp_path / "w") == []


def test_a_recommenders_embedding_overlaps_the_bottom_layers(shared):
    workload = read_text_workload(shared / "traces" / "text" / "DLRM_HybridParallel.txt", 16)
    graph = workload.graphs[0]
    ids = dict(zip(graph.nodes["name"], graph.nodes["node_id"], strict=True))
    edges = set(zip(graph.edges["src"], graph.edges["dst"], strict=True))
    assert (ids["Embedding forward all_to_all"], ids["MLP_Top_0 forward"]) in edges
    assert (ids["Embedding forward"], ids["MLP_Bottom_0 forward"]) in edges
    assert (ids["Embedding input gradient all_to_all"], ids["Embedding weight gradient"]) in edges


# What mlc-chakra 1.0.0's text converter makes of two passes: nodes, collectives and their bytes.
@pytest.mark.parametrize(
    ("name", "nodes", "collectives", "size_bytes"),
    [
        ("DLRM_HybridParallel", 64, 18, 6776832),
        ("MLP_HybridParallel_Data_Model", 70, 34, 2608128),
        ("MLP_HybridParallel_Model_Data", 70, 34, 2608128),
        ("MLP_ModelParallel", 58, 22, 1713664),
        ("Resnet50_DataParallel", 430, 108, 204023296),
        ("asplos2022_vgg16", 126, 32, 553430176),
        ("microAllReduce", 2, 2, 2097152),
        ("microAllToAll", 2, 2, 2097152),
    ],
)
def test_public_workloads_have_the_public_converters_nodes(shared, name, nodes, collectives, size_bytes):
    graph = read_text_workload(shared / "traces" / "text" / f"{name}.txt", 8, passes=2).graphs[0]
    comm = graph.nodes.query("type == 7")
    assert (len(graph.nodes), len(comm), comm["comm_size_bytes"].sum()) == (nodes, collectives, size_bytes)


def test_gpt3_on_256_ranks(shared):
    workload = read_text_workload(shared / "traces" / "text" / "asplos2022_gpt3.txt", 256)
    assert workload.num_ranks == 256
    assert len(workload.groups) == 16 + 16
    assert len(workload.graphs[0].nodes.query("operator == 'forward again' and type == 4")) == 27


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends before its layers"),
        ("DATE\n1\n", r"line 1: 'DATE' is no parallelism - did you mean 'DATA'"),
        ("DATA\n3\nx -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "3 layers are announced, 1 follow"),
        ("DATA\n1\nx -1 1 NONE 0\n", r"line 3: a layer has 12 columns, this has 5"),
        ("DATA\n1\nx -1 -1 NONE 0 1 NONE 0 1 NONE 0 1\n", r"'-1' is not a number"),
        ("DATA\n1\nx -1 1 ALREDUCE 0 1 NONE 0 1 NONE 0 1\n", "did you mean 'ALLREDUCE'"),
        ("DLRM 7\n1\nx -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "a layer beyond the last"),
        ("MODEL checkpoints: 2 0\n1\nx -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "2 checkpoints are announced"),
    ],
)
def test_bad_text_workloads_name_the_line(tmp_path, text, message):
    with pytest.raises(WorkloadFormatError, match=message):
        _read(tmp_path, text)


def test_impossible_ranks(tmp_path):
    with pytest.raises(UsageError, match="groups of 2 ranks, and 5 is no multiple"):
        _read(tmp_path, HYBRID, num_ranks=5)
    with pytest.raises(UsageError, match="at least one rank"):
        _read(tmp_path, DATA, num_ranks=0)
    with pytest.raises(WorkloadFormatError, match="cannot be read"):
        read_text_workload(tmp_path / "absent.txt", 4)


@given(st.lists(st.sampled_from([*DATA.split(), *HYBRID.split(), "\n", "\n", "-3", "9" * 30]), max_size=40))
@settings(max_examples=80, deadline=None)
def test_any_words_give_a_workload_or_our_error(tmp_path_factory, words):
    path = tmp_path_factory.getbasetemp() / "words.txt"
    path.write_text(" ".join(words))
    with contextlib.suppress(ChakrascopeError):
        read_text_workload(path, 4)


@pytest.mark.parametrize("pattern", sorted(MICROBENCHMARKS))
def test_microbenchmarks_are_sound(pattern, tmp_path):
    workload = microbenchmark(pattern, 4, 1 << 20, repeats=3, compute_ns=500)
    workload.save(tmp_path / "w")
    assert doctor(tmp_path / "w") == []
    assert workload.summary()["communication_nodes"] >= 3


def test_overlap_runs_beside_and_others_after():
    assert replay(microbenchmark("overlap", 2, 8, compute_ns=100).graphs[0]).start_ns.tolist() == [0, 0]
    graph = microbenchmark("all-gather", 2, 8, repeats=2, compute_ns=100).graphs[0]
    assert graph.nodes["type"].tolist() == [NodeType.COMP, NodeType.COMM_COLL] * 2
    assert set(graph.nodes.query("type == 7")["comm_type"]) == {CollectiveType.ALL_GATHER}
    assert len(graph.edges) == 3


def test_microbenchmarks_refuse_nonsense():
    with pytest.raises(UsageError, match="did you mean 'all-reduce'"):
        microbenchmark("allreduce", 4, 8)
    with pytest.raises(UsageError, match="2 to 65536 ranks"):
        microbenchmark("all-reduce", 1, 8)


def test_a_missing_rank_file_is_named(tmp_path):
    microbenchmark("all-reduce", 4, 1024).save(tmp_path / "w")
    (tmp_path / "w.3.et").unlink()
    with pytest.raises(WorkloadError, match=r"w\.3\.et is missing"):
        Workload.load(tmp_path / "w")
