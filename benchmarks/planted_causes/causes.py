"""Causes of slow training steps: each class plants one cause in the script of job.py."""

from __future__ import annotations

import copy
import gc
import http.server
import json
import logging
import multiprocessing
import os
import pickle
import re
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

__all__ = ["CAUSES", "Cause"]


class Cause:
    """A cause that is planted if *slow*; each method is called at its place in the script."""

    batch, width, workers = 128, 640, 0

    def __init__(self, slow: bool) -> None:
        self.slow = slow
        self.rank = dist.get_rank() if dist.is_initialized() else 0

    def start(self) -> None:
        """Prepare the requirements of the cause."""

    def stop(self) -> None:
        """End threads and processes."""

    def model(self, model: nn.Module) -> nn.Module:
        """Return the model to train."""
        return nn.parallel.DistributedDataParallel(model) if dist.is_initialized() else model

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.AdamW(model.parameters(), lr=1e-3)

    def example(self, example: torch.Tensor) -> torch.Tensor:
        """Return one transformed example."""
        return example

    def before_forward(
        self, _step: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the batch."""
        return inputs, labels

    def before_backward(self, step: int, loss: torch.Tensor) -> None:
        """Run between forward and backward."""

    def after_backward(self, step: int, model: nn.Module) -> None:
        """Run between backward and the optimizer."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Run after the optimizer."""


def augment(example: torch.Tensor) -> torch.Tensor:
    """Jitter an example in plain Python."""
    values = example.tolist()
    for _ in range(6):
        values = [0.9 * value + 0.01 * (value * value) for value in values]
    return torch.tensor(values)


class SlowDataset(Cause):
    """Examples are transformed one by one, in the process that trains."""

    def example(self, example: torch.Tensor) -> torch.Tensor:
        """Return one transformed example."""
        return augment(example) if self.slow else example


class SlowWorker(SlowDataset):
    """Examples are transformed in one worker, which is slower than the step."""

    workers = 1

    def example(self, example: torch.Tensor) -> torch.Tensor:
        """Return one transformed example."""
        return augment(augment(example)) if self.slow else example


class Collections(Cause):
    """A large heap is collected at every step."""

    def start(self) -> None:
        """Make a heap of half a million containers."""
        self.heap = [[index] for index in range(500_000)]

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Free memory."""
        if self.slow:
            gc.collect()


class HeldLock(Cause):
    """Another thread holds a lock that the step needs."""

    def start(self) -> None:
        """Start a thread that acquires the lock repeatedly."""
        self.lock, self.ended = threading.Lock(), threading.Event()
        self.thread = threading.Thread(target=self.publish, daemon=True)
        if self.slow:
            self.thread.start()

    def stop(self) -> None:
        """End the thread."""
        self.ended.set()

    def publish(self) -> None:
        """Hold the lock most of the time."""
        while not self.ended.is_set():
            with self.lock:
                self.ended.wait(0.08)
            time.sleep(0.002)

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Add to the data that the thread publishes."""
        with self.lock:
            self.last = step


class HeldGil(HeldLock):
    """Another thread computes in Python."""

    def publish(self) -> None:
        """Compute in an infinite loop."""
        total = 0
        while not self.ended.is_set():
            for value in range(10_000):
                total += value * value

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Count in Python, as loops do."""


class Regex(Cause):
    """Texts are tokenized by regular expressions."""

    def start(self) -> None:
        """Make the texts."""
        self.text = "the quick brown fox, 42 times; jumps over (the) lazy dog. " * 400
        self.pattern = re.compile(r"(\w+)(?=\W+\w+)|(\d+)")

    def before_forward(
        self, _step: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Tokenize."""
        if self.slow:
            for _ in range(25):
                self.tokens = self.pattern.findall(self.text)
        return inputs, labels


class Items(Cause):
    """Each value of the gradients' statistics is fetched separately."""

    def after_backward(self, step: int, model: nn.Module) -> None:
        """Sum up the output's gradient."""
        if self.slow:
            gradient = list(model.parameters())[-2].grad.flatten()[:8_000]
            self.total = sum(value.item() for value in gradient)


class Logging(Cause):
    """Tensors are formatted and logged."""

    def start(self) -> None:
        """Log to a file."""
        self.logger = logging.getLogger("train")
        self.logger.addHandler(logging.FileHandler(Path(tempfile.mkdtemp()) / "train.log"))
        self.logger.setLevel(logging.INFO)

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Log all parameters."""
        if self.slow:
            for name, parameter in list(model.named_parameters()) * 6:
                self.logger.info("step %d: %s = %s", step, name, parameter)


class SmallOperators(Cause):
    """A recurrence of thousands of operators on a few values."""

    def before_forward(
        self, _step: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Smooth the first example."""
        if self.slow:
            state = inputs[0, :8]
            for _ in range(4_000):
                state = state * 0.99 + 0.01
            inputs[0, :8] = state
        return inputs, labels


class Recompilation(Cause):
    """A compiled function meets a new shape at every step."""

    def start(self) -> None:
        """Compile the function."""
        self.scale = torch.compile(lambda x: torch.tanh(x) * 2 + x.sin(), backend="aot_eager", dynamic=False)
        torch._dynamo.config.cache_size_limit = 64
        torch._dynamo.config.recompile_limit = 64

    def before_forward(
        self, step: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale the batch, of which each step takes another part."""
        size = inputs.shape[0] - (step if self.slow else 0)
        return self.scale(inputs[:size]), labels[:size]


class Checkpoint(Cause):
    """The model is saved every third step."""

    def start(self) -> None:
        """Choose a folder."""
        self.folder = Path(tempfile.mkdtemp())

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Save every third step."""
        if self.slow and step % 3 == 2:
            for copy_of in range(12):
                torch.save(model.state_dict(), self.folder / f"{copy_of}.pt")


class Validation(Cause):
    """The model is evaluated every fourth step."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Evaluate every fourth step."""
        if self.slow and step % 4 == 3:
            self.validate(model)

    def validate(self, model: nn.Module) -> None:
        """Evaluate the model."""
        model.eval()
        with torch.no_grad():
            for _ in range(30):
                model(torch.randn(self.batch, 256)).argmax(dim=1)
        model.train()


class Straggler(Cause):
    """Rank 1 stops before its backward pass."""

    def before_backward(self, step: int, loss: torch.Tensor) -> None:
        """Wait for a token of the rate limiter."""
        if self.slow and self.rank == 1:
            time.sleep(0.06)


class ParameterLoop(Cause):
    """The moving average of many small parameters is updated in a Python loop."""

    def model(self, model: nn.Module) -> nn.Module:
        """Add a hundred small layers."""
        model.small = nn.ModuleList(nn.Linear(4, 4) for _ in range(200))
        self.average = [parameter.detach().clone() for parameter in model.parameters()]
        return super().model(model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Train the large layers only."""
        return torch.optim.SGD([p for p in model.parameters() if p.numel() > 100], lr=1e-3)

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Update the average."""
        if self.slow:
            with torch.no_grad():
                for _ in range(8):
                    for mean, parameter in zip(self.average[6:], list(model.parameters())[6:], strict=True):
                        mean.mul_(0.999).add_(parameter, alpha=0.001)


class DoubleOptimizer(Cause):
    """The optimizer works on parameters in double precision."""

    width = 1024

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return an optimizer with a copy of the parameters in double precision."""
        return (
            DoubleAdam(model.parameters(), lr=1e-3, foreach=False) if self.slow else super().optimizer(model)
        )


class DoubleAdam(torch.optim.Adam):
    """Adam on a copy of the parameters in double precision."""

    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        """Update the copy, and the parameters from it."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["master"] = parameter.detach().double()
                    state["m"], state["v"] = (torch.zeros_like(state["master"]) for _ in range(2))
                gradient = parameter.grad.double()
                state["m"] = state["m"] * 0.9 + gradient * 0.1
                state["v"] = state["v"] * 0.99 + gradient * gradient * 0.01
                state["master"] = state["master"] - 1e-3 * state["m"] / (state["v"].sqrt() + 1e-8)
                parameter.data.copy_(state["master"])


class LargerBatch(Cause):
    """Rank 1 has four times the batch of the others."""

    def __init__(self, slow: bool) -> None:
        super().__init__(slow)
        self.batch = 512 if slow and self.rank == 1 else 128


class WideProjection(Cause):
    """The model has one projection that is far wider than the rest."""

    def model(self, model: nn.Module) -> nn.Module:
        """Widen the hidden layer."""
        if self.slow:
            model.hidden = nn.Sequential(nn.Linear(self.width, 3072), nn.Linear(3072, self.width))
        return super().model(model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return an optimizer that costs little."""
        return torch.optim.SGD(model.parameters(), lr=1e-3)


class LargeEmbedding(Cause):
    """The gradient of a large embedding is reduced among the ranks."""

    def model(self, model: nn.Module) -> nn.Module:
        """Add an embedding. Its gradient is not reduced unless the cause is planted."""
        model.table = nn.Embedding(40_000, 256)
        model.register_forward_pre_hook(lambda net, inputs: (inputs[0] + net.table.weight[0],))
        ignored = [] if self.slow else ["table.weight"]
        nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ignored)
        return super().model(model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return an optimizer that costs little."""
        return torch.optim.SGD(model.parameters(), lr=1e-3)


class FileWrites(Cause):
    """Each step writes a file to the disk and waits for it."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Write the activations."""
        if self.slow:
            with tempfile.NamedTemporaryFile(dir=".") as file:
                for _ in range(12):
                    file.write(bytes(2 << 20))
                    file.flush()
                    os.fsync(file.fileno())


class Requests(Cause):
    """Each step asks a server on this machine."""

    def start(self) -> None:
        """Start the server."""
        if not self.slow:
            return

        class Slow(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                time.sleep(0.06)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_arguments: Any) -> None:
                """Say nothing."""

        self.server = http.server.HTTPServer(("127.0.0.1", 0), Slow)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def before_forward(
        self, _step: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fetch the features."""
        if self.slow:
            urllib.request.urlopen(f"http://127.0.0.1:{self.server.server_port}/").read()
        return inputs, labels


def spin() -> None:
    """Keep a core busy."""
    while True:
        pass


class Throttled(Cause):
    """Two other processes run on the core of this one."""

    def start(self) -> None:
        """Pin this process, and start the other processes, which inherit the pinning."""
        os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
        fork = multiprocessing.get_context("fork")
        self.others = [fork.Process(target=spin, daemon=True) for _ in range(2 if self.slow else 0)]
        for other in self.others:
            other.start()

    def stop(self) -> None:
        """End the others."""
        for other in self.others:
            other.kill()


class Printing(Cause):
    """Every step prints thousands of lines."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Print progress."""
        if self.slow:
            with Path("progress.txt").open("w", encoding="utf-8") as file:
                for index in range(12_000):
                    print(f"step {step}: item {index} of 12000, loss {index / 7:.4f}", file=file, flush=True)


class JsonRecords(Cause):
    """Every step writes its statistics as JSON."""

    def start(self) -> None:
        """Make the statistics."""
        self.record = [{"name": f"layer{index}", "values": [index / 3] * 20} for index in range(2_000)]

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Write and read the statistics."""
        if self.slow:
            json.loads(json.dumps(self.record))


class DeepCopies(Cause):
    """Every step copies a nested configuration."""

    def start(self) -> None:
        """Make the configuration."""
        self.config = {str(index): {"range": [index, index + 1], "on": True} for index in range(6_000)}

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Copy the configuration."""
        if self.slow:
            self.last = copy.deepcopy(self.config)


class Pickles(Cause):
    """Every step pickles a large dictionary."""

    def start(self) -> None:
        """Make the dictionary."""
        self.record = {index: (str(index), index / 3, [index]) for index in range(60_000)}

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Pickle it."""
        if self.slow:
            pickle.loads(pickle.dumps(self.record))


class Sleep(Cause):
    """Every step sleeps."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Wait for the rate limiter."""
        if self.slow:
            time.sleep(0.06)


class Subprocess(Cause):
    """Every step starts a program."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Ask for the state of the machine."""
        if self.slow:
            subprocess.run([sys.executable, "-S", "-E", "-c", "import json"], check=True)


class RankDataset(SlowDataset):
    """The last rank transforms its examples in Python."""

    def example(self, example: torch.Tensor) -> torch.Tensor:
        """Return one transformed example."""
        last = dist.get_world_size() - 1
        return augment(example) if self.slow and self.rank == last else example


class CompiledRegex(Regex):
    """The model is compiled; texts are tokenized by regular expressions."""

    def model(self, model: nn.Module) -> nn.Module:
        """Compile the model."""
        return torch.compile(super().model(model), backend="aot_eager")


class ShardedSleep(Straggler):
    """A model that is fully sharded, one rank of which is late."""

    def model(self, model: nn.Module) -> nn.Module:
        """Shard the model."""
        for layer in (model.embed, model.hidden, model.head):
            fully_shard(layer)
        return fully_shard(model)


class ShardedCheckpoint(ShardedSleep):
    """A model that is fully sharded and saved at every third step."""

    def before_backward(self, step: int, loss: torch.Tensor) -> None:
        """Go on."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Save every third step."""
        if self.slow and step % 3 == 2:
            state = {name: value.full_tensor() for name, value in model.state_dict().items()}
            for copy_of in range(10):
                torch.save(state, Path(tempfile.gettempdir()) / f"{os.getpid()}.{copy_of}.pt")


CAUSES: dict[str, type[Cause]] = {
    "dataset": SlowDataset,
    "worker": SlowWorker,
    "collections": Collections,
    "lock": HeldLock,
    "gil": HeldGil,
    "regex": Regex,
    "items": Items,
    "logging": Logging,
    "small_operators": SmallOperators,
    "recompilation": Recompilation,
    "checkpoint": Checkpoint,
    "validation": Validation,
    "straggler": Straggler,
    "parameter_loop": ParameterLoop,
    "double_optimizer": DoubleOptimizer,
    "larger_batch": LargerBatch,
    "wide_projection": WideProjection,
    "embedding": LargeEmbedding,
    "file_writes": FileWrites,
    "requests": Requests,
    "throttled": Throttled,
    "printing": Printing,
    "json": JsonRecords,
    "deepcopy": DeepCopies,
    "pickle": Pickles,
    "sleep": Sleep,
    "subprocess": Subprocess,
    "rank_dataset": RankDataset,
    "compiled_regex": CompiledRegex,
    "sharded_sleep": ShardedSleep,
    "sharded_checkpoint": ShardedCheckpoint,
}
