"""Slow NICs, links, hosts and ranks of a run, with their cost and evidence; no false findings."""

import dataclasses
import itertools
import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from noisy_runs import MS, NoisyRun, ring

from chakrascope.converter import CollectiveType, NodeType
from chakrascope.runner import Result
from chakrascope.runner._result import empty_table
from chakrascope.runner.analysis.diagnosis import _diagnosis
from chakrascope.runner.analysis.diagnosis._attained import Sharing, slow_group
from chakrascope.runner.analysis.diagnosis._cost import Cost, Replay
from chakrascope.runner.analysis.diagnosis._diagnosis import _without_echoes
from chakrascope.runner.analysis.diagnosis._hosts import slow_hosts
from chakrascope.runner.analysis.diagnosis._messages import messages_of, suspects_of
from chakrascope.runner.analysis.diagnosis._rates import SlowPart, measure_rates, slow_parts

OPERATIONS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL, CollectiveType.ALL_GATHER)
seeds = st.integers(0, 10_000)
few = settings(max_examples=6, deadline=None, derandomize=True)


def flows(*rows):
    """Return a result of messages (source, destination, bytes, start, end)."""
    table = pd.DataFrame(rows, columns=["src", "dst", "bytes", "start_ns", "end_ns"])
    ranks = pd.DataFrame({"rank": range(8)})
    return Result("packet", 1000, ranks, flows=table)


@given(seeds, st.sampled_from(OPERATIONS), st.sampled_from([0.01, 0.05, 0.1]), st.sampled_from([3, 4, 6]))
@few
def test_noise_is_no_anomaly(seed, operation, noise, ranks):
    found = NoisyRun.make(seed, ranks, operation, noise=noise).diagnosis()
    assert found.anomalies == ()
    assert len(found.checked) == 2


@given(seeds, st.sampled_from(OPERATIONS), st.floats(0.25, 0.75), st.integers(0, 3))
@few
def test_a_slow_nic_is_named_with_its_rate(seed, operation, factor, host):
    found = NoisyRun.make(seed, 4, operation, slow=host, factor=factor).diagnosis()
    (one,) = found.anomalies
    assert (one.what, one.where, one.hosts) == ("slow NIC", f"NIC of rank {host}", (f"rank {host}",))
    assert one.factor == pytest.approx(factor, rel=0.08)
    assert one.factor_low <= one.factor <= one.factor_high
    assert one.confidence > 0.9
    assert one.chance < 0.01


