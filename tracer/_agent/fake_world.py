"""Let one process act as rank 0 of a large job through torch's fake process group."""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import time
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import Any

POINT_TO_POINT = ("irecv", "isend", "recv", "send")
CREATED_GROUPS: list[list[int]] = []
"""The ranks of every group that the script created, including those without rank 0."""
FLIGHTS: list[dict[str, Any]] = []
"""The start time (Unix nanoseconds) and the process group of each collective."""


def install(distributed_module: Any, ranks: int, rank: int = 0) -> None:
    """Make every process group fake; the default group has *ranks* ranks, and this process is *rank*.

    Fake collectives return immediately without changing their outputs. The sizes and the order of collectives
    are correct, but values and waiting times are not. Consistency checks are skipped, because there are no
    other ranks.
    """
    distributed_module.init_process_group = _fake_initialise(
        distributed_module.init_process_group, ranks, rank
    )
    distributed_module._new_group_with_tag = _fake_group(distributed_module._new_group_with_tag)
    for name, function in list(vars(distributed_module).items()):
        if type(function) is FunctionType and _communicates(name, function):  # isinstance makes torch warn
            setattr(distributed_module, name, _noted(distributed_module, function))


def _fake_initialise(initialise: Callable[..., Any], ranks: int, rank: int) -> Callable[..., Any]:
    @functools.wraps(initialise)
    def init_process_group(*_args: Any, **kwargs: Any) -> Any:
        from torch.testing._internal.distributed.fake_pg import FakeStore  # noqa: PLC0415

        sys.modules["torch.distributed"]._verify_params_across_processes = _agree  # type: ignore[attr-defined]
        timeout = {"timeout": kwargs["timeout"]} if kwargs.get("timeout") else {}
        return initialise(backend="fake", store=FakeStore(), rank=rank, world_size=ranks, **timeout)

    return init_process_group


def _fake_group(new_group: Callable[..., Any]) -> Callable[..., Any]:
    parameters = inspect.signature(new_group)

    @functools.wraps(new_group)
    def _new_group_with_tag(*args: Any, **kwargs: Any) -> Any:
        given = parameters.bind(*args, **kwargs).arguments
        given["backend"] = "fake"
        for option in ("backend_options", "pg_options", "device_id"):
            given.pop(option, None)
        if given.get("ranks") is not None:
            CREATED_GROUPS.append(sorted(int(rank) for rank in given["ranks"]))
        return new_group(**given)

    return _new_group_with_tag


def _communicates(name: str, function: Callable[..., Any]) -> bool:
    parameters = inspect.signature(function).parameters
    return "group" in parameters and ("async_op" in parameters or name in POINT_TO_POINT)


def _noted(distributed_module: Any, collective: Callable[..., Any]) -> Callable[..., Any]:
    """Return a wrapper of *collective* that fills torch's flight recorder, which fake collectives omit."""
    parameters = inspect.signature(collective)

    @functools.wraps(collective)
    def noting(*args: Any, **kwargs: Any) -> Any:
        group = parameters.bind(*args, **kwargs).arguments.get("group")
        names = distributed_module._world.pg_names
        name = names.get(group or distributed_module.group.WORLD, "")
        with noted_flight(FLIGHTS, name, is_p2p=collective.__name__ in POINT_TO_POINT):
            return collective(*args, **kwargs)

    return noting


@contextlib.contextmanager
def noted_flight(flights: list[dict[str, Any]], group: str, *, is_p2p: bool) -> Iterator[None]:
    """Add the communication of the block to *flights*, in the format of torch's flight recorder."""
    started_ns = time.time_ns()
    try:
        yield
    finally:
        times = {"time_created_ns": started_ns, "time_ended_ns": time.time_ns()}
        flights.append({**times, "process_group": [group, ""], "is_p2p": is_p2p})


def _agree(*_arguments: Any) -> None:
    """Skip the comparison of the model's shape with its shape on other ranks."""


def reduce_gradients(parallel_module: Any, dropped: Callable[[], None]) -> None:
    """Give every DistributedDataParallel model a gradient reduction that works with fake groups.

    The native reduction fails on the empty results of fake groups. If the script registers a communication
    hook, the hook is dropped, and *dropped* is called.
    """
    model_class = parallel_module.DistributedDataParallel
    construct, register = model_class.__init__, model_class.register_comm_hook

    @functools.wraps(construct)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        construct(self, *args, **kwargs)
        # a lambda is used, because torch refuses hooks with other annotations
        register(self, self.process_group, lambda group, bucket: _reduce(group, bucket))  # noqa: PLW0108

    model_class.__init__ = __init__
    model_class.register_comm_hook = lambda *_arguments, **_options: dropped()


def _reduce(group: Any, bucket: Any) -> Any:
    torch = sys.modules["torch"]
    gradients = bucket.buffer().div_(group.size())
    torch.distributed.all_reduce(gradients, group=group, async_op=True)
    future: Any = torch.futures.Future()
    future.set_result(gradients)
    return future
