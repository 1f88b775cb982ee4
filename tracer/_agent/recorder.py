"""Record one window of training steps and write this rank's files."""

from __future__ import annotations

import contextlib
import functools
import gzip
import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from .fake_world import CREATED_GROUPS, FLIGHTS, noted_flight
from .lines import ScriptLines
from .modules import ModuleRanges
from .phases import PHASES
from .process import compress, without_chatter, write_atomically

METHODS = ("send", "recv", "recv_anysource")


class MessageGroups:
    """While enabled, collects *flights*, the records of messages in the format of torch's flight recorder."""

    def __init__(self) -> None:
        self.flights: list[dict[str, Any]] = []
        self._originals: dict[str, Any] = {}

    def enable(self) -> None:
        """Wrap the methods that every ``isend``, ``batch_isend_irecv`` and similar call finally uses."""
        group_class = _group_class()
        for name in METHODS:
            if name in vars(group_class):
                self._originals[name] = vars(group_class)[name]
                setattr(group_class, name, self._noting(getattr(group_class, name)))

    def disable(self) -> None:
        """Restore the wrapped methods of process groups."""
        for name, method in self._originals.items():
            setattr(_group_class(), name, method)
        self._originals = {}

    def _noting(self, method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def noting(group: Any, *args: Any, **kwargs: Any) -> Any:
            with noted_flight(self.flights, group.group_name, is_p2p=True):
                return method(group, *args, **kwargs)

        return noting


def _group_class() -> Any:
    """Return torch's class of process groups, or a class without these methods if torch has none."""
    bindings = sys.modules.get("torch._C._distributed_c10d")
    return getattr(bindings, "ProcessGroup", object)


GRACE_SECONDS = 0.05  # maximum wait for a thread to leave the observer or the profiler
_open_traces: set[str] = set()  # host traces that this process's observer is writing


class Recorder:
    """One capture window: profiler, host trace, module ranges and step boundaries of one rank.

    The observer of the host trace slows down every operator, and slows down small operators several times. A
    module range costs as much as a small operator, and Python runs slower while lines are marked. Therefore
    only the first step of the window, ``structure_step``, is recorded with all of these. The ``timed_steps``,
    which do the same work, are recorded with the profiler alone. The device trace contains the operators of
    the recorded thread and its autograd thread, or with *all_threads* the operators of every thread.
    """

    def __init__(self, out: Path, modules: bool, all_threads: bool = False) -> None:
        import torch  # noqa: PLC0415

        self.torch = torch
        self.out = out
        self.rank, self.world_size = _rank_and_world()
        self.structure_step: dict[str, int] | None = None
        self.timed_steps: list[dict[str, int]] = []
        self.notes: list[str] = []
        self.files: dict[str, str | None] = {"host_trace": None, "device_trace": None, "flight_record": None}
        self._ranges = ModuleRanges() if modules else None
        self._lines = ScriptLines()
        self._messages = MessageGroups()
        self._all_threads = all_threads
        self._observer: Any = None
        self._observer_paused = False
        self._paused_at = 0.0
        self._step_range: Any = None
        self._step_index = 0
        self._step_start_ns = 0
        self._start_ns = 0
        self.thread = threading.get_ident()
        self._groups: list[dict[str, Any]] = []
        self._backend: str | None = None
        self._raw_host = out / f".rank{self.rank}.{os.getpid()}.host.json"
        self._raw_device = out / f".rank{self.rank}.{os.getpid()}.device.json"
        self._note_groups()

    def start(self, steps_seen: int) -> None:
        """Start recording; the first captured step is the step after *steps_seen* finished steps.

        Raises:
            RuntimeError: the script records an execution trace, and a process can record only one.

        """
        profiler = self.torch.profiler
        self.out.mkdir(parents=True, exist_ok=True)
        self._observer = self._registered_observer()
        self._profile = profiler._KinetoProfile(record_shapes=False, experimental_config=self._settings())
        self._profile.prepare_trace()
        self._observer.start()
        self._profile.start_trace()
        if self._ranges is not None and self._ranges.enable():
            self._lines.enable()
        elif self._ranges is not None:
            self.notes.append(
                "operators are not assigned to modules: the script uses torch.compile, which module "
                "hooks would disturb"
            )
        self._messages.enable()
        self._start_ns = time.time_ns()
        self.open_step(steps_seen)

    def _registered_observer(self) -> Any:
        """Return the host trace's observer; torch's only observer may belong to the script."""
        observer = self.torch.profiler.ExecutionTraceObserver()
        with without_chatter():
            observer.register_callback(str(self._raw_host))
        if not self._raw_host.exists():
            observer._registered = False  # otherwise, the end of this observer would stop the script's
            raise RuntimeError("the script records an execution trace of its own")
        _open_traces.add(os.path.realpath(self._raw_host))
        return observer

    def _settings(self) -> Any:
        """Return the profiler settings that this version of torch supports.

        On a device, the settings record which stream or thread waited for which event. If communication hooks
        continue in other threads, the settings also record these threads.
        """
        cuda = self.torch.cuda
        wanted = {
            "enable_cuda_sync_events": cuda.is_available() and cuda.is_initialized(),
            "profile_all_threads": self._all_threads,
        }
        settings_class = self.torch.profiler._ExperimentalConfig
        documentation = settings_class.__init__.__doc__ or ""
        settings = {name: True for name, is_wanted in wanted.items() if is_wanted and name in documentation}
        self._all_threads = "profile_all_threads" in settings
        return settings_class(**settings) if settings else None

    def open_step(self, index: int) -> None:
        """Open the range of step *index*."""
        self._step_index = index
        self._step_range = self.torch.autograd.profiler.record_function(f"ProfilerStep#{index}")
        self._step_range.__enter__()
        self.begin_step()

    def begin_step(self) -> None:
        """Record that the open step begins now."""
        self._step_start_ns = time.time_ns()

    def close_step(self, ended_ns: int) -> None:
        """Close the range of the step that ended at *ended_ns* (Unix); the first end stops the observer."""
        self._step_range.__exit__(None, None, None)
        self._step_range = None
        self._add_step(ended_ns)

    def _add_step(self, ended_ns: int) -> None:
        times = {"index": self._step_index, "start_ns": self._step_start_ns, "end_ns": ended_ns}
        if self.structure_step is None:
            self.structure_step = times
            self._pause_observer()
            self._unmark_modules()
        else:
            self.timed_steps.append(times)

    def with_gradients(self) -> Iterable[tuple[str, Any]]:
        """Return the parameters with gradients in the first step, by name, if modules are marked."""
        return () if self._ranges is None else self._ranges.with_gradients()

    def finish(self) -> None:
        """Stop recording and write this rank's files; only complete files get their final names.

        Raises:
            OSError: a file could not be written whole; the files before it are kept.

        """
        self._stop()
        self._note_groups()
        self._save_host()
        self._save_device()
        self._save_flight_record()

    def discard(self) -> None:
        """Stop recording and drop the recording."""
        self._stop()
        self._raw_host.unlink(missing_ok=True)

    def _stop(self) -> None:
        if self._step_range is not None:  # the job ended inside this step, so the step is incomplete
            self._step_range.__exit__(None, None, None)
        self._messages.disable()
        self._unmark_modules()
        self._pause_observer()
        self._pause_profile()
        self._remove_observer(self._profile.stop)

    def _remove_observer(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Call *meanwhile*, and remove the observer when no thread can be inside the observer."""
        time.sleep(max(0.0, self._paused_at + GRACE_SECONDS - time.monotonic()))
        with without_chatter():
            meanwhile()
            if self._observer is not None:
                self._observer.unregister_callback()
                self._observer = None
                _open_traces.clear()

    def _pause_observer(self) -> None:
        """Stop observing operators; threads may still be inside the observer.

        If the observer were removed now, torch would crash, so the removal has to wait.
        """
        if not self._observer_paused:
            self._observer_paused = True
            with without_chatter():
                self._observer.stop()
            self._paused_at = time.monotonic()

    def _unmark_modules(self) -> None:
        if self._ranges is not None:
            self._lines.disable()
            self._ranges.disable()

    def _pause_profile(self) -> None:
        """Pause the profiler before its removal, unless the profiler records only the calling thread."""
        if self._all_threads:
            with without_chatter():
                self._profile.toggle_collection_dynamic(False, [self.torch.profiler.ProfilerActivity.CPU])
            self._paused_at = time.monotonic()

    def _save_host(self) -> None:
        name = f"rank{self.rank}.host.json.gz"
        compress(self._raw_host, self.out / name)
        self.files["host_trace"] = name

    def _save_device(self) -> None:
        name = f"rank{self.rank}.device.json.gz"
        with without_chatter():
            try:
                self._export_device()
                compress(self._raw_device, self.out / name)
            finally:  # the profiler writes to a temporary name first
                for left in self.out.glob(f"{self._raw_device.name}*"):
                    left.unlink()
        self.files["device_trace"] = name

    def _export_device(self) -> None:
        self._profile.export_chrome_trace(str(self._raw_device))

    def _save_flight_record(self) -> None:
        """Write the flight recorder's entries from the window; only they name gloo's process groups."""
        record = self._window_record()
        if not record["entries"]:
            return
        name = f"rank{self.rank}.comms.json.gz"
        write_atomically(self.out / name, gzip.compress(json.dumps(record).encode(), 3))
        self.files["flight_record"] = name

    def _window_record(self) -> dict[str, Any]:
        record = {"entries": FLIGHTS} if FLIGHTS else self._flight_record()
        entries = [*record.get("entries", []), *self._messages.flights]
        record["entries"] = [entry for entry in entries if entry["time_created_ns"] >= self._start_ns]
        return record

    def _flight_record(self) -> dict[str, Any]:
        try:
            record = json.loads(self.torch._C._distributed_c10d._dump_fr_trace_json())
        except (AttributeError, RuntimeError, ValueError):
            return {}  # this build of torch has no flight recorder
        return record if isinstance(record, dict) else {}

    def _note_groups(self) -> None:
        """Store process groups and backend, because the script may destroy the groups before the save."""
        groups, backend = process_groups()
        if groups:
            self._groups, self._backend = groups, backend

    def peers(self) -> dict[str, Any]:
        """Return this rank, and the ranks to which this rank has sent messages."""
        self._note_groups()
        ranks = {group["name"]: group["ranks"] for group in self._groups}
        sent = {ranks[name][peer] for name, peer in PHASES.sends if peer < len(ranks.get(name, ()))}
        return {"rank": self.rank, "sends": sorted(sent)}

    def status(self, wanted_steps: int) -> dict[str, Any]:
        """Return this rank's entry of the manifest, with further data that the launcher needs for the merge.

        If *wanted_steps* is 0, only the times of the run's steps are recorded.
        """
        whole = wanted_steps == 0 or None not in (self.files["host_trace"], self.files["device_trace"])
        entry: dict[str, Any] = {"rank": self.rank, **self.files}
        structure_step, steps = self.structure_step, self.timed_steps
        if not steps:  # the job ended early, so one step serves as structure step and timed step
            structure_step, steps = None, [structure_step] if structure_step else []
        entry.update(
            complete=whole and len(steps) >= wanted_steps, structure_step=structure_step, steps=steps
        )
        entry.update(hostname=socket.gethostname(), pid=os.getpid(), device=self._device())
        entry.update(backend=self._backend, process_groups=self._groups)
        entry.update(world_size=self.world_size, torch_version=str(self.torch.__version__))
        if CREATED_GROUPS:
            entry["all_groups"] = [*CREATED_GROUPS]
        entry.update(raw_host_trace=self._raw_host.name, notes=self.notes)
        return entry

    def _device(self) -> str:
        cuda = self.torch.cuda
        return f"cuda:{cuda.current_device()}" if cuda.is_available() and cuda.is_initialized() else "cpu"


def _discard_in_fork() -> None:
    """Discard observations in a fork (such as a data loader's worker), whose parent owns the host trace.

    Another thread may use the observer at the fork, so a call that stops the observer might never return.
    """
    for number in map(int, os.listdir("/proc/self/fd") if _open_traces else ()):
        with contextlib.suppress(OSError):  # the descriptor that the listing itself used is closed
            if os.readlink(f"/proc/self/fd/{number}") in _open_traces:
                null = os.open(os.devnull, os.O_WRONLY)
                os.dup2(null, number)
                os.close(null)
    _open_traces.clear()


os.register_at_fork(after_in_child=_discard_in_fork)


def _rank_and_world() -> tuple[int, int]:
    dist = _distributed()
    if dist is not None:
        return dist.get_rank(), dist.get_world_size()
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def _distributed() -> Any:
    """Return ``torch.distributed`` if this process uses it, or None."""
    dist = sys.modules.get("torch.distributed")
    return dist if dist is not None and dist.is_available() and dist.is_initialized() else None


def process_groups() -> tuple[list[dict[str, Any]], str | None]:
    """Return this rank's process groups with their global ranks in group order, and the backend's name."""
    dist = _distributed()
    if dist is None:
        return [], None
    world = dist.distributed_c10d._world
    groups = []
    for group, members in world.pg_group_ranks.items():
        if not isinstance(group, dist.ProcessGroup):
            continue  # this rank is not a member of the group
        ranks = sorted(members, key=members.__getitem__)
        description = str(getattr(group, "group_desc", ""))
        groups.append({"name": world.pg_names.get(group, ""), "description": description, "ranks": ranks})
    return groups, str(dist.get_backend())
