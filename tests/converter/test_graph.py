"""`Graph` and `Workload` as Python objects: equality, hash, copies, pickles, and views of them."""

import copy
import dataclasses
import json
import pickle
import re

import hypothesis.strategies as st
import networkx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given

from chakrascope.converter import (
    EXPORT_FORMATS,
    EdgeKind,
    Graph,
    NodeType,
    Workload,
    export_graph,
    inspect_node,
    inspect_workload,
    replay,
)
from chakrascope.converter.chakra import KINDS, TextColumn, shortest_cycle, unreachable
from chakrascope.errors import DependencyError, UsageError

NODES = [
    {
        "node_id": 7,
        "name": "b",
        "type": NodeType.COMM_COLL,
        "comm_size_bytes": 2**40,
        "kind": "communication",
    },
    {"node_id": 3, "name": "a", "type": NodeType.COMP, "duration_ns": 5, "num_ops": -1},
]
EDGES = [(3, 7, EdgeKind.LAUNCH)]


def graph(**changes):
    return Graph.build(**{"rank": 0, "nodes": NODES, "edges": EDGES, **changes})


def workload(**changes):
    made = Workload((graph(), graph(rank=1)), np.array([0, 1, 0], np.int32), {1: (0, 2)}, {"steps": [1]})
    return dataclasses.replace(made, **changes)


def test_equal_content_is_equal_however_it_was_made():
    one = graph()
    assert one == graph(nodes=NODES[::-1], edges=[*EDGES, (3, 7, EdgeKind.CTRL)])
    assert one == Graph.of_tables(0, one.nodes, one.edges)
    assert one == Graph.of_columns(0, one.node_columns, EDGES)
    assert one == one.with_columns(name=TextColumn(np.array([1, 0], np.int32), ["b", "a", "unused"]))
    assert workload() == workload()


@pytest.mark.parametrize(
    "changes",
    [
        {"rank": 1},
        {"nodes": NODES[:1], "edges": []},
        {"nodes": [{**NODES[0], "name": "c"}, NODES[1]]},
        {"nodes": [{**NODES[0], "comm_size_bytes": 1}, NODES[1]]},
        {"edges": []},
        {"edges": [(3, 7, EdgeKind.DATA)]},
        {"extra": {3: b"x"}},
    ],
)
def test_any_difference_in_a_graph_counts(changes):
    assert graph() != graph(**changes)
    assert workload() != workload(graphs=(graph(**changes), graph(rank=1)))


@pytest.mark.parametrize(
    "changes",
    [
        {"graphs": (graph(),)},
        {"program_of_rank": np.array([0, 1, 1], np.int32)},
        {"program_of_rank": np.array([0, 1], np.int32)},
        {"groups": {}},
        {"metadata": {}},
    ],
)
def test_any_difference_in_a_workload_counts(changes):
    assert workload() != workload(**changes)


def test_others_are_not_equal_and_nothing_has_a_hash():
    for thing in (graph(), workload(), TextColumn.of(["a"])):
        assert thing != 7
        assert (thing == None) is False  # noqa: E711 - what `is` does not ask
        with pytest.raises(TypeError, match="unhashable"):
            hash(thing)


@given(st.lists(st.sampled_from("abc"), max_size=6), st.lists(st.sampled_from("abc"), max_size=6))
def test_text_columns_are_equal_if_their_rows_are(one, other):
    shuffled = TextColumn(np.array(["xcba".index(text) for text in one], dtype=np.int32), list("xcba"))
    assert TextColumn.of(one) == shuffled
    assert (TextColumn.of(one) == TextColumn.of(other)) == (one == other)


def test_pickles_and_copies_are_equal_and_leave_the_tables_out(captured):
    for thing in (captured, *captured.graphs):
        _ = captured.graphs[0].nodes, captured.graphs[0].edges
        for again in (pickle.loads(pickle.dumps(thing)), copy.copy(thing), copy.deepcopy(thing)):
            assert again == thing
    again = pickle.loads(pickle.dumps(captured.graphs[0]))
    assert not {"nodes", "edges"} & set(again.__dict__)
    pd.testing.assert_frame_equal(again.nodes, captured.graphs[0].nodes)


def test_what_is_saved_is_loaded_equal(captured, tmp_path):
    captured.save(tmp_path / "w")
    assert Workload.load(tmp_path / "w") == captured


def test_representations_are_short(captured):
    assert repr(graph()) == "Graph(rank=0, num_nodes=2, num_edges=1)"
    assert repr(workload()) == "Workload(num_ranks=3, programs=2, nodes=4)"
    assert len(repr(captured)) < 80


def test_changed_graphs_share_unchanged_columns():
    one = graph()
    table = one.nodes
    other = one.as_rank(4).with_columns(duration_ns=np.array([1, 2])).with_edges([])
    assert (other.rank, other.nodes["duration_ns"].tolist(), other.num_edges) == (4, [1, 2], 0)
    assert other.node_columns["node_id"] is one.node_columns["node_id"]
    assert one.nodes is table
    assert one == graph()
    with pytest.raises(ValueError, match="column step has 3 rows, not 2"):
        one.with_columns(step=np.zeros(3))
    with pytest.raises(KeyError):
        one.with_columns(colour=np.zeros(2))


