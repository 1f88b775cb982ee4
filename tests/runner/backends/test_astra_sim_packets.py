"""ASTRA-sim's ns-3 as a backend: its network files, and its output files other than the log."""

import json
import os
import stat
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packets import star
from workloads import coll, comp, recv, workload

from chakrascope.errors import BackendError, BackendTimeout, ChakrascopeError, SimulationStalled
from chakrascope.runner import NetworkConfig, Result, prepare, simulate
from chakrascope.runner.backends import write_inputs
from chakrascope.runner.backends.astra_sim import AstraSimBackend, AstraSimProgram
from chakrascope.runner.backends.astra_sim._outcome import read_flows, read_pauses
from chakrascope.runner.config import PacketPart, fabric_of

FAKE = Path(__file__).with_name("fake_astra_sim.py")
NODES = [[0, 0, 0, 9000], [1, 0, 0, 9000]]
MESSAGES = (
    "0b000001 0b000101 10000 100 524288 10 7744 7535\n0b000101 0b000001 10000 100 524288 20 7700 7535\n"
)
PAUSES = "1000 0 0 1 1\n1500 0 0 1 0\n2000 2 1 1 1\n2010 2 1 1 1\n2300 2 1 1 0\n9000 0 0 1 1\n"


@pytest.fixture
def ns3(tmp_path, monkeypatch):
    path = tmp_path / "ns3.42-AstraSimNetwork-optimized"
    path.write_text(f"#!{sys.executable}\n{FAKE.read_text(encoding='utf-8')}", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("FAKE_NODES", json.dumps(NODES))
    return AstraSimProgram("ns3", path, "test")


def experiment(network=None, model=None):
    model = model or workload([coll(0, 1 << 20)], [coll(0, 1 << 20)])
    return prepare(model, "default", network or star(2), backend="astra-sim:ns3", semantics="astra-sim")


def run(program, monkeypatch, files, lines=()):
    monkeypatch.setenv("FAKE_FILES", json.dumps(files))
    monkeypatch.setenv("FAKE_LINES", json.dumps(lines))
    return AstraSimBackend("ns3", program, 120.0).run(experiment())


def test_messages_pauses_and_losses_are_read(ns3, monkeypatch, tmp_path):
    files = {"FCT_OUTPUT_FILE": MESSAGES, "PFC_OUTPUT_FILE": PAUSES}
    lost = "4711 2 Drop: queue:1,3: Headroom full"
    result = run(ns3, monkeypatch, files, ["ASTRA-sim + NS3", lost, "(0,0)(0,0)", lost])
    assert result.flows.to_numpy().tolist() == [[0, 1, 524288, 10, 7754], [1, 0, 524288, 20, 7720]]
    packets = result.provenance["packets"]
    assert packets["flow_completion_ns"]["mean"] == 7722
    assert (packets["pause_frames"], packets["paused_ns"], packets["drops"]) == (4, 800, 2)
    assert any("2 packets were lost" in text for text in result.provenance["warnings"])
    result.save(tmp_path / "run")
    assert Result.load(tmp_path / "run").flows.equals(result.flows)


def test_a_run_that_wrote_nothing_has_no_messages(ns3, monkeypatch):
    result = run(ns3, monkeypatch, {})
    assert result.flows.empty
    assert "flow_completion_ns" not in result.provenance["packets"]


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("FCT_OUTPUT_FILE", "0b000001 0b000901 10000 100 524288 10 7744 7535\n"),
        ("FCT_OUTPUT_FILE", MESSAGES + "0b000001 0b000101\n"),
        ("FCT_OUTPUT_FILE", "zz 0b000101 10000 100 524288 10 7744 7535\n"),
        ("FCT_OUTPUT_FILE", "0b000001 0b000101 10000 100 -5 10 7744 7535\n"),
        ("PFC_OUTPUT_FILE", "1000 0 0\n"),
        ("PFC_OUTPUT_FILE", "soon 0 0 1 1\n"),
    ],
)
def test_lines_that_are_none_are_named(ns3, monkeypatch, key, text):
    with pytest.raises(BackendError, match=r"Line \d of ASTRA-sim's (fct|pfc)\.txt"):
        run(ns3, monkeypatch, {key: text})


