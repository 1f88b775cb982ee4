"""The codec of graph files: round trips, damage, and comparison with Protocol Buffers."""

import contextlib
import gzip
import pickle
from types import SimpleNamespace

import chakra_schema as et_def
import hypothesis.strategies as st
import numpy as np
import pandas.testing
import pytest
from chakra_schema import HEAD, DecodeError, GlobalMetadata, Node, framed, messages
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given, settings

from chakrascope import simulate
from chakrascope.converter import (
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    decode_graph,
    encode_graph,
    load_workload,
)
from chakrascope.converter.chakra import other_attributes, read_et
from chakrascope.converter.chakra._codec import encoded_pieces
from chakrascope.converter.chakra._graph import Extra
from chakrascope.errors import UsageError, WorkloadError, WorkloadFormatError

COLUMNS = {"comm_size": "comm_size_bytes", "num_ops": "num_ops", "stream": "stream", "comm_src": "comm_src"}
_INT32, _INT64 = st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1)
_UINT32, _SMALL = st.integers(0, 2**32 - 1), st.integers(0, 2**63 - 1)
_VALUES = {
    "double": st.floats(allow_nan=False), "float": st.floats(width=32, allow_nan=False), "int32": _INT32,
    "int64": _INT64, "uint32": _UINT32, "uint64": _SMALL, "sint32": _INT32, "sint64": _INT64,
    "fixed32": _UINT32, "fixed64": _SMALL, "sfixed32": _INT32, "sfixed64": _INT64, "bool": st.booleans(),
    "string": st.text(max_size=20), "bytes": st.binary(max_size=20),
}  # fmt: skip
_COUNTS = st.integers(0, 2**31 - 1)
_INTEGERS = [kind for kind in _VALUES if "int" in kind or "fixed" in kind or kind == "bool"]


@st.composite
def attributes(draw):
    kind = draw(st.sampled_from(list(_VALUES)))
    name = draw(st.sampled_from([*COLUMNS, "module", "vendor", "é"]))
    attribute = {"name": name, "doc_string": draw(st.sampled_from(["", "why"]))}
    if draw(st.booleans()):
        is_count = name in ("comm_size", "num_ops") and kind in _INTEGERS and kind != "bool"
        return {**attribute, f"{kind}_val": draw(_COUNTS if is_count else _VALUES[kind])}
    return {**attribute, f"{kind}_list": {"values": draw(st.lists(_VALUES[kind], max_size=3))}}


@st.composite
def nodes(draw):
    ids = draw(st.lists(st.integers(0, 2**40), unique=True, min_size=1, max_size=5))
    chosen = []
    for number in ids:
        others = st.lists(st.sampled_from([*(other for other in ids if other != number), 2**41]), max_size=3)
        node = Node(
            id=number,
            name=draw(st.text(max_size=9)),
            type=draw(st.integers(-1, 9)),
            duration_micros=draw(st.integers(0, 2**40)),
            start_time_micros=draw(st.integers(0, 9)),
            data_deps=draw(others),
            ctrl_deps=draw(others),
            attr=draw(st.lists(attributes(), max_size=5)),
        )
        if draw(st.booleans()):
            node.outputs.shapes = draw(st.text(max_size=3))
            node.inputs.values = draw(st.text(max_size=3))
        chosen.append(node)
    return chosen


def _split(node):
    """Return by column the values of a node by protobuf, and its other attributes."""
    found, rest = {}, []
    for attribute in node.attr:
        kind = (attribute.WhichOneof("value") or "_").rsplit("_", 1)
        is_text = attribute.name == "module" and kind == ["string", "val"]
        is_integer = attribute.name in COLUMNS and kind[1] == "val" and kind[0] in _INTEGERS
        if attribute.name not in found and (is_text or is_integer):
            found[attribute.name] = getattr(attribute, "_".join(kind))
        else:
            rest.append(attribute)
    return found, rest


@given(nodes())
@settings(max_examples=40)
def test_all_that_protobuf_reads_is_read_and_kept(written):
    graph = decode_graph(HEAD + b"".join(framed(node.SerializeToString()) for node in written))
    decoded = [Node.FromString(body) for body in messages(encode_graph(graph))][1:]
    in_order = sorted(written, key=lambda node: node.id)
    for row, (before, after) in enumerate(zip(in_order, decoded, strict=True)):
        for field in ("id", "name", "type", "start_time_micros", "inputs", "outputs"):
            assert getattr(before, field) == getattr(after, field)
        assert set(after.data_deps) == set(before.data_deps)
        assert set(after.ctrl_deps) == {*before.ctrl_deps} - {*before.data_deps}
        found, rest = _split(before)
        assert list(after.attr)[-len(rest) :] == rest or not rest
        for name, column in COLUMNS.items():
            assert graph.node_columns[column][row] == found.get(name, 0 if name == "stream" else -1)
        module = graph.node_columns["module"]
        assert module.texts[module.numbers[row]] == found.get("module", "")
        shown = {one.name for one in rest} | ({"inputs", "outputs"} if before.HasField("outputs") else set())
        assert {*other_attributes(graph, before.id)} == shown


