"""Capture a few training steps of the process this module is loaded into.

Needs the standard library and torch only, and is loaded by file path into training processes where
chakrascope may not be importable; torch is touched only once a step is seen. Outside the captured window the
cost is one Python call per optimizer step. Nothing here may raise into the training script: failures become
a reason in the rank's status file, which the launcher merges into ``manifest.json``.

Files of rank R in the output folder: ``rankR.host.json.gz`` (execution trace), ``rankR.device.json.gz``
(Kineto), ``rankR.comms.json.gz`` (flight recorder), ``status/PID.json`` (what the launcher reads).
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import gzip
import json
import os
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

__all__ = ["ENVIRONMENT_KEY", "Agent", "count_steps", "current_agent", "set_current_agent", "watch_profilers"]

ENVIRONMENT_KEY = "CHAKRASCOPE_CAPTURE"
WRAPPERS = frozenset({"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"})
DEFERRED_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
CHATTER = (b"execution_trace_observer.cpp", b"SyncActivityProfilerHandler.cpp")
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
            with _without_chatter():
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
        with _signals_deferred():
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
            _write_atomically(folder / f"{self.pid}.json", json.dumps(status).encode())


class Recorder:
    """One capture window: profiler, host trace, module ranges and step boundaries of one rank."""

    def __init__(self, out: Path, modules: bool) -> None:
        import torch  # noqa: PLC0415

        self.torch = torch
        self.out = out
        self.rank, self.world_size = _rank_and_world()
        self.step_times: list[dict[str, int]] = []
        self.files: dict[str, str | None] = {"host_trace": None, "device_trace": None, "flight_record": None}
        self._ranges = ModuleRanges() if modules else None
        self._step_range: Any = None
        self._step_index = 0
        self._step_start_ns = 0
        self._start_ns = 0
        self._groups: list[dict[str, Any]] = []
        self._backend: str | None = None
        self._raw_host = out / f".rank{self.rank}.{os.getpid()}.host.json"

    def start(self, steps_seen: int) -> None:
        """Begin recording; the step that follows *steps_seen* finished ones is the first captured."""
        profiler = self.torch.profiler
        self.out.mkdir(parents=True, exist_ok=True)
        self._note_groups()
        self._observer = profiler.ExecutionTraceObserver()
        self._observer.register_callback(str(self._raw_host))
        self._profile = profiler._KinetoProfile(record_shapes=False, execution_trace_observer=self._observer)
        self._profile.start()
        if self._ranges is not None:
            self._ranges.enable()
        self._start_ns = time.time_ns()
        self.open_step(steps_seen)

    def open_step(self, index: int) -> None:
        """Open the range of step *index*."""
        self._step_index = index
        self._step_range = self.torch.autograd.profiler.record_function(f"ProfilerStep#{index}")
        self._step_start_ns = time.time_ns()
        self._step_range.__enter__()

    def close_step(self) -> None:
        """Close the running step's range and list the step as captured whole."""
        self._step_range.__exit__(None, None, None)
        self._step_range = None
        times = {"index": self._step_index, "start_ns": self._step_start_ns, "end_ns": time.time_ns()}
        self.step_times.append(times)

    def finish(self) -> None:
        """Stop recording and write this rank's files, each under its final name only when whole."""
        self._stop()
        self._note_groups()
        self._save_host()
        self._save_device()
        self._save_flight_record()

    def discard(self) -> None:
        """Stop recording and keep nothing."""
        self._stop()
        self._raw_host.unlink(missing_ok=True)

    def _stop(self) -> None:
        if self._step_range is not None:  # the job ended inside a step: not a whole one
            self._step_range.__exit__(None, None, None)
        if self._ranges is not None:
            self._ranges.disable()
        with _without_chatter():
            self._profile.stop()
            self._observer.unregister_callback()

    def _save_host(self) -> None:
        name = f"rank{self.rank}.host.json.gz"
        temporary = self.out / f".{name}.tmp"
        with self._raw_host.open("rb") as source, gzip.open(temporary, "wb", compresslevel=3) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(temporary, self.out / name)
        self._raw_host.unlink()
        self.files["host_trace"] = name

    def _save_device(self) -> None:
        name = f"rank{self.rank}.device.json.gz"
        raw = self.out / f".rank{self.rank}.device.json"
        temporary = self.out / f".{name}.tmp"
        self._profile.export_chrome_trace(str(raw))
        with raw.open("rb") as source, gzip.open(temporary, "wb", compresslevel=3) as target:
            shutil.copyfileobj(source, target, 1 << 20)
        os.replace(temporary, self.out / name)
        raw.unlink()
        self.files["device_trace"] = name

    def _save_flight_record(self) -> None:
        """Write the flight recorder's entries created in the window: the only source of gloo groups."""
        try:
            record = json.loads(self.torch._C._distributed_c10d._dump_fr_trace_json())
        except (AttributeError, RuntimeError, ValueError):
            return  # this build of torch has none
        entries = record.get("entries", [])
        record["entries"] = [entry for entry in entries if entry["time_created_ns"] >= self._start_ns]
        if not record["entries"]:
            return
        name = f"rank{self.rank}.comms.json.gz"
        _write_atomically(self.out / name, gzip.compress(json.dumps(record).encode(), 3))
        self.files["flight_record"] = name

    def _note_groups(self) -> None:
        """Remember process groups and backend; the script may destroy them before we save."""
        groups, backend = _process_groups()
        if groups:
            self._groups, self._backend = groups, backend

    def status(self, wanted_steps: int) -> dict[str, Any]:
        """Return this rank's entry of the manifest, plus what the launcher needs to merge it."""
        whole = self.files["host_trace"] is not None and self.files["device_trace"] is not None
        entry: dict[str, Any] = {"rank": self.rank, **self.files}
        entry["complete"] = whole and len(self.step_times) >= wanted_steps
        entry.update(hostname=socket.gethostname(), pid=os.getpid(), device=self._device())
        entry.update(backend=self._backend, process_groups=self._groups, steps=self.step_times)
        entry.update(world_size=self.world_size, torch_version=str(self.torch.__version__))
        entry["raw_host_trace"] = self._raw_host.name
        return entry

    def _device(self) -> str:
        cuda = self.torch.cuda
        return f"cuda:{cuda.current_device()}" if cuda.is_available() and cuda.is_initialized() else "cpu"


