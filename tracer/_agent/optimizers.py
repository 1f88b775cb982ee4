"""Count training steps by the optimizers' own ``step`` calls."""

from __future__ import annotations

import functools
import itertools
import weakref
from collections.abc import Callable, Iterable, Iterator
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
    inside this range, and the ranges of the host trace would not be nested.
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


# The maximum number of consecutive optimizer steps that belong to the next training step, because no backward
# pass precedes them. A script with more such steps sets its gradients in another way.
_MAX_REPEATS = 32


class OptimizerOrder:
    """Determine which of a script's optimizers ends a training step.

    The order of optimizers is learnt during the first training step, which ends when the first optimizer
    steps again.
    """

    def __init__(self) -> None:
        self._order: list[int] = []
        self._known = False
        self._passes: dict[int, int] = {}
        self._repeats = 0

    def repeats(self, optimizer: int, passes: int) -> bool:
        """Return whether *optimizer* steps again without another backward pass of all *passes* so far."""
        is_repeat = 0 < passes == self._passes.get(optimizer)
        self._passes[optimizer] = passes
        self._repeats = self._repeats + 1 if is_repeat else 0
        return 0 < self._repeats <= _MAX_REPEATS

    @property
    def empty(self) -> bool:
        """Whether no optimizer has stepped yet."""
        return not self._order

    def is_late(self, optimizer: int) -> bool:
        """Return whether *optimizer* first appears after the order of optimizers was learnt."""
        return self._known and optimizer not in self._order

    def is_new(self, optimizer: int) -> bool:
        """Return whether *optimizer* has not stepped before."""
        return optimizer not in self._order

    def ends_step(self, optimizer: int) -> bool:
        """Record a call of *optimizer*; return whether the call is the last call of a training step."""
        if optimizer not in self._order:
            self._order.append(optimizer)
        elif optimizer == self._order[0]:
            self._known = True
        return self._known and optimizer == self._order[-1]


class Owners:
    """The optimizers that have stepped, which determine the trained parameters."""

    def __init__(self) -> None:
        self._optimizers: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._of_parameters: dict[int, tuple[weakref.ref[Any], int]] = {}
        self._numbers = itertools.count()

    def add(self, optimizer: Any) -> int:
        """Add an *optimizer* that steps, and return its number.

        A script may create an optimizer in each step. An optimizer has the number of a deleted optimizer with
        the same first parameter.
        """
        known = self._optimizers.get(id(optimizer))
        if known is None or known[0]() is not optimizer:
            first = next(_parameters_of(optimizer), 0)
            before = self._of_parameters.get(first)
            number = before[1] if before and before[0]() is None else next(self._numbers)
            known = weakref.ref(optimizer), number
            self._optimizers[id(optimizer)] = self._of_parameters[first] = known
        return known[1]

    def note(self, with_gradients: Iterable[tuple[str, Any]]) -> str:
        """Return a note on parameters with gradients but without optimizer, or "" if there is no problem.

        If the optimizers have none of the parameters, they work on copies of parameters, and no note is
        needed.
        """
        alive = [optimizer for one, _ in self._optimizers.values() if (optimizer := one()) is not None]
        owned = {number for own in alive for number in _parameters_of(own)}
        named = {id(parameter): (name, parameter) for name, parameter in with_gradients}
        unused = [pair for key, pair in named.items() if key not in owned]
        if not unused or len(unused) == len(named):
            return ""
        first, mib = unused[0][0], sum(one.numel() * one.element_size() for _, one in unused) / 2**20
        return (
            f"the backward pass computes gradients of {len(unused)} parameters ({mib:.3g} MiB, such as "
            f"{first}) that no optimizer uses: call requires_grad_(False) on frozen parameters to avoid "
            "this work"
        )


def _parameters_of(optimizer: Any) -> Iterator[int]:
    """Yield the id of each parameter of *optimizer*; a wrapper of another optimizer may have none."""
    for group in getattr(optimizer, "param_groups", ()):
        yield from map(id, group.get("params", ()))
