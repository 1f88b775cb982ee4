"""Backends: registration, selection, one rank alone, and limits."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from packets import star
from processes import files_up_to
from workloads import coll, comp, workload

from chakrascope.converter import CollectiveType, microbenchmark
from chakrascope.errors import BackendError, Cancelled, ConfigError
from chakrascope.runner import (
    NetworkConfig,
    SystemConfig,
    Traits,
    about_backend,
    check_setup,
    communication_of,
    prepare,
    simulate,
)
from chakrascope.runner import backends as backends_of
from chakrascope.runner.analysis import summarize, use_over_time
from chakrascope.runner.backends import FakeBackend, write_inputs
from chakrascope.runner.backends._process import scratch_folder
from chakrascope.runner.backends.astra_sim import AstraSimBackend, AstraSimProgram
from chakrascope.runner.backends.ns3 import TcpDriver
from chakrascope.runner.config import TcpPart, fabric_of

# A new backend as CONTRIBUTING describes it: one file; other code reads only its traits.

TOY = '''
"""A backend in one file: every message takes a microsecond."""

from chakrascope.runner import Traits, register
from chakrascope.runner.backends import FakeBackend

register(
    "toy",
    FakeBackend(communication_ns=1000),
    Traits(what="every message takes 1 us", charges="charges every message 1 us", dimensions_only=True),
)
'''
JOB = workload(*[[comp(0, 500), coll(1, 1 << 20, (0,)), comp(2, 9, (1,))] for _ in range(4)])


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.setattr("chakrascope.runner.backends._base._BACKENDS", {})
    monkeypatch.setattr("chakrascope.runner._traits._REGISTERED", {})
    (tmp_path / "toy_backend.py").write_text(TOY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "toy_backend", raising=False)
    import_module("toy_backend")


@pytest.mark.usefixtures("toy")
def test_plugin_backend_simulates_with_its_traits():
    result = simulate(JOB, "default", NetworkConfig(("Ring",), (4,), (50.0,), (500.0,)), backend="toy")
    assert result.makespan_ns == 1509
    assert summarize(result, JOB).makespan_ns == 1509
    assert "toy" in backends_of.backend_names()
    assert {row["backend"]: row["what"] for row in backends_of.backend_report()}["toy"] == (
        "every message takes 1 us"
    )
    assert about_backend("toy").dimensions_only
    # It has no links: checks of a setup report this without knowing the backend's name.
    failing = NetworkConfig.from_mapping(
        {
            "topology": ["Switch"],
            "npus_count": [4],
            "bandwidth": [50.0],
            "latency": [500.0],
            "failures": [{"device": 4}],
        },
        "toy",
    )
    found = check_setup(failing, SystemConfig.preset("default"), communication_of(JOB), ["toy"])
    assert any("'toy' does not model links" in finding.text for finding in found)


@pytest.mark.usefixtures("toy")
def test_its_name_is_taken_once():
    with pytest.raises(ConfigError, match="already a backend called 'toy'"):
        backends_of.register("toy", FakeBackend())


def test_backend_without_traits_gets_defaults(monkeypatch):
    monkeypatch.setattr("chakrascope.runner.backends._base._BACKENDS", {})
    backends_of.register("own", FakeBackend())
    assert about_backend("own") == Traits()


# The backend auto: it runs the flow model, then packets if the flow model may be inaccurate.

MODEL = workload(*[[coll(0, 1 << 20, comm_type=CollectiveType.ALL_TO_ALL)] for _ in range(4)])


def answer(fabric, backend):
    return simulate(MODEL, "default", fabric, backend=backend)


def test_what_no_flag_speaks_against_is_answered_with_flows():
    result, flow = answer(star(4), "auto"), answer(star(4), "flow")
    assert result.makespan_ns == flow.makespan_ns
    told = result.provenance["auto"]
    assert told["answered"] == "flow"
    assert told["flags"] == []
    assert 0 < told["expected"] <= told["asked"] == 0.02
    assert told["cases"] > 100
    assert any("used 'flow'" in line for line in result.provenance["assumptions"])


def test_a_flag_asks_for_packets():
    fabric = star(4, ERROR_RATE_PER_LINK=1e-9)
    result, packet = answer(fabric, "auto"), answer(fabric, "packet")
    assert result.makespan_ns == packet.makespan_ns
    told = result.provenance["auto"]
    assert told["answered"] == "packet"
    assert told["flags"] == ["loss"]
    assert told["flow_makespan_ns"] == answer(fabric, "flow").makespan_ns
    assert any("because of loss" in line for line in result.provenance["assumptions"])


def test_an_error_that_flows_are_not_known_for_asks_for_packets():
    result = answer(star(4), "auto:0.0001%")
    assert result.provenance["auto"]["answered"] == "packet"
    assert result.provenance["auto"]["asked"] == 1e-6
    assert answer(star(4), "auto:0.5").provenance["auto"]["answered"] == "flow"


@pytest.mark.parametrize("name", ["auto:", "auto:much", "auto:-1%", "auto:0", "auto:101%", "auto:nan"])
def test_what_is_no_error_is_refused(name):
    with pytest.raises(ConfigError, match="has no tolerated error"):
        answer(star(4), name)


# A network of one rank is simulated by our backends, but never passed to ASTRA-sim, which needs two.

COMPUTE_NS = 5000
REFUSED = "'alone' has one rank, and ASTRA-sim simulates two or more"


def alone(topology="Switch"):
    return NetworkConfig((topology,), (1,), (1.0,), (500.0,), name="alone")


def job():
    return workload([comp(0, COMPUTE_NS), coll(1, 4096, (0,))])


@pytest.mark.parametrize("topology", ["FullyConnected", "Ring", "Switch"])
@pytest.mark.parametrize("backend", ["analytical-unaware", "analytical-aware", "packet"])
def test_single_rank_sends_no_message(backend, topology):
    result = simulate(job(), "default", alone(topology), backend=backend)
    assert result.ranks["finish_ns"].tolist() == [COMPUTE_NS]
    assert result.links["bytes"].sum() == 0
    assert (result.links["src"] != result.links["dst"]).all()


@pytest.mark.parametrize("kind", ["analytical-unaware", "analytical-aware", "ns3"])
def test_astra_sim_is_not_asked(kind, tmp_path):
    experiment = prepare(job(), "default", alone(), backend=f"astra-sim:{kind}")
    with pytest.raises(ConfigError, match=REFUSED):
        write_inputs(experiment, kind, tmp_path, trace=False)


def test_a_service_is_not_asked():
    pytest.importorskip("grpc", reason="grpcio is not installed (the extra 'service')")
    with pytest.raises(ConfigError, match=REFUSED):
        simulate(job(), "default", alone(), backend="service://127.0.0.1:1")


# The recorded load of links over time in the congestion-aware network.

GIB = 1 << 30


def network(bandwidth, ranks=4):
    described = {"topology": ["Switch"], "npus_count": [ranks], "bandwidth": [bandwidth], "latency": [500.0]}
    return NetworkConfig.from_mapping(described, "here")


@pytest.mark.parametrize("size", [7, 1 << 16, 3_000_001, 1 << 30])
@pytest.mark.parametrize("pattern", ["all-reduce", "all-to-all"])
def test_stretches_add_up_to_the_links_and_none_is_faster_than_its_link(pattern, size):
    bandwidth = 10.0
    result = simulate(
        microbenchmark(pattern, 4, size), "default", network(bandwidth), backend="analytical-aware"
    )
    use, links = result.link_use, result.links[result.links["bytes"] > 0]
    sent = use.groupby(["src", "dst"])["bytes"].sum()
    assert sent.to_dict() == links.set_index(["src", "dst"])["bytes"].to_dict()
    width = use["end_ns"] - use["start_ns"]
    assert width.nunique() == 1
    assert (use["start_ns"] % width == 0).all()
    assert use["start_ns"].max() < result.makespan_ns <= 64 * width.iloc[0]
    # Times are rounded down to whole ns, so the load of a link may slightly exceed its rate.
    messages = links["messages"].max()
    assert (use["bytes"] <= (width + messages) * bandwidth * GIB / 1e9).all()


def test_the_bytes_of_a_long_message_pass_at_the_speed_of_the_link():
    workload = microbenchmark("all-to-all", 2, 1 << 30)
    rates = use_over_time(simulate(workload, "default", network(1.0, 2), backend="analytical-aware")).rates
    assert rates.max() == pytest.approx(GIB / 1e9, rel=1e-3)


def test_link_intervals_are_omitted_without_tables(tmp_path):
    result = simulate(
        microbenchmark("all-reduce", 4, 4096), "default", network(10.0), backend="analytical-unaware"
    )
    assert result.link_use.empty
    result.save(tmp_path / "run")
    assert not (tmp_path / "run" / "link_use.parquet").exists()


# Backends without memory or disk space, and programs that do not read: an error each, nothing left.

FAKE = Path(__file__).with_name("fake_astra_sim.py")


def executable(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def experiment(model=None):
    model = model or workload(*[[coll(0, 1 << 20)] for _ in range(2)])
    return prepare(model, "default", star(2), backend="astra-sim:ns3", semantics="astra-sim")


def test_a_packet_model_without_memory_says_so(ns3, tmp_path):
    tight = executable(tmp_path / "tight", f"#!/bin/sh\nulimit -v 60000\nexec {ns3}\n")
    hosts = 3000
    with pytest.raises(BackendError, match=r"not enough memory|SIGKILL|SIGABRT"):
        TcpDriver(tight, fabric_of(star(hosts)), TcpPart())


@pytest.mark.parametrize("backend", ["analytical-aware", "packet"])
def test_our_engine_without_memory_says_so(backend):
    # A separate process, because the limit cannot be raised again.
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from chakrascope.converter import microbenchmark\n"
        "from chakrascope.errors import BackendError\n"
        "from chakrascope.runner import NetworkConfig, get_backend, prepare\n"
        "ranks = 20_000\n"
        "network = NetworkConfig(('Ring',), (ranks,), (50.0,), (500.0,))\n"
        "job = microbenchmark('all-reduce', ranks, 1 << 30)\n"
        "asked = prepare(job, 'default', network, backend=sys.argv[1])\n"
        "backend = get_backend(asked.backend)\n"
        "used = int(Path('/proc/self/statm').read_text().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (used + (8 << 20),) * 2)\n"
        "try: backend.run(asked)\n"
        "except BackendError as error: print(error)\n"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code, backend],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert "not enough memory to simulate 20000 ranks" in answer.stdout, answer.stderr


def test_cancelling_reaches_a_program_that_does_not_read(tmp_path):
    deaf = executable(tmp_path / "deaf", "#!/bin/sh\nexec sleep 600\n")
    asked = []
    with pytest.raises(Cancelled):
        TcpDriver(
            deaf,
            fabric_of(star(3000)),
            TcpPart(),
            may_continue=lambda: asked.append(None) or len(asked) < 4,
        )


def test_astra_sim_s_inputs_on_a_full_disk(tmp_path, monkeypatch):
    fake = executable(tmp_path / "fake", f"#!{sys.executable}\n{FAKE.read_text(encoding='utf-8')}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    long = workload(*[[comp(node, 1000) for node in range(2000)] for _ in range(2)])
    ready = experiment(long)
    with files_up_to(20_000), pytest.raises(BackendError, match=r"cannot be written.*free disk space"):
        AstraSimBackend("ns3", AstraSimProgram("ns3", fake, "test"), 120.0).run(ready)
    assert [path.name for path in tmp_path.iterdir()] == ["fake"]


def test_astra_sim_that_did_not_notice_a_full_disk(tmp_path, monkeypatch):
    """The program exits normally, although its log and its list of messages are truncated."""
    monkeypatch.setenv("FAKE_NODES", json.dumps([[0, 0, 0, 5], [1, 0, 0, 5]]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake = executable(tmp_path / "fake", f"#!{sys.executable}\n{FAKE.read_text(encoding='utf-8')}")
    with files_up_to(30_000), pytest.raises(BackendError, match=r"scratch folder.*free some disk space"):
        AstraSimBackend("ns3", AstraSimProgram("ns3", fake, "test"), 120.0).run(experiment())
    assert [path.name for path in tmp_path.iterdir()] == ["fake"]


# Files that killed processes left are removed, except those that other processes still use.

HOLD = (
    "import sys\n"
    "from pathlib import Path\n"
    "from chakrascope.runner.backends._process import scratch_folder\n"
    "with scratch_folder(Path(sys.argv[1])) as folder:\n"
    "    (folder / 'input').write_text('much')\n"
    "    print(folder, flush=True)\n"
    "    sys.stdin.read()\n"
)


def holder(base):
    """Start a process that holds a scratch folder; return it and the folder's name."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(base)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    return process, process.stdout.readline().strip()


def test_the_folders_of_killed_processes_are_removed_and_no_others(tmp_path):
    killed, left = holder(tmp_path)
    alive, used = holder(tmp_path)
    with killed, alive:
        killed.kill()
        killed.wait()
        assert {str(path) for path in tmp_path.iterdir()} == {left, used}
        with scratch_folder(tmp_path) as folder:
            assert {str(path) for path in tmp_path.iterdir()} == {used, str(folder)}
        alive.stdin.close()
    assert list(tmp_path.iterdir()) == []
