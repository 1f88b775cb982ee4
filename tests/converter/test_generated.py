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


RECOMMENDER = """HYBRID_DLRM 2
4
Embedding -1 30 ALLTOALL 980 30 ALLTOALL 980 30 NONE 0 9
MLP_Bottom_0 -1 20 NONE 0 0 NONE 0 21 ALLREDUCE 400 9
MLP_Bottom_1 -1 20 NONE 0 22 NONE 0 21 ALLREDUCE 400 9
MLP_Top_0 -1 20 NONE 0 22 NONE 0 21 ALLREDUCE 400 9
"""


def test_a_recommenders_embedding_overlaps_the_bottom_layers(tmp_path):
    graph = _read(tmp_path, RECOMMENDER, num_ranks=16).graphs[0]
    ids = dict(zip(graph.nodes["name"], graph.nodes["node_id"], strict=True))
    edges = set(zip(graph.edges["src"], graph.edges["dst"], strict=True))
    assert (ids["Embedding forward all_to_all"], ids["MLP_Top_0 forward"]) in edges
    assert (ids["Embedding forward"], ids["MLP_Bottom_0 forward"]) in edges
    assert (ids["Embedding input gradient all_to_all"], ids["Embedding weight gradient"]) in edges


# The result of mlc-chakra 1.0.0's text converter for two passes: computations, their time in microseconds,
# dependencies, and count and bytes of each collective. Our result has one more dependency where the first
# layer of the next step waits for both the last computation and its collective.
PUBLIC = {
    "DLRM_HybridParallel": (46, 102756, 74, {"ALL_REDUCE": (14, 6383616), "ALL_TO_ALL": (4, 393216)}),
    "MLP_HybridParallel_Data_Model": (
        36,
        473298,
        84,
        {"ALL_REDUCE": (22, 1713664), "ALL_GATHER": (12, 894464)},
    ),
    "MLP_HybridParallel_Model_Data": (
        36,
        473298,
        84,
        {"ALL_REDUCE": (22, 1713664), "ALL_GATHER": (12, 894464)},
    ),
    "MLP_ModelParallel": (36, 390412, 72, {"ALL_REDUCE": (10, 819200), "ALL_GATHER": (12, 894464)}),
    "Resnet50_DataParallel": (322, 2164900, 482, {"ALL_REDUCE": (108, 204023296)}),
    "asplos2022_vgg16": (94, 3663618, 140, {"ALL_REDUCE": (32, 553430176)}),
    "microAllReduce": (0, 0, 0, {"ALL_REDUCE": (2, 2097152)}),
    "microAllToAll": (0, 0, 0, {"ALL_TO_ALL": (2, 2097152)}),
}
BESIDE_ITS_COLLECTIVE = {
    "MLP_HybridParallel_Data_Model",
    "MLP_HybridParallel_Model_Data",
    "Resnet50_DataParallel",
    "asplos2022_vgg16",
}


