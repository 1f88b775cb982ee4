"""Run ``trace`` as a user would, in its own process, on small scripts."""

import json
import subprocess
import sys
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


@pytest.fixture
def script(tmp_path):
    """Return a function that writes a training script: the common start plus *ending*."""

    def write(ending, start=TRAIN):
        path = tmp_path / "train.py"
        path.write_text(start + ending)
        return path

    return write


@pytest.fixture
def run_trace(tmp_path):
    """Return a function that traces a command into ``tmp_path / "out"``; it gives the finished process."""

    def run(*command, **options):
        arguments = [
            json.dumps(_package_path()),
            str(tmp_path / "out"),
            json.dumps(options),
            *map(str, command),
        ]
        return subprocess.run(
            [sys.executable, "-c", DRIVER, *arguments],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            check=False,
            timeout=120,
        )

    return run


def _package_path():
    import chakrascope.tracer

    return [str(Path(chakrascope.tracer.__file__).parent.parent.parent)]
