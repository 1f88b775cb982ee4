"""Predict training steps on networks that the jobs have not seen, run them there, and compare.

    python benchmarks/closed_loop.py [--jobs ddp,fsdp] [--rates 50,100,200,500] [--write TABLE.json]

Each job (two ranks on gloo, a network namespace and a core each) is captured once on a path that is not
shaped. Each rate's network is calibrated with gloo's own collectives, without the job. The step is predicted
from these two alone, and then the job runs for real at the rate. It needs root, iproute2 and PyTorch; nothing
else should run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from chakrascope.converter import convert
from chakrascope.runner import NetworkConfig, Study, simulate
from chakrascope.runner.calibration import calibrate_records, calibrated_network, gloo_records
from chakrascope.runner.config import SystemConfig
from chakrascope.runner.emulation import Namespaces

SCRIPT = Path(__file__).parents[1] / "examples/closed_loop/train.py"
JOBS = ("ddp", "fsdp", "tensor", "pipeline", "experts")
RATES_MBIT = (500, 200, 100, 50)
RANKS = 2
PORT = 29_400
WIRE = 1448 / 1538  # payload of a TCP segment per byte of its frame and gaps
WARM_STEPS = 2
LARGEST = "4MiB"
SYSTEM = "default"


class Outcome(NamedTuple):
    """A job at a rate: what was measured, what was predicted from a calibration and from the rate alone."""

    job: str
    rate_mbit: int
    measured_ns: int
    predicted_ns: int
    predicted_from_rate_ns: int
    unshaped_ns: int

    @property
    def error(self) -> float:
        """Of the step."""
        return self.predicted_ns / self.measured_ns - 1

    @property
    def communication_error(self) -> float:
        """Of what the step takes longer than on the path that was not shaped."""
        added = max(1, self.measured_ns - self.unshaped_ns)
        return (self.predicted_ns - self.unshaped_ns) / added - 1


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
    return ["sh", "-c", "\n".join([*lines, "wait"])]


def steps_of(printed: str) -> list[int]:
    """Return what each step took, after those that warm up: the slower rank's time."""
    ranks = [json.loads(line)["steps_ns"] for line in printed.splitlines() if line.startswith('{"rank"')]
    if len(ranks) != RANKS:
        sys.exit(f"A job did not end as it should:\n{printed}")
    return [max(each) for each in zip(*ranks, strict=True)][WARM_STEPS:]


def run(command: Sequence[str]) -> str:
    """Run and return what was printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{shlex.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def job_command(job: str, steps: int) -> list[str]:
    """Return how a rank starts the job."""
    return [sys.executable, str(SCRIPT), job, "--steps", str(steps)]


def capture(net: Namespaces, job: str, study: Path, port: int) -> int:
    """Capture the job into *study* and return the median step without a profiler."""
    unshaped = statistics.median(steps_of(run(launch(net, job_command(job, 12), port))))
    tool = [sys.executable, "-m", "chakrascope.cli", "trace", "-o", str(study), "--steps", "5", "--"]
    run([*tool, *launch(net, job_command(job, 14), port + 1)])
    return round(unshaped)


def predict(study: Path, network: NetworkConfig) -> int:
    """Return the step of the captured job on *network*."""
    workload = convert(Study.open(study).latest_trace_set(), rescale_host=True)
    return simulate(workload, SYSTEM, network, backend="analytical-unaware").makespan_ns


def nominal(rate_mbit: int, latency_ns: float) -> NetworkConfig:
    """Return the network as its rate and the headers say."""
    return NetworkConfig.from_mapping(
        {
            "topology": ["Switch"],
            "npus_count": [RANKS],
            "bandwidth": [rate_mbit * 1e6 / 8 / 2**30],
            "latency": [latency_ns],
            "efficiency": {"wire": WIRE, "substitutes": {"reduce_scatter": "all_reduce"}},
        },
        f"{rate_mbit} Mbit/s",
    )


def calibrated(net: Namespaces, folder: Path, port: int) -> NetworkConfig:
    """Measure gloo's collectives on *net* and return the network that they say."""
    file = folder / f"gloo-{port}.json"
    module = [sys.executable, "-m", "chakrascope.runner.calibration.gloo", str(file), "--largest", LARGEST]
    run(launch(net, module, port))
    found = calibrate_records(gloo_records(file), SystemConfig.preset(SYSTEM, 1), wire=WIRE)
    return calibrated_network(found)


def closed_loop(jobs: Sequence[str], rates: Sequence[int], steps: int) -> list[Outcome]:
    """Return an outcome for each job at each rate."""
    outcomes = []
    port = PORT + int(time.time()) % 1000
    with tempfile.TemporaryDirectory(prefix="closed-loop-") as name:
        folder = Path(name)
        with Namespaces(RANKS, [None] * RANKS) as net:
            unshaped = {job: capture(net, job, folder / job, port + 2 * n) for n, job in enumerate(jobs)}
        for rate in rates:
            with Namespaces(RANKS, [rate * 1_000_000] * RANKS) as net:
                network = calibrated(net, folder, port + 100)
                plain = nominal(rate, network.latency[0])
                for n, job in enumerate(jobs):
                    predicted = predict(folder / job, network)
                    measured = statistics.median(
                        steps_of(run(launch(net, job_command(job, steps + WARM_STEPS), port + 200 + n)))
                    )
                    outcomes.append(
                        Outcome(
                            job, rate, round(measured), predicted, predict(folder / job, plain), unshaped[job]
                        )
                    )
                    print(_line(outcomes[-1]), flush=True)
    return outcomes


def _line(outcome: Outcome) -> str:
    from_rate = outcome.predicted_from_rate_ns / outcome.measured_ns - 1
    return (
        f"{outcome.job:9s} {outcome.rate_mbit:5d} Mbit/s  measured {outcome.measured_ns / 1e6:8.1f} ms  "
        f"predicted {outcome.predicted_ns / 1e6:8.1f} ms  {outcome.error:+6.1%}  communication "
        f"{outcome.communication_error:+6.1%}  from the rate alone {from_rate:+6.1%}"
    )


def main() -> None:
    """Print the table, and the median and the worst error."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", default=",".join(JOBS))
    parser.add_argument("--rates", default=",".join(map(str, RATES_MBIT)), help="in Mbit/s")
    parser.add_argument("--steps", type=int, default=5, help="measured at each rate")
    parser.add_argument("--write", type=Path, help="a JSON file for the outcomes")
    options = parser.parse_args()
    outcomes = closed_loop(
        options.jobs.split(","), [int(rate) for rate in options.rates.split(",")], options.steps
    )
    errors = sorted(abs(outcome.error) for outcome in outcomes)
    print(f"{len(errors)} points: median error {statistics.median(errors):.1%}, worst {errors[-1]:.1%}")
    if options.write:
        options.write.write_text(json.dumps([outcome._asdict() for outcome in outcomes], indent=1) + "\n")


if __name__ == "__main__":
    main()
