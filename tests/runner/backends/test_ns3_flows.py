"""The packet network as a service: messages in, arrivals out, against closed forms and recorded answers."""

from __future__ import annotations

import os
import signal
import stat
import sys
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from packets import case_network, messages, read_cases, star

from chakrascope.errors import BackendError, BackendTimeout, BackendUnavailable, Cancelled, ConfigError
from chakrascope.runner import NetworkConfig
from chakrascope.runner.backends.ns3 import find_compiler, find_ns3
from chakrascope.runner.backends.ns3._build import build_driver
from chakrascope.runner.backends.ns3._driver import PacketDriver
from chakrascope.runner.config import PacketNetwork, PacketPart

HEADER, ACK, PAYLOAD, DELAY_PS = 36, 48, 1000, 500_000
PS_PER_BYTE = 20  # 400 Gb/s
CONTROLS = [1, 3, 7, 8, 10, 12]


def everything(driver, sent):
    """Send all messages at once and return when each arrived."""
    arrived = dict(driver.advance(sent, -1))
    while len(arrived) < len(sent):
        more = driver.advance([], -1)
        if not more:
            break
        arrived |= dict(more)
    return arrived


def simulate(ns3, network, sent, **options):
    with PacketDriver(ns3, PacketNetwork.of(network), **options) as driver:
        return everything(driver, sent), driver.totals()


