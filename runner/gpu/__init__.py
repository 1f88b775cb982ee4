"""The GPU model: collectives as programs on compute units, each request of a line on its way."""

from __future__ import annotations

from ._backend_name import DEFAULT_MACHINE, GPU_BACKEND, machine_of_backend
from ._changes import faster_machine, machine_figures, machine_of_plain
from ._collectives import GpuPrograms, chosen_programs, gpu_config
from ._machine import LINE_BYTES, Compute, Machine, Memory, Mesh, Protocol, ScaleOut, ScaleUp
from ._machine_files import find_machine, list_machines, load_machine
from ._run import (
    GpuWorkgroups,
    ProgramRun,
    engine_machine,
    simulate_program,
    why_rough,
    workgroups_of,
)

__all__ = [
    "DEFAULT_MACHINE",
    "GPU_BACKEND",
    "LINE_BYTES",
    "Compute",
    "GpuPrograms",
    "GpuWorkgroups",
    "Machine",
    "Memory",
    "Mesh",
    "ProgramRun",
    "Protocol",
    "ScaleOut",
    "ScaleUp",
    "chosen_programs",
    "engine_machine",
    "faster_machine",
    "find_machine",
    "gpu_config",
    "list_machines",
    "load_machine",
    "machine_figures",
    "machine_of_backend",
    "machine_of_plain",
    "simulate_program",
    "why_rough",
    "workgroups_of",
]
