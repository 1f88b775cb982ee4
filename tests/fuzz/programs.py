"""Judges collective programs with one mistake in them: by the proof, and by interpreters independent of it.

    python tests/fuzz/programs.py --mutants 5000                  of the samples
    python tests/fuzz/programs.py --mutants 100 a.xml b.json.gz   of these files

Ends with 1 if a wrong program is proved. The same ``--seed`` makes the same mutants.
"""

from __future__ import annotations

import argparse
import functools
import multiprocessing
import random
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path.insert(0, str(TESTS / "runner" / "programs"))

from differential import judged, mutant, text_of  # noqa: E402 - of the folder above
from program_samples import SAMPLES  # noqa: E402

MOST_DRAWS = 10  # per mutant, until the reader accepts it
UNREAD = {"unread", "strict"}


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
    paths, end = asked.files or SAMPLES, time.time() + asked.seconds
    print(f"Seed {first}, {len(paths)} programs", flush=True)
    counts: Counter[str] = Counter()
    done = 0
    judge = functools.partial(_judged_mutant, paths, asked.schedules, end)
    with multiprocessing.Pool(max(1, asked.processes)) as pool:
        # Unordered, so that a slow mutant does not delay others.
        for verdicts in pool.imap_unordered(judge, range(first, first + asked.mutants)):
            done += bool(verdicts) and verdicts[-1][0] not in UNREAD
            for verdict, line in verdicts:
                counts[verdict] += 1
                if verdict in {"unsound", "refused", "strict"}:
                    print(line, flush=True)
    words = ", ".join(f"{verdict} {count}" for verdict, count in sorted(counts.items()))
    print(f"{done} of {asked.mutants} mutants: {words}")
    return int(counts["unsound"] > 0)


def _judged_mutant(paths: Sequence[Path], schedules: int, end: float, seed: int) -> list[tuple[str, str]]:
    """Return the verdict on the mutant of *seed*, with a line about it and the refused attempts before it."""
    path = random.Random(seed).choice(paths)
    verdicts: list[tuple[str, str]] = []
    while time.time() < end and len(verdicts) < MOST_DRAWS:
        text, mistake = mutant(text_of(path), seed, len(verdicts))
        verdict, why = judged(text, seed, schedules)
        verdicts.append((verdict, f"{verdict}: {path.name}, seed {seed}, {mistake}: {why}"))
        if verdict not in UNREAD:
            break
    return verdicts


if __name__ == "__main__":
    sys.exit(main())
