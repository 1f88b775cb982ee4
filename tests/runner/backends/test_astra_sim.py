"""The backends that run the user's own ASTRA-sim, with a fake program that writes its log format."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import is_running, wait_for
from workloads import coll, comp, recv, send, workload

from chakrascope.converter import Workload
from chakrascope.errors import (
    BackendError,
    BackendTimeout,
    BackendUnavailable,
    Cancelled,
    ChakrascopeError,
    ConfigError,
    SimulationStalled,
)
from chakrascope.runner import NetworkConfig, SystemConfig, critical_path, get_backend, prepare
from chakrascope.runner.backends.astra_sim import (
    AstraSimBackend,
    AstraSimLog,
    AstraSimProgram,
    find_astra_sim,
    read_trace,
)
from chakrascope.runner.backends.astra_sim._backend import locate
from chakrascope.runner.backends.astra_sim._inputs import write_inputs
from chakrascope.runner.backends.astra_sim._log import Trace, log_lines
from chakrascope.runner.config import PacketPart

FAKE = Path(__file__).with_name("fake_astra_sim.py")
NETWORK = NetworkConfig(("Switch",), (2,), (50.0,), (500.0,))
NODES = [[0, 0, 0, 2000], [0, 1, 2000, 9000], [1, 0, 0, 5000], [1, 1, 5000, 9000]]


@pytest.fixture(autouse=True)
def _clean(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("ASTRA_SIM_HOME", raising=False)
    monkeypatch.setenv("FAKE_NODES", json.dumps(NODES))


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "AstraSim_Analytical_Congestion_Unaware"
    path.write_text(f"#!{sys.executable}\n{FAKE.read_text(encoding='utf-8')}", encoding="utf-8")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return AstraSimProgram("analytical-unaware", path, "test")


def two_ranks() -> Workload:
    return workload(
        [comp(0, 2000), coll(1, 1 << 20, after=(0,))],
        [comp(0, 5000), coll(1, 1 << 20, after=(0,))],
    )


def experiment(system=None, **options):
    options.setdefault("semantics", "astra-sim")
    system = system or SystemConfig.preset("default")
    return prepare(two_ranks(), system, NETWORK, backend="astra-sim:analytical-unaware", **options)


def run(program, mode, monkeypatch, *, timeout_s=120.0, progress=None, **options):
    monkeypatch.setenv("FAKE_MODE", mode)
    backend = AstraSimBackend("analytical-unaware", program, timeout_s)
    return backend.run(experiment(**options), progress)


def test_a_run_becomes_a_result_with_causes_and_a_critical_path(program, monkeypatch):
    result = run(program, "ok", monkeypatch)
    assert result.makespan_ns == 9000
    assert result.ranks[["finish_ns", "compute_ns", "comm_ns"]].to_numpy().tolist() == [[9000, 7, 5]] * 2
    assert result.nodes["cause_node"].tolist() == [-1, 0, -1, 0]
    assert result.nodes[["origin_rank", "origin_node"]].to_numpy().tolist() == [
        [0, 0],
        [1, 1],
        [1, 0],
        [1, 1],
    ]
    assert result.collectives["wait_ns"].tolist() == [3000, 0]
    segments = critical_path(result, two_ranks()).segments
    assert segments[["rank", "node_id", "start_ns", "end_ns"]].to_numpy().tolist() == [
        [1, 0, 0, 5000],
        [0, 1, 5000, 9000],
    ]
    assert result.provenance["nodes_executed"] == 4
    assert any("inferred" in text for text in result.provenance["assumptions"])


def test_inputs_leave_nothing_to_uninitialised_memory(program, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_COPY", str(tmp_path / "seen.json"))
    system = SystemConfig(all_reduce_implementation=("ring",))
    run(program, "ok", monkeypatch, system=system, groups={1: (1, 0)}, rendezvous=True, injection_scale=0.5)
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["system"]["scheduling-policy"] == "LIFO"
    assert seen["system"]["preferred-dataset-splits"] == 1
    assert seen["system"]["collective-optimization"] == "localBWAware"
    assert seen["system"]["trace-enabled"] == 1
    assert "--rendezvous-protocol=true" in seen["options"]
    assert "--injection-scale=0.5" in seen["options"]
    assert "--comm-group-configuration=groups.json" in seen["options"]


def test_links_that_the_program_would_not_see_are_refused(program):
    part = PacketPart.from_mapping({"fabric": {"hosts_per_leaf": 1}})
    fabric = NetworkConfig(
        ("Switch",),
        (2,),
        (50.0,),
        (500.0,),
        packet=part,
    )
    asked = replace(experiment(), network=fabric)
    for kind, seen in (("analytical-aware", False), ("analytical-unaware", True)):
        with nullcontext() if seen else pytest.raises(ConfigError, match="graph of links"):
            AstraSimBackend(kind, replace(program, kind=kind), 120.0).run(asked)


def test_custom_algorithms_are_copied(program, monkeypatch, tmp_path):
    (tmp_path / "mine.0.et").write_bytes(b"x")
    (tmp_path / "system.json").write_text('{"all-reduce-implementation-custom": ["mine"]}')
    monkeypatch.setenv("FAKE_COPY", str(tmp_path / "seen.json"))
    run(program, "ok", monkeypatch, system=SystemConfig.load(tmp_path / "system.json"))
    seen = json.loads((tmp_path / "seen.json").read_text())
    assert seen["system"]["all-reduce-implementation-custom"] == ["custom/all_reduce"]
    (tmp_path / "mine.0.et").unlink()
    with pytest.raises(ConfigError, match="'mine' has no files"):
        run(program, "ok", monkeypatch, system=SystemConfig.load(tmp_path / "system.json"))


@pytest.mark.parametrize(("table", "kept"), [("{7: mine}", "7: custom/node-7\n"), ("{}", "{}\n")])
def test_the_table_of_custom_algorithms_is_copied(table, kept, tmp_path):
    (tmp_path / "mine.0.et").write_bytes(b"x")
    (tmp_path / "table.yml").write_text(table)
    system = SystemConfig(per_node_custom_implementation="table.yml", folder=tmp_path)
    (tmp_path / "run").mkdir()
    write_inputs(replace(experiment(), system=system), "analytical-unaware", tmp_path / "run", trace=False)
    written = SystemConfig.load(tmp_path / "run" / "system.json")
    assert (tmp_path / "run" / str(written.per_node_custom_implementation)).read_text() == kept


def test_captured_semantics_are_named_as_lost(program, monkeypatch):
    result = run(program, "ok", monkeypatch, semantics="trace")
    assert any("the lanes of the captured trace" in text for text in result.provenance["warnings"])


def test_a_log_without_nodes_gives_ranks_and_says_so(program, monkeypatch):
    result = run(program, "no-trace", monkeypatch)
    assert result.nodes.empty
    assert any("0 of 4" in text for text in result.provenance["warnings"])


def test_the_exposed_time_may_be_negative(program, monkeypatch):
    assert run(program, "wrap", monkeypatch).ranks["exposed_comm_ns"].tolist() == [-3, -3]


@pytest.mark.parametrize(
    ("mode", "pattern"),
    [
        ("abort", r"SIGABRT.*Node 7 in data_dep graph"),
        ("exit", r"exit status 1.*unknown value for scheduling policy"),
        ("killed", r"SIGKILL \(often: out of memory\)"),
        ("silent", r"without reporting a single rank"),
        ("strange", r"reports rank 5"),
        ("overflow", r"beyond 2\^63"),
    ],
)
def test_failure_is_explained(program, monkeypatch, mode, pattern):
    with pytest.raises(BackendError, match=pattern):
        run(program, mode, monkeypatch)


def test_a_stall_names_ranks_and_nodes(program, monkeypatch):
    monkeypatch.setenv("FAKE_NODES", json.dumps([*NODES[:3], [1, 1, 5000, -1]]))
    with pytest.raises(SimulationStalled, match=r"1 of 2 ranks.*rank 1 is in 'coll1' \(node 1\)") as caught:
        run(program, "stall", monkeypatch)
    assert caught.value.waits[0]["node_id"] == 1


@pytest.mark.parametrize("mode", ["hang", "flood", "flood-without-lines"])
def test_a_program_that_does_not_end_is_stopped(program, monkeypatch, mode, tmp_path):
    pids = tmp_path / "pids"
    monkeypatch.setenv("FAKE_PID_FILE", str(pids))
    began = []

    def monotonic():
        """Stop the clock until the program has started, for as long as that takes."""
        now = time.monotonic()
        if not began and pids.is_file():
            began.append(now)
        return now - began[0] if began else 0.0

    clock = SimpleNamespace(monotonic=monotonic, sleep=time.sleep)
    monkeypatch.setattr("chakrascope.runner.backends._process.time", clock)
    with pytest.raises(BackendTimeout, match="did not finish within 1 s"):
        run(program, mode, monkeypatch, timeout_s=1.0)
    assert_gone(pids)


def test_cancelling_stops_the_program_at_once(program, monkeypatch, tmp_path):
    monkeypatch.setenv("FAKE_PID_FILE", str(tmp_path / "pids"))
    seen = []

    def progress(now_ns, finished):
        seen.append((now_ns, finished))
        return finished == 0

    with pytest.raises(Cancelled):
        run(program, "hang", monkeypatch, progress=progress)
    assert seen[-1] == (5, 1)
    assert_gone(tmp_path / "pids")


def test_cancelling_works_once_all_ranks_have_finished(program, monkeypatch):
    """For example, while the log is still being read."""
    with pytest.raises(Cancelled):
        run(program, "ok", monkeypatch, progress=lambda now_ns, finished: finished < 2)


def test_a_child_left_behind_does_not_hold_the_run(program, monkeypatch):
    assert run(program, "leaves-child", monkeypatch).makespan_ns == 9000


def test_the_program_dies_with_us(program, tmp_path, monkeypatch):
    monkeypatch.setenv("FAKE_MODE", "hang")
    monkeypatch.setenv("FAKE_PID_FILE", str(tmp_path / "pids"))
    source = (
        "import sys; from pathlib import Path\n"
        f"sys.path[:0] = {[str(Path(__file__).parent), str(Path(__file__).parent.parent), *sys.path]!r}\n"
        "import test_astra_sim as t\n"
        f"p = t.AstraSimProgram('analytical-unaware', Path({str(program.path)!r}), 'test')\n"
        "t.AstraSimBackend('analytical-unaware', p, 60).run(t.experiment())\n"
    )
    ours = subprocess.Popen([sys.executable, "-c", source])
    wait_for(lambda: (tmp_path / "pids").is_file() and (tmp_path / "pids").read_text())
    ours.kill()
    ours.wait()
    assert_gone(tmp_path / "pids")


def assert_gone(path: Path) -> None:
    pids = [int(word) for word in path.read_text().split()]
    wait_for(lambda: not any(map(is_running, pids)))


def test_a_program_that_cannot_be_executed(tmp_path, monkeypatch):
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    with pytest.raises(BackendError, match="cannot start"):
        run(AstraSimProgram("analytical-unaware", broken, "test"), "ok", monkeypatch)


def test_the_timeout_comes_from_the_environment(program, monkeypatch):
    monkeypatch.setenv("CHAKRASCOPE_BACKEND_TIMEOUT", "soon")
    with pytest.raises(ConfigError, match="CHAKRASCOPE_BACKEND_TIMEOUT"):
        run(program, "ok", monkeypatch, timeout_s=None)
    monkeypatch.setenv("CHAKRASCOPE_BACKEND_TIMEOUT", "1")
    with pytest.raises(BackendTimeout):
        run(program, "hang", monkeypatch, timeout_s=None)


def executable(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_programs_are_found_in_settings_checkout_and_path(tmp_path):
    home = tmp_path / "astra"
    aware = executable(tmp_path / "bin/AstraSim_Analytical_Congestion_Aware")
    scratch = home / "extern/network_backend/ns-3/build/scratch"
    executable(scratch / "ns3.42-AstraSimNetwork-default")
    fast = executable(scratch / "ns3.42-AstraSimNetwork-optimized")
    (home / "astra-sim").mkdir()
    (home / ".git/refs/heads").mkdir(parents=True)
    (home / ".git/HEAD").write_text("ref: refs/heads/main\n")
    (home / ".git/refs/heads/main").write_text("0123456789abcdef0123\n")
    mine = executable(tmp_path / "mine")
    settings_file = tmp_path / "config/chakrascope/backends.yml"
    settings_file.parent.mkdir(parents=True)
    settings_file.write_text(f"astra-sim: {{analytical-unaware: {mine}}}\n")
    variables = {
        "ASTRA_SIM_HOME": str(home),
        "PATH": str(tmp_path / "bin"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
    }
    found = find_astra_sim(variables)
    assert {kind: (item.path, item.source) for kind, item in found.items()} == {
        "analytical-aware": (aware, "PATH"),
        "analytical-unaware": (mine, "backends.yml"),
        "ns3": (fast, "ASTRA_SIM_HOME"),
    }
    assert found["ns3"].version == "0123456789ab"
    settings_file.write_text("astra-sim: {analytical: /x}\n")
    with pytest.raises(ConfigError, match="analytical-aware"):
        find_astra_sim(variables)


def test_absent_programs_are_named_with_the_next_step(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    for kind in ("analytical-aware", "analytical-unaware", "ns3"):
        with pytest.raises(BackendUnavailable, match="ASTRA_SIM_HOME"):
            get_backend(f"astra-sim:{kind}").run(experiment())


def test_an_unknown_part_of_the_users_file_is_named(tmp_path):
    settings_file = tmp_path / "chakrascope" / "backends.yml"
    settings_file.parent.mkdir()
    settings_file.write_text("astra_sim: {home: /opt/astra-sim}\n")
    with pytest.raises(ConfigError, match=r"no key 'astra_sim' - did you mean 'astra-sim'"):
        find_astra_sim({"XDG_CONFIG_HOME": str(tmp_path)})


def test_errors_of_a_named_program_are_reported(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    variables = {"HOME": str(tmp_path), "PATH": str(tmp_path / "nothing")}
    settings_file = tmp_path / ".config" / "chakrascope" / "backends.yml"
    settings_file.parent.mkdir(parents=True)

    def refusal(settings, **more):
        settings_file.write_text(f"astra-sim: {settings}\n")
        with pytest.raises(BackendUnavailable) as caught:
            locate("analytical-unaware", variables | more)
        return caught.value.message

    absent, home = tmp_path / "absent", tmp_path / "home"
    home.mkdir()
    assert f"there is no folder {absent}, which backends.yml names; correct it there" in refusal(
        f"{{home: {absent}}}"
    )
    assert f"there is no folder {absent}, which ASTRA_SIM_HOME names" in refusal(
        "{}", ASTRA_SIM_HOME=str(absent)
    )
    assert f"not found in the checkout {home}, which backends.yml names" in refusal(f"{{home: {home}}}")
    assert f"is not at {absent}, where backends.yml says" in refusal(f"{{analytical-unaware: {absent}}}")
    program = home / "AstraSim_Analytical_Congestion_Unaware"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o644)
    blocked = f"may not be executed; allow it with 'chmod +x {program}'"
    assert blocked in refusal(f"{{home: {home}}}")
    assert f"{program}, of ASTRA_SIM_HOME, and {blocked}" in refusal("{}", ASTRA_SIM_HOME=str(home))
    assert f"{program}, of PATH, and {blocked}" in refusal("{}", PATH=str(home))
    later = tmp_path / "later"
    later.mkdir()
    other = later / program.name
    other.write_text("#!/bin/sh\n")
    other.chmod(0o755)
    settings_file.write_text("astra-sim: {}\n")
    found = locate("analytical-unaware", variables | {"PATH": f"{home}:{later}"})
    assert (found.path, found.source) == (other, "PATH")


_PIECES = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "sys[0] finished, ",
            "sys[1] finished, 12 cycles, exposed communication 3 cycles.",
            "sys[99999999999] finished, 1 cycles",
            "sys[0], GPU time: ",
            "sys[0], Comm time: 12.5",
            "issue,sys->id=0, tick=5, node->id=1, node->name=a, node->type=4",
            "callback,sys->id=0, tick=3, node->id=1, node->name=a, node->type=4",
            "callback,sys->id=7, tick=3, node->id=99, node->name=a, node->type=4",
            "[critical] \x1b[31m",
            "\n",
        ]
    ),
    st.integers(min_value=-1, max_value=1 << 70).map(str),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(_PIECES, max_size=12).map("".join))
def test_no_line_raises_anything_but_our_errors(text):
    log = AstraSimLog(2)
    try:
        for line in text.split("\n"):
            log.feed(line)
    except ChakrascopeError:
        return
    assert set(log.ranks) <= {0, 1}


@settings(max_examples=25, deadline=None)
@given(st.lists(_PIECES, max_size=12).map("".join))
def test_no_trace_raises_anything_but_our_errors(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("log")
    (folder / "log.log").write_text(text, encoding="utf-8", errors="surrogatepass")
    try:
        done = read_trace(log_lines(folder)).intervals
    except ChakrascopeError:
        return
    assert all(start <= end for start, end in done.values())


def test_a_trace_is_read_across_rotated_files(tmp_path):
    line = "{},sys->id=0, tick={}, node->id={}, node->name=a, node->type=4\n"
    (tmp_path / "log.2.log").write_text(line.format("issue", 1, 10))
    (tmp_path / "log.1.log").write_text(line.format("callback", 4, 10) + line.format("issue", 4, 11))
    (tmp_path / "log.log").write_text(line.format("callback", 9, 11) + line.format("callback", 9, 12))
    assert read_trace(log_lines(tmp_path)) == Trace({(0, 10): (1, 4), (0, 11): (4, 9)}, [])


def test_messages_and_freed_slots_are_distinguished(program, monkeypatch):
    model = workload([comp(0, 2000), comp(1, 1000), send(2, 0, 1)], [recv(0, 0, 1)])
    times = [[0, 0, 0, 2000], [0, 1, 2000, 3000], [0, 2, 3000, 4000], [1, 0, 0, 4000]]
    monkeypatch.setenv("FAKE_NODES", json.dumps(times))
    ready = prepare(model, "default", NETWORK, backend="astra-sim:analytical-unaware")
    result = AstraSimBackend("analytical-unaware", program, 20).run(ready)
    assert result.nodes["cause_node"].tolist() == [-1, 0, 1, -1]
    assert not result.nodes["cause_is_dependency"].any()
    assert result.nodes[["origin_rank", "origin_node"]].to_numpy().tolist()[3] == [0, 2]


@pytest.mark.skipif(
    not os.environ.get("ASTRA_SIM_TEST_HOME"), reason="ASTRA_SIM_TEST_HOME names no ASTRA-sim to test against"
)
@pytest.mark.parametrize("kind", ["analytical-unaware", "analytical-aware"])
def test_the_real_program_answers(kind, monkeypatch):
    monkeypatch.setenv("ASTRA_SIM_HOME", os.environ["ASTRA_SIM_TEST_HOME"])
    network = NetworkConfig(("Ring",), (4,), (50.0,), (500.0,))
    model = workload(*[[comp(0, 2_000_000 * (rank + 1)), coll(1, 1 << 20, after=(0,))] for rank in range(4)])
    ready = prepare(model, "default", network, backend=f"astra-sim:{kind}")
    result = get_backend(f"astra-sim:{kind}").run(ready)
    assert result.makespan_ns == 8_043_000
    assert critical_path(result, model).segments["duration_ns"].sum() == result.makespan_ns
