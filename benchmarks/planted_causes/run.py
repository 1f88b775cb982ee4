"""Plant one cause at a time into a training script and ask `chakrascope profile` for it.

    python benchmarks/planted_causes/run.py                    # writes docs/validation/causes.md; 20 minutes
    python benchmarks/planted_causes/run.py regex gil -o rows.jsonl
    python benchmarks/planted_causes/run.py --healthy          # the same scripts without their causes
    python benchmarks/planted_causes/run.py --followed --rounds 3  # writes docs/validation/advice.md

Each job runs without and with its cause, without a profiler. The difference of the median steps (or of the
mean steps, if the cause is not in every step) is the true gain of removing the cause. Both variants run
before and after the slow variant is profiled, in opposite order, so that a change in the machine's speed
affects both equally. The cause is named if the headline and the first advice match the table below. The gain
is right if its share of the step is within 20 % of the true share; shares are compared because the speed of a
machine changes between runs. A healthy script must not get advice on any of the causes.

With ``--followed``, the fast variant follows the advice (followed.py), and the promised gain is that of the
first advice that matches the table below. With ``--rounds N``, everything is repeated N times, and medians
are compared.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from chakrascope.tracer._agent.readings import has_bfloat16

JOB = Path(__file__).with_name("job.py")
PAGES = JOB.parents[2] / "docs" / "validation"
WARM = 4  # number of first steps that measurements leave out
STEPS = 24


class Expected(NamedTuple):
    """A regular expression that matches the name of a cause, and the number of ranks of the job.

    *halved* means that following the advice makes the work twice as fast; advice also states this gain.
    """

    named: str
    ranks: int = 1
    recurs: bool = False
    halved: bool = False


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
    "double_optimizer": Expected("(?i)double|optimizer|DoubleAdam", halved=True),
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
    "anomaly_detection": Expected("Anomaly detection"),
    "python_gradient": Expected(r"(Everything|Python between operators) in PairwiseLoss\.backward"),
    "recomputation": Expected("Recomputing"),
    "gradient_penalty": Expected(r"GradientPenalty\.penalize"),
    "barriers": Expected("barriers in", ranks=2),
    "pools": Expected("processes|process or thread"),
    "double_precision": Expected("double precision"),
    "new_pages": Expected("Page faults"),
    "edit_distance": Expected(r"(Everything|Python between operators) in EditDistance\.compare"),
}
# Jobs of followed.py, the pattern of their advice, and the change that was made.
FOLLOWED = {
    "fusion": (Expected("fusion:"), "elementwise operators → `torch.compile`"),
    "whole_gradient": (Expected("synchroni[sz]ation"), "8,000 calls of `.item()` → one call"),
    "larger_batches": (Expected("larger batches"), "128 predictions of one example → one batch"),
    "loader_workers": (Expected("input_pipeline"), "input transformed in the step → by workers"),
    "fused_optimizer": (Expected("optimizer"), "Adam on 204 tensors → `fused=True`"),
    "joined_average": (Expected("foreach"), "400 averages of a tensor → one average"),
    "larger_buckets": (Expected("larger buckets", ranks=2), "a bucket per gradient → 25 MiB buckets"),
    "joined_metrics": (Expected("one by one|fused collectives", ranks=2), "100 small all-reduces → one"),
    "seldom_logging": (Expected("logging", recurs=True), "logging in each step → each eighth step"),
    "lower_precision": (Expected("precision", halved=True), "teacher in float32 → bfloat16"),
    "cached_tokens": (Expected(r"Regex\.before_forward"), "texts tokenized in each step → cached"),
    "async_checkpoint": (Expected("checkpoint", recurs=True), "checkpoint in the step: in another process"),
    "frozen_heap": (Expected("garbage"), "garbage collection in each step → `gc.freeze()`"),
    "dynamic_shapes": (Expected("compilation"), "recompilation for each shape → `dynamic=True`"),
}
_LEFT_OUT = " The advice to lower the precision was not given: the processor has no units for bfloat16."
# Patterns that the advice on a script without a cause must not match.
BLAMED = re.compile(
    r"garbage|\block|sleep|I/O|checkpoint|validation|logging|[Cc]ompilation|comes last|input pipeline|worker"
    "|[Aa]nomaly|[Rr]ecomput|[Pp]rocesses|double precision|Page faults"
)


def main() -> None:
    """Run the chosen jobs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"any of {', '.join(JOBS)} [default: all]")
    parser.add_argument("--healthy", action="store_true", help="profile the scripts without their causes")
    parser.add_argument("--followed", action="store_true", help=f"follow advice; jobs: {', '.join(FOLLOWED)}")
    parser.add_argument("--rounds", type=int, default=1, help="runs of each job; the median counts")
    parser.add_argument("-o", "--output", type=Path, help="append a JSON line per job")
    options = parser.parse_args()
    rows = []
    print("job                  off      on   truth  promised  named  right  first advice")
    for name in options.jobs or (FOLLOWED if options.followed else JOBS):
        if name == "lower_precision" and has_bfloat16() is False:
            print(f"{name}: skipped, because this processor has no units for bfloat16")
            continue
        rounds = [planted_row(name) for _ in range(0 if options.healthy else options.rounds)]
        row = median_row(rounds) if rounds else healthy_row(name)
        rows.append(row)
        print(text_of(row), flush=True)
        if options.output:
            with options.output.open("a", encoding="utf-8") as file:
                file.write(json.dumps(row) + "\n")
    named, right = (sum(bool(row[key]) for row in rows) for key in ("named", "right"))
    word = "blamed" if options.healthy else "named"
    print(f"{named} of {len(rows)} {word}, gains within {'25' if options.followed else '20'} % in {right}")
    if not options.jobs and not options.healthy:
        page = followed_page(rows, options.rounds) if options.followed else planted_page(rows)
        write_page("advice.md" if options.followed else "causes.md", page)


