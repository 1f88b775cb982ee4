"""What a calibration is fitted on: how long collectives took once the last of their ranks had come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...converter import CollectiveType

__all__ = ["EXCHANGE", "MESSAGE", "MUTUAL", "ROOTED", "Call", "Records", "Transfer"]

# The collectives that end on no rank before all have come: the one that took least waited for nobody.
MUTUAL = (
    CollectiveType.ALL_REDUCE,
    CollectiveType.ALL_GATHER,
    CollectiveType.REDUCE_SCATTER,
    CollectiveType.ALL_TO_ALL,
)
# Of these one rank may leave before another has come, and only one clock, or an end that all see, tells.
ROOTED = (
    CollectiveType.BROADCAST,
    CollectiveType.REDUCE,
    CollectiveType.GATHER,
    CollectiveType.SCATTER,
)
MESSAGE = "message"
"""The operation of a message from one rank to another."""
EXCHANGE = "exchange"
"""That of two messages, one each way: each rank sends, and then receives."""


class Call(NamedTuple):
    """A collective, or a message: its operation, such as ``all_reduce``, and the bytes that a rank gives."""

    operation: str
    size_bytes: int


class Transfer(NamedTuple):
    """Collectives of the global ranks *members* that moved their data without a pause, and for how long.

    It is one collective, or several that followed each other so closely that the first had not ended when
    the next was asked for. *transfer_ns* begins when the last rank had come; *wait_ns* is how much longer
    the rank was in it that came first.
    """

    members: tuple[int, ...]
    calls: tuple[Call, ...]
    transfer_ns: int
    wait_ns: int


@dataclass(frozen=True)
class Records:
    """The measurements of one job: *source* says where they are from, in a few words.

    *hosts* and *leaves* say on which host a rank is, and below which switch; they may lack ranks, which are
    then taken to be anywhere. *left_out* are sentences about what was measured and cannot be used.
    *message_costs_ns* are measurements of how long a message keeps its sender from sending the next.
    *sends_first* has the operations whose ranks send before they ask, with the pieces that are under way
    together; of these a transfer is that of a rank which came long after all others. *substitutes* names by
    operation another that the library runs in its place.
    """

    transfers: tuple[Transfer, ...]
    num_ranks: int
    source: str
    hosts: Mapping[int, str] = field(default_factory=dict)
    leaves: Mapping[int, str] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    message_costs_ns: tuple[float, ...] = ()
    sends_first: Mapping[str, int] = field(default_factory=dict)
    substitutes: Mapping[str, str] = field(default_factory=dict)
