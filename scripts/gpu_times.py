"""Times of collectives on the GPU model, kept on request, for gpu_report.py."""

from __future__ import annotations

import hashlib
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

from chakrascope.runner.gpu import Machine, find_machine, simulate_program
from chakrascope.runner.programs import Program


def time_ns(program: Program, size_bytes: int, machine: Machine) -> float:
    """Return how long *program* takes for *size_bytes* of the larger buffer.

    With ``GPU_REPORT_TIMES``, a folder, times are kept there, so that a run can be taken up again.
    """
    shard = size_bytes // program.num_ranks if program.collective == "all-gather" else size_bytes
    folder = os.environ.get("GPU_REPORT_TIMES")
    what = f"{replace(machine, sources={})} {program.name} {program.num_ranks} {size_bytes}"
    kept = Path(folder or "") / hashlib.sha256(what.encode()).hexdigest()[:16]
    if folder and kept.is_file():
        return float(kept.read_text(encoding="utf-8"))
    found = float(simulate_program(program, shard, machine, record_ops=False).time_ns)
    if folder:
        kept.write_text(str(found), encoding="utf-8")
    return found


def generic(**changes: Any) -> Machine:
    """Return the generic GPU with *changes*, such as ``scale_up__latency_ns``."""
    machine = find_machine("generic")
    for key, value in changes.items():
        part, _, name = key.partition("__")
        machine = replace(
            machine, **{part: replace(getattr(machine, part), **{name: value}) if name else value}
        )
    return machine
