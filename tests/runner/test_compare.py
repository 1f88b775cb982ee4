"""Results side by side."""

from __future__ import annotations

import pytest
from workloads import coll, comp, workload

from chakrascope.errors import ConfigError
from chakrascope.runner import compare, simulate


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
    assert (comparison.nodes[["p05", "median", "p95", "worst"]] == 0).all(axis=None)
    assert comparison.paths["on_both"].tolist() == [1.0]
    assert comparison.paths["base_goes_to"].tolist() == ["the end"]


def test_differences_are_against_the_first():
    measured, simulated = results("replay", "analytical-unaware")
    comparison = compare([measured, simulated], model(), ["measured", "simulated"])
    assert comparison.overview["result"].tolist() == ["measured", "simulated"]
    assert comparison.overview["delta_ns"].iloc[1] == simulated.makespan_ns - measured.makespan_ns
    only = comparison.collectives.iloc[0]
    assert (only["comm_type"], only["size_bytes"], only["ranks"]) == ("all_reduce", 1 << 20, 8)
    assert only["relative"] == pytest.approx((only["other_ns"] - only["base_ns"]) / only["base_ns"])
    compute = comparison.nodes[comparison.nodes["kind"] == "compute"]
    assert compute["worst"].tolist() == [0.0]


@pytest.mark.parametrize("count", [0, 1])
def test_one_result_cannot_be_compared(count):
    with pytest.raises(ConfigError, match="at least two"):
        compare(results(*["replay"] * count), model())


def test_other_numbers_of_ranks_cannot_be_aligned():
    small = simulate(workload([comp(0, 1)], [comp(0, 1)]), "default", "ring-2")
    with pytest.raises(ConfigError, match="numbers of ranks"):
        compare([*results("replay"), small], model())
