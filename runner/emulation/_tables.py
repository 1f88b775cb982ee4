"""Merge the measurements of ranks: use one clock, join both ends of messages, and compute lateness."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ...converter import NodeType, Workload
from ...errors import BackendError
from ...support import count_text, duration_text, share_text
from .._result import COLUMNS, ROOFLINE
from ._coordinator import Measurement
from ._hosts import Place
from ._wire import columns_from_wire

if TYPE_CHECKING:
    import pandas as pd

_TIMES = {
    "nodes": ("start_ns", "end_ns"),
    "sent": ("posted_ns", "begun_ns", "sent_ns"),
    "received": ("begun_ns", "received_ns"),
}
_STATISTICS = [name for name in COLUMNS["ranks"] if name != "rank"]

Columns = dict[str, npt.NDArray[Any]]


class MeasuredTables:
    """The tables of one measurement: *ranks*, *nodes* and *flows* (a row per message) of a result.

    In addition to the columns of every result, *flows* has ``tag`` (of the message's chunk or send node),
    ``begun_ns`` and ``sent_ns`` (departure of the first and the last byte), ``arriving_ns`` (arrival of the
    first byte), and ``src_nic`` and ``dst_nic`` (indices into `flow_interfaces`).
    """

    def __init__(self, measurement: Measurement, places: Sequence[Place]) -> None:
        self._measurement = measurement
        self._places = list(places)
        self._columns = [self._corrected(rank) for rank in range(len(self._places))]
        self.ranks = self._ranks()
        self.nodes = self._nodes()
        self.flows = self._flows()
        self.makespan_ns = int(self.ranks["finish_ns"].max())

    def _corrected(self, rank: int) -> dict[str, Columns]:
        """Return the columns of a rank, with times on the coordinator's clock."""
        output = self._measurement.outputs[rank]
        tables = columns_from_wire(output)
        clock = self._measurement.clocks[self._places[rank].host]
        for table, names in _TIMES.items():
            for name in names:
                measured = tables[table][name].astype(np.int64)
                tables[table][name] = clock.corrected(measured, self._measurement.start_ns)
        return tables

    def _ranks(self) -> pd.DataFrame:
        import pandas as pd  # noqa: PLC0415 - an agent, which makes no tables, starts without it

        rows = []
        for rank, output in enumerate(self._measurement.outputs):
            figures = output.facts["statistics"]
            clock = self._measurement.clocks[self._places[rank].host]
            finish = clock.corrected(np.array([figures["finish_ns"]]), self._measurement.start_ns)
            row = {"rank": rank} | {name: int(figures[name]) for name in _STATISTICS}
            rows.append(
                row | {"finish_ns": int(finish[0])} | {name: float(figures[name]) for name in ROOFLINE}
            )
        table: pd.DataFrame = pd.DataFrame(rows)
        return table

    def _nodes(self) -> pd.DataFrame:
        """Return the nodes of all ranks; if a node has an origin, the origin starts before the node."""
        import pandas as pd  # noqa: PLC0415 - an agent, which makes no tables, starts without it

        frames = [
            pd.DataFrame(columns["nodes"]).assign(rank=rank) for rank, columns in enumerate(self._columns)
        ]
        nodes = pd.concat(frames, ignore_index=True)
        origins = nodes[["rank", "node_index", "node_id", "start_ns"]].rename(
            columns={
                "rank": "origin_rank",
                "node_index": "origin_index",
                "node_id": "origin_node",
                "start_ns": "origin_start_ns",
            }
        )
        merged = nodes[["origin_rank", "origin_index"]].merge(
            origins, on=["origin_rank", "origin_index"], how="left"
        )
        started = merged["origin_start_ns"].to_numpy()
        # As in a simulation, a node is its own origin if no earlier node began the chain of events that led
        # to the node.
        own = np.isnan(started) | (started <= nodes["start_ns"].to_numpy())
        nodes["origin_rank"] = np.where(own, nodes["rank"], nodes["origin_rank"])
        nodes["origin_node"] = np.where(own, nodes["node_id"], merged["origin_node"].fillna(-1)).astype(
            np.int64
        )
        table: pd.DataFrame = nodes.drop(columns=["node_index", "origin_index"])
        return table

    def _flows(self) -> pd.DataFrame:
        """Return the messages in the order of arrival; a missing arrival is an error."""
        import pandas as pd  # noqa: PLC0415 - an agent, which makes no tables, starts without it

        sent = [
            pd.DataFrame(columns["sent"]).assign(src=rank, number=np.arange(len(columns["sent"]["peer"])))
            for rank, columns in enumerate(self._columns)
        ]
        received = [
            pd.DataFrame(columns["received"]).assign(dst=rank).rename(columns={"peer": "src"})
            for rank, columns in enumerate(self._columns)
        ]
        left = pd.concat(sent, ignore_index=True).rename(columns={"peer": "dst", "posted_ns": "start_ns"})
        right = pd.concat(received, ignore_index=True).rename(
            columns={"begun_ns": "arriving_ns", "received_ns": "end_ns"}
        )
        flows = left.merge(
            right.drop(columns="path"), on=["src", "dst", "number"], how="outer", indicator=True
        )
        lost = int((flows["_merge"] != "both").sum())
        if lost:
            raise BackendError(
                f"{lost} messages were recorded at only one end; the ranks' measurements are inconsistent."
            )
        nics = [len(place.addresses) for place in self._places]
        flows["src_nic"] = flows["path"] % flows["src"].map(dict(enumerate(nics)))
        flows["dst_nic"] = flows["path"] % flows["dst"].map(dict(enumerate(nics)))
        first = dict(enumerate(np.concatenate([[0], np.cumsum(nics)])[:-1].tolist()))
        flows["src_nic"] += flows["src"].map(first)
        flows["dst_nic"] += flows["dst"].map(first)
        names = ["src", "dst", "bytes", "start_ns", "end_ns", "tag", "begun_ns", "sent_ns", "arriving_ns"]
        chosen = flows[[*names, "src_nic", "dst_nic"]].astype(np.int64)
        # Errors of clock offsets may exceed the transfer time of a message.
        chosen["end_ns"] = np.maximum(chosen["end_ns"], chosen["start_ns"])
        order = chosen.sort_values(["end_ns", "src", "dst"], kind="stable", ignore_index=True)
        narrow = dict.fromkeys(("src", "dst", "src_nic", "dst_nic"), np.int32)
        table: pd.DataFrame = order.astype(narrow)
        return table


def flow_interfaces(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Return the network interfaces of all ranks, in the order of the interface indices in *flows*."""
    return [
        {"rank": place.rank, "host": place.host, "address": address}
        for place in places
        for address in place.addresses
    ]


# Above these fractions of the makespan, lateness leads to a warning, or to a refusal of the result.
_WARNED, _REFUSED = 0.02, 0.2
# A waiting rank wakes up within this time; if the delay is longer, the rank had no processor.
_WAKES_WITHIN_NS = 20_000
# One pause of a processor takes milliseconds, which is most of the time of such a short job.
_MIN_REFUSED_NS = 50_000_000


@dataclass(frozen=True)
class Lateness:
    """The lateness of *count* computations of all ranks, compared with the workload, in ns.

    *total* is the sum of the lateness over the computations of *rank*, which has the largest sum.
    *long_delays* is the largest sum, over the nodes of a rank, of delays beyond the normal wake-up time.
    """

    count: int
    median: int
    p99: int
    max: int
    rank: int
    total: int
    long_delays: int

    @classmethod
    def of(cls, workload: Workload, nodes: pd.DataFrame) -> Lateness | None:
        """Return the lateness of the measured *nodes* of *workload*; None if there are no computations."""
        import pandas as pd  # noqa: PLC0415 - an agent, which makes no tables, starts without it

        frames = [
            graph.nodes.loc[graph.nodes["type"] == NodeType.COMP, ["node_id", "duration_ns"]].assign(
                program=place
            )
            for place, graph in enumerate(workload.graphs)
        ]
        programs = np.asarray(workload.program_of_rank)[nodes["rank"].to_numpy()]
        rows = nodes.assign(program=programs).merge(pd.concat(frames), on=["program", "node_id"])
        late = (rows["end_ns"] - rows["start_ns"] - rows["duration_ns"].clip(lower=1)).to_numpy()
        if not len(late):
            return None
        ranks = rows["rank"].to_numpy()
        totals = np.bincount(ranks, weights=late.clip(min=0))
        waits = np.bincount(ranks, weights=(late - _WAKES_WITHIN_NS).clip(min=0))
        return cls(
            len(late),
            int(np.median(late)),
            int(np.quantile(late, 0.99)),
            int(late.max()),
            int(totals.argmax()),
            int(totals.max()),
            int(waits.max()),
        )

    def warning(self, makespan_ns: int) -> str:
        """Return a warning for a result of *makespan_ns*; or "" if the lateness is negligible."""
        if self.total <= _WARNED * makespan_ns:
            return ""
        return f"{self._text(makespan_ns)} The result also depends on the processors of this machine."

    def refusal(self, makespan_ns: int) -> str:
        """Return why an emulation of *makespan_ns* is invalid, or "" for a valid emulation."""
        if self.long_delays <= max(_REFUSED * makespan_ns, _MIN_REFUSED_NS):
            return ""
        return (
            f"{self._text(makespan_ns)} The processors were busy with other ranks or programs, so the "
            "measurements show their speed, not that of the network. Next: emulate on more hosts or fewer "
            "ranks, at a lower rate, or on a quieter machine."
        )

    def to_json(self) -> dict[str, int]:
        """Return the lateness figures as plain JSON."""
        return asdict(self)

    def _text(self, makespan_ns: int) -> str:
        return (
            f"Compute of rank {self.rank} ended late by {duration_text(self.total)} in total, "
            f"{share_text(self.total / max(makespan_ns, 1))} of the makespan (99th percentile of "
            f"{count_text(self.count, 'operation')} of all ranks: {duration_text(self.p99)})."
        )
