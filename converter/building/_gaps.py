"""The gaps between a thread's operators: which were waits, told by how long its others usually are."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from ..readers import Communication, Ops, Pieces

__all__ = ["Gaps", "is_idle", "piece_at"]

_ATEN = "aten::"


def piece_at(time_ns: int, pieces: Pieces) -> int:
    """Return the piece in which *time_ns* is the end of something."""
    return max(0, int(np.searchsorted(pieces.start_ns, time_ns - 1, side="right")) - 1)


def is_idle(at: int, ops: Ops, pieces: Pieces) -> bool:
    """Return whether the thread may have waited in this piece: in no operator, or between inner ones.

    Those of ATen compute between their inner operators too.
    """
    op = int(pieces.op[at])
    return op < 0 or not (ops.is_leaf[op] or ops[op].name.startswith(_ATEN))


class Gaps(msgspec.Struct, frozen=True):
    """How long a thread usually takes from one operator to the next, and from a wait to the next.

    *between* operators and *within* one are the lengths of the gaps in which no communication ended and that
    follow none directly, *resumed* what was left of a gap after a certain wait; all in order. Lengths are
    compared by rank alone, so that a machine twice as slow changes no answer. *trials* are the gaps asked
    about, and one more: of so many none is expected to look like a wait by chance.
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
        """Return these gaps with what is known of the *certain* waits: their pieces, and when they ended."""
        left = [int(self.pieces.end_ns[at]) - over_ns for at, over_ns in certain]
        return msgspec.structs.replace(self, resumed=np.sort(np.array(left, dtype=self.between.dtype)))

    def returned(self, at: int, since_ns: int, until_ns: int) -> bool:
        """Return whether a call that returned at *until_ns* in piece *at* had held the thread up.

        All else that the thread did *since_ns* is to be expected of a gap. It had waited if a gap as long is
        so rare that none is expected among as many as are asked about.
        """
        return self.trials * _share(until_ns - since_ns, self._alike(at)) < 1

    def ended_in(self, at: int, over_ns: int) -> bool:
        """Return whether the thread left piece *at* because something was over at *over_ns*.

        If it did, what was left of the gap is as long as that usually is after a wait, or as gaps are. If
        not, the whole gap is as long as gaps are, and ended so soon after *over_ns* by chance: no moment in
        it is likelier than another.
        """
        whole, left = (int(self.pieces.end_ns[at]) - since for since in (self.pieces.start_ns[at], over_ns))
        alike = self._alike(at)
        by_chance = _share(whole, alike) * left / whole
        as_after_waits = _longer(left, self.resumed) / (1 + len(self.resumed))
        return self.trials * by_chance < max(_share(left, alike), as_after_waits)

    def _alike(self, at: int) -> np.ndarray:
        return self.between if self.pieces.op[at] < 0 else self.within


def _share(length_ns: int, ordered: np.ndarray) -> float:
    """Return which share of the lengths, and of this one, are *length_ns* or more."""
    return (1 + _longer(length_ns, ordered)) / (1 + len(ordered))


def _longer(length_ns: int, ordered: np.ndarray) -> int:
    """Return how many of the lengths are *length_ns* or more."""
    return len(ordered) - int(np.searchsorted(ordered, length_ns))