@pytest.mark.parametrize("seed", [0, 3])
def test_alternating_paths_do_not_hide_their_nic(seed):
    """Either direction may seem slowest for a while (with seed 3, in a tenth of the draws)."""
    run = NoisyRun.make(operation=CollectiveType.ALL_TO_ALL, steps=14, slow=2, factor=0.7)
    flows = run.result.flows.copy()
    turns = np.exp(np.random.default_rng(seed).normal(0, 0.3, (4, 4, 8)))
    longer = turns[flows["src"], flows["dst"], np.arange(len(flows)) * 8 // len(flows)]
    took = (flows["end_ns"] - flows["start_ns"]) * longer
    flows["end_ns"] = (flows["start_ns"] + took).astype(np.int64)
    (one,) = run._with(flows=flows).diagnosis().anomalies
    assert (one.what, one.where) == ("slow NIC", "NIC of rank 2")
    assert one.confidence > 0.95


@pytest.mark.parametrize(("hosts", "factor", "seed"), [((1, 3), 0.65, 793332), ((2, 3), 0.3, 4)])
def test_two_slow_nics_of_four_are_both_named(hosts, factor, seed):
    run = NoisyRun.make(seed, 4, CollectiveType.ALL_TO_ALL, slow=hosts, factor=factor, noise=0.03)
    first = run.diagnosis().anomalies[:2]
    assert {(one.what, one.where) for one in first} == {("slow NIC", f"NIC of rank {host}") for host in hosts}
    for one in first:
        assert one.factor == pytest.approx(factor, rel=0.2)


@pytest.mark.parametrize(("slow", "group"), [((0, 2), (0, 2)), ((1,), None), ((), None)])
def test_nics_that_attain_less_than_the_others_are_a_group(slow, group):
    """Each of four NICs sends alone, the slow ones at half the rate, and all receive at the same rate."""
    rng = np.random.default_rng(1)
    begin = np.arange(400) * 100
    took = np.where(np.isin(np.arange(400) % 4, slow), 80, 40) + rng.integers(0, 8, 400)
    rows = [(turn % 4, (turn + 1) % 4, 4096, at, at + took[turn]) for turn, at in enumerate(begin)]
    messages = messages_of(flows(*rows))
    found = slow_group(messages, np.arange(400) // 25)
    assert (found.nics if found and found.gap > 0.1 else None) == group


@pytest.mark.parametrize(
    ("late", "what"), [(2, []), (3, ["intermittent"]), (7, ["intermittent"]), (12, ["slow"])]
)
def test_a_host_that_is_late_in_some_of_twelve_computations_stops(late, what):
    nodes = pd.DataFrame(
        [(rank, turn, NodeType.COMP, 1000, turn * 9000, turn * 9000 + 1000 + rank + turn % 3)
         for rank in range(4) for turn in range(12)],
        columns=["rank", "node_id", "type", "duration_ns", "start_ns", "end_ns"],
    )  # fmt: skip
    stops = (nodes["rank"] == 2) & (nodes["node_id"] * late % 12 < late)
    nodes.loc[stops, "end_ns"] += 2000
    assert int(stops.sum()) == late
    found, remarks = slow_hosts(nodes, {rank: f"host{rank}" for rank in range(4)})
    assert [(one.host, "slow" if one.share == 1 else "intermittent") for one in found] == [
        ("host2", each) for each in what
    ]
    assert remarks == []


@pytest.mark.parametrize("every", [2, 3])
def test_a_host_that_stops_now_and_then_is_named_in_nine_of_ten_runs(every):
    named = 0
    for seed in range(10):
        run = NoisyRun.make(seed, 4, steps=18, stops=(seed % 4, every, 20 * MS))
        found = [one for one in run.diagnosis().anomalies if one.what != "stall"]
        named += len(found)
        assert [(one.what, one.where) for one in found] in ([], [("intermittent host", f"rank {seed % 4}")])
        for one in found:
            assert one.factor == pytest.approx(1 + 2 / every, rel=0.2)
            assert one.factor_low <= 1 + 2 / every <= one.factor_high
            assert "the host stops or is slow" in one.detail
    assert named >= 9


def test_an_intermittent_host_that_costs_nothing_is_not_named(monkeypatch):
    run = NoisyRun.make(4, 4, steps=18, stops=(1, 2, 20 * MS))
    assert "intermittent host" in {one.what for one in run.diagnosis().anomalies}
    monkeypatch.setattr(_diagnosis, "cost_of_host", lambda *_: Cost(0, 0, 5))
    assert "intermittent host" not in {one.what for one in run.diagnosis().anomalies}


@pytest.mark.parametrize(
    ("first", "second", "echo"), [("sending", "receiving", True), ("", "sending", False)]
)
def test_the_other_direction_of_a_slow_one_is_a_remark(first, second, echo):
    rates = measure_rates(messages_of(NoisyRun.make(operation=CollectiveType.ALL_TO_ALL).result))
    suspects = {one.name: one for one in suspects_of(rates.messages, rates.sharing.paths)}
    names = [", ".join(filter(None, ("NIC of rank 2", way))) for way in (first, second)]
    parts = [SlowPart(suspects[name], 0.5, 0.4, 0.6, 1.0, 0.0, np.zeros(0, np.int64)) for name in names]
    kept, remarks = _without_echoes(parts, rates)
    assert [part.suspect.name for part in kept] == (names[:1] if echo else names)
    assert ["acknowledgements wait behind data there" in remark for remark in remarks] == [True] * echo


def test_slow_ring_direction_is_a_link_with_alternatives():
    (one,) = NoisyRun.make(network=ring(4, slow=1, factor=0.5)).diagnosis().anomalies
    assert (one.what, one.where) == ("slow link", "NIC of rank 1 to NIC of rank 2")
    assert one.or_else == ("NIC of rank 1, sending", "NIC of rank 2, receiving")


@pytest.mark.parametrize("direction", ["sending", "receiving"])
def test_a_slow_direction_of_an_all_to_all_is_named_in_nine_of_ten_runs(direction):
    named = 0
    for seed in range(10):
        slow = {"sends" if direction == "sending" else "receives": (seed % 4,)}
        factor = (0.3, 0.4, 0.5, 0.6, 0.7)[seed // 2]
        found = NoisyRun.all_to_all(seed, **slow, factor=factor).diagnosis().anomalies
        named += [one.where for one in found] == [f"NIC of rank {seed % 4}, {direction}"]
    assert named >= 9


@pytest.mark.parametrize(
    ("at_once", "alone", "turns", "found"),
    [
        (0.82, None, 60, "remark"),  # as measured: a healthy NIC reached this while three sent to it
        (0.6, None, 60, "slow"),
        (0.82, 1.0, 60, "nothing"),  # the run shows that the NIC is healthy
        (0.82, 1.0, 14, "remark"),  # seven messages have a single sender, too few for a finding
        (0.82, 0.82, 60, "slow"),
    ],
)
def test_a_sound_nic_receives_less_while_several_send_to_it(at_once, alone, turns, found):
    """All send to all, and in every other of the first *turns*, one rank may send *alone* to one.

    Rank 0 is slower.
    """
    rows = []
    for turn in range(60):
        one = turn % 3 + 1 if turn < turns and turn % 2 and alone else 0
        for src, dst in itertools.permutations(range(4), 2):
            if one in (0, (dst - src) % 4):
                sound = 400 if one else 1200
                took = sound / ((alone if one else at_once) if dst == 0 else 1.0)
                rows.append((src, dst, 400_000, 3000 * turn, 3000 * turn + round(took)))
    result = flows(*rows)
    parts, incasts, _ = slow_parts(measure_rates(messages_of(result)))
    assert [part.suspect.name for part in parts] == ["NIC of rank 0, receiving"] * (found == "slow")
    assert [part.suspect.name for part in incasts] == ["NIC of rank 0, receiving"] * (found == "remark")
    remarks = NoisyRun.make(operation=CollectiveType.ALL_TO_ALL)._with(flows=result.flows).diagnosis().remarks
    remark = (
        r"The NIC of rank 0 receives at only 8\d\.\d % of its peers' rate. Several senders at once \(incast\)"
    )
    assert [bool(re.match(remark, text)) for text in remarks] == [True] * (found == "remark")


@given(seeds, st.sampled_from(OPERATIONS), st.integers(0, 3), st.floats(0.2, 0.8))
@few
def test_a_stall_is_named_with_its_time_and_its_messages(seed, operation, host, at):
    run, when, hit = NoisyRun.make(seed, 4, operation).stalled(host, at, 50 * MS)
    stalls = [one for one in run.diagnosis().anomalies if one.what == "stall"]
    if not len(hit):  # this time was during a computation
        assert stalls == []
        return
    (one,) = stalls
    assert f"rank {host}" in one.where
    assert one.begin_ns <= when <= one.end_ns
    assert one.lasted_ns == pytest.approx(50 * MS, rel=0.3)
    assert set(one.evidence["flow"]) <= set(hit)


def test_a_pause_of_everything_is_no_link():
    run, _, hit = NoisyRun.make(operation=CollectiveType.ALL_TO_ALL).stalled(None, 0.54, 50 * MS)
    found = run.diagnosis()
    assert len(hit) > 6
    assert found.anomalies == ()
    (remark,) = (remark for remark in found.remarks if "the whole machine paused" in remark)
    late = float(re.search(r"late by ([\d.]+) ms", remark)[1])
    assert late == pytest.approx(50, rel=0.2)


@given(seeds, st.floats(1.25, 2.0), st.integers(0, 3))
@few
def test_a_slow_host_is_named_with_its_factor(seed, times, host):
    (one,) = NoisyRun.make(seed, slow_host=host, times=times).diagnosis().anomalies
    assert (one.what, one.where) == ("slow host", f"rank {host}")
    assert one.factor == pytest.approx(times, rel=0.03)
    assert set(one.evidence["rank"]) == {host}


def test_two_things_are_both_named():
    run = NoisyRun.make(slow=1, factor=0.4, slow_host=3, times=1.5)
    assert {one.where for one in run.diagnosis().anomalies} == {"NIC of rank 1", "rank 3"}


def test_cost_of_a_slow_nic_is_its_delay():
    operation = CollectiveType.ALL_TO_ALL
    slow = NoisyRun.make(operation=operation, slow=1, factor=0.5, noise=0)
    sound = NoisyRun.make(operation=operation, noise=0)
    (one,) = slow.diagnosis().anomalies
    assert one.cost.ns == pytest.approx(slow.result.makespan_ns - sound.result.makespan_ns, rel=0.1)
    assert one.cost.low_ns <= one.cost.ns <= one.cost.high_ns


def test_cost_of_a_slow_host_is_its_delay():
    (one,) = NoisyRun.make(slow_host=2, times=1.5, noise=0).diagnosis().anomalies
    assert one.cost.ns == pytest.approx(12 * 5 * MS, rel=0.01)


def chain():
    """Return a run of two messages, one after the other, and a computation that waits for both."""
    table = pd.DataFrame(
        [(0, 1, 8, 0, 100), (1, 2, 8, 105, 150), (0, 2, 8, 0, 120)],
        columns=["src", "dst", "bytes", "start_ns", "end_ns"],
    )
    nodes = pd.DataFrame(
        {"rank": [2], "node_id": [0], "start_ns": [151], "end_ns": [250], "type": [NodeType.COMP]}
    )
    return Replay.of(Result("packet", 260, pd.DataFrame({"rank": range(3)}), flows=table), nodes)


@pytest.mark.parametrize(
    ("took_ns", "makespan_ns"),
    [
        ([100, 45, 120, 99], 260),  # as it was
        ([60, 45, 120, 99], 230),  # the chain is 40 shorter, but then the computation waits for the third
        ([60, 45, 70, 99], 220),
        ([100, 45, 120, 50], 211),
        ([200, 45, 120, 99], 360),
    ],
)
def test_a_replay_moves_what_waited(took_ns, makespan_ns):
    assert chain().makespan(np.array(took_ns, float)) == pytest.approx(makespan_ns)


def test_replay_preserves_queueing_order():
    table = flows((0, 1, 8, 0, 100), (0, 1, 8, 10, 180)).flows
    nodes = pd.DataFrame({"rank": [], "node_id": [], "start_ns": [], "end_ns": [], "type": []})
    replay = Replay.of(Result("packet", 180, pd.DataFrame({"rank": range(2)}), flows=table), nodes)
    assert replay.took_ns.tolist() == [100, 80]
    assert replay.makespan(np.array([40.0, 80.0])) == 120


def test_two_hosts_cannot_tell_a_slow_nic_from_a_slow_network():
    found = NoisyRun.make(ranks=2, slow=1, factor=0.3).diagnosis()
    assert found.anomalies == ()
    assert any("With two hosts" in remark for remark in found.remarks)


def test_run_without_messages_lists_undetectable_causes():
    run = NoisyRun.make()
    found = dataclasses.replace(
        run, result=dataclasses.replace(run.result, flows=empty_table("flows"))
    ).diagnosis()
    assert found.anomalies == ()
    assert any("no records of messages" in remark for remark in found.remarks)


def test_a_few_messages_prove_nothing():
    run = NoisyRun.make(slow=1, factor=0.3)
    found = dataclasses.replace(run, result=dataclasses.replace(run.result, flows=run.result.flows.head(20)))
    assert found.diagnosis().anomalies == ()
    assert any("too few" in remark for remark in found.diagnosis().remarks)


def test_nothing_at_all_is_no_error():
    run = NoisyRun.make()
    nothing = dataclasses.replace(run.result, flows=empty_table("flows"), nodes=run.result.nodes.head(0))
    assert dataclasses.replace(run, result=nothing).diagnosis().checked == ()


def test_nics_and_hosts_are_those_that_an_emulation_names():
    run = NoisyRun.make(slow=2, factor=0.5)
    interfaces = [{"rank": rank, "host": f"node{rank}", "address": f"10.0.0.{rank}"} for rank in range(4)]
    table = run.result.flows.assign(src_nic=run.result.flows["src"], dst_nic=run.result.flows["dst"])
    provenance = run.result.provenance | {"emulation": {"interfaces": interfaces}}
    named = dataclasses.replace(run.result, flows=table, provenance=provenance)
    (one,) = dataclasses.replace(run, result=named).diagnosis().anomalies
    assert (one.where, one.hosts) == ("NIC of node2", ("node2",))


def test_messages_inside_a_host_are_left_out():
    interfaces = [
        {"rank": rank, "host": f"node{rank // 2}", "address": f"10.0.0.{rank // 2}"} for rank in range(4)
    ]
    made = flows((0, 1, 10, 0, 5), (0, 2, 10, 0, 5), (3, 1, 10, 0, 5), (2, 3, 10, 0, 5))
    table = made.flows.assign(src_nic=made.flows["src"], dst_nic=made.flows["dst"])
    found = messages_of(
        dataclasses.replace(made, flows=table, provenance={"emulation": {"interfaces": interfaces}})
    )
    assert found.row.tolist() == [1, 2]
    assert found.nics == ("NIC of node0", "NIC of node1")
    assert (found.src.tolist(), found.dst.tolist()) == ([0, 1], [1, 0])


@pytest.mark.parametrize(
    ("rows", "carried"),
    [
        ([(0, 1, 8, 0, 100)], [100]),  # alone
        ([(0, 1, 8, 0, 100), (0, 2, 8, 0, 100)], [50, 50]),  # two share the NIC that sends
        ([(0, 2, 8, 0, 100), (1, 2, 8, 50, 100)], [75, 25]),  # and the one that receives, for half the time
        # 0 to 1 is limited to a third at its receiver, so 0 to 2 gets the rest of the sender's rate.
        ([(0, 1, 8, 0, 90), (2, 1, 8, 0, 90), (3, 1, 8, 0, 90), (0, 2, 8, 0, 90)], [30, 30, 30, 60]),
    ],
)
def test_messages_share_nics_fairly(rows, carried):
    messages = messages_of(flows(*rows))
    sharing = Sharing.of(messages, messages.start_ns)
    ones = np.ones(len(messages.nics))
    assert sharing.carried(ones, ones)[np.argsort(messages.row)].tolist() == pytest.approx(carried)


def test_senders_are_counted_at_the_nic_that_receives():
    messages = messages_of(flows((0, 2, 8, 0, 100), (1, 2, 8, 50, 100), (2, 0, 8, 0, 100), (2, 1, 8, 0, 100)))
    found = Sharing.of(messages, messages.start_ns).senders()[np.argsort(messages.row)]
    assert found.tolist() == pytest.approx([1.5, 2, 1, 1])


def test_a_slow_nic_leaves_the_rest_to_others():
    messages = messages_of(flows((0, 1, 8, 0, 100), (0, 2, 8, 0, 100)))
    sharing = Sharing.of(messages, messages.start_ns)
    assert sharing.carried(np.ones(3), np.array([1, 0.2, 1])).tolist() == pytest.approx([20, 80])
    path = int(sharing.path_of[0])
    assert sharing.carried(np.ones(3), np.ones(3), {path: 0.1}).tolist() == pytest.approx([10, 90])


@given(seeds, st.integers(2, 6), st.integers(1, 60))
@settings(max_examples=20, deadline=None, derandomize=True)
def test_no_nic_carries_more_than_it_can(seed, ranks, count):
    rng = np.random.default_rng(seed)
    src = rng.integers(ranks, size=count)
    dst = (src + rng.integers(1, ranks, size=count)) % ranks
    start = rng.integers(0, 1000, size=count)
    end = start + rng.integers(1, 500, size=count)
    messages = messages_of(flows(*zip(src, dst, np.full(count, 8), start, end, strict=True)))
    sharing = Sharing.of(messages, messages.start_ns)
    rates = 0.1 + rng.random((2, len(messages.nics)))
    carried = sharing.carried(*rates)
    lasted = messages.end_ns - messages.start_ns
    assert (carried <= np.minimum(rates[0][messages.src], rates[1][messages.dst]) * lasted + 1e-6).all()
    for ends, limits in ((messages.src, rates[0]), (messages.dst, rates[1])):
        for nic in np.unique(ends):
            own = ends == nic
            busy = np.zeros(1600, bool)
            for first, last in zip(messages.start_ns[own], messages.end_ns[own], strict=True):
                busy[first:last] = True
            assert carried[own].sum() <= limits[nic] * busy.sum() + 1e-6
