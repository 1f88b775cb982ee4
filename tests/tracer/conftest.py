"""Run ``trace`` as a user would, in a separate process, on small scripts."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

DRIVER = """
import json, sys
sys.path[:0] = json.loads(sys.argv[1])
from chakrascope.errors import ChakrascopeError
from chakrascope.tracer import trace
try:
    trace_set = trace(sys.argv[4:], sys.argv[2], **json.loads(sys.argv[3]))
except ChakrascopeError as error:
    print(error.message, file=sys.stderr)
    sys.exit(error.exit_code)
sys.exit(trace_set.exit_code)
"""

TRAIN = """
import os, sys, torch
import torch.distributed as dist
if "RANK" in os.environ:
    dist.init_process_group("gloo")
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))
if "RANK" in os.environ:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
rank = int(os.environ.get("RANK", "0"))
def train(steps, at_step=lambda step: None):
    for step in range(steps):
        at_step(step)
        optimizer.zero_grad()
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
"""


PARALLELISM = (
    "torch.distributed.fsdp",
    "torch.distributed.tensor.parallel",
    "torch.distributed.pipelining",
)
# The longest of these jobs takes 20 s on two busy cores: a job that takes longer than this has hung.
LIMIT_S = 240
RANKS = Path(__file__).parent / "ranks.py"
JOBS = Path(__file__).parent / "jobs"


@pytest.fixture
def script(tmp_path):
    """Return a function that writes a training script: the common start plus *ending*."""

    def write(ending, start=TRAIN):
        path = tmp_path / "train.py"
        path.write_text(start + ending)
        return path

    return write


@pytest.fixture(scope="session")
def package_path():
    """Return the folder from which the ``chakrascope`` under test is imported."""
    import chakrascope.tracer

    return str(Path(chakrascope.tracer.__file__).parent.parent.parent)


@pytest.fixture
def start_trace(tmp_path, package_path):
    """Return a function that starts the trace of a command into *folder* of ``tmp_path``."""

    def start(*command, folder="out", **options):
        words = [json.dumps([package_path]), tmp_path / folder, json.dumps(options), *command]
        arguments = [sys.executable, "-c", DRIVER, *map(str, words)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "PYTHONFAULTHANDLER": "1"}
        return subprocess.Popen(arguments, cwd=tmp_path, text=True, env=environment, **pipes)

    return start


@pytest.fixture
def run_trace(start_trace, tmp_path):
    """Return a function that traces a command into ``tmp_path / "out"``, and returns the process."""

    def run(*command, **options):
        process = start_trace(*command, **options)
        try:
            output, errors = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired:
            pytest.fail(stacks_of_hanging(process, tmp_path))
        return subprocess.CompletedProcess(command, process.returncode, output, errors)

    return run


def stacks_of_hanging(process, folder):
    """End the processes in *folder*, such as *process* and its ranks; return the stacks of their threads."""
    for number in (signal.SIGABRT, signal.SIGKILL):
        for entry in os.listdir("/proc"):
            # ranks are children of their server, not of *process*
            with contextlib.suppress(OSError, ValueError):
                if Path(os.readlink(f"/proc/{entry}/cwd")) == folder and int(entry) != os.getpid():
                    os.kill(int(entry), number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            output, errors = process.communicate(timeout=30)
            return f"The job did not end. Output: {output}\nStacks: {errors}"
    return "The job did not end, and its output is still open"


@contextlib.contextmanager
def serving(folder, package_path, *modules, **settings):
    """Run a process that starts ranks in a fraction of the time torch and *modules* take to import."""
    address = folder / "socket"
    inject = str(Path(package_path, "chakrascope", "tracer", "_inject"))
    environment = {
        **os.environ,
        "PYTHONPATH": inject,
        "CHAKRASCOPE_CAPTURE": "{}",
        "OMP_NUM_THREADS": "1",
        "TORCH_FR_BUFFER_SIZE": "2000",
        "HF_HUB_OFFLINE": "1",
        "PYTHONFAULTHANDLER": "1",
        **settings,
    }
    command = [sys.executable, str(RANKS), str(address), ",".join(modules)]
    server = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        while not address.exists():
            assert server.poll() is None
            time.sleep(0.05)
        yield address
    finally:
        os.killpg(server.pid, signal.SIGKILL)  # including ranks that hang
        server.wait()


@pytest.fixture(scope="session")
def rank_server(tmp_path_factory, package_path):
    """Return the address of a process that starts ranks fast."""
    with serving(tmp_path_factory.mktemp("ranks"), package_path, *PARALLELISM) as address:
        yield address


@pytest.fixture
def rank_command(rank_server):
    """Return a function that returns the command for a script, a file or a name in ``jobs/``."""

    def command(path, *arguments, ranks=1):
        return [sys.executable, RANKS, rank_server, ranks, JOBS / path, *arguments]

    return command


@pytest.fixture
def run_ranks(run_trace, rank_command):
    """Return a function that traces a script, a file or a name in ``jobs/``, as *ranks* ranks."""

    def run(path, *arguments, ranks=1, **options):
        return run_trace(*rank_command(path, *arguments, ranks=ranks), **options)

    return run


@pytest.fixture
def run_ranks_alone(tmp_path, rank_command):
    """Return a function that runs a script as *ranks* ranks without capturing it."""

    def run(path, *arguments, ranks=1):
        command = list(map(str, rank_command(path, *arguments, ranks=ranks)))
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        pipes = {"capture_output": True, "text": True, "timeout": LIMIT_S}
        return subprocess.run(command, cwd=tmp_path, env=environment, check=False, **pipes)

    return run
