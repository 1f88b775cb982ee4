"""Capture small jobs on local GPUs, and compare the answers of Chakrascope with those of other tools.

``scripts/gpu_check [-o FOLDER] [--hta-python PYTHON]`` captures each job of ``gpu_jobs.py`` with
``chakrascope trace``, converts it and replays it. The script compares the replayed step with the captured
step and with a step without a profiler, the device time with the device time of torch.profiler, and its parts
with plain sums of the intervals and with HTA, if the given Python has HTA. The traces remain in FOLDER. The
exit code is 2 without a GPU, and 1 if a job failed. ``--cpu`` runs the smallest job on the CPU, to test the
script.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from gpu_accuracy import Hta, row_of
from gpu_checks import Row, findings
from gpu_intervals import device_events, read_trace

from chakrascope.converter import convert
from chakrascope.errors import ChakrascopeError
from chakrascope.runner import simulate

JOBS_FILE = Path(__file__).resolve().parent / "gpu_jobs.py"
_LIMIT_S = 900


@dataclass(frozen=True)
class Job:
    """A job of ``gpu_jobs.py``, and its number of processes."""

    title: str
    name: str
    processes: int = 1


JOBS = (
    Job("compiled Transformer, DDP", "transformer"),
    Job("compiled Transformer, DDP, two processes", "transformer", 2),
    Job("CUDA graphs (reduce-overhead)", "graphs"),
    Job("FSDP2", "fsdp"),
    Job("Hugging Face Trainer", "trainer"),
    Job("diffusion model", "diffusion"),
)
SMALLEST = Job("small Transformer, DDP, on the CPU", "transformer")


@dataclass(frozen=True)
class Answer:
    """The measured times of a job in seconds, or -1; *failed* is the reason for missing times."""

    job: Job
    failed: str = ""
    captured_s: float = -1.0
    replayed_s: float = -1.0
    unprofiled_s: float = -1.0
    kernels_s: float = -1.0
    profiler_s: float = -1.0
    misses: tuple[str, ...] = ()


def main() -> None:
    """Read the command line, run the jobs and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "-o", "--output", type=Path, default=Path("gpu-check"), help="folder for the traces (gpu-check)"
    )
    parser.add_argument("--hta-python", metavar="PYTHON", help="Python that has HolisticTraceAnalysis 0.5")
    parser.add_argument("--cpu", action="store_true", help="run the smallest job on the CPU")
    given = parser.parse_args()
    if not given.cpu and not has_gpu():
        print("PyTorch finds no GPU here: run this on a machine with a GPU, or add --cpu.")
        sys.exit(2)
    jobs = (SMALLEST,) if given.cpu else JOBS
    device = "cpu" if given.cpu else "cuda"
    answers = [check(job, given.output, device, Hta(given.hta_python, None)) for job in jobs]
    print(table(answers))
    print(f"Traces and studies: {given.output}")
    sys.exit(any(answer.failed for answer in answers))


def has_gpu() -> bool:
    """Return whether PyTorch has a GPU."""
    try:
        import torch  # noqa: PLC0415 - it takes seconds, and may be absent
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def check(job: Job, folder: Path, device: str, hta: Hta) -> Answer:
    """Capture *job* into *folder*, run it without a profiler and with torch.profiler, and compare."""
    study = folder / f"{job.name}-{job.processes}"
    shutil.rmtree(study, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    times, kernels = (folder / f"{study.name}-{what}.json" for what in ("times", "kernels"))
    capture = [sys.executable, "-m", "chakrascope.cli", "trace", "-o", str(study), "--"]
    runs = [[*capture, *command(job, device)], command(job, device, "--times", str(times))]
    if device == "cuda" and job.name != "trainer":
        runs.append(command(job, device, "--profile", str(kernels)))
    for arguments in runs:
        failed = run(arguments)
        if failed:
            return Answer(job, failed)
    try:
        return compared(job, study, seconds(times), seconds(kernels), hta)
    except ChakrascopeError as error:
        return Answer(job, " ".join(str(error).split()))


def command(job: Job, device: str, *options: str) -> list[str]:
    """Return the command that runs *job*."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    small = ["--small"] if device == "cpu" else []
    script = [str(JOBS_FILE), job.name, "--device", device, *small, *options]
    return [*torchrun, "--nproc-per-node", str(job.processes), *script]


def run(arguments: Sequence[str]) -> str:
    """Run a command; return the last line of its output if it failed, otherwise ""."""
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=_LIMIT_S, check=False)
    except subprocess.TimeoutExpired:
        return f"took more than {_LIMIT_S} s"
    if done.returncode == 0:
        return ""
    lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    errors = [line for line in lines if "Error" in line]
    return (errors or lines or [f"exit code {done.returncode}"])[-1][:200]


def seconds(path: Path) -> float:
    """Return the number that a job wrote to *path*, or -1."""
    return float(json.loads(path.read_text("utf-8"))["seconds"]) if path.is_file() else -1.0


def compared(job: Job, study: Path, unprofiled_s: float, profiler_s: float, hta: Hta) -> Answer:
    """Return the result of a captured job; raises `ChakrascopeError` if the job cannot be converted."""
    traces = next(path.parent for path in sorted(study.rglob("manifest.json")))
    workload = convert(traces, step="median")
    measured = max(workload.metadata["measured_step_ns"].values())
    replayed = simulate(workload, "default", None, backend="replay").makespan_ns
    rows = list(device_rows(job, traces, hta))
    misses = [
        f"{finding.demand}: {finding.figure} {finding.ours}, not {finding.theirs}"
        for row in rows
        for finding in findings(row)
        if not finding.passed
    ]
    busy = [row.ours.graph for row in rows if row.ours.graph is not None]
    steps = max((len(row.ours.steps) for row in rows), default=1)
    return Answer(
        job,
        captured_s=measured / 1e9,
        replayed_s=replayed / 1e9,
        unprofiled_s=unprofiled_s,
        kernels_s=busy[0].busy_ns / 1e9 / max(1, steps) if busy else -1.0,
        profiler_s=profiler_s,
        misses=tuple(misses),
    )


def device_rows(job: Job, traces: Path, hta: Hta) -> list[Row]:
    """Return the comparison of each device trace of the capture with plain sums and HTA."""
    rows = []
    for path in sorted(traces.glob("rank*.device.json.gz")):
        trace = read_trace(path)
        events = device_events(trace) if trace is not None else None
        if trace is not None and events is not None and len(events.start):
            rows.append(row_of(f"{job.title}: {path.name}", path, trace, events, hta))
    return rows


def table(answers: Sequence[Answer]) -> str:
    """Return *answers* as a Markdown table, followed by the differences."""
    lines = [
        "| job | captured step | replayed | without a profiler | device busy | by torch.profiler |",
        "|---|---|---|---|---|---|",
    ]
    for answer in answers:
        figures = (
            answer.captured_s,
            answer.replayed_s,
            answer.unprofiled_s,
            answer.kernels_s,
            answer.profiler_s,
        )
        cells = [f"{value * 1e3:.2f} ms" if value >= 0 else "-" for value in figures]
        if answer.failed:
            cells = [f"failed: {answer.failed}", *[""] * 4]
        lines.append(f"| {answer.job.title} | {' | '.join(cells)} |")
    lines += [f"* {answer.job.title}: {miss}" for answer in answers for miss in answer.misses]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
