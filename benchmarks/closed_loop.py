"""Predict training steps on other networks, run the jobs on these networks, and compare.

    python benchmarks/closed_loop.py [--jobs ddp,fsdp] [--rates 50,100,200,500] [--rounds 3]
        [--folder FOLDER] [--page docs/validation/closed-loop.md]

Each job has two ranks on gloo, each with its own network namespace and core, and is captured on a network
without a rate limit. The network of each rate is calibrated with gloo's own collectives, without the job. The
step is predicted from the capture and the calibrated network, and then the job runs at this rate. Because the
speed of a machine varies, each round has one capture and one run per rate, and medians over the rounds are
compared. The benchmark needs root, iproute2, PyTorch and an idle machine. With a folder, captures and runs
are stored and not measured again, so that the benchmark can be interrupted; the page contains all of them.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import re
import runpy
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from chakrascope.converter import Workload, convert
from chakrascope.runner import NetworkConfig, Study, backend_report, simulate
from chakrascope.runner.calibration import calibrate_records, calibrated_network, gloo_records
from chakrascope.runner.config import SystemConfig
from chakrascope.runner.emulation import Namespaces, missing_requirements

SCRIPT = Path(__file__).parents[1] / "examples/closed_loop/train.py"
JOBS = ("ddp", "fsdp", "tensor", "pipeline", "experts")
RATES_MBIT = (500, 200, 100, 50)
RANKS = 2
PORT = 29_400
WIRE = 1448 / 1514  # payload of a TCP segment per byte that a shaper counts: no preamble, checksum and gap
LATENCY_NS = 30_000.0  # latency of a veth pair: half of the ping time over two veth pairs and a bridge
WARM_STEPS = 2
# The computation of a step varies by 10 %. The simulated step is the median of the captured steps, and the
# overhead of the profiler is the difference of the median steps with and without it. Both need many steps.
TIMED_STEPS, CAPTURED_STEPS = 10, 11
LIMIT_S, GRACE_S = 180.0, 2.0
LARGEST, REPEATS = "1MiB", 5  # of each size in each round
SYSTEM = "default"
# Priority over other processes if sessions share processors (autogroup).
FIRST = "echo -20 > /proc/$$/autogroup"
CALIBRATED, FROM_RATE, TCP, EMULATED = "calibrated", "from the rate", "ns-3 TCP", "emulated"
WAYS = (CALIBRATED, FROM_RATE, TCP, EMULATED)
# Rounds of one point that differ by more are repeated; if they still differ, the point is excluded.
STEADY, MORE_ROUNDS = 0.2, 2

SIMULATORS = {
    TCP: "predictions use `ns3` on the calibrated network",
    EMULATED: "predictions use `emulation` in namespaces with links of the nominal rate",
}
REMAINS = (
    "## Causes of the differences",
    "",
    "* **Alternating directions** affect `pipeline`, `experts` and `fsdp`. A gloo message is sent when its "
    "receiver's request has arrived on the same connection, in order. If two ranks both send and then "
    "receive, and one rank is late, the two directions of a link alternate. Simulations model this "
    "alternation by the keys `handshake: in-order` and `sends-first`. Without both keys, "
    "`experts` would be predicted 30 to 40 % too fast, `fsdp` 10 to 25 %, and `pipeline` 11 to 20 %.",
    "* **Delayed requests** (`pipeline`). In gloo, the thread that reads requests shares a core with "
    "computation, and reads most requests within 0.4 ms, which simulations do not model.",
    "* **Variation of collectives** affects `ddp`, `tensor` and `fsdp`. Other work on a core delays "
    "gloo by a "
    "scheduler slice of about 4 ms: an all-reduce of 64 KiB took 1.2 or 6 ms. Calibration uses the mean "
    "of the middle half of the repetitions.",
    "* **Computation** is the median of captured steps, less the cost of the profiler. Computation varies "
    "most: the backward passes of one rank took 44 and 34 ms in two runs a minute apart.",
)


class Outcome(NamedTuple):
    """A job at a rate: the step times measured at this rate and without shaping, and the predictions, in ns.

    *load* is the number of runnable processes before the job. Times are medians of *rounds*, and *off_by* is
    half the range of the calibrated errors of single rounds. If the rounds of a point differ, the point is
    not *steady*, and is excluded from summaries.
    """

    job: str
    rate_mbit: int
    measured_ns: int
    unshaped_ns: int
    predicted_ns: dict[str, int]
    load: float = 0.0
    rounds: int = 1
    off_by: float = 0.0
    steady: bool = True

    def error(self, way: str = CALIBRATED) -> float:
        """Return the relative error of the predicted step time."""
        return self.predicted_ns[way] / self.measured_ns - 1

    def communication_error(self) -> float:
        """Return the relative error of the step's additional time over the unshaped network."""
        added = max(1, self.measured_ns - self.unshaped_ns)
        return (self.predicted_ns[CALIBRATED] - self.unshaped_ns) / added - 1


