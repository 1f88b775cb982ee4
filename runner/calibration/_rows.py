"""What a collective costs in terms of a link: so many latencies, and so many bytes, asked of the engine.

So what is fitted means the same as what is simulated with it, whatever the collective algorithm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from ...converter import Graph, NodeType, Workload, microbenchmark
from .._experiment import Detail, Experiment, WorkloadSource
from ..backends import get_backend
from ..config import GIB, EfficiencyPart, NetworkConfig, SystemConfig
from ._records import MESSAGE, ROOTED, Call

__all__ = ["TOPOLOGY", "Row", "Rows"]

TOPOLOGY = "Switch"
_BACKEND = "analytical-unaware"
_ROOTED = {kind.name.lower(): kind for kind in ROOTED}
_LATENCY_NS = 1e6
# So slow that a byte takes 10 and 20 us: times are whole ns, and a message may be a byte.
_SLOW_NS_PER_BYTE = (10_000.0, 20_000.0)


@dataclass(frozen=True)
class Row:
    """A collective takes *fixed_ns*, and *latencies* times a link's latency, and *bytes* at its bandwidth."""

    fixed_ns: float
    latencies: float
    bytes: float

    def time_ns(self, latency_ns: float, ns_per_byte: float) -> float:
        """Return how long that is."""
        return self.fixed_ns + self.latencies * latency_ns + self.bytes * ns_per_byte


@dataclass
class Rows:
    """Asks the engine once for each collective, with the algorithms of *system* (of one dimension).

    Each message keeps its sender busy for *message_cost_ns*.
    """

    system: SystemConfig
    message_cost_ns: int = 0
    _known: dict[tuple[int, Call], Row] = field(default_factory=dict)

    def of(self, ranks: int, calls: Sequence[Call]) -> Row:
        """Return the row of *calls* of *ranks* ranks that follow each other without a pause.

        Of these, the latency of one is seen: that of the others passes while data moves.
        """
        rows = [self._row(ranks, call) for call in calls]
        return Row(
            max(row.fixed_ns for row in rows),
            max(row.latencies for row in rows),
            sum(row.bytes for row in rows),
        )

    def _row(self, ranks: int, call: Call) -> Row:
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
        part = EfficiencyPart(message_cost_ns=self.message_cost_ns)
        network = NetworkConfig((TOPOLOGY,), (ranks,), (bandwidth,), (latency_ns,), efficiency=part)
        experiment = Experiment(
            WorkloadSource.of_model(_workload(ranks, call)),
            self.system,
            network,
            backend=_BACKEND,
            detail=Detail.TOTALS,
            # ASTRA-sim has no collectives with a root.
            semantics="trace" if call.operation in _ROOTED else "astra-sim",
        )
        makespan_ns = get_backend(_BACKEND).run(experiment).makespan_ns
        return makespan_ns / 2 if call.operation == MESSAGE else makespan_ns


def _workload(ranks: int, call: Call) -> Workload:
    """Return *call* alone; a message there and back."""
    size = max(1, call.size_bytes)
    if call.operation not in _ROOTED:
        return microbenchmark(
            "ping-pong" if call.operation == MESSAGE else call.operation.replace("_", "-"), ranks, size
        )
    node = {"node_id": 0, "name": call.operation, "operator": call.operation, "type": NodeType.COMM_COLL}
    columns = {"comm_type": int(_ROOTED[call.operation]), "comm_size_bytes": size, "stream": 100}
    graph = Graph.build(0, [node | columns], [])
    return Workload((graph,), np.zeros(ranks, dtype=np.int32), {}, {"source": "calibration"})
