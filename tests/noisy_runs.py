"""Make healthy and unhealthy runs with messages and computations as noisy as measured ones."""

from __future__ import annotations

import dataclasses

import numpy as np
import pandas as pd

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import NetworkConfig, Result, prepare
from chakrascope.runner.analysis import diagnose
from chakrascope.runner.backends import get_backend
from chakrascope.runner.config import NO_CONTROL, Link, PacketPart

MS = 1_000_000
RATE = 0.05  # GiB/s
# Rates are shared only if messages are not divided, which `ACK_HIGH_PRIO` ensures.
SHARES = {"ACK_HIGH_PRIO": 1, "CC_MODE": NO_CONTROL, "HAS_WIN": 0, "PACKET_PAYLOAD_SIZE": 4000}


def training(
    ranks,
    steps,
    operation,
    *,
    size_bytes=2 << 20,
    compute_ns=10 * MS,
    slow_host=None,
    times=1.0,
    stops=None,
    late_ns=None,
):
    """Return a job whose steps compute, then communicate; *slow_host* computes *times* as long.

    *stops* is (host, every, ns): in one of *every* few steps, the host's computation is longer by ns.
    *late_ns* (ranks, steps) is added to each computation.
    """
    graphs = []
    for rank in range(ranks):
        nodes, edges = [], []
        for step in range(steps):
            plain = {"name": f"compute {step}", "type": NodeType.COMP, "kind": "compute"}
            lasts = round(compute_ns * (times if rank == slow_host else 1.0))
            if stops is not None and rank == stops[0] and step % stops[1] == 0:
                lasts += stops[2]
            if late_ns is not None:
                lasts += int(late_ns[rank, step])
            nodes.append(plain | {"node_id": 2 * step, "duration_ns": lasts})
            plain = {"name": f"collective {step}", "type": NodeType.COMM_COLL, "kind": "communication"}
            facts = {"comm_type": operation, "comm_size_bytes": size_bytes, "stream": 1, "duration_ns": 1000}
            nodes.append(plain | facts | {"node_id": 2 * step + 1})
            edges += [(2 * step - 1, 2 * step, EdgeKind.DATA)] if step else []
            edges.append((2 * step, 2 * step + 1, EdgeKind.DATA))
        graphs.append(Graph.build(rank, nodes, edges))
    return Workload(tuple(graphs), np.arange(ranks, dtype=np.int32), {}, {})


def star(ranks, slow=None, factor=1.0):
    """Return hosts around a switch; one or several NICs have a *factor* of the rate."""
    those = slow if isinstance(slow, tuple) else (slow,)
    links = tuple(
        Link(rank, ranks, RATE * (factor if rank in those else 1.0), 10_000.0) for rank in range(ranks)
    )
    packet = PacketPart.from_mapping(SHARES)
    return NetworkConfig(("Switch",), (ranks,), (RATE,), (10_000.0,), links=links, packet=packet)


def ring(ranks, slow, factor):
    """Return ranks in a ring of links; the link from rank *slow* has a *factor* of the rate."""
    links = tuple(
        Link(rank, (rank + 1) % ranks, RATE * (factor if rank == slow else 1.0), 10_000.0)
        for rank in range(ranks)
    )
    return dataclasses.replace(star(ranks), links=links)


def fair(flows, limits):
    """Return the max-min fair rate of each flow, a tuple of places in *limits*."""
    rates, left, open_ = {}, list(limits), dict(enumerate(flows))
    while open_:
        users = [sum(place in flow for flow in open_.values()) for place in range(len(left))]
        share, full = min((left[place] / count, place) for place, count in enumerate(users) if count)
        for one in [one for one, flow in open_.items() if full in flow]:
            rates[one] = share
            for place in open_.pop(one):
                left[place] -= share
    return [rates[one] for one in range(len(flows))]


def exchanged(ready_ns, limits, work, delays_ns):
    """Return the begin and end of each message (n, ranks, ranks) of an all-to-all.

    A rank sends from *ready_ns* on, to all others at once and to each in sequence. *limits* has the rates
    (bytes per ns) at which the ranks send, then those at which they receive.
    """
    ranks, now = len(ready_ns), 0.0
    begin, end = np.zeros(work.shape), np.zeros(work.shape)
    waiting = {(a, b): (ready_ns[a], 0) for a in range(ranks) for b in range(ranks) if a != b}
    sending = {}
    while waiting or sending:
        for path in [path for path, (at, _) in waiting.items() if at <= now]:
            at, number = waiting.pop(path)
            begin[(number, *path)] = at
            sending[path] = [number, float(work[(number, *path)])]
        rates = fair([(a, ranks + b) for a, b in sending], limits)
        until = [one[1] / rate for one, rate in zip(sending.values(), rates, strict=True)]
        step = min([*until, *(at - now for at, _ in waiting.values())])
        now += step
        for (path, one), rate, left in zip([*sending.items()], rates, until, strict=True):
            one[1] -= rate * step
            if left <= step:
                del sending[path]
                ends = end[(one[0], *path)] = now + delays_ns[(one[0], *path)]
                if one[0] + 1 < len(work):
                    waiting[path] = (ends, one[0] + 1)
    return begin, end


