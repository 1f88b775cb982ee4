"""Measurements of known networks: simulated, with late ranks."""

import numpy as np

from chakrascope.converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from chakrascope.runner import NetworkConfig, SystemConfig, simulate
from chakrascope.runner.calibration import Call, Records, Transfer, result_records
from chakrascope.runner.config import GIB, EfficiencyPart

SYSTEM = SystemConfig.preset("default", 1)
SIZES = tuple(1 << power for power in range(10, 25, 2))
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter")


def workload(calls, num_ranks, *, groups=None, repeats=3, late_ns=200_000, seed=0):
    """Return a workload of *calls* (operation, bytes, group), each after a computation of random length."""
    random = np.random.default_rng(seed)
    graphs = []
    groups = groups or {}
    for rank in range(num_ranks):
        nodes, edges = [], []
        for _ in range(repeats):
            for operation, size, group in calls:
                if group and rank not in groups[group]:
                    continue
                late = int(random.integers(1000, late_ns))
                nodes.append(node(len(nodes), NodeType.COMP, duration_ns=late))
                kind = int(CollectiveType[operation.upper()])
                more = {"comm_type": kind, "comm_size_bytes": size, "group": group, "stream": 100 + group}
                nodes.append(node(len(nodes), NodeType.COMM_COLL, **more))
                last = len(nodes) - 1
                edges += [(place, place + 1, int(EdgeKind.DATA)) for place in range(max(0, last - 2), last)]
        graphs.append(Graph.build(rank, nodes, edges))
    return Workload(tuple(graphs), np.arange(num_ranks, dtype=np.int32), groups, {})


def node(number, kind, **columns):
    return {"node_id": number, "name": kind.name, "operator": kind.name, "type": kind, **columns}


def measured(made, network, *, source="a known network", hosts=None, noise=0.0, seed=1):
    """Return the records of *made* simulated on *network*, each time with log-normal *noise*."""
    result = simulate(made, SYSTEM if network.dimensions == 1 else "default", network, semantics="trace")
    records = result_records(result, made, source, hosts)
    random = np.random.default_rng(seed)
    transfers = tuple(
        transfer._replace(transfer_ns=max(1, round(transfer.transfer_ns * float(random.lognormal(0, noise)))))
        for transfer in records.transfers
    )
    return Records(transfers, records.num_ranks, source, records.hosts, left_out=records.left_out)


def network(bytes_per_ns=(1.0,), latency_ns=(5000.0,), counts=(2,), **costs):
    """Return a network of switches, whose collectives have *costs* (curves by operation) in addition."""
    part = EfficiencyPart(collectives={name: tuple(curve) for name, curve in costs.items()})
    return NetworkConfig(
        ("Switch",) * len(counts),
        counts,
        tuple(rate * 1e9 / GIB for rate in bytes_per_ns),
        latency_ns,
        efficiency=part if costs else None,
    )


def every_size(operations=OPERATIONS, sizes=SIZES, group=0):
    return [(operation, size, group) for operation in operations for size in sizes]


def transfer(operation, size, ns, members=(0, 1)):
    return Transfer(tuple(members), (Call(operation, size),), ns, 0)
