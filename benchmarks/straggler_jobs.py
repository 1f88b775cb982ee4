"""Plant stragglers into real gloo jobs on this machine, record all of their steps, and ask `diagnose`.

    python benchmarks/straggler_jobs.py [--kinds worker,gc] [--seeds 0-4] [--healthy 0-9] [-o rows.jsonl]
        [--page docs/validation/stragglers.md]

The seed chooses the number of ranks (2 to 4) and the slow one. The planted stragglers are: a rank that
computes longer, always or in every tenth step; a last pipeline stage with more work; a rank that collects a
large heap in every tenth step; a rank with slow storage; and a link whose rate falls during the job (needs
root and iproute2). A planted straggler is found if it is the first cause, with its kind and place. In a
healthy job, no cause may be reported. The machine should be idle, because other work also causes stragglers.
Each job ends after `LIMIT_S` at the latest.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import runpy
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch import nn

from chakrascope.runner.emulation import Namespaces

STEPS, EVERY, LINK_STEP = 60, 10, 40
DELAY_S = 0.04
LIMIT_S = 150
LINK_BPS, SLOW_BPS = 400_000_000, 50_000_000
WIDTH, BATCH = 512, 64
HEALTHY = "healthy"
NO_RANK = -1


class Plant(NamedTuple):
    """The kind of cause that `diagnose` must name, whether it affects one rank, and its place."""

    cause: str
    is_of_rank: bool
    text: str


PLANTS = {
    "worker": Plant("worker", True, "one rank computes 40 ms longer"),
    "tenth": Plant("worker", True, "one rank computes 40 ms longer in every tenth step"),
    "stage": Plant("stage", False, "the last pipeline stage computes 40 ms longer"),
    "gc": Plant("gc", True, "one rank collects a large heap in every tenth step"),
    "loader": Plant("input", True, "the storage of one rank is 40 ms late"),
    "link": Plant("network", False, "a link falls from 400 to 50 Mbit/s after two thirds of the job"),
}


def ranks_of(kind: str, seed: int) -> int:
    """Return the number of ranks of the job of *kind* and *seed*."""
    return 2 if kind == "link" else 2 + seed % 3


def victim_of(kind: str, seed: int) -> int:
    """Return the slow rank of the job of *kind* and *seed*."""
    ranks = ranks_of(kind, seed)
    return ranks - 1 if kind == "stage" else (seed // 3 + 1) % ranks


def train(kind: str, seed: int) -> None:
    """Train on this rank, with its planted cause."""
    signal.alarm(LIMIT_S)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    is_slow = rank == victim_of(kind, seed)
    heap = [[index] for index in range(1_500_000)] if kind == "gc" and is_slow else []
    gc.disable()
    run_step = _pipeline_step() if kind == "stage" else _replica_step(kind == "loader" and is_slow)
    for step in range(STEPS):
        computes_longer = kind in ("worker", "stage") or (kind == "tenth" and step % EVERY == 5)
        run_step(DELAY_S if computes_longer and is_slow else 0.0)
        if heap and step % EVERY == 5:
            gc.collect()
        if step == LINK_STEP and "PROGRESS" in os.environ:
            Path(os.environ["PROGRESS"]).touch()
    dist.destroy_process_group()


def _model() -> Any:
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())))


def _replica_step(has_late_storage: bool) -> Any:
    class Examples(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return BATCH * STEPS

        def __getitem__(self, index: int) -> torch.Tensor:
            if has_late_storage and index % BATCH == 0:
                time.sleep(DELAY_S)
            return torch.full((WIDTH,), index / BATCH)

    model = nn.parallel.DistributedDataParallel(_model())
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    batches = iter(torch.utils.data.DataLoader(Examples(), batch_size=BATCH))

    def step(delay_s: float) -> None:
        inputs = next(batches)
        time.sleep(delay_s)
        loss = model(inputs).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def _pipeline_step() -> Any:
    rank, ranks = dist.get_rank(), dist.get_world_size()
    model = _model()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step(delay_s: float) -> None:
        inputs = torch.ones(BATCH, WIDTH, requires_grad=True)
        if rank:
            dist.recv(inputs.data, rank - 1)
        time.sleep(delay_s)
        outputs = model(inputs)
        if rank < ranks - 1:
            dist.send(outputs.detach(), rank + 1)
            gradient = torch.empty_like(outputs)
            dist.recv(gradient, rank + 1)
        else:
            gradient = torch.ones_like(outputs)
        optimizer.zero_grad()
        outputs.backward(gradient)
        if rank:
            dist.send(inputs.grad, rank - 1)
        optimizer.step()

    return step


def record(study: Path, kind: str, seed: int) -> None:
    """Record all steps of the job into *study*."""
    job = [sys.executable, __file__, "--job", kind, "--seed", str(seed)]
    trace = [sys.executable, "-m", "chakrascope.cli", "trace", "-o", str(study), "--steps", "0", "--"]
    ranks = ranks_of(kind, seed)
    if kind != "link":
        torchrun = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        _bounded([*trace, sys.executable, *torchrun, *job[1:]])
        return
    with Namespaces(ranks, [LINK_BPS] * ranks) as net, tempfile.TemporaryDirectory() as folder:
        progress = Path(folder) / "progress"
        ended = threading.Event()

        def slow_down() -> None:
            while not ended.wait(0.01):
                if progress.exists():
                    net.shape(victim_of(kind, seed), SLOW_BPS)
                    return

        watcher = threading.Thread(target=slow_down)
        watcher.start()
        try:
            lines = [_on_host(net, rank, ranks, progress, job) for rank in range(ranks)]
            _bounded([*trace, "sh", "-c", "\n".join([*(f"{line} &" for line in lines), "wait"])])
        finally:
            ended.set()
            watcher.join()


def _on_host(net: Any, rank: int, ranks: int, progress: Path, job: Sequence[str]) -> str:
    """Return the shell command that runs *rank* of the *job* on its host of *net*."""
    variables = {
        "RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": 0, "MASTER_ADDR": net.addresses(0)[0],
        "MASTER_PORT": 29_650, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": 1,
    } | ({} if rank else {"PROGRESS": progress})  # fmt: skip
    settings = [f"{name}={value}" for name, value in variables.items()]
    return shlex.join(net.command(rank, ["env", *settings, *job]))


def _bounded(command: Sequence[str]) -> None:
    """Run *command*, end it and its children after the time limit, and return its standard error."""
    started = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        started.wait(LIMIT_S + 30)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def ask(study: Path) -> dict[str, Any]:
    """Return the answer of `diagnose` for the recording in *study*."""
    command = [sys.executable, "-m", "chakrascope.cli", "diagnose", str(study), "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return {"causes": [], "error": done.stderr.strip()}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def is_right(kind: str, seed: int, causes: Sequence[dict[str, Any]]) -> bool:
    """Return whether the first of *causes* is the planted one, or whether a healthy job has none."""
    if kind == HEALTHY or not causes:
        return kind == HEALTHY and not causes
    plant, first = PLANTS[kind], causes[0]
    if kind == "stage" and first["stage"] != victim_of(kind, seed):
        return False
    return first["kind"] == plant.cause and first["rank"] in (
        (victim_of(kind, seed),) if plant.is_of_rank else (NO_RANK,)
    )


def outcome(kind: str, seed: int) -> dict[str, Any]:
    """Run one job, and return the planted cause and the reported causes."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="straggler-job-") as folder:
        study = Path(folder) / "study"
        record(study, kind, seed)
        answer = ask(study)
    causes = [
        {name: cause[name] for name in ("kind", "where", "when", "slowdown", "rank", "stage")}
        for cause in answer["causes"]
    ]
    named = "; ".join(f"{cause['kind']}: {cause['where']}, {cause['when']}" for cause in causes)
    row = {
        "kind": kind, "seed": seed, "ranks": ranks_of(kind, seed), "load": round(load, 1), "causes": causes,
        "right": is_right(kind, seed, causes) and "error" not in answer,
        "named": answer.get("error") or named,
    }  # fmt: skip
    if "step_ns" in answer:
        row |= {"p50_ms": round(answer["step_ns"]["p50"] / 1e6, 1), "slowdown": answer["slowdown"]}
    print(f"{kind} {seed}: {'right' if row['right'] else 'WRONG'}: {row['named'] or 'nothing'}", flush=True)
    return row