def network(rate_mbit: int | None) -> Namespaces:
    """Return one host per rank, connected at a rate; None is an unshaped network."""
    if rate_mbit is None:
        return Namespaces(RANKS, [None] * RANKS)
    return Namespaces(RANKS, [rate_mbit * 1_000_000] * RANKS)


def launch(net: Namespaces, command: Sequence[str], port: int) -> list[str]:
    """Return a command that runs *command* on both hosts, each on one core, until both have ended."""
    lines = []
    for rank in range(RANKS):
        environment = {
            "RANK": rank,
            "WORLD_SIZE": RANKS,
            "LOCAL_RANK": 0,
            "MASTER_ADDR": net.addresses(0)[0],
            "MASTER_PORT": port,
            "GLOO_SOCKET_IFNAME": "eth0",
            "OMP_NUM_THREADS": 1,
        }
        settings = [f"{name}={value}" for name, value in environment.items()]
        lines.append(
            shlex.join(net.command(rank, ["env", *settings, "taskset", "-c", str(rank), *command])) + " &"
        )
    return ["sh", "-c", "\n".join([f"{{ {FIRST}; }} 2>/dev/null", *lines, "wait"])]


def steps_of(printed: str) -> list[int]:
    """Return the time of each step after the warm-up, on the slower rank."""
    # Two processes may print into the same line.
    ranks = [json.loads(text)["steps_ns"] for text in re.findall(r'\{"rank"[^}]*\}', printed)]
    if len(ranks) != RANKS:
        sys.exit(f"A job did not end as it should:\n{printed}")
    return [max(each) for each in zip(*ranks, strict=True)][WARM_STEPS:]


def run(command: Sequence[str]) -> str:
    """Run and return the output.

    A rank waits half an hour for a lost peer, and may hang in PyTorch's shutdown after all have reported
    their step times. Both are ended, and all ranks if this process ends.
    """
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        printed, complaints = _awaited(started)
    finally:
        if started.returncode is None:
            os.killpg(started.pid, signal.SIGKILL)
    if started.returncode:
        sys.exit(f"{shlex.join(command)} failed, or took more than {LIMIT_S} s:\n{printed}{complaints}")
    return printed


def _awaited(started: subprocess.Popen[str]) -> tuple[str, str]:
    """Return standard output and standard error once all processes have ended."""
    deadline, ranks = time.monotonic() + LIMIT_S, []
    while True:
        try:
            ended = started.communicate(timeout=GRACE_S)
            break
        except subprocess.TimeoutExpired as waiting:
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            pids = re.findall(r'"pid": (\d+)', (waiting.output or b"").decode())
            ranks = [int(pid) for pid in pids] if len(pids) == RANKS else []
            if time.monotonic() > deadline:
                os.killpg(started.pid, signal.SIGKILL)
    return ended


def run_job(net: Namespaces, job: str, steps: int, port: int, tool: Sequence[str] = ()) -> int:
    """Run the job, under *tool* if given, and return its median step."""
    command = [sys.executable, str(SCRIPT), job, "--steps", str(steps + WARM_STEPS)]
    return round(statistics.median(steps_of(run([*tool, *launch(net, command, port)]))))


def capture(net: Namespaces, job: str, study: Path, port: int) -> int:
    """Capture the job into *study* and return the median step without a profiler."""
    unshaped = run_job(net, job, 2 * TIMED_STEPS, port)
    steps = ["--warmup", str(TIMED_STEPS), "--steps", str(CAPTURED_STEPS)]
    tool = [sys.executable, "-m", "chakrascope.cli", "trace", "-o", str(study), *steps, "--"]
    run_job(net, job, TIMED_STEPS + CAPTURED_STEPS + WARM_STEPS, port + 1, tool)
    return unshaped


