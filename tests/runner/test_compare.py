"""Results side by side."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType
from chakrascope.errors import ConfigError
from chakrascope.runner import (
    NetworkConfig,
    compare,
    critical_path,
    divergence,
    error_distribution,
    flow_differences,
    measured_result,
    simulate,
)
from chakrascope.runner.config import PacketPart
from chakrascope.support.table import Table


def model():
    return workload(
        *[[comp(0, 1000 * (rank + 1)), coll(1, 1 << 20, (0,)), comp(2, 500, (1,))] for rank in range(8)]
    )


def results(*backends, network="ring-8"):
    return [simulate(model(), "default", network, backend=backend) for backend in backends]


def test_a_result_equals_itself():
    one, same = results("analytical-unaware", "analytical-unaware")
    comparison = compare([one, same], model())
    assert (comparison.overview["delta_ns"] == 0).all()
    assert (comparison.ranks["relative"] == 0).all()
    assert (comparison.collectives["relative"] == 0).all()
    assert (comparison.nodes["delta_ns"] == 0).all()
    assert (comparison.errors[["mean", "p05", "median", "p95", "worst"]] == 0).all(axis=None)
    assert comparison.paths["on_both"].tolist() == [1.0]
    assert comparison.paths["base_goes_to"].tolist() == ["the end"]


def test_differences_are_against_the_first():
    measured, simulated = results("replay", "analytical-unaware")
    comparison = compare([measured, simulated], model(), ["measured", "simulated"])
    assert comparison.overview["result"].tolist() == ["measured", "simulated"]
    assert comparison.overview["delta_ns"].iloc[1] == simulated.makespan_ns - measured.makespan_ns
    only = comparison.collectives.iloc[0]
    assert (only["operation"], only["size_bytes"], only["ranks"]) == ("all_reduce", 1 << 20, 8)
    assert only["relative"] == pytest.approx((only["other_ns"] - only["base_ns"]) / only["base_ns"])
    compute = comparison.errors[comparison.errors["key"] == "compute"]
    assert compute["worst"].tolist() == [0.0]
    worst = comparison.nodes.iloc[0]
    assert worst["delta_ns"] == comparison.nodes["delta_ns"].abs().max()


def test_ranks_of_one_program_are_one_place():
    """Which of ranks that do the same a path goes through is chance, and no divergence."""
    one = model().scale_out(16)
    base = critical_path(simulate(one, "default", "cpu-cluster-16"), one)

    def moved(ranks):
        columns = base.columns | {"rank": (base.columns["rank"] + ranks) % 16}
        return dataclasses.replace(base, table=Table.of(columns))

    found = divergence(base, moved(8))
    assert found.same
    assert found.on_both == 1.0
    assert not divergence(base, moved(1)).same


@pytest.mark.parametrize("count", [0, 1])
def test_one_result_cannot_be_compared(count):
    with pytest.raises(ConfigError, match="at least two"):
        compare(results(*["replay"] * count), model())


def test_other_numbers_of_ranks_cannot_be_aligned():
    small = simulate(workload([comp(0, 1)], [comp(0, 1)]), "default", "ring-2")
    with pytest.raises(ConfigError, match="numbers of ranks"):
        compare([*results("replay"), small], model())


def test_the_times_of_every_result_add_up_to_its_makespan():
    overview = compare(results("replay", "analytical-unaware", "analytical-aware"), model()).overview
    parts = overview["compute_ns"] + overview["exposed_comm_ns"] + overview["idle_ns"]
    assert (parts - overview["makespan_ns"]).abs().max() <= 2


def flows(*rows):
    columns = ["src", "dst", "bytes", "start_ns", "end_ns"]
    frame = pd.DataFrame(rows, columns=columns)
    return dataclasses.replace(results("analytical-unaware")[0], flows=frame)


def test_flows_are_aligned_by_their_ends_size_and_order():
    base = flows((0, 1, 64, 0, 10), (0, 1, 64, 20, 30), (1, 0, 64, 0, 10), (0, 1, 8, 0, 5))
    other = flows((0, 1, 64, 40, 70), (0, 1, 64, 3, 23), (1, 0, 64, 0, 9), (2, 0, 64, 0, 1))
    table = flow_differences(base, other)
    assert table[["src", "dst", "bytes", "turn", "base_ns", "other_ns"]].values.tolist() == [
        [0, 1, 64, 1, 10, 30],
        [0, 1, 64, 0, 10, 20],
        [1, 0, 64, 0, 10, 9],
    ]
    assert table["relative"].tolist() == [2.0, 1.0, -0.1]
    errors = compare([base, other], model()).errors
    (row,) = errors[errors["of"] == "flows"].to_dict("records")
    assert (row["count"], row["unaligned"], row["median"]) == (3, 2, 1.0)
    assert row["worst_is"] == "0 to 1, 64 bytes, number 2"


@given(
    st.lists(
        st.tuples(st.integers(0, 1000), st.integers(0, 1000), st.sampled_from("ab")), min_size=1, max_size=40
    )
)
def test_distributions_are_of_errors_that_occur_and_in_order(pairs):
    table = pd.DataFrame(pairs, columns=["base_ns", "other_ns", "kind"])
    table["relative"] = (table["other_ns"] - table["base_ns"]) / table["base_ns"].clip(lower=1)
    found = error_distribution(table, "kind")
    lasting = table["base_ns"] > 1
    assert found["count"].sum() == lasting.sum()
    for row in found.itertuples():
        own = table.loc[lasting & (table["kind"] == row.key), "relative"]
        assert {row.p05, row.median, row.p95, row.worst} <= set(own)
        assert row.p05 <= row.median <= row.p95
        assert abs(row.worst) == own.abs().max() == abs(table["relative"][row.at])


def test_the_measurement_is_one_more_result():
    captured = dataclasses.replace(model(), metadata={"measured_step_ns": {"0": 1}})
    measured = measured_result(captured)
    assert measured.makespan_ns == 8000 + 1000 + 500
    simulated = simulate(captured, "default", "ring-8")
    assert (
        compare([measured, simulated], captured, ["measured", "simulated"]).overview["relative"].iloc[1] != 0
    )
    with pytest.raises(ConfigError, match="no measured times"):
        measured_result(model())


def test_labels_must_tell_results_apart():
    with pytest.raises(ConfigError, match="do not distinguish 2 results"):
        compare(results("replay", "replay"), model(), ["one", "one"])
    assert compare(results("replay", "replay"), model()).labels == ("replay", "replay (2)")


def test_messages_of_two_packet_level_runs_are_aligned():
    job = workload(*[[coll(0, 1 << 16, comm_type=CollectiveType.ALL_TO_ALL)]] * 8)
    runs = []
    for over in (1, 4):
        fabric = {"fabric": {"hosts_per_leaf": 4, "oversubscription": over}}
        network = NetworkConfig(("Switch",), (8,), (10.0,), (500.0,), packet=PacketPart.from_mapping(fabric))
        runs.append(simulate(job, "default", network, backend="packet"))
    comparison = compare(runs, job)
    assert len(comparison.flows) == len(runs[0].flows) == len(runs[1].flows) > 0
    (row,) = comparison.errors[comparison.errors["of"] == "flows"].to_dict("records")
    assert (row["count"], row["unaligned"]) == (len(runs[0].flows), 0)
    assert row["p95"] > 0
    assert comparison.flows["delta_ns"].abs().is_monotonic_decreasing


def test_tables_have_the_same_types_with_and_without_rows():
    """Where nothing lasted, or nobody communicated, columns of numbers are still numbers."""
    empty = workload([comp(0, 0)], [comp(0, 0)])
    full = workload(*[[comp(0, 1000), coll(1, 1 << 20, (0,))]] * 2)
    backends = ("analytical-unaware", "analytical-aware")
    made = [
        compare([simulate(model, "default", "ring-2", backend=name) for name in backends], model)
        for model in (empty, full)
    ]
    for name in ("errors", "collectives", "nodes", "flows"):
        without, with_rows = (getattr(comparison, name).dtypes for comparison in made)
        assert without.to_dict() == with_rows.to_dict(), name
    assert made[0].errors.empty
    assert made[1].errors["median"].dtype == "float64"
    assert made[1].errors["count"].dtype == "int64"
