"""Fake process groups of one rank, and the exchange of Python objects between ranks."""

from __future__ import annotations

import contextlib
import functools
import os
import pickle
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from .. import fake_world
from ..process import launch_options
from .program import PROGRAM, Stream

_POLL_SECONDS = 0.02
_METHODS = (
    "_allgather_base", "_end_coalescing", "_reduce_scatter_base", "allgather", "allgather_coalesced",
    "allgather_into_tensor_coalesced", "allreduce", "allreduce_coalesced", "alltoall", "alltoall_base",
    "barrier", "broadcast", "gather", "recv", "recv_anysource", "reduce", "reduce_scatter",
    "reduce_scatter_tensor_coalesced", "scatter", "send",
)  # fmt: skip
_sent: Counter[tuple[int, int]] = Counter()
_works: dict[int, tuple[Any, int, range]] = {}
# The recorded communication of each work object, as long as the script may wait for the work object.
_tensors: dict[int, Any] = {}
_asking: list[bool] = []


def install(distributed_module: Any) -> None:
    """Replace every process group by a fake process group, and pass objects between the running ranks."""
    options = launch_options()["fake_run"]
    fake_world.install(distributed_module, options["world"], options["rank"])
    distributed_module.send_object_list = _send
    distributed_module.recv_object_list = _receive
    distributed_module.all_gather_object = _same_of_all
    distributed_module.broadcast_object_list = lambda *_args, **_kwargs: None
    distributed_module.gather_object = _gathered
    distributed_module.scatter_object_list = _scattered


def _same_of_all(found: list[Any], own: Any, *_args: Any, **_kwargs: Any) -> None:
    found[:] = [own] * len(found)


def _gathered(own: Any, found: list[Any] | None = None, *_args: Any, **_kwargs: Any) -> None:
    if found is not None:
        _same_of_all(found, own)


def _scattered(found: list[Any], given: list[Any] | None = None, *_args: Any, **_kwargs: Any) -> None:
    found[0] = given[0] if given else None


def _send(objects: list[Any], dst: int | None = None, *_args: Any, **_kwargs: Any) -> None:
    own, folder = launch_options()["fake_run"]["rank"], _exchange()
    number = _sent[(own, int(dst or 0))]
    _sent[(own, int(dst or 0))] += 1
    path = folder / f"{own}-{dst}-{number}.pickle"
    path.with_suffix(".part").write_bytes(pickle.dumps(objects))
    os.replace(path.with_suffix(".part"), path)


def _receive(objects: list[Any], src: int | None = None, *_args: Any, **_kwargs: Any) -> int:
    """Request a run of rank *src*, and wait for the object of rank *src*."""
    options, folder = launch_options()["fake_run"], _exchange()
    number = _sent[(int(src or 0), options["rank"])]
    _sent[(int(src or 0), options["rank"])] += 1
    (folder / f"wanted-{src}").touch()
    path = folder / f"{src}-{options['rank']}-{number}.pickle"
    deadline = time.monotonic() + options["patience_s"]
    while not path.exists():
        if time.monotonic() > deadline:
            raise TimeoutError(f"rank {src} did not send the message that rank {options['rank']} waits for")
        time.sleep(_POLL_SECONDS)
    objects[:] = pickle.loads(path.read_bytes())
    return int(src or 0)


def _exchange() -> Path:
    folder = Path(launch_options()["fake_run"]["exchange"])
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def watch_works(torch: Any) -> None:
    """Make ``wait`` of a communication block the current stream."""
    native = torch._C._distributed_c10d
    for name in _METHODS:
        if hasattr(native.ProcessGroup, name):
            setattr(native.ProcessGroup, name, _remembering(getattr(native.ProcessGroup, name)))
    for kind in (native.Work, native.FakeWork):
        kind.wait = _waiting(kind.wait)
        kind.get_future = _asked_future(kind.get_future)


@contextlib.contextmanager
def futures() -> Iterator[None]:
    """Make ``get_future`` of the communications in the block return their outputs.

    Callbacks of these futures run on a separate stream, as on GPUs.
    """
    _asking.append(True)
    try:
        yield
    finally:
        _asking.pop()
        _tensors.clear()


_ENDS = Stream()


class _Future:
    """A future that completes with the entries at *places* and returns *value*."""

    def __init__(self, value: Any, places: Iterable[int]) -> None:
        self._value, self._places, self._epoch = value, [*places], PROGRAM.epoch

    def value(self) -> Any:
        return self._value

    def done(self) -> bool:
        return True

    def wait(self) -> Any:
        if self._epoch == PROGRAM.epoch:
            PROGRAM.wait(self._places)
        return self._value

    def then(self, callback: Callable[[_Future], Any]) -> _Future:
        with _ENDS:
            self.wait()
            value = callback(self)
            return _Future(value, PROGRAM.reached(_ENDS) if PROGRAM.recording else ())

    def add_done_callback(self, callback: Callable[[_Future], Any]) -> None:
        self.then(callback)


def _asked_future(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def get_future(self: Any) -> Any:
        if id(self) not in _tensors:
            return method(self)
        return _Future(_tensors[id(self)][1], _places(self))

    return get_future


def _remembering(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **kwargs: Any) -> Any:
        before = len(PROGRAM.entries)
        work = method(*args, **kwargs)
        if work is not None and _asking:
            _tensors[id(work)] = (work, args[1])
        if work is not None and PROGRAM.recording:
            _works[id(work)] = (work, PROGRAM.epoch, range(before, len(PROGRAM.entries)))
        return work

    return call


def _waiting(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def wait(self: Any, *args: Any, **kwargs: Any) -> Any:
        PROGRAM.wait(_places(self))
        return method(self, *args, **kwargs)

    return wait


def _places(work: Any) -> range:
    """Return the indices of the recorded entries of *work*, and remove *work* from the table."""
    _, epoch, places = _works.pop(id(work), (None, -1, range(0)))
    return places if epoch == PROGRAM.epoch else range(0)
