"""The .et codec: round trips, foreign attributes, and damaged input."""

import base64
import contextlib
import gzip
import json

import hypothesis.strategies as st
import numpy as np
import pandas.testing
import pytest
from chakra_schema import HEAD, Node, framed, messages
from hypothesis import given, settings

from chakrascope.converter import EdgeKind, Graph, NodeType, Workload, decode_graph, encode_graph
from chakrascope.converter.chakra import read_et
from chakrascope.converter.chakra._codec import encoded_pieces
from chakrascope.errors import WorkloadError, WorkloadFormatError

_sizes = st.integers(0, 2**40)
_node = st.fixed_dictionaries(
    {
        "name": st.text(max_size=20),
        "type": st.sampled_from([NodeType.COMP, NodeType.COMM_COLL, NodeType.COMM_SEND, NodeType.MEM_LOAD]),
        "duration_ns": _sizes,
        "is_cpu_op": st.booleans(),
        "comm_type": st.integers(-1, 9),
        "comm_size_bytes": st.one_of(st.just(-1), _sizes),
        "group": st.integers(0, 5),
        "comm_dst": st.integers(-1, 9),
        "stream": st.integers(0, 200),
        "module": st.text(max_size=9),
        "kind": st.sampled_from(["compute", "host", "communication"]),
        "step": st.integers(-1, 9),
    }
)


@st.composite
def graphs(draw):
    nodes = [
        {**node, "node_id": index} for index, node in enumerate(draw(st.lists(_node, min_size=1, max_size=9)))
    ]
    pairs = [(src, dst) for dst in range(len(nodes)) for src in range(dst)]
    chosen = draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []
    kinds = st.sampled_from([EdgeKind.DATA, EdgeKind.CTRL])
    return Graph.build(0, nodes, [(src, dst, draw(kinds)) for src, dst in chosen])


@given(graphs())
@settings(max_examples=25, deadline=None)
def test_a_graph_survives_encoding(graph):
    again = decode_graph(encode_graph(graph))
    pandas.testing.assert_frame_equal(graph.nodes, again.nodes)
    pandas.testing.assert_frame_equal(graph.edges, again.edges)


@given(graphs(), st.data())
@settings(max_examples=25, deadline=None)
def test_truncated_bytes_raise_or_end_at_a_message(graph, data):
    whole = encode_graph(graph)
    cut = whole[: data.draw(st.integers(0, len(whole) - 1))]
    with contextlib.suppress(WorkloadFormatError):
        assert len(decode_graph(cut, source="x.et").nodes) < len(graph.nodes)


@given(st.binary(max_size=200))
@settings(deadline=None)
def test_any_bytes_give_a_graph_or_our_error(data):
    with contextlib.suppress(WorkloadFormatError):
        decode_graph(data)


def test_a_length_beyond_the_file_names_the_offset():
    with pytest.raises(WorkloadFormatError, match=r"big\.et.*byte 0.*4294967295 bytes is announced"):
        decode_graph(b"\xff\xff\xff\xff\x0f", source="big.et")


def test_unknown_attributes_survive():
    node = Node(id=3, name="n", type=4, start_time_micros=7)
    node.attr.add(name="is_cpu_op", bool_val=True)
    node.attr.add(name="vendor", double_val=2.5)
    node.inputs.values = "[1]"
    graph = decode_graph(HEAD + framed(node.SerializeToString()))
    again = Node()
    again.ParseFromString(encode_graph(graph)[len(HEAD) + 1 :])
    assert again.start_time_micros == 7
    assert again.inputs.values == "[1]"
    assert {a.name: a.double_val for a in again.attr}["vendor"] == 2.5


def test_rounded_microseconds_keep_their_sum():
    graph = Graph.build(0, [{"node_id": i, "type": 4, "duration_ns": 1400} for i in range(1000)], [])
    micros = []
    for body in list(messages(encode_graph(graph)))[1:]:
        node = Node()
        node.ParseFromString(body)
        micros.append(node.duration_micros)
    assert sum(micros) == 1400
    assert set(micros) == {1, 2}


def test_the_files_of_the_recorded_cases_decode(data_dir):
    with gzip.open(data_dir / "engine" / "cases.jsonl.gz", "rt", encoding="utf-8") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) == 150
    for case in cases:
        if case["case"] != "126_err_metadata":
            content = base64.b64decode(case["files"]["workload.0.et"])
            assert len(decode_graph(content, source=case["case"]).nodes) > 0


def test_a_file_that_unpacks_to_gigabytes_is_refused_before_it_does(tmp_path):
    path = tmp_path / "bomb.0.et"
    path.write_bytes(gzip.compress(bytes(2**20)) * 100)
    with pytest.raises(WorkloadFormatError, match=r"bomb\.0\.et unpacks to more than 200 times its size"):
        read_et(path)


def test_what_compresses_well_is_read_whole(tmp_path):
    path, content = tmp_path / "good.0.et", bytes(2**22)
    path.write_bytes(gzip.compress(content) * 2)
    assert read_et(path) == content * 2


def test_missing_rank_is_named(tmp_path):
    graph = Graph.build(0, [{"node_id": 0, "type": 4}], [])
    for rank in (0, 2):
        (tmp_path / f"w.{rank}.et").write_bytes(encode_graph(graph))
    with pytest.raises(WorkloadError, match="no file for rank 1"):
        Workload.load(tmp_path / "w")
    with pytest.raises(WorkloadError, match="No workload at"):
        Workload.load(tmp_path / "absent")


def test_large_files_are_written_in_pieces():
    count = 30_000
    duration = np.arange(count) * 700 % 3001
    columns = {"node_id": np.arange(count), "type": np.full(count, NodeType.COMP), "duration_ns": duration}
    graph = Graph.of_columns(0, columns, [(node, node + 1, EdgeKind.DATA) for node in range(count - 1)])
    pieces = [*encoded_pieces(graph)]
    assert len(pieces) > 2
    again = decode_graph(b"".join(pieces))
    assert again.node_columns["duration_ns"].tolist() == duration.tolist()
    assert len(again.edge_columns["src"]) == count - 1
    bodies = list(messages(encode_graph(graph)))[1:]
    micros = sum(Node.FromString(body).duration_micros for body in bodies)
    assert abs(1000 * micros - int(duration.sum())) <= 500
