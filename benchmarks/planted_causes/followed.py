"""Jobs whose advice can be followed: each trains as a user wrote it if *slow*, otherwise as advised."""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from causes import Cause, Checkpoint, Collections, Items, Logging, ParameterLoop, Recompilation, Regex
from torch import nn

__all__ = ["FOLLOWED"]

Batch = tuple[torch.Tensor, torch.Tensor]


def gated(x: torch.Tensor, scale: torch.Tensor, shift: torch.Tensor) -> torch.Tensor:
    """Return a gated activation: a chain of elementwise operators."""
    gate = torch.relu(x * scale + shift)
    return torch.relu(gate * x - shift) * scale + x


class Fusion(Cause):
    """A chain of elementwise operators on large tensors; followed: ``torch.compile``."""

    def start(self) -> None:
        """Make the features."""
        self.features = [torch.randn(2_000_000) for _ in range(3)]
        self.gated = gated if self.slow else torch.compile(gated)

    def before_forward(self, _step: int, inputs: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Transform the features."""
        self.transformed = self.gated(*self.features)
        return inputs, labels


class WholeGradient(Items):
    """The gradient is summed by ``.item()`` of each value; followed: one ``.item()`` of its sum."""

    def after_backward(self, step: int, model: nn.Module) -> None:
        """Sum up the output's gradient."""
        super().after_backward(step, model)
        if not self.slow:
            self.total = list(model.parameters())[-2].grad.flatten()[:8_000].sum().item()


class LargerBatches(Cause):
    """A second network predicts examples one by one; followed: all 128 at once."""

    def start(self) -> None:
        """Make the network."""
        layers = (layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.ReLU()))
        self.second, self.examples = nn.Sequential(*layers), torch.randn(128, 32)

    def before_forward(self, _step: int, inputs: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Predict."""
        with torch.no_grad():
            for part in self.examples.split(1 if self.slow else 128):
                self.predicted = self.second(part)
        return inputs, labels


class LoaderWorkers(Cause):
    """Examples are transformed in the process that trains; followed: in two workers."""

    batch, width = 256, 1024

    def __init__(self, slow: bool) -> None:
        super().__init__(slow)
        self.workers = 0 if slow else 2

    def example(self, example: torch.Tensor) -> torch.Tensor:
        """Return one transformed example."""
        return torch.tensor([0.9 * value + 0.01 * value * value for value in example.tolist()])


class FusedOptimizer(Cause):
    """Adam updates one parameter after the other; followed: ``fused=True``."""

    def model(self, model: nn.Module) -> nn.Module:
        """Add small layers."""
        small = (nn.Linear(64, 64) for _ in range(100))
        model.embed = nn.Sequential(nn.Linear(256, 64), *small, nn.Linear(64, self.width))
        return super().model(model)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        """Return Adam."""
        settings = {"foreach": False} if self.slow else {"fused": True}
        return torch.optim.Adam(model.parameters(), lr=1e-3, **settings)


class JoinedAverage(ParameterLoop):
    """An average of many small parameters is updated one by one; followed: as one tensor."""

    def model(self, model: nn.Module) -> nn.Module:
        """Add a hundred small layers."""
        model = super().model(model)
        self.joined = nn.utils.parameters_to_vector(self.average[6:])
        return model

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Update the average."""
        super().after_step(step, model, loss)
        if not self.slow:
            with torch.no_grad():
                parameters = nn.utils.parameters_to_vector(list(model.parameters())[6:])
                for _ in range(8):
                    self.joined.lerp_(parameters, 0.001)


class LargerBuckets(Cause):
    """Gradients of 120 layers are reduced one by one; followed: in buckets of 25 MiB."""

    def model(self, model: nn.Module) -> nn.Module:
        """Add layers."""
        model.embed = nn.Sequential(*(nn.Linear(256, 256) for _ in range(60)), model.embed)
        return nn.parallel.DistributedDataParallel(model, bucket_cap_mb=0.001 if self.slow else 25)


class JoinedMetrics(Cause):
    """Metrics are reduced one by one; followed: in one all-reduce."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Average 100 metrics over the ranks."""
        metrics = [loss.detach() * index for index in range(100)]
        if self.slow:
            for metric in metrics:
                dist.all_reduce(metric)
        else:
            dist.all_reduce(torch.stack(metrics))


class SeldomLogging(Logging):
    """Parameters are logged at every step; followed: at every eighth."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Log all parameters."""
        slow, self.slow = self.slow, self.slow or step % 8 == 0
        super().after_step(step, model, loss)
        self.slow = slow


class LowerPrecision(Cause):
    """A wide teacher predicts in single precision; followed: in bfloat16."""

    def start(self) -> None:
        """Make the teacher."""
        self.precision = torch.float32 if self.slow else torch.bfloat16
        self.teacher = nn.Sequential(*(nn.Linear(2048, 2048) for _ in range(3))).to(self.precision)
        self.texts = torch.randn(128, 2048)

    def before_forward(self, _step: int, inputs: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Ask the teacher."""
        with torch.no_grad():
            self.predicted = self.teacher(self.texts.to(self.precision))
        return inputs, labels


class CachedTokens(Regex):
    """The same texts are tokenized at every step; followed: tokens are cached."""

    def start(self) -> None:
        """Make the texts."""
        super().start()
        self.cached = functools.lru_cache(self.pattern.findall)

    def before_forward(self, _step: int, inputs: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Tokenize."""
        if not self.slow:
            for _ in range(25):
                self.tokens = self.cached(self.text)
        return super().before_forward(_step, inputs, labels)


class AsynchronousCheckpoint(Checkpoint):
    """The model is saved at every third step; followed: by another process."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Save every third step."""
        if step % 3 == 2:
            if self.slow:
                self.save(model.state_dict())
            else:
                self.hand_over(model.state_dict())

    def hand_over(self, state: dict[str, Any]) -> None:
        """Copy the model for the process that saves, which the first copy starts."""
        if not hasattr(self, "shared"):
            self.shared = {name: value.clone().share_memory_() for name, value in state.items()}
            context = torch.multiprocessing.get_context("fork")
            self.due = context.Semaphore(0)
            context.Process(target=self.save_all, daemon=True).start()
        for name, value in state.items():
            self.shared[name].copy_(value)
        self.due.release()

    def save_all(self) -> None:
        """Write each copy."""
        while self.due.acquire():
            self.save(self.shared)

    def save(self, state: dict[str, Any]) -> None:
        """Write the model."""
        for copy_of in range(6):
            torch.save(state, Path(self.folder) / f"{copy_of}.pt")


class FrozenHeap(Collections):
    """A large heap is collected at every step; followed: ``gc.freeze()`` after setup."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Free memory."""
        if not self.slow and step == 0:
            gc.freeze()
        gc.collect()


class DynamicShapes(Recompilation):
    """A compiled function meets a new shape at every step; followed: ``dynamic=True``."""

    def start(self) -> None:
        """Compile the function."""
        super().start()
        scale = lambda x: torch.tanh(x) * 2 + x.sin()  # noqa: E731
        self.scale = torch.compile(scale, backend="aot_eager", dynamic=not self.slow)

    def before_forward(self, step: int, inputs: torch.Tensor, labels: torch.Tensor) -> Batch:
        """Scale the batch, of which each step takes another part."""
        size = inputs.shape[0] - step
        return self.scale(inputs[:size]), labels[:size]


FOLLOWED: dict[str, type[Cause]] = {
    "fusion": Fusion,
    "whole_gradient": WholeGradient,
    "larger_batches": LargerBatches,
    "loader_workers": LoaderWorkers,
    "fused_optimizer": FusedOptimizer,
    "joined_average": JoinedAverage,
    "larger_buckets": LargerBuckets,
    "joined_metrics": JoinedMetrics,
    "seldom_logging": SeldomLogging,
    "lower_precision": LowerPrecision,
    "cached_tokens": CachedTokens,
    "async_checkpoint": AsynchronousCheckpoint,
    "frozen_heap": FrozenHeap,
    "dynamic_shapes": DynamicShapes,
}