def wire_ps(size):
    """Return how long the packets of a message take on one link."""
    packets = -(-size // PAYLOAD)
    return (size + packets * HEADER) * PS_PER_BYTE


def alone_ps(size):
    """Return when the last byte of a message arrives over two links and a switch that stores each packet."""
    last = size % PAYLOAD or PAYLOAD
    first = min(size, PAYLOAD)
    # The last packet waits for the one before it, which is never shorter.
    store = max(first, last) if size > PAYLOAD else last
    tail = (last + HEADER) * PS_PER_BYTE
    if size <= PAYLOAD:
        return 2 * DELAY_PS + 2 * tail
    whole = wire_ps(size - last)
    return 2 * DELAY_PS + whole + (store + HEADER) * PS_PER_BYTE + tail


def rounded(time_ps):
    return -(-time_ps // 1000)


@pytest.mark.parametrize("size", [1, 64, 1000, 1024, 32768, 1 << 20, 1 << 24])
def test_a_message_alone_takes_its_closed_form(ns3, size):
    arrived, totals = simulate(ns3, star(2), [(0, 0, 1, size, 0)])
    assert arrived[0] == rounded(alone_ps(size))
    assert totals.data_packets == -(-size // PAYLOAD)


def test_two_messages_share_a_link_and_lose_nothing(ns3):
    size = 1 << 20
    sent = [(0, 0, 2, size, 0), (1, 1, 2, size, 0)]
    arrived, totals = simulate(ns3, star(3), sent)
    last = 2 * DELAY_PS + 2 * wire_ps(size) + (PAYLOAD + HEADER) * PS_PER_BYTE
    assert max(arrived.values()) == rounded(last)
    assert totals.links["drops"].sum() == 0


@pytest.mark.parametrize("senders", [3, 8])
def test_an_incast_is_bound_by_the_last_link(ns3, senders):
    size = 1 << 20
    sent = [(rank, rank, senders, size, 0) for rank in range(senders)]
    arrived, totals = simulate(ns3, star(senders + 1), sent)
    last = 2 * DELAY_PS + senders * wire_ps(size) + (PAYLOAD + HEADER) * PS_PER_BYTE
    assert max(arrived.values()) == rounded(last)
    towards = totals.links.query("src == @senders + 1 and dst == @senders").iloc[0]
    assert towards["busy_ps"] == senders * wire_ps(size)


def test_a_small_buffer_pauses_and_drops_nothing(ns3):
    size = 1 << 20
    sent = [(rank, rank, 8, size, 0) for rank in range(8)]
    arrived, totals = simulate(ns3, star(9, BUFFER_SIZE=1), sent)
    assert totals.links["pauses"].sum() > 0
    assert totals.links["paused_ps"].sum() > 0
    assert totals.links["drops"].sum() == 0
    last = 2 * DELAY_PS + 8 * wire_ps(size) + (PAYLOAD + HEADER) * PS_PER_BYTE
    assert rounded(last) <= max(arrived.values()) < rounded(last) * 1.01


def test_the_clock_of_astra_sim_rounds_every_packet(ns3):
    precise, _ = simulate(ns3, star(2), [(0, 0, 1, 1 << 20, 0)])
    coarse, _ = simulate(ns3, star(2, ASTRA_SIM_CLOCK=1), [(0, 0, 1, 1 << 20, 0)])
    # 20.72 ns become 21, and the message counts as there when its sender knows.
    packets = -(-(1 << 20) // PAYLOAD)
    last = (1 << 20) % PAYLOAD + HEADER
    tail = round(last * PS_PER_BYTE / 1000)
    assert coarse[0] == 4 * 500 + (packets - 1) * 21 + 21 + tail + 2 * 1
    assert precise[0] < coarse[0]


def reference(path, largest):
    return [case for case in read_cases(path) if len(case["fct"]) <= largest]


def deviations(ns3, case):
    """Return the relative errors of every message of a recorded case, sent when it was sent there."""
    sent, expected = messages(case)
    arrived, _ = simulate(ns3, case_network(case), sent)
    assert sorted(arrived) == sorted(expected)
    starts = {message[0]: message[4] for message in sent}
    return [(arrived[key] - starts[key] - expected[key]) / expected[key] for key in expected]


# Messages that start together were recorded without their order, which decides who goes first.
_UNORDERED = {"sn029": 0.002, "sn052": 0.04, "sn057": 0.0001, "sn006": 0.06, "sn038": 0.02}


@pytest.mark.parametrize("index", range(19))
def test_recorded_messages_take_as_long(ns3, data_dir, index):
    case = read_cases(data_dir / "runner" / "packet_cases.jsonl.gz")[index]
    errors = deviations(ns3, case)
    assert max(map(abs, errors)) <= _UNORDERED.get(case["id"], 0)
    assert abs(sum(errors)) / len(errors) < 0.01


def test_all_recorded_messages_take_as_long(ns3, shared):
    exact = total = 0
    for case in reference(shared / "reference" / "ns3.jsonl.gz", 600):
        if sum(flow[2] for flow in case["fct"]) > 64 << 20:
            continue
        errors = deviations(ns3, case)
        exact += errors.count(0)
        total += len(errors)
        assert abs(sum(errors)) / len(errors) < 0.02, case["id"]
    assert exact / total > 0.85


@pytest.mark.parametrize("control", CONTROLS)
@pytest.mark.parametrize("per_hop", [0, 1])
def test_every_control_finishes_an_incast(ns3, control, per_hop):
    sent = [(rank, rank, 7, 300_000, rank * 100) for rank in range(7)]
    options = {"CC_MODE": control, "MULTI_RATE": per_hop, "MI_THRESH": 5 * per_hop, "BUFFER_SIZE": 4}
    arrived, totals = simulate(ns3, star(8, **options), sent)
    assert sorted(arrived) == list(range(7))
    assert totals.links["drops"].sum() == 0
    floor = 2 * DELAY_PS + 7 * wire_ps(300_000)
    assert max(arrived.values()) >= floor // 1000


@pytest.mark.parametrize("control", [1, 3, 8])
def test_a_control_keeps_packets_waiting_less_than_none(ns3, control):
    sent = [(rank, rank, 7, 2_000_000, 0) for rank in range(7)]
    marks = {"KMIN_MAP": {400 * 10**9: 20}, "KMAX_MAP": {400 * 10**9: 80}, "EWMA_GAIN": 0.0625}
    _, none = simulate(ns3, star(8, **marks), sent)
    _, some = simulate(ns3, star(8, CC_MODE=control, **marks), sent)
    assert some.links["queue_ps"].max() < none.links["queue_ps"].max() / 2


@pytest.mark.parametrize("back_to_zero", [0, 1])
def test_lost_packets_are_sent_again(ns3, back_to_zero):
    packet = {"ERROR_RATE_PER_LINK": 0.01, "RETRANSMIT_TIMEOUT": 50, "L2_BACK_TO_ZERO": back_to_zero}
    sent = [(rank, rank, 3, 200_000, 0) for rank in range(3)]
    arrived, totals = simulate(ns3, star(4, **packet), sent)
    assert sorted(arrived) == [0, 1, 2]
    assert totals.links["drops"].sum() > 0
    again, _ = simulate(ns3, star(4, **packet), sent)
    assert again == arrived
    other, _ = simulate(ns3, star(4, **packet, SEED=2), sent)
    assert other != arrived


_MESSAGES = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 3), st.integers(1, 40_000), st.integers(0, 20_000)),
    min_size=1,
    max_size=8,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_MESSAGES, st.integers(1, 7_000), st.sampled_from(CONTROLS))
def test_the_steps_in_which_time_advances_do_not_matter(ns3, drawn, step_ns, control):
    sent = [(key, a, (a + d) % 4, size, at) for key, (a, d, size, at) in enumerate(drawn)]
    at_once, _ = simulate(ns3, star(4, CC_MODE=control), sent)
    stepped = {}
    with PacketDriver(ns3, PacketNetwork.of(star(4, CC_MODE=control))) as driver:
        now = 0
        waiting = sorted(sent, key=lambda message: message[4])
        while len(stepped) < len(sent):
            due = [message for message in waiting if message[4] <= now]
            waiting = waiting[len(due) :]
            limit = min([now + step_ns, *(message[4] for message in waiting)])
            arrivals = driver.advance(due, limit)
            stepped |= dict(arrivals)
            now = now if arrivals else limit
    assert stepped == at_once


def test_equal_ways_are_both_used(ns3):
    links = [[0, 2, "100Gbps", "1us", 0], [1, 3, "100Gbps", "1us", 0]]
    links += [[leaf, spine, "100Gbps", "1us", 0] for leaf in (2, 3) for spine in (4, 5)]
    part = {"CC_MODE": 12, "GLOBAL_T": 0, "nodes": 6, "switches": [2, 3, 4, 5], "links": links}
    network = NetworkConfig(("Switch",), (2,), (1.0,), (1.0,), packet=PacketPart.from_mapping(part))
    arrived, totals = simulate(ns3, network, [(key, 0, 1, 10_000, key * 50_000) for key in range(20)])
    assert len(arrived) == 20
    spines = totals.links.query("src in (4, 5) and dst == 3")["packets"].to_list()
    assert sum(spines) == 200
    assert min(spines) > 0


@pytest.mark.parametrize(
    ("message", "pattern"),
    [
        ((0, 1, 1, 10, 0), "two different hosts"),
        ((0, 0, 1, 0, 0), "at least one byte"),
    ],
)
def test_impossible_messages_are_refused(ns3, message, pattern):
    with pytest.raises(BackendError, match=pattern):
        simulate(ns3, star(2), [message])


def test_hosts_without_a_way_are_refused(ns3):
    part = {"nodes": 4, "switches": [], "links": [[0, 1, "1Gbps", "1us", 0], [2, 3, "1Gbps", "1us", 0]]}
    network = NetworkConfig(("Switch",), (4,), (1.0,), (1.0,), packet=PacketPart.from_mapping(part))
    with pytest.raises(BackendError, match="no way from host 0 to host 2"):
        simulate(ns3, network, [(0, 0, 2, 10, 0)])


def test_a_payload_of_nothing_is_refused(ns3):
    with pytest.raises(ConfigError, match="PACKET_PAYLOAD_SIZE"):
        simulate(ns3, star(2, PACKET_PAYLOAD_SIZE=0), [])


def test_loads_in_powers_of_one_are_refused(ns3):
    with pytest.raises(ConfigError, match="PINT_LOG_BASE"):
        simulate(ns3, star(2, CC_MODE=10, PINT_LOG_BASE=1), [])


def test_a_driver_that_dies_is_named(ns3):
    with PacketDriver(ns3, PacketNetwork.of(star(2))) as driver:
        os.kill(driver._process.pid, signal.SIGKILL)
        with pytest.raises(BackendError, match=r"SIGKILL \(often: out of memory\)"):
            driver.advance([(0, 0, 1, 10, 0)], -1)


def test_cancelling_and_the_time_limit_take_effect_at_once(ns3):
    endless = [(0, 0, 1, 1 << 40, 0)]
    begun = time.monotonic()
    with pytest.raises(Cancelled):
        simulate(ns3, star(2), endless, keep_going=lambda: time.monotonic() < begun + 0.3)
    with pytest.raises(BackendTimeout, match=r"within 0\.3 s"):
        simulate(ns3, star(2), endless, timeout_s=0.3)


def script(path, body):
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_driver_that_answers_nonsense_or_nothing_is_an_error(tmp_path):
    packet = PacketNetwork.of(star(2))
    silent = script(tmp_path / "silent", "import sys; sys.stderr.write('no memory left'); sys.exit(3)")
    with pytest.raises(BackendError, match=r"exit status 3.*no memory left"):
        PacketDriver(silent, packet)
    refusing = script(tmp_path / "refusing", "print('error there is no such thing', flush=True)")
    with pytest.raises(BackendError, match="no such thing"):
        PacketDriver(refusing, packet)
    odd = script(
        tmp_path / "odd",
        "import sys\nfor line in sys.stdin:\n"
        "    if line == 'build\\n': print('ready', flush=True)\n"
        "    if line.startswith('run'): print('what?', 'now 7', sep='\\n', flush=True)\n",
    )
    with (
        PacketDriver(odd, packet) as driver,
        pytest.raises(BackendError, match=r"cannot be understood.*what\?"),
    ):
        driver.advance([], -1)
    with pytest.raises(BackendUnavailable, match="cannot be started"):
        PacketDriver(tmp_path / "absent", packet)


def fake_ns3(folder):
    (folder / "include" / "ns3").mkdir(parents=True)
    (folder / "include" / "ns3" / "core-module.h").touch()
    (folder / "lib64").mkdir()
    (folder / "lib64" / "libns3.44-core.so").touch()
    return folder


def test_ns3_is_found_where_it_is_named(tmp_path):
    home = fake_ns3(tmp_path / "mine")
    found = find_ns3({"CHAKRASCOPE_NS3": str(home)})
    assert (found.version, found.source, found.include) == ("3.44", "CHAKRASCOPE_NS3", home / "include")
    (home / "lib64" / "libns3.44-core.so").rename(home / "lib64" / "libns3-core.so")
    assert find_ns3({"CHAKRASCOPE_NS3": str(home)}).version == "3"
    (home / "lib64" / "pkgconfig").mkdir()
    (home / "lib64" / "pkgconfig" / "ns3-core.pc").write_text("Name: ns3-core\nVersion: 3.37\n")
    assert find_ns3({"CHAKRASCOPE_NS3": str(home)}).version == "3.37"
    with pytest.raises(
        BackendUnavailable, match=r"pip install --no-deps ns3==3\.44\.post0.*apt-get install g\+\+"
    ):
        find_ns3({"CHAKRASCOPE_NS3": str(tmp_path / "absent")})


def test_absent_and_old_compilers_are_named(tmp_path):
    with pytest.raises(BackendUnavailable, match=r"no C\+\+ compiler.*apt-get install g\+\+"):
        find_compiler({"PATH": str(tmp_path)})
    old = script(tmp_path / "g++", "print('g++ (Debian 8.3.0-6) 8.3.0')")
    with pytest.raises(BackendUnavailable, match="too old"):
        find_compiler({"PATH": str(tmp_path)})
    old.unlink()
    script(tmp_path / "clang++", "print('clang version 8.0.1')")
    assert find_compiler({"PATH": str(tmp_path)}).version == "clang version 8.0.1"


def test_a_compiler_that_never_says_its_version_can_be_cancelled(tmp_path):
    script(tmp_path / "g++", "import time; time.sleep(600)")
    asked = []
    with pytest.raises(Cancelled):
        find_compiler({"PATH": str(tmp_path)}, lambda: asked.append(None) or len(asked) < 3)


def test_a_full_disk_is_told_from_a_model_that_does_not_compile(tmp_path):
    said = "a.s: No space left on device"
    script(
        tmp_path / "bin-g++",
        f"import sys\nif '--version' in sys.argv: print('g++ 12.2.0')\nelse: sys.exit({said!r})",
    )
    variables = {"CHAKRASCOPE_NS3": str(fake_ns3(tmp_path / "mine")), "CXX": str(tmp_path / "bin-g++")}
    with pytest.raises(BackendError, match=r"disk is full.*XDG_CACHE_HOME and TMPDIR"):
        build_driver(environment=variables | {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_a_failing_compilation_is_an_error_that_leaves_nothing(tmp_path):
    home = fake_ns3(tmp_path / "mine")
    compiler = "import sys\nif '--version' in sys.argv: print('g++ 12.2.0')\nelse: sys.exit('no such header')"
    script(tmp_path / "bin-g++", compiler)
    variables = {
        "CHAKRASCOPE_NS3": str(home),
        "CXX": str(tmp_path / "bin-g++"),
        "PATH": os.environ["PATH"],
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    with pytest.raises(BackendError, match=r"exit status 1.*no such header"):
        build_driver(environment=variables)
    with pytest.raises(Cancelled):
        build_driver(lambda: False, variables)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_the_compiled_model_is_kept(ns3, capfd):
    assert build_driver()[0] == ns3
    assert capfd.readouterr().err == ""
