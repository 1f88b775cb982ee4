"""Record every operator after DTensor has split it, with its module, its pass and its held memory."""

from __future__ import annotations

import contextlib
import math
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from ..modules import module_names
from .program import PROGRAM


class Names:
    """Tracks the module of the current operator; a backward operator has the forward operator's module."""

    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._stack: list[tuple[Any, str]] = []
        self._names: dict[int, str] = {}
        self._kept: list[Any] = []
        self._of_sequence: dict[int, str] = {}
        self._compiling = 0

    def watch(self) -> None:
        """Track the forward passes of all modules."""
        from torch.nn.modules import module  # noqa: PLC0415

        module.register_module_forward_pre_hook(self._enter)
        module.register_module_forward_hook(self._leave, always_call=True)

    def here(self) -> tuple[str, str]:
        """Return the module and the phase of the current operator."""
        node = self._torch._C._current_autograd_node()
        if node is not None:
            inner = self._stack[-1][1] if self._stack else ""  # a recomputed operator
            return inner or self._of_sequence.get(node._sequence_nr(), ""), "backward"
        if self._torch._C._current_graph_task_id() >= 0:
            return "", "backward"  # callbacks that were queued for the end of the backward pass
        self.passed()
        return (self._stack[-1][1], "forward") if self._stack else ("", "other")

    def passed(self) -> None:
        """Store the current operator's module, which the corresponding backward operator will get."""
        if self._stack:
            number = self._torch._C._autograd._get_sequence_nr() - 1
            self._of_sequence.setdefault(number, self._stack[-1][1])

    @contextlib.contextmanager
    def compiled(self, name: str) -> Iterator[None]:
        """Treat all operators and modules in the block as one compiled part called *name*."""
        around = self._stack[-1][1] if self._stack else ""
        part = object(), f"{around}.{name}" if around else name
        PROGRAM.compiled.append(part[1])
        self._stack.append(part)
        self._compiling += 1
        try:
            yield
        finally:
            self._compiling -= 1
            self._leave(part[0], None, None)

    def forget(self) -> None:
        """Delete the data on the operators of the previous step."""
        self._of_sequence.clear()

    def _enter(self, module: Any, _inputs: Any) -> None:
        if id(module) not in self._names:
            inside: set[int] = set()
            for name, part in module_names(module):
                self._names.setdefault(id(part), name)
                self._kept.append(part)
                if getattr(part, "_chakrascope_compiled", False):
                    inside.update(id(inner) for inner in part.modules())
            PROGRAM.compiled += [name for key, name in self._names.items() if key in inside]
        if self._compiling:
            PROGRAM.compiled.append(self._names[id(module)])
        self._stack.append((module, self._names[id(module)]))

    def _leave(self, module: Any, _inputs: Any, _output: Any) -> None:
        while self._stack:
            last, _ = self._stack.pop()
            if last is module:
                return


class Memory:
    """Counts the bytes of each storage from the creation by an operator until the last reference ends.

    *on_free* is called with the address of each freed storage, because another storage may reuse the address.
    """

    def __init__(self, on_free: Callable[[int], None]) -> None:
        self._on_free = on_free
        self.now_bytes = 0
        self.most_bytes = 0
        self.fixed_bytes = 0
        self._sizes: dict[int, int] = {}

    def begin(self) -> None:
        """Reset the peak; the current bytes (model and optimizer state) count as fixed."""
        self.most_bytes = self.fixed_bytes = self.now_bytes

    def note(self, result: Any) -> None:
        """Count the new storages of the tensors in *result*."""
        if hasattr(result, "untyped_storage"):
            self._count(result)
        elif isinstance(result, (list, tuple)):
            for part in result:
                self.note(part)

    def resized(self, storage: Any, size_bytes: int) -> None:
        """Record the new size of *storage*."""
        key = storage._cdata
        if key in self._sizes:
            self._change(key, size_bytes)

    def _count(self, tensor: Any) -> None:
        try:
            storage = tensor.untyped_storage()
        except (NotImplementedError, RuntimeError):
            return
        key = storage._cdata
        if key not in self._sizes and tensor.device.type != "meta":
            self._sizes[key] = 0
            self._change(key, int(storage.nbytes()))
            weakref.finalize(storage, self._freed, key).atexit = False

    def _change(self, key: int, size_bytes: int) -> None:
        self.now_bytes += size_bytes - self._sizes[key]
        self._sizes[key] = size_bytes
        self.most_bytes = max(self.most_bytes, self.now_bytes)

    def _freed(self, key: int) -> None:
        self.now_bytes -= self._sizes.pop(key, 0)
        self._on_free(key)


# The operators that launch no kernel: they create views, allocate memory, or query properties.
_NO_KERNEL = frozenset({
    "aten::_local_scalar_dense", "aten::_reshape_alias", "aten::as_strided_", "aten::detach", "aten::detach_",
    "aten::empty", "aten::empty_like", "aten::empty_strided", "aten::is_pinned", "aten::lift_fresh",
    "aten::new_empty", "aten::new_empty_strided", "aten::record_stream", "aten::resize_", "aten::set_",
    "aten::sym_size", "aten::t_", "aten::transpose_", "aten::unsqueeze_", "aten::squeeze_",
    "aten::_unsafe_view", "aten::_has_compatible_shallow_copy_type", "aten::equal", "aten::is_nonzero",
    "aten::item",
})  # fmt: skip
_COMMUNICATION = ("c10d", "_c10d_functional", "c10d_functional")
_UNSEEN = frozenset({"prim", "prims", "profiler"})


