"""How late the computations of an emulation ended: whether it measured the network or the processors."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...converter import NodeType, Workload
from ...support import count_text, duration_text, share_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Lateness"]

# Shares of the makespan: above the first a result comes with a warning, above the second there is none.
_WARNED, _REFUSED = 0.02, 0.2
# A waiting rank wakes within this time; what is later was kept from its processor.
_WAKES_WITHIN_NS = 20_000
# A single pause of a processor takes milliseconds, and is most of a job that takes no longer.
_LEAST_REFUSED_NS = 50_000_000


@dataclass(frozen=True)
class Lateness:
    """By how much *count* computations of all ranks ended later than the workload asks, in ns.

    *total* is the sum over the computations of *rank*, the rank where it is largest. *kept_waiting* is the
    largest sum of a rank of what exceeds the time in which a rank wakes.
    """

    count: int
    median: int
    p99: int
    max: int
    rank: int
    total: int
    kept_waiting: int

    @classmethod
    def of(cls, workload: Workload, nodes: pd.DataFrame) -> Lateness | None:
        """Return the lateness of the measured *nodes* of *workload*; None without computations."""
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
        """Return what to know of a result of *makespan_ns*; "" where lateness does not matter."""
        if self.total <= _WARNED * makespan_ns:
            return ""
        return f"{self._text(makespan_ns)} The result is about this machine's processors, too."

    def refusal(self, makespan_ns: int) -> str:
        """Return why an emulation of *makespan_ns* is no result; "" where it is one."""
        if self.kept_waiting <= max(_REFUSED * makespan_ns, _LEAST_REFUSED_NS):
            return ""
        return (
            f"{self._text(makespan_ns)} The processors were busy with other ranks or programs: what was "
            "measured is about them, not about the network. Next: emulate on more hosts or fewer ranks, at a "
            "lower rate, or on a quieter machine."
        )

    def to_json(self) -> dict[str, int]:
        """Return it as plain JSON."""
        return asdict(self)

    def _text(self, makespan_ns: int) -> str:
        return (
            f"Compute of rank {self.rank} ended late by {duration_text(self.total)} in total, "
            f"{share_text(self.total / max(makespan_ns, 1))} of the makespan (99th percentile of "
            f"{count_text(self.count, 'operation')} of all ranks: {duration_text(self.p99)})."
        )
