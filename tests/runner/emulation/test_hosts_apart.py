"""Hosts as on a cluster: each in a network of its own, with two interfaces and an agent of its own.

What goes wrong is begun everywhere at once and then looked at, as it takes a while to be noticed.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest
from jobs import LONG_NS, posted_messages, steps
from processes import children, is_running, wait_for

from chakrascope.errors import BackendError
from chakrascope.runner import Study, prepare
from chakrascope.runner.emulation import Namespaces

TOKEN = "0123456789abcdef0123456789abcdef"
PATIENCE_S = 300.0  # only a fault takes as long
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
    """A coordinator and two agents that join it, each on a host of its own."""

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
        """Return the processes of the ranks once all of them have met."""

        def met():
            found = [rank for agent in self.agents.values() for rank in children(agent.pid)]
            return found if len(found) == 4 and all(map(_has_transport, found)) else None

        return wait_for(met)

    def cut(self, host, other, nic):
        """Let all that two hosts send each other by one interface go to nobody, without a word."""
        for here, there in ((host, other), (other, host)):
            nobody = ("lladdr", "02:00:00:00:00:99", "nud", "permanent", "dev", f"eth{nic}")
            command = ["ip", "neigh", "replace", f"10.77.{nic}.{there + 1}", *nobody]
            subprocess.run(self.network.command(here, command), check=True)


def _has_transport(rank):
    """Say whether a rank waits for its connections: beside its agent's, it has an epoll of its own."""
    try:
        files = [os.readlink(file) for file in Path(f"/proc/{rank}/fd").iterdir()]
    except OSError:
        return False
    return files.count("anon_inode:[eventpoll]") == 2


@pytest.fixture(scope="module")
def failed(root, tmp_path_factory):
    """Clusters in which something goes wrong while their jobs run, by what does, with their ranks."""
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
    """Return what the coordinator said at its end, and what agent two did; nothing is left of the run."""
    clusters, ranks = failed
    cluster = clusters[what]
    told = " ".join(cluster.coordinator.communicate(timeout=PATIENCE_S)[1].split())
    assert cluster.coordinator.returncode == BackendError.exit_code
    said = {name: "".join(agent.communicate(timeout=PATIENCE_S)) for name, agent in cluster.agents.items()}
    wait_for(lambda: not any(map(is_running, ranks[what])))
    assert not Study.open(cluster.folder / "study").runs()
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
    # Messages take turns between the pairs of interfaces, also of ranks that share a host.
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
    assert "The agent of two (10.77.0.3) is lost: Nothing was heard of it for 5 s." in told
    assert "Nothing was heard of the coordinator for 10 s." in agent


def test_an_interface_that_carries_nothing_any_more_is_named(failed):
    """Both hosts still answer, by their other interfaces."""
    told, _ = ended(failed, "interface")
    lost = r"The connection to rank \d is lost: nothing that was sent has arrived for 10 s"
    assert re.search(rf"Rank \d on (one|two): {lost}", told)