def _parses(data):
    """Return whether protobuf accepts every message of *data*."""
    try:
        metadata, *bodies = messages(data)
        GlobalMetadata.FromString(metadata)
        for body in bodies:
            Node.FromString(body)
    except (DecodeError, IndexError, ValueError):
        return False
    return True


@given(nodes(), st.data())
@settings(max_examples=40)
def test_what_protobuf_does_not_read_is_refused(written, data):
    whole = HEAD + b"".join(framed(node.SerializeToString()) for node in written)
    damaged = bytearray(whole)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(len(HEAD), len(whole) - 1))] = data.draw(st.integers(0, 255))
    answer = ""
    try:
        decode_graph(bytes(damaged))
    except WorkloadFormatError as error:
        answer = str(error)
    if not answer or "is damaged at byte" in answer:  # else some value does not fit our columns
        assert _parses(bytes(damaged)) == (not answer)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"attr": [{"name": "comm_type", "int64_val": 10}]}, "comm_type 10 is not a collective. Use 0"),
        ({"attr": [{"name": "comm_type", "sint32_val": -1}]}, "comm_type -1 is not a collective"),
        ({"attr": [{"name": "num_ops", "uint64_val": 2**63}]}, f"num_ops is {2**63}, above 2"),
        ({"attr": [{"name": "pg_name", "string_val": "tensor"}]}, "process group 'tensor' is not a number"),
        ({"attr": [{"name": "pg_name", "string_val": "1" * 19}]}, "is not a number"),
        ({"duration_micros": 2**60}, f"its duration is {2**60} us"),
        ({"data_deps": [2**63]}, "it waits for an id above"),
        ({"id": 2**63}, "its id is above"),
        ({"id": 6}, "another node has this id"),
    ],
)
def test_what_no_column_holds_is_refused_by_node_and_byte(fields, message):
    first, second = Node(id=6, name="first"), Node(**{"id": 7, **fields})
    data = HEAD + framed(first.SerializeToString()) + framed(second.SerializeToString())
    place = len(data) - second.ByteSize()
    with pytest.raises(WorkloadFormatError, match=message) as raised:
        decode_graph(data, source="x.et")
    assert f"x.et, node {second.id} at byte {place}: " in str(raised.value)


def test_nodes_of_one_id_are_refused_in_any_order():
    bodies = [Node(id=number).SerializeToString() for number in (4, 9, 4)]
    with pytest.raises(WorkloadFormatError, match=r"node 4 .*another node has this id"):
        decode_graph(HEAD + b"".join(map(framed, bodies)))


@pytest.mark.parametrize(
    ("body", "place", "message"),
    [
        (b"\x12\x02\xc3\x28", 4, "a text is not UTF-8"),
        (b"\x12\x03\xed\xa0\x80", 5, "a text is not UTF-8"),
        (b"\x12\x04ab", 2, "a field runs past the end"),
        (b"\x08" + b"\xff" * 10, 11, "a number is longer than 64 bits"),
        (b"\x08\xff", 2, "a number runs past the end"),
        (b"\x0e\x00", 1, "an unknown wire type"),
        (b"\x02\x00", 1, "a field has an impossible number"),
        (b"\xa3\x06\x08\x01", 4, "a number runs past the end"),
        (b"\xa4\x06", 2, "an unknown wire type"),
        (b"\xa3\x06" * 101 + b"\xa4\x06" * 101, 202, "groups are nested too deeply"),
        (b"\x52\x05\xa2\x01\x02\x0a\x05", 7, "a field runs past the end"),
    ],
)
def test_damage_is_reported_with_its_byte(body, place, message):
    data = HEAD + framed(body)
    place += len(data) - len(body)
    with pytest.raises(WorkloadFormatError, match=rf"x\.et .*damaged at byte {place}: {message}\. Convert"):
        decode_graph(data, source="x.et")


def test_groups_of_unknown_fields_survive():
    group = b"\xa3\x06\x08\x01\x13\x12\x01a\x14\xa4\x06"
    graph = decode_graph(HEAD + framed(b"\x08\x05" + group))
    assert graph.extra == {5: group}
    assert group in encode_graph(graph)


def test_attributes_without_a_column_are_a_mapping():
    extra = Extra.of({7: b"seven", -1: b"metadata", 3: b""})
    assert dict(extra) == {-1: b"metadata", 3: b"", 7: b"seven"}
    assert list(extra.values()) == [b"metadata", b"", b"seven"]
    assert extra == pickle.loads(pickle.dumps(extra))
    assert (extra.get(4), len(extra), 3 in extra, 4 in extra) == (None, 3, True, False)
    content, begins, ends = extra.spans(np.array([7, 4, 3]))
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    assert [content[begin:end].tobytes() for begin, end in spans] == [b"seven", b"", b""]
    assert Extra.of({}).spans(np.array([1]))[1:] == (np.array([0]), np.array([0]))


