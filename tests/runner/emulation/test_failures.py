"""Failures end an emulation within seconds, even on separate hosts, and leave no processes or files."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from jobs import LONG_NS, agent, engine_job, free_port, posted_messages, shared_memory, steps
from processes import children, descendants, is_running, wait_for

from chakrascope.errors import BackendError, BackendUnavailable
from chakrascope.runner import Study, prepare
from chakrascope.runner.emulation import EngineJob, Namespaces, Setup, emulate, join, read_setup

TOKEN = "0123456789abcdef0123456789abcdef"
PATIENCE_S = 300.0  # only a fault takes this long


def endless(ranks=2):
    return engine_job(steps(ranks=ranks, compute_ns=LONG_NS))


class Running:
    """An emulation in a thread; `error` is the exception that it raised."""

    def __init__(self, job, setup):
        self.error = None
        self.finished = None
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(job, setup))
        self._thread.start()

    def _run(self, job, setup):
        def progress(now_ns, _finished):
            if now_ns > 0:
                self._begun.set()
            return True

        try:
            self.finished = emulate(job, setup, limit_s=PATIENCE_S, progress=progress)
        except BackendError as error:
            self.error = error

    def wait_until_it_runs(self):
        assert self._begun.wait(PATIENCE_S)

    def end(self):
        """Wait until it is over and return the error."""
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()
        return self.error


def started(job, setup=None):
    """Return a running emulation, the process of its agent and those of its ranks."""
    before = set(descendants(os.getpid()))
    running = Running(job, setup or Setup())

    def ranks():
        found = [each for each in descendants(os.getpid()) if each not in before and is_agent(each)]
        below = children(found[0]) if found else []
        return (found[0], below) if len(below) == job.num_ranks else None

    process, below = wait_for(ranks)
    running.wait_until_it_runs()
    return running, process, below


def is_agent(process):
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes()
        return b"emulation.agent" in words and b"_guard.py" not in words  # which starts it
    return False


@pytest.fixture
def hosts_file(tmp_path):
    """Return a function that writes a hosts file of one host, and the host's address."""
    (tmp_path / "token").write_text(TOKEN)
    port = free_port()
    path = tmp_path / "hosts.yml"

    def write(join="300s"):
        path.write_text(
            f"listen: 127.0.0.1:{port}\ntoken_file: token\njoin: {join}\n"
            "hosts: [{name: one, address: 127.0.0.1, slots: 2}]\n"
        )
        return read_setup(str(path)), f"127.0.0.1:{port}"

    return write


def test_a_rank_that_dies_is_named(transport):
    before = shared_memory()
    running, process, ranks = started(endless(), Setup(transport=transport))
    os.kill(ranks[1], signal.SIGKILL)
    assert "Rank" in running.end().message
    assert "its process ended early (status -9)" in running.error.message
    wait_for(lambda: not any(map(is_running, [process, *ranks])))
    assert shared_memory() <= before


def test_an_agent_that_dies_takes_its_ranks_along():
    running, process, ranks = started(endless())
    os.kill(process, signal.SIGKILL)
    assert "agent" in running.end().message
    wait_for(lambda: not any(map(is_running, ranks)))


def test_dead_coordinator_leaves_no_process(root):
    code = (
        "from jobs import *; from chakrascope.runner.emulation import *;"
        "emulate(engine_job(steps(compute_ns=LONG_NS)), read_setup('namespaces,link=100Mbit'), limit_s=300)"
    )
    folder = Path(__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{folder}:{folder.parent}", "OMP_NUM_THREADS": "1"},
    )
    # Two hosts and their switch, the agent and its guard, and two ranks.
    below = wait_for(lambda: found if len(found := descendants(process.pid)) == 7 else None)
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(is_running, below)))


def test_an_agent_that_still_starts_ends_with_its_coordinator():
    modules = "from jobs import *; from chakrascope.runner.emulation import *"
    code = f"{modules}; emulate(engine_job(steps()), Setup(), limit_s=300)"
    folder = Path(__file__).parent
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{folder}:{folder.parent}:{os.environ.get('PYTHONPATH', '')}"},
    )
    below = wait_for(lambda: descendants(process.pid))
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(is_running, below)), seconds=8.0)  # an agent seeks its coordinator for 10 s


