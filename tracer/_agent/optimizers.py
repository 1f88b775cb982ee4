"""Count training steps by the optimizers' own ``step`` calls."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any


def watch_steps(
    optimizer_module: Any,
    created: Callable[[], None],
    stepping: Callable[[Any], AbstractContextManager[None]],
) -> None:
    """Run every ``step`` call of every optimizer inside ``stepping(optimizer)``.

    *created* is called when a class of optimizers is instantiated for the first time. ``profile_hook_step``
    is wrapped because it runs outside torch's own ``Optimizer.step#...`` range; a post-step hook would run
    inside it and mis-nest the host trace.
    """
    optimizer_class = optimizer_module.Optimizer
    hook_step = optimizer_class.profile_hook_step

    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        step = hook_step(func)
        created()

        @functools.wraps(step)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            with stepping(args[0]):
                return step(*args, **kwargs)

        return wrapper

    optimizer_class.profile_hook_step = staticmethod(profile_hook_step)


class OptimizerOrder:
    """Determine which of a script's optimizers ends a training step.

    The order is learnt during the first step, which ends when its first optimizer steps again.
    """

    def __init__(self) -> None:
        self._order: list[int] = []
        self._known = False

    @property
    def empty(self) -> bool:
        """Whether no optimizer has stepped yet."""
        return not self._order

    def is_late(self, optimizer: int) -> bool:
        """Return whether *optimizer* appears only after the order was learnt."""
        return self._known and optimizer not in self._order

    def is_new(self, optimizer: int) -> bool:
        """Return whether *optimizer* has not stepped before."""
        return optimizer not in self._order

    def ends_step(self, optimizer: int) -> bool:
        """Record a call of *optimizer*; return whether it is the last one of a step."""
        if optimizer not in self._order:
            self._order.append(optimizer)
        elif optimizer == self._order[0]:
            self._known = True
        return self._known and optimizer == self._order[-1]
