"""The surroundings of a node, and graphs folded into groups."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner.analysis import neighbourhood, neighbours
from chakrascope.runner.analysis._graph import module_groups, phase_groups, rank_groups, stream_groups


def test_neighbourhood_respects_hops_and_limit():
    edges = pd.DataFrame({"src": range(999), "dst": range(1, 1000), "kind": 0})
    near = neighbourhood(edges, 500, 3)
    assert sorted(near.nodes["node_id"]) == list(range(497, 504))
    assert not near.cut
    assert len(neighbourhood(edges, 500, 400, limit=300).nodes) == 300


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).filter(lambda e: e[0] < e[1]), min_size=1))
def test_every_edge_leads_to_a_later_layer(pairs):
    edges = pd.DataFrame(pairs, columns=["src", "dst"]).assign(kind=0)
    found = neighbourhood(edges, pairs[0][0], 5)
    layer = dict(zip(found.nodes["node_id"], found.nodes["layer"], strict=True))
    assert all(layer[a] < layer[b] for a, b in zip(found.edges["src"], found.edges["dst"], strict=True))


def test_nodes_that_wait_for_each_other_share_a_layer():
    pairs = [(0, 1), (1, 2), (2, 3), (3, 2), (3, 4)]
    edges = pd.DataFrame(pairs, columns=["src", "dst"]).assign(kind=0)
    nodes = neighbourhood(edges, 2, 5).nodes.sort_values("node_id")
    assert nodes["layer"].tolist() == [0, 1, 2, 2, 3]


def test_neighbours_say_why(run):
    edges, names = run.workload.graphs[1].edges, run.workload.graphs[1].nodes.set_index("node_id")["name"]
    found = neighbours(edges, names.get, 4)
    assert [(near.before, near.node_id, near.name, near.why) for near in found] == [
        (True, 3, names[3], "launch"),
        (False, 5, names[5], "event sync"),
    ]


def test_module_groups_hold_every_node_and_nanosecond_of_the_rank(run):
    own = run.nodes[run.nodes["rank"] == 1]
    path = run.path.segments[run.path.segments["rank"] == 1]
    found = module_groups(own, run.workload.graphs[1].edges, path)
    assert found.nodes["count"].sum() == len(own)
    assert found.nodes["duration_ns"].sum() == (own["end_ns"] - own["start_ns"]).sum()
    assert found.nodes["on_path_ns"].sum() == path["duration_ns"].sum()
    assert set(found.edges["src"]) | set(found.edges["dst"]) <= set(found.nodes["group"])


@pytest.mark.parametrize(
    ("fold", "names"),
    [
        (phase_groups, {"forward", "backward"}),
        (stream_groups, {"compute", "communication"}),
    ],
)
def test_a_rank_folds_into_phases_and_streams(run, fold, names):
    own = run.nodes[run.nodes["rank"] == 1]
    path = run.path.segments[run.path.segments["rank"] == 1]
    found = fold(own, run.workload.graphs[1].edges, path)
    assert set(found.nodes["name"]) == names
    assert found.nodes["duration_ns"].sum() == (own["end_ns"] - own["start_ns"]).sum()
    assert len(found.group_of) == len(own)
    assert found.edges["label"].str.fullmatch(r"\d+ edges").all()


def test_ranks_say_whom_they_waited_for(simulated):
    found = rank_groups(simulated.nodes, simulated.path.segments)
    assert found.nodes["name"].tolist() == [f"rank {rank}" for rank in range(8)]
    assert found.nodes["on_path_ns"].sum() == simulated.path.makespan_ns
    # The odd ranks compute longer and never wait for an even one.
    waiting = dict(zip(found.nodes["group"], found.nodes["rank"], strict=True))
    assert {waiting[src] % 2 for src in found.edges["src"]} == {1}


@pytest.mark.parametrize("most", [1, 4, 10, 100])
def test_modules_are_cut_until_they_fit(most):
    nodes = pd.DataFrame(
        {
            "node_id": range(8), "start_ns": range(8), "end_ns": range(1, 9), "phase": "forward",
            "rank": 0, "kind": "compute", "module": [f"blocks.{i // 4}.layer.{i}" for i in range(8)],
        }
    )  # fmt: skip
    none = pd.DataFrame({"src": [], "dst": [], "kind": []})
    found = module_groups(nodes, none, pd.DataFrame({"rank": [], "node_id": [], "duration_ns": []}), most)
    assert len(found.nodes) == {1: 1, 4: 2, 10: 8, 100: 8}[most]
