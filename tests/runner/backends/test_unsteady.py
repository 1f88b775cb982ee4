"""Whether an answer of flows hangs on what flows do not know."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest
from packets import star
from workloads import coll, workload

from chakrascope.converter import CollectiveType
from chakrascope.errors import Cancelled
from chakrascope.runner import NetworkConfig, engine, simulate
from chakrascope.runner.backends._flow import in_step, may_drift, moved_by_shaking
from chakrascope.runner.config import PacketPart


def clos(ranks, leaf, oversubscription):
    part = PacketPart.from_mapping({"fabric": {"hosts_per_leaf": leaf, "oversubscription": oversubscription}})
    return NetworkConfig(("Switch",), (ranks,), (11.642,), (500.0,), packet=part)


def all_reduce(ranks, size):
    kind = CollectiveType.ALL_REDUCE
    return workload(*[[coll(0, size, comm_type=kind)] for _ in range(ranks)])


def flows(times, sizes=None):
    """Return a table of messages that take these times, one after the other."""
    ends = pd.Series(times).cumsum()
    return pd.DataFrame({"start_ns": ends - times, "end_ns": ends, "bytes": sizes or [1000] * len(times)})


def test_a_ring_that_falls_out_of_step_is_named_and_answered_by_packets():
    model, fabric = all_reduce(16, 16 << 20), clos(16, 4, 2)
    flow = simulate(model, "default", fabric, backend="flow")
    packet = simulate(model, "default", fabric, backend="packet")
    assert flow.makespan_ns < 0.9 * packet.makespan_ns  # else there is nothing to be warned of
    assert flow.provenance["flow"]["flags"] == ["unsteady"]
    assert flow.provenance["flow"]["moved"] > 0.002
    assert any("fall out of step" in line for line in flow.provenance["warnings"])
    auto = simulate(model, "default", fabric, backend="auto")
    assert auto.provenance["auto"]["answered"] == "packet"
    assert auto.makespan_ns == packet.makespan_ns


def test_ranks_in_lock_step_are_not_shaken():
    result = simulate(all_reduce(8, 4 << 20), "default", star(8), backend="flow")
    assert in_step(result.flows)
    assert result.provenance["flow"]["flags"] == []
    assert "moved" not in result.provenance["flow"]


def test_the_answer_itself_is_without_noise_and_always_the_same():
    model, fabric = all_reduce(16, 8 << 20), clos(16, 8, 1)
    one, other = (simulate(model, "default", fabric, backend="flow") for _ in range(2))
    assert one.provenance["flow"]["moved"] == other.provenance["flow"]["moved"] > 0
    assert one.flows.equals(other.flows)


def test_it_can_be_cancelled_while_it_is_shaken(monkeypatch):
    model, fabric = all_reduce(16, 8 << 20), clos(16, 8, 1)
    simulated, told = engine.simulate, []

    def cancelled_when_shaken(config, programs, program_of_rank, progress):
        if config.shake_packets > 0 and not progress(0, 0):
            raise Cancelled("as the engine does when it asks")
        return simulated(config, programs, program_of_rank, progress)

    def progress(now, done):
        told.append((now, done))
        return done < 16

    monkeypatch.setattr(engine, "simulate", cancelled_when_shaken)
    with pytest.raises(Cancelled):
        simulate(model, "default", fabric, backend="flow", progress=progress)
    assert told[-1][0] > 0  # not back to the beginning


def test_few_steps_and_equal_ones_do_not_drift():
    assert not may_drift(flows([]), 0)
    assert not may_drift(flows([100] * 20), 2000)
    assert may_drift(flows([100] * 19 + [150]), 2050)
    assert may_drift(flows([91_000] * 19 + [92_000]), 1_821_000)  # a longer way matters less to long ones
    assert not may_drift(flows([100, 150]), 250)
    assert not may_drift(flows([100, 300] * 10, [1000, 2000] * 10), 4000)  # larger ones may take longer


def late(by):
    return lambda packets: SimpleNamespace(makespan_ns=100_000 + packets * by, unfinished=[])


def test_what_the_last_message_is_late_by_does_not_count():
    assert moved_by_shaking(100_000, 1000.0, 50.0, late(50)) == (0, False)
    assert moved_by_shaking(100_000, 1000.0, 50.0, late(-50)) == (0, False)


def test_a_chain_that_noise_makes_longer_hangs_on_it_if_ranks_do_not_catch_up():
    # 100 steps, each up to 2 packets of 50 ns late: 10 us in all, of which a chain in step passes on little.
    assert moved_by_shaking(100_000, 1000.0, 50.0, late(700)) == (0.052, False)  # the most that was tried
    assert moved_by_shaking(100_000, 1000.0, 50.0, late(900)) == (0.017, True)  # already of the least noise
    # As much is far more than noise adds up to in 10 steps.
    assert moved_by_shaking(100_000, 10_000.0, 50.0, late(700)) == (0.013, True)


def test_a_chain_that_noise_makes_shorter_hangs_on_who_is_first():
    assert moved_by_shaking(100_000, 1000.0, 50.0, late(-100)) == (0.004, True)


def test_what_stalls_when_it_is_shaken_hangs_on_it():
    assert moved_by_shaking(10_000, 50.0, 50.0, lambda packets: SimpleNamespace(unfinished=[1])) == (1, True)
