"""Inspection and exports: figures add up, and the written files are what their formats ask for."""

import json
import re
from xml.etree import ElementTree

import networkx
import numpy as np
import pandas as pd
import pytest
from chakra_schema import HEAD, Node, framed

from chakrascope.converter import (
    EXPORT_FORMATS,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    convert_files,
    export_graph,
    inspect_node,
    inspect_workload,
    load_workload,
    replay,
)
from chakrascope.converter.chakra import KINDS
from chakrascope.errors import DependencyError, UsageError, WorkloadError


@pytest.fixture(scope="module")
def workload(data_dir):
    folder = data_dir / "converter" / "dlrm_v100_8"
    return convert_files(f"{folder}/et_{{rank}}.json.gz", f"{folder}/kineto_{{rank}}.json.gz")


@pytest.fixture(scope="module")
def odd():
    """Return a workload whose names try to break every format, and which has a backward id."""
    names = ['a<b>&"c', "back\\slash", "line\nbreak\x01", "§"]
    nodes = [
        {"node_id": i, "name": name, "type": NodeType.COMP, "duration_ns": 10 * i, "stream": i % 2}
        for i, name in enumerate(names)
    ]
    edges = [(3, 1, EdgeKind.LAUNCH), (0, 2, EdgeKind.DATA)]
    return Workload((Graph.build(0, nodes, edges),), np.zeros(2, dtype=np.int32))


def test_figures_add_up(workload):
    facts = inspect_workload(workload)
    assert json.loads(json.dumps(facts)) == facts
    rank = facts["ranks"]["0"]
    assert set(facts["ranks"]) == {"0", "1"}
    assert sum(rank["by_type"].values()) == rank["nodes"] == sum(rank["by_kind"].values())
    assert sum(rank["edges_by_kind"].values()) == rank["edges"]
    assert sum(item["count"] for item in rank["communication"]) == 8
    assert {item["operation"]: item["count"] for item in rank["communication"]} == {
        "all_reduce": 3,
        "all_to_all": 5,
    }
    assert rank["replay_ns"] == replay(workload.graphs[0]).makespan_ns
    assert 1000 < rank["longest_chain_nodes"] <= rank["nodes"]


def test_a_node_is_told_in_full(workload):
    graph = workload.graphs[0]
    comm = int(graph.nodes.query("type == 7")["node_id"].iloc[0])
    node = inspect_node(graph, comm)
    assert node["type"] == "COMM_COLL"
    assert node["comm_type"] == "ALL_TO_ALL"
    assert {wait["kind"] for wait in node["waits_for"]} >= {"COMM_ISSUE", "EVENT_SYNC"}
    assert node["waited_for_by"]
    with pytest.raises(UsageError, match="ids from 0 to"):
        inspect_node(graph, 10**9)


def test_attributes_of_other_tools_are_shown(tmp_path):
    node = Node(id=3, name="n", type=4)
    node.attr.add(name="vendor", double_val=2.5)
    node.attr.add(name="dims").bool_list.values.extend([True, False])
    node.inputs.values = "[1]"
    path = tmp_path / "x.et"
    path.write_bytes(HEAD + framed(node.SerializeToString()))
    (graph,) = load_workload(path).graphs
    other = inspect_node(graph, 3)["other_attributes"]
    assert other == {"vendor": 2.5, "dims": [True, False], "inputs": "[1]"}
    with pytest.raises(WorkloadError, match="cannot be read"):
        load_workload(tmp_path / "y.et")


def test_each_kind_of_node_has_a_colour_of_its_own(tmp_path):
    nodes = [{"node_id": place, "type": NodeType.COMP, "kind": kind} for place, kind in enumerate(KINDS)]
    workload = Workload((Graph.build(0, nodes, []),), np.zeros(1, dtype=np.int32))
    dot = export_graph(workload, tmp_path / "x.dot", "dot").read_text()
    assert len(set(re.findall(r'fillcolor="(#\w{6})"', dot))) == len(KINDS)


def test_json_graphml_and_dot(odd, tmp_path):
    document = json.loads(export_graph(odd, tmp_path / "x.json", "json").read_text())
    assert [node["name"] for node in document["nodes"]] == odd.graphs[0].nodes["name"].tolist()
    assert document["edges"] == [{"src": 3, "dst": 1, "kind": "launch"}, {"src": 0, "dst": 2, "kind": "data"}]
    root = ElementTree.parse(export_graph(odd, tmp_path / "x.graphml", "graphml")).getroot()
    space = "{http://graphml.graphdrawing.org/xmlns}"
    assert len(root.findall(f".//{space}node")) == 4
    assert len(root.findall(f".//{space}edge")) == 2
    dot = export_graph(odd, tmp_path / "x.dot", "dot").read_text()
    assert dot.count("->") == 2
    assert 'n1 [label="back\\\\slash (10 ns)"' in dot


def test_graphml_reads_back_with_networkx(odd, tmp_path):
    graph = networkx.read_graphml(export_graph(odd, tmp_path / "x.graphml", "graphml"))
    assert graph.nodes["n2"]["duration_ns"] == 20
    assert graph.edges["n0", "n2"]["kind"] == "data"


def test_chrome_trace_holds_every_rank_and_arrow(workload, tmp_path):
    document = json.loads(export_graph(workload, tmp_path / "x.json", "chrome-trace").read_text())
    events = document["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == workload.summary()["nodes"]
    assert {event["pid"] for event in slices} == set(range(8))
    assert len([e for e in events if e["ph"] == "s"]) == len([e for e in events if e["ph"] == "f"]) > 100


def test_a_backward_id_replays_and_a_cycle_does_not(odd):
    times = replay(odd.graphs[0])
    assert times.start_ns.tolist() == [0, 30, 0, 0]
    ring = Graph.build(0, [{"node_id": 0}, {"node_id": 1}], [(0, 1, 0), (1, 0, 0)])
    with pytest.raises(DependencyError, match="dependency cycle"):
        replay(ring)
    with pytest.raises(DependencyError, match="does not exist"):
        replay(Graph.build(0, [{"node_id": 0}], [(5, 0, 0)]))


def test_parquet_holds_the_nodes_and_edges_of_all_ranks(odd, tmp_path):
    nodes = pd.read_parquet(export_graph(odd, tmp_path / "x.parquet", "parquet"))
    pd.testing.assert_frame_equal(nodes, odd.node_table())
    edges = pd.read_parquet(export_graph(odd, tmp_path / "x.edges.parquet", "parquet-edges"))
    pd.testing.assert_frame_equal(edges, odd.edge_table())


def test_unknown_formats_and_ranks(odd, tmp_path):
    with pytest.raises(UsageError, match="did you mean 'graphml'"):
        export_graph(odd, tmp_path / "x", "graphm")
    with pytest.raises(UsageError, match="ranks 0 to 1"):
        export_graph(odd, tmp_path / "x", "json", rank=7)
    assert list(tmp_path.iterdir()) == []
    assert sorted(EXPORT_FORMATS) == ["chrome-trace", "dot", "graphml", "json", "parquet", "parquet-edges"]
