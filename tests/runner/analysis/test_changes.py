"""What could change in the step of a run, and what it would take then."""

import pytest
from studies import LAYERS

from chakrascope.errors import UsageError
from chakrascope.runner.analysis import Target, changes, drops, sensitivity, simulate_faster, targets


def test_targets_are_what_the_backend_can_change(run, simulated):
    measured = [target.key for target in targets(run.path, "replay", 1)]
    assert {"operator:aten::mm", "operator:c10d::allreduce_", "kind:host"} <= set(measured)
    assert not any(key.startswith(("bandwidth", "latency")) for key in measured)
    on_network = [target.key for target in targets(simulated.path, "analytical-aware", 1)]
    assert {"operator:aten::mm", "bandwidth:0", "latency:0"} <= set(on_network)
    assert "operator:c10d::allreduce_" not in on_network


def test_once_as_fast_changes_nothing(run, simulated):
    for one in (run, simulated):
        for target in (Target("operator", "aten::mm"), Target("kind", "host")):
            assert simulate_faster(one.experiment(), target, 1.0) == one.result.makespan_ns


def test_twice_as_fast_operator_of_a_chain_saves_half_of_it(run):
    faster = simulate_faster(run.experiment(), Target("operator", "aten::mm"), 2.0)
    # Its last rank comes late to collectives in which the other one did not wait.
    assert run.result.makespan_ns - faster == pytest.approx(LAYERS * 250_000, rel=0.1)


def test_more_bandwidth_saves_time(simulated):
    assert (
        simulate_faster(simulated.experiment(), Target("bandwidth", "0"), 2.0) < simulated.result.makespan_ns
    )


def test_sensitivity_lists_the_most_helpful_first(simulated):
    chosen = [Target("kind", "host"), Target("bandwidth", "0")]
    table = sensitivity(simulated.experiment(), simulated.result.makespan_ns, chosen)
    assert table["target"].tolist() == [chosen[1].label, chosen[0].label]
    assert (table["delta_ns"] < 0).all()


@pytest.mark.parametrize("times", [0.0, -1.0, float("nan")])
def test_impossible_speeds_are_refused(run, times):
    with pytest.raises(UsageError, match=r"0\.01 to 1000"):
        simulate_faster(run.experiment(), Target("kind", "host"), times)


def test_a_network_cannot_be_taken_away_but_host_work_can(run):
    with pytest.raises(UsageError, match=r"0\.01 to 1000"):
        simulate_faster(run.experiment(), Target("bandwidth", "0"), float("inf"))
    gone = simulate_faster(run.experiment(), Target("kind", "host"), float("inf"))
    assert gone < run.result.makespan_ns


@pytest.mark.parametrize("key", ["", "operator", "operator:", "__class__:x", "bandwidth"])
def test_unknown_target_is_refused(key):
    with pytest.raises(UsageError):
        Target.parse(key)


def test_absent_dimension_is_refused(simulated):
    for name in ("7", "-1", "x"):
        with pytest.raises(UsageError, match="no dimension"):
            simulate_faster(simulated.experiment(), Target("bandwidth", name), 2.0)


def test_waits_of_a_node_can_be_dropped(simulated):
    (only,) = drops(simulated, 3, 4)
    assert only.key == "edge:3/3-4"
    assert simulate_faster(simulated.experiment(), only, 1.0) <= simulated.result.makespan_ns
    assert drops(simulated, 99, 4) == []


def test_what_may_change_simulates(simulated):
    for target in changes(simulated):
        assert simulate_faster(simulated.experiment(), target, 1.1) <= simulated.result.makespan_ns


def test_elasticity_is_simulated_once(simulated):
    assert simulated.elasticity is simulated.elasticity
    assert set(simulated.elasticity["key"]) <= {target.key for target in changes(simulated)}
