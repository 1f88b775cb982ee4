"""Reduce the gradients of DistributedDataParallel in buckets, like the native reducer."""

from __future__ import annotations

import functools
import sys
from typing import Any

from . import groups
from .program import PROGRAM


def install(parallel_module: Any) -> None:
    """Give every DistributedDataParallel model a gradient reducer that works without values."""
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
    kind.register_comm_hook = lambda self, state, hook: self.reducer.use_hook(state, hook)


def _init_helper(self: Any, parameters: list[Any], sparse: list[bool], _names: Any, static: bool) -> None:
    caps = self._bucket_config
    limits = [caps.first_bucket_bytes_cap, self.bucket_bytes_cap]
    self.reducer = _Reducer(self, parameters, sparse, limits, is_static=static)
    self.logger = _Nothing()


def _sync_buffers(self: Any) -> None:
    """Broadcast the module's buffers of each type, like DistributedDataParallel before a forward pass."""
    torch = sys.modules["torch"]
    of_type: dict[Any, list[Any]] = {}
    for buffer in self.modules_buffers:
        of_type.setdefault(buffer.dtype, []).append(buffer.detach().reshape(-1))
    for buffers in of_type.values():
        torch.distributed.broadcast(torch.cat(buffers), 0, group=self.process_group)


class _Nothing:
    """An object with every possible method, without any effect."""

    def __getattr__(self, name: str) -> Any:
        return lambda *_args, **_kwargs: None


class _Reducer(_Nothing):
    """Reduces buckets in the order of gradients, as soon as a bucket and all earlier buckets are full.

    If *find_unused_parameters* is true, buckets stay in the order of the parameters, unused parameters are
    detected in the graph, and ranks exchange the list of used parameters.
    """

    def __init__(
        self, model: Any, parameters: list[Any], sparse: list[bool], limits: list[int], *, is_static: bool
    ) -> None:
        self._model = model
        self._parameters = parameters
        self._number = {id(parameter): number for number, parameter in enumerate(parameters)}
        self._sparse = sparse
        self._limits = limits
        self._is_static = is_static
        self._is_dynamic = model.find_unused_parameters and not is_static
        self._hook: tuple[Any, Any] | None = None
        self._rebuilt = False
        self._order: list[int] = []
        self._unused: list[int] = []
        self._works: list[tuple[Any, Any, list[Any]]] = []
        first = self._cut(None, limits if self._is_dynamic else [sys.maxsize])
        self._place(first[::-1])
        for parameter in parameters:
            parameter.register_post_accumulate_grad_hook(self._arrived)

    def use_hook(self, state: Any, hook: Any) -> None:
        """Register the communication hook *hook*, which then reduces the buckets."""
        PROGRAM.note("the script's communication hook reduces gradients as in the second step")
        self._hook = (state, hook)

    def _set_static_graph(self) -> None:
        self._is_static, self._is_dynamic = True, False

    def _cut(self, order: list[int] | None, limits: list[int]) -> list[list[int]]:
        """Return the parameter indices of each bucket; buckets are filled in *order* up to their limits.

        Without an order, buckets are sorted by their first parameter.
        """
        numbers = [*range(len(self._parameters))] if order is None else order
        find = sys.modules["torch"].distributed._compute_bucket_assignment_by_size
        found = find(
            [self._parameters[number] for number in numbers],
            limits,
            [self._sparse[number] for number in numbers],
            order or [],
        )
        buckets: list[list[int]] = found[0] if isinstance(found, tuple) else found
        return buckets

    def _place(self, buckets: list[list[int]]) -> None:
        self._buckets = buckets
        self._bucket_of = {number: at for at, bucket in enumerate(buckets) for number in bucket}
        self._begin()

    def _begin(self) -> None:
        self._left = [len(bucket) for bucket in self._buckets]
        self._next = 0
        self._began = False

    def prepare_for_backward(self, outputs: list[Any]) -> None:
        """Start a backward pass that reduces gradients."""
        if self._began:
            raise RuntimeError(
                "Expected to have finished reduction in the prior iteration before starting a new one: some "
                "parameters were not used in producing the loss, and find_unused_parameters is not set"
            )
        if self._order and not self._rebuilt and not self._is_dynamic:
            self._rebuilt = True
            self._place(self._cut([*self._order, *self._unused], self._limits))
        self._order = []
        self._begin()
        if self._is_dynamic:
            used = _reached(outputs)
            self._unused = [number for key, number in self._number.items() if key not in used]

    def _delay_all_reduce(self) -> None:
        """Reduce at the end of the first backward pass of a static graph, and record unused parameters."""
        if self._began and not self._rebuilt:
            self._unused = [number for number in self._number.values() if number not in self._order]
            for number in self._unused:
                self._ready(number)

    def _arrived(self, parameter: Any) -> None:
        if not self._model.require_backward_grad_sync:
            return
        number = self._number[id(parameter)]
        if number in self._order:
            return  # a static graph may use a parameter several times
        self._order.append(number)
        if not self._began:
            self._began = True
            if self._is_dynamic or self._rebuilt:
                for unused in self._unused:
                    self._ready(unused)
        self._ready(number)

    def _ready(self, number: int) -> None:
        self._left[self._bucket_of[number]] -= 1
        while self._next < len(self._left) and self._left[self._next] == 0:
            self._next += 1
            self._reduce(self._next - 1)
        if self._next == len(self._left):
            self._finish()

    def _reduce(self, at: int) -> None:
        torch, model = sys.modules["torch"], self._model
        if getattr(model, "skip_all_reduce_unused_params", False) and {*self._buckets[at]} <= {*self._unused}:
            return
        bucket = [self._parameters[number] for number in self._buckets[at]]
        parts = [torch.zeros_like(each) if each.grad is None else each.grad for each in bucket]
        flat = torch.cat([part.reshape(-1) for part in parts])
        if self._hook is None:
            flat.div_(model.process_group.size())
            work = torch.distributed.all_reduce(flat, group=model.process_group, async_op=True)
        else:
            state, hook = self._hook
            with groups.futures():
                work = hook(state, _Bucket(at, flat, bucket, is_last=at == len(self._buckets) - 1))
        self._works.append((work, flat, bucket))

    def _finish(self) -> None:
        torch = sys.modules["torch"]
        self._began = False
        reduction = None
        if self._is_dynamic:
            used = torch.ones(len(self._parameters), dtype=torch.int32)
            reduction = torch.distributed.all_reduce(used, group=self._model.process_group, async_op=True)
        for work, flat, bucket in self._works:
            found = work.wait()
            reduced = flat if self._hook is None else found[0] if isinstance(found, list) else found
            if not self._model.gradient_as_bucket_view:
                start = 0
                for parameter in bucket:
                    part = reduced[start : start + parameter.numel()]
                    start += parameter.numel()
                    if parameter.grad is not None:
                        parameter.grad.copy_(part.view_as(parameter.grad))
        if reduction is not None and self._unused:
            reduction.wait()
        self._works.clear()