@pytest.mark.parametrize("name", PUBLIC)
def test_public_workloads_have_the_public_converters_nodes(shared, name):
    path = shared / "traces" / "text" / f"{name}.txt"
    graph = read_text_workload(path, 8, passes=2, ns_per_unit=1000).graphs[0]
    computations, micros, edges, collectives = PUBLIC[name]
    comp, comm = graph.nodes.query("type == 4"), graph.nodes.query("type == 7")
    assert (len(comp), comp["duration_ns"].sum() // 1000) == (computations, micros)
    assert len(graph.edges) == edges + (name in BESIDE_ITS_COLLECTIVE)
    sizes = comm.groupby("comm_type")["comm_size_bytes"]
    assert {CollectiveType(kind).name: (len(part), part.sum()) for kind, part in sizes} == collectives


# Computations, their cycles, the number of repeated forward passes, and count and bytes of each collective in
# one pass, summed by hand over the columns of the file; the public converter refuses these files.
TRANSFORMERS = {
    "asplos2022_gpt3": (
        256,
        (111, 1404478026, 27),
        {("ALL_REDUCE", "near"): (19, 15300820992), ("ALL_REDUCE", "far"): (19, 734773248)}
        | {("ALL_GATHER", "near"): (4, 298450944)},
    ),
    "Transformer_HybridParallel_Fwd_In_Bckwd": (
        16,
        (81, 645279914, 18),
        {("ALL_REDUCE", "near"): (15, 976273408), ("ALL_REDUCE", "far"): (14, 1176732928)},
    ),
}


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_transformers_recompute_between_checkpoints(shared, name):
    ranks, expected, collectives = TRANSFORMERS[name]
    workload = read_text_workload(shared / "traces" / "text" / f"{name}.txt", ranks)
    nodes = workload.graphs[0].nodes
    comp, comm = nodes.query("type == 4"), nodes.query("type == 7")
    again = (comp["operator"] == "forward again").sum()
    assert (len(comp), comp["duration_ns"].sum(), again) == expected
    found = comm.groupby(["comm_type", "group"])["comm_size_bytes"]
    where = {
        number: "near" if members[1] == 1 else "far"
        for number, members in workload.groups.items()
        if members[0] == 0
    }
    assert {
        (CollectiveType(kind).name, where[group]): (len(part), part.sum()) for (kind, group), part in found
    } == collectives


CUSTOMIZED = """HYBRID_CUSTOMIZED
4
a -1 1 ALLGATHER 10 2 REDUCESCATTER 20 3 ALLREDUCE 30 4 HYBRID_DATA_MODEL
b -1 1 ALLGATHER 11 2 REDUCESCATTER 21 3 ALLREDUCE 31 4 HYBRID_MODEL_DATA
c -1 1 NONE 0 2 NONE 0 3 ALLREDUCE 32 4 DATA
d -1 1 ALLGATHER 13 2 REDUCESCATTER 23 3 NONE 0 4 MODEL
"""


def test_customized_layers_have_groups_of_their_own(tmp_path):
    workload = _read(tmp_path, CUSTOMIZED, num_ranks=8, model_group=2)
    members = {0: tuple(range(8)), **workload.groups}
    comm = workload.graphs[0].nodes.query("type == 7")
    near, far = (0, 1), (0, 2, 4, 6)
    assert {name: members[group] for name, group in zip(comm["name"], comm["group"], strict=True)} == {
        "a forward all_gather": near,
        "a weight gradient all_reduce": far,
        "b forward all_gather": far,
        "b input gradient reduce_scatter": far,
        "b weight gradient all_reduce": near,
        "c weight gradient all_reduce": members[0],
        "d forward all_gather": members[0],
        "d input gradient reduce_scatter": members[0],
    }
    workload.save(tmp_path / "w")
    assert doctor(tmp_path / "w") == []


@pytest.mark.parametrize(
    ("policy", "computed", "communicated"),
    [
        ("MODEL", True, False),
        ("HYBRID_DATA_MODEL", True, False),
        ("HYBRID_MODEL_DATA", True, False),
        ("HYBRID_CUSTOMIZED", True, False),
        ("HYBRID_TRANSFORMER", True, True),
        ("HYBRID_TRANSFORMER_FWD_IN_BCKWD", True, True),
        ("DATA", False, False),
    ],
)
def test_first_layers_input_gradient_matches_astra_sim_1(tmp_path, policy, computed, communicated):
    text = DATA.replace("DATA", policy, 1).replace("NONE 0 3", "ALLREDUCE 9 3")
    names = _names(_read(tmp_path, text, num_ranks=8).graphs[0])
    assert ("first input gradient" in names) == computed
    assert ("first input gradient all_reduce" in names) == communicated
    assert ("last input gradient all_reduce" in names) == (policy != "DATA")


def test_passes_of_a_microbenchmark_start_at_once(tmp_path):
    text = "MICRO\n1\nx -1 5 NONE 0 5 NONE 0 5 ALLREDUCE 64 5\n"
    graph = _read(tmp_path, text, passes=3).graphs[0]
    assert (len(graph.nodes), len(graph.edges)) == (3, 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "ends before its layers"),
        ("DATE\n1\n", r"line 1: 'DATE' is not a parallelism - did you mean 'DATA'"),
        ("DATA\n3\nx -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "3 layers are announced, 1 follow"),
        ("DATA\n1\n" + "x -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n" * 2, "1 layers are announced, 2 follow"),
        ("DATA\n1\nx -1 1 NONE 0\n", r"line 3: a layer has 12 columns, but this line has 5"),
        ("DATA\n1\nx -1 -1 NONE 0 1 NONE 0 1 NONE 0 1\n", r"'-1' is not a number"),
        ("DATA\n1\nx -1 1 ALREDUCE 0 1 NONE 0 1 NONE 0 1\n", "did you mean 'ALLREDUCE'"),
        ("DLRM 7\n1\nx -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "a layer beyond the last"),
        (
            "HYBRID_CUSTOMIZED\n1\nx -1 1 NONE 0 1 NONE 0 1 NONE 0 1 DATE\n",
            r"line 3: 'DATE' is not a layer's.*'DATA'",
        ),
        ("MODEL checkpoints: 2 0\n1\nx -1 1 NONE 0 1 NONE 0 1 NONE 0 1\n", "2 checkpoints are announced"),
    ],
)
def test_bad_text_workloads_name_the_line(tmp_path, text, message):
    with pytest.raises(WorkloadFormatError, match=message):
        _read(tmp_path, text)


def test_impossible_ranks(tmp_path):
    with pytest.raises(UsageError, match="groups of 2 ranks, but 5 ranks are not a multiple"):
        _read(tmp_path, HYBRID, num_ranks=5)
    with pytest.raises(UsageError, match="at least one rank"):
        _read(tmp_path, DATA, num_ranks=0)
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_text_workload(tmp_path / "absent.txt", 4)


def test_times_beyond_64_bits_are_refused(tmp_path):
    text = DATA.replace("-1 10", f"-1 {2**62}")
    assert _read(tmp_path, text).graphs[0].nodes["duration_ns"].max() == 2**62
    with pytest.raises(WorkloadFormatError, match=r"line 3: .* units of 1,000 ns are too long"):
        _read(tmp_path, text, ns_per_unit=1000)


@given(st.lists(st.sampled_from([*DATA.split(), *HYBRID.split(), "\n", "\n", "-3", "9" * 30]), max_size=40))
@settings(max_examples=25, deadline=None)
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


@pytest.mark.parametrize("compute_ns", [0, 100])
def test_each_repeat_of_overlap_waits_for_the_one_before(compute_ns):
    graph = microbenchmark("overlap", 2, 8, repeats=50, compute_ns=compute_ns).graphs[0]
    nodes_per_repeat = 2 if compute_ns else 1
    assert len(graph.edges) == 49 * nodes_per_repeat**2


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
