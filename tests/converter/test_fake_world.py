"""Graphs for all ranks from the one that rank 0 recorded in a fake world."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.converter.building._stand_ins import pose_for_all
from chakrascope.errors import TraceError


def recorded(groups, kind=NodeType.COMM_COLL):
    nodes = pd.DataFrame(
        {"node_id": range(len(groups)), "type": int(kind), "group": range(1, len(groups) + 1)}
    )
    graph = Graph.of_tables(0, nodes, pd.DataFrame({"src": [], "dst": [], "kind": []}))
    return Workload((graph,), np.zeros(1, np.int32), dict(enumerate(groups, start=1)), {"steps": [1]})


@settings(deadline=None)
@given(sizes=st.lists(st.integers(1, 4), min_size=1, max_size=3))
def test_every_rank_of_a_mesh_gets_its_own_groups(sizes):
    mesh = np.arange(np.prod(sizes)).reshape(sizes)
    made = [
        [sorted(line.tolist()) for line in np.moveaxis(mesh, axis, -1).reshape(-1, size)]
        for axis, size in enumerate(sizes)
    ]
    workload = recorded([tuple(family[0]) for family in made])
    posed = pose_for_all(workload, mesh.size, [group for family in made for group in family], "here")
    assert posed.num_ranks == mesh.size
    for rank in range(mesh.size):
        used = posed.graphs[posed.program_of_rank[rank]].nodes["group"]
        for family, number in zip(made, used, strict=True):
            (expected,) = (tuple(group) for group in family if rank in group)
            assert posed.groups.get(number, tuple(range(mesh.size))) == expected


def test_the_group_of_all_ranks_needs_one_graph():
    posed = pose_for_all(recorded([tuple(range(6))]), 6, [], "here")
    assert (len(posed.graphs), posed.groups, posed.program_of_rank.tolist()) == (1, {}, [0] * 6)


@pytest.mark.parametrize("made", [[], [[0, 1]], [[0, 1], [1, 2], [2, 3]]])
def test_groups_that_leave_ranks_out_are_refused(made):
    with pytest.raises(TraceError, match=r"here: the script made the group of ranks 0, 1, but none like it"):
        pose_for_all(recorded([(0, 1)]), 4, made, "here")


def test_messages_to_single_ranks_are_refused():
    with pytest.raises(TraceError, match="exchanges messages with single ranks"):
        pose_for_all(recorded([(0, 1, 2, 3)], NodeType.COMM_SEND), 4, [], "here")


def test_more_graphs_than_can_be_kept_are_refused():
    pairs = [[rank, rank + 1] for rank in range(0, 4096, 2)]
    with pytest.raises(TraceError, match="fewer ranks"):
        pose_for_all(recorded([(0, 1)]), 4096, pairs, "here")