def test_hand_made_graph_is_written_from_dictionaries():
    node = Node(attr=[{"name": "vendor", "string_val": "x"}])
    graph = Graph.build(0, [{"node_id": 2}, {"node_id": 1}], [], extra={2: node.SerializeToString()})
    assert other_attributes(decode_graph(encode_graph(graph)), 2) == {"vendor": "x"}
    assert other_attributes(graph, 1) == {}


# Workloads from and to Chakra's protobuf messages.


def _job():
    """Return the messages of two ranks: a computation each, then an all-reduce in group 1."""
    ranks = []
    for rank in range(2):
        computation = et_def.Node(id=1, name="layer", type=4, duration_micros=100 + 50 * rank)
        computation.attr.add(name="is_cpu_op", bool_val=False)
        collective = et_def.Node(id=2, name="all-reduce", type=7, data_deps=[1])
        collective.attr.add(name="comm_type", int64_val=0)
        collective.attr.add(name="comm_size", int64_val=2**20)
        collective.attr.add(name="pg_name", string_val="1")
        ranks.append([et_def.GlobalMetadata(version="0.0.4"), computation, collective])
    return ranks


def test_messages_make_a_workload_that_runs():
    workload = Workload.from_messages(_job(), {1: [0, 1]})
    assert workload.summary() == {"num_ranks": 2, "nodes": 4, "communication_nodes": 2}
    assert workload.groups == {1: (0, 1)}
    result = simulate(workload, "default", "ring-2")
    assert result.makespan_ns > 150_000


def test_equal_ranks_share_a_graph():
    first = _job()[0]
    assert len(Workload.from_messages([first, first]).graphs) == 1


@pytest.mark.parametrize("name", ["all_kinds.et", "public.0.et", "storage.et"])
def test_messages_come_back_as_they_were(data_dir, name):
    """Attributes and fields without a column are passed on."""
    workload = load_workload(data_dir / "converter" / "chakra" / name)
    ranks = list(workload.to_messages(et_def))
    again = Workload.from_messages(ranks, workload.groups)
    assert again.graphs == workload.graphs
    assert list(again.to_messages(et_def)) == ranks


def _module(edit):
    """Return message classes of a schema that *edit* changed."""
    file = descriptor_pb2.FileDescriptorProto.FromString(et_def.Node.DESCRIPTOR.file.serialized_pb)
    edit({message.name: message for message in file.message_type})
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    names = ("GlobalMetadata", "Node")
    return SimpleNamespace(
        **{
            name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{file.package}.{name}"))
            for name in names
        }
    )


def _renumber(messages):
    field = next(field for field in messages["AttributeProto"].field if field.name == "int64_val")
    field.number = 99


def test_another_schema_is_refused_both_ways():
    other = _module(_renumber)
    with pytest.raises(UsageError, match="'int64_val' of message AttributeProto is not number 9"):
        list(Workload.from_messages(_job()).to_messages(other))
    with pytest.raises(UsageError, match="Update the module et_def_pb2"):
        Workload.from_messages([[other.GlobalMetadata(version="0.0.4")]])


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ([], "no rank"),
        ([[et_def.Node(id=1)]], "Rank 0: message 0 has type Node, not GlobalMetadata"),
        ([_job()[0], [et_def.GlobalMetadata(), "node"]], "Rank 1: message 1 has type str, not Node"),
        ([[et_def.GlobalMetadata(), et_def.Node(id=1), et_def.Node(id=1)]], "rank 0"),
    ],
)
def test_other_messages_are_refused_by_rank(ranks, message):
    with pytest.raises(WorkloadFormatError, match=message):
        Workload.from_messages(ranks)


def test_a_module_without_the_messages_is_refused():
    with pytest.raises(UsageError, match="'math' has no Chakra messages"):
        list(Workload.from_messages(_job()).to_messages(__import__("math")))


# The .et codec: round trips, foreign attributes, and damaged input.


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


def test_a_length_beyond_the_file_names_the_offset():
    with pytest.raises(WorkloadFormatError, match=r"big\.et.*byte 0.*4294967295 bytes is announced"):
        decode_graph(b"\xff\xff\xff\xff\x0f", source="big.et")


def test_rounded_microseconds_keep_their_sum():
    graph = Graph.build(0, [{"node_id": i, "type": 4, "duration_ns": 1400} for i in range(1000)], [])
    micros = []
    for body in list(messages(encode_graph(graph)))[1:]:
        node = Node()
        node.ParseFromString(body)
        micros.append(node.duration_micros)
    assert sum(micros) == 1400
    assert set(micros) == {1, 2}


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


def test_a_smaller_workload_leaves_no_rank_of_the_larger_one(tmp_path):
    for ranks in (4, 2):
        graphs = [Graph.build(rank, [{"node_id": rank, "type": 4}], []) for rank in range(ranks)]
        Workload(tuple(graphs), np.arange(ranks), {}, {}).save(tmp_path / "w")
        assert Workload.load(tmp_path / "w").num_ranks == ranks


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