_WORDS = st.one_of(
    st.integers(-1, 1 << 70).map(str),
    st.text(max_size=5),
    st.sampled_from(["0b000001", "0b000101", "\n", "1"]),
)


@given(st.lists(_WORDS, max_size=30).map(" ".join))
def test_no_content_raises_anything_but_our_errors(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("out")
    for name in ("fct.txt", "pfc.txt"):
        (folder / name).write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        flows = read_flows(folder, 2)
        frames, paused_ns = read_pauses(folder)
    except ChakrascopeError:
        return
    assert (flows["end_ns"] >= flows["start_ns"]).all()
    assert min(frames, paused_ns + 1) >= 0


def test_what_would_never_end_is_refused(ns3):
    waiting = workload([comp(0, 2000)], [recv(0, 0, 1)])
    with pytest.raises(SimulationStalled, match="rank 1"):
        AstraSimBackend("ns3", ns3, 120.0).run(experiment(model=waiting))


def test_timeout_on_a_lossy_network_explains_ns3(ns3, monkeypatch):
    monkeypatch.setenv("FAKE_MODE", "hang")
    with pytest.raises(BackendTimeout, match="never completes a message"):
        AstraSimBackend("ns3", ns3, 0.5).run(experiment(star(2, ERROR_RATE_PER_LINK=0.01)))


def test_the_network_is_written_as_astra_sim_reads_it(tmp_path):
    links = [[1, 0, "400Gbps", "500ns", 0], [2, 0, "100Gbps", "500ns", 0.000001234]]
    packet = {"nodes": 3, "switches": [0], "links": links, "KMIN_MAP": {4 * 10**11: 1_234_567}}
    network = NetworkConfig(("Switch",), (2,), (1.0,), (1.0,), packet=PacketPart.from_mapping(packet))
    write_inputs(experiment(network), "ns3", tmp_path, trace=False)
    # Rank r is node r there, and every rate needs its thresholds.
    assert (tmp_path / "topology.txt").read_text().splitlines()[:3] == [
        "3 1 2",
        "2",
        "0 2 400000000000bps 500000ps 0",
    ]
    config = (tmp_path / "config.txt").read_text().splitlines()
    assert "KMIN_MAP 2 100000000000 1234567 400000000000 1234567" in config
    assert "QLEN_MON_START 100000000000000000" in config
    again = fabric_of(NetworkConfig.load(tmp_path / "config.txt"))
    assert [link.loss for link in again.links] == [0, 0.000001234]
    assert again.hosts == (0, 1)


HOME = os.environ.get("ASTRA_SIM_TEST_HOME", "")


@pytest.mark.skipif(not HOME, reason="ASTRA_SIM_TEST_HOME names no ASTRA-sim to test against")
@pytest.mark.parametrize("control", [1, 12])
def test_the_real_ns3_and_ours_answer_alike(monkeypatch, control):
    monkeypatch.setenv("ASTRA_SIM_HOME", HOME)
    model = workload(*[[comp(0, 2000 * (rank + 1)), coll(1, 1 << 20, after=(0,))] for rank in range(4)])
    network = star(4, CC_MODE=control, ASTRA_SIM_CLOCK=1)
    real, ours = (
        simulate(model, "default", network, backend=backend, semantics="astra-sim")
        for backend in ("astra-sim:ns3", "packet")
    )
    assert real.ranks["finish_ns"].tolist() == ours.ranks["finish_ns"].tolist()
    assert real.nodes[["start_ns", "end_ns"]].equals(ours.nodes[["start_ns", "end_ns"]])
    times = ["src", "dst", "bytes", "start_ns", "end_ns"]
    assert sorted(real.flows[times].to_numpy().tolist()) == sorted(ours.flows[times].to_numpy().tolist())
