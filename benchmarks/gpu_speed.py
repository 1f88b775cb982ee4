"""Measure the speed of the GPU model: NCCL's all-reduce on H100s, and all-gathers on the generic GPU.

Example: ``python benchmarks/gpu_speed.py``. Each case runs in a separate process; CPU time and peak memory
are measured. ``--detailed`` adds small cases on the detailed fabric, with the results of the fast fabric.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import time
from typing import NamedTuple

from chakrascope.runner.gpu import find_machine, simulate_program
from chakrascope.runner.programs import Program, all_pairs_program, builtin_program, nccl_program
from chakrascope.support import bytes_text


class Case(NamedTuple):
    """A collective: its program, number of GPUs, and total bytes; NCCL's program runs on the H100."""

    way: str
    gpus: int
    size_bytes: int
    detailed: bool = False


CASES = (
    Case("nccl", 8, 256 << 20),
    Case("nccl", 128, 1 << 20),
    Case("direct", 8, 256 << 20),
    Case("put:60", 8, 256 << 20),
    Case("ring", 8, 256 << 20),
    Case("direct", 128, 1 << 20),
    Case("put:60", 128, 1 << 20),
)
DETAILED = (Case("put:60", 8, 1 << 20, detailed=True), Case("direct", 8, 1 << 20, detailed=True))


def program_of(case: Case) -> Program:
    """Return the program that a case runs."""
    if case.way == "nccl":
        return nccl_program("ring", "all-reduce", case.gpus, "Simple", channels=16)
    name, _, workgroups = case.way.partition(":")
    if workgroups:
        return all_pairs_program(name, "all-gather", case.gpus, int(workgroups))
    return builtin_program(name, "all-gather", case.gpus)


def measure(case: Case) -> str:
    """Run *case* and return its row."""
    began = time.process_time()
    program, machine = program_of(case), find_machine("h100" if case.way == "nccl" else "generic")
    shard = case.size_bytes // case.gpus if program.collective == "all-gather" else case.size_bytes
    run = simulate_program(program, shard, machine, detailed=case.detailed, record_ops=False)
    took = time.process_time() - began
    lines = run.counters["asked_lines"] + run.counters["stored_lines"]
    memory = bytes_text(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10)
    size = bytes_text(case.size_bytes)
    fabric = "detailed" if case.detailed else "fast"
    return (
        f"| {case.way} | {machine.name} | {case.gpus} | {size} | {fabric} | "
        f"{run.time_ns / 1000:,.1f} us | {lines:,.0f} | {run.counters['events']:,.0f} | {took:.1f} s | "
        f"{memory} |"
    )


def main() -> None:
    """Print a table of all cases."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--detailed", action="store_true", help="also simulate small cases on the slow fabric"
    )
    options = parser.parse_args()
    cases = [*CASES, *DETAILED, *(case._replace(detailed=False) for case in DETAILED)]
    print("| program | machine | GPUs | bytes | fabric | simulated | requests | events | CPU | memory |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for case in cases if options.detailed else CASES:
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            print(pool.apply(measure, (case,)), flush=True)


if __name__ == "__main__":
    main()
