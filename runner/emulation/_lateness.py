"""The lateness of computations in an emulation, which shows whether processors were overloaded."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from ...converter import NodeType, Workload
from ...support import count_text, duration_text, share_text

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Lateness"]

# Fractions of the makespan: above the first a result has a warning, above the second it is refused.
_WARNED, _REFUSED = 0.02, 0.2
# A waiting rank wakes up within this time; a longer delay means that it had no processor.
_WAKES_WITHIN_NS = 20_000
# A single pause of a processor takes milliseconds, which is most of a job of that length.
_LEAST_REFUSED_NS = 50_000_000


@dataclass(frozen=True)
class Lateness:
    """How much later than in the workload *count* computations of all ranks ended, in ns.

    *total* is the sum over the computations of *rank*, the rank with the largest sum. *kept_waiting* is the
    largest sum over a rank of the delays beyond the normal wake-up time.
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
        """Return a warning for a result of *makespan_ns*; "" if lateness does not matter."""
        if self.total <= _WARNED * makespan_ns:
            return ""
        return f"{self._text(makespan_ns)} The result is about this machine's processors, too."

    def refusal(self, makespan_ns: int) -> str:
        """Return why an emulation of *makespan_ns* is invalid; "" if it is valid."""
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
