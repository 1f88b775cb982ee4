"""The cost of a collective in terms of a link: its number of latencies and bytes, from the engine.

The fit thus uses the same model as the simulation, for any collective algorithm.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from ...converter import CollectiveType, EdgeKind, Graph, NodeType, Workload, microbenchmark
from .._experiment import Detail, Experiment, WorkloadSource
from .._traits import DEFAULT_BACKEND
from ..backends import get_backend
from ..config import GIB, EfficiencyPart, NetworkConfig, SystemConfig
from ._records import MESSAGE, ROOTED, Call

TOPOLOGY = "Switch"
_ROOTED = {kind.name.lower(): kind for kind in ROOTED}
_LATENCY_NS = 1e6
_LATE_NS = 10_000_000
# Bandwidths so low that a byte takes 10 and 20 us: times are whole ns, and a message may be a byte.
_SLOW_NS_PER_BYTE = (10_000.0, 20_000.0)


@dataclass(frozen=True)
class Row:
    """A collective takes *fixed_ns*, plus *latencies* link latencies, plus *bytes* at its bandwidth."""

    fixed_ns: float
    latencies: float
    bytes: float

    def time_ns(self, latency_ns: float, ns_per_byte: float) -> float:
        """Return its duration."""
        return self.fixed_ns + self.latencies * latency_ns + self.bytes * ns_per_byte


@dataclass
class Rows:
    """Simulates each collective once, with the algorithms of *system* (of one dimension).

    Each message keeps its sender busy for *message_cost_ns*. For operations in *sends_first* (see
    `EfficiencyPart`), the row is that of a rank that arrives long after all others, and for those in
    *substitutes* that of the other operation.
    """

    system: SystemConfig
    message_cost_ns: int = 0
    sends_first: Mapping[str, int] = field(default_factory=dict)
    substitutes: Mapping[str, str] = field(default_factory=dict)
    _known: dict[tuple[int, Call], Row] = field(default_factory=dict)

    def of(self, ranks: int, calls: Sequence[Call]) -> Row:
        """Return the row of consecutive *calls* of *ranks* ranks, without pauses.

        Only one latency counts: the others overlap with data transfer.
        """
        rows = [self._row(ranks, call) for call in calls]
        return Row(
            max(row.fixed_ns for row in rows),
            max(row.latencies for row in rows),
            sum(row.bytes for row in rows),
        )

    def _row(self, ranks: int, call: Call) -> Row:
        call = call._replace(operation=self.substitutes.get(call.operation, call.operation))
        if (ranks, call) not in self._known:
            slow, slower = _SLOW_NS_PER_BYTE
            base = self._time_ns(ranks, call, 0, slow)
            moved = (self._time_ns(ranks, call, 0, slower) - base) / (slower - slow)
            latencies = (self._time_ns(ranks, call, _LATENCY_NS, slow) - base) / _LATENCY_NS
            fixed = base - moved * slow
            self._known[ranks, call] = Row(max(0.0, fixed), latencies, moved)
        return self._known[ranks, call]

    def _time_ns(self, ranks: int, call: Call, latency_ns: float, ns_per_byte: float) -> float:
        bandwidth = 1e9 / GIB / ns_per_byte
        late_ns = _LATE_NS if call.operation in self.sends_first else 0
        part = EfficiencyPart(
            message_cost_ns=self.message_cost_ns,
            handshake="in-order" if late_ns else "none",
            sends_first=self.sends_first if late_ns else {},
        )
        network = NetworkConfig((TOPOLOGY,), (ranks,), (bandwidth,), (latency_ns,), efficiency=part)
        experiment = Experiment(
            WorkloadSource.of_model(_workload(ranks, call, late_ns)),
            self.system,
            network,
            backend=DEFAULT_BACKEND,
            detail=Detail.TOTALS,
            # ASTRA-sim has no collectives with a root.
            semantics="trace" if call.operation in _ROOTED else "astra-sim",
        )
        makespan_ns = get_backend(DEFAULT_BACKEND).run(experiment).makespan_ns
        return makespan_ns / 2 if call.operation == MESSAGE else makespan_ns - late_ns


def _workload(ranks: int, call: Call, late_ns: int) -> Workload:
    """Return *call* alone, with a late last rank; a message as a round trip."""
    size = max(1, call.size_bytes)
    if late_ns:
        return _with_last(ranks, call, late_ns)
    if call.operation not in _ROOTED:
        return microbenchmark(
            "ping-pong" if call.operation == MESSAGE else call.operation.replace("_", "-"), ranks, size
        )
    graph = Graph.build(0, [_collective(call, _ROOTED[call.operation])], [])
    return Workload((graph,), np.zeros(ranks, dtype=np.int32), {}, {"source": "calibration"})


def _with_last(ranks: int, call: Call, late_ns: int) -> Workload:
    node = _collective(call, CollectiveType[call.operation.upper()])
    computation = {"node_id": 1, "name": "late", "type": NodeType.COMP, "duration_ns": late_ns}
    graphs = (
        Graph.build(0, [node], []),
        Graph.build(1, [node, computation], [(1, 0, int(EdgeKind.DATA))]),
    )
    programs = np.zeros(ranks, dtype=np.int32)
    programs[-1] = 1
    return Workload(graphs, programs, {}, {"source": "calibration"})


def _collective(call: Call, kind: CollectiveType) -> dict[str, object]:
    return {
        "node_id": 0,
        "name": call.operation,
        "operator": call.operation,
        "type": NodeType.COMM_COLL,
        "comm_type": int(kind),
        "comm_size_bytes": max(1, call.size_bytes),
        "stream": 100,
    }
