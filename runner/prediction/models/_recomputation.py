"""What the backward pass computes again or gets from the host, as ``--recompute`` spells it."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ....errors import UsageError

__all__ = ["OFFLOAD", "RECOMPUTATIONS", "Recomputation", "recomputation_of"]

RECOMPUTATIONS = ("none", "selective", "full")
OFFLOAD = "offload"
"""The mode of layers whose activations wait in the memory of the host instead."""
_UNIFORM = "uniform"


class Recomputation(NamedTuple):
    """The *mode*, of `RECOMPUTATIONS` or `OFFLOAD`, of the first *layers* of each part of a stage (0: all).

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
    """Read a mode, ``N``, ``uniform:N`` or ``offload:N``; raises `UsageError` for others.

    ``N`` and ``uniform:N`` are Megatron's full recomputation of ``--recompute-num-layers`` N by the methods
    ``block`` and ``uniform``, ``offload:N`` its ``--cpu-offloading-num-layers`` N.
    """
    if text in {*RECOMPUTATIONS, OFFLOAD}:
        return Recomputation(text)
    method, colon, count = text.rpartition(":")
    is_method = method in {_UNIFORM, OFFLOAD} if colon else True
    if not (is_method and count.isascii() and count.isdecimal() and len(count) < 10 and int(count)):
        raise UsageError(
            f"--recompute can be {', '.join(RECOMPUTATIONS)}, {OFFLOAD}, a number of layers, uniform:N or "
            f"{OFFLOAD}:N, and not '{text}'."
        )
    if method == _UNIFORM:
        return Recomputation("full", unit=int(count))
    return Recomputation(method or "full", layers=int(count))
