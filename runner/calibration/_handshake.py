"""Measure whether a message waits for its receiver's request behind opposite traffic, from exchanges."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from ..config import HANDSHAKES
from ._fit import REPEATED
from ._records import EXCHANGE, MESSAGE, Records

__all__ = ["Remarks", "handshake_of"]

_NONE, _IN_ORDER = HANDSHAKES
_BOTH_AT_ONCE, _IN_TURN = 1.25, 1.75  # the ratio of an exchange's time to that of its messages
_FASTER = 0.25  # disturbances only add time, to messages and to exchanges: the faster measurements count
_LARGE = 16  # sizes down to this fraction of the largest count: for smaller ones latency dominates


class Remarks(NamedTuple):
    """Sentences: what was *assumed*, and what is *undetermined*."""

    assumed: tuple[str, ...] = ()
    undetermined: tuple[str, ...] = ()


def handshake_of(records: Records) -> tuple[str, Remarks]:
    """Return the ``handshake`` of sends and receives from exchanges in *records*, and sentences on it.

    If simultaneous messages in both directions take as long as sequential ones, the second waited for the
    first.
    """
    times: dict[tuple[str, int], list[int]] = defaultdict(list)
    for transfer in records.transfers:
        call = transfer.calls[0]
        if call.operation in (MESSAGE, EXCHANGE):
            times[call].append(transfer.transfer_ns)
    sizes = [size for operation, size in times if operation == EXCHANGE and (MESSAGE, size) in times]
    often = [
        size for size in sizes if min(len(times[name, size]) for name in (MESSAGE, EXCHANGE)) >= REPEATED
    ]
    if not often:
        return _NONE, Remarks()
    ratios = [
        float(np.quantile(times[EXCHANGE, size], _FASTER) / np.quantile(times[MESSAGE, size], _FASTER))
        for size in often
        if size * _LARGE >= max(often)
    ]
    ratio = float(np.median(ratios))
    if ratio >= _IN_TURN:
        return _IN_ORDER, Remarks(
            (
                f"Messages both ways at once took {ratio:.2f} times one of them: a receiver's request waits "
                "behind what it sends itself, and so do sends and receives with this network.",
            )
        )
    if ratio <= _BOTH_AT_ONCE:
        return _NONE, Remarks()
    return _NONE, Remarks(
        undetermined=(
            f"Whether messages both ways wait for each other: both at once took {ratio:.2f} times one of "
            "them, which is neither one nor two; no handshake was written.",
        )
    )