def write_page(name: str, text: str) -> None:
    """Write a page of the documentation."""
    wrapped = runpy.run_path(str(PAGES.parents[1] / "scripts" / "prose.py"))["wrapped"]
    (PAGES / name).write_text(wrapped(text), encoding="utf-8")


def planted_row(name: str) -> dict[str, Any]:
    """Return the promised and the true gain of the job *name* with its cause."""
    expected = expected_of(name)
    middle = statistics.mean if expected.recurs else statistics.median
    steps: dict[bool, list[float]] = {False: [], True: []}
    for slow in (False, True):
        steps[slow] += step_times(name, slow)[WARM:]
    answer = profiled(name, slow=True)
    for slow in (True, False):
        steps[slow] += step_times(name, slow)[WARM:]
    off, on = middle(steps[False]), middle(steps[True])
    advice = answer["advice"] or [{}]
    if name in FOLLOWED:
        advice = [item for item in advice if re.search(expected.named, text_of_advice(item))] or [{}]
    first = advice[0]
    # A planted cause is removed, but advice may promise only the gain of moving the work elsewhere.
    other = "half_ns" if expected.halved else "" if name in FOLLOWED else "whole_ns"
    gain_ns, own_ns = first.get("gain_ns", 0), first.get(other)
    share = first.get("share", 0.0) * (own_ns / gain_ns if own_ns and gain_ns else 1)
    promised, truth = share * on, on - off
    text = text_of_advice(first) + ("" if name in FOLLOWED else answer["headline"])
    return {
        "job": name,
        "off_ms": off,
        "on_ms": on,
        "truth_ms": truth,
        "promised_ms": promised,
        "named": bool(re.search(expected.named, text)),
        "right": is_right(name, promised, truth),
        "first": first.get("what", ""),
        "place": first.get("place", ""),
        "headline": answer["headline"],
    }


