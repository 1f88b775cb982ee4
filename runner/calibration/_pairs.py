"""Pairs of ranks with unequal messages: hosts with links of different rates."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

import numpy as np

from ...support import bandwidth_text, count_text
from ._levels import Level
from ._records import MESSAGE, Records

__all__ = ["without_faster_pairs"]

_ALIKE = 1.25  # the factor by which rates may differ and still count as equal
_MOST_NAMED = 6
_Pair = tuple[int, ...]


def without_faster_pairs(records: Records, levels: list[Level]) -> tuple[Records, list[str]]:
    """Return *records* without messages of pairs that are faster than others of their level, and the reason.

    A dimension has one bandwidth, and collectives of all ranks wait for the slowest pair.
    """
    faster: set[_Pair] = set()
    sentences = []
    for level in levels:
        paces = {pair: pace for pair, pace in _paces(records).items() if level.joins(pair)}
        slowest = max(paces.values(), default=0.0)
        quick = {pair for pair, pace in paces.items() if pace * _ALIKE < slowest}
        if not quick:
            continue
        faster |= quick
        slow = sorted(set(paces) - quick, key=lambda pair: (-paces[pair], pair))
        named = "; ".join(
            f"{_name(records, pair)} {bandwidth_text(1 / paces[pair])}" for pair in slow[:_MOST_NAMED]
        )
        more = f" and {count_text(len(slow) - _MOST_NAMED, 'more pair')}" if len(slow) > _MOST_NAMED else ""
        sentences.append(
            f"One bandwidth for '{level.name}': its pairs differ. The slowest: {named}{more}; the fastest "
            f"reaches {bandwidth_text(1 / min(paces.values()))}. The bandwidth of the slowest was written, "
            "for which collectives of all ranks wait; messages between the others are faster than it says."
        )
    if not faster:
        return records, []
    transfers = tuple(
        transfer
        for transfer in records.transfers
        if transfer.calls[0].operation != MESSAGE or tuple(sorted(transfer.members)) not in faster
    )
    return replace(records, transfers=transfers), sentences


def _paces(records: Records) -> dict[_Pair, float]:
    """Return the marginal time of a byte between two ranks, for pairs with messages of two sizes."""
    times: dict[_Pair, dict[int, list[int]]] = defaultdict(lambda: defaultdict(list))
    for transfer in records.transfers:
        if len(transfer.calls) == 1 and transfer.calls[0].operation == MESSAGE:
            times[tuple(sorted(transfer.members))][transfer.calls[0].size_bytes].append(transfer.transfer_ns)
    paces = {}
    for pair, sizes in times.items():
        if len(sizes) < 2:
            continue
        small, large = sorted(sizes)[-2:]
        pace = float(np.median(sizes[large]) - np.median(sizes[small])) / (large - small)
        if pace > 0:
            paces[pair] = pace
    return paces


def _name(records: Records, pair: _Pair) -> str:
    return " - ".join(
        f"rank {rank} ({records.hosts[rank]})" if rank in records.hosts else f"rank {rank}" for rank in pair
    )
