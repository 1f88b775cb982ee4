"""Measure a real network: a probe workload of messages and collectives, timed by an emulation."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from ...converter import CollectiveType, EdgeKind, Graph, NodeType, Workload
from ...converter.chakra import MESSAGE_LANE
from ...errors import ConfigError
from .._experiment import Experiment, WorkloadSource
from .._result import Result
from .._traits import EMULATION
from ..backends import get_backend
from ..config import NetworkConfig, SystemConfig
from ..emulation import Setup, read_setup
from ._records import MESSAGE, MUTUAL, Call, Level, Records, Transfer, levels_of, result_records

LARGEST_BYTES = 2 << 20
_SMALLEST_BYTES = 64
_REPEATS = 4
_BURST = 32  # number of consecutive messages, of which only the first takes the latency
_MAX_PAIRS = 64  # maximum number of pairs per level that are checked for equal links
_BARRIER = Call("all_reduce", _SMALLEST_BYTES)
_RECEIVE_LANE = MESSAGE_LANE + 100


class Exchange(NamedTuple):
    """Messages from *rank* to *peer* and one answer: the nodes of the first send and the final receive."""

    rank: int
    peer: int
    size_bytes: int
    messages: int
    first_send: int
    receive: int


@dataclass(frozen=True)
class Probes:
    """The probe workload, and the node numbers of its round trips."""

    workload: Workload
    exchanges: tuple[Exchange, ...]


@dataclass
class _Rank:
    nodes: list[dict[str, Any]] = field(default_factory=list)
    edges: list[tuple[int, int, int]] = field(default_factory=list)
    tail: list[int] = field(default_factory=list)

    def add(self, kind: NodeType, name: str, **columns: Any) -> int:
        """Append a node that depends on all nodes of earlier phases."""
        number = len(self.nodes)
        self.nodes.append(
            {"node_id": number, "name": name, "operator": name, "type": kind, "kind": "communication"}
            | columns
        )
        self.edges += [(source, number, int(EdgeKind.DATA)) for source in self.tail]
        return number


def probes(
    num_ranks: int,
    hosts: Mapping[int, str],
    leaves: Mapping[int, str],
    *,
    largest_bytes: int = LARGEST_BYTES,
    repeats: int = _REPEATS,
) -> Probes:
    """Return the probe workload for *num_ranks*, with messages, bursts and collectives at each level.

    Measurements do not overlap, because a barrier of all ranks precedes each measurement.
    """
    levels, _ = levels_of(Records((), num_ranks, "", hosts, leaves))
    members = {number: _members(level) for number, level in enumerate(levels, start=1)}
    ranks = [_Rank() for _ in range(num_ranks)]
    sizes = _sizes(largest_bytes)
    exchanges = []
    for _ in range(repeats):
        for group, among in members.items():
            for size in sizes:
                for source, target in _pairs(among)[: None if size in sizes[-2:] else 1]:
                    exchanges.append(_exchange(ranks, source, target, size, 1))
                for kind in MUTUAL:
                    _collective(ranks, Call(kind.name.lower(), size), group, among)
            exchanges.append(_exchange(ranks, among[0], among[1], _SMALLEST_BYTES, _BURST))
    graphs = tuple(Graph.build(rank, part.nodes, part.edges) for rank, part in enumerate(ranks))
    workload = Workload(graphs, np.arange(num_ranks, dtype=np.int32), members, {"source": "calibration"})
    return Probes(workload, tuple(exchanges))


def _sizes(largest_bytes: int) -> list[int]:
    sizes = [_SMALLEST_BYTES]
    while sizes[-1] * 8 <= largest_bytes:
        sizes.append(sizes[-1] * 8)
    return sizes if sizes[-1] == largest_bytes else [*sizes, largest_bytes]


def _members(level: Level) -> tuple[int, ...]:
    """Return ranks that differ only at *level*: the first rank of each unit below rank 0's switch."""
    first: dict[int, int] = {}
    for rank, unit in enumerate(level.units):
        if level.above[rank] == level.above[0]:
            first.setdefault(unit, rank)
    return tuple(sorted(first.values()))


def _pairs(among: Sequence[int]) -> list[tuple[int, int]]:
    """Return pairs of neighbours among the given ranks, up to a maximum number."""
    return list(itertools.pairwise(among))[:_MAX_PAIRS]


def _meet(ranks: Sequence[_Rank]) -> None:
    _collective(ranks, _BARRIER, 0, range(len(ranks)))


