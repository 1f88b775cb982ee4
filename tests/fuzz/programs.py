"""Judges collective programs with one mistake in them: by the proof, and by interpreters independent of it.

    python tests/fuzz/programs.py --mutants 5000                  of the samples
    python tests/fuzz/programs.py --mutants 100 a.xml b.json.gz   of these files

Ends with 1 if a wrong program is proved. The same ``--seed`` makes the same mutants.
"""

from __future__ import annotations

import argparse
import functools
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "runner" / "programs"))

from differential import judged, mutant, text_of  # noqa: E402 - of the folder above
from program_samples import SAMPLES  # noqa: E402


def main() -> int:
    """Judge mutants, print where proof and interpreter differ, and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--mutants", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=float("inf"), help="end after so many, too")
    parser.add_argument("--schedules", type=int, default=20, help="orders of each mutant")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    first = random.SystemRandom().randrange(2**32) if asked.seed is None else asked.seed
    paths, counts, end = asked.files or SAMPLES, Counter(), time.time() + asked.seconds
    print(f"Seed {first}, {len(paths)} programs", flush=True)
    judge = functools.partial(_judged_mutant, paths, asked.schedules)
    with ProcessPoolExecutor(max(1, asked.processes)) as pool:
        for verdict, line in pool.map(judge, range(first, first + asked.mutants)):
            counts[verdict] += 1
            if verdict in {"unsound", "refused"}:
                print(line, flush=True)
            if time.time() > end:
                pool.shutdown(cancel_futures=True)
                break
    verdicts = ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items()))
    print(f"{counts.total()} of {asked.mutants} mutants: {verdicts}")
    return int(counts["unsound"] > 0)


def _judged_mutant(paths: Sequence[Path], schedules: int, seed: int) -> tuple[str, str]:
    """Return the verdict on the mutant of *seed*, and a line about it."""
    path = random.Random(seed).choice(paths)
    text, mistake = mutant(text_of(path), seed)
    verdict, why = judged(text, seed, schedules)
    return verdict, f"{verdict}: {path.name}, seed {seed}, {mistake}: {why}"


if __name__ == "__main__":
    sys.exit(main())
