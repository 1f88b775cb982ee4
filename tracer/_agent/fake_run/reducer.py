"""Reduce the gradients of DistributedDataParallel in buckets, as its native reducer does."""

from __future__ import annotations

import functools
import sys
from typing import Any

__all__ = ["install"]


def install(parallel_module: Any) -> None:
    """Give every DistributedDataParallel model a reducer that needs no values."""
    kind = parallel_module.DistributedDataParallel
    construct = kind.__init__

    @functools.wraps(construct)
    def __init__(self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("device_ids", None), kwargs.pop("output_device", None)
        kwargs["init_sync"] = False
        construct(self, module, *args[2:], **kwargs)

    kind.__init__ = __init__
    kind._ddp_init_helper = _init_helper
    kind._sync_module_states = lambda *_args, **_kwargs: None
    kind._sync_buffers = _sync_buffers
    kind.register_comm_hook = lambda self, _state, _hook: self.reducer.drop_hook()


def _init_helper(self: Any, parameters: list[Any], *_args: Any, **_kwargs: Any) -> None:
    caps = self._bucket_config
    self.reducer = _Reducer(self, parameters, [caps.first_bucket_bytes_cap, self.bucket_bytes_cap])
    self.logger = _Nothing()


def _sync_buffers(self: Any) -> None:
    """Broadcast the buffers of each type, as before each forward pass."""
    torch = sys.modules["torch"]
    of_type: dict[Any, list[Any]] = {}
    for buffer in self.modules_buffers:
        of_type.setdefault(buffer.dtype, []).append(buffer.detach().reshape(-1))
    for buffers in of_type.values():
        torch.distributed.broadcast(torch.cat(buffers), 0, group=self.process_group)


class _Nothing:
    """Has every method, and none does anything."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: None


class _Reducer(_Nothing):
    """Buckets in the order in which gradients come, each reduced once it is full."""

    def __init__(self, model: Any, parameters: list[Any], limits: list[int]) -> None:
        self._model = model
        self._limits = limits
        self._rebuilt = False
        self._order: list[Any] = []
        self._place(list(reversed(parameters)))
        self._left = [len(bucket) for bucket in self._buckets]
        self._works: list[tuple[Any, Any, list[Any]]] = []
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._arrived)

    def drop_hook(self) -> None:
        """Note that gradients are reduced without the script's own hook."""
        from . import session  # noqa: PLC0415 - the other way round it is needed first

        session.note("gradients were reduced by a plain all-reduce, without the script's communication hook")

    def _place(self, parameters: list[Any]) -> None:
        """Fill buckets up to their limits; the first is smaller, so that communication starts early."""
        self._buckets: list[list[Any]] = []
        limits = iter(self._limits)
        limit, size = next(limits), 0
        current: list[Any] = []
        for parameter in parameters:
            current.append(parameter)
            size += parameter.numel() * parameter.element_size()
            if size >= limit:
                self._buckets.append(current)
                current, size, limit = [], 0, next(limits, limit)
        if current:
            self._buckets.append(current)
        self._bucket_of = {
            id(parameter): at for at, bucket in enumerate(self._buckets) for parameter in bucket
        }

    def prepare_for_backward(self, _outputs: Any) -> None:
        """Begin a backward pass that reduces."""
        if self._order and not self._rebuilt:
            self._rebuilt = True
            self._place(self._order)
        self._order = []
        self._left = [len(bucket) for bucket in self._buckets]

    def _arrived(self, parameter: Any) -> None:
        if not self._model.require_backward_grad_sync:
            return
        at = self._bucket_of[id(parameter)]
        self._order.append(parameter)
        self._left[at] -= 1
        if self._left[at] == 0:
            self._reduce(self._buckets[at])
        if not any(self._left):
            self._finish()

    def _reduce(self, bucket: list[Any]) -> None:
        torch = sys.modules["torch"]
        group = self._model.process_group
        flat = torch.cat([parameter.grad.reshape(-1) for parameter in bucket])
        flat.div_(group.size())
        self._works.append((torch.distributed.all_reduce(flat, group=group, async_op=True), flat, bucket))

    def _finish(self) -> None:
        for work, flat, bucket in self._works:
            work.wait()
            if not self._model.gradient_as_bucket_view:
                start = 0
                for parameter in bucket:
                    part = flat[start : start + parameter.numel()]
                    start += parameter.numel()
                    parameter.grad.copy_(part.view_as(parameter.grad))
        self._works.clear()