def make_mode(torch: Any, names: Any, memory: Memory) -> Any:
    """Return the torch mode that records operators in the program; *names* gives the operators' modules."""
    from torch._subclasses.fake_tensor import (  # noqa: PLC0415
        DataDependentOutputException,
        FakeTensor,
    )
    from torch.utils._python_dispatch import TorchDispatchMode  # noqa: PLC0415

    plain = {torch.Tensor, torch.nn.Parameter, FakeTensor}

    class Recording(TorchDispatchMode):
        """The torch mode that records each operator with the local shapes of this rank."""

        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if any(kind not in plain for kind in types):
                return NotImplemented  # DTensor and similar subclasses call operators on their local tensors
            try:
                result = func(*args, **(kwargs or {}))
            except DataDependentOutputException:
                result = _assumed(func, args)
            if func.namespace not in _UNSEEN:
                memory.note(result)
                if PROGRAM.active:
                    _note(torch, func, (args, kwargs or {}), result, names)
            return result

    return Recording()


def _assumed(func: Any, args: Any) -> Any:
    """Return an assumed value for *func*, which needs a value that fake tensors do not have."""
    name = func._schema.name
    if name == "aten::equal":
        return True
    if name not in ("aten::_local_scalar_dense", "aten::is_nonzero", "aten::item"):
        raise  # noqa: PLE0704
    dtype = args[0].dtype
    if dtype.is_complex or dtype.is_floating_point:
        return 1.0
    return False if str(dtype) == "torch.bool" else 1


def _tensors(value: Any) -> Iterator[Any]:
    """Yield every tensor in *value*, which is an argument or a list of arguments."""
    if hasattr(value, "untyped_storage"):
        yield value
    elif isinstance(value, (list, tuple)):
        for part in value:
            yield from _tensors(part)


def _note(torch: Any, func: Any, given: tuple[Any, Any], result: Any, names: Any) -> None:
    """Append a call of *func* with the positional and keyword arguments *given* that returned *result*."""
    args, kwargs = given
    name = func._schema.name
    if func.namespace in _COMMUNICATION:
        if name.endswith("::wait_tensor"):
            PROGRAM.wait_for_data(_storages(args))
            return
        if not name.rpartition("::")[2].startswith("_wrap_tensor_autograd"):
            _note_communication(torch, name, args, result, names)
        return
    if name in _NO_KERNEL or func.is_view:
        names.passed()
        return
    arguments = func._schema.arguments
    values = [*args, *(kwargs[one.name] for one in arguments[len(args) :] if one.name in kwargs)]
    writes = _storages(result)
    reads: set[int] = set()
    changed = False
    for argument, value in zip(arguments, args, strict=False):
        used = _storages(value)
        if argument.alias_info is not None and argument.alias_info.is_write:
            writes |= used
            changed = True
        reads |= used
    for key, value in kwargs.items():
        reads |= _storages(value)
        if key == "out" or any(a.name == key and a.alias_info and a.alias_info.is_write for a in arguments):
            writes |= _storages(value)
            changed = True
    outputs = [] if changed and not _storages(result) - reads else [result]
    PROGRAM.compute(_entry(name, values, outputs, names, changed=changed), reads, writes)


def _note_communication(torch: Any, name: str, args: Any, result: Any, names: Any) -> None:
    group = _group(torch, args)
    entry = _entry(name, [*args], [result], names, changed=False)
    entry["group"] = group
    functional = not name.startswith("c10d::")
    writes = _storages(result) if functional else _storages(args[:1])
    if name == "c10d::send":
        writes = set()
    line: object = ("collectives", group)
    if name in ("c10d::send", "c10d::recv_"):
        entry["peer"], entry["tag"] = int(args[2]), int(args[3])
        line = (name, group, entry["peer"])
    PROGRAM.communicate(entry, line, _storages(args), writes)


def _group(torch: Any, args: Any) -> str:
    """Return the name of the process group among the arguments of a communication."""
    for value in args:
        if isinstance(value, torch.ScriptObject):
            try:
                return str(torch.distributed.ProcessGroup.unbox(value).group_name)
            except RuntimeError:  # the argument is a reduction or another object
                continue
    return next((value for value in reversed(args) if isinstance(value, str)), "")


def _storages(value: Any) -> set[int]:
    found = set()
    for tensor in _tensors(value):
        try:
            found.add(tensor.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # noqa: PERF203 - such a tensor has no storage
            continue
    return found


def _entry(name: str, given: list[Any], outputs: list[Any], names: Any, *, changed: bool) -> dict[str, Any]:
    module, phase = names.here()
    if PROGRAM.phase:
        phase = PROGRAM.phase
    return {
        "name": name,
        "inputs": [_value(value) for value in given],
        "shapes": [_shape(value) for value in given],
        "outputs": [_value(value) for value in outputs],
        "output_shapes": [_shape(value) for value in outputs],
        "changes": changed,
        "module": PROGRAM.module_number(module),
        "phase": phase,
    }


def _value(value: Any) -> Any:
    """Return an argument in the format of host traces, with tensors as storage, elements and bytes."""
    if hasattr(value, "untyped_storage"):
        (storage,) = _storages(value) or {0}
        number = PROGRAM.storage_number(storage) if storage else 0
        return [0, number, 0, int(value.numel()), value.element_size(), "cuda:0"]
    if isinstance(value, (list, tuple)):
        return [_value(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return "<None>" if value is None else value
    return str(value) if type(value).__module__ == "torch" else "<Object>"


def _shape(value: Any) -> Any:
    if hasattr(value, "untyped_storage"):
        return [int(size) for size in value.shape]
    if isinstance(value, (list, tuple)) and any(hasattr(part, "untyped_storage") for part in value):
        return [_shape(part) for part in value]
    return []
