"""Capture from inside a script, for training loops without a torch optimizer."""

from __future__ import annotations

import atexit
import contextlib
import importlib
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import ChakrascopeError
from . import _agent
from ._merge import Status, merge, read_statuses

_HERE = 3  # level of this trigger for a capture of the first step, which is above all other levels


class Capture:
    """The handle of a running :func:`capture`."""

    def __init__(self, agent: _agent.Agent) -> None:
        self._agent = agent

    def step(self) -> None:
        """Mark the end of a step (a training step, or a batch of inference)."""
        self._agent.boundary()


@contextlib.contextmanager
def capture(
    out: str | Path, *, warmup: int = 3, steps: int = 3, modules: bool = True, stacks: bool = True
) -> Iterator[Capture]:
    """Capture *steps* steps of this process and its peers into *out*; ``step()`` ends a step.

    With 0 *steps*, only the times of all steps are recorded. The first *warmup* steps are not profiled. In a
    capture with steps, the Python stacks of all threads are sampled all the time unless *stacks* is off.
    Every rank uses the same *out*. The last rank that leaves the block writes the manifest or, if a rank
    died, the last rank that ends. Under ``chakrascope trace`` the launcher's folder and options apply
    instead, and the launcher writes the manifest.

    Raises:
        NothingCaptured: no rank has recorded a step at the end of the capture.

    """
    module = _loaded_agent_module()
    launched = bool(module.launch_options())
    if launched:
        agent = module.current_agent()
        agent.trigger = "manual"
    else:
        options = {"warmup": warmup, "steps": steps, "modules": modules, "stacks": stacks}
        agent = _own_agent(module, Path(out).absolute(), options)
    agent.observe()
    agent.begin(_HERE)
    try:
        yield Capture(agent)
    except BaseException:
        agent.close()
        if not launched:
            _merge_at_end(agent, exit_code=1)
        raise
    agent.leave()
    if not launched:
        _merge_when_last(agent)


def _own_agent(module: ModuleType, out: Path, options: dict[str, Any]) -> _agent.Agent:
    """Return a new capture agent for this process that writes into *out*."""
    # imported late: torch is an optional dependency
    module.watch_profilers(importlib.import_module("torch.autograd.profiler"))
    module.watch_profiled_steps(importlib.import_module("torch.profiler.profiler"))
    _remove_stale(out / "status")
    module.watch_loaders(importlib.import_module("torch.utils.data.dataloader"))
    torch = importlib.import_module("torch")
    module.watch_backward(torch)
    module.mark_gradients(torch)
    if torch.distributed.is_available():
        module.watch_communication(torch.distributed.distributed_c10d)
    agent: _agent.Agent = module.Agent(out, **options, trigger="manual")
    module.set_current_agent(agent)
    atexit.register(_merge_at_end, agent, exit_code=0)
    return agent


def _remove_stale(folder: Path) -> None:
    """Remove files of an earlier run on this host in *folder*, which are older than this process."""
    for file in folder.glob(f"{socket.gethostname()}.*.json"):
        with contextlib.suppress(FileNotFoundError):  # a peer has already removed the file
            if file.stat().st_mtime < _process_start():
                file.unlink()


def _process_start() -> float:
    """Return the start time of this process by the system's clock."""
    ticks = int(_process_fields("self")[19])
    age = time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    return time.time() - age


def _loaded_agent_module() -> ModuleType:
    """Return the agent module that is loaded in this process, or the agent module of this package."""
    return sys.modules.get("_chakrascope_agent", _agent)


def _merge_when_last(agent: _agent.Agent, *, exit_code: int = 0) -> None:
    """Write the manifest if all ranks have left or died."""
    statuses = read_statuses(agent.out)
    worlds = [status.rank.world_size for status in statuses if status.rank is not None]
    if len(statuses) >= max(worlds, default=1) and all(map(_has_left, statuses)):
        options = {"warmup": agent.warmup, "steps": agent.steps, "modules": agent.modules}
        merge(agent.out, sys.argv, exit_code, options)


def _merge_at_end(agent: _agent.Agent, *, exit_code: int) -> None:
    """Write the manifest if it is due and does not exist yet; a failing script keeps its error."""
    if agent.pid == os.getpid() and (agent.out / "status").exists():
        with contextlib.suppress(ChakrascopeError):
            _merge_when_last(agent, exit_code=exit_code)


def _has_left(status: Status) -> bool:
    """Return whether a rank has closed its capture, or has died on this host."""
    return status.closed or (status.host == socket.gethostname() and not _runs(status.pid))


def _runs(pid: int) -> bool:
    try:
        return _process_fields(pid)[0] not in "ZX"  # a zombie process counts as dead
    except OSError:
        return False


def _process_fields(pid: int | str) -> list[str]:
    """Return the kernel's fields on a process after its name: see ``/proc/PID/stat`` in proc(5)."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
