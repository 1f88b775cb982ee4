"""Figures and sentences on messages that all packet-level simulators share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ...support import count_text
from ...support.table import Columns
from ..config import Fabric

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["change_sentences", "completion_times"]


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


def change_sentences(fabric: Fabric, changed: dict[str, Any]) -> list[str]:
    """Return the effect of each change of links on messages in flight."""
    sentences = []
    time_us, *ends = fabric.settings["LINK_DOWN"]
    if time_us:
        sentences.append(
            f"LINK_DOWN: the link of nodes {ends[0]} and {ends[1]} is down from 2 s and {time_us} us on, as "
            "in ASTRA-sim, which counts this time from 2 s."
        )
    columns = (changed[name].tolist() for name in ("time_ns", "lost", "rerouted", "waiting"))
    for time_ns, lost, rerouted, waiting in zip(*columns, strict=True):
        words = [f"{count_text(lost, 'packet')} lost", f"{count_text(rerouted, 'message')} took another way"]
        if waiting:
            words.append(f"{count_text(waiting, 'message')} without a way until a link comes back")
        sentences.append(f"Links changed at {time_ns} ns: {', '.join(words)}.")
    later = sorted({change.time_ns for change in fabric.changes} - set(changed["time_ns"].tolist()))
    if later:
        sentences.append(f"The job was done before links changed at {later[0]} ns.")
    return sentences
