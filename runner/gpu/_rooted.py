"""Collectives with a root as programs: the root sends to all others, or receives from them."""

from __future__ import annotations

from ..programs import Buffer, Op, Program, RankProgram, Region, ThreadBlock

__all__ = ["ROOTED", "rooted_program"]

# By collective: what the root does with each other rank, and what that does.
ROOTED = {"broadcast": ("s", "r"), "scatter": ("s", "r"), "gather": ("r", "s"), "reduce": ("rrc", "s")}


def rooted_program(collective: str, ranks: int) -> Program:
    """Return a program among *ranks*, the first of which is the root; each message is the whole size."""
    at_root, at_others = ROOTED[collective]
    root = [_block(place, 0, peer, at_root) for place, peer in enumerate(range(1, ranks))]
    programs = [RankProgram(0, 1, 1, 0, tuple(root))]
    programs += [RankProgram(rank, 1, 1, 0, (_block(0, rank, 0, at_others),)) for rank in range(1, ranks)]
    name = f"direct_{collective}"
    return Program(name, name, "msccl", "custom", "Simple", True, 1, tuple(programs))


def _block(number: int, rank: int, peer: int, step: str) -> ThreadBlock:
    whole = (Region((rank,), Buffer.INPUT, 0, 1),)
    op = Op(step, (0,), whole if step != "r" else (), whole if step != "s" else ())
    return ThreadBlock(number, (op,), peer if step == "s" else -1, peer if step != "s" else -1)
