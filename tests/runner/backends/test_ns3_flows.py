"""The driver of ns-3: search, compilation, requests and exit; and links that change in a simulation."""

import os
import signal
import stat
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from packets import star
from test_link_changes import assumptions_with

from chakrascope.converter import microbenchmark
from chakrascope.errors import BackendError, BackendTimeout, BackendUnavailable, Cancelled
from chakrascope.runner import NetworkConfig, simulate
from chakrascope.runner.backends.ns3 import TcpDriver, find_compiler, find_ns3
from chakrascope.runner.backends.ns3._build import build_driver
from chakrascope.runner.config import TcpPart, fabric_of, read_failures


def test_a_driver_that_dies_is_named(ns3):
    with TcpDriver(ns3, fabric_of(star(2)), TcpPart()) as driver:
        # The program itself: it may still answer for a moment after the guard that started it has exited.
        guard = driver._process.pid
        program = int(Path(f"/proc/{guard}/task/{guard}/children").read_text("utf-8"))
        os.kill(program, signal.SIGKILL)
        with pytest.raises(BackendError, match=r"SIGKILL \(often: out of memory\)"):
            driver.advance([(0, 0, 1, 10, 0)], -1)


def test_cancelling_and_the_time_limit_take_effect_at_once(ns3):
    endless, packet = [(0, 0, 1, 1 << 40, 0)], fabric_of(star(2))
    end = time.monotonic() + 0.3
    with (
        pytest.raises(Cancelled),
        TcpDriver(ns3, packet, TcpPart(), may_continue=lambda: time.monotonic() < end) as driver,
    ):
        driver.advance(endless, -1)
    with (
        pytest.raises(BackendTimeout, match=r"within 0\.3 s"),
        TcpDriver(ns3, packet, TcpPart(), timeout_s=0.3) as driver,
    ):
        driver.advance(endless, -1)


def script(path, body):
    path.write_text(f"#!{sys.executable}\n{body}")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_driver_that_answers_nonsense_or_nothing_is_an_error(tmp_path):
    packet = fabric_of(star(2))
    silent = script(tmp_path / "silent", "import sys; sys.stderr.write('no memory left'); sys.exit(3)")
    with pytest.raises(BackendError, match=r"exit status 3.*no memory left"):
        TcpDriver(silent, packet, TcpPart())
    refusing = script(tmp_path / "refusing", "print('error there is no such thing', flush=True)")
    with pytest.raises(BackendError, match="no such thing"):
        TcpDriver(refusing, packet, TcpPart())
    odd = script(
        tmp_path / "odd",
        "import sys\nfor line in sys.stdin:\n"
        "    if line == 'build\\n': print('ready', flush=True)\n"
        "    if line.startswith('run'): print('what?', 'now 7', sep='\\n', flush=True)\n",
    )
    with (
        TcpDriver(odd, packet, TcpPart()) as driver,
        pytest.raises(BackendError, match=r"gave an invalid answer.*what\?"),
    ):
        driver.advance([], -1)
    with pytest.raises(BackendUnavailable, match="cannot be started"):
        TcpDriver(tmp_path / "absent", packet, TcpPart())


def fake_ns3(folder):
    (folder / "include" / "ns3").mkdir(parents=True)
    (folder / "include" / "ns3" / "core-module.h").touch()
    (folder / "lib64").mkdir()
    for module in ("core", "flow-monitor", "internet", "network", "point-to-point", "traffic-control"):
        (folder / "lib64" / f"libns3.44-{module}.so").touch()
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


def test_hanging_compiler_can_be_cancelled(tmp_path):
    script(tmp_path / "g++", "import time; time.sleep(600)")
    asked = []
    with pytest.raises(Cancelled):
        find_compiler({"PATH": str(tmp_path)}, lambda: asked.append(None) or len(asked) < 3)


def test_full_disk_is_distinguished_from_a_compile_error(tmp_path):
    said = "a.s: No space left on device"
    script(
        tmp_path / "bin-g++",
        f"import sys\nif '--version' in sys.argv: print('g++ 12.2.0')\nelse: sys.exit({said!r})",
    )
    variables = {"CHAKRASCOPE_NS3": str(fake_ns3(tmp_path / "mine")), "CXX": str(tmp_path / "bin-g++")}
    with pytest.raises(BackendError, match=r"disk is full.*XDG_CACHE_HOME and TMPDIR"):
        build_driver(environment=variables | {"XDG_CACHE_HOME": str(tmp_path / "cache")})


def test_failed_compilation_leaves_no_file(tmp_path):
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


