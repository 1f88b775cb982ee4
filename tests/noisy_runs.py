"""Make healthy and unhealthy runs with messages and computations as noisy as measured ones."""

from __future__ import annotations

import dataclasses

import numpy as np

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import NetworkConfig, Result, prepare
from chakrascope.runner.analysis import diagnose
from chakrascope.runner.backends import get_backend
from chakrascope.runner.config import NO_CONTROL, Link, PacketPart

MS = 1_000_000
RATE = 0.05  # GiB/s
# Rates are shared only where messages are not divided, which `ACK_HIGH_PRIO` sees to.
SHARES = {"ACK_HIGH_PRIO": 1, "CC_MODE": NO_CONTROL, "HAS_WIN": 0, "PACKET_PAYLOAD_SIZE": 4000}


def training(
    ranks, steps, operation, *, size_bytes=2 << 20, compute_ns=10 * MS, slow_host=None, times=1.0, stops=None
):
    """Return a job whose steps compute and then communicate; a *slow_host* computes *times* as long.

    *stops* is (host, every, ns): in one of *every* few steps the host's computation takes so much longer.
    """
    graphs = []
    for rank in range(ranks):
        nodes, edges = [], []
        for step in range(steps):
            plain = {"name": f"compute {step}", "type": NodeType.COMP, "kind": "compute"}
            lasts = round(compute_ns * (times if rank == slow_host else 1.0))
            if stops is not None and rank == stops[0] and step % stops[1] == 0:
                lasts += stops[2]
            nodes.append(plain | {"node_id": 2 * step, "duration_ns": lasts})
            plain = {"name": f"collective {step}", "type": NodeType.COMM_COLL, "kind": "communication"}
            facts = {"comm_type": operation, "comm_size_bytes": size_bytes, "stream": 1, "duration_ns": 1000}
            nodes.append(plain | facts | {"node_id": 2 * step + 1})
            edges += [(2 * step - 1, 2 * step, EdgeKind.DATA)] if step else []
            edges.append((2 * step, 2 * step + 1, EdgeKind.DATA))
        graphs.append(Graph.build(rank, nodes, edges))
    return Workload(tuple(graphs), np.arange(ranks, dtype=np.int32), {}, {})


def star(ranks, slow=None, factor=1.0):
    """Return hosts around a switch, the NIC of one of them (or of several) at a *factor* of the rate."""
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


@dataclasses.dataclass
class NoisyRun:
    """A simulated run with noise added to its records, and the requested workload."""

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
        workload = training(ranks, steps, operation)
        run = training(ranks, steps, operation, slow_host=slow_host, times=times, stops=stops)
        experiment = prepare(run, "default", network or star(ranks, slow, factor), backend="flow")
        result = get_backend("flow").run(experiment)
        if noise == 0:
            return cls(workload, result)
        rng = np.random.default_rng(seed)
        flows, nodes = result.flows.copy(), result.nodes.copy()
        took = (flows["end_ns"] - flows["start_ns"]) * np.exp(rng.normal(0, noise, len(flows)))
        flows["end_ns"] = (flows["start_ns"] + took + rng.exponential(MS / 10, len(flows))).astype(np.int64)
        late = np.where(nodes["node_id"] % 2 == 0, rng.exponential(MS / 20, len(nodes)), 0)
        nodes["end_ns"] += late.astype(np.int64)
        return cls(workload, dataclasses.replace(result, flows=flows, nodes=nodes))

    def stalled(self, host, at, lasted_ns):
        """Return the run with a stalled link: messages in flight on this link arrive later."""
        flows = self.result.flows.copy()
        when = int(self.result.makespan_ns * at)
        chosen = (flows["src"] == host) | (flows["dst"] == host) if host is not None else flows["src"] >= 0
        hit = chosen & (flows["start_ns"] <= when) & (flows["end_ns"] > when)
        flows.loc[hit, "end_ns"] += lasted_ns
        return self._with(flows=flows), when, flows.index[hit]

    def slower_way(self, src, dst, factor):
        """Return the run with slower messages from *src* to *dst*."""
        flows = self.result.flows.copy()
        on = (flows["src"] == src) & (flows["dst"] == dst)
        took = (flows["end_ns"] - flows["start_ns"]) / np.where(on, factor, 1.0)
        return self._with(flows=flows.assign(end_ns=(flows["start_ns"] + took).astype(np.int64)))

    @property
    def nodes(self):
        """The executed nodes with their requested durations."""
        return self.result.nodes.merge(self.workload.node_table(), on=["rank", "node_id"], how="left")

    def diagnosis(self):
        """Return the diagnosis of the run."""
        return diagnose(self.result, self.nodes)

    def _with(self, **tables):
        return NoisyRun(self.workload, dataclasses.replace(self.result, **tables))
