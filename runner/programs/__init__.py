"""Collectives as programs: read them, prove them, and turn them into messages."""

from __future__ import annotations

from ._model import Buffer, Channel, ChannelType, Op, Program, RankProgram, Region, ThreadBlock
from ._proof import Problem, Proof, prove
from .readers import parse_program, read_program

__all__ = [
    "Buffer",
    "Channel",
    "ChannelType",
    "Op",
    "Problem",
    "Program",
    "Proof",
    "RankProgram",
    "Region",
    "ThreadBlock",
    "parse_program",
    "prove",
    "read_program",
]
