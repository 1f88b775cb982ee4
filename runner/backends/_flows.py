"""Figures on messages that all packet-level simulators share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...support.table import Columns

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["completion_times"]


def completion_times(flows: pd.DataFrame | Columns) -> dict[str, Any]:
    """Return the durations of the messages in the table ``flows``, in ns; empty without messages."""
    times = np.asarray(flows["end_ns"] - flows["start_ns"])
    if not len(times):
        return {}
    return {
        "count": len(times),
        "min": int(times.min()),
        "mean": float(times.mean()),
        "median": float(np.median(times)),
        "p99": float(np.quantile(times, 0.99)),
        "max": int(times.max()),
    }
