"""The GPU model: collectives as programs on compute units, each request of a line on its way."""

from __future__ import annotations

from ._machine import LINE_BYTES, Compute, Machine, Memory, Mesh, Protocol, ScaleOut, ScaleUp
from ._machine_files import find_machine, list_machines, load_machine
from ._run import GpuWorkgroups, ProgramRun, engine_machine, simulate_program, workgroups_of

__all__ = [
    "LINE_BYTES",
    "Compute",
    "GpuWorkgroups",
    "Machine",
    "Memory",
    "Mesh",
    "ProgramRun",
    "Protocol",
    "ScaleOut",
    "ScaleUp",
    "engine_machine",
    "find_machine",
    "list_machines",
    "load_machine",
    "simulate_program",
    "workgroups_of",
]
