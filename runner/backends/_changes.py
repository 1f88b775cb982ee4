"""Sentences on the effects of link changes during a simulation."""

from __future__ import annotations

from typing import Any

from ...support import count_text
from ..config import Fabric

__all__ = ["change_sentences"]


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
