"""Plant one cause at a time into a training script and ask `chakrascope profile` for it.

    python benchmarks/planted_causes/run.py                    # all jobs, some 20 s each
    python benchmarks/planted_causes/run.py regex gil -o rows.jsonl
    python benchmarks/planted_causes/run.py --healthy          # the same scripts without their causes

For each job the script runs without and with its cause, unprofiled, which gives the true gain of removing the
cause: the difference of the median steps, or of the mean steps where the cause is not in every step. Then the
slow variant is profiled. The cause is named if headline and first advice match what the table below expects,
and its gain is right if it is within 20 % of the truth. A healthy script must not be given one of the causes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

JOB = Path(__file__).with_name("job.py")
WARM = 4  # steps that a truth leaves out
STEPS = 24


class Expected(NamedTuple):
    """How a cause is to be named, as a regular expression, and how many ranks the job has."""

    named: str
    ranks: int = 1
    recurs: bool = False


JOBS = {
    "dataset": Expected("input pipeline|input_pipeline"),
    "worker": Expected("worker"),
    "collections": Expected("garbage"),
    "lock": Expected("lock"),
    "gil": Expected("lock|GIL"),
    "regex": Expected(r"Regex\.before_forward"),
    "items": Expected("synchroni[sz]ation"),
    "logging": Expected("logging"),
    "small_operators": Expected("dispatch"),
    "recompilation": Expected("compilation"),
    "checkpoint": Expected("checkpoint", recurs=True),
    "validation": Expected("validation", recurs=True),
    "straggler": Expected("rank 1.*sleep|sleep", ranks=2),
    "parameter_loop": Expected("ParameterLoop|optimizer|dispatch"),
    "double_optimizer": Expected("(?i)double|optimizer|DoubleAdam"),
    "larger_batch": Expected("(?i)rank 1", ranks=2),
    "wide_projection": Expected("hidden|addmm"),
    "embedding": Expected("(?i)all.?reduce|communication", ranks=2),
    "file_writes": Expected("I/O|io\\b"),
    "requests": Expected("I/O|io\\b|Requests"),
    "throttled": Expected("(?i)descheduled"),
    "printing": Expected(r"Printing\.after_step|logging"),
    "json": Expected(r"JsonRecords\.after_step|logging"),
    "deepcopy": Expected(r"DeepCopies\.after_step"),
    "pickle": Expected(r"Pickles\.after_step"),
    "sleep": Expected("(?i)sleep"),
    "subprocess": Expected("I/O|io\\b|Subprocess"),
    "rank_dataset": Expected("input pipeline|input_pipeline", ranks=4),
    "compiled_regex": Expected(r"Regex\.before_forward"),
    "sharded_sleep": Expected("(?i)sleep", ranks=2),
    "sharded_checkpoint": Expected("checkpoint", ranks=2, recurs=True),
    "trainer": Expected("logging"),
}
# What must not be reported of a script without a cause.
BLAMED = re.compile(
    "garbage|lock|sleep|I/O|checkpoint|validation|logging|[Cc]ompilation|comes last|input pipeline|worker"
)


def main() -> None:
    """Run the chosen jobs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"of {', '.join(JOBS)} [default: all]")
    parser.add_argument("--healthy", action="store_true", help="profile the scripts without their causes")
    parser.add_argument("-o", "--output", type=Path, help="append a JSON line per job")
    options = parser.parse_args()
    rows = []
    print("job                  off      on   truth  promised  named  right  first advice")
    for name in options.jobs or JOBS:
        row = healthy_row(name) if options.healthy else planted_row(name)
        rows.append(row)
        print(text_of(row), flush=True)
        if options.output:
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    named, right = (sum(bool(row[key]) for row in rows) for key in ("named", "right"))
    word = "blamed" if options.healthy else "named"
    print(f"{named} of {len(rows)} {word}, gains within 20 % in {right}")


def planted_row(name: str) -> dict[str, Any]:
    """Return what is promised for the job *name* with its cause, and what is true."""
    expected = JOBS[name]
    middle = statistics.mean if expected.recurs else statistics.median
    off, on = (middle(step_times(name, slow)[WARM:]) for slow in (False, True))
    answer = profiled(name, slow=True)
    first = (answer["advice"] or [{}])[0]
    promised = first.get("gain_ns", 0) / 1e6
    text = " ".join([answer["headline"], *(str(value) for value in first.values())])
    truth = on - off
    return {
        "job": name,
        "off_ms": off,
        "on_ms": on,
        "truth_ms": truth,
        "promised_ms": promised,
        "named": bool(re.search(expected.named, text)),
        "right": abs(promised - truth) <= 0.2 * truth,
        "first": first.get("what", ""),
        "place": first.get("place", ""),
        "headline": answer["headline"],
    }


def healthy_row(name: str) -> dict[str, Any]:
    """Return the answer for the job *name* without its cause."""
    answer = profiled(name, slow=False)
    first = (answer["advice"] or [{}])[0]
    off = statistics.median(step_times(name, slow=False)[WARM:])
    blamed = BLAMED.search(f"{answer['headline']} {first.get('what', '')}")
    gain = first.get("gain_ns", 0) / 1e6
    return {"job": name, "off_ms": off, "on_ms": off, "truth_ms": 0.0, "promised_ms": gain,
            "named": bool(blamed), "right": not blamed, "first": first.get("what", ""),
            "place": first.get("place", ""), "headline": answer["headline"]}  # fmt: skip


def text_of(row: dict[str, Any]) -> str:
    """Return a row as a line of the table."""
    figures = "".join(f"{row[key]:8.1f}" for key in ("off_ms", "on_ms", "truth_ms"))
    marks = "".join(f"{'yes' if row[key] else '-':>7}" for key in ("named", "right"))
    return f"{row['job']:<17}{figures}{row['promised_ms']:10.1f}{marks}  {row['first']} {row['place']}"


def command(name: str, slow: bool) -> list[str]:
    """Return the command line of a job."""
    ranks = JOBS[name].ranks
    launch = [sys.executable]
    if ranks > 1:
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        launch += ["--master-port", str(20_000 + os.getpid() % 10_000)]
    script = [str(JOB.with_name("trainer_job.py"))] if name == "trainer" else [str(JOB), name]
    return [*launch, *script, "--steps", str(STEPS), *(["--slow"] if slow else [])]


def step_times(name: str, slow: bool) -> list[float]:
    """Return how long each step of the unprofiled job took, in milliseconds."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "times.json"
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "STEP_TIMES": str(file)}
        _run(command(name, slow), folder, environment)
        times: list[float] = json.loads(file.read_text(encoding="utf-8"))
    return times


def profiled(name: str, slow: bool) -> dict[str, Any]:
    """Return the summary of the profiled job."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        chakrascope = [sys.executable, "-m", "chakrascope.cli"]
        _run([*chakrascope, "profile", "-o", "study", "--", *command(name, slow)], folder, environment)
        output = _run([*chakrascope, "summary", "study", "--format", "json"], folder, environment)
    answer: dict[str, Any] = json.loads(output)
    return answer


def _run(words: list[str], folder: str, environment: dict[str, str]) -> str:
    """Return what a command printed; raise with its errors if it failed."""
    done = subprocess.run(
        words, cwd=folder, env=environment, text=True, capture_output=True, timeout=300, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
