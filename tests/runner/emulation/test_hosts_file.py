"""Hosts files, clocks of hosts, and the lateness of processors."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from chakrascope.converter import Graph, NodeType, Workload
from chakrascope.errors import ConfigError
from chakrascope.runner.emulation import (
    ClockEstimate,
    HostClock,
    Lateness,
    estimate,
    parse_address,
    parse_rate,
    read_setup,
    read_token,
    transport_names,
)

TOKEN = "0123456789abcdef"
HOSTS = "hosts:\n  - {name: a, address: 10.0.0.1}\n"


@pytest.fixture
def written(tmp_path):
    (tmp_path / "token").write_text(TOKEN)

    def write(text, head="listen: 10.0.0.9:7401\ntoken_file: token\n"):
        path = tmp_path / "hosts.yml"
        path.write_text(head + text)
        return str(path)

    return write


def test_hosts_file_places_ranks(written):
    setup = read_setup(
        written(
            "hosts:\n"
            "  - {name: a, nics: [10.0.0.1, 10.1.0.1], ranks: [3, 0], location: leaf 1}\n"
            "  - {name: b, address: 10.0.0.2, slots: 2}\n"
            "  - {address: 10.0.0.3}\n"
            "repeat: 5\njoin: 120s\nlimit: 90s\n"
        )
    )
    assert setup.listen == ("10.0.0.9", 7401)
    assert setup.token == TOKEN.encode()
    assert (setup.repeats, setup.join_s, setup.limit_s) == (5, 120.0, 90.0)
    places = setup.places(5)
    assert [place.host for place in places] == ["a", "b", "b", "a", "10.0.0.3"]
    assert places[3].addresses == ("10.0.0.1", "10.1.0.1")
    assert setup.hosts[0].location == "leaf 1"


def test_options_stand_behind_the_file(written):
    assert read_setup(written(HOSTS) + ",repeat=7,transport=tcp,limit=2s").repeats == 7


def test_namespaces_are_described_by_their_name():
    setup = read_setup("namespaces=4,link=400Mbit,slow.2=25MB/s,nics=2,repeat=3")
    assert setup.rates_bps(4)[2] == 25 * 8 * 10**6
    assert [place.host for place in setup.places(8)] == [f"host{host}" for host in (0, 0, 1, 1, 2, 2, 3, 3)]
    assert setup.places(8)[7].addresses == ("10.77.0.4", "10.77.1.4")
    assert read_setup("namespaces").num_namespaces(3) == 3


def test_loopback_needs_nothing():
    setup = read_setup("loopback")
    assert setup.is_local
    assert {place.addresses for place in setup.places(3)} == {("127.0.0.1",)}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("hosts: 5", "'hosts' must be a list of hosts"),
        ("hosts: [5]", "'hosts' must be a list of hosts"),
        ("hosts: [{name: a}]", "host 0 needs an 'address'"),
        ("hosts: [{adress: 10.0.0.1}]", "no key 'adress' - did you mean 'address'"),
        ("hosts: [{address: a, nics: []}]", "'nics' must be a list of addresses"),
        ("hosts: [{address: a, ranks: 0}]", "'ranks' must be a list of ranks"),
        ("hosts: [{address: a, ranks: [-1]}]", "'ranks' must be a whole number from 0"),
        ("hosts: [{address: a, ranks: [0], slots: 1}]", "'ranks' and 'slots'; leave one"),
        ("hosts: [{address: a, slots: many}]", "'slots' must be a whole number"),
        ("hosts: [{address: a}, {address: a}]", "two hosts called 'a'"),
        (f"{HOSTS}repeet: 3", "no key 'repeet' - did you mean 'repeat'"),
        (f"{HOSTS}repeat: 0", "'repeat' must be a whole number from 1"),
        (f"{HOSTS}transport: tpc", "no transport 'tpc' - did you mean 'tcp'"),
        (f"{HOSTS}limit: soon", "'limit': 'soon' is not a duration"),
        (f"{HOSTS}namespaces: {{count: 2}}", "give one of 'hosts', 'namespaces' and 'loopback'"),
        ("repeat: 3", "give one of 'hosts', 'namespaces' and 'loopback'"),
    ],
)
def test_a_wrong_hosts_file_is_told_in_a_sentence(written, text, said):
    with pytest.raises(ConfigError, match=said):
        read_setup(written(text))


@pytest.mark.parametrize(
    ("head", "said"),
    [
        ("token_file: token\n", "'listen' is missing"),
        ("listen: here\ntoken_file: token\n", "must be HOST:PORT"),
        ("listen: a:99999\ntoken_file: token\n", "must be HOST:PORT"),
        ("listen: a:1\ntoken_file: none\n", "token file .*none cannot be read"),
    ],
)
def test_so_is_a_wrong_place_to_join(written, head, said):
    with pytest.raises(ConfigError, match=said):
        read_setup(written(HOSTS, head))


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("nowhere", "no hosts file 'nowhere'"),
        ("missing.yml", "missing.yml"),
        ("loopback,link=1Mbit", "'link' is an option of namespaces"),
        ("namespaces,lnk=1Mbit", "no option 'lnk' - did you mean 'link'"),
        ("namespaces,link=fast", "'link': 'fast' is not a bandwidth"),
        ("namespaces,link=0Mbit", "must be above 0"),
        ("namespaces=0", "'count' must be a whole number from 1"),
        ("namespaces,slow.1=1Mbit", "'slow' requires 'link'"),
        ("namespaces,link=1Mbit,slow.x=1Mbit", "'slow' must be a whole number"),
        ("namespaces,link=1Gbit,link=2Gbit", "'link' is given twice"),
        ("namespaces=4,count=2", "'count' is given twice"),
        ("namespaces,link=1Gbit,slow.1=2Mbit,slow.1=3Mbit", "'slow.1' is given twice"),
        ("loopback,repeat=2,repeat=3", "'repeat' is given twice"),
        ("namespaces,link.3=1Gbit", "there is no option 'link.3'"),
        ("loopback,repeat.2=5", "there is no option 'repeat.2'"),
    ],
)
def test_so_is_a_wrong_name(spec, said):
    with pytest.raises(ConfigError, match=said):
        read_setup(spec)


def test_ranks_must_fit_the_hosts(written):
    setup = read_setup(
        written("hosts: [{name: a, address: x, ranks: [0]}, {name: b, address: y, ranks: [0]}]")
    )
    with pytest.raises(ConfigError, match="Rank 0 is on the hosts 'a' and 'b'"):
        setup.places(1)
    setup = read_setup(written("hosts: [{name: a, address: x, slots: 2}]"))
    with pytest.raises(ConfigError, match="no host has rank 2"):
        setup.places(3)
    setup = read_setup(written("hosts: [{name: a, address: x, ranks: [0, 1, 2]}]"))
    with pytest.raises(ConfigError, match="the hosts have 3"):
        setup.places(2)
    with pytest.raises(ConfigError, match="Host 4 is slow, but the last of 2 namespaces is 1"):
        read_setup("namespaces,link=1Mbit,slow.4=1Mbit").rates_bps(2)


def test_a_token_is_needed_and_long(monkeypatch, tmp_path):
    monkeypatch.delenv("CHAKRASCOPE_EMULATION_TOKEN", raising=False)
    with pytest.raises(ConfigError, match=r"need a shared token .*environment's CHAKRASCOPE_EMULATION_TOKEN"):
        read_token(None)
    monkeypatch.setenv("CHAKRASCOPE_EMULATION_TOKEN", TOKEN)
    assert read_token(None) == TOKEN.encode()
    (tmp_path / "short").write_text("secret\n")
    with pytest.raises(ConfigError, match="at least 16 characters"):
        read_token(tmp_path / "short")


def test_rates_and_addresses_are_read_as_people_write_them():
    assert (
        parse_rate("400Mbit", "x") == parse_rate("400Mb/s", "x") == parse_rate("50MB/s", "x") == 400_000_000
    )
    assert parse_address("[::1]:80", "x") == ("::1", 80)
    assert "tcp" in transport_names()


# Clocks of hosts: offset and drift from round trips of messages.

SECOND = 1_000_000_000


def trips(offset_ns, ways):
    """Return round trips with these (there, back) times, to a host whose clock is *offset_ns* ahead."""
    now, found = 5 * SECOND, []
    for there, back in ways:
        found.append((now, now + there + offset_ns, now + there + back))
        now += there + back + 1000
    return found


@given(
    st.integers(-(10**15), 10**15),
    st.lists(st.tuples(st.integers(0, 10**7), st.integers(0, 10**7)), min_size=1, max_size=20),
)
def test_the_offset_is_known_to_half_of_the_fastest_round_trip(offset_ns, ways):
    found = estimate(trips(offset_ns, ways))
    assert abs(found.offset_ns - offset_ns) <= found.error_ns + 1
    assert found.error_ns == min(there + back + 1 for there, back in ways) // 2


@given(st.integers(-(10**12), 10**12), st.floats(-200, 200), st.integers(SECOND, 100 * SECOND))
def test_times_of_a_drifting_clock_are_corrected(offset_ns, drift_ppm, at_ns):
    start_ns, before_ns, after_ns = 10 * SECOND, 9 * SECOND, 120 * SECOND

    def shown(coordinator_ns):
        return round(coordinator_ns + offset_ns + (coordinator_ns - before_ns) * drift_ppm / 1e6)

    clock = HostClock(
        ClockEstimate(before_ns, shown(before_ns) - before_ns, 100),
        ClockEstimate(after_ns, shown(after_ns) - after_ns, 200),
    )
    assert clock.drift_ppm == pytest.approx(drift_ppm, abs=1e-3)
    begun = start_ns + clock.before.offset_ns
    measured = np.array([shown(start_ns + at_ns) - begun, -1])
    corrected = clock.corrected(measured, start_ns)
    assert abs(int(corrected[0]) - at_ns) <= 3
    assert corrected[1] == -1
    assert clock.error_ns == 200


def test_a_clock_that_is_shared_needs_no_correction():
    apart = ClockEstimate(0, 5000, 3000)
    clock = HostClock(apart, apart, shared=True)
    assert (clock.drift_ppm, clock.error_ns) == (0.0, 0)
    times = np.array([1, 2, -1])
    assert clock.corrected(times, 0) is times
    assert clock.to_json()["clock_offset_ns"] == 0


# Whether an emulation measured the network or the load of the CPUs.

MS = 1_000_000


def workload(duration_ns=MS, computations=3):
    nodes = [
        {"node_id": number, "name": "work", "type": NodeType.COMP, "duration_ns": duration_ns}
        for number in range(computations)
    ]
    return Workload(
        graphs=(Graph.build(0, nodes, []),),
        program_of_rank=np.zeros(2, np.int32),
        groups={},
        metadata={},
    )


def measured(late_ns):
    """Return the nodes of two ranks, whose computations end late by *late_ns* (rank, computation)."""
    rows = [
        {"rank": rank, "node_id": number, "start_ns": 0, "end_ns": MS + late}
        for rank, own in enumerate(late_ns)
        for number, late in enumerate(own)
    ]
    return pd.DataFrame(rows)


def test_the_rank_where_lateness_adds_up_most_counts():
    late = Lateness.of(workload(), measured([[0, 0, 9], [5, 5, 5]]))
    assert (late.rank, late.total, late.max, late.count) == (1, 15, 9, 6)
    assert (late.to_json()["total"], late.to_json()["long_delays"]) == (15, 0)


@pytest.mark.parametrize(
    ("total", "warned", "refused"), [(0.02, False, False), (0.021, True, False), (0.23, True, True)]
)
def test_a_share_of_the_makespan_decides(total, warned, refused):
    makespan_ns = 1000 * MS
    late = Lateness.of(workload(computations=1), measured([[round(total * makespan_ns)], [0]]))
    assert bool(late.warning(makespan_ns)) == warned
    assert bool(late.refusal(makespan_ns)) == refused


def test_a_pause_of_a_short_job_is_a_warning():
    late = Lateness.of(workload(computations=1), measured([[4 * MS], [0]]))
    assert late.warning(6 * MS)
    assert not late.refusal(6 * MS)


def test_the_refusal_names_rank_share_and_what_to_do():
    text = Lateness.of(workload(computations=1), measured([[0], [500 * MS]])).refusal(1000 * MS)
    assert "rank 1 ended late by 500 ms in total, 50.0 % of the makespan" in text
    assert "fewer ranks" in text


def test_computation_that_ends_early_makes_up_for_nothing():
    late = Lateness.of(workload(computations=2), measured([[-500, 400], [0, 0]]))
    assert late.total == 400


def test_what_waking_up_takes_ends_no_emulation():
    late = Lateness.of(workload(computations=2), measured([[19_000, 19_000], [0, 0]]))
    assert late.long_delays == 0
    assert late.warning(50_000)
    assert not late.refusal(50_000)


def test_without_computation_nothing_is_late():
    nodes = pd.DataFrame({"rank": [0], "node_id": [7], "start_ns": [0], "end_ns": [1]})
    assert Lateness.of(workload(), nodes) is None
