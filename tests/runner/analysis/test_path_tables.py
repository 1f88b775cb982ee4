"""The critical path, slack and layers of a run as tables."""

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.runner.analysis import (
    contributors,
    layer_table,
    longest_with_slack,
    nameless_text,
    slack_shares,
    slack_table,
)
from chakrascope.runner.analysis._layers import cut_names
from chakrascope.runner.analysis._network_path import network_breakdown


def test_contributors_leave_nameless_time_out(run):
    named = contributors(run.path, "collective")
    assert "" not in named["key"].tolist()
    assert named["duration_ns"].sum() == 6 * 300_000


def test_nameless_time_is_told_with_its_share(run):
    table = run.path.breakdown("collective")
    share = table.set_index("key").loc["(none)", "share"]
    assert nameless_text(table, "collective") == f"{100 * share:.1f} % of the path is in no collective."
    assert nameless_text(run.path.breakdown("kind"), "kind") == ""


def test_contributors_say_what_kind_they_are(run):
    table = contributors(run.path, "operator")
    kinds = dict(zip(table["key"], table["kind"], strict=True))
    assert kinds["aten::mm"] == "compute"
    assert kinds["c10d::allreduce_"] == "communication"


def test_path_by_network_names_the_dimensions_it_crosses(simulated):
    network = simulated.result.provenance["network"]
    table = network_breakdown(simulated.path, simulated.nodes, simulated.workload, network)
    assert table["duration_ns"].sum() == simulated.path.makespan_ns
    assert table["key"].tolist() == ["dimension 1 (Switch of 8)", "no communication"]
    unknown = network_breakdown(simulated.path, simulated.nodes, simulated.workload, {})
    assert unknown["key"].tolist() == ["no communication"]


def test_path_by_network_of_two_dimensions(simulated):
    network = {"npus_count": [2, 4], "topology": ["Ring", "Switch"]}
    table = network_breakdown(simulated.path, simulated.nodes, simulated.workload, network)
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
    assert 0.4 < none < 0.7
    assert all_of_it == 1


def test_layers_hold_all_work_in_modules(run):
    table = layer_table(run.result, run.workload, run.path)
    assert table["module"].tolist() == [f"layers.{layer}" for layer in range(6)]
    # Computation of the two ranks differs, so the figures are means; host work is in no layer of a device.
    assert set(table["forward_ns"]) == {450_000}
    assert set(table["communication_ns"]) == {300_000}
    assert table["on_path_ns"].sum() == run.path.makespan_ns
    assert table["share"].sum() == pytest.approx(1)


@given(st.lists(st.text(alphabet="ab.", max_size=8), min_size=1, max_size=30), st.integers(1, 10))
def test_names_are_cut_as_little_as_possible(names, most):
    modules = pd.Series(names)
    cut = cut_names(modules, most)
    assert all(name.startswith(short) for name, short in zip(names, cut, strict=True))
    assert cut.nunique() <= max(most, modules.str.split(".").str[0].nunique())
    if modules.nunique() <= most:
        assert cut.tolist() == names
