"""Measure how long it takes to read, prove and lower collective programs.

Example: ``python benchmarks/program_proofs.py tests/data/runner/programs/*.gz --ranks 8,16,32,64``. Each file
is read, proved and lowered to messages of 1 MiB, and so is the built-in ring all-reduce among so many ranks,
whose steps grow with the square of them. Times are the least of three runs; *share* is the proof's time for
a step over that of the first program.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path

from chakrascope.runner.programs import (
    Program,
    builtin_program,
    lower,
    parse_program,
    prove,
    read_program,
    write_msccl,
)

REPEATS = 3
SIZE = 1 << 20


def least_s(run: Callable[[], object]) -> float:
    """Return the least time that *run* takes."""
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    """Print a line per program."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("programs", nargs="*", type=Path)
    parser.add_argument("--ranks", default="8,16,32,64")
    options = parser.parse_args()
    measured: list[tuple[str, Program, Callable[[], object]]] = [
        (path.name.partition(".")[0], read_program(path), lambda path=path: read_program(path))
        for path in options.programs
    ]
    for count in map(int, options.ranks.split(",")):
        program = builtin_program("ring", "all-reduce", count)
        text = write_msccl(program).encode()
        measured.append((f"ring of {count}", program, lambda text=text: parse_program(text, "ring")))
    first = 0.0
    print(f"{'program':42} {'steps':>7} {'read':>9} {'prove':>9} {'lower':>9} {'share':>6}")
    for name, program, read in measured:
        proof = prove(program)
        proving = least_s(lambda program=program: prove(program))
        lowering = least_s(lambda program=program: lower(program, SIZE * program.num_ranks))
        step = proving / proof.steps
        first = first or step
        times = " ".join(f"{seconds * 1e3:6.1f} ms" for seconds in (least_s(read), proving, lowering))
        print(f"{name:42} {proof.steps:7} {times} {step / first:6.2f}")


if __name__ == "__main__":
    main()
