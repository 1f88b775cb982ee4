"""Causes in autograd, in functions of several lines, in barriers, processes, precision and memory."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from causes import Cause
from torch import nn
from torch.utils.checkpoint import checkpoint


class AnomalyDetection(Cause):
    """Anomaly detection of autograd, which stores a stack for each operator, was left on."""

    def start(self) -> None:
        """Switch it on."""
        torch.autograd.set_detect_anomaly(self.slow, check_nan=False)

    def model(self, model: nn.Module) -> nn.Module:
        """Add many small operators."""
        return super().model(nn.Sequential(model, *(nn.Tanh() for _ in range(400))))


class PairwiseLoss(torch.autograd.Function):
    """The number of pairs of examples in the wrong order, weighted by how wrong they are."""

    @staticmethod
    def forward(ctx: Any, logits: torch.Tensor, is_slow: bool) -> torch.Tensor:
        """Return the logits, of which the gradient is changed."""
        ctx.save_for_backward(logits)
        ctx.is_slow = is_slow
        return logits.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        """Return the gradient plus the gradient of each pair's penalty."""
        (logits,) = ctx.saved_tensors
        if not ctx.is_slow:
            return gradient, None
        scores = logits.amax(dim=1).tolist()
        slopes = [0.0] * len(scores)
        for _ in range(32):
            for one, score in enumerate(scores):
                for other, rival in enumerate(scores):
                    if score < rival:
                        slopes[one] -= 1e-9
                        slopes[other] += 1e-9
        return gradient + torch.tensor(slopes)[:, None], None


class Ranked(nn.Module):
    """A model with a pairwise loss."""

    def __init__(self, model: nn.Module, is_slow: bool) -> None:
        super().__init__()
        self.inner, self.is_slow = model, is_slow

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = PairwiseLoss.apply(self.inner(x), self.is_slow)
        return logits


class PythonGradient(Cause):
    """The gradient of a loss is computed in a Python loop."""

    def model(self, model: nn.Module) -> nn.Module:
        """Add the loss."""
        return super().model(Ranked(model, self.slow))


class Recomputed(nn.Module):
    """A model whose activations are computed a second time in the backward pass."""

    def __init__(self, model: nn.Module, is_reentrant: bool) -> None:
        super().__init__()
        self.inner, self.is_reentrant = model, is_reentrant

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = checkpoint(self.inner, x, use_reentrant=self.is_reentrant)
        return logits


class Recomputation(Cause):
    """Two deep stacks of layers are checkpointed, reentrant and not, although their activations would fit."""

    def model(self, model: nn.Module) -> nn.Module:
        """Add the stacks."""
        stacks: list[nn.Module] = [nn.Sequential(*(nn.Tanh() for _ in range(100))) for _ in range(2)]
        stacks = [nn.Sequential(nn.Linear(16, 256), stack, nn.Linear(256, 16)) for stack in stacks]
        if self.slow:
            stacks = [Recomputed(stack, bool(place)) for place, stack in enumerate(stacks)]
        return super().model(nn.Sequential(model, *stacks))


class GradientPenalty(Cause):
    """The loss includes the norm of the gradient by the input."""

    def model(self, model: nn.Module) -> nn.Module:
        """Keep the model."""
        self.net = model
        return super().model(model)

    def before_forward(
        self, _step: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Compute the gradients of the penalty."""
        if self.slow:
            for _ in range(4):
                self.penalize(inputs)
        return inputs, labels

    def penalize(self, inputs: torch.Tensor) -> None:
        """Differentiate twice."""
        inputs = inputs.detach().requires_grad_()
        (slopes,) = torch.autograd.grad(self.net(inputs).sum(), inputs, create_graph=True)
        parameters = [*self.net.parameters()]
        self.penalties = torch.autograd.grad(slopes.norm(), parameters, allow_unused=True)


class Barriers(Cause):
    """The ranks wait for each other in many barriers, although collectives also synchronise them."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Wait for the other rank."""
        if self.slow:
            self.settle()

    def settle(self) -> None:
        """Wait in a hundred barriers."""
        for _ in range(100):
            dist.barrier()


class EditDistance(Cause):
    """A metric of texts is computed in Python, on several lines of one function."""

    def start(self) -> None:
        """Make the texts."""
        self.texts = [
            "the quick brown fox jumps over the lazy dog " * 3,
            "a slow fox walks around a dog " * 4,
        ]

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Compare the texts."""
        if self.slow:
            for _ in range(5):
                self.distance = self.compare(*self.texts)

    def compare(self, one: str, other: str) -> int:
        """Return the number of edits from one text to the other."""
        row = list(range(len(other) + 1))
        for place, letter in enumerate(one, 1):
            previous, row = row, [place]
            for number, rival in enumerate(other):
                if letter == rival:
                    row.append(previous[number])
                    continue
                best = min(previous[number], previous[number + 1])
                best = min(best, row[number])
                row.append(best + 1)
        return row[-1]


def positive(values: list[float]) -> int:
    """Return the number of positive values."""
    return sum(value > 0 for value in values)


class Pools(Cause):
    """Each step starts a pool of two processes."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Count in the processes."""
        if self.slow:
            with torch.multiprocessing.get_context("fork").Pool(2) as pool:
                self.counts = pool.map(positive, [[0.5, -0.5]] * 4)


class DoublePrecision(Cause):
    """Statistics in double precision, NumPy's default, make the second half of the model double."""

    width = 1024

    def model(self, model: nn.Module) -> nn.Module:
        """Normalize between the layers."""
        precision = torch.float64 if self.slow else torch.float32
        mean = torch.zeros(self.width, dtype=precision)
        model.embed.register_forward_hook(lambda _module, _inputs, output: output - mean)
        model.hidden, model.head = model.hidden.to(precision), model.head.to(precision)
        return super().model(model)


class NewPages(Cause):
    """Noise of 64 MiB is generated in each step, in memory that the process allocates and frees."""

    def start(self) -> None:
        """Allocate the memory that the fast variant reuses."""
        self.noise = torch.zeros(1 << 24)

    def before_forward(
        self, _step: int, inputs: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Fill the noise."""
        noise = torch.empty(1 << 24) if self.slow else self.noise
        noise.fill_(1e-3)
        return inputs + noise[:256], labels


MORE_CAUSES: dict[str, type[Cause]] = {
    "anomaly_detection": AnomalyDetection,
    "python_gradient": PythonGradient,
    "recomputation": Recomputation,
    "gradient_penalty": GradientPenalty,
    "barriers": Barriers,
    "edit_distance": EditDistance,
    "pools": Pools,
    "double_precision": DoublePrecision,
    "new_pages": NewPages,
}