def write_page(page: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write the table of *rows* to *page*, with a line for each kind of straggler."""
    lines = [
        "# Planted stragglers", "",
        "`python benchmarks/straggler_jobs.py` writes this page. `straggler_jobs.py` records real "
        f"gloo jobs of two to four ranks on two CPU cores with `trace --steps 0`, {STEPS} steps each. "
        "A planted straggler counts as found if `diagnose` reports it as the first cause, with its "
        "kind and rank; in a job without a planted straggler, `diagnose` must not report a cause. If all "
        "ranks wait for a CPU, or one rank waits at irregular times, `diagnose` prints a note. The "
        "column *load* has the number of runnable processes before the jobs; a load above two slows "
        "down ranks.",
        "",
        "| planted straggler | jobs | found | other causes per job | load |",
        "|---|---|---|---|---|",
    ]  # fmt: skip
    for kind in (*PLANTS, HEALTHY):
        own = [row for row in rows if row["kind"] == kind]
        if own:
            text = PLANTS[kind].text if kind in PLANTS else "nothing"
            right, loads = sum(row["right"] for row in own), [row["load"] for row in own]
            others = (sum(len(row["causes"]) for row in own) - right * (kind != HEALTHY)) / len(own)
            span = f"{min(loads):g} to {max(loads):g}"
            lines.append(f"| {text} | {len(own)} | {right} | {others:.1f} | {span} |")
    wrapped = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scripts" / "prose.py"))["wrapped"]
    page.write_text(wrapped("\n".join([*lines, ""])), encoding="utf-8")


def main() -> None:
    """Run the jobs that the options name, or one rank of a job."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", default=",".join(PLANTS))
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--healthy", default="0-9")
    parser.add_argument(
        "-o", "--rows", type=Path, help="append a JSON line for each job; skip jobs that it has"
    )
    parser.add_argument("--page", type=Path)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job is not None:
        train(options.job, options.seed)
        return
    wanted = [(kind, seed) for kind in options.kinds.split(",") if kind for seed in _range(options.seeds)]
    wanted += [(HEALTHY, seed) for seed in _range(options.healthy)]
    rows = []
    if options.rows and options.rows.exists():
        rows = [json.loads(line) for line in options.rows.read_text(encoding="utf-8").splitlines()]
    finished = {(row["kind"], row["seed"]) for row in rows}
    for kind, seed in wanted:
        if (kind, seed) not in finished:
            rows.append(outcome(kind, seed))
            if options.rows:
                with options.rows.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(rows[-1]) + "\n")
    if options.page:
        write_page(options.page, rows)


def _range(text: str) -> range:
    """Return the seeds in *text*: ``3``, ``0-4``, or none if it is empty."""
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1) if text else range(0)


if __name__ == "__main__":
    main()
