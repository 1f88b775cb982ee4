"""Plant an anomaly into emulated runs and let `diagnose` find it; also test healthy runs.

    sudo python benchmarks/diagnose.py --seeds 0-9 -o rows.csv        # a part, some 8 s a seed and kind
    python benchmarks/diagnose.py --table rows.csv ...                # the table of all parts

Four hosts are namespaces of this machine, joined by a switch over links of 400 Mbit/s. Each host runs one
rank of a job of about a second, whose steps compute and then communicate. The seed chooses the collective,
its size, the compute time, and the anomaly: one or two NICs at 25 to 75 % of their rate, in both directions
or in one; a host whose computations take 1.25 to 2 times as long as requested, or whose processes are stopped
for 30 ms of every 60 ms; or a link that stalls (2 % of its rate) for 50 ms. An anomaly is found if it is the
first finding (for two NICs, the first two findings). A healthy run must have no finding.

Use an idle machine, because other processes cause real anomalies.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import secrets
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import Experiment, NetworkConfig, Result, prepare
from chakrascope.runner.analysis import Diagnosis, diagnose
from chakrascope.runner.backends import EmulationBackend
from chakrascope.runner.emulation import Host, Namespaces, Setup, join

HOSTS, LINK_BPS, GIB = 4, 400_000_000, 1 << 30
SPLITS = 4  # of each collective, by the default system
BURST = "6k"
STALL_S, STALLED_SHARE = 0.05, 0.02
STOP_S, PERIOD_S = 0.03, 0.06
HIDDEN = ("nic", "host", "stall", "two", "direction", "pause")
KINDS = ("sound", *HIDDEN)
OPERATIONS = (CollectiveType.ALL_REDUCE, CollectiveType.ALL_TO_ALL, CollectiveType.ALL_GATHER)
FOUND = {
    "nic": "slow NIC", "host": "slow host", "stall": "stall", "two": "slow NIC", "direction": "slow NIC",
    "pause": "intermittent host",
}  # fmt: skip


@dataclass(frozen=True)
class Case:
    """One run: the kind, place and severity of its hidden anomaly, and its job."""

    seed: int
    kind: str
    host: int
    factor: float
    operation: CollectiveType
    size_bytes: int
    compute_ns: int
    steps: int
    stall_at: float


def case_of(seed: int, kind: str) -> Case:
    """Return the case of a *seed*."""
    rng = np.random.default_rng([seed, KINDS.index(kind)])
    operation = OPERATIONS[int(rng.integers(len(OPERATIONS)))]
    message = int(2 ** rng.uniform(17, 18.3)) // 4096 * 4096
    size = message * SPLITS * (HOSTS if operation != CollectiveType.ALL_GATHER else 1)
    compute_ns = int(rng.uniform(5e6, 2e7))
    slower = rng.uniform(0.25, 0.75)
    factor = {"host": rng.uniform(1.25, 2.0), "stall": 1.0, "pause": 1.0, "sound": 1.0}.get(kind, slower)
    # A NIC that slows the whole ring hides other NICs. In a ring, one direction of a NIC is a path between
    # two hosts.
    operation = CollectiveType.ALL_TO_ALL if kind in ("two", "direction") else operation
    carried = {
        CollectiveType.ALL_REDUCE: 1.5,
        CollectiveType.ALL_TO_ALL: 0.75,
        CollectiveType.ALL_GATHER: 3.0,
    }
    step_ns = compute_ns + carried[operation] * size * 8e9 / LINK_BPS
    steps = max(12, int(1e9 / step_ns))
    return Case(seed, kind, int(rng.integers(HOSTS)), float(factor), operation, size, compute_ns, steps,
                float(rng.uniform(0.2, 0.7)) * steps * step_ns / 1e9)  # fmt: skip


def job(case: Case, *, as_run: bool) -> Workload:
    """Return the requested workload of *case* or, with *as_run*, the workload as the slow host runs it."""
    graphs = []
    for rank in range(HOSTS):
        slow = case.factor if as_run and case.kind == "host" and rank == case.host else 1.0
        nodes, edges = [], []
        for step in range(case.steps):
            compute = {
                "node_id": 2 * step, "name": f"compute {step}", "type": NodeType.COMP, "kind": "compute",
                "duration_ns": int(case.compute_ns * slow),
            }  # fmt: skip
            collective = {
                "node_id": 2 * step + 1, "name": f"collective {step}", "type": NodeType.COMM_COLL,
                "kind": "communication", "comm_type": case.operation, "comm_size_bytes": case.size_bytes,
                "duration_ns": 1000, "stream": 1,
            }  # fmt: skip
            nodes += [compute, collective]
            edges += [(2 * step, 2 * step + 1, EdgeKind.DATA)]
            edges += [(2 * step - 1, 2 * step, EdgeKind.DATA)] if step else []
        graphs.append(Graph.build(rank, nodes, edges))
    return Workload(tuple(graphs), np.arange(HOSTS, dtype=np.int32), {}, {})


@contextmanager
def stopping(namespace: str) -> Iterator[None]:
    """Stop the processes in *namespace* for `STOP_S` of every `PERIOD_S`."""
    over = threading.Event()
    inode = os.stat(namespace).st_ino

    def processes() -> list[int]:
        inside = []
        for entry in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):
                if (entry / "ns/net").stat().st_ino == inode:
                    inside.append(int(entry.name))
        return inside

    def stop() -> None:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))  # of this thread
        while not over.wait(PERIOD_S - STOP_S):
            stopped = processes()
            for number in (signal.SIGSTOP, signal.SIGCONT):
                for pid in stopped:
                    with suppress(ProcessLookupError):
                        os.kill(pid, number)
                time.sleep(STOP_S if number == signal.SIGSTOP else 0)

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def experiment(case: Case, *, as_run: bool) -> Experiment:
    """Return the experiment of *case*."""
    network = NetworkConfig(("Switch",), (HOSTS,), (LINK_BPS / 8 / GIB,), (25_000.0,))
    return prepare(job(case, as_run=as_run), "default", network, backend="analytical-unaware")


class Cable:
    """The cable of a host; a `tc` process at each end changes both directions at once."""

    def __init__(self, net: Namespaces, host: int) -> None:
        ends = net._ends(
            host, 0
        )  # Namespaces.shape starts two programs for each change, which takes too long
        self._ends = [
            (
                subprocess.Popen(
                    # The priority is above that of ranks, so that a stall has the intended length.
                    member.command(["chrt", "--rr", "2", "tc", "-batch", "-"]),
                    stdin=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                ),
                device,
            )
            for member, device in ends
        ]

    def __enter__(self) -> Cable:
        return self

    def __exit__(self, *_: object) -> None:
        for process, _device in self._ends:
            process.communicate()

    def carry(self, rate_bps: float, directions: Sequence[int] = (0, 1)) -> None:
        """Set the cable's rate, with bursts smaller than a message; direction 0 is the host's sending."""
        for process, device in (self._ends[direction] for direction in directions):
            assert process.stdin is not None
            rate = f"htb rate {round(rate_bps)}bit ceil {round(rate_bps)}bit burst {BURST} cburst {BURST}"
            process.stdin.write(f"class change dev {device} parent 1: classid 1:1 {rate}\n")
            process.stdin.flush()


def _serve(port: int, token: bytes, hosts: dict[str, str]) -> None:
    join(("127.0.0.1", port), token, hosts, wait_s=20, limit_s=60)


@contextmanager
def cluster(case: Case) -> Iterator[tuple[Setup, Cable]]:
    """Yield hosts whose agents wait for a coordinator, and the cable of the host with the anomaly."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    token = secrets.token_bytes(32)
    with Namespaces(HOSTS, [LINK_BPS] * HOSTS) as net, ExitStack() as stack:
        cables = [stack.enter_context(Cable(net, host)) for host in range(HOSTS)]
        for cable in cables:
            cable.carry(LINK_BPS)
        if case.kind in ("nic", "two"):
            cables[case.host].carry(LINK_BPS * case.factor)
        if case.kind == "two":
            cables[(case.host + 1) % HOSTS].carry(LINK_BPS * case.factor)
        if case.kind == "direction":
            cables[case.host].carry(LINK_BPS * case.factor, (case.seed % 2,))
        if case.kind == "pause":
            stack.enter_context(stopping(net.path(case.host)))
        names = {f"host{host}": net.path(host) for host in range(HOSTS)}
        agent = multiprocessing.Process(target=_serve, args=(port, token, names))
        agent.start()
        hosts = tuple(Host(name, tuple(net.addresses(place)), (place,)) for place, name in enumerate(names))
        try:
            yield Setup(hosts=hosts, listen=("127.0.0.1", port), token=token, limit_s=30), cables[case.host]
        finally:
            agent.join(5)
            agent.kill()


