"""The critical path as tables: by contributor, by network dimension and by link."""

import dataclasses

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from studies import ring_links

from chakrascope.runner.analysis import (
    RunAnalysis,
    contributors,
    layer_table,
    longest_with_slack,
    nameless_text,
    neighbourhood,
    neighbours,
    slack_shares,
    slack_table,
    why_no_links,
)
from chakrascope.runner.analysis._graph import module_groups, phase_groups, rank_groups, stream_groups
from chakrascope.runner.analysis._layers import cut_names
from chakrascope.runner.analysis._path_tables import network_breakdown


def test_contributors_leave_nameless_time_out(run):
    named = contributors(run.path, "collective")
    assert "" not in named["key"].tolist()
    assert named["duration_ns"].sum() == 6 * 300_000


def test_unnamed_time_is_noted_with_its_share(run):
    table = run.path.breakdown("collective")
    share = table.set_index("key").loc["(none)", "share"]
    assert (
        nameless_text(table, "collective")
        == f"{100 * share:.1f} % of the path is not assigned to any collective."
    )
    assert nameless_text(run.path.breakdown("kind"), "kind") == ""


def test_contributors_have_a_kind(run):
    table = contributors(run.path, "operator")
    kinds = dict(zip(table["key"], table["kind"], strict=True))
    assert kinds["aten::mm"] == "compute"
    assert kinds["c10d::allreduce_"] == "communication"


def test_path_by_network_names_the_dimensions_it_crosses(simulated):
    network = simulated.result.provenance["network"]
    table = network_breakdown(simulated.path, simulated.workload, network)
    assert table["duration_ns"].sum() == simulated.path.makespan_ns
    assert table["key"].tolist() == ["dimension 1 (Switch of 8)", "no communication"]
    unknown = network_breakdown(simulated.path, simulated.workload, {})
    assert unknown["key"].tolist() == ["no communication"]


def test_path_by_network_of_two_dimensions(simulated):
    network = {"npus_count": [2, 4], "topology": ["Ring", "Switch"]}
    table = network_breakdown(simulated.path, simulated.workload, network)
    assert "dimensions 1 (Ring of 2) and 2 (Switch of 4)" in table["key"].tolist()


def test_slack_of_the_critical_path_is_none(run):
    on_path = run.path.segments.iloc[3]
    assert run.slack_of(int(on_path["rank"]), int(on_path["node_id"])) == 0
    assert run.slack_of(0, 999) is None


def test_slack_table_has_every_node_the_critical_ones_first(run):
    table = slack_table(run.nodes, run.slack_ns)
    assert len(table) == len(run.nodes)
    assert table["slack_ns"].is_monotonic_increasing
    assert slack_table(run.nodes, pd.Series(dtype="int64")).empty
    spare = longest_with_slack(run.nodes, run.slack_ns, 3)
    assert (spare["slack_ns"] > 0).all()
    assert spare["duration_ns"].tolist() == [400_000] * 3
    none, all_of_it = slack_shares(run.nodes, run.slack_ns, run.path.makespan_ns)
    assert 0.4 < none < 0.8
    assert all_of_it == 1


def test_layers_hold_all_work_in_modules(run):
    table = layer_table(run.result, run.workload, run.path)
    assert table["module"].tolist() == [f"layers.{layer}" for layer in range(6)]
    # The ranks' computation differs, so the figures are means; host work is in no layer of a device.
    assert set(table["forward_ns"]) == {450_000}
    assert set(table["communication_ns"]) == {300_000}
    assert table["on_path_ns"].sum() == run.path.makespan_ns
    assert table["share"].sum() == pytest.approx(1)
    ranks = run.result.ranks
    with_idle_one = dataclasses.replace(run.result, ranks=pd.concat([ranks, ranks.tail(1).assign(rank=2)]))
    assert set(layer_table(with_idle_one, run.workload, run.path)["forward_ns"]) == {300_000}


@given(st.lists(st.text(alphabet="ab.", max_size=8), min_size=1, max_size=30), st.integers(1, 10))
def test_names_are_cut_as_little_as_possible(names, most):
    modules = pd.Series(names)
    cut = cut_names(modules, most)
    assert all(name.startswith(short) for name, short in zip(names, cut, strict=True))
    assert cut.nunique() <= max(most, modules.str.split(".").str[0].nunique())
    if modules.nunique() <= most:
        assert cut.tolist() == names


def with_flows(run, rows, links=None):
    """Return *run* as if its backend had recorded the messages *rows*."""
    flows = pd.DataFrame(rows, columns=["src", "dst", "bytes", "start_ns", "end_ns"]).astype("int64")
    linked = run.result.links if links is None else links
    result = dataclasses.replace(run.result, flows=flows, links=linked)
    return RunAnalysis(run.study, run.info, result, run.workload)


def longest_communication(run):
    segments = run.path.segments
    return segments[segments["kind"] == "communication"].nlargest(1, "duration_ns").iloc[0]


def test_a_communication_is_walked_back_from_message_to_message(simulated):
    segment = longest_communication(simulated)
    rank, start, end = int(segment["rank"]), int(segment["start_ns"]), int(segment["end_ns"])
    before, beside = (rank - 1) % 8, (rank - 2) % 8
    half = (start + end) // 2
    rows = [
        (before, rank, 1, half, end - 10),  # reached it last, a little before the end
        (beside, rank, 1, start, end - 20),  # reached it earlier: nobody waited for it
        (beside, before, 1, start + 100, half),  # the sender waited for this
        (before, rank, 1, end - 5, end + 5),  # came too late
    ]
    table = with_flows(simulated, rows, ring_links(8)).breakdown("link").set_index("key")["duration_ns"]
    assert table[f"rank {before} to rank {rank}"] == end - half
    assert table[f"rank {beside} to rank {before}"] == half - start - 100
    assert table.sum() == simulated.result.makespan_ns
    communication = simulated.path.breakdown("kind").set_index("key")["duration_ns"]["communication"]
    assert table["no communication"] == simulated.result.makespan_ns - communication


def test_the_only_switch_between_two_ranks_is_named(simulated):
    segment = longest_communication(simulated)
    other = (int(segment["rank"]) + 3) % 8
    row = (other, int(segment["rank"]), 1, int(segment["start_ns"]), int(segment["end_ns"]))
    keys = set(with_flows(simulated, [row]).breakdown("link")["key"])
    assert f"rank {other} to rank {segment['rank']} through switch 0" in keys


RANKS = st.integers(0, 7)
MESSAGES = st.tuples(RANKS, RANKS, st.just(1), st.integers(0, 10**7), st.integers(1, 10**6))


@given(st.lists(MESSAGES, min_size=1, max_size=30))
def test_whatever_was_recorded_the_parts_sum_to_the_step(simulated, rows):
    flows = [(source, target, size, start, start + length) for source, target, size, start, length in rows]
    table = with_flows(simulated, flows).breakdown("link")
    assert table["duration_ns"].sum() == simulated.result.makespan_ns
    assert (table["duration_ns"] > 0).all()


def test_backend_without_messages_lists_its_records(run, simulated):
    assert "only totals for each link" in why_no_links(simulated.result)
    assert "no individual messages" in why_no_links(run.result)
    assert run.breakdown("link").empty


# The surroundings of a node, and graphs folded into groups.


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
    many = pd.DataFrame({"src": 0, "dst": [1, 2, 3], "kind": 0})
    assert [(near.node_id, near.of) for near in neighbours(many, str, 0, 2)] == [(1, 3), (2, 3)]


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
