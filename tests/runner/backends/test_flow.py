"""Flows share links as packets do, even if links fail; results that are sensitive to noise are flagged."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import (
    HEADER,
    PAYLOAD,
    PS_PER_BYTE,
    case_network,
    case_system,
    case_workload,
    network,
    read_cases,
    rounded,
    sends,
    star,
    wire_ps,
)
from test_link_changes import US, assumptions_with, clos, failing, failures_for_a_time, run, tandem_ps
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import CollectiveType
from chakrascope.errors import BackendError, Cancelled
from chakrascope.runner import NetworkConfig, Result, critical_path, engine, simulate
from chakrascope.runner.backends._flow import in_step, may_drift, moved_by_shaking
from chakrascope.runner.config import PacketPart

ACK, DELAY_PS = 48, 500_000


def carry(fabric, messages, backend="flow"):
    return simulate(sends(fabric.num_ranks, messages), "default", fabric, backend=backend, semantics="trace")


def ends(result):
    return result.flows.sort_values(["src", "dst", "bytes", "end_ns"])["end_ns"].tolist()


@pytest.mark.parametrize("senders", [2, 3, 7])
@pytest.mark.parametrize("size", [8000, 1 << 20])
def test_the_last_of_an_incast_takes_its_closed_form(senders, size):
    result = carry(star(senders + 1), [(source, senders, size) for source in range(senders)])
    first_packet = (PAYLOAD + HEADER) * PS_PER_BYTE
    assert max(ends(result)) == rounded(2 * DELAY_PS + senders * wire_ps(size) + first_packet)


_LINK = st.tuples(st.sampled_from([10, 25, 100, 400, 3200]), st.integers(0, 5000))


@settings(deadline=None, max_examples=15)
@given(st.lists(_LINK, min_size=1, max_size=5), st.integers(1, 40_000), st.booleans())
def test_single_message_takes_the_time_of_its_packets(chain, size, astra_sim_clock):
    switches = len(chain) - 1
    places = [0, *range(2, 2 + switches), 1]
    links = [
        [places[i], places[i + 1], f"{rate}Gbps", f"{delay}ns", 0] for i, (rate, delay) in enumerate(chain)
    ]
    fabric = network(
        2,
        nodes=2 + switches,
        switches=places[1:-1],
        links=links,
        CC_MODE=12,
        HAS_WIN=0,
        ASTRA_SIM_CLOCK=int(astra_sim_clock),
    )
    # Acknowledgements of a message wait only for each other.
    assert ends(carry(fabric, [(0, 1, size)])) == ends(carry(fabric, [(0, 1, size)], "packet"))


_MESSAGES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(13_000, 300_000)).filter(
        lambda m: m[0] != m[1]
    ),
    min_size=1,
    max_size=20,
)


@settings(deadline=None, max_examples=15)
@given(_MESSAGES)
def test_no_byte_is_lost_and_no_link_is_faster_than_it_can_be(messages):
    result = carry(star(5), messages)
    links = result.links.set_index(["src", "dst"])
    for host in range(5):
        data = sum(size + -(-size // PAYLOAD) * HEADER for source, _, size in messages if source == host)
        answers = sum(-(-size // PAYLOAD) * ACK for _, target, size in messages if target == host)
        assert links.loc[(host, 5), "bytes"] == data + answers
    assert len(result.flows) == len(messages)
    assert result.flows["bytes"].sum() == sum(size for *_, size in messages)
    for host in range(5):
        mine = result.flows[result.flows["dst"] == host]
        arrived = mine["bytes"].sum() + (-(-mine["bytes"] // PAYLOAD) * HEADER).sum()
        assert arrived * PS_PER_BYTE <= (mine["end_ns"].max() if len(mine) else 0) * 1000 * (1 + 1e-3)


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(5)), st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_the_order_in_which_messages_are_sent_together_does_not_count(names, steps):
    messages = [(host, (host + 1 + step) % 5, 100_000) for host, step in enumerate(steps)]
    renamed = sorted((names[source], names[target], size) for source, target, size in messages)
    one, other = carry(star(5), messages), carry(star(5), renamed)
    assert sorted(ends(one)) == pytest.approx(sorted(ends(other)), abs=100)  # of five packets
    assert one.makespan_ns == pytest.approx(other.makespan_ns, abs=2)


def flow_clos(latency=500.0, **packet):
    part = PacketPart.from_mapping({"fabric": {"hosts_per_leaf": 4, "oversubscription": 2}, **packet})
    return NetworkConfig(("Switch",), (16,), (11.642,), (latency,), packet=part)


def all_ranks(kind, size, ranks=16):
    return workload(*[[coll(0, size, comm_type=kind)] for _ in range(ranks)])


@pytest.mark.parametrize("kind", [CollectiveType.ALL_TO_ALL, CollectiveType.ALL_REDUCE])
def test_a_nanosecond_more_on_each_link_changes_little(kind):
    model = all_ranks(kind, 1 << 20)
    times = [
        simulate(model, "default", flow_clos(500.0 + late), backend="flow").makespan_ns for late in (0, 1, 2)
    ]
    assert max(times) < 1.01 * min(times)


@pytest.mark.parametrize("kind", [CollectiveType.ALL_GATHER, CollectiveType.REDUCE_SCATTER])
def test_collectives_take_about_the_time_of_packets(kind):
    model = all_ranks(kind, 1 << 18)
    flow, packet = (simulate(model, "default", flow_clos(), backend=name) for name in ("flow", "packet"))
    assert flow.makespan_ns == pytest.approx(packet.makespan_ns, rel=0.05)
    # When the last rank has finished, the last acknowledgements of the packets are in flight.
    links = flow.links.merge(packet.links, on=["src", "dst"])
    assert links["bytes_x"].tolist() == pytest.approx(links["bytes_y"].tolist(), rel=1e-2)
    assert sorted(flow.flows["bytes"]) == sorted(packet.flows["bytes"])


def test_recorded_cases_without_congestion_control_are_within_the_promised_error(data_dir):
    errors = []
    for case in read_cases(data_dir / "runner" / "packet_cases.jsonl.gz"):
        if case["cc_mode"] != 12:
            continue
        result = simulate(
            case_workload(case), case_system(case), case_network(case), backend="flow", semantics="astra-sim"
        )
        errors.append(abs(result.makespan_ns / max(case["cycles"]) - 1))
    assert len(errors) > 3
    assert np.median(errors) < 0.005
    assert max(errors) < 0.1


def flags(fabric, messages):
    return carry(fabric, messages).provenance["flow"]["flags"]


INCAST = [(source, 4, 1 << 20) for source in range(4)]


@pytest.mark.parametrize(
    ("fabric", "found"),
    [
        (star(5), []),
        (star(5, CC_MODE=1, KMIN_MAP={400 * 10**9: 50}), ["marks"]),
        (star(5, CC_MODE=1, KMIN_MAP={400 * 10**9: 50_000}), []),
        (star(5, CC_MODE=3), ["control"]),
        (star(5, BUFFER_SIZE=1), ["pauses"]),
        (star(5, ERROR_RATE_PER_LINK=1e-9), ["loss"]),
    ],
)
def test_what_fluids_are_bad_at_is_named(fabric, found):
    result = carry(fabric, INCAST)
    assert result.provenance["flow"]["flags"] == found
    assert len([line for line in result.provenance["warnings"] if "'packet'" in line]) == len(found)


def test_data_that_queues_both_ways_is_named_and_allowed_for():
    links = [[0, 2, "400Gbps", "500ns", 0], [1, 3, "400Gbps", "500ns", 0], [2, 3, "100Gbps", "5us", 0]]
    fabric = network(2, nodes=4, switches=[2, 3], links=links, CC_MODE=12)
    both = [(0, 1, 8 << 20), (1, 0, 8 << 20)]
    flow, packet = carry(fabric, both), carry(fabric, both, "packet")
    assert flow.provenance["flow"]["flags"] == ["two-way"]
    # The windows travel as clusters, and each link is idle for a third of the time.
    assert flow.makespan_ns == pytest.approx(packet.makespan_ns, rel=0.02)
    assert flow.makespan_ns > 1.3 * carry(fabric, both[:1]).makespan_ns


def test_small_messages_that_compete_on_several_links_are_named():
    model = all_ranks(CollectiveType.ALL_TO_ALL, 1 << 16)
    result = simulate(model, "default", flow_clos(CC_MODE=1), backend="flow")
    assert result.provenance["flow"]["flags"] == ["bursts"]


def test_a_run_has_causes_links_and_flows(tmp_path):
    model = workload(*[[comp(0, 2_000 * (rank + 1)), coll(1, 1 << 18, after=(0,))] for rank in range(4)])
    result = simulate(model, "default", star(4), backend="flow")
    path = critical_path(result, model)
    assert path.segments["duration_ns"].sum() == result.makespan_ns
    assert path.segments.iloc[0]["rank"] == 3
    assert len(result.flows) == 4 * 6 * 4
    assert (result.links["busy_ns"] > 0).all()
    assert (result.links["busy_ns"] < result.makespan_ns).all()
    result.save(tmp_path / "run")
    assert Result.load(tmp_path / "run").flows.equals(result.flows)


@pytest.mark.parametrize("window", [0, 1])
def test_queues_are_what_packets_have(window):
    fabric = star(5, HAS_WIN=window)
    flow, packet = carry(fabric, INCAST), carry(fabric, INCAST, "packet")
    queues = [result.links.set_index(["src", "dst"])["queue_ns"] for result in (flow, packet)]
    assert queues[0][(5, 4)] == pytest.approx(queues[1][(5, 4)], rel=0.05)
    assert queues[0].drop((5, 4)).sum() == 0
    assert any("queueing times of links" in text for text in flow.provenance["assumptions"])
    assert not carry(fabric, [(0, 1, 1 << 20)]).links["queue_ns"].any()


@pytest.mark.parametrize(
    ("backend", "message"), [("flow", "two different ranks"), ("packet", "two different")]
)
def test_a_message_to_oneself_is_refused(backend, message):
    model = workload([send(0, 0, 0), recv(1, 0, 0)], [comp(0, 0)])
    with pytest.raises(BackendError, match=message):
        simulate(model, "default", star(2), backend=backend, semantics="trace")


def test_it_can_be_cancelled():
    model = all_ranks(CollectiveType.ALL_TO_ALL, 1 << 30, 64)
    fabric = NetworkConfig.preset("clos-2tier-64")
    with pytest.raises(Cancelled):
        simulate(model, "default", fabric, backend="flow", progress=lambda now, done: False)


def test_link_intervals_add_up_to_totals():
    links = [[rank, 4 + rank // 2, "400Gbps", "500ns", 0] for rank in range(4)]
    links.append([4, 5, "200Gbps", "500ns", 0])
    fabric = network(4, nodes=6, switches=[4, 5], links=links)
    messages = [(0, 2, 1 << 20), (1, 3, 1 << 19), (2, 1, 1 << 18), (0, 3, 3000)]
    flow, packet = carry(fabric, messages), carry(fabric, messages, "packet")
    use = flow.link_use.assign(width=flow.link_use["end_ns"] - flow.link_use["start_ns"])
    carried = use.groupby(["src", "dst"])["bytes"].sum()
    total = flow.links.set_index(["src", "dst"])["bytes"]
    assert carried.tolist() == pytest.approx(total[total > 0].sort_index().tolist(), rel=1e-3, abs=200)
    # 400 Gb/s are 50 bytes a ns, and those between the leaves half of it.
    line = np.where((use["src"] > 3) & (use["dst"] > 3), 25, 50)
    assert (use["bytes"] <= line * use["width"] * 1.01).all()
    # Packets reach a link a little later than flows, which use all links at once.
    assert use["width"].nunique() == 1
    assert abs(use["start_ns"].max() - packet.link_use["start_ns"].max()) <= 2 * use["width"].iloc[0]


def two_tiers(ranks, leaf, oversubscription):
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
    model, fabric = all_reduce(16, 16 << 20), two_tiers(16, 4, 2)
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
    model, fabric = all_reduce(16, 8 << 20), two_tiers(16, 8, 1)
    one, other = (simulate(model, "default", fabric, backend="flow") for _ in range(2))
    assert one.provenance["flow"]["moved"] == other.provenance["flow"]["moved"] > 0
    assert one.flows.equals(other.flows)


def test_it_can_be_cancelled_while_it_is_shaken(monkeypatch):
    model, fabric = all_reduce(16, 8 << 20), two_tiers(16, 8, 1)
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
    assert may_drift(flows([91_000] * 19 + [92_000]), 1_821_000)  # large messages need a longer path less
    assert not may_drift(flows([100, 150]), 250)
    assert not may_drift(flows([100, 300] * 10, [1000, 2000] * 10), 4000)  # larger ones may take longer


def late(by):
    return lambda packets: SimpleNamespace(makespan_ns=100_000 + packets * by, unfinished=[])


@pytest.mark.parametrize(
    ("step_ns", "late_by", "expected"),
    [
        (1000.0, 50, (0, False)),  # the delay of the last message does not count
        (1000.0, -50, (0, False)),
        # 100 steps, each up to 2 packets of 50 ns late: 10 us in total; a chain in step adds only a little.
        (1000.0, 700, (0.052, False)),  # the largest noise tried
        (1000.0, 900, (0.017, True)),  # already with the smallest noise
        # This is far more than the noise of 10 steps can add up to.
        (10_000.0, 700, (0.013, True)),
        (1000.0, -100, (0.004, True)),  # a shorter chain depends on the order
    ],
)
def test_a_chain_hangs_on_noise_if_ranks_do_not_catch_up(step_ns, late_by, expected):
    assert moved_by_shaking(100_000, step_ns, 50.0, late(late_by)) == expected


def test_stall_under_perturbation_sets_a_flag():
    assert moved_by_shaking(10_000, 50.0, 50.0, lambda packets: SimpleNamespace(unfinished=[1])) == (1, True)


# Flows on links that fail, slow down or recover during a simulation.


@pytest.mark.parametrize("hop", [0, 1])
@pytest.mark.parametrize(("at_us", "times"), [(1, 2), (7, 4), (15, 2)])
def test_flows_take_the_rate_that_links_have_at_the_time(hop, at_us, times):
    failure = {"link": [hop, 2], "rate": 1 / times, "at": f"{at_us}us"}
    network = failing(star(2, HAS_WIN=0), failure)
    result = carry(network, [(0, 1, 1000 * PAYLOAD)])
    assert result.flows["end_ns"].max() * 1000 == pytest.approx(
        tandem_ps(1000, hop, at_us * US, times), rel=5e-3
    )
    assert assumptions_with(
        result, f"Links changed at {at_us * 1000} ns: 0 packets lost, 0 messages were rerouted."
    )


@pytest.mark.parametrize(
    "failures",
    [
        [{"link": [0, 4], "rate": 0.3, "at": "30us"}],
        [{"link": [5, 6], "rate": 0.5, "at": "30us", "until": "80us"}],
        [{"link": [4, 6], "at": "30us"}],
        [{"link": [4, 6], "at": "30us", "until": "60us"}],
        [{"link": [0, 4], "at": "10us", "until": "2ms"}],
    ],
)
def test_flows_on_links_that_change_are_near_packets(failures):
    flow, packet = (run(clos(*failures), backend, "all-to-all") for backend in ("flow", "packet"))
    assert flow.makespan_ns == pytest.approx(packet.makespan_ns, rel=0.03)
    assert flow.flows["bytes"].sum() == packet.flows["bytes"].sum()
    counts = [
        [text.split(": ")[0] for text in assumptions_with(result, "Links changed at")]
        for result in (flow, packet)
    ]
    assert counts[0] == counts[1]
    cut = any("rate" not in failure for failure in failures)
    assert ("loss" in flow.provenance["flow"]["flags"]) == cut
    if cut:  # and packets were retransmitted
        return
    carried = (flow.links.groupby("src")["bytes"].sum(), packet.links.groupby("src")["bytes"].sum())
    pd.testing.assert_series_equal(*carried, rtol=0.05)


@settings(max_examples=25, deadline=None)
@given(failures_for_a_time())
def test_whatever_fails_for_a_time_every_flow_arrives(failures):
    result = run(clos(*failures), "flow", "all-to-all")
    assert result.flows["bytes"].sum() == run(clos(), "flow", "all-to-all").flows["bytes"].sum()
    assert run(clos(*failures), "flow", "all-to-all").makespan_ns == result.makespan_ns
    ends = result.flows["end_ns"] - result.flows["start_ns"]
    assert (ends > 0).all()