@pytest.fixture
def slow_compiler(tmp_path):
    """Return variables for an ns-3 and a compiler that takes a second and records its calls."""
    script(
        tmp_path / "bin-g++",
        "import sys, time\n"
        "if '--version' in sys.argv:\n    print('g++ 12.2.0')\n    sys.exit()\n"
        f"open({str(tmp_path / 'asked')!r}, 'a').write('x')\n"
        "time.sleep(1)\n"
        "open(sys.argv[sys.argv.index('-o') + 1], 'w').write('program')\n",
    )
    return {
        "CHAKRASCOPE_NS3": str(fake_ns3(tmp_path / "mine")),
        "CXX": str(tmp_path / "bin-g++"),
        "PATH": os.environ["PATH"],
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }


def start_build(variables):
    """Compile in another thread."""
    thread = threading.Thread(target=build_driver, kwargs={"environment": variables}, daemon=True)
    thread.start()
    return thread


def test_what_another_thread_compiles_is_waited_for(tmp_path, slow_compiler, capfd):
    thread = start_build(slow_compiler)
    while not (tmp_path / "asked").is_file():
        assert thread.is_alive()
    program, _ = build_driver(environment=slow_compiler)
    assert program.read_text(encoding="utf-8") == "program"
    assert (tmp_path / "asked").read_text(encoding="utf-8") == "x"
    told = capfd.readouterr().err.splitlines()
    assert told[0] == "Compiling the model of TCP against ns-3 (first use only) ..."
    assert told[-1].startswith("Compiled the model of TCP in ")


def test_waiting_for_another_thread_can_be_cancelled(tmp_path, slow_compiler):
    thread = start_build(slow_compiler)
    while not (tmp_path / "asked").is_file():
        assert thread.is_alive()
    asked = []
    with pytest.raises(Cancelled):
        build_driver(lambda: asked.append(None) or len(asked) < 3, slow_compiler)
    thread.join()
    assert build_driver(environment=slow_compiler)[0].is_file()


# ns-3's TCP over links that fail, slow down or recover during a simulation.

# Two ranks under each of two leaves (4, 5), two spines (6, 7).
LINKS = [[rank, 4 + rank // 2, 1.0, 1000] for rank in range(4)]


LINKS += [[leaf, spine, 1.0, 2000] for leaf in (4, 5) for spine in (6, 7)]


GRAPH = {"topology": ["Switch"], "npus_count": [4], "bandwidth": [1.0], "latency": [100.0], "links": LINKS}
MIB = 1 << 20


def run(*failures, size=4 * MIB):
    network = NetworkConfig.from_mapping(GRAPH | {"failures": list(failures)}, "here")
    return simulate(microbenchmark("all-reduce", 4, size), "default", network, backend="ns3")


def test_rest_of_a_message_takes_the_rate_of_the_slow_link(ns3):
    share, part = 0.5, TcpPart.from_mapping({"buffer": "8MiB", "mtu": 9000})
    star = NetworkConfig(("Switch",), (2,), (1.0,), (1000.0,), tcp=part)

    def arrival(*failures):
        network = replace(star, failures=read_failures(list(failures), (), "here"))
        with TcpDriver(ns3, fabric_of(network), part) as driver:
            return dict(driver.advance([(0, 0, 1, 32 * MIB, 0)], -1))[0]

    whole, middle = arrival(), 10_000_000
    slow = arrival({"link": [0, 2], "rate": share, "at": middle})
    # Packets in flight at that time (at most a window) cross the link at full speed.
    assert slow == pytest.approx(middle + (whole - middle) / share, rel=2e-3)
    back = arrival({"link": [0, 2], "rate": share, "at": middle, "until": 2 * middle})
    assert back == pytest.approx(whole + middle * (1 - share), rel=2e-3)


def test_connections_go_round_a_switch_that_fails(ns3):
    whole, failed = run(), run({"device": 6, "at": "1ms"})
    assert whole.makespan_ns < failed.makespan_ns < 1.1 * whole.makespan_ns
    assert failed.provenance["packets"]["retransmissions"] > 0
    assert failed.provenance["packets"]["timeouts"] == 0
    through = failed.link_use[(failed.link_use["src"] == 6) | (failed.link_use["dst"] == 6)]
    assert not through.empty
    # Nothing crosses it after the packets that waited for it are sent and lost.
    assert through["start_ns"].max() < 2_000_000
    assert failed.flows["bytes"].sum() == whole.flows["bytes"].sum()


def test_loss_on_the_only_path_waits_for_the_timeout(ns3):
    failed = run({"link": [0, 4], "at": "1ms", "until": "2ms"})
    assert failed.makespan_ns > 200_000_000
    assert failed.provenance["packets"]["timeouts"] > 0
    assert assumptions_with(failed, "A link that goes down loses the segments on the link")


def test_ranks_that_are_cut_off_for_good_are_an_error(ns3):
    with pytest.raises(BackendError, match="gave up: its segments are lost again and again"):
        run({"link": [0, 4], "at": "1ms"})
