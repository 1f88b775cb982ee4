"""The answer for a table of operations: slowdowns, causes, step times, and what was assumed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from ....converter.readers import OperationTable
from ....support import change_text
from ._causes import StragglerCause, causes
from ._dependencies import dependencies
from ._layout import Layout, lay_out
from ._replay import Replay
from ._series import Change, level_change
from ._slowdowns import Slowdowns, slowdowns

__all__ = ["Stragglers", "find_stragglers"]

_QUANTILES = (0.5, 0.9, 0.99)
_LEAST_CHANGE = 1.03
_MOST_ERROR = 0.05  # of a replay without changes, beyond which figures are in doubt


@dataclass(frozen=True)
class Stragglers:
    """What slows the steps in *layout*: by how much (*slowdowns*), and why (*causes*)."""

    layout: Layout
    slowdowns: Slowdowns
    causes: tuple[StragglerCause, ...]
    remarks: tuple[str, ...]

    @property
    def quantiles_ns(self) -> dict[str, int]:
        """Quantiles of the recorded step times, and the longest."""
        times = self.slowdowns.recorded_ns
        values = {f"p{q * 100:g}": round(float(np.quantile(times, q))) for q in _QUANTILES}
        return values | {"longest": int(times.max())}

    @property
    def change(self) -> Change | None:
        """The step from which on recorded step times have another level; None if they have one level."""
        times = self.slowdowns.recorded_ns.astype(np.float64)
        return level_change(self.layout.steps, times, _LEAST_CHANGE)

    def to_json(self) -> dict[str, Any]:
        """Return everything but the tables as plain values."""
        found, change = self.slowdowns, self.change
        return {
            "replicas": self.layout.replicas,
            "stages": self.layout.stages,
            "step_count": len(self.layout.steps),
            "slowdown": found.overall,
            "replay_error": found.replay_error,
            "ideal_step_ns": found.ideal_ns,
            "worker_share": found.worker_share,
            "last_stage_share": found.last_stage_share,
            "step_ns": self.quantiles_ns,
            "change": change and {"step": change.step, "before_ns": change.before, "after_ns": change.after},
            "remarks": list(self.remarks),
        }


def find_stragglers(table: OperationTable) -> Stragglers:
    """Rebuild the dependencies of *table*'s steps and replay them with and without each possible straggler.

    Raises `TraceError` naming what does not fit a schedule of pipeline stages and data-parallel replicas.
    """
    layout = lay_out(table)
    replay = Replay(layout, dependencies(layout))
    found = slowdowns(replay)
    remarks = list(layout.remarks)
    if replay.backward_transfers:
        remarks.append(
            f"{replay.backward_transfers:,} transfers end over 10 ms before their last member begins, and "
            "count as nothing: clocks of ranks differ"
        )
    named = tuple(causes(replay, found))
    if abs(found.replay_error) > _MOST_ERROR and all(cause.kind != "host" for cause in named):
        remarks.append(
            f"the replay differs from the recorded steps by {change_text(1 / (1 + found.replay_error) - 1)}: "
            "times and dependencies do not fit each other, so that the figures are uncertain"
        )
    return Stragglers(layout, found, named, tuple(remarks))
