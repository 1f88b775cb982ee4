"""Predict training steps on networks that the jobs have not seen, run them there, and compare.

    python benchmarks/closed_loop.py [--jobs ddp,fsdp] [--rates 50,100,200,500] [--folder FOLDER]
        [--page docs/closed-loop.md]

Each job (two ranks on gloo, a network namespace and a core each) is captured once on a path that is not
shaped. Each rate's network is calibrated with gloo's own collectives, without the job. The step is predicted
from these two alone, and then the job runs for real at the rate. It needs root, iproute2 and PyTorch; nothing
else should run. Where that can be had for a few minutes at a time, a folder keeps captures and outcomes: what
is in it is not measured again, and the page has all of it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import NamedTuple

from chakrascope.converter import Workload, convert
from chakrascope.runner import NetworkConfig, Study, simulate
from chakrascope.runner.calibration import calibrate_records, calibrated_network, gloo_records
from chakrascope.runner.config import SystemConfig
from chakrascope.runner.emulation import Namespaces

SCRIPT = Path(__file__).parents[1] / "examples/closed_loop/train.py"
JOBS = ("ddp", "fsdp", "tensor", "pipeline", "experts")
RATES_MBIT = (500, 200, 100, 50)
RANKS = 2
PORT = 29_400
WIRE = 1448 / 1514  # payload of a TCP segment per byte that a shaper counts: no preamble, checksum and gap
LATENCY_NS = 30_000.0  # of a veth pair; half of what ping says of two of them and a bridge
BURST_S = (
    0.0002  # a link of this rate alone lets nothing pass at once; a shaper whose timers are late needs it
)
LEAST_BURST_BYTES = 3200
WARM_STEPS = 2
# A step's computation varies by a tenth. What a profiler adds is told by the shortest steps with and without
# it, and the step that is simulated is the median of those captured: of few, both are chance.
TIMED_STEPS, CAPTURED_STEPS = 10, 11
LIMIT_S, GRACE_S = 180.0, 2.0
LARGEST = "1MiB"
SYSTEM = "default"
# Ahead of what else the machine does, where sessions share processors (autogroup).
FIRST = "echo -20 > /proc/$$/autogroup"
CALIBRATED, FROM_RATE, TCP, EMULATED = "calibrated", "from the rate", "ns-3 TCP", "emulated"
WAYS = (CALIBRATED, FROM_RATE, TCP, EMULATED)

SIMULATORS = {TCP: "`ns3` on that network", EMULATED: "`emulation` in namespaces of that rate"}
REMAINS = (
    "## What is in the differences",
    "",
    "* *Who comes last* (`pipeline`, `experts`, `fsdp`). A rank of gloo tells its peer of each send and of "
    "each receive, and a message leaves when both are known where it is: once the receiver's request has "
    "come. Requests and messages share one connection, in order. Of two ranks that both send and then "
    "receive, the one that comes more than a latency later knows of the other's request: its message "
    "leaves at once, its own request comes behind that, and the two directions take turns. Ranks that come "
    "closer together have asked for each other's messages before either leaves, and use both directions at "
    "once. Calibration measures collectives so, and sends and receives are simulated so (`handshake: "
    "in-order`). Two idle ranks that exchanged 128 KiB at 500 Mbit/s needed 2.3 ms where they came up to 150 "
    "us apart, and 4.2 ms from 200 us on (a shaper that let 0.2 ms pass at once); simulated it is 2.4 ms up "
    "to 60 us, and 4.6 ms from 80 us on. Without turns `experts` would be predicted 25 to 35 % too fast, and "
    "`pipeline` 11 to 20 %.",
    "* *Who reads the request* (`pipeline`). A thread of gloo's does, which shares a core with computation "
    "here. Where that kept the core (at a priority of its own), two ranks a millisecond apart used both "
    "directions at once: both had begun to send before either read the other's request. At equal "
    "priorities most requests were read within 0.4 ms. A rank with a core for that thread has no such "
    "delay; none is modelled.",
    "* *Two collectives at once* (`ddp`). Requests of one wait behind data of the other; a collective was "
    "measured alone.",
    "* *Computation*: it is that of the capture, the median of its steps, shortened by what the profiler "
    "adds. Both vary: three captures of five steps of `pipeline` were simulated 8 % shorter to 12 % longer "
    "than its steps unshaped were. What gloo's threads take from it while they work is in it for the "
    "unshaped path only.",
    "* *The shaper* counts 1514 of the 1538 bytes that a full frame takes on a wire, and lets 0.2 ms of its "
    "rate pass at once after a pause.",
    "* `ns3` and `emulation` send each collective's messages as its algorithm says, with no such turns.",
)


class Outcome(NamedTuple):
    """A job at a rate: what was measured there and unshaped, and what each way of predicting said, in ns.

    *load* is how many processes wanted a processor before the job ran.
    """

    job: str
    rate_mbit: int
    measured_ns: int
    unshaped_ns: int
    predicted_ns: dict[str, int]
    load: float = 0.0

    def error(self, way: str = CALIBRATED) -> float:
        """Of the step."""
        return self.predicted_ns[way] / self.measured_ns - 1

    def communication_error(self) -> float:
        """Of what the step takes longer than on the path that was not shaped."""
        added = max(1, self.measured_ns - self.unshaped_ns)
        return (self.predicted_ns[CALIBRATED] - self.unshaped_ns) / added - 1


def launch(net: Namespaces, command: Sequence[str], port: int) -> list[str]:
    """Return one command that runs *command* on both hosts, a core each, and ends when both have ended."""
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
    """Return what each step took, after those that warm up: the slower rank's time."""
    # Two processes print at once, and may do so in one line.
    ranks = [json.loads(text)["steps_ns"] for text in re.findall(r'\{"rank"[^}]*\}', printed)]
    if len(ranks) != RANKS:
        sys.exit(f"A job did not end as it should:\n{printed}")
    return [max(each) for each in zip(*ranks, strict=True)][WARM_STEPS:]


