"""Links that fail, slow down or recover during a simulation: closed forms, detours and errors."""

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packets import star

from chakrascope.converter import microbenchmark
from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, engine, simulate
from chakrascope.runner.backends import write_network
from chakrascope.runner.config import fabric_of, read_failures

HEADER, PAYLOAD, DELAY_PS, PS_PER_BYTE = 36, 1000, 500_000, 20
PACKET_PS = (PAYLOAD + HEADER) * PS_PER_BYTE
US = 1_000_000
# Two ranks under each of two leaves (4, 5), two spines (6, 7).
LINKS = [[rank, 4 + rank // 2, 10.0, 100] for rank in range(4)]
LINKS += [[leaf, spine, 10.0, 200] for leaf in (4, 5) for spine in (6, 7)]
GRAPH = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [10.0], "latency": [100.0], "links": LINKS}
BACKENDS = ["packet", "flow", "analytical-aware"]
LARGE = 64 << 20


def clos(*failures, **packet):
    return NetworkConfig.from_mapping(GRAPH | {"failures": list(failures), "packet": packet}, "here")


def run(network, backend="packet", pattern="all-reduce", size=1 << 20):
    return simulate(microbenchmark(pattern, network.num_ranks, size), "default", network, backend=backend)


def failing(network, *failures):
    return replace(network, failures=read_failures(list(failures), (), "here"))


def assumptions_with(result, words):
    return [text for text in result.provenance["assumptions"] if words in text]


def carry(network, sent):
    """Send messages (source, destination, bytes, ns); return when each arrived, in ps, and the report."""
    simulation = engine.PacketSimulation(fabric_of(network))
    for number, (source, destination, size, at_ns) in enumerate(sent):
        simulation.send(number, source, destination, size, at_ns * 1000)
    arrived = {}
    while len(arrived) < len(sent):
        more = dict(simulation.run(1 << 62))
        assert more
        arrived |= more
    return arrived, simulation.report()


def tandem_ps(packets, hop, from_ps, times):
    """Return when the last of equal packets has crossed two links; one is *times* slower from then on."""
    free = [0, 0]
    for _ in range(packets):
        ready = 0
        for link in range(2):
            begin = max(ready, free[link])
            slow = times if link == hop and begin >= from_ps else 1
            free[link] = begin + slow * PACKET_PS
            ready = free[link] + DELAY_PS
    return ready


@pytest.mark.parametrize("hop", [0, 1])
@pytest.mark.parametrize("at_us", [1, 7, 15])
@pytest.mark.parametrize("times", [2, 4])
def test_rest_of_a_message_takes_the_rate_of_the_slow_link(hop, at_us, times):
    failure = {"link": [hop, 2], "rate": 1 / times, "at": f"{at_us}us"}
    # Without a window, only the links delay the packets.
    arrived, report = carry(failing(star(2, HAS_WIN=0), failure), [(0, 1, 1000 * PAYLOAD, 0)])
    assert arrived[0] == tandem_ps(1000, hop, at_us * US, times)
    assert report.changes["time_ns"].tolist() == [at_us * 1000]
    assert report.changes["lost"].tolist() == [0]


def test_a_link_that_recovers_is_as_fast_as_before():
    slow = {"link": [0, 2], "rate": 0.5, "at": "5us", "until": "9us"}
    arrived, _ = carry(failing(star(2, HAS_WIN=0), slow), [(0, 1, 1000 * PAYLOAD, 0)])
    begin = 0
    for _ in range(1000):
        begin += PACKET_PS * (2 if 5 * US <= begin < 9 * US else 1)
    assert arrived[0] == begin + 2 * DELAY_PS + PACKET_PS


def test_a_message_on_a_link_that_is_cut_waits_for_it():
    network = failing(star(2), {"link": [0, 2], "at": "5us", "until": "15us"})
    arrived, report = carry(network, [(0, 1, 1 << 20, 0)])
    whole, _ = carry(star(2), [(0, 1, 1 << 20, 0)])
    lost, waiting = report.changes["lost"].tolist(), report.changes["waiting"].tolist()
    # The packets in flight to the switch, and the acknowledgements in flight from it.
    assert lost[0] > DELAY_PS // PACKET_PS
    assert lost[1:] == [0]
    assert waiting == [1, 0]
    # The host continues when the link has recovered, and retransmits the lost packets.
    assert 10 * US < arrived[0] - whole[0] < 15 * US


def test_a_window_that_is_lost_waits_for_the_timeout():
    cut = {"link": [0, 4], "at": "10us", "until": "50us"}
    late, soon = (run(clos(cut, RETRANSMIT_TIMEOUT=timeout)) for timeout in (1000.0, 200.0))
    assert late.makespan_ns - soon.makespan_ns > 700_000


def test_lost_packets_are_resent_over_the_other_path():
    whole = run(clos())
    cut = run(clos({"link": [4, 6], "at": "30us"}))
    fact = assumptions_with(cut, "Links changed at 30000 ns")
    assert fact
    assert "0 packets lost" not in fact[0]
    assert "0 messages were rerouted" not in fact[0]
    assert cut.makespan_ns > whole.makespan_ns
    assert cut.flows["bytes"].sum() == whole.flows["bytes"].sum()
    assert cut.provenance["packets"]["drops"] > 0
    # Nothing uses the failed link after that: at most one interval extends over the failure.
    late = cut.link_use.query("start_ns > 30000 and ((src == 4 and dst == 6) or (src == 6 and dst == 4))")
    assert late.empty


def test_a_link_that_comes_back_is_used_again():
    cut = run(clos({"link": [4, 6], "at": "30us", "until": "60us"}))
    use = cut.link_use.query("src == 4 and dst == 6")
    assert use["end_ns"].max() > 100_000
    assert len(assumptions_with(cut, "Links changed at")) == 2
    assert run(clos({"link": [4, 6], "at": "30us", "until": "60us"})).makespan_ns == cut.makespan_ns


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "failure", [{"link": [4, 6]}, {"device": 7}, {"link": [0, 4], "rate": 0.3}, {"link": [5, 6], "rate": 0.5}]
)
def test_from_time_zero_is_from_the_start(backend, failure):
    size = LARGE if backend == "flow" else 1 << 20
    start = run(clos(failure), backend, size=size)
    zero = run(clos(failure | {"until": "900s"}), backend, size=size)
    assert zero.makespan_ns == start.makespan_ns
    pd.testing.assert_frame_equal(zero.ranks, start.ranks)
    pd.testing.assert_frame_equal(zero.nodes, start.nodes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_link_changes_after_the_job_have_no_effect(backend):
    size = LARGE if backend == "flow" else 1 << 20
    whole = run(clos(), backend, size=size)
    late = run(clos({"device": 6, "at": "5s"}), backend, size=size)
    assert late.makespan_ns == whole.makespan_ns
    pd.testing.assert_frame_equal(late.nodes, whole.nodes)
    if backend != "analytical-aware":
        assert assumptions_with(late, "The job ended before the link change at 5000000000 ns.")


@pytest.mark.parametrize("backend", BACKENDS)
def test_ranks_that_are_cut_off_for_good_are_named(backend):
    with pytest.raises(ConfigError, match=r"no path from rank \d to rank \d over the links that are up"):
        run(clos({"link": [0, 4], "at": "10us"}), backend)
    with pytest.raises(ConfigError, match=r"no path from rank"):
        run(clos({"device": 6, "at": "10us"}, {"device": 7, "at": "20us"}), backend)
    ended = run(clos({"link": [0, 4], "at": "10us", "until": "2ms"}), backend)
    assert ended.makespan_ns > 2_000_000


@pytest.mark.parametrize("control", [1, 3, 7, 8, 10, 12])
@pytest.mark.parametrize("clock", [0, 1])
def test_every_congestion_control_gets_over_a_failure(control, clock):
    network = clos(
        {"link": [4, 6], "at": "20us", "until": "70us"},
        {"link": [1, 4], "rate": 0.5, "at": "30us"},
        CC_MODE=control,
        ASTRA_SIM_CLOCK=clock,
    )
    result = run(network, pattern="all-to-all")
    assert result.makespan_ns == run(network, pattern="all-to-all").makespan_ns
    whole = run(clos(CC_MODE=control, ASTRA_SIM_CLOCK=clock), pattern="all-to-all")
    assert result.flows["bytes"].sum() == whole.flows["bytes"].sum()
    assert result.makespan_ns > whole.makespan_ns


def test_pauses_end_with_the_link_that_they_were_sent_over():
    failures = [{"link": [rank, 8], "at": "20us", "until": "40us"} for rank in (0, 8 - 1)]
    sent = [(rank, 7, 1 << 20, 0) for rank in range(7)]
    network = failing(star(8, BUFFER_SIZE=1), *failures)
    arrived, report = carry(network, sent)
    assert len(arrived) == 7
    assert report.links["pauses"].sum() > 0


def test_a_host_with_two_interfaces_goes_on_with_the_other():
    part = {
        "nodes": 4,
        "switches": [2, 3],
        "links": [[a, b, "100Gbps", "1us"] for a in (0, 1) for b in (2, 3)],
    }
    data = {"topology": ["Switch"], "npus_count": [2], "bandwidth": [1.0], "latency": [1.0], "packet": part}
    network = NetworkConfig.from_mapping(data, "here")
    sent = [(0, 1, 1 << 18, 0), (0, 1, 1 << 18, 0)]
    for spine in (2, 3):
        dead = failing(network, {"link": [0, spine], "at": "5us"})
        arrived, report = carry(dead, sent)
        assert len(arrived) == 2
        assert report.changes["rerouted"].sum() >= 1
        links = pd.DataFrame(report.links)
        other = links[(links["src"] == 0) & (links["dst"] == 5 - spine)]
        assert other["bytes"].sum() > 1 << 18


def failures_for_a_time():
    """Draw up to four temporary failures of links of the Clos fabric."""

    def failure(link, at, lasts, rate):
        return {"link": list(link), "at": f"{at}us", "until": f"{at + lasts}us", "rate": rate}

    links = st.sampled_from([(4, 6), (4, 7), (5, 6), (5, 7), (0, 4), (3, 5)])
    one = st.builds(failure, links, st.integers(0, 90), st.integers(1, 60), st.sampled_from([0, 0.25]))
    return st.lists(one, max_size=4, unique_by=lambda failure: tuple(failure["link"]))


@settings(max_examples=25, deadline=None)
@given(failures_for_a_time())
def test_whatever_fails_for_a_time_every_message_arrives(failures):
    sent = [(a, b, 1 << 18, 5000 * a) for a in range(4) for b in range(4) if a != b]
    first, report = carry(clos(*failures, RETRANSMIT_TIMEOUT=100.0), sent)
    again, _ = carry(clos(*failures, RETRANSMIT_TIMEOUT=100.0), sent)
    assert first == again
    whole, _ = carry(clos(), sent)
    assert set(first) == set(whole)
    assert report.data_packets >= sum(-(-size // PAYLOAD) for _, _, size, _ in sent)


def test_closed_form_of_the_analytical_network():
    config = NetworkConfig(("Switch",), (2,), (8.0,), (100.0,))
    size = 1 << 20
    whole = run(config, "analytical-aware", size=size).makespan_ns
    later = {"link": [0, 2], "rate": 0.5, "at": f"{whole // 2} ns"}
    slow = run(failing(config, later), "analytical-aware", size=size).makespan_ns
    # The second of two steps, each of half the size, crosses the slow link once in each direction.
    cut = run(failing(config, {"link": [0, 2], "rate": 0.5, "until": "900s"}), "analytical-aware", size=size)
    once = (size / 2) / (8 * 2**30 / 1e9)
    assert slow - whole == pytest.approx(once, rel=1e-3)
    assert cut.makespan_ns > slow


def test_link_down_of_astra_sim_is_a_failure_from_two_seconds_on():
    network = clos(LINK_DOWN=[5, 4, 6])
    packet = fabric_of(network)
    assert packet.changes == ((2_000_005_000, 4, 0),)
    result = run(network)
    assert result.makespan_ns == run(clos()).makespan_ns
    assert assumptions_with(result, "LINK_DOWN: the link of nodes 4 and 6 is down from 2 s + 5 us")
    sent = [(0, 2, 1 << 20, 2_000_000_000), (1, 3, 1 << 20, 2_000_000_000)]
    arrived, report = carry(network, sent)
    assert len(arrived) == 2
    assert report.changes["time_ns"].tolist() == [2_000_005_000]
    for wrong in ([5, 4, 9], [5, 0, 1]):
        with pytest.raises(ConfigError, match=r"LINK_DOWN must be|has no link between"):
            run(clos(LINK_DOWN=wrong))
    late, whole = (run(each, "flow", size=LARGE).makespan_ns for each in (network, clos()))
    assert late == whole


def test_link_down_is_written_for_hosts_first(tmp_path):
    part = {
        "nodes": 4,
        "switches": [1],
        "links": [[0, 1, "10Gbps", "1us"], [2, 1, "10Gbps", "1us"], [3, 1, "10Gbps", "1us"]],
        "LINK_DOWN": [7, 3, 1],
    }
    data = {"topology": ["Switch"], "npus_count": [3], "bandwidth": [1.0], "latency": [1.0], "packet": part}
    write_network(NetworkConfig.from_mapping(data, "here"), "ns3", tmp_path)
    assert "LINK_DOWN 7 2 3\n" in (tmp_path / "config.txt").read_text(encoding="utf-8")


def test_losses_without_retransmission_are_refused():
    with pytest.raises(ConfigError, match=r"RETRANSMIT_TIMEOUT is 0.* set it to a few us, such as 1000"):
        run(clos({"link": [4, 6], "at": "30us"}, RETRANSMIT_TIMEOUT=0.0))
    slow = {"link": [4, 6], "rate": 0.5, "at": "30us"}
    assert run(clos(slow, RETRANSMIT_TIMEOUT=0.0)).makespan_ns > 0


@pytest.mark.parametrize("backend", ["astra-sim:ns3", "analytical-unaware"])
def test_backends_that_cannot_change_links_refuse(backend):
    network = replace(clos({"link": [4, 6], "at": "5us"}), packet=None)
    with pytest.raises(ConfigError, match=r"only 'analytical-aware', .* 'ns3' support|does not model links"):
        run(network, backend)


def test_auto_asks_packets_about_links_that_change():
    network = clos({"link": [4, 6], "at": "5us"})
    result = run(network, "auto")
    assert result.makespan_ns == run(network, "packet").makespan_ns
    assert result.provenance["auto"]["answered"] == "packet"
    assert "links change during the simulation" in result.provenance["assumptions"][-1]


def test_one_link_may_fail_again_later():
    twice = clos({"link": [4, 6], "at": "10us", "until": "20us"}, {"link": [6, 4], "at": "20us", "rate": 0.5})
    changes = fabric_of(twice).changes
    whole = 10 * 2**30 * 8
    assert [(time, rate) for time, _, rate in changes] == [(10_000, 0), (20_000, whole // 2)]
    assert run(twice).makespan_ns > 0
    with pytest.raises(ConfigError, match="two entries of the same link or device at the same time"):
        clos({"link": [4, 6], "at": "10us", "until": "20us"}, {"link": [6, 4], "at": "19us", "rate": 0.5})


def test_failures_of_a_link_and_of_its_switch_add_up():
    both = clos(
        {"link": [4, 6], "rate": 0.5, "at": "10us", "until": "40us"},
        {"device": 6, "rate": 0.5, "at": "20us", "until": "30us"},
    )
    changes = fabric_of(both).changes
    whole = 10 * 2**30 * 8
    of_link = [(time, rate) for time, link, rate in changes if link == 4]
    assert of_link == [
        (10_000, whole // 2),
        (20_000, whole // 4),
        (30_000, whole // 2),
        (40_000, whole),
    ]


@pytest.mark.parametrize("key", ["at", "until"])
@pytest.mark.parametrize("value", ["soon", "-5us", -1, "3 apples", [1], "2e13 ns"])
def test_times_that_are_none_are_refused(key, value):
    with pytest.raises(ConfigError, match=f"'{key}'"):
        clos({"link": [4, 6], key: value})
