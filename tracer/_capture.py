"""Capture from inside a script, for loops without a torch optimizer."""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from . import _agent
from ._merge import merge, read_statuses

__all__ = ["Capture", "capture"]


class Capture:
    """Handle of a running :func:`capture`."""

    def __init__(self, agent: _agent.Agent) -> None:
        self._agent = agent

    def step(self) -> None:
        """Say that one step (a training step, a batch of inference) has ended."""
        self._agent.boundary()


@contextlib.contextmanager
def capture(out: str | Path, *, warmup: int = 3, steps: int = 3, modules: bool = True) -> Iterator[Capture]:
    """Capture *steps* steps of this process and its peers into *out*, each ended by ``step()``.

    The first *warmup* steps pass unobserved. Every rank opens it with the same *out*; the last to leave
    writes the manifest. Under ``chakrascope trace`` the launcher's folder and options hold instead, and the
    launcher writes the manifest.

    Raises:
        NothingCaptured: on leaving, if no rank recorded a step.

    """
    module = _loaded_agent_module()
    launched = _agent.ENVIRONMENT_KEY in os.environ
    if launched:
        agent = module.current_agent()
        agent.trigger = "manual"
    else:
        module.watch_profilers(_profiler_module())
        agent = module.Agent(Path(out).absolute(), max(1, warmup), steps, modules, trigger="manual")
        module.set_current_agent(agent)
    try:
        yield Capture(agent)
    finally:
        agent.close()
        if not launched:
            _merge_when_last(agent)


def _profiler_module() -> ModuleType:
    return importlib.import_module("torch.autograd.profiler")  # late: torch is an optional dependency


def _loaded_agent_module() -> ModuleType:
    """Return the agent already loaded into this process, else this package's own."""
    return sys.modules.get("_chakrascope_agent", _agent)


def _merge_when_last(agent: _agent.Agent) -> None:
    statuses = read_statuses(agent.out)
    worlds = [status["rank"]["world_size"] for status in statuses if status["rank"] is not None]
    if len(statuses) >= max(worlds, default=1) and all(status["closed"] for status in statuses):
        options = {"warmup": agent.warmup, "steps": agent.steps, "modules": agent.modules}
        merge(agent.out, sys.argv, 0, options)
