"""Compute the share of a makespan that store and forward of whole messages at a switch can take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ...converter import CollectiveType
from ...support import duration_text, share_text
from .._result import Result
from .._traits import about_backend
from ._collectives import operation_name

# Algorithms in which every rank sends as many bytes as in a ring.
_LIKE_RING = {"ring", "direct", "oneRing", "oneDirect", "halvingDoubling", "oneHalvingDoubling"}
_SWITCH = "Switch"
_HOPS = 2
_MATTERS = 0.1  # least share of the makespan to report store and forward


def second_hop_ns(made: Mapping[str, Any], operation: str, size_bytes: int, ranks: int) -> int | None:
    """Return the ns of a collective's second hop through a switch; None unless one switch joins all ranks.

    *made* is the provenance of the result.
    """
    network, system = made.get("network", {}), made.get("system", {})
    chosen = system.get(f"{operation.replace('_', '-')}-implementation") or []
    simple = list(network.get("topology", [])) == [_SWITCH] and not network.get("links")
    kind = CollectiveType.__members__.get(operation.upper())
    passes = 0 if kind is None else kind.ring_passes
    if not simple or not passes or len(chosen) != 1 or chosen[0] not in _LIKE_RING or ranks < 2:
        return None
    whole = size_bytes * (ranks if kind is CollectiveType.ALL_GATHER else 1)
    sent = passes * whole * (ranks - 1) / ranks
    return round(sent / (float(network["bandwidth"][0]) * 2**30 / 1e9))


def store_and_forward(result: Result) -> str:
    """Return a sentence if store and forward may take 10 % of the makespan or more; otherwise "".

    The reported time is an upper bound: the rank with the most traffic sends all its bytes over one more hop.
    Computation may hide a part of the store-and-forward time.
    """
    if about_backend(result.backend).hops < _HOPS or not result.makespan_ns:
        return ""
    calls = result.columns("collectives")
    _, place, members = np.unique(calls["collective"], return_inverse=True, return_counts=True)
    kinds = np.column_stack([calls["comm_type"], calls["size_bytes"], members[place]])
    different, kind = np.unique(kinds, axis=0, return_inverse=True)
    each = [
        second_hop_ns(result.provenance, operation_name(int(comm_type)), int(size), int(ranks)) or 0
        for comm_type, size, ranks in different.tolist()
    ]
    hops = np.array(each, np.float64)[kind.ravel()] if each else np.zeros(0)
    by_rank = np.bincount(calls["rank"], hops) if len(hops) else np.zeros(1)
    most = int(by_rank.max())
    share = most / result.makespan_ns
    if share < _MATTERS:
        return ""
    return (
        f"Up to {duration_text(most)}, {share_text(min(share, 1.0))} of the makespan, is store and forward: "
        f"'{result.backend}' sends each whole message to the switch, and then from the switch to its "
        "receiver. Real switches forward packets as they arrive, as 'flow' and 'packet' do."
    )
