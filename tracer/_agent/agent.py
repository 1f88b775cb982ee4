"""Count the training steps of this process and decide when to record."""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import signal
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

from .process import signals_deferred, without_chatter, write_atomically
from .recorder import Recorder

__all__ = ["ENVIRONMENT_KEY", "Agent", "count_steps", "current_agent", "set_current_agent", "watch_profilers"]

ENVIRONMENT_KEY = "CHAKRASCOPE_CAPTURE"
_state: dict[str, Any] = {"agent": None, "sigterm": None, "watching": False, "starting": False}
_foreign_profilers: weakref.WeakSet[Any] = weakref.WeakSet()


def count_steps(optimizer_module: Any) -> None:
    """Count the outermost ``step`` calls of every optimizer created from now on.

    ``profile_hook_step`` is wrapped because it runs outside torch's own ``Optimizer.step#...`` range; a
    post-step hook would run inside it and mis-nest the host trace.
    """
    optimizer_class = optimizer_module.Optimizer
    hook_step = optimizer_class.profile_hook_step

    def profile_hook_step(func: Callable[..., Any]) -> Callable[..., Any]:
        step = hook_step(func)

        @functools.wraps(step)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            agent = current_agent()
            with agent.optimizer_step(args[0]):
                return step(*args, **kwargs)

        return wrapper

    optimizer_class.profile_hook_step = staticmethod(profile_hook_step)


def watch_profilers(profiler_module: Any) -> None:
    """Make way for profilers of the script's own: two sessions in one process crash torch.

    One that starts inside the captured window ends the window; one that is under way delays it.
    """
    if _state["watching"]:
        return
    _state["watching"] = True
    profile = profiler_module.profile
    prepare, leave = profile._prepare_trace, profile.__exit__

    @functools.wraps(prepare)
    def watched_prepare(self: Any) -> Any:
        if not _state["starting"]:
            if _state["agent"] is not None:
                _state["agent"].make_way()
            _foreign_profilers.add(self)
        return prepare(self)

    @functools.wraps(leave)
    def watched_leave(self: Any, *exception: Any) -> Any:
        _foreign_profilers.discard(self)
        return leave(self, *exception)

    profile._prepare_trace, profile.__exit__ = watched_prepare, watched_leave


def current_agent() -> Agent:
    """Return this process's agent, a fresh one after a fork."""
    agent = _state["agent"]
    if agent is None or agent.pid != os.getpid():
        agent = _state["agent"] = Agent.from_environment()
    return agent  # type: ignore[no-any-return]


def set_current_agent(agent: Agent) -> None:
    """Make *agent* this process's."""
    _state["agent"] = agent


class Agent:
    """Step counter and recorder of one process.

    ``warmup`` optimizer steps are let pass, ``steps`` are captured; ``manual`` means that steps are reported
    by :meth:`boundary` calls alone, not by optimizers.
    """

    def __init__(self, out: str | Path, warmup: int, steps: int, modules: bool, manual: bool = False) -> None:
        self.out = Path(out)
        self.warmup = warmup
        self.steps = steps
        self.modules = modules
        self.manual = manual
        self.pid = os.getpid()
        self.steps_seen = 0
        self.reasons: list[str] = []
        self.recorder: Recorder | None = None
        self.finished = False
        self._rank_status: dict[str, Any] | None = None
        self._waited_for_profiler = False
        self._depth = 0
        self._order: list[int] = []
        self._order_known = False

    @classmethod
    def from_environment(cls) -> Agent:
        """Return an agent with the launcher's options."""
        options = json.loads(os.environ[ENVIRONMENT_KEY])
        return cls(options["out"], options["warmup"], options["steps"], options["modules"])

    @contextlib.contextmanager
    def optimizer_step(self, optimizer: Any) -> Iterator[None]:
        """Wrap one ``step`` call; nested calls (wrapper optimizers, ``super().step``) count once."""
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
        if self._depth == 0 and not self.manual and not self.finished:
            self._stepped(id(optimizer))

    def _stepped(self, optimizer: int) -> None:
        """Call :meth:`boundary` when *optimizer* is the last distinct one of a training step.

        Which one is last is known once the first of them steps again, that is in the second step.
        """
        if not self._order:
            self._count()
        if optimizer not in self._order:
            self._order.append(optimizer)
        elif optimizer == self._order[0]:
            self._order_known = True
        if self._order_known and optimizer == self._order[-1]:
            self.boundary()

    def _count(self) -> None:
        if self.steps_seen == 0:
            atexit.register(self.close)
        self.steps_seen += 1
        if self.steps_seen == 1:
            self._write_status()

    def boundary(self) -> None:
        """Note that one training step has ended; start or stop the capture where that is due."""
        self._count()
        try:
            self._advance()
        except Exception as error:  # never the training job's problem
            self.reasons.append(f"the capture failed: {error!r}")
            self.close()

    def _advance(self) -> None:
        if self.recorder is not None:
            self.recorder.close_step()
            if len(self.recorder.step_times) >= self.steps:
                self.close()
            else:
                self.recorder.open_step(self.steps_seen)
        elif not self.finished and self.steps_seen >= max(1, self.warmup):
            self._start()

    def _start(self) -> None:
        import torch  # noqa: PLC0415  # only once this process trains

        if _foreign_profilers or torch.autograd._profiler_enabled():
            self._waited_for_profiler = True  # and try again at the next step
            return
        self._waited_for_profiler = False
        self.recorder = Recorder(self.out, self.modules)
        _state["starting"] = True
        try:
            with without_chatter():
                self.recorder.start(self.steps_seen)
        finally:
            _state["starting"] = False
        self._write_status()
        _save_on_sigterm(self)

    def make_way(self) -> None:
        """End the window because the script starts a profiler of its own; try again if it is still empty."""
        if self.recorder is None or self.pid != os.getpid():
            return
        if self.recorder.step_times:
            self.reasons.append("the script's own torch.profiler started during the capture and ended it")
            self.close()
        else:
            recorder, self.recorder = self.recorder, None
            recorder.discard()
            _stop_saving_on_sigterm()

    def close(self) -> None:
        """Save what was captured; do nothing when that is done or this process is a fork."""
        if self.pid != os.getpid():
            return
        self.finished = True
        if self._waited_for_profiler:
            self.reasons.append("the script's own torch.profiler was recording until its end")
        recorder, self.recorder = self.recorder, None
        with signals_deferred():
            if recorder is not None:
                try:
                    recorder.finish()
                except Exception as error:  # the files that did get written still count
                    self.reasons.append(f"saving failed: {error!r}")
                self._rank_status = recorder.status(self.steps)
            self._write_status()
        if recorder is not None:
            _stop_saving_on_sigterm()

    def _write_status(self) -> None:
        rank = self.recorder.status(self.steps) if self.recorder else self._rank_status
        status: dict[str, Any] = {"pid": self.pid, "steps_seen": self.steps_seen, "reasons": self.reasons}
        status.update(rank=rank, closed=self.finished)
        folder = self.out / "status"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / f"{self.pid}.json", json.dumps(status).encode())


def _save_on_sigterm(agent: Agent) -> None:
    """Save before dying of SIGTERM, unless the script handles that signal itself."""
    if threading.current_thread() is not threading.main_thread():
        return
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return

    def save(number: int, _frame: FrameType | None) -> None:
        agent.close()
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    _state["sigterm"] = save
    signal.signal(signal.SIGTERM, save)


def _stop_saving_on_sigterm() -> None:
    if threading.current_thread() is threading.main_thread() and _state["sigterm"] is not None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        _state["sigterm"] = None
