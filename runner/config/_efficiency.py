"""The key ``efficiency`` of a network configuration: overheads of the communication library.

* ``wire``: the fraction of the bytes on a link that are payload.
* ``message-cost``: the time that a message occupies its sender.
* ``substitutes``: what the library runs instead of a collective that it does not implement.
* ``collectives``: the overhead of each collective by size.
* ``messages``: the overhead of sends and receives by size.
* ``handshake``: whether a message waits for a request from its receiver.

With these overheads listed separately, a link's bandwidth is the raw one.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ...converter import CollectiveType
from ...errors import ConfigError
from ._values import DELAY_NS, Reader, duration, is_number, one_of, read_keys, size, whole, wrong

HANDSHAKES = ("none", "in-order")
"""The kinds of handshake: none, or a request of the receiver that queues behind earlier messages."""
_OPERATIONS = tuple(kind.name.lower() for kind in CollectiveType)
# Collectives without a root, any of which can replace another with the same number of bytes.
_SYMMETRIC = ("all_gather", "all_reduce", "all_to_all", "reduce_scatter", "reduce_scatter_block")
_MIN_WIRE = 0.01
_MAX_POINTS = 1000
_MAX_PIECES = 64
_LARGEST = 1 << 62
_TIME = duration(*DELAY_NS)


@dataclass(frozen=True, kw_only=True)
class EfficiencyPart:
    """The overheads of a communication library, on top of the transfers over the links.

    *wire* is the fraction of the bytes on a link that are payload (0 to 1). *message_cost_ns* is
    the time that a message occupies its sender. *collectives* maps an operation (``all_reduce``) to
    a curve of its overhead: pairs of bytes and ns in ascending order. Between two sizes, the
    overhead is linear; below the first, it is constant; above the last, it is extrapolated from the
    last two. Sizes are the input of one rank, which for an all-gather is the shard. *messages* is
    the curve of sends and receives. *substitutes* maps an operation to the one that replaces it
    with the same number of bytes.

    With *handshake* ``in-order``, a message leaves once the receiver's request has arrived, and
    requests queue behind the receiver's own messages to the sender; with ``none``, it leaves when
    it is sent. *sends_first* maps an operation whose ranks send before the request arrives, to its
    number of concurrent pieces; the handshake applies to it as well. *written* is the mapping in
    the file.
    """

    wire: float = 1.0
    message_cost_ns: int = 0
    collectives: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    substitutes: Mapping[str, str] = field(default_factory=dict)
    messages: tuple[tuple[int, int], ...] = ()
    handshake: str = "none"
    sends_first: Mapping[str, int] = field(default_factory=dict)
    written: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def from_mapping(cls, data: Any, where: str = "The efficiency part of the network") -> EfficiencyPart:
        """Parse *data*; raises `ConfigError` if it is invalid."""
        place = f"{where}: 'efficiency'"
        given = read_keys(data, _READERS, place)
        handshake = given.get("handshake", "none")
        if given.get("sends-first") and handshake != "in-order":
            raise ConfigError(
                f"{place}: 'sends-first' only applies to requests; it needs handshake: in-order."
            )
        return cls(
            wire=given.get("wire", 1.0),
            message_cost_ns=given.get("message-cost", 0),
            collectives=given.get("collectives", {}),
            substitutes=given.get("substitutes", {}),
            messages=given.get("messages", ()),
            handshake=handshake,
            sends_first=given.get("sends-first", {}),
            written=dict(data),
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the efficiency part in the format of the network file."""
        if self.written:
            return dict(self.written)
        known: dict[str, Any] = {}
        if self.wire != 1:
            known["wire"] = self.wire
        if self.message_cost_ns:
            known["message-cost"] = self.message_cost_ns
        if self.collectives:
            known["collectives"] = {
                name: [list(point) for point in points] for name, points in self.collectives.items()
            }
        if self.messages:
            known["messages"] = [list(point) for point in self.messages]
        if self.handshake != "none":
            known["handshake"] = self.handshake
        if self.sends_first:
            known["sends-first"] = dict(self.sends_first)
        if self.substitutes:
            known["substitutes"] = dict(self.substitutes)
        return known

    def cost_ns(self, operation: str, size_bytes: int) -> float:
        """Return the overhead in ns of *operation* or of a ``message``, interpolated as in the engine."""
        points = self.messages if operation == "message" else self.collectives.get(operation, ())
        if not points:
            return 0.0
        if size_bytes <= points[0][0] or len(points) == 1:
            return float(points[0][1])
        place = next((at for at, (size, _) in enumerate(points) if size >= size_bytes), len(points) - 1)
        (left, left_ns), (right, right_ns) = points[place - 1 : place + 1]
        return max(0.0, left_ns + (right_ns - left_ns) / (right - left) * (size_bytes - left))

    def instead(self) -> dict[int, int]:
        """Return the substitute of each replaced operation, both as Chakra's operation numbers."""
        number = {kind.name.lower(): int(kind) for kind in CollectiveType}
        return {number[name]: number[other] for name, other in self.substitutes.items()}

    def pieces(self) -> dict[int, int]:
        """Return the number of pieces of each operation that sends first, by Chakra's operation number."""
        return {int(CollectiveType[name.upper()]): count for name, count in self.sends_first.items()}

    def costs(self) -> dict[int, list[tuple[int, int]]]:
        """Return the overhead curves of the collectives, by Chakra's operation number."""
        return {int(CollectiveType[name.upper()]): list(points) for name, points in self.collectives.items()}


def _wire(value: Any, where: str) -> float:
    if not is_number(value) or not _MIN_WIRE <= value <= 1:
        raise wrong(
            where,
            f"the share of a link's bytes that is payload, between {_MIN_WIRE} and 1 (0.9415 for TCP in "
            "frames of 1538 B)",
            value,
        )
    return float(value)


def _by_operation(read: Reader, allowed: Iterable[str] = _SYMMETRIC) -> Reader:
    """Return a reader of a mapping from the operations *allowed* to what *read* reads."""
    return lambda value, where: read_keys(value, dict.fromkeys(allowed, read), where)


def _substitutes(value: Any, where: str) -> dict[str, str]:
    pairs: dict[str, str] = _by_operation(one_of(_SYMMETRIC))(value, where)
    for name, other in pairs.items():
        if other in pairs:
            raise ConfigError(
                f"{where} runs {other} instead of {name}, and {pairs[other]} instead of {other}; name the "
                "operation that is finally run."
            )
    return pairs


def _curve(points: Any, where: str) -> tuple[tuple[int, int], ...]:
    pairs = isinstance(points, (list, tuple)) and all(
        isinstance(point, (list, tuple)) and len(point) == 2 for point in points
    )
    if not pairs or not 1 <= len(points) <= _MAX_POINTS:
        raise wrong(where, f"a list of 1 to {_MAX_POINTS} pairs [size, time], such as [[1MiB, 35us]]", points)
    curve = [(size(0, _LARGEST)(most, where), _TIME(time, where)) for most, time in points]
    if any(left >= right for (left, _), (right, _) in itertools.pairwise(curve)):
        raise ConfigError(f"{where}: the sizes must ascend; order the pairs, and keep one of each size.")
    return tuple(curve)


_READERS: dict[str, Reader] = {
    "collectives": _by_operation(_curve, _OPERATIONS),
    "handshake": one_of(HANDSHAKES),
    "message-cost": _TIME,
    "messages": _curve,
    "sends-first": _by_operation(whole(1, _MAX_PIECES)),
    "substitutes": _substitutes,
    "wire": _wire,
}