def run(command: Sequence[str]) -> str:
    """Run and return what was printed.

    A rank whose peer is gone waits for half an hour, and one may stay behind in PyTorch's own end when all of
    them have said what their steps took: both are ended.
    """
    started = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    deadline, ranks = time.monotonic() + LIMIT_S, []
    while True:
        try:
            printed, complaints = started.communicate(timeout=GRACE_S)
            break
        except subprocess.TimeoutExpired as waiting:
            for pid in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            said = re.findall(r'"pid": (\d+)', (waiting.output or b"").decode())
            ranks = [int(pid) for pid in said] if len(said) == RANKS else []
            if time.monotonic() > deadline:
                os.killpg(started.pid, signal.SIGKILL)
    if started.returncode:
        sys.exit(f"{shlex.join(command)} failed, or took more than {LIMIT_S} s:\n{printed}{complaints}")
    return printed


def run_job(net: Namespaces, job: str, steps: int, port: int, tool: Sequence[str] = ()) -> int:
    """Run the job, below *tool* if one is given, and return its median step."""
    command = [sys.executable, str(SCRIPT), job, "--steps", str(steps + WARM_STEPS)]
    return round(statistics.median(steps_of(run([*tool, *launch(net, command, port)]))))


def capture(net: Namespaces, job: str, study: Path, port: int) -> int:
    """Capture the job into *study* and return the median step without a profiler."""
    unshaped = run_job(net, job, 2 * TIMED_STEPS, port)
    steps = ["--warmup", str(TIMED_STEPS), "--steps", str(CAPTURED_STEPS)]
    tool = [sys.executable, "-m", "chakrascope.cli", "trace", "-o", str(study), *steps, "--"]
    run_job(net, job, TIMED_STEPS + CAPTURED_STEPS + WARM_STEPS, port + 1, tool)
    return unshaped


def predict(workload: Workload, network: NetworkConfig, backend: str) -> int:
    """Return the step of the captured job on *network*, as *backend* has it."""
    return simulate(workload, SYSTEM, network, backend=backend).makespan_ns


def predictions(study: Path, rate_mbit: int, network: NetworkConfig, ways: Collection[str]) -> dict[str, int]:
    """Return what each of *ways* says of the captured job at a rate; *network* is the calibrated one."""
    workload = convert(Study.open(study).latest_trace_set(), rescale_host=True)
    plain = nominal(rate_mbit)
    asked = {
        CALIBRATED: (network, "analytical-unaware"),
        FROM_RATE: (plain, "analytical-unaware"),
        TCP: (plain, "ns3"),
        EMULATED: (plain, f"emulation:namespaces={RANKS},link={rate_mbit}Mbit"),
    }
    return {way: predict(workload, *asked[way]) for way in ways}


def nominal(rate_mbit: int) -> NetworkConfig:
    """Return the network as its rate and the headers say."""
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
            },
        },
        f"{rate_mbit} Mbit/s",
    )


def calibrated(net: Namespaces, rate_mbit: int, folder: Path, port: int) -> NetworkConfig:
    """Measure gloo's collectives on *net* and return the network, with what they do not reach of its rate."""
    file = folder / f"gloo-{port}.json"
    module = [sys.executable, "-m", "chakrascope.runner.calibration.gloo", str(file), "--largest", LARGEST]
    run(launch(net, module, port))
    found = calibrate_records(
        gloo_records(file),
        SystemConfig.preset(SYSTEM, 1),
        wire=WIRE,
        bandwidth_bytes_per_ns=rate_mbit / 8e3,
        latency_ns=LATENCY_NS,
    )
    return calibrated_network(found)