def test_absent_host_is_named(hosts_file):
    setup, address = hosts_file(join="0.5s")
    with pytest.raises(
        BackendUnavailable, match=rf"one did not join within 0.5 s.*emulate-agent --join {address}"
    ):
        emulate(endless(), setup, limit_s=PATIENCE_S)


def test_an_agent_with_another_token_is_refused(hosts_file):
    setup, address = hosts_file(join="2s")
    running = Running(endless(), setup)
    place = ("127.0.0.1", int(address.rpartition(":")[2]))
    with pytest.raises(BackendError, match="The other end does not know the token"):
        join(place, b"another token, just as long", {"one": None}, wait_s=PATIENCE_S, limit_s=PATIENCE_S)
    assert (
        "one did not join within 2 s. Refused: 127.0.0.1 (The connection was closed" in running.end().message
    )


def test_an_agent_without_a_coordinator_gives_up(tmp_path):
    (tmp_path / "token").write_text(TOKEN)
    alone = agent(f"127.0.0.1:{free_port()}", "one", tmp_path / "token", "--wait", "0.3s")
    assert "No coordinator listened at" in alone.communicate(timeout=PATIENCE_S)[0]
    assert alone.returncode == BackendUnavailable.exit_code


def test_strangers_at_the_coordinators_door_are_sent_off(hosts_file, tmp_path):
    setup, address = hosts_file()
    running = Running(engine_job(steps()), setup)
    port = int(address.rpartition(":")[2])
    with wait_for(lambda: connected(port)) as stranger:
        stranger.sendall(b"GET / HTTP/1.1\r\n\r\n" * 4)
        mine = agent(address, "one", tmp_path / "token")
        assert running.end() is None
    assert len(running.finished) == 1
    assert mine.wait(PATIENCE_S) == 0
    mine.stdout.close()


def connected(port):
    with contextlib.suppress(OSError):
        return socket.create_connection(("127.0.0.1", port), timeout=1)
    return None


def test_an_agent_ends_ranks_that_run_too_long(hosts_file, tmp_path):
    setup, address = hosts_file()
    running = Running(endless(), setup)
    mine = agent(address, "one", tmp_path / "token", "--limit", "1s")
    assert "ends ranks after 1 s" in running.end().message
    assert mine.communicate(timeout=PATIENCE_S)[0] is not None
    assert not children(mine.pid)


def test_foreign_address_is_an_error(tmp_path, hosts_file):
    setup, address = hosts_file()
    path = tmp_path / "hosts.yml"
    path.write_text(path.read_text().replace("address: 127.0.0.1", "address: 192.0.2.1"))
    setup = read_setup(str(path))
    mine = agent(address, "one", tmp_path / "token")
    with pytest.raises(BackendError, match=r"Rank \d on one: A rank cannot listen on 192.0.2.1"):
        emulate(endless(), setup, limit_s=PATIENCE_S)
    mine.communicate(timeout=PATIENCE_S)


