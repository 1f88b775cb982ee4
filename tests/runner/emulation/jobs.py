"""Small jobs to emulate, and their processes."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from workloads import coll, comp, recv, workload

from chakrascope.runner import engine, prepare
from chakrascope.runner.backends import compile_scenario
from chakrascope.runner.emulation import EngineJob

# A measurement's workload counts in ns; others are in microseconds, as ASTRA-sim's are.
CAPTURED = {"measured_step_ns": 1}
LONG_NS = 60_000_000_000


def steps(ranks=2, size_bytes=100_000, compute_ns=1_000_000, count=3, groups=None):
    """Return a job that alternates between computation and all-reduces."""
    nodes = []
    for turn in range(count):
        first = 2 * turn
        nodes += [
            comp(first, compute_ns, (first - 1,) if turn else ()),
            coll(first + 1, size_bytes, (first,)),
        ]
    return workload(*[nodes] * ranks, groups=groups, metadata=CAPTURED)


def unmatched():
    """Return a job whose first rank waits for a message that no rank sends."""
    return workload([recv(0, 1, 0)], [comp(0, 1000)], metadata=CAPTURED)


def engine_job(job):
    """Return *job* as the coordinator takes it, without a rehearsal."""
    experiment = prepare(job, "default", None, backend="emulation:loopback")
    source = experiment.workload
    return EngineJob(
        compile_scenario(experiment).config, source.programs, tuple(map(int, source.program_of_rank))
    )


def carried_messages(settings, programs, order):
    """Return (source, destination, bytes) of each message of a simulation, in the order of posting."""
    found, waiting = [], []

    def carry(posted, limit):
        for number, source, destination, size, time_ns in posted:
            found.append((source, destination, size))
            waiting.append((time_ns + 1000, number))
        waiting.sort()
        if 0 <= limit < waiting[0][0]:
            return []
        due, number = waiting.pop(0)
        return [(number, due)]

    settings.external_network = carry
    output = engine.simulate(settings, programs, order)
    assert not output.unfinished
    return found


def posted_messages(experiment):
    """Return the messages of a simulation of *experiment*."""
    source = experiment.workload
    return carried_messages(
        compile_scenario(experiment).config, list(source.programs), source.program_of_rank
    )


def simulated_messages(job):
    """Return (source, destination, bytes) of each message of a simulation of *job*, sorted."""
    return sorted(posted_messages(prepare(job, "default", None, backend="emulation:loopback")))


def free_port():
    """Return an unused port of this machine."""
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return chosen.getsockname()[1]


def shared_memory():
    """Return libfabric's objects in the machine's shared memory: names of processes and endpoints."""
    return {entry.name for entry in Path("/dev/shm").glob("*[0-9]:[0-9]*")}


def agent(address, name, token_file, *more):
    """Start an agent as a user does."""
    command = [sys.executable, "-m", "chakrascope.cli", "emulate-agent", "--join", address, "--name", name]
    return subprocess.Popen(
        [*command, "--token-file", str(token_file), *more],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
