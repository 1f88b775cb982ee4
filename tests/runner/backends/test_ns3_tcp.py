"""ns-3's TCP as a backend: closed forms, conservation, determinism, and errors."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packets import arrivals
from processes import wait_for
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import CollectiveType, convert, microbenchmark
from chakrascope.errors import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    Cancelled,
    ConfigError,
    StudyError,
)
from chakrascope.runner import NetworkConfig, Result, prepare, simulate
from chakrascope.runner.backends.ns3 import TcpBackend, TcpDriver, build_driver, find_ns3
from chakrascope.runner.config import Link, PacketPart, TcpPart, fabric_of

GBPS, DELAY_NS = 10, 5_000
MSS, HEADER = 1448, 48
FRAME = 1538  # bytes on the wire of a full segment
SENT = 1490  # of which until the arrival: MSS, TCP 20, IP 20, PPP 2
MIB = 1 << 20


def star(hosts, gbps=GBPS, delay_ns=DELAY_NS, **settings_):
    bandwidth = gbps * 1e9 / 8 / (1 << 30)
    part = TcpPart.from_mapping({key.replace("_", "-"): value for key, value in settings_.items()})
    return NetworkConfig(("Switch",), (hosts,), (bandwidth,), (float(delay_ns),), tcp=part)


def deliver(ns3, network, sent, **options):
    """Send messages (id, from, to, bytes, ns), and return the arrival times and the counters."""
    with TcpDriver(ns3, fabric_of(network), network.tcp or TcpPart(), **options) as driver:
        arrived = arrivals(driver, sent)
        return arrived, driver.tcp_totals()


def wire_ns(payload, gbps=GBPS):
    """Return the duration of messages with this many bytes on one link, in full segments."""
    return payload / MSS * FRAME * 8 / gbps


@pytest.mark.parametrize("size", [0, 1, 700, MSS - HEADER])
def test_single_segment_matches_the_closed_form(ns3, size):
    arrived, totals = deliver(ns3, star(2), [(0, 0, 1, size, 0)])
    on_wire_ps = (size + HEADER + SENT - MSS) * 8 * 1000 // GBPS
    # One ps for ns-3's socket, then two links and a switch that stores the packet.
    assert arrived[0] == -(-(2 * on_wire_ps + 2 * DELAY_NS * 1000 + 1) // 1000)
    assert (totals.segments, totals.retransmissions) == (1, 0)


@pytest.mark.parametrize("window", [1, 4, 10])
def test_a_window_leaves_at_once_and_the_next_waits_for_the_first_answer(ns3, window):
    full = window * MSS - HEADER
    network = star(2, initial_window=window, ack_every=1)
    arrived, _ = deliver(ns3, network, [(0, 0, 1, full, 0)])
    first_ns = 2 * (SENT * 8 / GBPS + DELAY_NS)
    assert arrived[0] == pytest.approx(first_ns + (window - 1) * FRAME * 8 / GBPS, abs=2)
    longer, _ = deliver(ns3, network, [(0, 0, 1, full + MSS, 0)])
    # Bytes beyond the window are sent when the first segment has been acknowledged.
    answer_ns = 2 * (42 * 8 / GBPS + DELAY_NS)
    begun = max(first_ns + answer_ns, window * FRAME * 8 / GBPS)
    assert longer[0] == pytest.approx(begun + first_ns, abs=2)


@pytest.mark.parametrize("control", ["bbr", "cubic", "dctcp", "newreno", "reno"])
def test_every_control_fills_a_link(ns3, control):
    size = 12 * MIB
    arrived, totals = deliver(ns3, star(2, congestion_control=control), [(0, 0, 1, size, 0)])
    assert wire_ns(size) < arrived[0] < wire_ns(size) / 0.94
    if control != "bbr":  # which is slower to find the rate
        assert arrived[0] < wire_ns(size) / 0.98
    assert (totals.retransmissions, totals.timeouts) == (0, 0)


def mean_queue(totals, src, dst, duration_ns):
    row = totals.links.query("src == @src and dst == @dst").iloc[0]
    return row["queue_ps"] / 1000 / duration_ns * 1500, row["largest_queue_bytes"], row["marks"]


@pytest.mark.parametrize("threshold", [60_000, 150_000])
def test_dctcp_keeps_the_queue_at_its_threshold(ns3, threshold):
    network = star(3, congestion_control="dctcp", ecn_threshold=threshold)
    sent = [(0, 0, 2, 12 * MIB, 0), (1, 1, 2, 12 * MIB, 0)]
    arrived, totals = deliver(ns3, network, sent)
    queue, largest, marks = mean_queue(totals, 3, 2, max(arrived.values()))
    assert 0.7 * threshold < queue < 1.2 * threshold
    assert marks > 100
    assert largest < 1 * MIB
    assert totals.retransmissions == 0
    # Fair, and without loss of time.
    assert min(arrived.values()) > 0.98 * max(arrived.values())
    assert max(arrived.values()) < wire_ns(24 * MIB) / 0.98


def test_cubic_fills_the_buffer_that_dctcp_leaves_empty(ns3):
    sent = [(0, 0, 2, 6 * MIB, 0), (1, 1, 2, 6 * MIB, 0)]
    arrived, totals = deliver(ns3, star(3, buffer="512KiB"), sent)
    _, largest, marks = mean_queue(totals, 3, 2, max(arrived.values()))
    assert marks == 0
    assert largest > 0.95 * 512 * 1024
    assert totals.retransmissions > 0


def test_an_incast_into_small_buffers_collapses(ns3):
    senders = 12
    sent = [(one, one, senders, 64 * 1024, 0) for one in range(senders)]
    payload = senders * 64 * 1024
    large, easy = deliver(ns3, star(senders + 1, buffer="4MiB"), sent)
    small, hard = deliver(ns3, star(senders + 1, buffer="24kB"), sent)
    assert (easy.timeouts, easy.retransmissions) == (0, 0)
    assert max(large.values()) < 1.2 * wire_ns(payload)
    # Whole windows are lost, and only the timer (200 ms) detects it: a thousand times as long.
    assert hard.timeouts >= 3
    assert max(small.values()) > 200_000_000 > 100 * max(large.values())


def test_fair_queues_share_fairly_whatever_the_control(ns3):
    network = star(4, queue_disc="fq-codel", buffer="4MiB")
    sent = [(one, one, 3, 8 * MIB, 0) for one in range(3)]
    arrived, _ = deliver(ns3, network, sent)
    assert min(arrived.values()) > 0.95 * max(arrived.values())
    assert max(arrived.values()) < wire_ns(24 * MIB) / 0.94


def test_a_connection_remembers_its_window_until_it_was_idle(ns3):
    """A second message needs no slow start; after an idle second it does, as in Linux."""
    size = 200_000
    late = 1_000_000_000
    sent = [(0, 0, 1, size, 0), (1, 0, 1, size, 2_000_000), (2, 0, 1, size, late)]
    thirds = {}
    for restarts in (True, False):
        arrived, _ = deliver(ns3, star(2, delay_ns=50_000, slow_start_after_idle=restarts), sent)
        first, second, thirds[restarts] = arrived[0], arrived[1] - 2_000_000, arrived[2] - late
        assert second < 0.5 * first
        assert thirds[False] <= second if not restarts else 0.7 * first < thirds[True] <= first
    # All in one window: the time on the wire and one-way latency.
    assert thirds[False] == pytest.approx(wire_ns(size) + 2 * 50_000, rel=0.02)


def test_connections_open_with_the_first_message_if_asked(ns3):
    sent = [(0, 0, 1, 100, 0)]
    before, _ = deliver(ns3, star(2), sent)
    lazily, _ = deliver(ns3, star(2, connect="first-use"), sent)
    assert lazily[0] > before[0] + 2 * 2 * DELAY_NS


def test_connections_share_a_link_and_order_their_messages(ns3):
    sent = [(0, 0, 1, 4 * MIB, 0), (1, 0, 1, 4 * MIB, 0)]
    one, _ = deliver(ns3, star(2), sent)
    two, _ = deliver(ns3, star(2, connections_per_pair=2), sent)
    assert one[0] < 0.52 * one[1]
    assert two[0] > 0.95 * two[1]


def test_both_directions_of_a_connection_pay_for_the_acknowledgements_of_the_other(ns3):
    sent = [(0, 0, 1, 12 * MIB, 0), (1, 1, 0, 12 * MIB, 0)]
    arrived, totals = deliver(ns3, star(2), sent)
    shared_ns = wire_ns(12 * MIB) * (FRAME + 90 / 2) / FRAME  # an empty frame for every second segment
    assert shared_ns < 1.001 * max(arrived.values())
    assert max(arrived.values()) < shared_ns / 0.95
    assert totals.links["packets"].sum() <= 3.01 * totals.segments


QUIET_NS = 20_000_000_000
_SENT = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(0, 300_000), st.integers(0, 500_000)),
    min_size=1,
    max_size=12,
)


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    _SENT,
    st.sampled_from(["cubic", "dctcp", "newreno", "bbr"]),
    st.sampled_from(["8kB", "1MiB"]),
    st.integers(1, 10_000_000),
)
def test_every_byte_arrives_once_however_time_advances(ns3, drawn, control, buffer, step_ns):
    sent = [(number, a, (a + b) % 4, size, at) for number, (a, b, size, at) in enumerate(drawn)]
    network = star(4, congestion_control=control, buffer=buffer, min_rto="2ms")
    if control == "dctcp":
        network = star(4, congestion_control=control, buffer=buffer, ecn_threshold="6kB", min_rto="2ms")
    arrived, totals = _in_steps(ns3, network, sent, QUIET_NS)
    assert set(arrived) == {message[0] for message in sent}
    for number, _, _, size, at in sent:
        assert arrived[number] - at >= 2 * DELAY_NS + (size + HEADER) * 8 / GBPS
    links = totals.links
    into = links[links["dst"] == 4]
    out = links[links["src"] == 4]
    assert into["packets"].sum() == out["packets"].sum() + out["drops"].sum()
    # Every byte of a message has crossed the first link, and the last one.
    assert into["bytes"].sum() >= sum(size + HEADER for _, _, _, size, _ in sent)
    assert links["busy_ps"].max() <= 1000 * max(arrived.values()) + 10_000_000
    assert sum(totals.resent.values()) == totals.retransmissions
    again, stepped = _in_steps(ns3, network, sent, step_ns)
    assert again == arrived
    assert (stepped.segments, stepped.resent) == (totals.segments, totals.resent)
    assert stepped.links.equals(totals.links)


def _in_steps(ns3, network, sent, step_ns):
    """Simulate in steps, and then until nothing is in flight."""
    arrived = {}
    with TcpDriver(ns3, fabric_of(network), network.tcp) as driver:
        arrived |= dict(driver.advance(sent, 0))
        for step in range(1, 41):
            arrived |= dict(driver.advance([], min(step * step_ns, QUIET_NS)))
        while len(arrived) < len(sent):
            arrived |= dict(driver.advance([], -1))
        assert max(arrived.values()) < QUIET_NS // 2
        assert driver.advance([], QUIET_NS) == []
        return arrived, driver.tcp_totals()


def test_more_than_four_gib_go_over_one_connection(ns3):
    # Sequence numbers and the windows on them wrap around after 4 GiB; large segments keep it short.
    network = star(2, 400, mtu=65_535, buffer="64MiB", limit_output_bytes=0)
    size = (9 << 29) + 1
    arrived, totals = deliver(ns3, network, [(0, 0, 1, size, 0), (1, 0, 1, 1 << 20, 0)])
    mss = 65_535 - 52
    assert arrived[0] == pytest.approx((size + HEADER) / mss * (65_535 + 38) * 8 / 400, rel=2e-3)
    assert arrived[1] > arrived[0]
    assert totals.retransmissions == 0


def test_lost_packets_are_sent_again_and_counted(ns3):
    loss = PacketPart.from_mapping({"ERROR_RATE_PER_LINK": 0.01})
    base = star(2, min_rto="5ms")
    network = NetworkConfig(
        base.topology, base.npus_count, base.bandwidth, base.latency, packet=loss, tcp=base.tcp
    )
    model = workload([send(0, 0, 1, 2 * MIB)], [recv(0, 0, 1, 2 * MIB)])
    result = simulate(model, "default", network, backend="ns3")
    packets = result.provenance["packets"]
    assert packets["drops"] == result.links["drops"].sum() > 10
    assert 0 < result.flows["retransmissions"].sum() <= packets["retransmissions"]
    assert any("segments were sent again" in text for text in result.provenance["warnings"])


CLOS = {"fabric": {"hosts_per_leaf": 4}}


def test_equal_ways_are_chosen_by_connection_and_seed(ns3):
    fabric = PacketPart.from_mapping(CLOS)
    used = {}
    for seed in (1, 2, 1):
        base = star(8, seed=seed)
        network = NetworkConfig(("Switch",), (8,), base.bandwidth, base.latency, packet=fabric, tcp=base.tcp)
        sent = [(one, one, one + 4, MIB, 0) for one in range(4)]
        arrived, totals = deliver(ns3, network, sent)
        up = totals.links.query("src in (8, 9) and dst >= 10")["bytes"].tolist()
        assert sum(count > MIB for count in up) > 1
        assert totals.retransmissions == 0 or max(up) > 2 * MIB
        assert used.setdefault(seed, (arrived, up)) == (arrived, up)
    assert used[1] != used[2]


def test_hosts_without_a_way_and_impossible_messages_are_refused(ns3):
    apart = NetworkConfig(
        ("Switch",), (4,), (1.0,), (500.0,), links=(Link(0, 4, 1.0, 500.0), Link(1, 4, 1.0, 500.0))
    )
    with pytest.raises(BackendError, match="no way leads from host"):
        deliver(ns3, apart, [])
    with pytest.raises(BackendError, match="from one host to another"):
        deliver(ns3, star(2), [(0, 0, 0, 5, 0)])


def test_a_result_tells_of_queues_losses_and_every_default(ns3, tmp_path):
    model = workload(*[[comp(0, 2_000 * (rank + 1)), coll(1, MIB, after=(0,))] for rank in range(4)])
    result = simulate(model, "default", star(4), backend="ns3")
    assert result.makespan_ns > 2 * 3 / 4 * wire_ns(MIB)
    assert result.makespan_ns < 1.6 * 2 * 3 / 4 * wire_ns(MIB)
    packets = result.provenance["packets"]
    assert packets["data_packets"] >= 4 * 6 * MIB // 4 // MSS
    assert {"retransmissions", "timeouts", "drops", "marks", "largest_queue_bytes"} <= set(packets)
    assert {"drops", "marks", "largest_queue_bytes"} <= set(result.links)
    assert result.flows["bytes"].sum() == 4 * 6 * MIB // 4
    told = " ".join(result.provenance["assumptions"])
    for word in ("congestion-control cubic", "queue-disc fifo", "min-rto 200 ms", "buffer 1.00 MiB"):
        assert word in told
    assert result.link_use.groupby(["src", "dst"])["bytes"].sum().sum() == result.links["bytes"].sum()
    result.save(tmp_path / "run")
    loaded = Result.load(tmp_path / "run")
    assert loaded.links.equals(result.links)
    assert loaded.flows.equals(result.flows)
    again = simulate(model, "default", star(4), backend="ns3")
    assert again.nodes.equals(result.nodes)
    assert again.links.equals(result.links)


@pytest.mark.parametrize(
    "network",
    [
        NetworkConfig(("Ring",), (4,), (5.0,), (500.0,)),
        NetworkConfig(("FullyConnected",), (4,), (5.0,), (500.0,)),
        NetworkConfig(("FullyConnected", "Switch"), (2, 2), (20.0, 2.5), (200.0, 1000.0)),
    ],
)
@pytest.mark.parametrize("kind", [CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL])
def test_the_dimensions_of_any_network_serve(ns3, network, kind):
    model = workload(*[[coll(0, MIB, comm_type=kind)] for _ in range(4)])
    result = simulate(model, "default", network, backend="ns3")
    plain = simulate(model, "default", network, backend="analytical-unaware")
    assert 1.0 < result.makespan_ns / plain.makespan_ns < 3


def test_a_captured_gloo_job_runs_to_its_end(ns3, data_dir):
    job = convert(data_dir / "converter" / "mlp_2")
    job = getattr(job, "workload", job)
    result = simulate(job, "default", star(2), backend="ns3")
    assert (result.ranks["finish_ns"] > 0).all()
    assert len(result.flows) > 0
    assert result.provenance["packets"]["retransmissions"] == 0


def test_packets_and_flows_are_recorded_in_the_folder_of_the_result(ns3, tmp_path):
    network = star(2, pcap=True, flow_monitor=True)
    model = microbenchmark("all-reduce", 2, 1 << 16)
    result = simulate(model, "default", network, backend="ns3")
    result.save(tmp_path / "result")
    pcap = tmp_path / "result" / "pcap"
    files = sorted(path.name for path in pcap.iterdir())
    assert files == ["0-2.pcap", "1-2.pcap", "2-0.pcap", "2-1.pcap", "flow-monitor.xml"]
    head = (pcap / "0-2.pcap").read_bytes()
    assert head[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1")  # of pcap, in us or ns
    assert len(head) > 1 << 10
    flows = result.provenance["packets"]["flow_monitor"]
    assert {(flow["src"], flow["dst"]) for flow in flows} == {(0, 1), (1, 0)}
    # The last acknowledgements may be in flight when the job has ended.
    assert all(0 <= flow["sent_packets"] - flow["received_packets"] <= 4 for flow in flows)
    assert all(flow["sent_packets"] > 10 and flow["lost_packets"] == 0 for flow in flows)
    (pcap / "0-2.pcap").write_bytes(head[:-1])
    with pytest.raises(StudyError, match=r"pcap/0-2\.pcap is damaged"):
        Result.load(tmp_path / "result")


def test_cancelling_ends_the_program_and_so_does_the_time_limit(ns3):
    ready = prepare(microbenchmark("all-reduce", 2, 1 << 36), "default", star(2), backend="ns3")
    seen = []
    with pytest.raises(Cancelled):
        TcpBackend().run(ready, lambda now, done: len(seen) < 3 and not seen.append(now))
    with pytest.raises(BackendTimeout):
        TcpBackend(timeout_s=0.5).run(ready)
    driver = TcpDriver(ns3, fabric_of(star(2)), TcpPart())
    number = driver._process.pid
    driver.close()
    wait_for(lambda: not Path(f"/proc/{number}").exists())


def test_without_a_compiler_or_a_module_the_next_step_is_named(tmp_path):
    (tmp_path / "include" / "ns3").mkdir(parents=True)
    (tmp_path / "include" / "ns3" / "core-module.h").write_text("")
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libns3.44-core.so").write_text("")
    alone = {name: str(tmp_path) for name in ("PATH", "HOME", "CHAKRASCOPE_NS3")}
    with pytest.raises(BackendUnavailable, match=r"no C\+\+ compiler.*apt-get install g\+\+"):
        build_driver(environment=alone)
    poor = find_ns3({"CHAKRASCOPE_NS3": str(tmp_path)})
    with pytest.raises(BackendUnavailable, match="no module 'internet'"):
        poor.library_of("internet")


@pytest.mark.parametrize(
    ("given", "pattern"),
    [
        ({"congestion-contrl": "cubic"}, "did you mean 'congestion-control'"),
        ({"congestion-control": "vegas"}, "cannot be 'vegas'"),
        ({"queue-disc": "codel"}, "did you mean 'fq-codel'"),
        ({"buffer": "1kB"}, "'tcp': 'buffer' must be between"),
        ({"buffer": "many"}, "'tcp': 'buffer'"),
        ({"mtu": 100}, "'tcp': 'mtu' must be a whole number from 576 to 65,535"),
        ({"mtu": 9000, "buffer": "12kB"}, "must hold two packets"),
        ({"mss": 1460}, "does not fit into the 'mtu'"),
        ({"initial-window": 0}, "initial-window"),
        ({"initial-window": True}, "must be a whole number"),
        ({"send-buffer": "8MiB"}, "must not be larger than the 'receive-buffer'"),
        ({"connections-per-pair": 100}, "connections-per-pair"),
        ({"connect": "never"}, "cannot be 'never'"),
        ({"ecn": "yes"}, "must be true or false"),
        ({"congestion-control": "dctcp", "ecn": False}, "DCTCP needs ECN marks"),
        ({"ecn-threshold": "30kB", "ecn": False}, "'ecn-threshold' needs ECN marks"),
        ({"ecn-threshold": "2MiB"}, "is above the 'buffer'"),
        ({"ecn-threshold": "30kB", "queue-disc": "fifo"}, "needs 'queue-disc: red'"),
        ({"red-thresholds": ["30kB"]}, "must be two sizes"),
        ({"red-thresholds": ["90kB", "30kB"]}, "must be below the second"),
        ({"red-thresholds": ["30kB", "90kB"], "ecn-threshold": "30kB"}, "not both"),
        ({"min-rto": "1h"}, "'tcp': 'min-rto'"),
        ({"min-rto": 0}, "must be between 1.00 µs and 60.0 s"),
        ({"pcap": "/tmp/packets"}, "'tcp': 'pcap' must be true or false"),
        ({"seed": 0}, "seed"),
        ("cubic", "must be a mapping"),
    ],
)
def test_wrong_settings_are_named(given, pattern):
    with pytest.raises(ConfigError, match=pattern):
        TcpPart.from_mapping(given)


def test_the_part_survives_its_file_and_chooses_the_model(tmp_path):
    network = star(4, congestion_control="dctcp", buffer="2MiB", min_rto="10ms")
    network.save(tmp_path / "tcp.yml")
    loaded = NetworkConfig.load(tmp_path / "tcp.yml")
    assert loaded == network
    assert loaded.to_dict()["tcp"] == {"congestion-control": "dctcp", "buffer": "2MiB", "min-rto": "10ms"}
    assert loaded.tcp.complete()["queue-disc"] == "red"
    roce = PacketPart.from_mapping({"CC_MODE": 1})
    plain = NetworkConfig(("Switch",), (2,), (1.0,), (1.0,))
    assert plain.is_tcp
    assert loaded.is_tcp
    assert not replace(plain, packet=roce).is_tcp
    assert replace(plain, packet=roce, tcp=TcpPart()).is_tcp


def test_other_backends_report_that_tcp_has_no_effect():
    model = microbenchmark("all-reduce", 4, 1 << 16)
    for backend in ("analytical-unaware", "analytical-aware"):
        with_part = simulate(model, "default", star(4), backend=backend)
        assert any("'tcp' has no effect" in text for text in with_part.provenance["ignored_keys"])
    plain = NetworkConfig(("Switch",), (4,), star(4).bandwidth, (float(DELAY_NS),))
    assert simulate(model, "default", plain, backend="analytical-aware").makespan_ns == with_part.makespan_ns


def test_settings_of_roce_beside_tcp_are_named(ns3):
    roce = PacketPart.from_mapping({"CC_MODE": 1} | CLOS)
    network = NetworkConfig(("Switch",), (8,), (5.0,), (500.0,), packet=roce, tcp=TcpPart())
    result = simulate(microbenchmark("all-reduce", 8, 1 << 16), "default", network, backend="ns3")
    assert any("no effect on TCP: CC_MODE" in text for text in result.provenance["warnings"])
    assert set(result.links["src"]) > set(range(8, 10))
