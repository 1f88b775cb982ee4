"""What the points of a sweep can be compared by."""

from __future__ import annotations

__all__ = ["FIGURES"]

FIGURES = (
    "makespan_ns", "exposed_comm_ns", "compute_ns", "comm_ns", "overlap_ns", "rank_time_ns", "ranks", "cost",
)  # fmt: skip
"""What can be compared; ``rank_time_ns`` is the makespan times the ranks, the accelerator time of a step, and
``cost`` its price, where prices are given."""