def median_row(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with the median promise, with the median steps of all rounds."""
    row = sorted(rows, key=lambda one: one["promised_ms"])[len(rows) // 2]
    off, on = (statistics.median(one[key] for one in rows) for key in ("off_ms", "on_ms"))
    figures = {"off_ms": off, "on_ms": on, "truth_ms": on - off}
    return row | figures | {"right": is_right(row["job"], row["promised_ms"], on - off)}


def is_right(name: str, promised: float, truth: float) -> bool:
    """Return whether the gain *promised* for a job is close enough to the true one."""
    return abs(promised - truth) <= (0.25 if name in FOLLOWED else 0.2) * truth


def expected_of(name: str) -> Expected:
    """Return the expected name of the cause of a job, or of the advice on it."""
    return FOLLOWED[name][0] if name in FOLLOWED else JOBS[name]


def text_of_advice(item: dict[str, Any]) -> str:
    """Return the fields of a piece of advice as one text."""
    return " ".join(str(value) for value in item.values())


def followed_page(rows: list[dict[str, Any]], rounds: int) -> str:
    """Return the page of documentation about advice that was followed, from medians of *rounds* rounds."""
    often = f", medians of {rounds} rounds" if rounds > 1 else ""
    return "\n".join([
        "# Advice that was followed",
        "",
        "Written by `python benchmarks/planted_causes/run.py --followed`; do not edit. Training scripts on",
        "two CPU cores were profiled, and the first applicable advice was followed in each script. Times are",
        "medians of steps without a profiler, in milliseconds (means if the cause is not in every",
        f"step){often}; a promised gain is the promised share of the profiled step, times the step before",
        "the change.",
        f"Of {len(rows)} promised gains, {sum(row['right'] for row in rows)} are within 25 %",
        f"of the measured gain.{_LEFT_OUT * ('lower_precision' not in (row['job'] for row in rows))}",
        "",
        "| as written → advice followed | before | after | gain | promised | error |",
        "|---|---|---|---|---|---|",
        *(f"| {FOLLOWED[row['job']][1]} | {_cells(row)} |" for row in rows),
        "",
    ])  # fmt: skip


def planted_page(rows: list[dict[str, Any]]) -> str:
    """Return the page of documentation about planted causes."""
    return "\n".join([
        "# Planted causes",
        "",
        "Written by `python benchmarks/planted_causes/run.py`; do not edit. Training scripts on two CPU",
        "cores were slowed down by one cause each, and profiled. Times with and without the cause are",
        "medians of steps without a profiler (means if the cause is not in every step), in milliseconds.",
        "The column *promised* is the promised share of the profiled step, times the step with the cause.",
        f"The headline or the first advice of `summary` names {sum(row['named'] for row in rows)} of",
        f"{len(rows)} causes. Of the promised gains, {sum(row['right'] for row in rows)} are within 20 %",
        "of the measured gain.",
        "",
        "| cause | with | without | gain | promised | error | named |",
        "|---|---|---|---|---|---|---|",
        *(f"| {row['job']} | {_cells(row)} | {'yes' if row['named'] else 'no'} |" for row in rows),
        "",
    ])  # fmt: skip


def _cells(row: dict[str, Any]) -> str:
    """Return the times of a row as cells of a table."""
    times = " | ".join(f"{row[key]:.1f}" for key in ("on_ms", "off_ms", "truth_ms", "promised_ms"))
    return f"{times} | {row['promised_ms'] / row['truth_ms'] - 1:+.0%}"


def healthy_row(name: str) -> dict[str, Any]:
    """Return the result for the job *name* without its cause."""
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
    ranks = expected_of(name).ranks
    launch = [sys.executable]
    if ranks > 1:
        launch = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(ranks)]
        launch += ["--master-port", str(20_000 + os.getpid() % 10_000)]
    script = [str(JOB.with_name("trainer_job.py"))] if name == "trainer" else [str(JOB), name]
    return [*launch, *script, "--steps", str(STEPS), *(["--slow"] if slow else [])]


def step_times(name: str, slow: bool) -> list[float]:
    """Return the time of each step of the unprofiled job, in milliseconds."""
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
    """Return the output of a command; raise with its errors if it failed."""
    done = subprocess.run(
        words, cwd=folder, env=environment, text=True, capture_output=True, timeout=300, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)}\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return done.stdout


if __name__ == "__main__":
    main()