def test_the_tables_of_all_ranks_have_a_row_for_each_rank_that_runs_a_program():
    made = workload()
    assert made.node_table()[["rank", "node_id"]].to_numpy().tolist() == [
        [0, 3], [0, 7], [1, 3], [1, 7], [2, 3], [2, 7],
    ]  # fmt: skip
    assert made.edge_table().to_numpy().tolist() == [[rank, 3, 7, EdgeKind.LAUNCH] for rank in range(3)]


def test_networkx_has_every_column_and_the_reasons(captured):
    drawn = captured.to_networkx(1)
    nodes, edges = captured.graphs[1].nodes, captured.graphs[1].edges
    assert (drawn.number_of_nodes(), drawn.number_of_edges()) == (len(nodes), len(edges))
    last = nodes.iloc[-1]
    assert drawn.nodes[int(last["node_id"])] == {key: last[key] for key in nodes if key != "node_id"}
    src, dst, kind = edges.iloc[0]
    assert drawn.edges[int(src), int(dst)] == {"kind": EdgeKind(kind).name.lower()}
    assert networkx.is_directed_acyclic_graph(drawn)
    for rank in (-1, 2):
        with pytest.raises(UsageError, match=f"no rank {rank}"):
            captured.to_networkx(rank)


@given(st.lists(st.tuples(st.integers(0, 7), st.integers(0, 7)), max_size=16, unique=True))
def test_shortest_cycle_and_stuck_nodes_are_found(edges):
    drawn = networkx.DiGraph(edges)
    cycles = sorted(map(len, networkx.simple_cycles(drawn)))
    src, dst = (np.array([edge[end] for edge in edges], dtype=np.int64) for end in (0, 1))
    found = shortest_cycle(src.tolist(), dst.tolist())
    assert len(found) == (cycles[0] if cycles else 0)
    assert all(drawn.has_edge(found[place - 1], node) for place, node in enumerate(found))
    on_cycles = {node for cycle in networkx.simple_cycles(drawn) for node in cycle}
    never = on_cycles.union(*(networkx.descendants(drawn, node) for node in on_cycles))
    assert np.flatnonzero(unreachable(8, src, dst)).tolist() == sorted(never)


def test_a_cycle_of_a_whole_program_is_found_at_once():
    count = 300_000
    src = [*range(count - 1), count - 1]
    dst = [*range(1, count), 0]
    assert len(shortest_cycle(src, dst)) == count


# Inspection and exports: counts are consistent, and files conform to their formats.


@pytest.fixture(scope="module")
def odd():
    """Return a workload with names that are hard to escape, and with a backward id."""
    names = ['a<b>&"c', "back\\slash", "line\nbreak\x01", "§"]
    nodes = [
        {"node_id": i, "name": name, "type": NodeType.COMP, "duration_ns": 10 * i, "stream": i % 2}
        for i, name in enumerate(names)
    ]
    edges = [(3, 1, EdgeKind.LAUNCH), (0, 2, EdgeKind.DATA)]
    return Workload((Graph.build(0, nodes, edges),), np.zeros(2, dtype=np.int32))


def test_figures_add_up(dlrm):
    facts = inspect_workload(dlrm)
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
    assert rank["replay_ns"] == replay(dlrm.graphs[0]).makespan_ns
    assert 1000 < rank["longest_chain_nodes"] <= rank["nodes"]


def test_a_node_is_told_in_full(dlrm):
    graph = dlrm.graphs[0]
    comm = int(graph.nodes.query("type == 7")["node_id"].iloc[0])
    node = inspect_node(graph, comm)
    assert node["type"] == "COMM_COLL"
    assert node["comm_type"] == "ALL_TO_ALL"
    assert {wait["kind"] for wait in node["waits_for"]} >= {"COMM_ISSUE", "EVENT_SYNC"}
    assert node["waited_for_by"]
    with pytest.raises(UsageError, match="ids from 0 to"):
        inspect_node(graph, 10**9)


def test_each_kind_of_node_has_a_colour_of_its_own(tmp_path):
    nodes = [{"node_id": place, "type": NodeType.COMP, "kind": kind} for place, kind in enumerate(KINDS)]
    dlrm = Workload((Graph.build(0, nodes, []),), np.zeros(1, dtype=np.int32))
    dot = export_graph(dlrm, tmp_path / "x.dot", "dot").read_text()
    assert len(set(re.findall(r'fillcolor="(#\w{6})"', dot))) == len(KINDS)


def test_json_and_dot(odd, tmp_path):
    document = json.loads(export_graph(odd, tmp_path / "x.json", "json").read_text())
    assert [node["name"] for node in document["nodes"]] == odd.graphs[0].nodes["name"].tolist()
    assert document["edges"] == [{"src": 3, "dst": 1, "kind": "launch"}, {"src": 0, "dst": 2, "kind": "data"}]
    dot = export_graph(odd, tmp_path / "x.dot", "dot").read_text()
    assert dot.count("->") == 2
    assert 'n1 [label="back\\\\slash (10 ns)"' in dot


def test_graphml_reads_back_with_networkx(odd, tmp_path):
    graph = networkx.read_graphml(export_graph(odd, tmp_path / "x.graphml", "graphml"))
    assert (graph.number_of_nodes(), graph.number_of_edges()) == (4, 2)
    assert graph.nodes["n2"]["duration_ns"] == 20
    assert graph.edges["n0", "n2"]["kind"] == "data"


def test_chrome_trace_holds_every_rank_and_arrow(dlrm, tmp_path):
    document = json.loads(export_graph(dlrm, tmp_path / "x.json", "chrome-trace").read_text())
    events = document["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert len(slices) == dlrm.summary()["nodes"]
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
