"""What the backward pass computes again, as ``--recompute`` spells it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ....errors import UsageError

__all__ = ["RECOMPUTATIONS", "Recomputation", "recomputation_of"]

RECOMPUTATIONS = ("none", "selective", "full")
_UNIFORM = "uniform:"


class Recomputation(NamedTuple):
    """The *mode*, one of `RECOMPUTATIONS`, of the first *layers* of each part of a stage (0: of all).

    Other layers keep all activations. Each *unit* of layers keeps its input alone.
    """

    mode: str
    layers: int = 0
    unit: int = 1

    def mode_at(self, place: int) -> str:
        """Return the mode of the layer at *place* of a part of a stage."""
        return self.mode if not self.layers or place < self.layers else "none"


@lru_cache(256)
def recomputation_of(text: str) -> Recomputation:
    """Read ``none``, ``selective``, ``full``, ``N`` or ``uniform:N``; raises `UsageError` for others.

    ``N`` and ``uniform:N`` are Megatron's full recomputation of ``--recompute-num-layers`` N by the methods
    ``block`` and ``uniform``.
    """
    if text in RECOMPUTATIONS:
        return Recomputation(text)
    count = text.removeprefix(_UNIFORM)
    if not (count.isascii() and count.isdecimal() and len(count) < 10 and int(count)):
        raise UsageError(
            f"--recompute can be {', '.join(RECOMPUTATIONS)}, a number of layers or uniform:N, "
            f"and not '{text}'."
        )
    if text.startswith(_UNIFORM):
        return Recomputation("full", unit=int(count))
    return Recomputation("full", layers=int(count))
