"""Packet trains, lossy links, and messages that overtake: accuracy compared with single packets."""

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import network, star
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType, microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, engine, simulate
from chakrascope.runner.config import PacketPart, fabric_of

PAYLOAD, HEADER, ACK = 1000, 36, 48
PACKET_PS = (PAYLOAD + HEADER) * 20  # 400 Gb/s
MIB = 1 << 20


def far_star(hosts, rates=(), **packet):
    """Return hosts 10 us from a switch, so that trains fit into windows; 400 Gb/s, or *rates*."""
    links = [[host, hosts, "400Gbps", "10us", 0] for host in range(hosts)]
    for host, rate in enumerate(rates):
        links[host][2] = rate
    known = {"CC_MODE": 12, "nodes": hosts + 1, "switches": [hosts], "links": links}
    return network(hosts, **known | packet)


def carry(star, sent):
    """Send messages (id, source, destination, bytes, ps); return their arrivals and the report."""
    simulation = engine.PacketSimulation(fabric_of(star))
    for message in sent:
        simulation.send(*message)
    arrived = {}
    while more := simulation.run(1 << 62):
        arrived |= dict(more)
    return arrived, simulation.report()


def both(sent, train, **options):
    """Return arrivals and reports of *sent*, packet by packet and in trains."""
    return [carry(far_star(**options, PACKET_TRAIN=most), sent) for most in (1, train)]


def table(report):
    return pd.DataFrame(report.links)


def error(plain, trains):
    return max(trains.values()) / max(plain.values()) - 1


def test_packets_that_take_no_whole_nanosecond_are_not_joined():
    sent = [(1, 0, 1, 16 * MIB, 0)]
    (plain, _), (trains, _) = both(
        sent, 64, hosts=2, rates=["40Tbps", "400Gbps"], ASTRA_SIM_CLOCK=1, BUFFER_SIZE=200
    )
    assert plain == trains


