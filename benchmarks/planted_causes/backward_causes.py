"""Causes in the code that autograd runs."""

from __future__ import annotations

from typing import Any

import torch
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
        """Return the gradient with that of each pair added."""
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


BACKWARD_CAUSES: dict[str, type[Cause]] = {
    "anomaly_detection": AnomalyDetection,
    "python_gradient": PythonGradient,
    "recomputation": Recomputation,
}