class ModuleRanges:
    """Profiler ranges ``chakrascope::module <path>`` around every module's forward pass while enabled."""

    def __init__(self) -> None:
        self._paths: dict[int, str] = {}
        self._kept: list[Any] = []  # keeps ids valid while the window lasts
        self._open = threading.local()
        self._handles: list[Any] = []

    def enable(self) -> None:
        """Register the global hooks, unless torch.compile is in use: they would force a recompilation."""
        if _compiled_code_is_running():
            return
        from torch.nn.modules import module  # noqa: PLC0415

        self._handles = [
            module.register_module_forward_pre_hook(self._enter),
            module.register_module_forward_hook(self._leave, always_call=True),
        ]

    def disable(self) -> None:
        """Remove the hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def _enter(self, module: Any, _inputs: Any) -> None:
        from torch.autograd.profiler import record_function  # noqa: PLC0415

        if id(module) not in self._paths:
            self._learn(module)
        span = record_function(f"chakrascope::module {self._paths[id(module)]}")
        self._stack().append((module, span))
        span.__enter__()

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        stack = self._stack()
        if stack and stack[-1][0] is module:
            stack.pop()[1].__exit__(None, None, None)

    def _stack(self) -> list[tuple[Any, Any]]:
        if not hasattr(self._open, "stack"):
            self._open.stack = []
        return self._open.stack  # type: ignore[no-any-return]

    def _learn(self, root: Any) -> None:
        for path, module in root.named_modules():
            kept = [part for part in path.split(".") if part and part not in WRAPPERS]
            self._paths.setdefault(id(module), ".".join(kept) or type(module).__name__)
            self._kept.append(module)


def _compiled_code_is_running() -> bool:
    dynamo = sys.modules.get("torch._dynamo.utils")
    return dynamo is not None and bool(dynamo.counters["frames"])


def _rank_and_world() -> tuple[int, int]:
    dist = _distributed()
    if dist is not None:
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _distributed() -> Any:
    """Return ``torch.distributed`` if this process uses it, else None."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def _process_groups() -> tuple[list[dict[str, Any]], str | None]:
    """Return this rank's process groups with their global ranks in group order, and the backend's name."""
    dist = _distributed()
    if dist is None:
        return [], None
    world = dist.distributed_c10d._world
    groups = []
    for group, members in world.pg_group_ranks.items():
        if not isinstance(group, dist.ProcessGroup):
            continue  # a group this rank is no member of
        ranks = sorted(members, key=members.__getitem__)
        description = str(getattr(group, "group_desc", ""))
        groups.append({"name": world.pg_names.get(group, ""), "description": description, "ranks": ranks})
    return groups, str(dist.get_backend())


def _write_atomically(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_bytes(data)
    os.replace(temporary, path)


@contextlib.contextmanager
def _without_chatter() -> Iterator[None]:
    """Keep the profiler's own notices, which no setting silences, out of the job's standard error.

    Whatever else is written meanwhile is passed on afterwards.
    """
    try:
        kept = os.dup(2)
    except OSError:  # the job has closed it
        yield
        return
    with tempfile.TemporaryFile() as held:
        os.dup2(held.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            held.seek(0)
            os.write(2, b"".join(line for line in held if not any(mark in line for mark in CHATTER)))


@contextlib.contextmanager
def _signals_deferred() -> Iterator[None]:
    """Hold back termination signals while files are written; deliver them afterwards.

    Handlers rather than a signal mask: a mask covers one thread, and torch's others would still be hit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = {number: signal.getsignal(number) for number in DEFERRED_SIGNALS}
    for number, handler in before.items():
        if handler is not signal.SIG_IGN:
            signal.signal(number, lambda received, _frame: arrived.append(received))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        for held_back in arrived:
            os.kill(os.getpid(), held_back)


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
