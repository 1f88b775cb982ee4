"""Count the training steps of this process and decide when to record."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .abrupt_end import SaveAtThreadEnd, SaveOnAbruptEnd
from .optimizers import OptimizerOrder
from .process import at_process_end, signals_deferred, without_chatter, write_or_overwrite
from .profilers import foreign_profiler_is_on, starting_ours
from .recorder import Recorder
from .sigterm import SaveOnSigterm

__all__ = [
    "ENVIRONMENT_KEY",
    "Agent",
    "current_agent",
    "existing_agent",
    "keep_launch_options",
    "launch_options",
    "set_current_agent",
]

ENVIRONMENT_KEY = "CHAKRASCOPE_CAPTURE"
OTHER_THREAD_NOTE = "another thread began to train during the capture; only the first one's steps are in it"
# Of the steps before the capture as many are timed as tell what one takes, whatever the first ones did.
UNPROFILED_STEPS = 8
OWN_PROFILER_REASON = (
    "the script's own torch.profiler was recording until its end; what it wrote itself can be converted "
    "(`chakrascope convert STUDY --device-trace FOLDER`)"
)
_state: dict[str, Any] = {"agent": None, "options": os.environ.get(ENVIRONMENT_KEY)}


def keep_launch_options(options: str | None) -> None:
    """Keep the launcher's *options*, in JSON, as they were before the script could change its environment."""
    _state["options"] = options


def launch_options() -> dict[str, Any]:
    """Return what the launcher asked for; nothing without a launcher."""
    options: dict[str, Any] = json.loads(os.environ.get(ENVIRONMENT_KEY) or _state["options"] or "{}")
    return options


def current_agent() -> Agent:
    """Return this process's agent, a fresh one after a fork."""
    agent = existing_agent()
    if agent is None:
        agent = _state["agent"] = Agent.from_environment()
    return agent


def existing_agent() -> Agent | None:
    """Return this process's agent if it has one."""
    agent = _state["agent"]
    return agent if agent is not None and agent.pid == os.getpid() else None


def set_current_agent(agent: Agent) -> None:
    """Make *agent* this process's."""
    _state["agent"] = agent


