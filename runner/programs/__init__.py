"""Collectives as programs: read them, prove them, and turn them into messages."""

from __future__ import annotations

from ._choice import Choice, Demand, choose_programs, read_proved
from ._graphs import graphs_of, workload_of
from ._lower import Lowered, Message, lower, program_bytes
from ._model import Buffer, Channel, ChannelType, Op, Program, RankProgram, Region, ThreadBlock
from ._proof import Problem, Proof, prove
from .readers import parse_program, read_program

__all__ = [
    "Buffer",
    "Channel",
    "ChannelType",
    "Choice",
    "Demand",
    "Lowered",
    "Message",
    "Op",
    "Problem",
    "Program",
    "Proof",
    "RankProgram",
    "Region",
    "ThreadBlock",
    "choose_programs",
    "graphs_of",
    "lower",
    "parse_program",
    "program_bytes",
    "prove",
    "read_program",
    "read_proved",
    "workload_of",
]
