"""Decide which gaps between a thread's operators were waits, by the usual length of its gaps."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from ..readers import Communication, Ops, Pieces

__all__ = ["Gaps", "is_idle", "piece_at"]

_ATEN = "aten::"


def piece_at(time_ns: int, pieces: Pieces) -> int:
    """Return the piece that contains the end time *time_ns*."""
    return max(0, int(np.searchsorted(pieces.start_ns, time_ns - 1, side="right")) - 1)


def is_idle(at: int, ops: Ops, pieces: Pieces) -> bool:
    """Return whether the thread may have waited in this piece: outside operators, or between inner ones.

    ATen operators compute between their inner operators, too.
    """
    op = int(pieces.op[at])
    return op < 0 or not (ops.is_leaf[op] or ops[op].name.startswith(_ATEN))


class Gaps(msgspec.Struct, frozen=True):
    """The usual time of a thread from one operator to the next, and from a wait to the next operator.

    *between* operators and *within* one are the lengths of gaps in which no communication ended and that
    follow none directly; *resumed* are the rests of gaps after certain waits; all are sorted. Only ranks of
    lengths are compared, so a slower machine gives the same result. *trials* is one more than the number of
    tested gaps: a gap counts as a wait only if chance would produce fewer than one in that many.
    """

    pieces: Pieces
    between: np.ndarray
    within: np.ndarray
    resumed: np.ndarray
    trials: int

    @classmethod
    def of(cls, comms: Sequence[Communication], ops: Ops, pieces: Pieces) -> Gaps:
        """Return the gaps of a thread that issued *comms*; no wait is certain yet."""
        named_aten = np.array([name.startswith(_ATEN) for name in ops.trace.names(ops.name)], dtype=bool)
        works = ops.is_leaf.astype(bool) | named_aten
        outside = pieces.op < 0
        usual = np.ones(len(pieces.op), dtype=bool)
        usual[[piece_at(comm.end_ns, pieces) for comm in comms]] = False
        usual &= ~np.isin(pieces.start_ns, [int(ops.end_ns[comm.op]) for comm in comms])
        within = ~outside
        within[within] = ~works[pieces.op[within]]
        lengths = pieces.end_ns - pieces.start_ns
        nothing = np.zeros(0, dtype=lengths.dtype)
        between, within = (np.sort(lengths[kind & usual]) for kind in (outside, within))
        return cls(pieces, between, within, nothing, len(comms) + 1)

    def resuming(self, certain: Collection[tuple[int, int]]) -> Gaps:
        """Return these gaps with the *certain* waits: their pieces and ends."""
        left = [int(self.pieces.end_ns[at]) - over_ns for at, over_ns in certain]
        return msgspec.structs.replace(self, resumed=np.sort(np.array(left, dtype=self.between.dtype)))

    def returned(self, at: int, since_ns: int, until_ns: int) -> bool:
        """Return whether a call that returned at *until_ns* in piece *at* had blocked the thread *since_ns*.

        It had if a gap of this length is so rare that none is expected among the tested gaps.
        """
        return self.trials * _share(until_ns - since_ns, self._alike(at)) < 1

    def ended_in(self, at: int, over_ns: int) -> bool:
        """Return whether the thread left piece *at* because a communication ended at *over_ns*.

        If it did, the rest of the gap is as long as usual after a wait, or as usual gaps are. If not, the
        whole gap is as long as usual gaps, and ended soon after *over_ns* by chance, uniformly distributed.
        """
        whole, left = (int(self.pieces.end_ns[at]) - since for since in (self.pieces.start_ns[at], over_ns))
        alike = self._alike(at)
        by_chance = _share(whole, alike) * left / whole
        as_after_waits = _longer(left, self.resumed) / (1 + len(self.resumed))
        return self.trials * by_chance < max(_share(left, alike), as_after_waits)

    def _alike(self, at: int) -> np.ndarray:
        return self.between if self.pieces.op[at] < 0 else self.within


def _share(length_ns: int, ordered: np.ndarray) -> float:
    """Return the share of the lengths, this one included, of at least *length_ns*."""
    return (1 + _longer(length_ns, ordered)) / (1 + len(ordered))


def _longer(length_ns: int, ordered: np.ndarray) -> int:
    """Return the number of lengths of at least *length_ns*."""
    return len(ordered) - int(np.searchsorted(ordered, length_ns))