def closed_loop(
    jobs: Sequence[str],
    rates: Sequence[int],
    steps: int,
    ways: Collection[str] = WAYS,
    folder: Path | None = None,
) -> list[Outcome]:
    """Return an outcome for each job at each rate, and those of *folder*, which keeps what is measured."""
    if folder is None:
        with tempfile.TemporaryDirectory(prefix="closed-loop-") as name:
            return closed_loop(jobs, rates, steps, ways, Path(name))
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "outcomes.json"
    outcomes = [Outcome(*each) for each in json.loads(kept.read_text())] if kept.exists() else []
    port = PORT + int(time.time()) % 1000
    unshaped = _captured(jobs, folder, port)
    for rate in rates:
        known = {outcome.job for outcome in outcomes if outcome.rate_mbit == rate}
        left = [job for job in jobs if job not in known]
        if not left:
            continue
        burst = max(LEAST_BURST_BYTES, int(rate * 1e6 / 8 * BURST_S))
        with Namespaces(RANKS, [rate * 1_000_000] * RANKS, burst_bytes=burst) as net:
            network = calibrated(net, rate, folder, port + 100)
            load = os.getloadavg()[0]
            measured = {job: run_job(net, job, steps, port + 200 + number) for number, job in enumerate(left)}
        for job in left:
            predicted = predictions(folder / job, rate, network, ways)
            outcomes.append(Outcome(job, rate, measured[job], unshaped[job], predicted, load))
            print(_line(outcomes[-1]), flush=True)
            kept.write_text(json.dumps(outcomes))
    return sorted(outcomes, key=lambda outcome: (-outcome.rate_mbit, JOBS.index(outcome.job)))


def _captured(jobs: Sequence[str], folder: Path, port: int) -> dict[str, int]:
    """Capture the jobs that *folder* does not hold, and return what a step of each takes unshaped."""
    kept = folder / "unshaped.json"
    unshaped: dict[str, int] = json.loads(kept.read_text()) if kept.exists() else {}
    with Namespaces(RANKS, [None] * RANKS) as net:
        for number, job in enumerate(jobs):
            if job not in unshaped:
                unshaped[job] = capture(net, job, folder / job, port + 2 * number)
                kept.write_text(json.dumps(unshaped))
    return unshaped


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
        + f" | {o.communication_error():+.1%} |"
        for o in outcomes
    ]
    summary = []
    for name, pick in (("median", statistics.median), ("worst", max)):
        errors = [pick([abs(o.error(way)) for o in outcomes]) for way in ways]
        summary.append(f"| {name} | | | | " + " | ".join(f"{error:.1%}" for error in errors) + " | |")
    return "\n".join([
        "# The closed loop: predicted, then run", "",
        "Written by `python benchmarks/closed_loop.py --page docs/closed-loop.md`; do not edit.", "",
        f"Jobs of `examples/closed_loop/train.py`, {RANKS} ranks on gloo, a network namespace and a core "
        "each. Each was captured once on a path that is not shaped. At each rate the step was predicted, and "
        "then the job ran there for real; the columns are predicted over measured, less one.", "",
        "* *calibrated*: `analytical-unaware` on the network of `calibrate gloo.json --bandwidth RATE`, from "
        "gloo's own collectives and messages at this rate, without the job.",
        "* *from the rate*: the same on the nominal rate, with headers (1448/1514), and an all-reduce for "
        "every reduce-scatter and requests in order, as PyTorch's gloo does.",
        *(f"* *{way}*: {text}." for way, text in SIMULATORS.items() if way in ways),
        "* *communication*: the calibrated error of what the step takes longer than unshaped.", "",
        *_conditions(outcomes),
        "| job | Mbit/s | measured, ms | unshaped, ms | " + " | ".join(ways) + " | communication |",
        "|---|---|---|---|" + "---|" * (len(ways) + 1), *rows, *summary, "",
        *REMAINS, "",
    ])  # fmt: skip


def _conditions(outcomes: Sequence[Outcome]) -> list[str]:
    """Return the load of the machine, where it was more than the two ranks have."""
    highest = max(outcome.load for outcome in outcomes)
    if highest <= 2 * RANKS:
        return []
    return [
        f"**Not on quiet cores**: up to {highest:.0f} processes wanted the {os.cpu_count()} processors while "
        "this was measured, so that computation took longer than it needs, in captures and in jobs.", "",
    ]  # fmt: skip


def main() -> None:
    """Print the table, and the median and the worst error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--rates", default=",".join(map(str, RATES_MBIT)), help="in Mbit/s")
    parser.add_argument("--steps", type=int, default=5, help="measured at each rate")
    parser.add_argument("--ways", default=",".join(WAYS), help="of predicting")
    parser.add_argument("--folder", type=Path, help="keeps captures and outcomes, and goes on with them")
    parser.add_argument("--page", type=Path, help="the page of the documentation to write")
    options = parser.parse_args()
    outcomes = closed_loop(
        options.jobs.split(","),
        [int(rate) for rate in options.rates.split(",")],
        options.steps,
        options.ways.split(","),
        options.folder,
    )
    errors = sorted(abs(outcome.error()) for outcome in outcomes)
    print(f"{len(errors)} points: median error {statistics.median(errors):.1%}, worst {errors[-1]:.1%}")
    if options.page:
        options.page.write_text(page(outcomes))


if __name__ == "__main__":
    main()
