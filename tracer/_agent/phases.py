"""Measure the phases of each step: wait for data, forward, backward, wait for collectives, optimizer."""

from __future__ import annotations

import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

PHASE_COLUMNS = ("loader_ns", "forward_ns", "backward_ns", "collective_ns", "optimizer_ns")
LOADER, FORWARD, BACKWARD, COLLECTIVE, OPTIMIZER, PAUSED = range(6)


class PhaseClock:
    """Divides the time of *thread*, the training thread, among phases; a phase change takes about 0.3 us.

    A step begins with the forward phase. *sends* are the peers to which messages were sent, each as the name
    of a process group and a rank in this group. *passes* is the number of backward passes on any thread.
    """

    def __init__(self) -> None:
        self.thread: int | None = None
        self.sends: set[tuple[str, int]] = set()
        self.passes = 0
        self._spent_ns = [0] * 6
        self._phase = FORWARD
        self._since_ns = time.time_ns()

    def enter(self, phase: int) -> int:
        """Begin *phase* in the training thread and return the previous phase, or -1 in other threads."""
        if threading.get_ident() != self.thread:
            return -1
        now = time.time_ns()
        before, self._phase = self._phase, phase
        self._spent_ns[before] += now - self._since_ns
        self._since_ns = now
        return before

    def leave(self, before: int) -> None:
        """Resume the phase *before*, which `enter` returned."""
        if before >= 0:
            self.enter(before)

    def end_step(self, now: int) -> tuple[int, ...]:
        """Begin the next step at *now*; return the total time in each of `PHASE_COLUMNS` so far."""
        self._spent_ns[self._phase] += now - self._since_ns
        self._since_ns = now
        self._phase = FORWARD
        return tuple(self._spent_ns[:PAUSED])


PHASES = PhaseClock()


@functools.cache  # another call has no effect
def watch_backward(torch: Any) -> None:
    """Time the backward passes of *torch*, from the first backward pass on."""
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def watched(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        PHASES.passes += 1
        before = PHASES.enter(BACKWARD)
        if before in (-1, BACKWARD):  # a reentrant call, which recomputes a checkpoint
            return backward(tensors, *args, **kwargs)
        hook = _wait_announced(torch, tensors)
        try:
            return backward(tensors, *args, **kwargs)
        finally:
            PHASES.enter(OPTIMIZER)
            if hook is not None:
                hook.remove()

    torch.autograd.backward = watched


def _wait_announced(torch: Any, tensors: Any) -> Any:
    """Start the collective phase at the last gradient, after which DistributedDataParallel waits in C++.

    Autograd calls its callbacks in the order in which they were queued, and this callback is queued first.
    Returns the hook to remove, or None without peers and under compiled autograd, which cannot trace hooks.
    """
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if not _has_peers() or getattr(compiled, "compiled_autograd_enabled", False):
        return None
    # Iterators are not read, because tensors taken from an iterator would have no gradient.
    root = tensors[0] if isinstance(tensors, (list, tuple)) and tensors else tensors
    if not isinstance(root, torch.Tensor) or not root.requires_grad:
        return None
    engine = torch.autograd.Variable._execution_engine

    def begun(_gradient: Any) -> None:
        engine.queue_callback(lambda: PHASES.enter(COLLECTIVE))

    return root.register_hook(begun)


def _has_peers() -> bool:
    distributed = sys.modules.get("torch.distributed")
    return distributed is not None and distributed.is_available() and distributed.is_initialized()


@functools.cache  # another call has no effect
def watch_communication(distributed_module: Any) -> None:
    """From the first communication on, time waits for collectives and messages, and record receivers."""
    work_class, group_class = distributed_module.Work, distributed_module.ProcessGroup
    work_class.wait = waiting(work_class.wait)
    send = group_class.send

    @functools.wraps(send)
    def noted_send(group: Any, tensors: Any, peer: int, *args: Any, **kwargs: Any) -> Any:
        PHASES.sends.add((group.group_name, peer))
        return send(group, tensors, peer, *args, **kwargs)

    group_class.send = noted_send


def waiting(wait: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method *wait*, with its calls timed as waits for collectives."""

    @functools.wraps(wait)
    def watched(owner: Any, *args: Any, **kwargs: Any) -> Any:
        before = PHASES.enter(COLLECTIVE)
        try:
            return wait(owner, *args, **kwargs)
        finally:
            PHASES.leave(before)

    return watched