class _Bucket:
    """A bucket of gradients, the argument of a communication hook."""

    def __init__(self, number: int, flat: Any, parameters: list[Any], *, is_last: bool) -> None:
        self._number, self._flat, self._parameters, self._is_last = number, flat, parameters, is_last

    def index(self) -> int:
        """Return the index of the bucket."""
        return self._number

    def buffer(self) -> Any:
        """Return the concatenated gradients of the bucket."""
        return self._flat

    def set_buffer(self, flat: Any) -> None:
        """Replace the gradients of the bucket by *flat*."""
        self._flat = flat

    def parameters(self) -> list[Any]:
        """Return the parameters of the bucket's gradients."""
        return self._parameters

    def gradients(self) -> list[Any]:
        """Return the gradient of each parameter as a view of the bucket's buffer."""
        parts = self._flat.split([parameter.numel() for parameter in self._parameters])
        return [part.view_as(parameter) for part, parameter in zip(parts, self._parameters, strict=True)]

    def is_last(self) -> bool:
        """Return whether the bucket is the last bucket of the step."""
        return self._is_last


def _reached(outputs: list[Any]) -> set[int]:
    """Return the ids of the parameters from which *outputs* were computed."""
    pending = [output.grad_fn for output in outputs if output.grad_fn is not None]
    found = {id(output) for output in outputs}
    seen = set(pending)
    while pending:
        node = pending.pop()
        if hasattr(node, "variable"):
            found.add(id(node.variable))
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                pending.append(following)
    return found
