"""Count the training steps of this process and decide when to record them."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from .abrupt_end import SaveAtThreadEnd, SaveOnAbruptEnd, SaveOnSigterm
from .evidence import EvidenceRecorder
from .optimizers import OptimizerOrder, Owners
from .phases import PHASES
from .process import (
    any_trains_instead,
    at_process_end,
    entries_of_rank,
    launch_options,
    signals_deferred,
    without_chatter,
    write_or_overwrite,
)
from .profilers import OwnProfile, foreign_profiler_is_on, marks_steps, recording_profile, starting_ours
from .recorder import Recorder

OTHER_THREAD_NOTE = (
    "another thread began to train during the capture, which only has the steps of the first thread"
)
MANY_OPTIMIZERS_NOTE = (
    "the second step showed that a step has several optimizers: the capture begins after the second step"
)
WHOLE_SCRIPT_NOTE = "the script has no repeated steps: the whole run was captured as one step"
OWN_PROFILER_REASON = (
    "the script's own torch.profiler was recording until the script ended; its traces can be converted "
    "(`chakrascope convert STUDY --device-trace FOLDER`)"
)
_state: dict[str, Any] = {"agent": None}


def current_agent() -> Agent:
    """Return this process's agent, or a new agent after a fork."""
    agent = existing_agent()
    if agent is None:
        agent = _state["agent"] = Agent.from_environment()
    return agent


def existing_agent() -> Agent | None:
    """Return this process's agent, or None in a process without agent."""
    agent = _state["agent"]
    return agent if agent is not None and agent.pid == os.getpid() else None


def set_current_agent(agent: Agent) -> None:
    """Set *agent* as this process's agent."""
    _state["agent"] = agent