def run(case: Case) -> Result:
    """Emulate *case*."""
    with cluster(case) as (setup, cable):
        over = threading.Event()
        started = threading.Event()
        begun = [0.0]

        def stall() -> None:
            os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(2))  # of this thread
            started.wait()
            if not over.wait(max(0.0, begun[0] + case.stall_at - time.monotonic())):
                cable.carry(LINK_BPS * STALLED_SHARE)
                time.sleep(STALL_S)
                cable.carry(LINK_BPS)

        def progress(now_ns: int, _finished: int) -> bool:
            if now_ns > 0 and not started.is_set():
                begun[0] = time.monotonic() - now_ns / 1e9
                started.set()
            return True

        thread = threading.Thread(target=stall) if case.kind == "stall" else None
        if thread:
            thread.start()
        try:
            return EmulationBackend(setup).run(experiment(case, as_run=True), progress)
        finally:
            over.set()
            started.set()
            if thread:
                thread.join()


def examine(case: Case, result: Result) -> Diagnosis:
    """Return the diagnosis of *result* with the requested durations."""
    asked = experiment(case, as_run=False)
    nodes = result.nodes.merge(asked.workload.model.node_table(), on=["rank", "node_id"], how="left")
    return diagnose(result, nodes)


def row_of(case: Case, result: Result, diagnosis: Diagnosis) -> dict[str, object]:
    """Return a row with the planted anomaly and the findings."""
    first = diagnosis.anomalies[0] if diagnosis.anomalies else None
    hosts = [case.host, (case.host + 1) % HOSTS] if case.kind == "two" else [case.host]
    named = {(one.what, *one.hosts) for one in diagnosis.anomalies[: len(hosts)]}
    right = named == {(FOUND.get(case.kind), f"host{host}") for host in hosts}
    return {
        "seed": case.seed, "kind": case.kind, "operation": case.operation.name.lower(), "host": case.host,
        "factor": round(case.factor, 3), "step_ms": round(result.makespan_ns / 1e6, 1),
        "messages": len(result.flows),
        "named": (first is None) if case.kind == "sound" else right, "found": len(diagnosis.anomalies),
        "what": first.what if first else "", "where": first.where if first else "",
        "found_factor": round(first.factor, 3) if first else 0.0,
        "lasted_ms": round(first.lasted_ns / 1e6, 1) if first else 0.0,
        "confidence": round(first.confidence, 3) if first else 0.0,
        "cost_ms": round(first.cost.ns / 1e6, 1) if first else 0.0,
    }  # fmt: skip


