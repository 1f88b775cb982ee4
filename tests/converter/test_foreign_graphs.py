"""Graphs that others wrote: MLCommons Chakra's message classes, and the public converter.

The files in ``tests/data/converter/chakra`` were written by the classes that MLCommons generates.
"""

import gzip

import numpy as np
import pytest
from chakra_schema import GlobalMetadata, Node, messages

from chakrascope.converter import (
    Graph,
    NodeType,
    Workload,
    decode_graph,
    doctor,
    encode_graph,
    inspect_node,
    inspect_workload,
    load_workload,
    microbenchmark,
    read_et,
)
from chakrascope.errors import WorkloadError, WorkloadFormatError
from chakrascope.runner import WorkloadSource, simulate

SCALARS = {
    "double": 2.5, "float": -1.25, "int32": -7, "int64": -(2**40), "uint32": 7, "uint64": 2**40, "sint32": -9,
    "sint64": -(2**41), "fixed32": 11, "fixed64": 2**42, "sfixed32": -11, "sfixed64": -(2**42), "bool": True,
    "string": "text é", "bytes": b"\x00\xff",
}  # fmt: skip


@pytest.fixture(scope="module")
def chakra(data_dir):
    return data_dir / "converter" / "chakra"


def _parsed(data):
    first, *rest = messages(data)
    metadata, nodes = GlobalMetadata(), []
    metadata.ParseFromString(first)
    for body in rest:
        nodes.append(Node())
        nodes[-1].ParseFromString(body)
    return metadata, nodes


def test_a_file_of_the_reference_classes_is_read(chakra):
    graph = load_workload(chakra / "all_kinds.et").graphs[0]
    nodes = graph.nodes.set_index("node_id")
    assert nodes["type"].tolist() == [2, 4, 7, 5]
    assert nodes.loc[1, ["num_ops", "tensor_size_bytes", "duration_ns"]].tolist() == [12, 48, 20_000]
    assert nodes.loc[2, ["comm_type", "comm_size_bytes", "group"]].tolist() == [0, 2**33, 1]
    assert nodes.loc[3, ["comm_size_bytes", "comm_src", "comm_dst", "comm_tag"]].tolist() == [64, 0, 1, 5]
    assert list(zip(graph.edges["src"], graph.edges["dst"], strict=True)) == [(0, 1), (0, 2), (1, 2), (2, 3)]


@pytest.mark.parametrize("name", ["all_kinds.et", "public.0.et", "storage.et"])
def test_everything_in_it_survives_being_written_again(chakra, name):
    data = (chakra / name).read_bytes()
    metadata, nodes = _parsed(data)
    again_metadata, again = _parsed(encode_graph(decode_graph(data)))
    assert again_metadata == metadata
    for before, after in zip(sorted(nodes, key=lambda node: node.id), again, strict=True):
        plain = ("id", "name", "type", "start_time_micros", "duration_micros", "inputs", "outputs")
        assert all(getattr(before, field) == getattr(after, field) for field in plain)
        assert {*before.data_deps, *before.ctrl_deps} == {*after.data_deps, *after.ctrl_deps}
        kept = {attribute.name: attribute for attribute in after.attr}
        ours = {
            "comm_type",
            "comm_size",
            "comm_src",
            "comm_dst",
            "comm_tag",
            "tensor_size",
            "pg_name",
            "stream",
        }
        assert all(kept[one.name] == one for one in before.attr if one.name not in ours)


def test_attributes_of_every_kind_are_shown(chakra):
    shown = inspect_node(load_workload(chakra / "all_kinds.et").graphs[0], 1)["other_attributes"]
    assert {name: shown[f"v_{name}"] for name in SCALARS} == SCALARS
    assert {name: shown[f"l_{name}"] for name in SCALARS} == {name: [v, v] for name, v in SCALARS.items()}
    assert shown["inputs"] == "[[1, 2]]"