class Agent:
    """Step counter and recorder of one process.

    ``warmup`` steps are let pass, ``steps`` are captured. ``trigger`` says what a step is: an optimizer's
    step ("optimizer"), a call of the outermost module ("forward") or what the script marks ("manual").
    ``all_threads`` says whether what other threads do belongs to a step.
    """

    def __init__(self, out: str | Path, warmup: int, steps: int, modules: bool, trigger: str = "") -> None:
        self.out = Path(out)
        self.warmup = warmup
        self.steps = steps
        self.modules = modules
        self.trigger = trigger
        self.pid = os.getpid()
        self.steps_seen = 0
        self.reasons: list[str] = []
        self.notes: list[str] = []
        self.recorder: Recorder | None = None
        self.finished = False
        self._first_step = 0
        self._ending_noted = False
        self._guards = tuple(guard(self.close) for guard in (SaveOnSigterm, SaveOnAbruptEnd, SaveAtThreadEnd))
        self._rank_status: dict[str, Any] | None = None
        self._waited_for_profiler = False
        self._nesting = threading.local()
        self._order = OptimizerOrder()
        self.all_threads = False
        self._threads: set[int] = set()
        self._other_thread_trained = False
        self._busy = threading.Lock()
        # When the last steps ended, by their number, as long as nothing records them.
        self._ends: deque[tuple[int, int]] = deque(maxlen=UNPROFILED_STEPS + 1)

    @classmethod
    def from_environment(cls) -> Agent:
        """Return an agent with the launcher's options."""
        options = launch_options()
        return cls(options["out"], options["warmup"], options["steps"], options["modules"])

    @contextlib.contextmanager
    def optimizer_step(self, optimizer: Any) -> Iterator[None]:
        """Wrap one ``step`` call; nested calls (wrapper optimizers, ``super().step``) count once."""
        outermost = not getattr(self._nesting, "inside", False)
        self._nesting.inside = True
        try:
            yield
        finally:
            self._nesting.inside = not outermost
        if outermost and self.trigger != "manual" and self._counts():
            self._stepped(id(optimizer))

    def _stepped(self, optimizer: int) -> None:
        """Call :meth:`boundary` when *optimizer* ends a training step."""
        if self._order.empty:
            self.trigger = "optimizer"
            self._count()  # the first step; that it is over shows only in the second
            self._time_step()
        if self._order.is_late(optimizer):
            self._start_over()  # what seemed a step was a part of one
        if self._order.ends_step(optimizer):
            self.boundary()

    def forward_step(self) -> None:
        """Note that the outermost module is about to be called again."""
        if self.trigger in ("", "forward") and self._counts():
            self.trigger = "forward"
            self.boundary()

    def expect_optimizer(self) -> None:
        """Note that this process trains: steps of an optimizer count, whatever forward calls have shown."""
        if self.trigger == "forward" and self._in_own_thread():
            self._start_over()
            self.finished = False
            self.trigger = ""

    def _counts(self) -> bool:
        """Note that this thread steps; return whether that still matters."""
        self._threads.add(threading.get_ident())
        if not self._in_own_thread():
            self._other_thread_trained = True
        return not self.finished and self._in_own_thread()

    def _in_own_thread(self) -> bool:
        """Return whether this is not another thread than the one that is being recorded."""
        return self.recorder is None or self.recorder.thread == threading.get_ident()

    def _start_over(self) -> None:
        self._first_step = self.steps_seen
        self._ends.clear()
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.discard()
            self._unguard()

    def _count(self) -> None:
        self.steps_seen += 1
        if not self._ending_noted:
            self._ending_noted = True
            at_process_end(self.close)
            self._write_status()

    def boundary(self) -> None:
        """Note that one training step has ended; start or stop the capture where that is due."""
        if not self._busy.acquire(blocking=False):
            return  # another thread steps, too
        try:
            self._count()
            self._advance()
        except Exception as error:  # never the training job's problem
            self._failed("the capture failed", error)
            self.close()
        finally:
            self._busy.release()

    def _time_step(self) -> None:
        """Note when a step ended that nothing of ours or the script's records; some 3 us."""
        with contextlib.suppress(AttributeError, KeyError):  # a torch that is not whole yet
            if foreign_profiler_is_on(sys.modules["torch"]):
                self._ends.clear()
            else:
                self._ends.append((self.steps_seen, time.time_ns()))

    def _unprofiled_steps(self) -> list[dict[str, int]]:
        return [
            {"index": before, "start_ns": start, "end_ns": end}
            for (before, start), (number, end) in itertools.pairwise(self._ends)
            if number == before + 1 and end >= start
        ]

    def _advance(self) -> None:
        if self.recorder is None and not self.finished:
            self._time_step()
        if self.recorder is not None:
            self.recorder.close_step()
            if len(self.recorder.timed_steps) >= self.steps:
                self.close()
            else:
                self.recorder.open_step(self.steps_seen)
        elif not self.finished and self.steps_seen - self._first_step >= max(1, self.warmup):
            self._start()

    def _start(self) -> None:
        import torch  # noqa: PLC0415  # only once this process trains

        if foreign_profiler_is_on(torch):
            self._waited_for_profiler = True  # and try again at the next step
            return
        self._waited_for_profiler = False
        if len(self._threads & {thread.ident for thread in threading.enumerate()}) > 1:
            self._add_reason("several threads train at once, and which of them takes a step is not known")
            self.close()
            return
        recorder = Recorder(self.out, self.modules, self.all_threads)
        others = self._other_processes_of(recorder.rank)
        if any(entry["complete"] for entry in others):
            self.notes.append(f"rank {recorder.rank} was captured in the first of several processes")
        if self._is_a_helper(others) or any(entry["complete"] for entry in others):
            self.close()
            return
        with starting_ours(), without_chatter():
            recorder.start(self.steps_seen)
        self.recorder = recorder
        self._write_status()
        for guard in self._guards:
            guard.start()

    def _other_processes_of(self, rank: int) -> list[dict[str, Any]]:
        """Return what other processes recorded as the same rank: the script's previous run, its helpers."""
        files = (self.out / "status").glob("*.json")
        statuses = (json.loads(file.read_bytes()) for file in files)
        entries = [status["rank"] for status in statuses if status["pid"] != self.pid and status["rank"]]
        return [entry for entry in entries if entry["rank"] == rank and not self._helps(entry)]

    def _helps(self, entry: Mapping[str, Any]) -> bool:
        """Return whether *entry* is of a process that runs a model beside this one, which trains."""
        return bool(entry["trigger"] == "forward" != self.trigger)

    def _is_a_helper(self, others: Sequence[Mapping[str, Any]]) -> bool:
        """Return whether this process runs a model beside one of *others*, which trains."""
        return self.trigger == "forward" and any(entry["trigger"] != "forward" for entry in others)

    def make_way(self) -> None:
        """End the window because the script starts a profiler of its own; try again if it is still empty."""
        if self.recorder is None:
            return
        if self.recorder.structure_step is not None:
            self._add_reason(
                "the script's own torch.profiler started during the capture and ended it; a --warmup that "
                "moves the capture before or after it gives all steps"
            )
            self.close()
        else:
            recorder, self.recorder = self.recorder, None
            recorder.discard()
            self._unguard()

    def close(self) -> None:
        """Save what was captured; do nothing when that is done or this process is a fork."""
        if self.pid != os.getpid() or self.finished:
            return
        with signals_deferred():
            # Only here: what a signal ended before this is begun again.
            self.finished = True
            if self._waited_for_profiler:
                self._add_reason(OWN_PROFILER_REASON)
            if self._other_thread_trained:
                self.notes.append(OTHER_THREAD_NOTE)
            recorder, self.recorder = self.recorder, None
            if recorder is not None:
                self._save(recorder)
            self._write_status()
        if recorder is not None:
            self._unguard()

    def _save(self, recorder: Recorder) -> None:
        try:
            if self._is_a_helper(self._other_processes_of(recorder.rank)):
                recorder.discard()
                return
            recorder.finish()
        except Exception as error:  # the files that did get written still count
            self._failed(f"the traces of rank {recorder.rank} could not be saved", error)
        self._rank_status = recorder.status(self.steps)

    def _unguard(self) -> None:
        for guard in self._guards:
            guard.stop()

    def _failed(self, what: str, error: Exception) -> None:
        cause = f"{self.out}: {error.strerror}" if isinstance(error, OSError) else repr(error)
        self._add_reason(f"{what} ({cause})")

    def _add_reason(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _write_status(self) -> None:
        rank = self.recorder.status(self.steps) if self.recorder else self._rank_status
        if rank is not None:
            rank.update(trigger=self.trigger, unprofiled_steps=self._unprofiled_steps())
        host = socket.gethostname()
        status: dict[str, Any] = {"host": host, "pid": self.pid, "steps_seen": self.steps_seen, "rank": rank}
        status.update(reasons=self.reasons, notes=self.notes, closed=self.finished)
        folder = self.out / "status"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{host}.{self.pid}.json"  # hosts may share the folder
            write_or_overwrite(folder / name, json.dumps(status).encode())