class Agent:
    """The agent of one process, which counts and records training steps.

    After ``warmup`` steps, the agent captures ``steps`` steps. All steps of the run are timed. With 0
    ``steps``, only the step times are recorded. If *stacks* is true, the agent also samples the threads'
    stacks. ``trigger`` defines a step: an optimizer's step ("optimizer"), a call of the outermost module
    ("forward"), a call in the script ("manual") or the whole script ("script"). ``all_threads`` states
    whether the work of other threads belongs to a step.
    """

    def __init__(
        self,
        out: str | Path,
        warmup: int,
        steps: int,
        modules: bool,
        trigger: str = "",
        *,
        stacks: bool = True,
    ) -> None:
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
        # The recording of the script's own profiler, which is used if the agent's profiler never records.
        self._own: OwnProfile | None = None
        self._takes_own = steps > 0
        self._lets_pass = False
        self._guarded = False
        # Number of steps counted when the script last marked a step in its profiler; None if the script marks
        # steps irregularly.
        self._marked_at: int | None = -1
        self._nesting = threading.local()
        self._order = OptimizerOrder()
        self._owners = Owners()
        self.all_threads = False
        self._threads: set[int] = set()
        self._other_thread_trained = False
        self._busy = threading.Lock()
        self._evidence = EvidenceRecorder(stacks=stacks and steps > 0)
        self._begin_level = -1

    @classmethod
    def from_environment(cls) -> Agent:
        """Return an agent with the launcher's options from the environment."""
        options = launch_options()
        window = (options["out"], options["warmup"], options["steps"], options["modules"])
        return cls(*window, stacks=options.get("stacks", True))

    @contextlib.contextmanager
    def optimizer_step(self, optimizer: Any) -> Iterator[None]:
        """Wrap one ``step`` call; nested calls (wrapper optimizers, ``super().step``) count once."""
        outermost = not getattr(self._nesting, "inside", False)
        self._nesting.inside = True
        try:
            yield
        finally:
            self._nesting.inside = not outermost
        if not outermost:
            return
        number = self._owners.add(optimizer)
        if self.trigger == "manual" or not self._counts():
            return
        if not self._order.repeats(number, PHASES.passes):
            self._stepped(number)

    def _stepped(self, optimizer: int) -> None:
        """Call :meth:`boundary` when *optimizer* ends a training step."""
        is_first = self._order.empty
        if is_first:
            self.trigger = "optimizer"
        elif self._order.is_late(optimizer) and not self.finished:
            self._start_over()  # only a part of the step has ended
        elif self.warmup < 2 and self._order.is_new(optimizer) and not self.finished:
            self._start_over()
            self.notes.append(MANY_OPTIMIZERS_NOTE)
        ends_step = self._order.ends_step(optimizer)
        if is_first and self.warmup >= 2:
            self._count()  # the end of the first step is detected only in the second step
            self._time_step()
        elif ends_step or is_first:
            self.boundary()

    def forward_step(self) -> None:
        """Handle the next call of the outermost module."""
        if self.trigger in ("", "forward") and self._counts():
            self.trigger = "forward"
            self.boundary()

    def expect_optimizer(self) -> None:
        """From now on, count optimizer steps instead of forward calls, because this process trains."""
        if self.trigger == "forward" and self._in_own_thread():
            self._start_over()
            self.finished = False
            self.trigger = ""

    def _counts(self) -> bool:
        """Handle a step in the calling thread; return whether steps are still recorded or timed."""
        self._threads.add(threading.get_ident())
        if not self._in_own_thread():
            self._other_thread_trained = True
        return self.counts_on and self._in_own_thread()

    @property
    def counts_on(self) -> bool:
        """Whether the agent still records or times steps."""
        return not self.finished or self._evidence.is_on

    def _in_own_thread(self) -> bool:
        """Return whether the calling thread is the recorded thread, or no thread is recorded."""
        if self.finished:
            return self._evidence.is_of_this_thread()
        return self.recorder is None or self.recorder.thread == threading.get_ident()

    def begin(self, level: int) -> None:
        """In a capture without warm-up, start to record the first step or the whole script.

        *level* is the precedence of the trigger. A trigger with a higher level discards the recording so far.
        """
        is_due = self.warmup == 0 and self.steps_seen == 0 and not self.finished
        if not is_due or level <= self._begin_level or not self._in_own_thread():
            return
        try:
            self._begin_level = level
            self._start_over()
            self._note_process()
            self.observe()
            self._start()
            self._begin_step()
        except Exception as error:
            self._failed("the capture failed", error)
            self.close()

    def observe(self) -> None:
        """Start to observe the calling thread, which is about to train."""
        if not self.finished:
            self._evidence.start()

    def _start_over(self) -> None:
        self._first_step = self.steps_seen
        self._evidence.forget_steps()
        self._evidence.enter_window(False)
        recorder, self.recorder = self.recorder, None
        if recorder is not None:
            recorder.discard()
        self._drop_own()
        self._unguard()

    def _count(self) -> None:
        self.steps_seen += 1
        self._note_process()
        if self.steps_seen == 1:
            self.observe()

    def _note_process(self) -> None:
        """Register a save of the capture at the end of the process, and notify the launcher."""
        if not self._ending_noted:
            self._ending_noted = True
            at_process_end(self.end)
            self._write_status()

    def boundary(self) -> None:
        """Handle the end of a training step; start or stop the capture if it is due."""
        if not self._busy.acquire(blocking=False):
            return  # a second thread also takes optimizer steps
        try:
            self._count()
            self._advance()
        except Exception as error:  # an error of the agent must not reach the training job
            self._failed("the capture failed", error)
            self.close()
        finally:
            self._busy.release()

    def _time_step(self) -> None:
        self._evidence.time_step(self.steps_seen, recorded=self.recorder is not None)

    def _advance(self) -> None:
        ended_ns = time.time_ns()  # work after this time is done by the agent, not by the script
        self._time_step()
        if self._own is not None and self._own.recording:
            if not self._own.marked:
                self._own.close_step(ended_ns)
                self._own.open_step(self.steps_seen)
        elif self.recorder is not None:
            self.recorder.close_step(ended_ns)
            if not self.recorder.timed_steps:
                with contextlib.suppress(Exception):  # the traces are valid without the note
                    unused = self._owners.note(self.recorder.with_gradients())
                    self.notes += [unused] if unused else []
            if len(self.recorder.timed_steps) >= self.steps:
                self.close()
            else:
                self.recorder.open_step(self.steps_seen)
        elif not self.finished and self.steps_seen - self._first_step >= self.warmup:
            self._start()
        elif self.finished and self._evidence.is_save_due():
            self._save_evidence()
            self._write_status()
        else:
            return
        self._begin_step()

    def _begin_step(self) -> None:
        """Time the start of the next step, to which the agent's work so far does not belong."""
        self._time_step()
        recording = self.recorder or self._own
        if recording is not None:
            recording.begin_step()

    def _start(self) -> None:
        import torch  # noqa: PLC0415  # only once this process trains

        if self.steps == 0:
            self._record_times()
            return
        self._waited_for_profiler = foreign_profiler_is_on(torch)
        if self._waited_for_profiler:
            with self._own_failures():
                self._follow_own(at_mark=False)  # the agent retries at the next step
            return
        if self._lets_pass:
            # Ranges that span the profiler sessions of both the script and the agent would write to freed
            # memory.
            self._lets_pass = False
            return
        recorder = Recorder(self.out, self.modules, self.all_threads)
        if not self._may_record(recorder):
            self.close()
            return
        self._evidence.enter_window(True)
        with starting_ours(), without_chatter():
            recorder.start(self.steps_seen)
        self.recorder = recorder
        self._write_status()
        self._guard()

    def _record_times(self) -> None:
        """Record only the times of all steps, until the process ends."""
        recorder = Recorder(self.out, modules=False)
        if not self._may_record(recorder):
            self.close()
            return
        self.finished = True
        self.out.mkdir(parents=True, exist_ok=True)
        self._rank_status = recorder.status(0)
        self._evidence.write_steps(self.out, recorder.rank, recorder.peers)
        self._write_status()

    def _may_record(self, recorder: Recorder) -> bool:
        """Return whether to keep the recording of *recorder*, and store the reason for a refusal."""
        if len(self._threads & {thread.ident for thread in threading.enumerate()}) > 1:
            self._add_reason("several threads train at once, so steps cannot be attributed to a thread")
            return False
        others = entries_of_rank(self.out, recorder.rank, self.trigger)
        complete = any(entry["complete"] for entry in others)
        if complete:
            self.notes.append(f"rank {recorder.rank} was captured in the first of several processes")
        return not complete and not any_trains_instead(others, self.trigger)

    def _follow_own(self, *, at_mark: bool) -> None:
        """Start to use the script's own profiler if a usable step begins now."""
        profile = recording_profile()
        due = self.steps_seen - self._first_step >= self.warmup
        busy = self.finished or self._own is not None or self.recorder is not None
        if profile is None or not due or busy or not self._takes_own:
            return
        marked = marks_steps(profile) and self._marked_at is not None
        if marked != at_mark:
            return
        own = OwnProfile(self.out, profile, self.steps, marked=marked)
        if not self._may_record(own):
            self.close()
            return
        with without_chatter():
            own.start(self.steps_seen)
        self._own = own
        self._write_status()
        self._guard()

    def profile_started(self) -> None:
        """Note that the script's profiler records the marked step."""
        self._evidence.is_profiled = True
        with self._own_failures():
            self._follow_own(at_mark=True)

    def marked_step_ends(self) -> None:
        """Handle the end of a step that the script marks in its profiler."""
        with self._own_failures():
            if self._marked_at not in (None, -1, self.steps_seen - 1):
                self._marked_at = None  # a mark is not a whole step: use the agent's count
            elif self._marked_at is not None:
                self._marked_at = self.steps_seen
            own = self._own
            if own is not None and own.recording and own.marked:
                if self._marked_at is None:
                    self._drop_own()
                else:
                    own.close_step(time.time_ns())

    def marked_step_begins(self) -> None:
        """Handle the start of the next step that the script marks in its profiler."""
        with self._own_failures():
            if self._own is None:
                self._follow_own(at_mark=True)
            elif self._own.recording and self._own.marked:
                self._own.open_step(self.steps_seen)

    def profile_ends(self, profile: Any) -> None:
        """Handle the imminent stop of *profile*, the script's profiler."""
        with self._own_failures():
            if self._own is not None and self._own.profile is profile and self._own.recording:
                self._own.end()

    def profile_ended(self, profile: Any) -> None:
        """Keep the recording of *profile* in case the agent's own profiler never records."""
        self._lets_pass = self._evidence.is_profiled = True
        with self._own_failures():
            own = self._own
            if own is None or own.profile is not profile or not own.recording:
                return
            if own.structure_step is None:
                self._drop_own()
            else:
                own.take()
                self._write_status()

    @contextlib.contextmanager
    def _own_failures(self) -> Iterator[None]:
        """Suppress errors of the agent during calls of the script's profiler."""
        try:
            yield
        except Exception as error:
            self._takes_own = False
            self._drop_own()
            self._failed("the script's own profile could not be recorded", error)

    def _drop_own(self) -> None:
        own, self._own = self._own, None
        if own is not None:
            with contextlib.suppress(Exception):
                own.discard()

    def yield_to_script(self) -> None:
        """End the capture window because the script starts its profiler; retry an empty window later."""
        recorder, own = self.recorder, self._own
        if own is not None and not own.recording and (recorder is None or not recorder.timed_steps):
            self.close()  # the profiler's last recording is sufficient
        elif recorder is None:
            return
        elif recorder.structure_step is not None:
            self._add_reason(
                "the script's own torch.profiler started during the capture and ended it; to capture "
                "all steps, move the capture before or after that profile with --warmup"
            )
            self.close()
        else:
            self.recorder = None
            recorder.discard()
            self._unguard()

    def leave(self) -> None:
        """Close the capture immediately, or at the process end while the script's profiler records."""
        if self._own is not None and self._own.recording:
            self._own.end()
        else:
            self.end()

    def end(self) -> None:
        """Close the capture, and save the evidence of the steps after the capture."""
        self.close()
        if self.pid == os.getpid() and self._evidence.is_on:
            with signals_deferred():
                self._save_evidence()
                self._evidence.stop()
                self._write_status()

    def close(self) -> None:
        """Save the capture, unless the capture is already saved or this process is a fork."""
        if self.pid != os.getpid() or self.finished:
            return
        with signals_deferred():
            # Mark the capture as saved only now, so that a save interrupted by a signal is repeated.
            self.finished = True
            recorder = self._better_record()
            self.recorder = None
            self._evidence.enter_window(False)
            if recorder is not None:
                self._save(recorder)
                self._save_evidence()
            elif self._waited_for_profiler:
                self._add_reason(OWN_PROFILER_REASON)
            if self._other_thread_trained:
                self.notes.append(OTHER_THREAD_NOTE)
            if self._rank_status is None:
                self._evidence.stop()  # another process represents this rank, or the capture is empty
            self._write_status()
        self._unguard()

    def _better_record(self) -> Recorder | None:
        """Return the agent's recorder, or the script's profile if only this profile has a timed step."""
        own, recorder = self._own, self.recorder
        if own is not None and own.structure_step is None:
            self._drop_own()
        elif own is not None and recorder is not None:
            if recorder.timed_steps:
                self._drop_own()
            else:
                recorder.discard()
                return own
        return recorder or self._own

    def _save(self, recorder: Recorder) -> None:
        try:
            others = entries_of_rank(self.out, recorder.rank, self.trigger)
            if any_trains_instead(others, self.trigger):
                recorder.discard()
                return
            if self.warmup == 0 and recorder.structure_step is None and recorder is not self._own:
                recorder.close_step(time.time_ns())  # the end of the script ends its only step
                self.trigger = self.trigger or "script"
            recorder.finish()
            if isinstance(recorder, OwnProfile):
                self.notes.append(recorder.source_note())
        except Exception as error:  # files that were already written remain valid
            self._failed(f"the traces of rank {recorder.rank} could not be saved", error)
        if self.trigger == "script":
            self.notes.append(WHOLE_SCRIPT_NOTE)
        self._rank_status = recorder.status(1 if self.trigger == "script" else self.steps)

    def _save_evidence(self) -> None:
        if self._rank_status is not None:
            failure = self._evidence.save(self.out, self._rank_status["rank"], self.steps_seen)
            if failure:
                self.notes.append(failure)

    def _guard(self) -> None:
        if not self._guarded:
            self._guarded = True
            for guard in self._guards:
                guard.start()

    def _unguard(self) -> None:
        if self._guarded:
            self._guarded = False
            for guard in self._guards:
                guard.stop()

    def _failed(self, what: str, error: Exception) -> None:
        cause = f"{self.out}: {error.strerror}" if isinstance(error, OSError) else repr(error)
        self._add_reason(f"{what} ({cause})")

    def _add_reason(self, reason: str) -> None:
        if reason not in self.reasons:
            self.reasons.append(reason)

    def _write_status(self) -> None:
        recorder = self.recorder or (None if self.finished else self._own)
        rank = recorder.status(self.steps) if recorder else self._rank_status
        if rank is not None:
            rank.update(trigger=self.trigger, **self._evidence.entry)
        host = socket.gethostname()
        status: dict[str, Any] = {"host": host, "pid": self.pid, "steps_seen": self.steps_seen, "rank": rank}
        is_closed = self.finished and not (self.steps == 0 and self._evidence.is_on)
        status.update(reasons=self.reasons, notes=self.notes, closed=is_closed)
        folder = self.out / "status"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
            name = f"{host}.{self.pid}.json"  # hosts may share the folder
            write_or_overwrite(folder / name, json.dumps(status).encode())