def test_a_type_of_a_newer_schema_keeps_its_number(chakra):
    graph = load_workload(chakra / "storage.et").graphs[0]
    assert graph.nodes["type"].tolist() == [NodeType.INVALID, NodeType.COMP]
    _, (first, _) = _parsed(encode_graph(graph))
    assert first.type == 8


def test_files_of_older_versions_are_refused(chakra):
    with pytest.raises(
        WorkloadFormatError, match=r"before_0\.0\.4\.et does not start with the metadata of Chakra"
    ):
        load_workload(chakra / "before_0.0.4.et")


def test_compressed_files_are_read_and_simulated(tmp_path):
    workload = microbenchmark("all-reduce", 2, 1 << 20, repeats=2)
    workload.save(tmp_path / "plain")
    for rank in range(2):
        data = (tmp_path / f"plain.{rank}.et").read_bytes()
        (tmp_path / f"packed.{rank}.et").write_bytes(gzip.compress(data))
    (tmp_path / "one.et.gz").write_bytes((tmp_path / "packed.0.et").read_bytes())
    assert Workload.load(tmp_path / "packed").graphs[0].nodes.equals(workload.graphs[0].nodes)
    assert load_workload(tmp_path / "one.et.gz").graphs[0].nodes.equals(workload.graphs[0].nodes)
    assert doctor(tmp_path / "packed") == []
    assert WorkloadSource.of_prefix(tmp_path / "packed", 2).programs == (data,)
    plain, packed = (simulate(tmp_path / name, "default", "ring-2") for name in ("plain", "packed"))
    assert plain.makespan_ns == packed.makespan_ns
    (tmp_path / "cut.0.et").write_bytes(gzip.compress(data)[:-9])
    with pytest.raises(WorkloadFormatError, match=r"cut\.0\.et is truncated"):
        read_et(tmp_path / "cut.0.et")
    with pytest.raises(WorkloadError, match="cannot be read"):
        read_et(tmp_path / "absent.et")


def test_the_public_converters_graphs_are_explained(chakra):
    findings = doctor(chakra / "public")
    assert [finding.severity for finding in findings] == ["error", "error", "warning"]
    alone = doctor(chakra / "public.0.et")
    assert [finding.cause for finding in alone] == [finding.cause for finding in findings]
    dangling, leaves, metadata = findings
    assert "waits for node 0, which does not exist" in dangling.cause
    assert "Nothing waits for the device's work" in leaves.cause
    assert "METADATA nodes, on which ASTRA-sim stops" in metadata.cause
    assert all("--linked-trace LINKED.json" in finding.remedy for finding in findings)


def test_inspection_shows_what_it_can_of_a_graph_that_cannot_run(chakra):
    facts = inspect_workload(load_workload(chakra / "public.0.et"))
    assert facts["ranks"]["0"]["replay_ns"] == -1
    assert facts["ranks"]["0"]["by_type"] == {"COMM_COLL": 1, "COMP": 20, "METADATA": 1}
    assert [finding["severity"] for finding in facts["findings"]] == ["error", "error", "warning"]


def test_device_work_that_something_waits_for_is_fine(tmp_path):
    nodes = [
        {"node_id": 0, "name": "launch", "type": NodeType.COMP, "is_cpu_op": True},
        {"node_id": 1, "name": "kernel", "type": NodeType.COMP, "stream": 7},
        {"node_id": 2, "name": "next", "type": NodeType.COMP, "stream": 7},
    ]
    for edges, count in (([(0, 1, 3), (0, 2, 3)], 1), ([(0, 1, 3), (1, 2, 2)], 0)):
        graph = Graph.build(0, nodes, edges)
        Workload((graph,), np.zeros(1, dtype=np.int32)).save(tmp_path / "w")
        assert len(doctor(tmp_path / "w")) == count


def test_a_trace_is_no_graph(data_dir):
    path = data_dir / "converter" / "mlp_2" / "rank0.device.json.gz"
    with pytest.raises(WorkloadError, match=r"convert --device-trace .*rank0\.device\.json\.gz -o PREFIX"):
        load_workload(path)
