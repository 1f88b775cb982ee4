"""Packet-level networks: ASTRA-sim's files for ns-3, and translations of dimensions."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chakrascope.errors import ConfigError
from chakrascope.runner import NetworkConfig, list_presets
from chakrascope.runner.backends import write_network
from chakrascope.runner.config import PacketPart, fabric_of

CONFIG = """ENABLE_QCN 1
{a comment} CC_MODE 12
PACKET_PAYLOAD_SIZE 1000
TOPOLOGY_FILE topo.txt
KMIN_MAP 2 100000000000 400 400000000000 800
RATE_AI 50Mb/s
SIMULATOR_STOP_TIME 4000000.00
CC_MODE 1
"""
TOPOLOGY = "5 1 4\n4\n0 4 400Gbps 0.0005ms 0\n1 4 400Gbps 0.0005ms 0\n2 4 100Gbps 1us 0\n3 4 50GBps 0 0.25\n"


@pytest.fixture
def config(tmp_path):
    (tmp_path / "topo.txt").write_text(TOPOLOGY)
    path = tmp_path / "config.txt"
    path.write_text(CONFIG)
    return path


def test_the_files_of_ns3_are_read(config, tmp_path):
    network = NetworkConfig.load(config)
    assert (network.npus_count, network.latency) == ((4,), (500.0,))
    assert network.bandwidth_bytes_per_ns == (50.0,)
    packet = fabric_of(network)
    assert (packet.nodes, packet.switches, packet.hosts) == (5, (4,), (0, 1, 2, 3))
    assert [link.rate_bps for link in packet.links] == [400 * 10**9, 400 * 10**9, 10**11, 400 * 10**9]
    assert [link.delay_ps for link in packet.links] == [500_000, 500_000, 10**6, 0]
    assert packet.links[3].loss == 0.25
    assert packet.settings["CC_MODE"] == 1
    assert packet.settings["KMIN_MAP"] == {10**11: 400.0, 4 * 10**11: 800.0}
    assert packet.settings["VAR_WIN"] == 0
    assert any("SIMULATOR_STOP_TIME" in text for text in packet.warnings())


def test_a_misspelt_setting_is_refused(config):
    config.write_text(CONFIG + "BUFFER_SIZES 7\n")
    with pytest.raises(ConfigError, match=r"no setting 'BUFFER_SIZES'.*BUFFER_SIZE"):
        NetworkConfig.load(config)


def test_files_of_astra_sim_s_count_time_as_it_does(config):
    assert fabric_of(NetworkConfig.load(config)).settings["ASTRA_SIM_CLOCK"] == 1
    config.write_text(CONFIG + "ASTRA_SIM_CLOCK 0\n")
    assert fabric_of(NetworkConfig.load(config)).settings["ASTRA_SIM_CLOCK"] == 0
    plain = NetworkConfig(("Switch",), (4,), (50.0,), (500.0,))
    assert fabric_of(plain).settings["ASTRA_SIM_CLOCK"] == 0


def test_logical_dimensions_come_from_their_file(config, tmp_path):
    logical = tmp_path / "logical.json"
    logical.write_text('{"logical-dims": ["2", "2"]}')
    assert NetworkConfig.load_packet(config, logical).npus_count == (2, 2)
    logical.write_text('{"logical-dims": ["8"]}')
    with pytest.raises(ConfigError, match="4 hosts but the network has 8 ranks"):
        fabric_of(NetworkConfig.load_packet(config, logical))
    for wrong in ("8", "[4294967296]"):
        logical.write_text(f'{{"logical-dims": {wrong}}}')
        with pytest.raises(ConfigError, match=r"logical\.json: 'logical-dims'"):
            NetworkConfig.load_packet(config, logical)


def test_a_packet_network_survives_yaml_and_ns3_files(config, tmp_path):
    network = NetworkConfig.load(config)
    network.save(tmp_path / "network.yml")
    again = NetworkConfig.load(tmp_path / "network.yml")
    assert fabric_of(again) == fabric_of(network)
    write_network(network, "ns3", tmp_path / "out")
    written = fabric_of(NetworkConfig.load(tmp_path / "out" / "config.txt"))
    assert (written.nodes, written.links) == (5, fabric_of(network).links)
    changed = {key for key in written.settings if written.settings[key] != fabric_of(network).settings[key]}
    assert changed == {"TOPOLOGY_FILE"}


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("CC_MODE 1\n", "CC_MODE x\n", "'CC_MODE' must be a number"),
        ("CC_MODE 1\n", "CC_MODE -1\n", "'CC_MODE' must be a number of 0 or more"),
        ("ENABLE_QCN 1", "ENABLE_QCN 2", "must be 0 or 1"),
        ("50Mb/s", "50Mbit", "not a bandwidth.*80Gbps.*alone is in bps"),
        ("2 100000000000", "2000000 100000000000", "the limit is 1000"),
        ("CC_MODE 1\n", "KMAX_MAP 1 2", "ends in the middle of 'KMAX_MAP'"),
        ("topo.txt", "absent.txt", "neither in the working directory"),
    ],
)
def test_wrong_settings_are_named(config, old, new, pattern):
    config.write_text(CONFIG.replace(old, new))
    with pytest.raises(ConfigError, match=pattern):
        NetworkConfig.load(config)


@pytest.mark.parametrize(
    ("old", "new", "pattern"),
    [
        ("5 1 4\n", "5 1 9\n", "ends early"),
        ("400Gbps", "fast", "not a bandwidth.*80Gbps"),
        ("0.0005ms", "soon", "not a duration.*500ns.*alone is in s"),
        ("0 4 400Gbps", "0 9 400Gbps", "nodes are 0 to 4"),
        ("0 4 400Gbps", "0 4 0Gbps", "rate above 0"),
        ("0.25", "1", "loss below 1"),
        ("5 1 4\n4\n", "5 1 4\n7\n", "distinct nodes below 5"),
    ],
)
def test_wrong_topologies_are_named(config, tmp_path, old, new, pattern):
    (tmp_path / "topo.txt").write_text(TOPOLOGY.replace(old, new))
    with pytest.raises(ConfigError, match=pattern):
        NetworkConfig.load(config)


def reachable(packet):
    """Return whether every host reaches every other without passing a third host."""
    near = {node: set() for node in range(packet.nodes)}
    for link in packet.links:
        near[link.a].add(link.b)
        near[link.b].add(link.a)
    hosts = set(packet.hosts)
    for start in hosts:
        seen, queue = {start}, [start]
        while queue:
            node = queue.pop()
            if node != start and node in hosts:
                continue
            queue += near[node] - seen
            seen |= near[node]
        if not hosts <= seen:
            return False
    return True


@settings(max_examples=25, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(["Ring", "Switch", "FullyConnected"]), st.integers(2, 5)),
        min_size=1,
        max_size=3,
    )
)
def test_every_translated_network_connects_all_ranks(dimensions):
    count = len(dimensions)
    network = NetworkConfig(
        tuple(shape for shape, _ in dimensions),
        tuple(size for _, size in dimensions),
        (50.0,) * count,
        (500.0,) * count,
    )
    packet = fabric_of(network)
    assert packet.hosts == tuple(range(network.num_ranks))
    assert reachable(packet)


def clos_network(counts, **fabric):
    shapes = ("Switch",) * len(counts)
    ones = (1.0,) * len(counts)
    return NetworkConfig(shapes, counts, ones, ones, packet=PacketPart.from_mapping({"fabric": fabric}))


@pytest.mark.parametrize(
    ("counts", "fabric", "switches"),
    [
        ((4,), {"hosts_per_leaf": 8}, 1),
        ((16,), {"hosts_per_leaf": 4}, 4 + 4),
        ((16,), {"hosts_per_leaf": 4, "oversubscription": 4}, 4 + 1),
        ((16,), {"hosts_per_leaf": 2, "leaves_per_pod": 4}, 8 + 2 * 2 + 2 * 4),
        ((16,), {"hosts_per_leaf": 2, "leaves_per_pod": 4, "oversubscription": 2}, 8 + 2 * 1 + 1 * 2),
        ((4, 4), {"hosts_per_leaf": 8}, 16 + 4 + 2 + 8),
    ],
)
def test_clos_fabrics_have_the_switches_they_should(counts, fabric, switches):
    packet = fabric_of(clos_network(counts, **fabric))
    assert len(packet.switches) == switches
    assert reachable(packet)


@pytest.mark.parametrize(
    ("fabric", "pattern"),
    [
        ({"hosts_per_leaf": 0}, "a whole number from 1"),
        ({"hosts_per_leafs": 4}, "did you mean 'hosts_per_leaf'"),
        ({"oversubscription": 2}, "needs 'hosts_per_leaf'"),
        ({"hosts_per_leaf": 3, "oversubscription": 2}, "multiple of 'oversubscription'"),
        ({"hosts_per_leaf": 70_000}, "'fabric': 'hosts_per_leaf' must be a whole number from 1 to 65,000"),
    ],
)
def test_wrong_fabrics_are_named(fabric, pattern):
    with pytest.raises(ConfigError, match=pattern):
        fabric_of(clos_network((16,), **fabric))


@pytest.mark.parametrize("name", list_presets("network"))
def test_every_preset_translates(name):
    assert fabric_of(NetworkConfig.preset(name)).warnings() == []


def test_odd_settings_are_named():
    part = PacketPart.from_mapping({"CC_MODE": 2, "KMIN_MAP": {10**9: 5}})
    network = NetworkConfig(("Switch",), (2,), (1.0,), (1.0,), packet=part)
    first, second = fabric_of(network).warnings()
    assert "CC_MODE 2 selects no congestion control" in first
    assert "KMIN_MAP has no entry for 8589934592 bit/s" in second


def test_marking_thresholds_are_interpolated():
    network = NetworkConfig(("Switch",), (2,), (300e9 / 8 / (1 << 30),), (500.0,))
    packet = fabric_of(network)
    assert packet.settings["KMIN_MAP"] == {300 * 10**9: 700}
    slow = NetworkConfig(("Switch",), (2,), (12.5e9 / 8 / (1 << 30),), (500.0,))
    assert fabric_of(slow).settings["KMAX_MAP"] == {12_500_000_000: 200}
