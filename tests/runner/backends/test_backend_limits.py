"""Backends at their limits: no memory, no disk, programs that do not read: an error each, nothing left."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from full_disk import files_up_to
from packets import star
from workloads import coll, comp, workload

from chakrascope.errors import BackendError, Cancelled
from chakrascope.runner import prepare
from chakrascope.runner.backends.astra_sim import AstraSimBackend, AstraSimProgram
from chakrascope.runner.backends.ns3 import TcpDriver
from chakrascope.runner.config import TcpPart, fabric_of

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
    # A process of its own: the limit cannot be taken back.
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
            keep_going=lambda: asked.append(None) or len(asked) < 4,
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
    """It ends as if nothing were the matter, its log and its list of messages cut short."""
    monkeypatch.setenv("FAKE_NODES", json.dumps([[0, 0, 0, 5], [1, 0, 0, 5]]))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    fake = executable(tmp_path / "fake", f"#!{sys.executable}\n{FAKE.read_text(encoding='utf-8')}")
    with files_up_to(30_000), pytest.raises(BackendError, match=r"scratch folder.*free some disk space"):
        AstraSimBackend("ns3", AstraSimProgram("ns3", fake, "test"), 120.0).run(experiment())
    assert [path.name for path in tmp_path.iterdir()] == ["fake"]


def test_astra_sim_without_memory_or_disk(tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_NODES", json.dumps([[0, 0, 0, 5], [1, 0, 0, 5]]))
    script = tmp_path / "fake.py"
    script.write_text(FAKE.read_text(encoding="utf-8"), encoding="utf-8")
    limits = {"-v 8000": r"exit status|SIG", "-f 0": r"exit status|SIGXFSZ"}
    for limit, pattern in limits.items():
        tight = executable(
            tmp_path / "tight", f'#!/bin/sh\nulimit {limit}\nexec {sys.executable} {script} "$@"\n'
        )
        with pytest.raises(BackendError, match=pattern):
            AstraSimBackend("ns3", AstraSimProgram("ns3", tight, "test"), 120.0).run(experiment())


def test_the_model_cannot_be_compiled_on_a_full_disk(ns3, tmp_path):
    # A process of its own: the compiler must not inherit the limit of the tests.
    (tmp_path / "bin").mkdir()
    writes = '[ "$1" = --version ] && exec echo g++ 14.2.0\nexec head -c 1000000 /dev/zero > tcpnet\n'
    compiler = executable(tmp_path / "bin" / "g++", f"#!/bin/sh\n{writes}")
    code = (
        "from chakrascope.errors import ChakrascopeError\n"
        "from chakrascope.runner.backends.ns3 import build_driver\n"
        "try: build_driver()\n"
        "except ChakrascopeError as error: print(error)\n"
    )
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    environment |= {"CXX": str(compiler)}
    answer = subprocess.run(
        ["sh", "-c", 'ulimit -f 100; exec "$0" -c "$1"', sys.executable, code],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    assert "does not compile" in answer.stdout
    assert not list(tmp_path.rglob("tcpnet"))