@dataclasses.dataclass
class NoisyRun:
    """A simulated run with noise, and the requested workload.

    Computations are delayed before the simulation, which also delays dependent nodes; messages are delayed
    after it.
    """

    workload: Workload
    result: Result

    @classmethod
    def make(
        cls,
        seed=0,
        ranks=4,
        operation=CollectiveType.ALL_REDUCE,
        *,
        steps=12,
        noise=0.05,
        network=None,
        slow=None,
        factor=1.0,
        slow_host=None,
        times=1.0,
        stops=None,
    ):
        """Simulate a job with the *slow* NIC at a *factor* of its rate, and add noise to the records."""
        rng = np.random.default_rng(seed)
        late = np.random.default_rng([seed, 1]).exponential(MS / 20, (ranks, steps)) if noise else None
        workload = training(ranks, steps, operation)
        run = training(ranks, steps, operation, slow_host=slow_host, times=times, stops=stops, late_ns=late)
        experiment = prepare(run, "default", network or star(ranks, slow, factor), backend="flow")
        result = get_backend("flow").run(experiment)
        if noise == 0:
            return cls(workload, result)
        flows = result.flows.copy()
        took = (flows["end_ns"] - flows["start_ns"]) * np.exp(rng.normal(0, noise, len(flows)))
        flows["end_ns"] = (flows["start_ns"] + took + rng.exponential(MS / 10, len(flows))).astype(np.int64)
        return cls(workload, dataclasses.replace(result, flows=flows))

    @classmethod
    def all_to_all(cls, seed=0, ranks=4, *, steps=12, noise=0.05, sends=(), receives=(), factor=1.0):
        """Simulate noisy all-to-alls; ranks in *sends* and *receives* have a *factor* of the rate."""
        rng = np.random.default_rng(seed)
        workload = training(ranks, steps, CollectiveType.ALL_TO_ALL)
        experiment = prepare(workload, "default", star(ranks), backend="flow")
        result = get_backend("flow").run(experiment)
        limits = np.full(2 * ranks, RATE * 2**30 / 1e9)
        limits[[*sends, *(ranks + rank for rank in receives)]] *= factor
        chunks, size = 4, (2 << 20) // ranks // 4
        ready, rows, nodes = np.zeros(ranks), [], []
        for step in range(steps):
            computed = ready + 10 * MS + rng.exponential(MS / 20, ranks)
            shape = (chunks, ranks, ranks)
            work = size * np.exp(rng.normal(0, noise, shape))
            begin, end = exchanged(computed, limits, work, rng.exponential(MS / 10, shape))
            rows += [(a, b, size, begin[n, a, b], end[n, a, b]) for n, a, b in np.ndindex(shape) if a != b]
            over = np.maximum(end.max(axis=(0, 1)), end.max(axis=(0, 2)))
            for rank in range(ranks):
                nodes.append((rank, 2 * step, ready[rank], computed[rank]))
                nodes.append((rank, 2 * step + 1, computed[rank], over[rank]))
            ready = over
        flows = pd.DataFrame(rows, columns=["src", "dst", "bytes", "start_ns", "end_ns"]).astype(np.int64)
        times = pd.DataFrame(nodes, columns=["rank", "node_id", "start_ns", "end_ns"]).astype(np.int64)
        left = result.nodes.drop(columns=["start_ns", "end_ns"])
        changes = {"flows": flows, "nodes": left.merge(times, on=["rank", "node_id"])}
        return cls(workload, dataclasses.replace(result, makespan_ns=int(ready.max()), **changes))

    def stalled(self, host, at, lasted_ns):
        """Return the run with a stalled link: messages in flight on this link arrive later."""
        flows = self.result.flows.copy()
        when = int(self.result.makespan_ns * at)
        chosen = (flows["src"] == host) | (flows["dst"] == host) if host is not None else flows["src"] >= 0
        hit = chosen & (flows["start_ns"] <= when) & (flows["end_ns"] > when)
        flows.loc[hit, "end_ns"] += lasted_ns
        return self._with(flows=flows), when, flows.index[hit]

    @property
    def nodes(self):
        """The executed nodes with their requested durations."""
        return self.result.nodes.merge(self.workload.node_table(), on=["rank", "node_id"], how="left")

    def diagnosis(self):
        """Return the diagnosis of the run."""
        return diagnose(self.result, self.nodes)

    def _with(self, **tables):
        return NoisyRun(self.workload, dataclasses.replace(self.result, **tables))