def predict(kept: Kept, job: str, turn: int, rate_mbit: int, way: str) -> float:
    """Return the step time (ns) that *way* predicts at a rate for the job captured in round *turn*."""
    network, backend = {
        CALIBRATED: (
            partial(calibrated, kept.folder, rate_mbit),
            "analytical-unaware",
        ),
        FROM_RATE: (partial(nominal, rate_mbit), "analytical-unaware"),
        TCP: (partial(nominal, rate_mbit), "ns3"),
        EMULATED: (partial(nominal, rate_mbit), f"emulation:namespaces={RANKS},link={rate_mbit}Mbit"),
    }[way]
    return simulate(captured(kept.capture(job, turn)), SYSTEM, network(), backend=backend).makespan_ns


@cache
def captured(study: Path) -> Workload:
    """Return the job in *study* without the profiler's overhead."""
    return convert(Study.open(study).latest_trace_set(), rescale_host=True)


def nominal(rate_mbit: int) -> NetworkConfig:
    """Return the network with the nominal rate less headers."""
    return NetworkConfig.from_mapping(
        {
            "topology": ["Switch"],
            "npus_count": [RANKS],
            "bandwidth": [rate_mbit * 1e6 / 8 / 2**30],
            "latency": [LATENCY_NS],
            "efficiency": {
                "wire": WIRE,
                "substitutes": {"reduce_scatter": "all_reduce"},
                "handshake": "in-order",
                "sends-first": {"all_gather": 2, "all_to_all": 1},
            },
        },
        f"{rate_mbit} Mbit/s",
    )


def calibrate(net: Namespaces, file: Path, port: int) -> float:
    """Measure gloo's collectives and messages on *net* into *file*; return the duration in ns."""
    began = time.perf_counter_ns()
    module = [sys.executable, "-m", "chakrascope.runner.calibration.gloo", str(file)]
    run(launch(net, [*module, "--largest", LARGEST, "--repeats", str(REPEATS)], port))
    return time.perf_counter_ns() - began


def calibrated(folder: Path, rate_mbit: int) -> NetworkConfig:
    """Return the network of this rate, calibrated with gloo's collectives of all rounds."""
    rounds = [gloo_records(file) for file in sorted(folder.glob(f"gloo-{rate_mbit}-*.json"))]
    found = calibrate_records(
        replace(rounds[0], transfers=tuple(one for records in rounds for one in records.transfers)),
        SystemConfig.preset(SYSTEM, 1),
        wire=WIRE,
        bandwidth_bytes_per_ns=rate_mbit / 8e3,
        latency_ns=LATENCY_NS,
    )
    return calibrated_network(found)


class Kept:
    """The measurements and predictions so far, in files of *folder*."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._file = folder / "figures.json"
        self._figures: dict[str, float] = json.loads(self._file.read_text()) if self._file.exists() else {}

    def figure(self, make: Callable[[], float], *what: object) -> float:
        """Return the cached figure *what*; compute it with *make* if it is missing."""
        name = " ".join(map(str, what))
        if name not in self._figures:
            self._figures[name] = make()
            self._file.write_text(json.dumps(self._figures, indent=1))
        return self._figures[name]

    def has(self, *what: object) -> bool:
        """Return whether the figure *what* is cached."""
        return " ".join(map(str, what)) in self._figures

    def capture(self, job: str, turn: int) -> Path:
        """Return the study of the job's capture in a round."""
        return self.folder / f"{job}-{turn}"