def test_a_full_disk_of_an_agent_is_told(hosts_file, tmp_path):
    """Agents write no files except those of algorithms."""
    setup, address = hosts_file()
    code = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100));"
        "from chakrascope.cli import main; main(sys.argv[1:])"
    )
    token = ["--token-file", str(tmp_path / "token")]
    mine = subprocess.Popen(
        [sys.executable, "-B", "-c", code, "emulate-agent", "--join", address, "--name", "one", *token],
        stderr=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    job = endless()
    job = EngineJob(
        job.config, job.programs, job.program_of_rank, {"algorithms/all_reduce.0.et": bytes(1000)}
    )
    with pytest.raises(
        BackendError, match=r"cannot be written to .* \(File too large\).*free some disk space"
    ):
        emulate(job, setup, limit_s=PATIENCE_S)
    mine.wait(PATIENCE_S)
    assert not list(tmp_path.glob("chakrascope-agent-*"))


def test_a_file_outside_of_the_job_is_not_written(hosts_file, tmp_path):
    setup, address = hosts_file()
    mine = agent(address, "one", tmp_path / "token")
    job = endless()
    job = EngineJob(job.config, job.programs, job.program_of_rank, {"../outside": b"x"})
    with pytest.raises(BackendError, match="lost"):
        emulate(job, setup, limit_s=PATIENCE_S)
    assert "outside of the job's own folder" in mine.communicate(timeout=PATIENCE_S)[0]
    assert mine.returncode == BackendError.exit_code


def test_namespaces_join_hosts_and_are_gone_afterwards(root):
    with Namespaces(2, [None, 25_000_000]) as network:
        serve = network.command(
            1,
            [
                sys.executable,
                "-c",
                "import socket; s = socket.create_server(('10.77.0.2', 5000)); s.accept()",
            ],
        )
        server = subprocess.Popen(serve)
        reach = (
            "import socket, sys, time\n"
            "for _ in range(6000):\n"
            "    try: socket.create_connection(('10.77.0.2', 5000), 1); break\n"
            "    except OSError: time.sleep(0.05)\n"
            "else: sys.exit(1)"
        )
        assert subprocess.run(network.command(0, [sys.executable, "-c", reach]), check=False).returncode == 0
        assert server.wait(PATIENCE_S) == 0
        shown = subprocess.run(
            network.command(1, ["tc", "class", "show", "dev", "eth0"]),
            capture_output=True,
            text=True,
            check=True,
        )
        assert "rate 25Mbit" in shown.stdout
        link = ["ip", "-d", "link", "show", "eth0"]
        shown = subprocess.run(network.command(1, link), capture_output=True, text=True, check=True)
        assert "gso_max_size 3000 " in shown.stdout  # two frames: 25 Mbit/s sends less in 0.2 ms
        paths = [network.path(host) for host in range(2)]
    assert not any(Path(path).exists() for path in paths)
    # None of it was ever in the network namespace of this process.
    own = subprocess.run(["ip", "-o", "link"], capture_output=True, text=True, check=True).stdout
    assert "p0n0" not in own


def test_missing_requirements_of_namespaces_are_named(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(BackendUnavailable, match="need the rights of root"):
        Namespaces(2, [None, None])


def test_a_bad_namespace_leaves_nothing(root):
    before = set(descendants(os.getpid()))
    with pytest.raises(BackendError, match="cannot be made: 'tc"), Namespaces(2, [10**25, None]):
        pass
    assert set(children(os.getpid())) <= before


# Hosts as on a cluster: each with a separate network, two interfaces and an agent.

COORDINATOR, ONE, TWO = range(3)
HOSTS = """
listen: 10.77.0.1:7401
token_file: token
join: 300s
limit: 300s
hosts:
  - {name: one, nics: [10.77.0.2, 10.77.1.2], ranks: [0, 3], location: leaf 1}
  - {name: two, nics: [10.77.0.3, 10.77.1.3], ranks: [1, 2], location: leaf 2}
"""


class Cluster:
    """A coordinator and two agents that join it, each on a separate host."""

    def __init__(self, folder, job, stack, rate_bps=None, options=()):
        folder.mkdir()
        (folder / "token").write_text(TOKEN)
        (folder / "hosts.yml").write_text(HOSTS)
        job.save(folder / "job")
        self.folder = folder
        self.network = stack.enter_context(Namespaces(3, [rate_bps] * 3, nics=2))
        asked = ["--workload", "job", "-o", "study", "--hosts", "hosts.yml", "--format", "json", *options]
        self.coordinator = self._start(stack, COORDINATOR, "emulate", *asked)
        join = ["emulate-agent", "--join", "10.77.0.1:7401", "--token-file", "token", "--name"]
        self.agents = {
            name: self._start(stack, host, *join, name) for name, host in (("one", ONE), ("two", TWO))
        }

    def _start(self, stack, host, *arguments):
        process = subprocess.Popen(
            self.network.command(host, [sys.executable, "-m", "chakrascope.cli", *arguments]),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.folder,
            env=os.environ | {"OMP_NUM_THREADS": "1", "COLUMNS": "500"},
        )
        stack.callback(process.communicate)
        stack.callback(process.kill)
        return process

    def ranks(self):
        """Return the processes of the ranks once all of them are connected."""

        def met():
            found = [rank for agent in self.agents.values() for rank in children(agent.pid)]
            return found if len(found) == 4 and all(map(_has_transport, found)) else None

        return wait_for(met)

    def cut(self, host, other, nic):
        """Silently drop all packets between two hosts on one interface."""
        for here, there in ((host, other), (other, host)):
            nobody = ("lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", f"eth{nic}")
            command = ["ip", "neigh", "replace", f"10.77.{nic}.{there + 1}", *nobody]
            subprocess.run(self.network.command(here, command), check=True)


def _has_transport(rank):
    """Return whether a rank waits for its connections: it then has an epoll in addition to its agent's."""
    try:
        files = [os.readlink(file) for file in Path(f"/proc/{rank}/fd").iterdir()]
    except OSError:
        return False
    return files.count("anon_inode:[eventpoll]") == 2


@pytest.fixture(scope="module")
def failed(root, tmp_path_factory):
    """Clusters on which a failure occurs while jobs run, by the cause, with their ranks."""
    folder = tmp_path_factory.mktemp("failed")
    endless, sending = steps(ranks=4, compute_ns=LONG_NS), steps(ranks=4, size_bytes=2 << 30, count=1)
    with ExitStack() as stack:
        clusters = {
            "agent": Cluster(folder / "agent", endless, stack),
            "host": Cluster(folder / "host", endless, stack),
            "interface": Cluster(folder / "interface", sending, stack, 100_000_000),
        }
        ranks = {what: cluster.ranks() for what, cluster in clusters.items()}
        clusters["agent"].agents["two"].send_signal(signal.SIGKILL)
        for nic in range(2):
            for other in (COORDINATOR, ONE):
                clusters["host"].cut(TWO, other, nic)
        clusters["interface"].cut(TWO, ONE, nic=1)
        yield clusters, ranks


def ended(failed, what):
    """Return the coordinator's last output and the exit of agent two; nothing is left of the run."""
    clusters, ranks = failed
    cluster = clusters[what]
    told = " ".join(cluster.coordinator.communicate(timeout=PATIENCE_S)[1].split())
    assert cluster.coordinator.returncode == BackendError.exit_code
    said = {name: "".join(agent.communicate(timeout=PATIENCE_S)) for name, agent in cluster.agents.items()}
    wait_for(lambda: not any(map(is_running, ranks[what])))
    assert not (cluster.folder / "study").exists()
    return told, " ".join(said["two"].split())


def test_hosts_with_two_interfaces_each_carry_the_messages_of_the_simulation(root, tmp_path):
    job = steps(ranks=4, size_bytes=400_000, count=4)
    with ExitStack() as stack:
        cluster = Cluster(tmp_path / "sound", job, stack, options=["--repeat", "2"])
        out, err = cluster.coordinator.communicate(timeout=PATIENCE_S)
        assert cluster.coordinator.returncode == 0, err
        for name, agent in cluster.agents.items():
            assert (
                agent.communicate(timeout=PATIENCE_S)[0]
                == f"{name} served the emulation at 10.77.0.1:7401.\n"
            )
            assert agent.returncode == 0
    assert json.loads(out)
    study = Study.open(tmp_path / "sound/study")
    (run,) = study.runs()
    result = study.result(run.id)
    facts = result.provenance["emulation"]
    assert [(host["host"], host["ranks"], host["location"]) for host in facts["hosts"]] == [
        ("one", [0, 3], "leaf 1"),
        ("two", [1, 2], "leaf 2"),
    ]
    assert len(facts["repetitions"]["makespans_ns"]) == 2
    flows = result.flows
    used = {end: [facts["interfaces"][nic] for nic in flows[f"{end}_nic"]] for end in ("src", "dst")}
    for end, interfaces in used.items():
        assert [each["rank"] for each in interfaces] == flows[end].tolist()
    # Messages alternate between the pairs of interfaces, even if ranks share a host.
    assert {each["address"] for each in used["src"]} == {
        f"10.77.{nic}.{host}" for nic in (0, 1) for host in (2, 3)
    }
    expected = posted_messages(prepare(job, "default", None, backend="emulation:loopback"))
    found = flows[["src", "dst", "bytes"]].itertuples(index=False, name=None)
    assert sorted(found) == sorted(expected)


def test_a_lost_agent_is_named_and_the_others_end(failed):
    told, _ = ended(failed, "agent")
    assert "The agent of two (10.77.0.3) is lost: The connection was closed at the other end." in told


def test_a_host_that_cannot_be_reached_any_more_is_named_and_cleans_up(failed):
    told, agent = ended(failed, "host")
    assert "The agent of two (10.77.0.3) is lost: It was silent for 5 s." in told
    assert "The coordinator was silent for 10 s." in agent


def test_an_interface_that_carries_nothing_any_more_is_named(failed):
    """Both hosts still answer, by their other interfaces."""
    told, _ = ended(failed, "interface")
    lost = r"The connection to rank \d is lost: nothing that was sent has arrived for 10 s"
    assert re.search(rf"Rank \d on (one|two): {lost}", told)
