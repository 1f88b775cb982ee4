"""Messages in pieces: what `flow` asks where messages are short against their windows, or drift."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import sends, star
from workloads import coll, workload

from chakrascope.converter import CollectiveType, microbenchmark
from chakrascope.errors import Cancelled
from chakrascope.runner import Experiment, NetworkConfig, SystemConfig, WorkloadSource, simulate
from chakrascope.runner.backends._flow import FlowBackend
from chakrascope.runner.config import PacketPart

HEADER, ACK, PAYLOAD = 36, 48, 1000
RING = NetworkConfig.preset("ring-8")


def clos(ranks=16, latency=500.0, **packet):
    part = PacketPart.from_mapping({"fabric": {"hosts_per_leaf": 4, "oversubscription": 2}, **packet})
    return NetworkConfig(("Switch",), (ranks,), (11.642,), (latency,), packet=part)


def all_ranks(kind, size, ranks):
    return workload(*[[coll(0, size, comm_type=kind)] for _ in range(ranks)])


def in_pieces(fabric, messages, packets):
    source = WorkloadSource.of_model(sends(fabric.num_ranks, messages))
    experiment = Experiment(source, SystemConfig.preset("default"), fabric, semantics="trace")
    return FlowBackend(packets).simulate(experiment, None)


def packets_of(size):
    return -(-size // PAYLOAD)


_MESSAGES = st.lists(
    st.tuples(st.integers(0, 4), st.integers(0, 4), st.integers(1, 300_000)).filter(lambda m: m[0] != m[1]),
    min_size=1,
    max_size=20,
)


@pytest.mark.parametrize("size", [1, 1000, 1024, 32768, 1 << 20])
@pytest.mark.parametrize("packets", [1, 64])
def test_a_message_alone_takes_what_its_packets_take(size, packets):
    fabric, messages = clos(), [(0, 13, size)]
    exact = simulate(sends(16, messages), "default", fabric, backend="packet", semantics="trace")
    assert in_pieces(fabric, messages, packets).makespan_ns == pytest.approx(exact.makespan_ns, abs=1)


@settings(deadline=None, max_examples=15)
@given(_MESSAGES, st.sampled_from([1, 4, 64]))
def test_no_byte_is_lost(messages, packets):
    result = in_pieces(star(5), messages, packets)
    assert sorted(result.flows["bytes"]) == sorted(size for *_, size in messages)
    links = result.links.set_index(["src", "dst"])
    sent = {
        host: sum(size + packets_of(size) * HEADER for source, _, size in messages if source == host)
        for host in range(5)
    }
    for host in range(5):
        answers = sum(packets_of(size) * ACK for _, target, size in messages if target == host)
        assert links.loc[(host, 5), "bytes"] == sent[host] + answers


@settings(deadline=None, max_examples=15)
@given(st.permutations(range(5)), st.lists(st.integers(0, 3), min_size=5, max_size=5))
def test_the_order_in_which_messages_are_sent_together_hardly_counts(names, steps):
    messages = [(host, (host + 1 + step) % 5, 100_000) for host, step in enumerate(steps)]
    renamed = sorted((names[source], names[target], size) for source, target, size in messages)
    one, other = in_pieces(star(5), messages, 1), in_pieces(star(5), renamed, 1)
    assert sorted(one.flows["end_ns"]) == pytest.approx(
        sorted(other.flows["end_ns"]), abs=100
    )  # five packets


@pytest.mark.parametrize(("size", "error"), [(1 << 14, 0.01), (1 << 18, 0.01), (1 << 22, 0.02)])
def test_short_messages_of_a_ring_wait_in_the_order_in_which_they_come(size, error):
    model = microbenchmark("all-to-all", 8, size)
    flow, packet = (simulate(model, "default", RING, backend=name) for name in ("flow", "packet"))
    facts = flow.provenance["flow"]
    assert (facts["packets_a_piece"] > 1) == (size > 1 << 18)
    assert "bursts" not in facts["flags"]
    assert flow.makespan_ns == pytest.approx(packet.makespan_ns, rel=error)
    told = "in pieces of up to" if size > 1 << 18 else "every packet was simulated"
    assert any(told in line for line in flow.provenance["assumptions"])


@pytest.mark.parametrize(
    ("kind", "size"), [(CollectiveType.ALL_REDUCE, 4 << 20), (CollectiveType.ALL_TO_ALL, 1 << 18)]
)
def test_few_packets_a_message_are_simulated_each(kind, size):
    model = all_ranks(kind, size, 16)
    flow, packet = (simulate(model, "default", clos(), backend=name) for name in ("flow", "packet"))
    assert flow.provenance["flow"]["flags"] == []
    assert flow.provenance["flow"]["packets_a_piece"] == 1
    assert flow.provenance["packets"] == packet.provenance["packets"]
    assert any("every packet was simulated" in line for line in flow.provenance["assumptions"])
    for table in ("ranks", "nodes", "links", "flows", "link_use"):
        assert getattr(flow, table).equals(getattr(packet, table)), table


def test_what_begins_with_few_packets_and_goes_on_with_many_is_answered_by_flows():
    first, then = coll(0, 4096), coll(1, 256 << 20, after=(0,))
    model = workload(*[[first, then] for _ in range(4)])
    result = simulate(model, "default", star(4), backend="flow")
    assert "packets_a_piece" not in result.provenance["flow"]
    assert result.provenance["flow"]["rate_changes"] < 2000


def test_many_bursts_go_to_pieces_before_the_end():
    model = all_ranks(CollectiveType.ALL_TO_ALL, 4 << 20, 32)
    early = simulate(model, "default", clos(32), backend="flow")
    experiment = Experiment(WorkloadSource.of_model(model), SystemConfig.preset("default"), clos(32))
    assert early.provenance["flow"]["packets_a_piece"] > 1
    assert early.flows.equals(FlowBackend(16).simulate(experiment, None).flows)
    packet = simulate(model, "default", clos(32), backend="packet")
    assert early.makespan_ns == pytest.approx(packet.makespan_ns, rel=0.02)


def test_a_nanosecond_more_on_each_link_changes_little():
    model = all_ranks(CollectiveType.ALL_TO_ALL, 1 << 18, 16)
    times = [
        simulate(model, "default", clos(latency=500.0 + late), backend="flow").makespan_ns
        for late in range(3)
    ]
    assert max(times) < 1.01 * min(times)


def test_a_queue_that_may_pause_its_neighbours_is_named():
    fabric = star(9, BUFFER_SIZE=2)
    incast = [(source, 8, 200_000) for source in range(8)]
    assert in_pieces(star(9), incast, 1).provenance["flow"]["flags"] == []
    assert in_pieces(fabric, incast, 1).provenance["flow"]["flags"] == ["pauses"]


@pytest.mark.parametrize("part", [{"CC_MODE": 1}, {"ERROR_RATE_PER_LINK": 1e-9}, {"ACK_HIGH_PRIO": 1}])
def test_what_pieces_do_not_know_stays_with_fluids(part):
    model = microbenchmark("all-to-all", 16, 1 << 18)
    result = simulate(model, "default", clos(**part), backend="flow")
    assert "packets_a_piece" not in result.provenance["flow"]
    assert "bursts" in result.provenance["flow"]["flags"]


def test_it_can_be_cancelled():
    model = microbenchmark("all-to-all", 16, 1 << 25)
    experiment = Experiment(WorkloadSource.of_model(model), SystemConfig.preset("default"), clos())
    with pytest.raises(Cancelled):
        FlowBackend(1).simulate(experiment, lambda _now, _done: False)


def test_what_links_carry_over_time_adds_up_to_what_they_carry_at_all():
    result = simulate(microbenchmark("all-to-all", 8, 1 << 18), "default", RING, backend="flow")
    over_time = result.link_use.groupby(["src", "dst"])["bytes"].sum()
    in_all = result.links.set_index(["src", "dst"])["bytes"]
    assert np.array_equal(over_time, in_all.loc[over_time.index])