def _collective(ranks: Sequence[_Rank], call: Call, group: int, members: Sequence[int]) -> None:
    if group:
        _meet(ranks)
    kind = int(CollectiveType[call.operation.upper()])
    for rank in members:
        columns = {
            "comm_type": kind,
            "comm_size_bytes": call.size_bytes,
            "group": group,
            "stream": 100 + group,
        }
        ranks[rank].tail = [ranks[rank].add(NodeType.COMM_COLL, call.operation, **columns)]


def _exchange(ranks: Sequence[_Rank], source: int, target: int, size: int, messages: int) -> Exchange:
    """Add *messages* messages from *source* to *target*, and one answer of the same size."""
    _meet(ranks)
    there, back = ranks[source], ranks[target]
    sends = [_send(there, target, size, tag) for tag in range(messages)]
    back.tail = [_receive(back, source, size, tag) for tag in range(messages)]
    back.tail = [_send(back, source, size, messages)]
    received = _receive(there, target, size, messages)
    there.tail = [*sends, received]
    return Exchange(source, target, size, messages, sends[0], received)


def _send(rank: _Rank, target: int, size: int, tag: int) -> int:
    columns = {"comm_dst": target, "comm_size_bytes": size, "comm_tag": tag, "stream": MESSAGE_LANE + tag}
    return rank.add(NodeType.COMM_SEND, "send", **columns)


def _receive(rank: _Rank, source: int, size: int, tag: int) -> int:
    columns = {"comm_src": source, "comm_size_bytes": size, "comm_tag": tag, "stream": _RECEIVE_LANE + tag}
    return rank.add(NodeType.COMM_RECV, "receive", **columns)


def probe_records(
    made: Probes, result: Result, source: str, hosts: Mapping[int, str], leaves: Mapping[int, str]
) -> Records:
    """Return the measurements in *result*, which comes from the probe workload *made*.

    The time of a message is half of a round trip, so that a single clock measures it.
    """
    records = result_records(result, made.workload, source, hosts)
    nodes = result.nodes.set_index(["rank", "node_id"])
    starts, ends = nodes["start_ns"].to_dict(), nodes["end_ns"].to_dict()
    singles: dict[tuple[int, int], list[int]] = {}
    bursts: list[tuple[Exchange, int]] = []
    messages = []
    for exchange in made.exchanges:
        took = int(ends[exchange.rank, exchange.receive] - starts[exchange.rank, exchange.first_send])
        if exchange.messages > 1:
            bursts.append((exchange, took))
            continue
        call = Call(MESSAGE, exchange.size_bytes)
        messages.append(Transfer((exchange.rank, exchange.peer), (call,), took // 2, 0))
        if exchange.size_bytes == _SMALLEST_BYTES:
            singles.setdefault((exchange.rank, exchange.peer), []).append(took)
    costs = tuple(
        (took - float(np.median(singles[exchange.rank, exchange.peer]))) / (exchange.messages - 1)
        for exchange, took in bursts
    )
    return replace(
        records,
        transfers=(*messages, *records.transfers),
        leaves=leaves,
        message_costs_ns=costs,
    )


_LOCAL_RANKS = 2


def measure_network(place: str, system: SystemConfig, *, largest_bytes: int = LARGEST_BYTES) -> Records:
    """Send messages of up to *largest_bytes* over the network of *place*, and return the measurements.

    *place* is a hosts file, ``namespaces=2,link=100Mbit`` or ``loopback``, in the syntax of the backend
    ``emulation:``. Collectives use the algorithms of *system*. A single rank raises `ConfigError`. The
    function also raises the errors of an emulation.
    """
    setup = read_setup(place)
    count = _num_ranks(setup)
    if count < _LOCAL_RANKS:
        raise ConfigError(f"'{place}' has only one rank; give it two or more.")
    places = setup.places(count)
    located = {host.name: host.location for host in setup.hosts if host.location}
    hosts = {where.rank: where.host for where in places}
    leaves = {where.rank: located[where.host] for where in places if where.host in located}
    made = probes(count, hosts, leaves, largest_bytes=largest_bytes)
    backend = f"{EMULATION}{place}"
    experiment = Experiment(
        WorkloadSource.of_model(made.workload),
        system,
        NetworkConfig(("Switch",), (count,), (1.0,), (0.0,)),
        groups=made.workload.groups,
        backend=backend,
        semantics="trace",
    )
    result = get_backend(backend).run(experiment)
    return probe_records(made, result, f"messages and collectives over {place}", hosts, leaves)


def _num_ranks(setup: Setup) -> int:
    """Return the number of ranks that fit into *setup*."""
    if setup.is_local:
        return setup.namespaces or _LOCAL_RANKS
    return sum(len(host.ranks) if host.ranks is not None else host.slots for host in setup.hosts)