def table(rows: pd.DataFrame) -> str:
    """Return the counts of all *rows* in words."""
    lines = []
    for kind, part in rows.groupby("kind", sort=False):
        good = int(part["named"].sum())
        what = "without a false alarm" if kind == "sound" else "named"
        more = int((part["found"] > 1).sum())
        lines.append(
            f"{kind}: {good} of {len(part)} {what}" + (f"; {more} with a second anomaly" if more else "")
        )
        if kind in ("nic", "host", "two", "direction"):
            own = part[part["named"]]
            off = (own["found_factor"] / own["factor"] - 1).abs()
            lines[-1] += f"; factor off by {off.median():.1%} (median), {off.max():.1%} (largest)"
    hidden = rows[rows["kind"] != "sound"]
    lines.append(f"hidden anomalies named: {int(hidden['named'].sum())} of {len(hidden)}")
    return "\n".join(lines)


def main() -> None:
    """Run the cases of the given seeds, or print the table of earlier files."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", default="0-0", help="range of seeds, FIRST-LAST")
    parser.add_argument(
        "--kinds", default="sound,hidden", help="hidden: one of the six kinds, chosen by the seed"
    )
    parser.add_argument("--keep", type=Path, help="store each result in this folder")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="start no further run after this time in seconds"
    )
    parser.add_argument("-o", "--output", type=Path, help="append the rows to this CSV file")
    parser.add_argument(
        "--table", type=Path, nargs="*", help="run nothing; print the table of these CSV files"
    )
    asked = parser.parse_args()
    if asked.table:
        print(table(pd.concat([pd.read_csv(path) for path in asked.table]).drop_duplicates(["seed", "kind"])))
        return
    first, last = map(int, asked.seeds.split("-"))
    known = (
        pd.read_csv(asked.output)
        if asked.output and asked.output.is_file()
        else pd.DataFrame({"seed": [], "kind": []})
    )
    done = set(zip(known["seed"], known["kind"], strict=True))
    began = time.monotonic()
    for seed in range(first, last + 1):
        for named in asked.kinds.split(","):
            kind = HIDDEN[seed % len(HIDDEN)] if named == "hidden" else named
            if (seed, kind) in done or time.monotonic() - began > asked.seconds:
                continue
            case = case_of(seed, kind)
            result = run(case)
            if asked.keep:
                result.save(asked.keep / f"{kind}-{seed}")
            row = pd.DataFrame([row_of(case, result, examine(case, result))])
            print(row.to_csv(index=False, header=False).strip(), flush=True)
            if asked.output:
                row.to_csv(asked.output, mode="a", header=not asked.output.is_file(), index=False)


if __name__ == "__main__":
    main()
