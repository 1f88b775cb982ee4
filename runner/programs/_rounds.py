"""The rounds in which a program with messages processes its buffer, limited by the slots of connections.

NCCL and MSCCL's interpreter have a few slots per connection and repeat all steps until the buffer is
processed. A round takes one slot of data from every chunk.
"""

from __future__ import annotations

from ._model import Op
from ._sizes import Sizes

__all__ = ["SLOT_BYTES", "Rounds"]

SLOT_BYTES = {"Simple": 1 << 20, "LL": 1 << 15, "LL128": 576_000}
"""The data that a slot of NCCL holds, by protocol (2.30: buffers of 8 steps, two of which a message of Simple
fills; 512 threads with 8 bytes of LL on 8 lines; 640 threads with 120 words of LL128)."""


class Rounds:
    """The rounds of a program for one size: *count* of them, with slots of *slot_bytes* of data."""

    def __init__(self, sizes: Sizes, slot_bytes: int) -> None:
        largest = max(sizes.chunks)
        self._sizes = sizes
        self.slot_bytes = slot_bytes
        self.piece_bytes = min(largest, slot_bytes)
        self.count = -(-largest // self.piece_bytes)

    def piece(self, op: Op, turn: int) -> int:
        """Return how many bytes *op* moves in a round: one slot of each of its chunks."""
        regions = op.sources or op.destinations
        if not regions:
            return 0
        whole = self._sizes.of(op, regions[0], -1)
        most = regions[0].count * self.piece_bytes
        return min(whole, (turn + 1) * most) - min(whole, turn * most)

    def messages(self, size_bytes: int) -> list[int]:
        """Return the sizes of the messages of a step: full slots and the rest, or one empty message."""
        full, rest = divmod(size_bytes, self.slot_bytes)
        return [self.slot_bytes] * full + [rest] * (rest > 0 or full == 0)
