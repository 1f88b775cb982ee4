"""A small training script that one planted cause makes slow.

    python job.py regex --slow              # one process
    torchrun --nproc-per-node 2 job.py straggler --slow

Without ``--slow``, the same script trains without the cause, or as advised. At the end, rank 0 writes the
time of each step in milliseconds as JSON to the file ``STEP_TIMES``.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

sys.path.insert(0, str(Path(__file__).parent))

from causes import CAUSES, Cause
from followed import FOLLOWED
from more_causes import MORE_CAUSES

JOBS = CAUSES | MORE_CAUSES | FOLLOWED


class Net(nn.Module):
    """Three linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.embed = nn.Linear(256, width)
        self.hidden = nn.Linear(width, width)
        self.head = nn.Linear(width, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        x = torch.relu(self.embed(x))
        x = torch.relu(self.hidden(x))
        return self.head(x)


class Examples(torch.utils.data.Dataset):
    """Random vectors with labels."""

    def __init__(self, cause: Cause, size: int) -> None:
        self.cause = cause
        self.inputs = torch.randn(size, 256)
        self.labels = torch.randint(0, 16, (size,))

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        return self.cause.example(self.inputs[index]), self.labels[index]


def train(cause: Cause, steps: int) -> list[float]:
    """Train for *steps* steps, and return the time of each step in milliseconds."""
    torch.manual_seed(0)
    model: nn.Module = cause.model(Net(cause.width))
    loader = torch.utils.data.DataLoader(
        Examples(cause, cause.batch * (steps + 1)), batch_size=cause.batch, num_workers=cause.workers
    )
    optimizer = cause.optimizer(model)
    loss_of = nn.CrossEntropyLoss()
    times: list[float] = []
    batches = iter(loader)
    for step in range(steps):
        begin = time.perf_counter()
        inputs, labels = next(batches)
        inputs, labels = cause.before_forward(step, inputs, labels)
        loss = loss_of(model(inputs), labels)
        cause.before_backward(step, loss)
        optimizer.zero_grad()
        loss.backward()
        cause.after_backward(step, model)
        optimizer.step()
        cause.after_step(step, model, loss)
        times.append(1e3 * (time.perf_counter() - begin))
    return times


def main() -> None:
    """Train with the cause that the command line names."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cause", choices=sorted(JOBS))
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    torch.set_num_threads(1)
    cause = JOBS[options.cause](options.slow)
    cause.start()
    times = train(cause, options.steps)
    cause.stop()
    if cause.rank == 0 and "STEP_TIMES" in os.environ:
        Path(os.environ["STEP_TIMES"]).write_text(json.dumps(times), encoding="utf-8")
    if dist.is_initialized():
        dist.barrier()  # gloo aborts a rank whose peer has gone
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