@pytest.mark.parametrize("size", [MIB, 16 * MIB, 16 * MIB + 1, 10**7])
@pytest.mark.parametrize("train", [2, 64, 256])
def test_uncontended_message_takes_the_same_time_with_trains(size, train):
    (plain, _), (trains, report) = both([(0, 0, 1, size, 0)], train, hosts=2)
    assert report.largest_train == min(train, size // PAYLOAD // 16, report.largest_train)
    assert report.largest_train > 1
    assert abs(trains[0] - plain[0]) <= PACKET_PS


@pytest.mark.parametrize("rates", [("100Gbps", "400Gbps"), ("400Gbps", "100Gbps"), ("50Gbps", "400Gbps")])
@pytest.mark.parametrize("size", [16 * MIB, 4_340_001, 8_000_001])
def test_a_message_between_links_of_two_speeds_takes_as_long(rates, size):
    (plain, _), (trains, report) = both([(0, 0, 1, size, 0)], 62, hosts=2, rates=rates)
    assert report.largest_train > 1
    assert report.data_packets == -(-size // PAYLOAD)
    assert abs(trains[0] - plain[0]) <= 4 * PACKET_PS


def test_messages_share_a_link_fairly():
    sent = [(rank, rank, 3, 4 * MIB, 0) for rank in range(3)]
    (plain, _), (trains, report) = both(sent, 64, hosts=4)
    assert error(plain, trains) == pytest.approx(0, abs=1e-3)
    assert min(trains.values()) > 0.9 * max(trains.values())
    assert report.largest_train > 1


def test_acknowledgements_pass_between_the_packets_of_a_train():
    sent = [(0, 0, 1, 16 * MIB, 0), (1, 1, 0, 16 * MIB, 0)]
    (plain, _), (trains, _) = both(sent, 256, hosts=2)
    assert error(plain, trains) == pytest.approx(0, abs=0.01)


_SENT = st.lists(
    st.tuples(
        st.permutations(range(4)).map(lambda hosts: hosts[:2]), st.integers(1, 2 * MIB), st.integers(0, 10**8)
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None)
@given(_SENT, st.sampled_from([2, 7, 64]))
def test_links_carry_the_same_bytes_and_packets(drawn, train):
    sent = [(place, *hosts, size, at) for place, (hosts, size, at) in enumerate(drawn)]
    (plain, reference), (trains, report) = both(sent, train, hosts=4)
    assert trains.keys() == plain.keys()
    assert report.data_packets == reference.data_packets
    # Completions end a run; the last acknowledgements may be in flight by then.
    data, mine = table(reference), table(report)
    slack = ACK * 2 * len(sent) * train
    assert (data["bytes"] - mine["bytes"]).abs().max() <= slack
    assert (data["packets"] - mine["packets"]).abs().max() <= slack // ACK
    assert error(plain, trains) == pytest.approx(0, abs=0.05)


def test_the_same_run_gives_the_same_answer():
    sent = [(key, key % 4, (key + 1 + key // 4) % 4, MIB + key, 0) for key in range(8)]
    first, second = (carry(far_star(4, PACKET_TRAIN=64), sent) for _ in range(2))
    assert first[0] == second[0]
    assert table(first[1]).equals(table(second[1]))


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (2 * MIB, {"CC_MODE": 3}),
        (2 * MIB, {"CC_MODE": 7}),
        (2 * MIB, {"CC_MODE": 10}),
        (2 * MIB, {"ERROR_RATE_PER_LINK": 0.001}),
        (2 * MIB, {"L2_ACK_INTERVAL": 5000}),
        (31 * PAYLOAD, {}),
    ],
)
def test_packets_travel_separately_if_required(size, options):
    sent = [(rank, rank, 3, size, 0) for rank in range(3)]
    (plain, _), (trains, report) = both(sent, 64, hosts=4, **options)
    assert trains == plain
    assert report.largest_train == 1


def test_trains_end_before_a_pause():
    sent = [(rank, rank, 8, 4 * MIB, 0) for rank in range(8)]
    (plain, reference), (trains, report) = both(sent, 64, hosts=9, BUFFER_SIZE=20)
    assert table(reference)["pauses"].sum() > 0
    assert report.split_trains
    assert table(report)["drops"].sum() == 0
    assert error(plain, trains) == pytest.approx(0, abs=0.01)


@pytest.mark.parametrize("train", ["many", 1.5, -1])
def test_trains_are_whole_numbers(train):
    with pytest.raises(ConfigError, match="PACKET_TRAIN"):
        far_star(2, PACKET_TRAIN=train)


def _all_gather(**packet):
    star = NetworkConfig(("Switch",), (4,), (46.57,), (10_000.0,), packet=PacketPart.from_mapping(packet))
    program = workload(*[[coll(0, 8 * MIB, comm_type=CollectiveType.ALL_GATHER)] for _ in range(4)])
    return simulate(program, "default", star, backend="packet")


def test_a_result_says_how_long_its_trains_were():
    plain, trains = _all_gather(), _all_gather(PACKET_TRAIN=64)
    assert plain.provenance["packets"]["train"] == 1
    assert not [told for told in plain.provenance["assumptions"] if "PACKET_TRAIN" in told]
    used = trains.provenance["packets"]["train"]
    assert used > 8
    (told,) = [told for told in trains.provenance["assumptions"] if "PACKET_TRAIN" in told]
    assert f"Up to {used} packets" in told
    assert trains.makespan_ns == pytest.approx(plain.makespan_ns, rel=0.02)
    assert trains.provenance["packets"]["network_events"] * 8 < plain.provenance["packets"]["network_events"]


def test_trains_before_losses_are_warned_about():
    job = microbenchmark("incast", 9, 4 * MIB)
    star = far_star(9, PACKET_TRAIN=64, BUFFER_SIZE=1, HEADROOM_FACTOR=0)
    result = simulate(job, "default", star, backend="packet")
    assert result.provenance["packets"]["train"] > 1
    (told,) = [told for told in result.provenance["warnings"] if "were lost" in told]
    assert told.endswith("set PACKET_TRAIN 1.")


def test_result_notes_absence_of_trains():
    result = _all_gather(PACKET_TRAIN=64, CC_MODE=3)
    (told,) = [told for told in result.provenance["assumptions"] if "PACKET_TRAIN" in told]
    assert told.startswith("Every packet travelled separately although PACKET_TRAIN is 64")


@pytest.mark.parametrize("control", [1, 8])
def test_trains_under_congestion_control_end_where_marks_are_near(control):
    job = microbenchmark("incast", 9, 4 * MIB)
    plain, trains = (
        simulate(job, "default", far_star(9, CC_MODE=control, PACKET_TRAIN=most), backend="packet")
        for most in (1, 64)
    )
    assert trains.makespan_ns == plain.makespan_ns
    assert trains.flows.equals(plain.flows)
    assert trains.provenance["packets"]["train"] == 1
    calm = _all_gather(PACKET_TRAIN=64, CC_MODE=control)
    assert calm.provenance["packets"]["train"] > 8
    assert calm.makespan_ns == pytest.approx(_all_gather(CC_MODE=control).makespan_ns, rel=0.001)


def test_trains_go_on_where_no_pause_is_near():
    sent = [(rank, rank, 8, 4 * MIB, 0) for rank in range(4)]
    sent += [(8 + rank, rank + 4, (rank + 1) % 4 + 4, 16 * MIB, 0) for rank in range(4)]
    (plain, reference), (trains, report) = both(sent, 64, hosts=9, BUFFER_SIZE=20)
    assert report.split_trains
    assert report.events * 3 < reference.events
    assert table(report)["drops"].sum() == 0
    assert error(plain, trains) == pytest.approx(0, abs=0.01)


# Jobs end on links that lose packets, with every congestion control; the work grows with the losses.

STAR = {"topology": ["Switch"], "npus_count": [8], "bandwidth": [10.0], "latency": [500.0]}


# Every waiting packet is marked, so that rates become minimal.
ALL_MARKED = {
    "KMIN_MAP": {85_899_345_920: 1},
    "KMAX_MAP": {85_899_345_920: 2},
    "PMAX_MAP": {85_899_345_920: 1.0},
}


@pytest.mark.parametrize("marks", [{}, ALL_MARKED], ids=["", "marked"])
@pytest.mark.parametrize("loss", [0.01, 0.3, 0.6])
@pytest.mark.parametrize("mode", [12, 1, 3, 7, 8, 10])
def test_every_job_completes_with_its_losses(mode, loss, marks):
    part = {"CC_MODE": mode, "ERROR_RATE_PER_LINK": loss, **marks}
    network = NetworkConfig.from_mapping(STAR | {"packet": part}, "here")
    told = simulate(microbenchmark("all-to-all", 8, 1 << 17), "default", network, backend="packet").provenance
    packets = told["packets"]
    assert packets["drops"] > 0
    # A packet is sent, received and acknowledged over two links in each direction, while DCQCN timers run.
    assert packets["network_events"] < 40 * (packets["data_packets"] + packets["drops"])


@pytest.mark.parametrize("mode", [12, 1, 3])
def test_restarted_message_completes(mode):
    part = {"CC_MODE": mode, "ERROR_RATE_PER_LINK": 0.05, "L2_BACK_TO_ZERO": 1}
    network = NetworkConfig.from_mapping(STAR | {"packet": part}, "here")
    result = simulate(microbenchmark("all-to-all", 8, 1 << 20), "default", network, backend="packet")
    assert result.flows["bytes"].sum() >= 7 * (1 << 20)


# Messages that overtake each other: their receivers in ASTRA-sim's ns-3, and in a measured job.

RATES_GBPS = (400, 25)


# Results of ASTRA-sim's ns-3, in ns per rank.
RECORDED = [
    (CollectiveType.ALL_REDUCE, 40_000, [63235, 64320, 65809, 62661]),
    (CollectiveType.ALL_REDUCE, 400_000, [227066, 227812, 224458, 218506]),
    (CollectiveType.ALL_GATHER, 400_000, [381627, 405754, 407752, 374077]),
    (CollectiveType.REDUCE_SCATTER, 40_000, [29207, 31940, 32019, 30713]),
]


def run(kind, size_bytes, semantics):
    """Run a collective of four hosts with a fast and a slow interface each; a hash picks one per message."""
    links = [
        [host, 4 + i, f"{rate}Gbps", "500ns", 0] for host in range(4) for i, rate in enumerate(RATES_GBPS)
    ]
    marks = {
        name: {rate * 10**9: value for rate, value in zip(RATES_GBPS, values, strict=True)}
        for name, values in {"KMIN_MAP": (800, 100), "KMAX_MAP": (3200, 400), "PMAX_MAP": (0.2, 0.2)}.items()
    }
    both = network(4, nodes=6, switches=[4, 5], links=links, CC_MODE=12, ASTRA_SIM_CLOCK=1, **marks)
    model = workload(*[[coll(0, size_bytes, comm_type=kind)]] * 4)
    return simulate(model, "default", both, backend="packet", semantics=semantics)


@pytest.mark.parametrize(("kind", "size_bytes", "expected"), RECORDED)
def test_the_first_to_arrive_is_the_one_awaited_as_in_astra_sim(kind, size_bytes, expected):
    assert run(kind, size_bytes, "astra-sim").ranks["finish_ns"].tolist() == expected


def test_a_captured_collective_waits_for_each_message_in_turn():
    """The same messages, received in the order of sending: never earlier than in the order of arrival."""
    kind, size_bytes, first_come = RECORDED[1]
    in_turn = run(kind, size_bytes, "trace").ranks["finish_ns"].tolist()
    assert all(own > theirs for own, theirs in zip(in_turn, first_come, strict=True))


def test_collectives_of_two_groups_begun_in_opposite_orders_end():
    one, other = coll(0, 40_000, group=1, stream=1), coll(1, 40_000, group=2, stream=2)
    delay = comp(2, 5000, stream=3)
    ranks = [[one, delay, other | {"after": (2,)}], [other, delay, one | {"after": (2,)}]]
    job = workload(*ranks, groups={1: (0, 1), 2: (0, 1)})
    result = simulate(job, "default", star(2), backend="packet", semantics="trace")
    assert result.provenance["overtaking"] == 1
    assert result.flows["end_ns"].max() <= result.makespan_ns
