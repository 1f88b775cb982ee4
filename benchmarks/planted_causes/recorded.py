"""Jobs of several ranks whose steps are all recorded: what is slow is one rank's, in all steps or some."""

from __future__ import annotations

import time

import torch
from causes import Cause, Collections, Straggler
from torch import nn

__all__ = ["RECORDED"]


class SeldomStraggler(Straggler):
    """Rank 1 stops in every tenth step."""

    def before_backward(self, step: int, loss: torch.Tensor) -> None:
        """Wait for a token, now and then."""
        if step % 10 == 0:
            super().before_backward(step, loss)


class LateStraggler(Straggler):
    """Rank 1 gets slow after a third of the steps."""

    def before_backward(self, step: int, loss: torch.Tensor) -> None:
        """Wait for a token, later on."""
        if step >= 40:
            super().before_backward(step, loss)


class SlowForward(Cause):
    """Rank 1 computes its forward pass three times."""

    def model(self, model: nn.Module) -> nn.Module:
        """Compute the same again on rank 1."""
        if self.slow and self.rank == 1:
            hidden = model.hidden

            def repeatedly(_module: nn.Module, inputs: tuple[torch.Tensor]) -> None:
                for _ in range(60):
                    hidden.weight @ inputs[0].T

            hidden.register_forward_pre_hook(repeatedly)
        return super().model(model)


class SlowStorage(Cause):
    """The examples of rank 1 come from slow storage."""

    def example(self, example: torch.Tensor) -> torch.Tensor:
        """Read an example."""
        if self.slow and self.rank == 1:
            time.sleep(2e-4)
        return example


class RankCollections(Collections):
    """A large heap of rank 1 is collected in every fifth step."""

    def after_step(self, step: int, model: nn.Module, loss: torch.Tensor) -> None:
        """Free memory."""
        if self.rank == 1 and step % 5 == 0:
            super().after_step(step, model, loss)


RECORDED: dict[str, type[Cause]] = {
    "seldom_straggler": SeldomStraggler,
    "late_straggler": LateStraggler,
    "slow_forward": SlowForward,
    "slow_storage": SlowStorage,
    "rank_collections": RankCollections,
}
