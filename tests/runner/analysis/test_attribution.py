"""Contributions of settings to the difference of two simulations: exact Shapley values."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.converter import CollectiveType, Graph, NodeType, Workload
from chakrascope.errors import Cancelled, UsageError
from chakrascope.runner import Study, get_backend, prepare
from chakrascope.runner.analysis import (
    Comparison,
    analyse_run,
    backend_reasons,
    configuration_table,
    difference_by_setting,
    explained_collectives,
    shapley_values,
)


@st.composite
def games(draw):
    """Draw the value of every coalition of some players."""
    count = draw(st.integers(0, 5))
    values = st.lists(st.integers(-(10**12), 10**12), min_size=1 << count, max_size=1 << count)
    return count, draw(values)


@given(games())
def test_values_sum_exactly_and_are_the_mean_over_all_orders(game):
    count, values = game
    found = shapley_values(count, values.__getitem__)
    assert sum(found) == (values[-1] - values[0] if count else 0)
    orders = list(permutations(range(count)))
    for player in range(count):
        added = 0
        for order in orders:
            before = sum(1 << each for each in order[: order.index(player)])
            added += values[before | 1 << player] - values[before]
        assert abs(found[player] - added / len(orders)) < 1 + 1e-3


@given(st.lists(st.integers(-(10**9), 10**9), max_size=5))
def test_independent_settings_get_their_own_effect(added):
    def value(mask):
        return sum(each for place, each in enumerate(added) if mask >> place & 1)

    assert shapley_values(len(added), value) == added


@pytest.fixture(scope="module")
def simulated(tmp_path_factory):
    """Return a function that creates and simulates an experiment on a network with these values."""
    folder = tmp_path_factory.mktemp("attribution")
    network = folder / "n.yml"
    compute, all_reduce = (
        {"node_id": 0, "name": "compute", "type": NodeType.COMP, "kind": "compute", "duration_ns": 1_000},
        {"node_id": 1, "name": "all_reduce", "type": NodeType.COMM_COLL, "kind": "communication",
         "comm_type": CollectiveType.ALL_REDUCE},
    )  # fmt: skip

    def job(size_bytes):
        prefix = folder / f"job-{size_bytes}"
        rows = [compute, all_reduce | {"comm_size_bytes": size_bytes}]
        graphs = tuple(Graph.build(rank, rows, [(0, 1, 0)]) for rank in range(8))
        Workload(graphs, np.arange(8, dtype=np.int32)).save(prefix)
        return prefix

    def make(
        bandwidth, latency, backend="analytical-unaware", *, topology="Switch", ranks="8", system="default",
        size_bytes=8 << 20,
    ):  # fmt: skip
        text = f"topology: [{topology}]\nnpus_count: [{ranks}]\nbandwidth: [{bandwidth}]\n"
        network.write_text(f"{text}latency: [{latency}]\n", encoding="utf-8")
        experiment = prepare(job(size_bytes), system, network, backend=backend)
        return experiment, get_backend(backend).run(experiment).makespan_ns

    return make


def test_settings_that_interact_share_the_difference(simulated):
    (base, before), (other, after) = simulated(10, 500), simulated(20, 50_000, "analytical-aware")
    table = difference_by_setting(base, other)
    assert set(table["setting"]) == {"backend", "dimension 1: bandwidth", "dimension 1: latency"}
    assert table["delta_ns"].sum() == after - before
    assert table.iloc[0]["setting"] == "dimension 1: latency"
    slower = table.set_index("setting").loc["backend"]
    assert 0 < slower["delta_ns"] < slower["alone_ns"]  # the second hop is shorter at 20 GiB/s
    assert slower[["base", "other"]].tolist() == ["analytical-unaware", "analytical-aware"]


def test_more_than_five_settings_are_grouped(simulated, tmp_path):
    system = tmp_path / "other.json"
    (base, before) = simulated("10, 10", "500, 500", topology="Ring, Switch", ranks="4, 2")
    text = (
        '{"endpoint-delay": 999, "active-chunks-per-dimension": 2, "preferred-dataset-splits": 8,'
        ' "all-reduce-implementation": ["ring", "halvingDoubling"]}'
    )
    system.write_text(text, encoding="utf-8")
    (other, after) = simulated("20, 30", "900, 5000", topology="Ring, Switch", ranks="4, 2", system=system)
    table = difference_by_setting(base, other)
    assert table["delta_ns"].sum() == after - before
    assert len(table) == 5
    assert table["setting"].str.startswith("others: ").sum() == 1


def test_settings_that_cannot_be_mixed_count_as_one(simulated):
    (base, before), (other, after) = (
        simulated(10, 500),
        simulated("10, 5", "500, 900", topology="Ring, Switch", ranks="4, 2"),
    )
    table = difference_by_setting(base, other)
    assert table["delta_ns"].tolist() == [after - before]
    assert table.iloc[0]["setting"].startswith("network and system: ")


def test_the_simulation_in_progress_ends_when_asked(simulated):
    (base, before), (other, after) = (
        simulated(each, 500, "packet", size_bytes=128 << 20) for each in (10, 20)
    )
    asked = []
    with pytest.raises(Cancelled):
        difference_by_setting(base, other, may_continue=lambda: bool(asked.append(0)))
    assert asked
    table = difference_by_setting(base, other, may_continue=lambda: True)
    assert table["delta_ns"].tolist() == [after - before]


def test_equal_settings_add_nothing_and_measurements_are_refused(simulated):
    base, _ = simulated(10, 500)
    assert difference_by_setting(base, base).empty
    measured, _ = simulated(10, 500, "replay")
    with pytest.raises(UsageError, match="'replay' is measured"):
        difference_by_setting(base, measured)


# Why two runs differ: their configurations, their backends, and every collective.


SIZE = 8 << 20


def _collective(rank: int) -> Graph:
    rows = [
        {"node_id": 0, "name": "compute", "type": NodeType.COMP, "kind": "compute",
         "duration_ns": 1_000},
        {"node_id": 1, "name": "all_reduce", "type": NodeType.COMM_COLL, "kind": "communication",
         "comm_type": CollectiveType.ALL_REDUCE, "comm_size_bytes": SIZE},
    ]  # fmt: skip
    return Graph.build(rank, rows, [(0, 1, 0)])


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    """One all-reduce of 8 ranks on a switch, by both analytical backends and on a faster network."""
    made = Study.create(tmp_path_factory.mktemp("explained") / "study")
    graphs = tuple(map(_collective, range(8)))
    prefix = made.add_workload(Workload(graphs, np.arange(8, dtype=np.int32)), "one")
    network = made.path / "n.yml"
    runs = {}
    for name, backend, bandwidth in (
        ("unaware", "analytical-unaware", 10),
        ("aware", "analytical-aware", 10),
        ("faster", "analytical-aware", 20),
        ("h100", "gpu:h100", 10),
        ("a100", "gpu:a100", 10),
    ):
        network.write_text(
            f"topology: [Switch]\nnpus_count: [8]\nbandwidth: [{bandwidth}]\nlatency: [500]\n",
            encoding="utf-8",
        )
        experiment = prepare(prefix, "default", network, backend=backend)
        run_id = made.add_run(experiment, get_backend(backend).run(experiment), label=name, workload="one")
        runs[name] = analyse_run(made, run_id)
    return runs


def test_hops_in_series_explain_a_switch_to_the_percent(study):
    base, other = study["unaware"], study["aware"]
    row = explained_collectives(base, other).iloc[0]
    sent = 2 * SIZE * 7 / 8
    second_hop = sent / (10 * 2**30 / 1e9)
    assert row["delta_ns"] == pytest.approx(second_hop, rel=0.02)
    assert row["why"].startswith(
        "1.37 ms longer in the other run, all of the change is in the transfer; +1.37 ms because"
    )
    assert row["why"].endswith("one after the other; none of the change is congestion.")
    assert explained_collectives(other, base).iloc[0]["why"].startswith("1.37 ms less")


def test_store_and_forward_is_named_where_it_decides(study):
    (said,) = [line for line in study["aware"].summary.qualifiers if "store and forward" in line]
    assert said.startswith("Up to 1.37 ms, ")
    assert not [line for line in study["unaware"].summary.qualifiers if "store and forward" in line]
    results = [study[name].result for name in ("unaware", "aware")]
    notes = Comparison(results, study["aware"].workload, ["unaware", "aware"]).notes
    assert said in notes


def test_backends_explain_charges_and_queueing(study):
    said = " ".join(backend_reasons(study["unaware"], study["aware"]))
    assert "'analytical-aware' stores and forwards whole messages" in said
    queued = int(study["aware"].result.links["queue_ns"].sum())
    assert ("congestion does not explain the difference" in said) is (queued == 0)
    assert backend_reasons(study["aware"], study["faster"]) == []


def test_other_networks_are_not_explained_by_hops(study):
    why = explained_collectives(study["aware"], study["faster"]).iloc[0]["why"]
    assert "hop" not in why
    assert "all of the change is in the transfer" in why


def test_differing_settings_come_first(study):
    runs = [study["aware"], study["faster"]]
    table = configuration_table(runs)
    differing = table[table["differs"]]
    assert differing["setting"].tolist() == ["dimension 1: bandwidth"]
    assert differing.iloc[0, 2:].tolist() == ["10 GiB/s", "20 GiB/s"]
    assert table.columns.tolist() == ["setting", "differs", "1. aware", "2. faster"]
    assert {"backend", "ranks", "system: endpoint-delay"} <= set(table["setting"])
    assert not configuration_table(runs[:1])["differs"].any()


def test_a_measurement_differs_by_no_setting_of_a_simulation(study):
    run = study["aware"]
    measured = replace(run.result, backend="replay", provenance={"network_name": "measured"})
    comparison = Comparison([measured, run.result], run.workload, ["measured", "run"])
    differing = comparison.settings[comparison.settings["differs"]]
    assert differing["setting"].tolist() == ["backend", "network"]


def test_settings_of_two_machines_are_listed_separately(study):
    table = configuration_table([study["h100"], study["a100"]]).set_index("setting")
    assert table.loc["machine: name"].tolist() == [True, "h100", "a100"]
    assert table.loc["machine: compute.units"].tolist() == [True, "132", "108"]
    assert not [name for name in table.index if "sources" in name or name.startswith("option: machine")]
    one = configuration_table([study["h100"], study["aware"]]).set_index("setting")
    assert [name for name in one.index if name.startswith("machine")] == ["machine: name"]
    assert [text.split("'")[1] for text in backend_reasons(study["h100"], study["a100"])] == ["gpu"]
