"""Represent a host thread of a rank with a device as a chain of nodes, cut where it issues work or waits."""

from __future__ import annotations

import msgspec
import numpy as np

from .._columns import Columns
from .._native import host_chain
from ..linking import Bursts, Lane

__all__ = ["HostNodes", "Marks", "host_nodes"]


class Marks(Columns, frozen=True):
    """Times at which a thread issues work, or blocks until *resume_ns*.

    *waits* means that the awaited work is in the graph. A stop in a call that returns at *return_ns* has a
    separate node; -1 for all others.
    """

    time_ns: np.ndarray
    resume_ns: np.ndarray
    waits: np.ndarray
    return_ns: np.ndarray

    @classmethod
    def of(cls, *parts: Marks) -> Marks:
        """Return the marks of *parts*, one part after the other."""
        return cls(
            *(np.concatenate([getattr(part, name) for part in parts]) for name in cls.__struct_fields__)
        )


class HostNodes(msgspec.Struct, frozen=True):
    """The nodes of one thread: measured start, duration, and the piece each is named after (-1: none).

    *stop* is the mark whose call a node is (-1: none's). Of each mark, *issuer* is the node that issues its
    work, *resumed* the one that runs once the thread has waited (-1: it did not). Of each burst,
    *burst_first* and *burst_last* are its outer nodes. *wait_ns* is the time the thread was stopped.
    """

    start_ns: np.ndarray
    duration_ns: np.ndarray
    piece: np.ndarray
    stop: np.ndarray
    issuer: np.ndarray
    resumed: np.ndarray
    burst_first: np.ndarray
    burst_last: np.ndarray
    wait_ns: int


def host_nodes(lane: Lane, marks: Marks, bursts: Bursts | None = None) -> HostNodes:
    """Return the nodes of *lane*.

    The thread works in *bursts* only (all the time if there are none). Each node takes the time the thread
    spent in it; time blocked at a mark belongs to no node.
    """
    stops = marks.waits | (marks.resume_ns > marks.time_ns) | (marks.return_ns >= 0)
    order = np.lexsort((stops, marks.time_ns))
    none = np.empty(0, dtype=np.int64)
    columns, wait_ns = host_chain(
        lane.pieces.start_ns,
        lane.pieces.end_ns,
        lane.pieces.op,
        marks.time_ns[order],
        marks.resume_ns[order],
        marks.return_ns[order],
        marks.waits[order].astype(np.uint8),
        none if bursts is None else bursts.start_ns,
        none if bursts is None else bursts.end_ns,
        len(lane.ops),
    )
    for name in ("issuer", "resumed"):
        in_order = columns[name]
        columns[name] = np.empty(len(order), dtype=np.int64)
        columns[name][order] = in_order
    own = columns["stop"] >= 0
    columns["stop"] = np.where(own, order[columns["stop"]] if len(order) else -1, -1)
    return HostNodes(**columns, wait_ns=wait_ns)