def closed_loop(
    jobs: Sequence[str],
    rates: Sequence[int],
    steps: int,
    *,
    ways: Collection[str] = WAYS,
    folder: Path | None = None,
    rounds: int = 1,
) -> list[Outcome]:
    """Return an outcome for each job at each rate; *folder* stores the measurements."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="closed-loop-") as name:
            return closed_loop(jobs, rates, steps, ways=ways, folder=Path(name), rounds=rounds)
    check_backends(ways)
    kept = Kept(folder)
    port = PORT + int(time.time()) % 1000
    for turn in range(rounds):
        port = measure(kept, jobs, rates, steps, turn=turn, port=port)
    for job, rate in itertools.product(jobs, rates):
        for turn in range(rounds, rounds + MORE_ROUNDS):
            if len(steady_rounds(kept, job, rate)) < len(rounds_of(kept, job, rate)):
                port = measure(kept, [job], [rate], steps, turn=turn, port=port)
    outcomes = [outcome(kept, job, rate, ways, rounds) for rate in rates for job in jobs]
    return sorted(outcomes, key=lambda outcome: (-outcome.rate_mbit, JOBS.index(outcome.job)))


def measure(
    kept: Kept, jobs: Sequence[str], rates: Sequence[int], steps: int, *, turn: int, port: int
) -> int:
    """Measure the missing points of round *turn*, and return the next free port."""
    with network(None) as net:
        for job in jobs:
            if not kept.has(job, turn, "unshaped"):
                shutil.rmtree(kept.capture(job, turn), ignore_errors=True)
                kept.figure(partial(capture, net, job, kept.capture(job, turn), port), job, turn, "unshaped")
                port += 2
    for rate in rates:
        left = [job for job in jobs if not kept.has(job, turn, rate)]
        if not left:
            continue
        with network(rate) as net:
            calibration = partial(calibrate, net, kept.folder / f"gloo-{rate}-{turn}.json", port)
            kept.figure(calibration, turn, rate, "calibration")
            for number, job in enumerate(left, start=1):
                kept.figure(lambda: os.getloadavg()[0], job, turn, rate, "load")
                took = kept.figure(partial(run_job, net, job, steps, port + number), job, turn, rate)
                print(f"{job} at {rate} Mbit/s, round {turn}: {took / 1e6:.1f} ms", flush=True)
        port += 1 + len(left)
    return port


def check_backends(ways: Collection[str]) -> None:
    """Exit before measuring if this machine lacks a requirement of *ways*."""
    lacking = missing_requirements()
    if lacking:
        sys.exit(f"Network namespaces need {' and '.join(lacking)}.")
    states = {row["backend"]: row for row in backend_report()}
    if TCP in ways and states["ns3"]["usable"] == "no":
        sys.exit(f"'ns3' cannot run here: {states['ns3']['found']} Leave it out with --ways.")


def rounds_of(kept: Kept, job: str, rate: int) -> list[int]:
    """Return the rounds in which a point was measured."""
    return list(itertools.takewhile(lambda turn: kept.has(job, turn, rate), itertools.count()))


def steady_rounds(kept: Kept, job: str, rate: int) -> list[int]:
    """Return the rounds of a point that are within `STEADY` of their median."""
    runs = {turn: kept.figure(_missing, job, turn, rate) for turn in rounds_of(kept, job, rate)}
    middle = statistics.median(runs.values())
    return [turn for turn, took in runs.items() if abs(took / middle - 1) <= STEADY / 2]


def outcome(kept: Kept, job: str, rate: int, ways: Collection[str], rounds: int) -> Outcome:
    """Return the medians of the steady rounds; ns-3, which is slow, only predicts the first capture."""
    predicted: dict[str, list[float]] = {}
    for way in ways:
        turns = range(1 if way == TCP else rounds)
        predicted[way] = [
            kept.figure(partial(predict, kept, job, turn, rate, way), job, turn, rate, way) for turn in turns
        ]
    measured = rounds_of(kept, job, rate)
    steady = steady_rounds(kept, job, rate)
    runs, loads = (
        [kept.figure(_missing, job, turn, *what) for turn in steady] for what in ((rate,), (rate, "load"))
    )
    unshaped = [kept.figure(_missing, job, turn, "unshaped") for turn in range(rounds)]
    errors = [predicted[CALIBRATED][turn % rounds] / took for turn, took in zip(steady, runs, strict=True)]
    found = Outcome(
        job,
        rate,
        round(statistics.median(runs)),
        round(statistics.median(unshaped)),
        {way: round(statistics.median(all_said)) for way, all_said in predicted.items()},
        max(loads),
        len(steady),
        (max(errors) - min(errors)) / 2,
        steady=2 * len(steady) > len(measured),
    )
    print(_line(found), flush=True)
    return found


def _missing() -> float:
    sys.exit("A measurement is missing in the folder; remove its figures.json and begin again.")


def _line(outcome: Outcome) -> str:
    errors = ", ".join(f"{way} {outcome.error(way):+.1%}" for way in outcome.predicted_ns)
    measured = f"{outcome.measured_ns / 1e6:.1f} ms measured"
    return f"{outcome.job} at {outcome.rate_mbit} Mbit/s: {measured}; {errors}"


def page(outcomes: Sequence[Outcome]) -> str:
    """Return the page of the documentation."""
    ways = list(outcomes[0].predicted_ns)
    rows = [
        f"| {o.job} | {o.rate_mbit} | {o.measured_ns / 1e6:.1f} | {o.unshaped_ns / 1e6:.1f} | "
        + " | ".join(f"{o.error(way):+.1%}" for way in ways)
        + f" | {o.communication_error():+.1%} | {o.off_by:.1%}{'' if o.steady else ' (excluded)'} |"
        for o in outcomes
    ]
    summary = []
    for name, pick in (("median", statistics.median), ("worst", max)):
        errors = [pick([abs(o.error(way)) for o in outcomes if o.steady]) for way in ways]
        summary.append(f"| {name} | | | | " + " | ".join(f"{error:.1%}" for error in errors) + " | | |")
    wrapped = runpy.run_path(str(Path(__file__).resolve().parents[1] / "scripts" / "prose.py"))["wrapped"]
    text: str = wrapped("\n".join([
        "# Predictions made before the run", "",
        "`benchmarks/closed_loop.py --page docs/validation/closed-loop.md` writes this page.", "",
        f"The jobs of `examples/closed_loop/train.py` have {RANKS} ranks on gloo, each with its own "
        "network namespace and core. Each job was captured on a network without a rate limit, its step "
        "was predicted for networks with several rates, and the job was then run on these networks. An "
        "error is the predicted step divided by the measured step, minus one. Times are medians of "
        f"{max(o.rounds for o in outcomes)} rounds, each with one capture and one run per rate.", "",
        "* *calibrated* predictions use `analytical-unaware` on the network of `calibrate gloo.json "
        "--bandwidth RATE`, which was fitted to gloo's collectives and messages at the same rate.",
        "* *from the rate*: predictions use `analytical-unaware` on the nominal rate less headers "
        "(1448/1514), with gloo's handshake, and all-reduces in place of reduce-scatters.",
        *(f"* *{way}*: {text}." for way, text in SIMULATORS.items() if way in ways),
        "* *communication* is the calibrated prediction's error in the time that the rate limit adds to "
        "the step.",
        "* *rounds* is half the range of the calibrated errors over the rounds.", "",
        f"If a job's errors at one rate differ by more than {STEADY:.0%} between rounds, up to "
        f"{MORE_ROUNDS} rounds are added. Of {len(outcomes)} combinations of job and rate, "
        f"{sum(not o.steady for o in outcomes)} are excluded because their errors still differ.", "",
        *_conditions(outcomes),
        "| job | rate, Mbit/s | measured, ms | without limit, ms | " + " | ".join(ways)
        + " | communication | rounds |",
        "|---|---|---|---|" + "---|" * (len(ways) + 2), *rows, *summary, "",
        *REMAINS, "",
    ]))  # fmt: skip
    return text


def _conditions(outcomes: Sequence[Outcome]) -> list[str]:
    """Return a note if the machine ran more processes than the two ranks."""
    highest = max(outcome.load for outcome in outcomes)
    if highest <= 2 * RANKS:
        return []
    return [
        f"**Other programs were running.** Up to {highest:.0f} processes wanted the {os.cpu_count()} "
        "processors during the measurement, which made computation longer in captures and in jobs.", "",
    ]  # fmt: skip


def main() -> None:
    """Print the table, the median error and the largest error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--rates", default=",".join(map(str, RATES_MBIT)), help="network rates in Mbit/s")
    parser.add_argument(
        "--steps", type=int, default=5, help="number of measured steps at each rate in each round"
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of rounds of capturing and running")
    parser.add_argument("--ways", default=",".join(WAYS), help="methods of prediction")
    parser.add_argument(
        "--folder", type=Path, help="folder that stores captures and results; a later run resumes from them"
    )
    parser.add_argument("--page", type=Path, help="the page of the documentation to write")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("Interrupted; the folder has the measurements so far."))
    outcomes = closed_loop(
        options.jobs.split(","),
        [int(rate) for rate in options.rates.split(",")],
        options.steps,
        ways=options.ways.split(","),
        folder=options.folder,
        rounds=options.rounds,
    )
    errors = sorted(abs(outcome.error()) for outcome in outcomes if outcome.steady)
    print(f"{len(errors)} points: median error {statistics.median(errors):.1%}, worst {errors[-1]:.1%}")
    if options.page:
        options.page.write_text(page(outcomes))


if __name__ == "__main__":
    main()
